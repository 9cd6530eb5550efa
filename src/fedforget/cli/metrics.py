"""What a party's status says, in Prometheus' text format.

The file is for a collector such as node_exporter's textfile collector, and so for people on another
machine.  Numbers of records and of requests are left out where they are above zero and below the
federation's least cell: a site's file must not tell more than its reports do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedforget.errors import FedforgetError
from fedforget.parties.times import ClientTimes, Times
from fedforget.whole_files import whole_file

OVERDUE = ("round", "member")
"""What can be overdue, as both sides know."""
OVERDUE_AT_A_CLIENT = (*OVERDUE, "request", "import")
"""Requests and imports are known where they are made; no server hears of them."""

SampleLabels = Mapping[str, str]


@dataclass(frozen=True)
class Gauge:
    """A value that goes up and down, one per set of labels."""

    name: str
    about: str
    samples: tuple[tuple[SampleLabels, float], ...]

    def lines(self) -> Iterable[str]:
        if not self.samples:
            return
        yield f"# HELP {self.name} {_escaped(self.about)}"
        yield f"# TYPE {self.name} gauge"
        for labels, value in self.samples:
            told = ",".join(f'{key}="{_quoted(text)}"' for key, text in labels.items())
            yield f"{self.name}{{{told}}} {_number(value)}"


def write_metrics(path: Path, gauges: Iterable[Gauge], *, private: bool) -> None:
    """Write a file, the whole of it or nothing."""
    text = "".join(f"{line}\n" for gauge in gauges for line in gauge.lines())
    try:
        with whole_file(path, private=private) as file:
            file.write(text.encode())
    except OSError as error:
        raise FedforgetError(f"{path} cannot be written: {error.strerror or error}") from None


def server_metrics(status: Mapping[str, Any], times: Times) -> list[Gauge]:
    """A server's."""
    own = {"federation": str(status["name"]), "party": "server"}
    return [
        *_shared(own, times, OVERDUE),
        Gauge(
            "fedforget_members",
            "Members on the list in force.",
            ((own, len(status["members"])),),
        ),
        Gauge(
            "fedforget_members_suspended",
            "Members that take no part for a while.",
            ((own, len(status["suspended"])),),
        ),
        Gauge(
            "fedforget_full_round_needed",
            "Whether the next round must count everybody anew.",
            ((own, bool(status["needs_full_round"])),),
        ),
    ]


def client_metrics(status: Mapping[str, Any], times: ClientTimes, least: int) -> list[Gauge]:
    """A client's; ``least`` is the smallest number of records that may be told."""
    own = {"federation": str(status["federation"] or ""), "party": str(status["name"])}
    oldest, imports = times.oldest, times.imports
    return [
        *_shared(own, times, OVERDUE_AT_A_CLIENT),
        _count(
            "fedforget_requests_waiting",
            "Erasure requests that wait for a round.",
            own,
            status["requests_waiting"],
            least,
        ),
        _count(
            "fedforget_records_waiting",
            "Erased records that the model still counts.",
            own,
            status["records_waiting"],
            least,
        ),
        _moment(
            "fedforget_oldest_request_timestamp_seconds",
            "When the request that waits longest was made.",
            own,
            None if oldest is None else oldest[1],
        ),
        _moment(
            "fedforget_oldest_request_due_timestamp_seconds",
            "When that request is due.",
            own,
            None if oldest is None else oldest[2],
        ),
        _count(
            "fedforget_imported_records_waiting",
            "Imported records that no round has counted yet.",
            own,
            None if imports is None else imports[1],
            least,
        ),
        _moment(
            "fedforget_imports_waiting_since_timestamp_seconds",
            "The first import that no round has counted yet.",
            own,
            None if imports is None else imports[0],
        ),
        Gauge(
            "fedforget_suspended",
            "Whether the list in force lets this client take no part.",
            ((own, bool(status["suspended"])),),
        ),
    ]


def _shared(own: SampleLabels, times: Times, kinds: Iterable[str]) -> list[Gauge]:
    """What both sides have; ``kinds`` are those of things that can be overdue here."""
    last = times.last
    overdue = [one.what for one in times.overdue]
    return [
        _moment("fedforget_status_timestamp_seconds", "When this was written.", own, times.now),
        Gauge(
            "fedforget_last_round",
            "The last committed round that is known here; 0 for none.",
            ((own, 0 if last is None else last.round),),
        ),
        _moment(
            "fedforget_last_commit_timestamp_seconds",
            "When that round was committed.",
            own,
            None if last is None else last.time,
        ),
        Gauge(
            "fedforget_members_missing",
            "Members that the last round did not count.",
            ((own, len(times.missing)),),
        ),
        Gauge(
            "fedforget_member_missing_since_timestamp_seconds",
            "The first round without a member that the last round did not count.",
            tuple(
                ({**own, "member": one.name}, one.since.timestamp())
                for one in times.missing
                if one.since is not None
            ),
        ),
        Gauge(
            "fedforget_failed_attempts",
            "Attempts since the last commit that came to nothing.",
            ((own, len(times.failed)),),
        ),
        Gauge(
            "fedforget_overdue",
            "Whether something of this kind is overdue.",
            tuple(({**own, "what": what}, what in overdue) for what in kinds),
        ),
    ]


def _moment(name: str, about: str, own: SampleLabels, moment: Any) -> Gauge:
    """A moment; nothing where it is unknown."""
    return Gauge(name, about, () if moment is None else ((own, moment.timestamp()),))


def _count(name: str, about: str, own: SampleLabels, count: int | None, least: int) -> Gauge:
    """A number of records or requests; nothing where it is unknown, or too small to be told."""
    hidden = count is None or 0 < count < least
    return Gauge(name, about, () if hidden or count is None else ((own, count),))


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')
