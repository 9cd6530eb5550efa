"""What a node may reply.  Whatever else comes from a node is refused by name, and fails no run."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from fedforget.protocol.errors import MalformedError
from fedforget.protocol.messages import MAX_BYTES
from fedforget.text import visible

LONGEST_TEXT = 500
"""Characters of a text from a node that reach a log."""

LONGEST_REPLY = MAX_BYTES + 1024
"""A message of the protocol, sealed, and what is around it."""


class Answered(Struct, frozen=True, tag="answered", forbid_unknown_fields=True):
    """The client's answer, sealed for the run's key."""

    sealed: bytes


class Taken(Struct, frozen=True, tag="taken", forbid_unknown_fields=True):
    """The client has taken the message, and there is nothing to answer."""


class Refused(Struct, frozen=True, tag="refused", forbid_unknown_fields=True):
    """The client refuses the message, or the node cannot reach its client."""

    error: str
    text: str


Reply = Answered | Taken | Refused

_decoder: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


def letter(reply: Reply) -> dict[str, bytes]:
    """A reply as a node sends it."""
    return {"reply": msgspec.msgpack.encode(reply)}


def parse(content: Any) -> Reply:
    """Read what a node sent, under the name ``letter``."""
    try:
        data = content["letter"]["reply"]
    except Exception:  # Flower's records raise errors of many kinds for what is not there
        raise MalformedError("the node sent no reply of this version") from None
    if not isinstance(data, bytes):
        raise MalformedError(f"the node replied with {type(data).__name__}, not with bytes")
    if len(data) > LONGEST_REPLY:
        raise MalformedError(f"the node replied with {len(data)} bytes")
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise MalformedError(f"the node sent no reply of this version: {error}") from None


def shown(text: object) -> str:
    """A text from another machine as it may be put into a log: one line that is not too long.

    >>> shown("late\\x1b[2J" + 1000 * "!")[:20]
    'late\\\\x1b[2J!!!!!!!!!'
    """
    return visible(str(text)[:LONGEST_TEXT])[:LONGEST_TEXT]
