"""The ServerApp and ClientApps of a federation in one process, without Flower's processes.

Every message goes through the real apps and through Flower's own records; only the SuperLink is
missing.  Nodes can be silent, away, or lie.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.supercore.task_identity import TaskIdentity

from fedforget.runtime.flower import client_app, server_app
from fedforget.runtime.flower.simulation import PROGRESS, read_progress

Records = dict[str, Any]


class Node:
    """A SuperNode over a client's directory; ``memory`` is what Flower keeps between messages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.memory = RecordDict()
        self.seen: list[str] = []

    def __call__(self, message: Message) -> Message | None:
        self.seen.append(message.metadata.message_type)
        config = {"client": str(self.folder)}
        context = Context(1, message.metadata.dst_node_id, config, self.memory, {})
        return client_app.deliver(message, context)

    def restart(self) -> None:
        self.memory = RecordDict()


class Silent:
    """Takes messages and says nothing."""

    def __call__(self, message: Message) -> Message | None:
        return None


class Away:
    """Flower says that it is not connected."""

    def __call__(self, message: Message) -> Message | None:
        return Message(Error(ErrorCode.NODE_UNAVAILABLE, "away"), reply_to=message)


class Liar:
    """Replies with records of its own making."""

    def __init__(self, **records: Records) -> None:
        self.content = records
        self.asked = 0

    def __call__(self, message: Message) -> Message | None:
        self.asked += 1
        records = {name: ConfigRecord(values) for name, values in self.content.items()}
        return Message(RecordDict(records), reply_to=message)


class Unreadable:
    """Replies with what Flower itself cannot read."""

    def __call__(self, message: Message) -> Message | None:
        raise ValueError("not an object of Flower's")


Handler = Callable[[Message], Message | None]


class FakeGrid:
    """Nodes by their numbers.  ``before`` is told every message before it is delivered."""

    def __init__(self, nodes: dict[int, Handler]) -> None:
        self.nodes = nodes
        self.before: Callable[[Message], None] = lambda message: None
        self.pushed: list[tuple[str, int]] = []
        self._numbers = itertools.count(1)
        self._waiting: dict[str, Message] = {}

    def get_node_ids(self) -> Iterable[int]:
        return [number for number in self.nodes if not isinstance(self.nodes[number], Away)]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        pushed = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = f"m{next(self._numbers)}"
            self.pushed.append((message.metadata.message_type, message.metadata.dst_node_id))
            self._waiting[message.metadata.message_id] = message
            pushed.append(message.metadata.message_id)
        return pushed

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        found = []
        for identifier in message_ids:
            if identifier in self._waiting:
                message = self._waiting.pop(identifier)
                self.before(message)
                reply = self.nodes[message.metadata.dst_node_id](message)
                if reply is not None:
                    found.append(reply)
        return found

    def count(self, action: str) -> int:
        """How many messages of a kind were sent."""
        return sum(kind == f"query.{action}" for kind, _ in self.pushed)


class Run:
    """One run of the ServerApp, and what it wrote into the progress file."""

    numbers = itertools.count(100)

    def __init__(self, server: Path, grid: FakeGrid, **config: Any) -> None:
        self.number = next(self.numbers)
        self.server = server
        self.error: str | None = None
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, self.number, 1
        context = Context(self.number, 0, {}, RecordDict(), {"server": str(server), **config})
        try:
            server_app.main(grid, context)  # type: ignore[arg-type]
        except server_app.RunFailedError as error:
            self.error = str(error)

    @property
    def events(self) -> list[dict[str, Any]]:
        return read_progress(self.server / PROGRESS, self.number)

    def of(self, event: str) -> list[dict[str, Any]]:
        return [one for one in self.events if one["event"] == event]

    @property
    def committed(self) -> dict[str, Any]:
        assert self.error is None, (self.error, self.events)
        return self.of("committed")[-1]

    @property
    def refusals(self) -> list[tuple[str, str]]:
        return [(one["client"], one["error"]) for one in self.of("refused")]

    @property
    def text(self) -> str:
        return json.dumps(self.events)
