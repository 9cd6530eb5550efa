"""The server's public log: a chain in which every entry holds the digest of the one before it.

Whoever has seen an entry can tell whether anything up to it was rewritten.  Entries hold no data:
rounds, times, participants and digests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from fedforget.errors import FedforgetError
from fedforget.parties.receipts import canonical
from fedforget.protocol.errors import BadSignatureError
from fedforget.protocol.keys import Identity, PublicKey
from fedforget.wall_clock import stamp, utc_now

_DOMAIN = b"fedforget log 1\0"
BEGINNING = "0" * 64


class LogError(FedforgetError):
    """A log that was changed; the message names the entry."""


def now() -> str:
    """The time that logs and requests record."""
    return stamp(utc_now())


def entry_digest(entry: dict[str, Any]) -> str:
    """Digest of an entry, its signature included."""
    return hashlib.sha256(canonical(entry)).hexdigest()


def next_entry(
    previous: dict[str, Any] | None, time: str, kind: str, body: dict[str, Any], identity: Identity
) -> dict[str, Any]:
    """The entry that follows ``previous``, signed by the server."""
    entry = {
        "number": 1 if previous is None else previous["number"] + 1,
        "previous": BEGINNING if previous is None else entry_digest(previous),
        "time": time,
        "kind": kind,
        "body": body,
    }
    return entry | {"signature": identity.sign(_DOMAIN + canonical(entry)).hex()}


def check_chain(entries: Iterable[dict[str, Any]], server_key: PublicKey) -> int:
    """Walk the log; returns its length, or raises at the first entry that does not fit."""
    before: dict[str, Any] | None = None
    for count, entry in enumerate(entries, 1):
        name = f"log entry {count}"
        try:
            unsigned = {key: value for key, value in entry.items() if key != "signature"}
            signature = bytes.fromhex(entry["signature"])
            if signature.hex() != entry["signature"]:
                raise LogError(f"{name} was changed: its signature is written in another form")
            if entry["number"] != count:
                raise LogError(f"{name} is numbered {entry['number']}: one is missing or moved")
            if entry["previous"] != (BEGINNING if before is None else entry_digest(before)):
                raise LogError(f"log entry {count - 1} was changed after {name} was written")
            server_key.verify(signature, _DOMAIN + canonical(unsigned))
        except BadSignatureError:
            raise LogError(f"{name} was changed, or not signed by the server") from None
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise LogError(f"{name} is damaged: {error}") from None
        before = entry
    return 0 if before is None else int(before["number"])
