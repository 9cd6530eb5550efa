"""A page that follows its directory: read again when something has changed, and only then."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedforget.cli.charts import LossCurve, loss_curve
from fedforget.cli.client_page import client_check, client_values
from fedforget.cli.directory_page import page_of
from fedforget.cli.drift import Centres, DriftRow, centres_now, drift, latest_time
from fedforget.cli.pictures import Checked
from fedforget.cli.server_page import server_check, server_values
from fedforget.errors import FedforgetError
from fedforget.parties.reading import (
    PartyKind,
    State,
    check_readable,
    read_client,
    read_server,
    state_of,
)
from fedforget.parties.round_progress import STAGES, Seen, read_progress
from fedforget.parties.server_party import ServerParty
from fedforget.text import visible
from fedforget.wall_clock import utc_now

LossesOf = Callable[[ServerParty], Sequence[tuple[int, float]]]
"""A number of clusters and the loss of its model, each; of a server that has a model."""

BEING_CHECKED = Checked(None, "being checked …")
_MOST_DRIFT = 30
_WORDS_LAST = 30.0
"""Seconds after which words like "3 min ago" are written again."""
_PAGE_FIRST = 0.3
"""Seconds that an audit waits for, in which the browser gets the page and its style."""
_TIMES_LAST = 300.0
"""Seconds after which a directory is read again though nothing changed: what is due may be late."""


@dataclass(frozen=True)
class PageContent:
    """A page, and a text that changes with it; a problem if the directory cannot be read now."""

    html: str
    version: str
    problem: str = ""


@dataclass
class LivePage:
    """The page of a directory, as it is at any moment.

    The directory is never locked: see :mod:`fedforget.parties.reading`.  Audits run in a thread of
    their own, after each change, because they may take long.

    Parameters
    ----------
    folder, kind : the directory, and whose it is.
    losses : gives the loss for each number of clusters, for the curve of a server's page; asked
        after each audit, in the same thread.
    """

    folder: Path
    kind: PartyKind
    losses: LossesOf | None = None
    _since: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _state: State | None = None
    _period: int = 0
    _values: dict[str, Any] = field(default_factory=dict)
    _centres: Centres | None = None
    _drift: list[DriftRow] = field(default_factory=list)
    _checks: _Checks = field(init=False)
    _shown: tuple[object, PageContent] | None = None

    def __post_init__(self) -> None:
        check_readable(self.folder, self.kind)
        self._checks = _Checks(self.folder, self.kind, self.losses)

    def content(self) -> PageContent:
        """The page now.

        Raises
        ------
        FedforgetError
            If the directory cannot be read, and never could.
        """
        with self._lock:
            problem = ""
            try:
                self._read_if_changed()
            except FedforgetError as error:
                if not self._values:
                    raise
                problem = visible(error)
            seen = read_progress(self.folder) if self.kind == "server" else None
            found = self._checks.of(self._values["_key"])
            words = int(time.monotonic() / _WORDS_LAST)
            fresh = self._state, self._period, seen, found, words, problem
            if self._shown is None or self._shown[0] != fresh:
                self._shown = fresh, self._rendered(seen, found, problem)
            # Only now: what an audit loads would make whoever opens the page first wait.
            self._checks.begin(self._values["_key"])
            return self._shown[1]

    def follow(self, every: float = 2.0) -> None:
        """Read the directory whenever it changes, for as long as the process lives.

        So each round's drift is seen, and nothing old is kept, even while nobody looks.
        """

        def watch() -> None:
            while True:
                time.sleep(every)
                try:
                    with self._lock:
                        self._read_if_changed()
                except Exception:
                    # Whoever looks is told; here there is nobody, and the next change counts again.
                    continue

        threading.Thread(target=watch, name="follow", daemon=True).start()

    def _rendered(self, seen: Seen | None, found: _Found, problem: str) -> PageContent:
        live = {"seen": seen, "stages": STAGES, "drift": self._drift, "since": self._since}
        values = {name: one for name, one in self._values.items() if name != "_key"}
        if "check" in values:
            values["check"] = found.check
        if self.kind == "server":
            values["curve"] = found.curve
        html = page_of(self.kind, values, live)
        return PageContent(html, hashlib.sha256(html.encode()).hexdigest()[:32], problem)

    def _read_if_changed(self) -> None:
        state, period = state_of(self.folder), int(utc_now().timestamp() / _TIMES_LAST)
        if (state, period) == (self._state, self._period):
            return
        if self.kind == "server":
            with read_server(self.folder) as server:
                values = server_values(server, BEING_CHECKED)
                self._follow_drift(server)
            # Between two entries of the log nothing changes that an audit looks at.
            key: object = values["status"]["log_head"], values["status"]["epoch"]
        else:
            with read_client(self.folder) as client:
                values = client_values(client, BEING_CHECKED, live=True)
            key = state
        self._values, self._state, self._period = values | {"_key": key}, state, period

    def _follow_drift(self, party: ServerParty) -> None:
        before = self._centres
        last = party.ledger().place.round
        if not last or (before is not None and before.round == last):
            return
        now = centres_now(party, latest_time(party.log()))
        if before is not None:
            self._drift = [*self._drift, drift(before, now, party)][-_MOST_DRIFT:]
        self._centres = now


@dataclass(frozen=True)
class _Found:
    """What takes long to find out about a state."""

    check: Checked = BEING_CHECKED
    curve: LossCurve | None = None


class _Checks:
    """Audits in a thread of their own, one at a time, of the latest state alone."""

    def __init__(self, folder: Path, kind: PartyKind, losses: LossesOf | None) -> None:
        self._folder, self._kind, self._losses = folder, kind, losses
        self._found: tuple[object, _Found] | None = None
        self._running = threading.Lock()

    def of(self, key: object) -> _Found:
        """What an audit of a state said, if there was one."""
        found = self._found
        return found[1] if found is not None and found[0] == key else _Found()

    def begin(self, key: object) -> None:
        """Begin an audit of a state, unless there was one or one is under way."""
        if self._found is not None and self._found[0] == key:
            return
        if self._running.acquire(blocking=False):
            threading.Thread(target=self._check, args=(key,), name="audit", daemon=True).start()

    def _check(self, key: object) -> None:
        time.sleep(_PAGE_FIRST)
        try:
            if self._kind == "server":
                with read_server(self._folder) as server:
                    found = _Found(server_check(server), self._curve(server))
            else:
                with read_client(self._folder) as client:
                    found = _Found(client_check(client, exact=True))
        except FedforgetError as error:
            found = _Found(Checked(False, str(error)))
        except Exception as error:
            # The page goes on; what is broken is not the directory.
            words = f"the check itself failed: {type(error).__name__}"
            found = _Found(Checked(False, words))
        self._found = key, found
        self._running.release()

    def _curve(self, party: ServerParty) -> LossCurve | None:
        if self._losses is None or not party.ledger().place.round:
            return None
        return loss_curve(self._losses(party), party.config.n_clusters)
