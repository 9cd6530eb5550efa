"""A client's attempt as bytes, for runtimes that start a process for every message.

The bytes hold secrets.  They may live in a runtime's memory between two messages of one attempt,
and nowhere else.
"""

from __future__ import annotations

import msgspec

from fedforget.protocol.client_side import ClientSide
from fedforget.protocol.client_stages import (
    Advertised,
    ClientStage,
    Consented,
    Resting,
    Revealed,
    Sent,
    Shared,
)
from fedforget.protocol.errors import MalformedError

_KINDS: dict[str, type[ClientStage]] = {
    kind.__name__: kind for kind in (Resting, Advertised, Shared, Sent, Consented, Revealed)
}


class _Frozen(msgspec.Struct, array_like=True):
    kind: str
    stage: msgspec.Raw
    last_message: bytes
    last_answer: bytes | None


def freeze(client: ClientSide) -> bytes:
    """Where a client stands in an attempt, secrets included."""
    message, answer = client._last
    stage = msgspec.Raw(msgspec.msgpack.encode(client.stage))
    return msgspec.msgpack.encode(_Frozen(type(client.stage).__name__, stage, message, answer))


def thaw(client: ClientSide, data: bytes) -> None:
    """Take a client to where another process left it."""
    try:
        frozen = msgspec.msgpack.decode(data, type=_Frozen)
        stage = msgspec.msgpack.decode(frozen.stage, type=_KINDS[frozen.kind])
    except (msgspec.DecodeError, ValueError, KeyError) as error:
        raise MalformedError(f"what was remembered of the attempt is damaged: {error}") from None
    client.stage = stage
    client._last = frozen.last_message, frozen.last_answer
