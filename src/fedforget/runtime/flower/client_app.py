"""The ClientApp: hands messages to the client in the node's directory, and brings answers back.

In deployment the directory is the node's own: ``client`` in the SuperNode's ``--node-config``.  In
simulation it is the one of the node's partition, among those under ``clients`` in the run's
configuration.  Refusals go back by their names; nothing of a directory is ever put into a log.
"""

from __future__ import annotations

from collections.abc import Callable
from logging import INFO, WARNING
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common import log

from fedforget.errors import FedforgetError
from fedforget.parties.client import ClientParty, open_client
from fedforget.protocol.errors import ProtocolError
from fedforget.runtime.flower.envelope import AttemptMemory, checked, forget, seal_for
from fedforget.runtime.flower.patience import patiently

app = ClientApp()


class NodeError(FedforgetError):
    """A node that was not told where its client is."""


@app.query("who")
def who(message: Message, context: Context) -> Message:
    """The name of this node's client, so that the server can address it."""

    def answer(party: ClientParty) -> dict[str, Any]:
        return {"name": party.name}

    return _reply(message, context, answer)


@app.query("deliver")
def deliver(message: Message, context: Context) -> Message:
    """Hand a message of the protocol to the client."""
    letter = message.content["letter"]
    data, offer = _bytes(letter["data"]), _bytes(letter["key"])

    def answer(party: ClientParty) -> dict[str, Any]:
        memory = AttemptMemory(party.folder, context.state, ConfigRecord)
        try:
            federation = party.protocol.federation
            key = checked(offer, federation.server_key, federation.identifier)
            memory.recall(party.protocol)
            reply = party.receive(data)
            memory.keep(party.protocol)
        except BaseException:
            memory.wipe()
            raise
        return {} if reply is None else {"answer": seal_for(key, reply)}

    return _reply(message, context, answer)


def _reply(
    message: Message, context: Context, answer: Callable[[ClientParty], dict[str, Any]]
) -> Message:
    """The answer, or the name of what went wrong; Flower would send a traceback's text on."""
    try:
        with patiently(open_client, _folder(context)) as party:
            content = answer(party)
    except ProtocolError as error:
        # These speak of names, epochs and rounds, which the server knows.
        log(WARNING, "refused: %s: %s", type(error).__name__, error)
        content = {"refused": type(error).__name__, "text": str(error)}
        forget(context.state)
    except FedforgetError as error:
        # These may name files of this machine: they are for its own log.
        log(WARNING, "failed: %s: %s", type(error).__name__, error)
        content = {"refused": type(error).__name__, "text": "see the node's log"}
        forget(context.state)
    except Exception as error:
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        line = "?" if where is None else f"{where.tb_frame.f_code.co_name}:{where.tb_lineno}"
        log(WARNING, "failed: %s in %s", type(error).__name__, line)
        content = {"refused": type(error).__name__, "text": "see the node's log"}
        forget(context.state)
    else:
        log(INFO, "%s: done", message.metadata.message_type)
    return Message(RecordDict({"letter": ConfigRecord(content)}), reply_to=message)


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else b""


def _folder(context: Context) -> Path:
    own = context.node_config.get("client")
    if own:
        return Path(str(own)).expanduser()
    partition, root = context.node_config.get("partition-id"), context.run_config.get("clients")
    if partition is None or not root:
        raise NodeError(
            "this node does not know its client: start it with --node-config 'client=\"DIR\"'"
        )
    return client_folders(Path(str(root)))[int(partition)]


def client_folders(root: Path) -> list[Path]:
    """The clients' directories under a folder, in the order of simulated nodes."""
    return sorted(path for path in root.iterdir() if path.is_dir())
