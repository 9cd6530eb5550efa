"""What a directory knows of time: commits, members that are missing, what waits, what failed.

Times are those that were stored: of commit notices, log entries and requests.  Where an earlier
version has stored none, they are None, and people are told "unknown".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from fedforget.parties.attempts import failures_since
from fedforget.parties.imports import waiting_imports
from fedforget.protocol.history import left_after
from fedforget.protocol.membership import Membership
from fedforget.protocol.messages import Letter, Notice
from fedforget.wall_clock import moment_of, stamp

if TYPE_CHECKING:
    from fedforget.parties.client_party import ClientParty
    from fedforget.parties.server_party import ServerParty


@dataclass(frozen=True)
class Limits:
    """What is overdue.

    Attributes
    ----------
    due : how long a request may wait.
    stale : how long a commit, a member or an import may be missed.
    """

    due: timedelta = timedelta(days=30)
    stale: timedelta = timedelta(days=7)


@dataclass(frozen=True)
class Commit:
    """A committed round: under which list, whom it counts, and who has left by then."""

    round: int
    time: datetime | None
    epoch: int
    counted: Mapping[str, int]
    left: tuple[str, ...]


@dataclass(frozen=True)
class Missing:
    """A member that the last rounds did not count.

    ``since`` is the first commit without it, or the list with which it came; ``rounds`` is None for
    a newcomer that no round has counted yet.
    """

    name: str
    since: datetime | None
    rounds: int | None


@dataclass(frozen=True)
class Overdue:
    """Something that a person should look after."""

    what: str
    text: str


@dataclass(frozen=True)
class Times:
    """What a party knows of time, at a moment."""

    now: datetime
    last: Commit | None
    missing: tuple[Missing, ...]
    failed: tuple[dict[str, Any], ...]
    overdue: tuple[Overdue, ...]

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        last = self.last
        return {
            "last_commit": None
            if last is None
            else {"round": last.round, "time": _text(last.time)},
            "members_missing": [
                {
                    "member": one.name,
                    "since": _text(one.since),
                    "seconds": self.ago(one.since),
                    "rounds": one.rounds,
                }
                for one in self.missing
            ],
            "failed_attempts": list(self.failed),
            "overdue": [{"what": one.what, "text": one.text} for one in self.overdue],
        }

    def ago(self, moment: datetime | None) -> int | None:
        """Seconds since a moment."""
        return None if moment is None else max(0, int((self.now - moment).total_seconds()))


@dataclass(frozen=True)
class ClientTimes(Times):
    """The same of a client, with what waits there.

    Attributes
    ----------
    oldest : number and time of the request that waits longest, and when it is due.
    imports : since when imports wait and how many records they have; None if that is unknown.
    """

    oldest: tuple[str, datetime | None, datetime | None] | None
    imports: tuple[datetime | None, int] | None

    def plain(self) -> dict[str, Any]:
        oldest, imports = self.oldest, self.imports
        return super().plain() | {
            "oldest_request": None
            if oldest is None
            else {"request": oldest[0], "time": _text(oldest[1]), "due": _text(oldest[2])},
            "imports_waiting": None
            if imports is None
            else {"records": imports[1], "since": _text(imports[0])},
        }


def overdue_texts(times: Times) -> list[str]:
    """What should have happened by now, in words."""
    return [one.text for one in times.overdue]


# -- the two sides ---------------------------------------------------------------------------------


def server_times(party: ServerParty, now: datetime, limits: Limits) -> Times:
    """Times of a server."""
    log = party.log()
    commits = commits_of(party.notices_after(0))
    last = commits[-1] if commits else None
    lists = party.lists()
    newest = lists[-1] if lists else None
    missing = missing_members(newest, commits, _times_of_lists(log))
    failed = [
        *_failures_in(log),
        *(
            {"time": one["time"], "causes": [one["cause"]]}
            for one in failures_since(party.folder, None if last is None else last.time)
        ),
    ]
    begun = moment_of(log[0].get("time")) if log else None
    overdue = [*_late_commit(last, begun, now, limits), *_late_members(missing, now, limits)]
    failed.sort(key=lambda one: str(one["time"]))
    return Times(now, last, missing, tuple(failed), tuple(overdue))


def client_times(party: ClientParty, now: datetime, limits: Limits) -> ClientTimes:
    """Times of a client."""
    commits = commits_of(party.store.notices_after(0))
    last = commits[-1] if commits else None
    lists = party.lists()
    missing = missing_members(lists[-1] if lists else None, commits, {})
    failed = [
        {"time": one["time"], "causes": [one["cause"]]}
        for one in failures_since(party.folder, None if last is None else last.time)
    ]
    oldest = _oldest_request(party, limits)
    imports = _imports(party)
    overdue = [*_late_commit(last, None, now, limits), *_late_members(missing, now, limits)]
    if oldest is not None and oldest[2] is not None and oldest[2] < now:
        overdue.insert(
            0,
            Overdue("request", f"request {oldest[0]} waits for a round; due {_text(oldest[2])}"),
        )
    if imports is not None and imports[1] and _is_late(imports[0], now, limits.stale):
        overdue.append(
            Overdue("import", f"imported records have not been counted since {_text(imports[0])}")
        )
    return ClientTimes(
        now, last, missing, tuple(failed), tuple(overdue), oldest=oldest, imports=imports
    )


def last_commit_of(log: Sequence[Mapping[str, Any]]) -> datetime | None:
    """When a server committed its last round, by its log."""
    rounds = [entry for entry in log if entry["kind"] == "round"]
    return moment_of(rounds[-1].get("time")) if rounds else None


# -- parts -----------------------------------------------------------------------------------------


def commits_of(letters: Iterable[bytes]) -> list[Commit]:
    """What commit notices say of time and members."""
    found = []
    left: tuple[str, ...] = ()
    for data in letters:
        payload = Letter(data).payload
        if isinstance(payload.body, Notice):
            seconds = payload.body.time
            moment = datetime.fromtimestamp(seconds, UTC) if seconds else None
            left = left_after(left, payload.body)
            context, counted = payload.context, dict(payload.body.counted)
            found.append(Commit(context.round, moment, context.epoch, counted, left))
    return found


def missing_members(
    newest: Membership | None, commits: Sequence[Commit], made: Mapping[int, datetime | None]
) -> tuple[Missing, ...]:
    """Members of a list whom the last round did not count, though they could have taken part.

    Whoever has left is not missing, nor is a newcomer before the first round under its list.
    ``made`` says when each list was made, as far as that is known.
    """
    if newest is None or not commits:
        return ()
    last, time_of = commits[-1], {one.round: one.time for one in commits}
    gone = {*last.left} - newest.returned
    found = []
    for name in newest.active:
        counted, came = last.counted.get(name), newest.since[name]
        if name in gone:
            continue
        if counted is None:
            if last.epoch >= came:
                found.append(Missing(name, made.get(came), None))
        elif counted < last.round:
            found.append(Missing(name, time_of.get(counted + 1), last.round - counted))
    return tuple(sorted(found, key=lambda one: one.name))


def _times_of_lists(log: Sequence[Mapping[str, Any]]) -> dict[int, datetime | None]:
    """When each list was made."""
    return {
        entry["body"]["epoch"]: moment_of(entry.get("time"))
        for entry in log
        if entry["kind"] == "epoch"
    }


def _failures_in(log: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Attempts since the last commit that failed and have findings."""
    rounds = [at for at, entry in enumerate(log) if entry["kind"] == "round"]
    since = log[rounds[-1] + 1 :] if rounds else log
    return [
        {
            "time": entry.get("time"),
            "attempt": entry["body"].get("attempt"),
            "causes": [one["text"] for one in entry["body"]["findings"]],
        }
        for entry in since
        if entry["kind"] == "failure" and entry["body"].get("findings")
    ]


def _oldest_request(
    party: ClientParty, limits: Limits
) -> tuple[str, datetime | None, datetime | None] | None:
    waiting = [(one.name, moment_of(one.time)) for one in party.store.requests()]
    if not waiting:
        return None
    known = [(time, name) for name, time in waiting if time is not None]
    if not known:
        return waiting[0][0], None, None
    time, name = min(known)
    return name, time, time + limits.due


def _imports(party: ClientParty) -> tuple[datetime | None, int] | None:
    waiting = waiting_imports(party.store)
    if waiting is None:
        return None if len(party.store) else (None, 0)
    since = [moment for one in waiting if (moment := moment_of(one.since)) is not None]
    return min(since, default=None), sum(one.records for one in waiting)


def _late_commit(
    last: Commit | None, begun: datetime | None, now: datetime, limits: Limits
) -> list[Overdue]:
    """No round for too long, or none ever since a list was made."""
    since = begun if last is None else last.time
    if not _is_late(since, now, limits.stale):
        return []
    what = "no round was ever committed" if last is None else f"round {last.round} is the last one"
    return [Overdue("round", f"{what}; nothing since {_text(since)}")]


def _late_members(missing: Iterable[Missing], now: datetime, limits: Limits) -> list[Overdue]:
    return [
        Overdue("member", f"{one.name} has been missing since {_text(one.since)}")
        for one in missing
        if _is_late(one.since, now, limits.stale)
    ]


def _is_late(since: datetime | None, now: datetime, limit: timedelta) -> bool:
    return since is not None and now - since > limit


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else stamp(moment)
