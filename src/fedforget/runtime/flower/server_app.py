"""The ServerApp: runs rounds over Flower's Grid and commits them into the server's directory.

Flower keeps the logs and the context of a run, so that they hold rounds, stages, names and digests
and nothing else.  What a round was like is in the server's own log, and, for whoever watches, in
``flower.jsonl`` in the server's directory, where every line names its run.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from logging import INFO, WARNING
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.common import log
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid, ServerApp

from fedforget.errors import FedforgetError
from fedforget.parties.folders import FolderInUseError
from fedforget.parties.server import ServerParty, open_server
from fedforget.protocol.errors import BaseMismatchError, ProtocolError, RoundAbortedError
from fedforget.protocol.messages import Kind
from fedforget.protocol.server import Outgoing, Stage
from fedforget.runtime.driver import drive
from fedforget.runtime.flower.envelope import RunKey
from fedforget.runtime.flower.patience import patiently

PROGRESS = "flower.jsonl"
POLL_SECONDS = 0.3
SILENT, AWAY = "no answer", "not connected"
"""What Flower's own errors are taken for."""

KINDS: dict[str, Kind | None] = {"full": "full", "delta": "delta", "as-needed": None}

app = ServerApp()


class RunFailedError(FedforgetError):
    """A run that ended without all of its rounds.  Flower keeps this text."""


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds that the run's configuration asks for."""
    config = context.run_config
    folder = Path(str(config["server"])).expanduser()
    rounds, pause = int(config.get("rounds", 1)), float(config.get("pause", 0))
    kind = str(config.get("kind", "as-needed"))
    if kind not in KINDS:
        raise RunFailedError(f"kind must be one of {', '.join(KINDS)}")
    if not folder.is_dir():
        raise RunFailedError("the server's directory of the run's configuration is not there")
    post: Post | None = None
    progress = Progress(folder / PROGRESS, context.run_id)
    progress("begin", rounds=rounds)
    try:
        for number in range(rounds):
            if number:
                time.sleep(pause)
            with patiently(open_server, folder) as server:
                post = post or Post(grid, server, progress)
                _round(server, post, KINDS[kind], progress)
        progress("end")
    except RoundAbortedError as error:
        progress("aborted", reason=str(error), needs_new_epoch=error.needs_new_epoch)
        # A text with a cause may speak of the sum, which Flower must not keep.
        text = str(error) if error.__cause__ is None else "see the server's directory"
        raise RunFailedError(f"the round was aborted: {text}") from None
    except FolderInUseError as error:
        progress("failed", reason=str(error))
        text = "another run, or a command, is using the server's directory"
        raise RunFailedError(text) from None
    except (RunFailedError, ProtocolError) as error:
        progress("failed", reason=str(error))
        raise RunFailedError(str(error)) from None
    except FedforgetError as error:
        progress("failed", reason=str(error))
        raise RunFailedError(f"{type(error).__name__}: see {PROGRESS} of the server") from None
    except Exception as error:
        progress("failed", reason=type(error).__name__)
        raise RunFailedError(f"failed with {type(error).__name__}") from None


def _round(server: ServerParty, post: Post, kind: Kind | None, progress: Progress) -> None:
    def watch(stage: Stage) -> None:
        ledger = server.protocol.ledger
        progress("stage", round=ledger.round, attempt=ledger.attempt, stage=stage)
        log(INFO, "round %s, attempt %s: %s", ledger.round, ledger.attempt, stage)

    post.begin_round(server, ends_at_mismatch=kind is None)
    try:
        result = drive(server, kind, post.exchange, watch, post.refused)
    except FullRoundNeeded:
        log(INFO, "a client does not know what is counted of it: a full round follows")
        post.begin_round(server, ends_at_mismatch=False)
        result = drive(server, "full", post.exchange, watch, post.refused)
    progress("committed", **result)
    log(
        INFO,
        "round %s (%s) committed by %s clients in %s s: model %s",
        result["round"],
        result["kind"],
        len(result["participants"]),
        result["seconds"],
        result["model"],
    )


class FullRoundNeeded(Exception):
    """A client cannot take part in a delta round, and the kind of round was left open."""


class Progress:
    """One line of JSON for everything that happens, for the owner of the server's directory.

    Lines are only ever added: another run may be between two of its rounds.
    """

    def __init__(self, path: Path, run: int) -> None:
        self._path = path
        self._run = run

    def __call__(self, event: str, **fields: Any) -> None:
        now = round(time.time(), 3)
        line = json.dumps({"event": event, "run": self._run, "time": now, **fields})
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with os.fdopen(os.open(self._path, flags, 0o600), "wb", buffering=0) as file:
            file.write(line.encode() + b"\n")


class Post:
    """Carries messages between the server and the nodes, each stage within the deadline.

    A node that does not answer in time, answers with an error or refuses is left out, as anybody
    who vanishes is.
    """

    def __init__(self, grid: Grid, server: ServerParty, progress: Progress) -> None:
        federation = server.protocol.federation
        self._grid = grid
        self._deadline = server.federation.protocol.deadline
        self._key = RunKey.fresh(server.identity, federation.identifier)
        self._progress = progress
        self._nodes: dict[str, int] = {}
        self._asked: set[int] = set()
        self._silent: set[int] = set()
        self._ends_at_mismatch = False

    def begin_round(self, server: ServerParty, *, ends_at_mismatch: bool) -> None:
        """Find the members; ``ends_at_mismatch`` if a client may ask for a full round instead."""
        self._silent = set()
        self._ends_at_mismatch = ends_at_mismatch
        self._find_members(server)

    # -- who is where --------------------------------------------------------------------------

    def _find_members(self, server: ServerParty) -> None:
        """Ask nodes for their clients' names, until all members are found or time is up."""
        members = set(server.membership().keys)
        first = not self._asked
        end = time.monotonic() + self._deadline
        while not members <= set(self._nodes):
            new = [node for node in self._grid.get_node_ids() if node not in self._asked]
            self._asked |= set(new)
            for node, content in self._send("who", {node: {} for node in new}, end):
                name = content.get("name")
                if content.get("refused") == AWAY:
                    # It may have been listed while it was away, and come back by now.
                    self._asked.discard(node)
                elif not isinstance(name, str):
                    self._note(f"node {node}", content)
                elif self._nodes.setdefault(name, node) != node:
                    raise RunFailedError(f"two nodes say that they are {name}")
                if members <= set(self._nodes):
                    break
            if time.monotonic() > end or not first:
                break
            time.sleep(POLL_SECONDS)
        missing = sorted(members - set(self._nodes))
        if missing:
            log(WARNING, "%s of %s members are not connected", len(missing), len(members))
            self._progress("missing", clients=missing)

    # -- messages ------------------------------------------------------------------------------

    def exchange(self, messages: Sequence[Outgoing]) -> Iterator[tuple[str, bytes | None]]:
        names = {self._nodes[name]: name for name, _ in messages if name in self._nodes}
        letters = {
            self._nodes[name]: {"data": data, "key": self._key.offer}
            for name, data in messages
            if name in self._nodes
        }
        end = time.monotonic() + self._deadline
        for node, content in self._send("deliver", letters, end):
            name = names[node]
            sealed = content.get("answer")
            if "refused" in content:
                self._note(name, content)
                if content["refused"] == BaseMismatchError.__name__ and self._ends_at_mismatch:
                    raise FullRoundNeeded
                yield name, None
            elif isinstance(sealed, bytes):
                try:
                    yield name, self._key.open(sealed)
                except ProtocolError as error:
                    self.refused(name, error)
                    yield name, None
            else:
                yield name, None

    def refused(self, name: str, error: ProtocolError) -> None:
        self._note(name, {"refused": type(error).__name__, "text": str(error)})

    def _note(self, name: str, content: Mapping[str, Any]) -> None:
        refusal, text = content.get("refused", SILENT), content.get("text", "")
        log(WARNING, "%s: %s: %s", name, refusal, text)
        self._progress("refused", client=name, error=refusal, text=text)

    def _send(
        self, action: str, contents: Mapping[int, Mapping[str, Any]], end: float
    ) -> Iterable[tuple[int, Mapping[str, Any]]]:
        """Push a message to each node, and pull the answers as they come.

        Nobody waits for a node that was silent earlier in the round.
        """
        if not contents:
            return
        ttl = max(1.0, end - time.monotonic())
        messages = [
            Message(
                RecordDict({"letter": ConfigRecord(dict(content))}),
                dst_node_id=node,
                message_type=f"query.{action}",
                ttl=ttl,
            )
            for node, content in contents.items()
        ]
        pushed = list(self._grid.push_messages(messages))
        waiting = {
            identifier: node
            for identifier, node in zip(pushed, contents, strict=True)
            if identifier
        }
        while not set(waiting.values()) <= self._silent:
            for reply in self._grid.pull_messages(list(waiting)):
                node = waiting.pop(reply.metadata.reply_to_message_id)
                if reply.has_error():
                    away = reply.error.code == ErrorCode.NODE_UNAVAILABLE
                    text = f"Flower's error {reply.error.code}"
                    yield node, {"refused": AWAY if away else SILENT, "text": text}
                else:
                    yield node, dict(reply.content["letter"])
            if time.monotonic() > end:
                self._silent |= set(waiting.values())
            elif waiting:
                time.sleep(POLL_SECONDS)
