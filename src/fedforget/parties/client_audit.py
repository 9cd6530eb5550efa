"""The audit of a client: a fresh fit of its records beside what is stored, and the rest of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedforget.arrays import Floats, Ints, Labels
from fedforget.digests import Digest
from fedforget.parties import receipts
from fedforget.parties.amendments import protocol_federation
from fedforget.parties.errors import ClientError
from fedforget.parties.fitting import no_clusters
from fedforget.parties.folders import IDENTITY, strange_databases
from fedforget.parties.held_records import HeldRecords
from fedforget.parties.receipts import ReceiptError
from fedforget.parties.sources.reader import ROWS_AT_A_TIME
from fedforget.parties.store import SCHEMA, Clusters, EncodedIds, StoreError
from fedforget.parties.stored_records import clusters_of
from fedforget.protocol.errors import ProtocolError
from fedforget.protocol.history import check_lists, walk
from fedforget.protocol.membership import SignedMembership

if TYPE_CHECKING:
    from fedforget.parties.client_party import ClientParty


@dataclass(frozen=True)
class Audit:
    """A fresh fit beside what is stored, and whatever else does not fit."""

    records: int
    stored: str
    fresh: str
    problems: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return self.stored == self.fresh and not self.problems


def audit_of(party: ClientParty, held: HeldRecords) -> Audit:
    """Fit again from the retained records, and compare with what is stored."""
    store = held.store
    rows, ids, numbers = store.everything(held.n_features)
    order = np.argsort(ids, kind="stable")
    records = _records_digest(ids, numbers, order)
    labels = store.labels_of(rows)[order]
    stored = _state_digest(records, labels, held.clusters())
    if held.wait():
        # While some do not fit, there are no clusters.
        none = np.full(len(ids), -1, dtype=np.int32)
        fresh = _state_digest(records, none, no_clusters(held.n_features))
    else:
        again = held.clusters_of(ids, numbers)
        fresh = _state_digest(records, again.labels_of(order), clusters_of(again))
    return Audit(len(ids), stored, fresh, tuple(_problems(party, held)))


def state_digest_of(held: HeldRecords) -> str:
    """Digest of the records and the state stored for them, in the order of the ids."""
    rows, ids, values = held.store.everything(held.n_features)
    order = np.argsort(ids, kind="stable")
    labels = held.store.labels_of(rows)[order]
    return _state_digest(_records_digest(ids, values, order), labels, held.clusters())


def _problems(party: ClientParty, held: HeldRecords) -> Iterator[str]:
    """What does not fit, beside the clusters."""
    store, name = held.store, held.store.path.name
    waiting = [one.tag for one in store.requests()]
    values = [one for one in SCHEMA.values if not one.endswith("_")]
    values += [f"not_held_{tag}" for tag in waiting]
    values += [f"salt_{tag}" for tag in (*waiting, *(one.tag for one in store.receipts()))]
    for table in store.strange_tables(SCHEMA, values):
        yield f"{name} holds something that fedforget did not make: {table}"
    yield from store.damaged_values()
    for path in strange_databases(party.folder, (store.path, party.suppression.path)):
        yield (
            f"{path} is a database that fedforget did not make, and may hold what was forgotten:"
            " move it elsewhere, or erase it"
        )
    if not store.requests_are_sealed():
        yield (
            f"the requests that wait were altered, or one was deleted, or {IDENTITY} is not the"
            f" key with which they were stored: {SCHEMA.damaged}"
        )
    yield from _problems_of_receipts(party)
    for number in store.missing_requests():
        yield f"request {number} neither waits nor has a receipt"
    unclean = store.unclean_slots(held.n_features)
    if unclean:
        what = f"{unclean} erased records have" if unclean > 1 else "1 erased record has"
        yield f"{name}: {what} left values or a label behind"
    back = party.held_though_forgotten()
    if back:
        many = f"{len(back)} records are held though they were"
        what = many if len(back) > 1 else "1 record is held though it was"
        yield f"{what} forgotten: run client recover"
    yield from _problems_of_history(party)


def _problems_of_receipts(party: ClientParty) -> Iterator[str]:
    """Each must prove what its row says."""
    assert party.federation is not None
    versions = {one.digest.hex(): one for one in (*party.versions, party.federation)}
    for stored in party.store.receipts():
        try:
            receipt = receipts.parse(stored.document)
            made_with = versions.get(receipt.configuration, party.federation)
            receipts.verify(json.loads(stored.document), made_with)
            request = receipt.request
            if (receipt.client, request.number, request.tag) != (
                party.name,
                stored.number,
                stored.tag,
            ):
                raise ReceiptError("it is that of another request")
        except ReceiptError as error:
            yield f"receipt {stored.name} does not hold: {error}"


def _problems_of_history(party: ClientParty) -> Iterator[str]:
    assert party.federation is not None
    try:
        ledger, lists = party.ledger(), party.lists()
        federation = protocol_federation(party.federation, party.versions)
        letters = party.store.notices_after(0)
        check_lists(map(SignedMembership.parse, party.store.lists_after(0)), federation)
        if [one.epoch for one in lists] != party.store.epochs():
            yield "a membership list is stored under another epoch than its own"
        if ledger.place != walk(lists, letters, federation):
            yield "the ledger stands at another round than the stored commit notices"
    except (ClientError, StoreError, ProtocolError) as error:
        yield str(error)


def _records_digest(ids: EncodedIds, values: Floats, order: Ints) -> str:
    """Digest of records in the order of their ids, some at a time: there is no second copy."""
    digest = Digest("client records").field("records", len(ids))
    # The width is that of the widest part, which is history.
    width = int(np.strings.str_len(ids).max(initial=0))
    for at in range(0, len(ids), ROWS_AT_A_TIME):
        some = order[at : at + ROWS_AT_A_TIME]
        digest.array("ids", ids[some].astype(f"S{width}")).array("values", values[some])
    return digest.hex()


def _state_digest(records: str, labels: Labels, clusters: Clusters) -> str:
    digest = Digest("client state").field("records", records)
    digest.array("labels", labels.astype(np.int32))
    for seed in clusters.seed_ids:
        digest.field("seed", seed)
    digest.array("scores", clusters.scores).array("seeds", clusters.centres)
    return digest.array("sizes", clusters.sizes).array("sums", clusters.sums).hex()
