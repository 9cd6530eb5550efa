"""The ClientApp: hands messages to the client in the node's directory, and brings answers back.

In deployment the directory is the node's own: ``client`` in the SuperNode's ``--node-config``.  In
simulation it is the one of the node's partition, among those under ``clients`` in the run's
configuration.  Refusals go back by their names; nothing of a directory is ever put into a log.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from logging import INFO, WARNING
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common import log

from fedforget.errors import FedforgetError
from fedforget.parties.attempts import note_failure
from fedforget.parties.client_party import ClientParty, open_client
from fedforget.parties.errors import ClientError
from fedforget.protocol.errors import MalformedError, ProtocolError
from fedforget.runtime.flower.envelope import AttemptMemory, checked, forget, seal_for
from fedforget.runtime.flower.patience import patiently
from fedforget.runtime.flower.replies import Answered, Refused, Reply, Taken, letter, shown

app = ClientApp()

ELSEWHERE = "see the node's log"


class NodeError(FedforgetError):
    """A node that was not told where its client is."""


@app.query("who")
@app.query("deliver")
def deliver(message: Message, context: Context) -> Message:
    """Hand a message of the protocol to the client, and reply with its answer.

    A refusal is a reply, too: Flower would send a traceback's text on.
    """
    reply: Reply
    told = ""
    try:
        with patiently(open_client, _folder(context)) as party:
            reply = _handed_over(party, message, context)
        log(INFO, "%s: done", message.metadata.message_type)
    except ProtocolError as error:
        # These speak of names, epochs and rounds, which the server knows.
        told = shown(error)
        reply = _refused(type(error).__name__, told, told)
    except FedforgetError as error:
        # These may name files of this machine: they are for its own log.  That a site has a policy,
        # and that it forbids something, is its own affair, too.
        told = shown(error)
        kind = ClientError if isinstance(error, ClientError) else type(error)
        reply = _refused(kind.__name__, ELSEWHERE, told)
    except Exception as error:
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        line = "?" if where is None else f"{where.tb_frame.f_code.co_name}:{where.tb_lineno}"
        told = f"{type(error).__name__} in {line}"
        reply = _refused(type(error).__name__, ELSEWHERE, f"in {line}")
    if isinstance(reply, Refused):
        forget(context.state)
        # Its owner is told by `client status`; a node without a directory has nobody to tell.
        with suppress(FedforgetError, OSError, IndexError):
            note_failure(_folder(context), told)
    return Message(RecordDict({"letter": ConfigRecord(dict(letter(reply)))}), reply_to=message)


def _handed_over(party: ClientParty, message: Message, context: Context) -> Reply:
    data, offer = _content(message, "data"), _content(message, "key")
    federation = party.protocol.federation
    key = checked(offer, federation.server_key, federation.identifier)
    if message.metadata.message_type == "query.who":
        # A question belongs to no attempt: one that is under way, in whichever run, stays.
        answer = party.receive(data)
        if _is_simulated(context):
            _get_ready()
    else:
        answer = _received(party, data, AttemptMemory(party.folder, context.state, ConfigRecord))
    return Taken() if answer is None else Answered(seal_for(key, answer))


def _received(party: ClientParty, data: bytes, memory: AttemptMemory) -> bytes | None:
    """Let the client go on with its attempt, and remember where it stands then."""
    try:
        memory.recall(party.protocol)
        answer = party.receive(data)
        memory.keep(party.protocol)
    except BaseException:
        memory.wipe()
        raise
    return answer


def _content(message: Message, name: str) -> bytes:
    """One of the parts of what the server sent."""
    try:
        value = message.content["letter"][name]
    except Exception:  # Flower's records raise errors of many kinds for what is not there
        raise MalformedError("not a message of this version") from None
    if not isinstance(value, bytes):
        raise MalformedError("not a message of this version")
    return value


def _refused(error: str, text: str, for_this_log: str) -> Refused:
    log(WARNING, "%s: %s", error, for_this_log)
    return Refused(error, text)


def _is_simulated(context: Context) -> bool:
    return not context.node_config.get("client")


@cache
def _get_ready() -> None:
    """Load what encoding takes: a process that stays need not do it while a stage is timed."""
    from fedforget.scma.codec import Codec

    codec = Codec([2], 1, salt=b"")
    codec.pack(codec.encode([[0]], [1]))


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
