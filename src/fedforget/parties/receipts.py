"""Receipts: what shows, to somebody who was not there, that a request was carried out.

A receipt is JSON.  It holds the server's signed commit notices before and after the removal, the
server-signed membership list that names the client's key, and the client's own statement of what it
erased; the client signs the whole.  The server signs nothing that tells it who asked.
``docs/receipt.md`` specifies the format.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedforget.clustering.ids import encode_id
from fedforget.errors import FedforgetError
from fedforget.parties.federation_file import FederationFile
from fedforget.protocol.errors import ProtocolError
from fedforget.protocol.keys import Identity, signed_by
from fedforget.protocol.messages import Letter, Notice, Payload

VERSION = 1
SALT_BYTES = 16
ERASED = (
    "the records' ids and values, their cluster labels, and every sum and seed that depended on"
    " them, in this client's store (overwritten in place); the histogram that still counted them,"
    " when the round was committed"
)
NOT_COVERED = (
    "backups and copies outside the client's directory; blocks that a disk or file system has put"
    " aside; what others have learnt from models published before"
)
_DOMAIN = b"fedforget receipt 1\0"
_KEYS = (
    "version",
    "federation",
    "configuration",
    "client",
    "request",
    "round",
    "membership",
    "notice_before",
    "notice_after",
    "erased",
    "not_covered",
    "client_signature",
)


class ReceiptError(FedforgetError):
    """A receipt that does not prove what it claims; the message says what is wrong."""


def request_digest(salt: bytes, identifier: int | str) -> str:
    """What a receipt says of a forgotten id: nothing, without the salt."""
    return hashlib.sha256(b"fedforget request 1\0" + salt + encode_id(identifier)).hexdigest()


def canonical(document: dict[str, Any]) -> bytes:
    """The bytes that are signed: JSON with sorted keys and no white space."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def issue(
    federation: FederationFile,
    client: str,
    identity: Identity,
    request: dict[str, Any],
    membership: dict[str, Any],
    before: bytes | None,
    after: bytes,
) -> dict[str, Any]:
    """A receipt for one request, signed by the client."""
    statement = {
        "version": VERSION,
        "federation": {"name": federation.name, "identifier": federation.identifier},
        "configuration": federation.digest.hex(),
        "client": client,
        "request": {
            "number": request["number"],
            "time": request["time"],
            "records": request["records"],
            "digests": request["digests"],
            "seeds_drawn_again_from": request["reseeded"],
        },
        "round": request["round"],
        "membership": membership,
        "notice_before": None if before is None else before.hex(),
        "notice_after": after.hex(),
        "erased": ERASED,
        "not_covered": NOT_COVERED,
    }
    signature = identity.sign(_DOMAIN + canonical(statement)).hex()
    return statement | {"client_signature": signature}


@dataclass(frozen=True)
class Proof:
    """What a checked receipt proves."""

    client: str
    federation: str
    round: int
    epoch: int
    records: int
    requested: str
    model_before: str | None
    model_after: str
    covered: tuple[str, ...] | None
    everything: bool

    def sentences(self) -> list[str]:
        """In plain words."""
        who, records = self.client, f"{self.records} record{'s' * (self.records != 1)}"
        if self.everything:
            records += ", all that it held"
        where = f"round {self.round} (epoch {self.epoch})"
        lines = [
            f"{who} states that it erased {records}, as asked on {self.requested}.",
            f"The server of “{self.federation}” states that {where} counts {who} as it was then.",
            f"The model after it has the digest {self.model_after}.",
        ]
        if self.model_before is None:
            lines.append("There was no model before it.")
        elif self.model_before == self.model_after:
            lines.append("The model before it was the same: no bin of the sum changed.")
        else:
            lines.append(f"The model before it had the digest {self.model_before}.")
        if self.covered is not None:
            names = ", ".join(self.covered) or "none of the ids given"
            lines.append(f"The request covered: {names}.")
        return lines


def read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_distinct)
    except OSError as error:
        raise ReceiptError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise ReceiptError(f"{path} is not JSON, or was damaged") from None
    if not isinstance(document, dict):
        raise ReceiptError(f"{path} is not a receipt")
    return document


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a key is there twice")
    return dict(pairs)


def verify(
    receipt: dict[str, Any],
    federation: FederationFile,
    *,
    ids: Sequence[int | str] | None = None,
    salt: bytes | None = None,
) -> Proof:
    """Check every signature and digest of a receipt.

    Raises
    ------
    ReceiptError
        On anything wrong.
    """
    try:
        return _verified(receipt, federation, ids, salt)
    except KeyError as error:
        raise ReceiptError(f"the receipt is damaged: {error} is missing") from None
    except (TypeError, ValueError, AttributeError, ProtocolError) as error:
        raise ReceiptError(f"the receipt is damaged: {error}") from None


def _verified(
    receipt: dict[str, Any],
    federation: FederationFile,
    ids: Sequence[int | str] | None,
    salt: bytes | None,
) -> Proof:
    missing = [name for name in _KEYS if name not in receipt]
    if missing:
        raise ReceiptError(f"the receipt is damaged: {missing[0]!r} is missing")
    if receipt["version"] != VERSION:
        raise ReceiptError(f"version: {receipt['version']!r} is not known here")
    if receipt["federation"] != {"name": federation.name, "identifier": federation.identifier}:
        raise ReceiptError("federation: the receipt belongs to another federation")
    if receipt["configuration"] != federation.digest.hex():
        raise ReceiptError("configuration: the federation file is another one than the receipt's")
    client, membership = receipt["client"], receipt["membership"]
    key = _member_key(membership, client, federation)
    # What others have signed comes first: it is named if it was changed.
    after = _notice(receipt["notice_after"], "notice_after", federation)
    assert isinstance(after.body, Notice)
    before = None
    if receipt["notice_before"] is not None:
        before = _notice(receipt["notice_before"], "notice_before", federation)
    statement = {name: value for name, value in receipt.items() if name != "client_signature"}
    signature = _from_hex(receipt["client_signature"], "client_signature")
    if not signed_by(key, signature, _DOMAIN + canonical(statement)):
        raise ReceiptError(
            f"client_signature: {client}'s own statement (request, round, erased, not_covered) or"
            " its signature was changed, or it is not from this client"
        )
    counted = dict(after.body.counted).get(client)
    if after.context.round < receipt["round"] or counted != receipt["round"]:
        raise ReceiptError(f"round: the commit notice does not count {client} in this round")
    if after.context.epoch < membership["epoch"]:
        raise ReceiptError("membership: the list belongs to a later epoch than the notice")
    model_before = None
    if before is not None:
        assert isinstance(before.body, Notice)
        if before.context.round >= after.context.round:
            raise ReceiptError("notice_before: it is not from before the removal")
        model_before = before.body.model.hex()
    request, covered = receipt["request"], None
    everything = request["digests"] is None
    digests = frozenset(request["digests"] or ())
    if not everything and not len(digests) == len(request["digests"]) == request["records"]:
        raise ReceiptError("request: the number of digests is not that of the records")
    if ids is not None and everything:
        raise ReceiptError(f"the ids cannot be checked: {client} erased all that it held, unnamed")
    if ids is not None:
        if salt is None:
            raise ReceiptError("the ids can only be checked with the request's salt")
        covered = tuple(str(i) for i in ids if request_digest(salt, i) in digests)
    return Proof(
        client=client,
        federation=federation.name,
        round=receipt["round"],
        epoch=after.context.epoch,
        records=request["records"],
        requested=request["time"],
        model_before=model_before,
        model_after=after.body.model.hex(),
        covered=covered,
        everything=everything,
    )


def _from_hex(text: str, name: str) -> bytes:
    """Hexadecimal in its one canonical form: another spelling is a change, too."""
    data = bytes.fromhex(text)
    if data.hex() != text:
        raise ReceiptError(f"{name}: not in the form in which it was written")
    return data


def membership_statement(members: dict[str, Any]) -> bytes:
    """The bytes of a membership list that the server signs."""
    unsigned = {name: value for name, value in members.items() if name != "signature"}
    return b"fedforget membership 1\0" + canonical(unsigned)


def check_membership(members: dict[str, Any], federation: FederationFile) -> None:
    """Refuse a membership list that the federation's server did not sign."""
    try:
        signature = _from_hex(members["signature"], "membership")
        keys, epoch = members["keys"], members["epoch"]
        if not isinstance(keys, dict) or not isinstance(epoch, int) or "capacity" not in members:
            raise TypeError
        other = members["federation"] != federation.identifier
    except (KeyError, TypeError, ValueError):
        raise ReceiptError("membership: the list is damaged, or none") from None
    if other:
        raise ReceiptError("membership: the list belongs to another federation")
    if not signed_by(
        bytes.fromhex(federation.server_key), signature, membership_statement(members)
    ):
        raise ReceiptError("membership: the list was changed, or not signed by the server")


def _member_key(members: dict[str, Any], client: str, federation: FederationFile) -> bytes:
    check_membership(members, federation)
    if client not in members["keys"]:
        raise ReceiptError(f"client: {client} is not on the membership list")
    return bytes.fromhex(members["keys"][client])


def _notice(data: str, name: str, federation: FederationFile) -> Payload:
    try:
        letter = Letter(_from_hex(data, name))
        payload = letter.check(bytes.fromhex(federation.server_key))
    except (ProtocolError, ValueError, TypeError) as error:
        raise ReceiptError(f"{name}: {error}") from None
    if not isinstance(payload.body, Notice):
        raise ReceiptError(f"{name}: not a commit notice")
    if payload.context.configuration != federation.digest:
        raise ReceiptError(f"{name}: it belongs to another configuration")
    return payload
