"""The ServerApp: runs rounds over Flower's Grid and commits them into the server's directory.

Flower keeps the logs and the context of a run, so they hold only rounds, stages, names and digests.
What a round was like is in the server's own log, and, for whoever watches, in ``flower.jsonl`` in
the server's directory, where every line names its run.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from logging import INFO, WARNING
from pathlib import Path
from typing import Any

import httpx
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.common import log
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid, ServerApp
from msgspec import structs

from fedforget.errors import FedforgetError
from fedforget.parties.attempts import note_failure
from fedforget.parties.folders import FolderInUseError
from fedforget.parties.round_progress import RoundProgress
from fedforget.parties.server_party import ServerParty, open_server
from fedforget.protocol.errors import (
    FullRoundNeededError,
    MalformedError,
    OutOfOrderError,
    ProtocolError,
    RoundAbortedError,
)
from fedforget.protocol.messages import Present, RoundKind
from fedforget.protocol.server_stages import Outgoing
from fedforget.runtime.directories import summary
from fedforget.runtime.driver import NOBODY, Onlooker, ask_everybody, drive
from fedforget.runtime.flower.envelope import RunKey
from fedforget.runtime.flower.patience import patiently
from fedforget.runtime.flower.replies import Answered, Refused, Reply, Taken, parse, shown
from fedforget.runtime.flower.settings import PROGRESS

FIRST_POLL_SECONDS, POLL_SECONDS = 0.03, 0.3
"""Replies are looked for after the first of these, and then less and less often."""
ASK_AGAIN_SECONDS = 3600.0
"""How long members' answers to the question who is there hold, in a run of several rounds."""

_FLOWERS_ERRORS = {
    code: name.lower().replace("_", " ")
    for name, code in vars(ErrorCode).items()
    if isinstance(code, int)
}

KINDS: dict[str, RoundKind | None] = {"full": "full", "delta": "delta", "as-needed": None}

app = ServerApp()


class RunFailedError(FedforgetError):
    """A run that ended without all of its rounds.  Flower keeps this text.

    ``person`` if another run would end in the same way until somebody acts.
    """

    def __init__(self, message: str, *, person: bool = False) -> None:
        super().__init__(message)
        self.person = person


@dataclass(frozen=True)
class Unreachable:
    """No reply came from a node, as Flower says or the clock; no node can say this of itself.

    ``away`` if the node is not connected; then nobody waits for it.
    """

    text: str
    away: bool = False

    @property
    def error(self) -> str:
        return "not connected" if self.away else "no answer"


@dataclass(frozen=True)
class RunConfig:
    """What a run is asked to do."""

    folder: Path
    rounds: int
    pause: float
    kind: RoundKind | None
    recover: bool

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> RunConfig:
        kind = str(values.get("kind", "as-needed"))
        if kind not in KINDS:
            raise RunFailedError(f"kind must be one of {', '.join(KINDS)}")
        recover = values.get("recover", False)
        if not isinstance(recover, bool):
            raise RunFailedError("recover must be true or false")
        try:
            rounds, pause = int(values.get("rounds", 1)), float(values.get("pause", 0))
        except ValueError:
            raise RunFailedError("rounds and pause must be numbers") from None
        folder = Path(str(values.get("server", ""))).expanduser()
        if not values.get("server") or not folder.is_dir():
            raise RunFailedError(
                "the server's directory that the run's configuration names does not exist"
            )
        return cls(folder, rounds, pause, KINDS[kind], recover)


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds that the run's configuration asks for."""
    config = RunConfig.read(context.run_config)
    progress = RunProgress(config.folder / PROGRESS, context.run_id)
    progress("begin", rounds=config.rounds)
    advice: list[str] = []
    try:
        _run(grid, config, progress, advice)
        progress("end")
    except RoundAbortedError as error:
        findings = [{"members": list(one.members), "text": one.text} for one in error.findings]
        progress(
            "aborted",
            reason=str(error),
            findings=findings,
            advice=advice,
            missing=list(error.missing),
            person=error.person,
        )
        note_failure(config.folder, "; ".join([str(error), *advice]))
        # A text with a cause may speak of what the sum was like, which Flower must not keep.
        parts = [str(error)] if error.__cause__ is None else [f"see {PROGRESS} of the server"]
        text = "; ".join([*parts, *advice])
        raise RunFailedError(f"the round was aborted: {text}") from None
    except FolderInUseError as error:
        note_failure(config.folder, error)
        progress("failed", reason=str(error))
        text = "another run, or a command, is using the server's directory"
        raise RunFailedError(text) from None
    except (RunFailedError, ProtocolError) as error:
        note_failure(config.folder, error)
        progress("failed", reason=str(error), person=getattr(error, "person", False))
        raise RunFailedError(shown(error)) from None
    except FedforgetError as error:
        note_failure(config.folder, error)
        progress("failed", reason=str(error))
        raise RunFailedError(f"{type(error).__name__}: see {PROGRESS} of the server") from None
    except Exception as error:
        progress("failed", reason=type(error).__name__)
        raise RunFailedError(f"failed with {type(error).__name__}") from None


def _run(grid: Grid, config: RunConfig, progress: RunProgress, advice: list[str]) -> None:
    """All rounds of a run; ``advice`` gets what a person should do after the last of them."""
    post: Post | None = None
    for number in range(config.rounds):
        if number:
            time.sleep(config.pause)
        with patiently(open_server, config.folder) as server:
            post = post or Post(grid, server, progress)
            recover = config.recover and not number
            coming = server.ledger().place.round + 1
            with RoundProgress(config.folder).shown(coming) as post.onlooker:
                _find_members(server, post, progress, recover=recover)
                kind = "full" if recover else config.kind or server.protocol.kind_needed()
                try:
                    _round(server, post, kind, progress)
                finally:
                    advice[:] = _advice(server, post, kind)
                    for text in advice:
                        progress("advice", text=text)
            post.keep(server, kind)


def _round(server: ServerParty, post: Post, kind: RoundKind, progress: RunProgress) -> None:
    def watch(stage: str) -> None:
        _tell_stage(server, progress, stage)

    committed = drive(server, kind, post, watch, ask=False, onlooker=post.onlooker)
    result = summary(committed)
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


def _tell_stage(server: ServerParty, progress: RunProgress, stage: str) -> None:
    ledger = server.protocol.ledger
    number = ledger.place.round + 1
    progress("stage", round=number, attempt=ledger.attempt, stage=stage)
    log(INFO, "round %s, attempt %s: %s", number, ledger.attempt, stage)


# -- who is there ------------------------------------------------------------------------------


def _find_members(server: ServerParty, post: Post, progress: RunProgress, *, recover: bool) -> None:
    """Learn which node is which member, and what each knows; take over what the server has lost."""
    _ask(server, post, progress)
    problem = server.behind(server.protocol.present.values())
    if problem is not None and not recover:
        text = f"{problem}; over Flower, start the run with recover=true"
        raise RunFailedError(text, person=True)
    while recover:
        taken = server.recover(server.protocol.present.values())
        progress("recovered", **taken)
        log(INFO, "recovered: round %s, epoch %s", taken["round"], taken["epoch"])
        # With another list there may be members that nobody has asked.
        post.keep_nobody()
        _ask(server, post, progress)
        problem = server.behind(server.protocol.present.values())
        if problem is None:
            break
        if not (taken["rounds_taken_over"] or taken["lists_taken_over"]):
            raise RunFailedError(problem, person=True)
    missing = sorted(set(server.protocol.waiting_for))
    if missing:
        log(WARNING, "%s of %s members are missing", len(missing), len(server.membership()))
        progress("missing", clients=missing)


def _ask(server: ServerParty, post: Post, progress: RunProgress) -> None:
    """Ask who is there, or only who has not said so in this run."""
    protocol = server.protocol
    known = post.begin_round(server)
    if set(protocol.membership.active) <= known.keys():
        # Nobody is asked: the answers of before hold.
        protocol.present = known
        return
    _tell_stage(server, progress, "who")
    post.bind(ask_everybody(protocol, post, known=known, onlooker=post.onlooker))


def _advice(server: ServerParty, post: Post, kind: RoundKind) -> list[str]:
    """What a person should do, by what members have said."""
    protocol = server.protocol
    asking = {name for name, one in protocol.present.items() if one.needs_full}
    asking = asking & set(protocol.membership.active) | post.needing_full
    return [needs_full(name) for name in sorted(asking)] if kind == "delta" else []


def needs_full(name: str) -> str:
    """What to do for a member that does not know what is counted of it."""
    return f'{name} needs a full round: start the run with kind="full", with everybody connected'


class RunProgress:
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

    A node is a member's only once it has proven that with a signed answer.  A node that does not
    answer in time, answers with an error, with nonsense or with a refusal is noted and left out, as
    anybody who vanishes is.
    """

    def __init__(self, grid: Grid, server: ServerParty, progress: RunProgress) -> None:
        self._grid = grid
        self._deadline = server.federation.protocol.deadline
        self._key = RunKey.fresh(server.identity, server.protocol.federation.identifier)
        self._progress = progress
        self._nodes: dict[str, int] = {}
        self._silent: set[int] = set()
        self._noted: set[tuple[str, str, str]] = set()
        # The answers to the question who is there, until they are bound or refused.
        self._answers: dict[int, bytes] = {}
        self._answering: int | None = None
        # What holds from round to round of this run.
        self._known: dict[str, Present] = {}
        self._stand: tuple[bytes, bytes] | None = None
        self._asked_at = 0.0
        self.needing_full: set[str] = set()
        self.onlooker: Onlooker = NOBODY

    # -- between rounds ------------------------------------------------------------------------

    def begin_round(self, server: ServerParty) -> dict[str, Present]:
        """Give everybody another chance; returns the members' answers that still hold."""
        self._silent = set()
        self.needing_full = set()
        recent = time.monotonic() - self._asked_at < ASK_AGAIN_SECONDS
        if self._stand != _stand(server) or not recent:
            # Another run, a command or much time came between.
            self.keep_nobody()
        return {name: one for name, one in self._known.items() if name in self._nodes}

    def keep(self, server: ServerParty, kind: RoundKind) -> None:
        """Remember what members have said, for the next round of this run."""
        # Whoever needed a full round has had it: such a round has everybody in it.
        self._known = {
            name: structs.replace(one, needs_full=one.needs_full and kind == "delta")
            for name, one in server.protocol.present.items()
        }
        self._stand = _stand(server)

    def keep_nobody(self) -> None:
        self._known, self._nodes, self._stand = {}, {}, None

    # -- who is where --------------------------------------------------------------------------

    def ask(self, question: bytes) -> Iterator[bytes]:
        """Ask every node that is nobody's; the first time, wait for those who are not there yet."""
        first = not self._known
        if first:
            self._asked_at = time.monotonic()
        end = time.monotonic() + self._deadline
        asked = set(self._nodes.values())
        while True:
            new = [node for node in self._grid.get_node_ids() if node not in asked]
            asked |= set(new)
            for node, reply in self._send("who", dict.fromkeys(new, question), end):
                if isinstance(reply, Unreachable) and reply.away:
                    # It may have been listed while it was away, and come back by now.
                    asked.discard(node)
                    continue
                answer = self._opened(f"node {node}", reply)
                if answer is not None:
                    self._answers[node], self._answering = answer, node
                    yield answer
                    self._answering = None
            if not first or time.monotonic() > end:
                return
            time.sleep(POLL_SECONDS)

    def bind(self, accepted: Mapping[str, bytes]) -> None:
        """Take nodes for members, by the answers that the server has accepted."""
        names = {answer: name for name, answer in accepted.items()}
        for node, answer in self._answers.items():
            if answer in names and names[answer] not in self._nodes:
                self._nodes[names[answer]] = node
            else:
                # The same answer, or another that says the same, from a second node.
                error = OutOfOrderError("another node is this member: a copy of it is in use")
                self._note(f"node {node}", type(error).__name__, str(error))
        self._answers, self._answering = {}, None

    # -- messages ------------------------------------------------------------------------------

    def exchange(self, messages: Sequence[Outgoing]) -> Iterator[tuple[str, bytes | None]]:
        names = {self._nodes[name]: name for name, _ in messages if name in self._nodes}
        letters = {self._nodes[name]: data for name, data in messages if name in self._nodes}
        end = time.monotonic() + self._deadline
        for node, reply in self._send("deliver", letters, end):
            name = names[node]
            if isinstance(reply, Taken):
                yield name, None
                continue
            if isinstance(reply, Refused) and reply.error == FullRoundNeededError.__name__:
                self.needing_full.add(name)
            elif isinstance(reply, Unreachable) and reply.away:
                # It may come back with another node.
                self._nodes.pop(name, None)
            answer = self._opened(name, reply)
            if answer is not None:
                yield name, answer

    def refused(self, name: str, error: ProtocolError) -> None:
        if self._answering is not None:
            # Nobody knows yet whose node this is.
            name = f"node {self._answering}"
            self._answers.pop(self._answering, None)
        self._note(name, type(error).__name__, str(error))

    def _opened(self, name: str, reply: Reply | Unreachable) -> bytes | None:
        """The answer in a reply; whatever else it is, is noted."""
        match reply:
            case Answered():
                try:
                    return self._key.open(reply.sealed)
                except ProtocolError as error:
                    self._note(name, type(error).__name__, str(error))
            case Refused() | Unreachable():
                self._note(name, reply.error, reply.text)
            case Taken():
                self._note(name, MalformedError.__name__, "the node gave no answer")
        return None

    def _note(self, name: str, error: str, text: str) -> None:
        """Tell once what is wrong with somebody."""
        note = shown(name), shown(error), shown(text)
        if note not in self._noted:
            self._noted.add(note)
            log(WARNING, "%s: %s: %s", *note)
            self._progress("refused", client=note[0], error=note[1], text=note[2])
            self.onlooker.refused(note[0], note[2])

    def _send(
        self, action: str, letters: Mapping[int, bytes], end: float
    ) -> Iterable[tuple[int, Reply | Unreachable]]:
        """Push a message to each node, and pull the replies as they come.

        Nobody waits for a node that was silent earlier in the round.
        """
        if not letters:
            return
        ttl = max(1.0, end - time.monotonic())
        messages = [
            Message(
                RecordDict({"letter": ConfigRecord({"data": data, "key": self._key.offer})}),
                dst_node_id=node,
                message_type=f"query.{action}",
                ttl=ttl,
            )
            for node, data in letters.items()
        ]
        pushed = set(self._grid.push_messages(messages))
        waiting = {
            message.metadata.message_id: message.metadata.dst_node_id
            for message in messages
            if message.metadata.message_id in pushed
        }
        for node in sorted(set(letters) - set(waiting.values())):
            yield node, Unreachable("Flower did not take the message")
        pause = FIRST_POLL_SECONDS
        while not set(waiting.values()) <= self._silent:
            for identifier, node in list(waiting.items()):
                reply = self._pulled(identifier)
                if reply is not None:
                    del waiting[identifier]
                    yield node, reply
            if time.monotonic() > end:
                self._silent |= set(waiting.values())
            elif waiting:
                time.sleep(min(POLL_SECONDS, pause))
                pause *= 1.5
        for node in waiting.values():
            yield node, Unreachable("nothing came before the deadline")

    def _pulled(self, identifier: str) -> Reply | Unreachable | None:
        """The reply to a message, if it is there.

        Replies are pulled one by one: where Flower cannot read one, it loses all that it pulls with
        it, and nobody could tell whose it was.
        """
        try:
            found = list(self._grid.pull_messages([identifier]))
            if not found:
                return None
            reply = found[0]
            if reply.has_error():
                said = _FLOWERS_ERRORS.get(reply.error.code, "an error of its own")
                away = reply.error.code == ErrorCode.NODE_UNAVAILABLE
                return Unreachable(f"Flower says: {said}", away)
            return parse(reply.content)
        except ProtocolError as error:
            return Refused(type(error).__name__, str(error))
        except (httpx.HTTPError, OSError):
            # The SuperLink's fault, not the node's.
            raise
        except Exception as error:
            text = f"Flower cannot read the node's reply ({type(error).__name__})"
            return Refused(MalformedError.__name__, text)


def _stand(server: ServerParty) -> tuple[bytes, bytes]:
    """Where the server stands: its list and its last commit."""
    return server.protocol.membership.digest, server.protocol.ledger.place.link
