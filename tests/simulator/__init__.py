"""A simulator of faults: seeded schedules of lost messages, dying parties, changing members and
versions.

``schedule.run(seed)`` plays one schedule and checks it; every draw comes from the seed, so a
failure replays exactly.
"""
