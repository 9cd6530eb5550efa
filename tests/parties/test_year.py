"""A year of nightly rounds in one process: absences, kills, restores and erasures by a seeded dice.

The clock is simulated, everything else is real: directories, keys, signatures, the schedule.  What
people do happens at noon, rounds come at 02:30 in Berlin, the two changes of the clock included.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from party_world import World, values_of

from fedforget.cli.directory_page import report_of
from fedforget.parties import receipts
from fedforget.parties.client_party import open_client
from fedforget.parties.federation_file import FederationFile
from fedforget.parties.server_party import open_server
from fedforget.runtime.directory_rounds import DirectoryRounds
from fedforget.runtime.schedule import Backoff, Schedule, Stop
from fedforget.runtime.timetable import Timetable, duration, time_of_day
from fedforget.wall_clock import using
from first_open import first_open
from simulated_clock import SimulatedClock

try:
    from amending import amend_all
except ImportError:  # this version cannot amend federations
    amend_all = None

BERLIN = ZoneInfo("Europe/Berlin")
START = datetime(2026, 1, 1, tzinfo=BERLIN).astimezone(UTC)
DAYS = 365
TOWNS = ("aarhus", "bologna", "coimbra", "dresden")
STAGES = ("who", "advertise", "share", "masked input", "consistency", "unmask", "commit")


class Killed(BaseException):
    """The scheduler's process is gone."""


class Year:
    """A federation, what people do to it, and what must be true of it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.clock = SimulatedClock(START)
        self.rng = np.random.default_rng(seed)
        self.world = World(folder, TOWNS)
        self.records: dict[str, dict[str, np.ndarray]] = {name: {} for name in TOWNS}
        self.forgotten_since_backup: dict[str, list[str]] = {name: [] for name in TOWNS}
        self.away: dict[str, int] = {}
        self.restores = dict.fromkeys(TOWNS, 0)
        self.kill_at: str | None = None
        self.full_is_due = False
        self.server_is_restored = False
        self.receipts = folder / "receipts"
        self.happened: dict[str, int] = {}
        self.nights: list[datetime] = []
        self.asked = 0

    # -- the world -----------------------------------------------------------------------------

    def set_up(self) -> None:
        with using(self.clock):
            self.world.set_up()
            for name in TOWNS:
                self.bring(name, 15)

    def bring(self, name: str, number: int) -> None:
        seed = int(self.rng.integers(1 << 31))
        ids = [f"{name}-{seed}-{row}" for row in range(number)]
        values = values_of(number, seed)
        self.world.hold(name, ids, values)
        self.records[name] |= dict(zip(ids, values, strict=True))

    def forget(self, name: str, ids: list[str]) -> None:
        self.world.forget(name, ids)
        self.asked += 1
        for one in ids:
            del self.records[name][one]
        self.forgotten_since_backup[name] += ids

    # -- what people do at noon ----------------------------------------------------------------

    def noon(self, day: int) -> None:
        with using(self.clock):
            for name in [name for name, until in self.away.items() if until <= day]:
                self.come_back(name)
            for chance, what in (
                (0.30, self.patients_withdraw),
                (0.25, self.patients_arrive),
                (0.08, self.somebody_is_away),
                (0.05, self.scheduler_is_killed),
                (0.03, self.client_is_restored),
                (0.04, self.server_is_restored_from_backup),
                *([(0.03, self.federation_is_amended)] if amend_all else []),
            ):
                if self.rng.random() < chance and what(day):
                    self.happened[what.__name__] = self.happened.get(what.__name__, 0) + 1
            if day % 7 == 0:
                for name in self.there():
                    self.write_receipts(name)
            if day % 10 == 0:
                for name in ("server", *self.there()):
                    self.back_up(name)
            self.operator_acts()

    def there(self) -> list[str]:
        return [name for name in TOWNS if name not in self.away]

    def somebody(self) -> str:
        return str(self.rng.choice(self.there()))

    def patients_withdraw(self, day: int) -> bool:
        name = self.somebody()
        held = sorted(self.records[name])
        if len(held) < 8:
            return False
        number = int(self.rng.integers(1, 4))
        self.forget(name, [str(one) for one in self.rng.choice(held, number, replace=False)])
        return True

    def patients_arrive(self, day: int) -> bool:
        self.bring(self.somebody(), int(self.rng.integers(1, 5)))
        return True

    def somebody_is_away(self, day: int) -> bool:
        """One may be; of two, one round after the other comes to nothing until one is back."""
        if len(self.away) > 1 or self.full_is_due or self.server_is_restored:
            return False
        name = self.somebody()
        self.world.client(name).rename(self.world.folder / f"{name}.away")
        self.away[name] = day + int(self.rng.integers(1, 6))
        return True

    def come_back(self, name: str) -> None:
        (self.world.folder / f"{name}.away").rename(self.world.client(name))
        del self.away[name]

    def scheduler_is_killed(self, day: int) -> bool:
        self.kill_at = str(self.rng.choice(STAGES))
        return True

    def back_up(self, name: str) -> None:
        self.world.back_up(name)
        if name in TOWNS:
            self.forgotten_since_backup[name] = []

    def client_is_restored(self, day: int) -> bool:
        """As operate.md says: erasures again, then a full round; imports again, too."""
        name = self.somebody()
        if self.server_is_restored or not (self.world.folder / f"backup-{name}").exists():
            return False
        self.write_receipts(name)
        self.world.restore(name)
        # What was asked before the backup, and counted after it, is counted and receipted again.
        self.restores[name] += 1
        with open_client(self.world.client(name)) as client:
            client.recover(self.forgotten_since_backup[name])
        held = self.world.held(name)
        lost = [one for one in self.records[name] if one not in held]
        if lost:
            values = np.array([self.records[name][one] for one in lost])
            self.world.hold(name, lost, values)
        self.full_is_due = True
        return True

    def server_is_restored_from_backup(self, day: int) -> bool:
        if self.away or self.full_is_due or not (self.world.folder / "backup-server").exists():
            return False
        self.world.restore("server")
        self.server_is_restored = True
        return True

    def federation_is_amended(self, day: int) -> bool:
        """Another K for everybody; backups are made anew, and a full round comes by itself."""
        if self.away or self.full_is_due or self.server_is_restored:
            return False
        n_clusters = int(self.rng.integers(2, 5))
        if n_clusters == self.world.federation.model.n_clusters:
            return False
        amend_all(self.world, n_clusters=n_clusters)
        for name in ("server", *TOWNS):
            self.back_up(name)
        return True

    def operator_acts(self) -> None:
        """What messages ask for, once everybody is there."""
        if self.away:
            return
        if self.server_is_restored and self.rng.random() < 0.5:
            self.world.recover_server()
            self.server_is_restored = False
            self.full_is_due = False  # the schedule runs a full round by itself then
        elif self.full_is_due and not self.server_is_restored:
            self.world.round(kind="full")
            self.full_is_due = False

    def write_receipts(self, name: str) -> None:
        with open_client(self.world.client(name)) as client:
            client.write_receipts(self.receipts / name / str(self.restores[name]))

    # -- the nights ----------------------------------------------------------------------------

    def live(self) -> None:
        """From the first night to the last; a scheduler that is killed is started again."""
        stop, end = Stop(), START + timedelta(days=DAYS, hours=-1)
        for day in range(DAYS):
            self.clock.at(START + timedelta(days=day, hours=12), self.noon_of(day))
        self.clock.at(end, stop.ask)
        table = Timetable(duration("24h"), time_of_day("02:30"), BERLIN)
        rounds = DirectoryRounds(self.world.server, self.world.clients)
        while not stop.asked:
            schedule = Schedule(
                rounds, table, self.clock, stop=stop, tell=self.tell, backoff=Backoff(jitter=0.0)
            )
            try:
                schedule.run()
            except Killed:
                self.clock.sleep(15)

    def noon_of(self, day: int) -> Callable[[], None]:
        return lambda: self.noon(day)

    def tell(self, event: dict[str, Any]) -> None:
        if event["event"] == "stage" and event["stage"] == self.kill_at:
            self.kill_at = None
            raise Killed
        if event["event"] == "committed":
            self.nights.append(self.clock.now())
        if event["event"] == "failed":
            key = f"failed: {event['need']}"
            self.happened[key] = self.happened.get(key, 0) + 1

    def finish(self) -> None:
        """The last day: everybody is back, and a round counts everything."""
        with using(self.clock):
            for name in list(self.away):
                self.come_back(name)
            if self.server_is_restored:
                self.world.recover_server()
            self.world.round(kind="full")
            for name in TOWNS:
                self.write_receipts(name)


def unamended(file: FederationFile) -> FederationFile:
    """The same parameters in a file without a history."""
    return replace(file, amendment=None) if amend_all else file


def bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def needed_by_the_server(folder: Path) -> int:
    """Bytes of the log, the lists and the commit notices, which a server keeps for ever."""
    with open_server(folder) as server:
        tables = (("log", "entry"), ("list", "data"), ("notice", "letter"))
        return sum(
            server._db.execute(f"SELECT sum(length({column})) FROM {table}")[0][0]
            for table, column in tables
        )


def needed_by_a_client(folder: Path) -> int:
    """Bytes of the lists, the commit notices and the receipts, which a client keeps for ever."""
    with open_client(folder) as client:
        tables = (("list", "data"), ("notice", "letter"), ("receipt", "document"))
        return sum(
            client.store.execute(f"SELECT coalesce(sum(length({column})), 0) FROM {table}")[0][0]
            for table, column in tables
        )


def test_a_year(tmp_path: Path) -> None:
    year = Year(tmp_path, seed=7)
    year.set_up()
    first = {name: bytes_of(year.world.folder / name) for name in ("server", *TOWNS)}
    year.live()
    year.finish()
    world = year.world

    # All of it has happened, and rounds came in most nights, at the hour of the local clock.
    assert {
        "patients_withdraw",
        "patients_arrive",
        "somebody_is_away",
        "scheduler_is_killed",
        "client_is_restored",
        "server_is_restored_from_backup",
        "failed: member",
        "failed: person",
        *({"federation_is_amended"} if amend_all else ()),
    } <= year.happened.keys(), year.happened
    nights = {moment.astimezone(BERLIN).date() for moment in year.nights}
    assert len(nights) > 300, year.happened
    on_time = [one for one in year.nights if one.astimezone(BERLIN).strftime("%H:%M") == "02:30"]
    assert len(on_time) > 280
    local = [one.astimezone(BERLIN) for one in year.nights]
    skipped = [one for one in local if one.date().isoformat() == "2026-03-29"]
    assert [one.hour for one in skipped] in ([3], [])

    # The records, the sums and every audit are right, and the model is that of a fresh fit.
    for name in TOWNS:
        wanted = {(one, row.tobytes()) for one, row in year.records[name].items()}
        assert world.records(name) == wanted
    world.check_sums()
    world.check_audits()
    fresh = World(tmp_path / "fresh", TOWNS).set_up(unamended(world.federation))
    for name in TOWNS:
        order = sorted(year.records[name])
        fresh.hold(name, order, np.array([year.records[name][one] for one in order]))
    with open_server(world.server) as server:
        assert server.status()["model"] == fresh.round()["model"]

    # Every receipt that was ever issued verifies, also those of directories that were lost.
    written = sorted(year.receipts.rglob("receipt-*.json"))
    assert len(written) > year.asked * 0.8, (len(written), year.asked)
    files = map(FederationFile.read, world.server.glob("federation*.toml"))
    versions = {one.digest.hex(): one for one in files}
    with using(year.clock):
        for path in written:
            document = receipts.read(path)
            receipts.verify(document, versions[document["configuration"]])

    # What directories have grown by is what they must keep.  A page of SQLite takes 8 KiB and a
    # receipt more than half of one, so that half as much again may lie empty; no more adds up.
    slack = 1 << 17
    grown = bytes_of(world.server) - first["server"]
    kept = needed_by_the_server(world.server)
    assert grown < 1.5 * kept + slack, (grown, kept)
    for name in TOWNS:
        grown = bytes_of(world.client(name)) - first[name]
        kept = needed_by_a_client(world.client(name))
        assert grown < 1.5 * kept + slack, (name, grown, kept)

    # A page of a year opens at once: nothing slow is loaded, and no more is asked or shown for
    # every round that ever was.  `benchmarks/live_page.py` says how long it takes.
    for folder, kind in ((world.server, "server"), (world.client("aarhus"), "client")):
        opened = first_open(folder, kind)
        assert "being checked" in opened["page"]
        assert len(opened["page"]) < 200_000 + 2_000 * (kind == "client") * year.asked
        assert opened["statements"] < 100, opened["statements"]
        assert len(report_of(folder)[1]) < 2_000_000
