"""Receipts: what shows, to somebody who was not there, that a request was carried out.

A receipt is JSON.  It holds the commit notices before and after the removal, with the signatures of
the members who agreed to the sum, the membership list under which that was, and the client's own
statement of what it erased; the client signs the whole.  The server signs nothing that tells it who
asked.  ``docs/receipt.md`` specifies the format.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from fedforget.clustering.ids import encode_id
from fedforget.errors import FedforgetError
from fedforget.incoming import IncomingFileError, read_json
from fedforget.parties.federation_file import FederationFile
from fedforget.parties.membership_file import Hex, MembershipDocument
from fedforget.parties.store import Request
from fedforget.protocol.errors import BadSignatureError, ProtocolError
from fedforget.protocol.history import check_consents, consent_of, place_of
from fedforget.protocol.keys import Identity
from fedforget.protocol.membership import Membership, Number
from fedforget.protocol.messages import Context, Letter, Notice
from fedforget.protocol.rules import Quorum, Requirements
from fedforget.text import UnsafeNameError, check_name
from fedforget.wall_clock import utc_now

VERSION, WITH_NOT_HELD = 2, 3
"""A receipt of version 3 also says how many ids of its request were not held."""

SALT_BYTES = 16
CLOCKS_MAY_DIFFER = timedelta(days=1)
ERASED = (
    "the records' ids and values, their cluster labels, and every sum and seed that depended on"
    " them, in this client's store (overwritten in place); the histogram that still counted them,"
    " when the round was committed"
)
NOT_COVERED = (
    "backups and copies outside the client's directory; blocks that a disk or file system has put"
    " aside; what others have learnt from models published before; records that were imported again"
    " after the request"
)
SUPPRESSED = (
    "a keyed digest of each id is kept on the client's suppression list, so that an old export"
    " does not bring the records back unnoticed"
)
_UNCHANGED = "what is published did not change; the sum may have"
NOT_SUPPRESSED = "the client keeps no suppression list: an old export can bring the records back"


class ReceiptError(FedforgetError):
    """A receipt that does not prove what it claims; the message says what is wrong."""


class EarlierVersionError(ReceiptError):
    """The receipt was made with an earlier version of the federation file, which is needed."""

    def __init__(self, message: str, version: int) -> None:
        super().__init__(message)
        self.version = version


class LaterVersionError(ReceiptError):
    """The receipt was made with a later version of the federation file, or with another file."""


class FederationName(Struct, frozen=True, forbid_unknown_fields=True):
    """Which federation."""

    name: str
    identifier: Hex


class RequestPart(Struct, frozen=True, forbid_unknown_fields=True):
    """What was asked for.  There are no digests where it was for everything.

    ``not_held`` is there only in version 3: how many more ids were asked for.
    """

    number: Number
    tag: Hex
    time: str
    records: Number
    digests: tuple[Hex, ...] | None
    seeds_drawn_again_from: int | None
    not_held: Number | UnsetType = UNSET


class Receipt(Struct, frozen=True, forbid_unknown_fields=True):
    """A receipt as it is written."""

    version: int
    federation: FederationName
    configuration: Hex
    client: str
    request: RequestPart
    round: Number
    membership: MembershipDocument
    notice_before: Hex | None
    notice_after: Hex
    erased: str
    suppression: str
    not_covered: str
    client_signature: Hex = ""


def request_digest(salt: bytes, identifier: int | str) -> str:
    """What a receipt says of a forgotten id: nothing, without the salt."""
    return hashlib.sha256(b"fedforget request 1\0" + salt + encode_id(identifier)).hexdigest()


def canonical(document: Any) -> bytes:
    """The bytes that are signed: JSON with sorted keys and no white space."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _statement(receipt: Receipt) -> bytes:
    plain = msgspec.to_builtins(receipt)
    del plain["client_signature"]
    return f"fedforget receipt {receipt.version}\0".encode() + canonical(plain)


def text_of(receipt: Receipt) -> str:
    """The receipt as a file holds it."""
    return json.dumps(msgspec.to_builtins(receipt), indent=1, ensure_ascii=False)


def issue(
    federation: FederationFile,
    client: str,
    identity: Identity,
    request: Request,
    membership: MembershipDocument,
    before: bytes | None,
    after: bytes,
    round_number: int,
    *,
    suppression: bool,
) -> Receipt:
    """A receipt for one request, signed by the client.

    ``membership`` is the list that the notice ``after`` names.
    """
    unsigned = Receipt(
        version=VERSION if request.not_held is None else WITH_NOT_HELD,
        federation=FederationName(federation.name, federation.identifier),
        configuration=federation.digest.hex(),
        client=client,
        request=RequestPart(
            number=request.number,
            tag=request.tag,
            time=request.time,
            records=request.records,
            digests=None if request.digests is None else tuple(request.digests),
            # Whether a record was a seed says something of how few there are beside it.
            seeds_drawn_again_from=request.reseeded if federation.rules.are_off else None,
            not_held=UNSET if request.not_held is None else request.not_held,
        ),
        round=round_number,
        membership=membership,
        notice_before=None if before is None else before.hex(),
        notice_after=after.hex(),
        erased=ERASED,
        suppression=SUPPRESSED if suppression else NOT_SUPPRESSED,
        not_covered=NOT_COVERED,
    )
    signature = identity.sign(_statement(unsigned)).hex()
    return msgspec.structs.replace(unsigned, client_signature=signature)


@dataclass(frozen=True)
class Proof:
    """What a checked receipt proves.  ``remarks`` are what a reader should know besides.

    ``digest_covers_sum`` says whether equal digests of models tell that the sum was the same; where
    centres are published on a grid, they tell that of the published models alone.
    """

    client: str
    federation: str
    round: int
    epoch: int
    signed_by: int
    records: int
    requested: str
    model_before: str | None
    model_after: str
    covered: tuple[str, ...] | None
    everything: bool
    remarks: tuple[str, ...]
    not_held: int | None = None
    digest_covers_sum: bool = False

    def sentences(self) -> list[str]:
        """In plain words."""
        who, records = self.client, f"{self.records} record{'s' * (self.records != 1)}"
        if self.everything:
            records += ", all that it held"
        where = f"round {self.round} (epoch {self.epoch})"
        signed = f"{self.signed_by} members signed whose inputs that round counted"
        server = f"The server of “{self.federation}”"
        lines = [
            f"{who} states that it erased {records}, as asked on {self.requested}.",
            f"{server} states that {where} counts {who} as it was then; {signed}.",
            f"The model after it has the digest {self.model_after}.",
        ]
        if self.model_before is None:
            lines.append("There was no model before it.")
        elif self.model_before == self.model_after:
            changed = "no bin of the sum changed" if self.digest_covers_sum else _UNCHANGED
            lines.append(f"The model before it was the same: {changed}.")
        else:
            lines.append(f"The model before it had the digest {self.model_before}.")
        if self.not_held is not None:
            ids = f"{self.not_held} more id{'s' * (self.not_held != 1)}"
            lines.insert(1, f"{who} states that the request named {ids}, which it did not hold.")
        if self.covered is not None:
            names = ", ".join(self.covered) or "none of the ids given"
            lines.append(f"The request covered: {names}.")
        return lines + [f"Note: {remark}" for remark in self.remarks]


def read(path: Path) -> dict[str, Any]:
    """A receipt's JSON; nothing is verified."""
    try:
        document = read_json(path)
    except IncomingFileError as error:
        raise ReceiptError(str(error)) from None
    if not isinstance(document, dict):
        raise ReceiptError(f"{path} is not a receipt")
    return document


def parse(text: str) -> Receipt:
    """A receipt as a client's store holds it; nothing is verified."""
    try:
        return msgspec.json.decode(text, type=Receipt)
    except (msgspec.DecodeError, ValueError) as error:
        raise ReceiptError(f"the receipt is damaged: {error}") from None


def verify(
    document: dict[str, Any],
    federation: FederationFile,
    *,
    ids: Sequence[int | str] | None = None,
    salt: bytes | None = None,
    clock: datetime | None = None,
    current: FederationFile | None = None,
) -> Proof:
    """Check every signature and digest of a receipt.

    Parameters
    ----------
    document : the receipt's JSON.
    federation : the federation file, in the version of the receipt.
    ids, salt : ids to look for, with the request's salt.
    clock : the time by which the receipt's times are judged; now, if left out.
    current : a later version, if one is known: it tells when the receipt's was in force.

    Raises
    ------
    ReceiptError
        On anything wrong.
    """
    version = document.get("version")
    if type(version) is not int or version not in (VERSION, WITH_NOT_HELD):
        raise ReceiptError(
            f"version: {version!r} is not known here; receipts of version 1 are checked with"
            " fedforget 0.1"
        )
    try:
        receipt = msgspec.convert(document, Receipt)
        if (receipt.request.not_held is not UNSET) != (version == WITH_NOT_HELD):
            raise ReceiptError("request: only version 3 says how many ids were not held")
        proof = _verified(receipt, federation, ids, salt, clock or utc_now())
    except msgspec.ValidationError as error:
        raise ReceiptError(f"the receipt is damaged: {error}") from None
    except (TypeError, ValueError, OverflowError, ProtocolError) as error:
        raise ReceiptError(f"the receipt is damaged: {error}") from None
    if current is not None and current.digest_at(proof.epoch) != federation.digest:
        raise ReceiptError(
            f"configuration: version {federation.version} of the file was not in force with list"
            f" {proof.epoch}"
        )
    return proof


def _verified(
    receipt: Receipt,
    federation: FederationFile,
    ids: Sequence[int | str] | None,
    salt: bytes | None,
    clock: datetime,
) -> Proof:
    _check_federation(receipt, federation)
    protocol = federation.protocol_federation()
    membership = receipt.membership.checked(protocol.server_key, protocol.identifier)
    if receipt.client not in membership:
        raise ReceiptError(f"client: {receipt.client} is not on the membership list")
    # What others have signed comes first: it is named if it was changed.
    after_context, after = _notice(receipt.notice_after, "notice_after", federation)
    if after_context.membership != membership.digest:
        raise ReceiptError("membership: the list is not the one that the commit notice names")
    _check_quorum(after_context, after, membership, federation)
    before = None
    if receipt.notice_before is not None:
        before_context, before = _notice(receipt.notice_before, "notice_before", federation)
        # Attempt and model are no part of the link, but of what those who signed have seen.
        place = place_of(before_context, before)
        seen = after_context.last, after_context.last_attempt, after_context.model
        if (place.link, place.attempt, place.model) != seen:
            raise ReceiptError("notice_before: it is not the commit before the removal")
    elif after_context.round > 1:
        raise ReceiptError("notice_before: it is missing, and this was not the first round")
    _check_client(receipt, membership)
    if after_context.round != receipt.round or receipt.client not in after.survivors:
        raise ReceiptError(
            f"round: the commit notice does not count {receipt.client} in this round"
        )
    return Proof(
        client=receipt.client,
        federation=federation.name,
        round=receipt.round,
        epoch=after_context.epoch,
        signed_by=len(after.consents),
        records=receipt.request.records,
        requested=receipt.request.time,
        model_before=None if before is None else before.model.hex(),
        model_after=after.model.hex(),
        covered=_covered(receipt, ids, salt),
        everything=receipt.request.digests is None,
        remarks=tuple(_remarks(receipt, before, after, clock)),
        not_held=None if receipt.request.not_held is UNSET else receipt.request.not_held,
        digest_covers_sum=federation.configuration().published_step is None,
    )


def _check_federation(receipt: Receipt, federation: FederationFile) -> None:
    try:
        check_name(receipt.client)
    except UnsafeNameError as error:
        raise ReceiptError(f"client: {error}") from None
    if receipt.federation != FederationName(federation.name, federation.identifier):
        raise ReceiptError("federation: the receipt belongs to another federation")
    if receipt.configuration != federation.digest.hex():
        versions = [one.digest for one in federation.earlier]
        if receipt.configuration in versions:
            number = versions.index(receipt.configuration) + 1
            raise EarlierVersionError(
                f"configuration: the receipt was made with version {number} of the federation file,"
                f" which has been amended since: give that version (server and members keep it as"
                f" federation-{number}.toml)",
                number,
            )
        raise LaterVersionError(
            f"configuration: this file is version {federation.version} of the federation file, and"
            " neither it nor a version before it is the receipt's. If the federation was amended"
            f" since (the receipt was made with the list of epoch {receipt.membership.epoch}), give"
            " the version in force now, which server and members keep as federation.toml, with"
            " federation-N.toml of earlier versions beside it"
        )
    texts = receipt.erased, receipt.not_covered
    if texts != (ERASED, NOT_COVERED) or receipt.suppression not in (SUPPRESSED, NOT_SUPPRESSED):
        raise ReceiptError(
            "client_signature: the words about the erasure are not those of a receipt"
        )


def _check_client(receipt: Receipt, membership: Membership) -> None:
    try:
        signature = bytes.fromhex(receipt.client_signature)
        membership.keys[receipt.client].verify(signature, _statement(receipt))
    except (BadSignatureError, ValueError):
        raise ReceiptError(
            f"client_signature: {receipt.client}'s own statement (request, round, erased,"
            " not_covered) or its signature was changed, or it is not from this client"
        ) from None


def _notice(data: str, name: str, federation: FederationFile) -> tuple[Context, Notice]:
    try:
        letter = Letter(bytes.fromhex(data))
        letter.check(federation.protocol_federation().server_key)
        context, body = letter.payload.context, letter.payload.body
    except (ProtocolError, ValueError) as error:
        raise ReceiptError(f"{name}: {error}") from None
    if not isinstance(body, Notice):
        raise ReceiptError(f"{name}: not a commit notice")
    # Each commit is judged by the version of its list; the one before may be an earlier one.
    known = federation.digest_at(context.epoch)
    if context.configuration != known or (name == "notice_after" and known != federation.digest):
        raise ReceiptError(f"{name}: it belongs to another configuration")
    return context, body


def _check_quorum(
    context: Context, notice: Notice, membership: Membership, federation: FederationFile
) -> None:
    """Enough members signed the survivors of a notice."""
    policy = federation.policy()
    population = frozenset(membership.position)
    if context.kind == "delta":
        known = {name for name, _ in notice.counted} | set(notice.left)
        population &= known
    signers = policy.thresholds(len(membership), len(population)).signers
    needed = Requirements((), False, 0, (Quorum(population, signers),))
    try:
        check_consents(notice.consents, consent_of(context, notice), membership, needed, policy)
    except ProtocolError as error:
        raise ReceiptError(f"notice_after: {error}") from None


def _covered(
    receipt: Receipt, ids: Sequence[int | str] | None, salt: bytes | None
) -> tuple[str, ...] | None:
    request = receipt.request
    digests = frozenset(request.digests or ())
    if request.digests is not None and not (
        len(digests) == len(request.digests) == request.records
    ):
        raise ReceiptError("request: the number of digests is not that of the records")
    if ids is None:
        return None
    if request.digests is None:
        raise ReceiptError(
            f"the ids cannot be checked: {receipt.client} erased all that it held, without naming"
            " ids"
        )
    if salt is None:
        raise ReceiptError("the ids can only be checked with the request's salt")
    return tuple(str(i) for i in ids if request_digest(salt, i) in digests)


def _remarks(receipt: Receipt, before: Notice | None, after: Notice, clock: datetime) -> list[str]:
    """Times that cannot be right.  Clocks are not proof, but a reader should know."""
    try:
        asked = datetime.fromisoformat(receipt.request.time)
        asked = asked if asked.tzinfo else asked.replace(tzinfo=UTC)
    except ValueError:
        raise ReceiptError("request: its time is not a time") from None
    committed = datetime.fromtimestamp(after.time, UTC)
    remarks = []
    if asked > committed + CLOCKS_MAY_DIFFER:
        remarks.append(
            f"the request is dated {asked:%Y-%m-%d}, after the round that carried it out"
            f" ({committed:%Y-%m-%d} by the server's clock); a clock was wrong, or a time was made"
            " up."
        )
    if before is not None:
        earlier = datetime.fromtimestamp(before.time, UTC)
        if asked < earlier - CLOCKS_MAY_DIFFER:
            remarks.append(
                f"the request is dated {asked:%Y-%m-%d}, before the round that came before it"
                f" ({earlier:%Y-%m-%d} by the server's clock); it waited, or a clock was wrong."
            )
    for what, moment in (("request", asked), ("round", committed)):
        if moment > clock + CLOCKS_MAY_DIFFER:
            remarks.append(f"the {what} is dated {moment:%Y-%m-%d}, which is in the future.")
    return remarks
