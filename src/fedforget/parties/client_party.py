"""A client in a directory: records, state, keys, receipts; durable at the end of every call."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec import structs

from fedforget.arrays import Floats, Ints, Labels
from fedforget.clustering.disclosure import Cells
from fedforget.clustering.distance import nearest
from fedforget.clustering.histogram import Histogram
from fedforget.clustering.ids import Ids, name_some, parse_ids
from fedforget.clustering.prf import Secret
from fedforget.configuration import Configuration
from fedforget.errors import DuplicateIdError, UnknownIdError
from fedforget.parties import receipts
from fedforget.parties.amended_clients import take_amendment
from fedforget.parties.amendments import (
    check_lists_of,
    check_newcomer,
    check_next,
    protocol_federation,
)
from fedforget.parties.client_audit import Audit, audit_of, state_digest_of
from fedforget.parties.client_suppression import ClientSuppression
from fedforget.parties.erasures import naming, note_erasure
from fedforget.parties.errors import ClientError
from fedforget.parties.federation_file import FederationFile
from fedforget.parties.fitting import Misfit
from fedforget.parties.folders import (
    FEDERATION,
    IDENTITY,
    STORES,
    being_made,
    check_whose,
    locked,
    read_key,
    write_private,
)
from fedforget.parties.gate import Gate
from fedforget.parties.held_records import HeldRecords
from fedforget.parties.importing import Progress, import_records
from fedforget.parties.imports import close_imports, note_import, send_imports
from fedforget.parties.joined import Joined
from fedforget.parties.log import now
from fedforget.parties.membership_file import MembershipDocument
from fedforget.parties.policy import SitePolicy
from fedforget.parties.preview import Preview, Verdict
from fedforget.parties.record_change import RecordChange
from fedforget.parties.sources.source import Source
from fedforget.parties.store import (
    SCHEMA,
    Request,
    Store,
    StoredReceipt,
    StoreError,
    decoded_id,
    encoded_ids,
)
from fedforget.parties.stored_records import (
    StoredClusters,
)
from fedforget.parties.suppression import FILE as SUPPRESSION
from fedforget.parties.suppression import SuppressionList
from fedforget.parties.sync import Synced, Synchroniser, SyncRules, remember_columns
from fedforget.parties.version_store import current_file, stored_versions, write_files
from fedforget.protocol.client_ledger import (
    ClientLedger,
    Event,
    Followed,
    InputFixed,
    Leaving,
    digest_of_input,
    dump,
    load,
)
from fedforget.protocol.client_side import ClientSide
from fedforget.protocol.errors import NotReadyError
from fedforget.protocol.joining import (
    check_adoption,
    check_amended_adoption,
    is_in_force,
    joins_alone,
    newcomer,
    opened_at,
)
from fedforget.protocol.keys import Identity, digest_of
from fedforget.protocol.membership import Membership, SignedMembership
from fedforget.protocol.messages import Context
from fedforget.text import check_new_name

STORE = STORES["client"]
SECRET = "records.key"
ENROLMENT = "enrolment.json"


@dataclass(frozen=True)
class Forgotten:
    """What a request did.  The salt is kept until the receipt is written out.

    ``held`` and ``not_held`` are the ids that it named.  Where none was held, there is no request.
    """

    request: str
    records: int
    reseeded: int | None
    salt: str
    held: tuple[int | str, ...] = ()
    not_held: tuple[int | str, ...] = ()


@dataclass(frozen=True)
class ForgetPlan:
    """What a request would do, found once and then carried out.

    Attributes
    ----------
    preview : what it would do, as people are told before.
    held : the ids of the records, encoded and as they were given.
    rows : where these records are, in the same order.
    places : where the records and the seeds are.
    seeds : the seeds that stand, none while records do not fit.
    not_held : how many more ids were named, if such may be named.
    """

    preview: Forgotten
    held: Mapping[bytes, int | str]
    rows: Ints
    places: Mapping[bytes, int]
    seeds: Sequence[bytes]
    not_held: int | None


class WrittenReceipt(NamedTuple):
    """A receipt's file, the request that it is for, and the salt if it was still kept."""

    path: Path
    request: str
    salt: str | None


class ClientParty:
    """An open client directory.  Use :func:`open_client`, or to look at it ``reading``."""

    def __init__(self, folder: Path, *, copy: bool = False) -> None:
        self.folder = folder
        self.identity = Identity(
            read_key(
                folder / IDENTITY,
                32,
                "restore it, or set up a new client with a new key and have the server enrol it",
            )
        )
        self._secret = Secret(
            read_key(folder / SECRET, 16, "restore it; without it the clusters would change")
        )
        self._protocol: ClientSide | None = None
        self.versions: list[FederationFile] = []
        self.policy = SitePolicy.read(folder)
        # The store first: of a directory of an earlier version, it says what to do.
        self.store = Store(folder / STORE, copy=copy)
        try:
            self.store.seal = partial(_seal_of_requests, self.identity)
            self.suppression = ClientSuppression(folder, self.store, self._secret, copy=copy)
            self.name: str = self.store.get("name")
            if self.name is None:
                raise self.store.damage("name")
            path = folder / FEDERATION
            found = FederationFile.read(path) if path.exists() else None
            self.federation = current_file(folder, self.store, found)
            if self.federation is not None:
                self._configure(self.federation)
                self.store.check_features(self._held.n_features)
        except BaseException:
            self.store.close()
            raise

    def _configure(self, federation: FederationFile) -> None:
        self.config = federation.configuration()
        self.versions = stored_versions(self.store)
        names = federation.feature_names
        self._held = HeldRecords(self.store, self.config, names, self.name, self._secret)

    # -- setting up ----------------------------------------------------------------------------

    @classmethod
    def create(cls, folder: Path, name: str, *, suppression: Path | None = None) -> dict[str, str]:
        """Make a client; returns its enrolment, which the server takes.

        ``suppression`` is where the list of forgotten ids lies, if not in the directory.
        """
        check_new_name(name)
        if suppression is not None and suppression.exists():
            raise ClientError(f"{suppression} exists already; every client has a list of its own")
        identity, secret = Identity(os.urandom(32)), os.urandom(16)
        enrolment = {"name": name, "key": identity.public.data.hex()}
        with being_made(folder, (IDENTITY, SECRET, STORE, ENROLMENT, SUPPRESSION)):
            write_private(folder / IDENTITY, identity.seed)
            write_private(folder / SECRET, secret)
            store = Store(folder / STORE, create=True)
            with store.transaction():
                store.put("name", name)
                store.seal = partial(_seal_of_requests, identity)
                store.seal_requests()
                if suppression is not None:
                    store.put("suppression", {"path": str(suppression.resolve()), "on": True})
            store.close()
            place = folder / SUPPRESSION if suppression is None else suppression.resolve()
            SuppressionList(place, Secret(secret), create=True).close()
            write_private(folder / ENROLMENT, json.dumps(enrolment, indent=1).encode())
        return enrolment

    def join(
        self,
        federation: FederationFile | None,
        *documents: MembershipDocument,
        alone: bool = False,
    ) -> Joined:
        """Take the federation file and a membership list over; returns what comes with it.

        Several lists that follow one another are taken over as one.
        """
        plan = self.plan_join(federation, *documents, alone=alone)
        if plan.known:
            return plan
        ours = self.federation
        if ours is None:
            write_private(self.folder / FEDERATION, plan.federation.text().encode())
            self.federation = plan.federation
            self._configure(plan.federation)
        with self.store.transaction():
            if plan.amended is None:
                self.store.put("federation", plan.federation.text())
            else:
                take_amendment(self, plan.amended, plan.federation, plan.membership)
            given = [document.signed() for document in documents]
            if not is_in_force(self.lists(), [one.membership for one in given]):
                for one in given:
                    self.store.add_list(one.membership.epoch, one.data)
            ledger = self.stored_ledger()
            if ledger is None:
                ledger = newcomer(given[0].membership, self._held.n_features)
            alone = joins_alone(self.name, plan.membership, ledger, alone)
            self._store_ledger(structs.replace(ledger, joins_alone=alone))
        self._protocol = None
        if plan.amended is not None:
            write_files(self.folder, plan.federation, self.versions)
        return plan

    def plan_join(
        self,
        federation: FederationFile | None,
        *documents: MembershipDocument,
        alone: bool = False,
    ) -> Joined:
        """What joining with a list would mean; nothing changes.

        With the file and the list that are in force here, joining once more means nothing.
        """
        ours = self.federation
        if federation is None:
            federation = ours
        if federation is None:
            raise ClientError("the federation file is needed to join for the first time")
        amended = ours is not None and ours.digest != federation.digest
        if ours is not None and amended:
            if ours.identifier != federation.identifier:
                raise ClientError(
                    f"this client belongs to “{ours.name}”: {ours.difference(federation)}"
                )
            check_next(ours, federation)
        earlier = [*self.versions, ours] if ours is not None and amended else self.versions
        protocol = protocol_federation(federation, earlier)
        new = [one.checked(protocol.server_key, protocol.identifier) for one in documents]
        membership = new[-1]
        room = federation.model.local_clusters * len(membership)
        if membership.capacity != room:
            raise ClientError(
                f"the list has room for {membership.capacity} bins; its {len(membership)} members"
                f" can have {room}. If the federation was amended, give its new file, too"
            )
        lists, ledger = self.lists(), self.stored_ledger()
        if ledger is not None and ledger.left:
            raise ClientError(
                f"{self.name} has left, and this directory no longer answers. To come back, make"
                " a new one (client init) and have the server enrol it. If it stays"
                " away, the server takes it off the list (server enrol --gone)"
            )
        if is_in_force(lists, new) and not amended and not alone:
            last = lists[-2] if len(lists) > 1 else None
            return Joined(federation, last, membership, own=self.name, known=True)
        self.policy.check_join(federation, len(membership))
        if ours is None:
            check_newcomer(federation, new)
        elif amended:
            check_lists_of(federation, lists, new, self.ledger().place)
        if ours is not None and amended:
            before = protocol_federation(ours, self.versions)
            check_amended_adoption(
                self.name, self.identity, before, protocol, lists, new, ledger, alone
            )
        else:
            check_adoption(self.name, self.identity, protocol, lists, new, ledger, alone)
        if is_in_force(lists, new):
            lists = lists[:-1]
        opened = opened_at(membership, ledger)
        return Joined.after(federation, lists, new, opened, self.name, ours if amended else None)

    def follow_version(self, federation: FederationFile, *, redraw: bool) -> None:
        """Go on with a version that is stored; belongs in a transaction."""
        self.federation = federation
        self._configure(federation)
        if redraw:
            self.store.forget_labels()
            self._held.draw_if_they_fit()

    def keep_ledger(self, ledger: ClientLedger) -> None:
        """Store the ledger; belongs in a transaction."""
        self._store_ledger(ledger)

    def joined(self) -> FederationFile:
        """The federation file, of a client that has one."""
        if self.federation is None:
            raise ClientError("this client has not joined a federation: run client join first")
        return self.federation

    # -- records -------------------------------------------------------------------------------

    def import_table(
        self,
        table: Source,
        *,
        replace: bool = False,
        again: bool = False,
        progress: Progress | None = None,
    ) -> dict[str, int]:
        """Add the records of a table, all of them or none.

        Ids on the suppression list stay out and are counted, unless they may come ``again``.
        """
        self.joined()
        with self.suppression.changing() as suppression:
            gate = Gate(suppression, {one.name for one in self.store.requests()}, again)
            done = import_records(self._held, table, gate, replace=replace, progress=progress)
            note_import(self.store, now(), done.added)
            gate.let_in(self.store)
            remember_columns(self.store, table.columns)
        return {
            "added": done.added,
            "replaced": done.replaced,
            "kept_out": gate.kept_out,
            "dropped": table.dropped,
            "filled": sum(table.filled.values()),
            "records": done.records,
        }

    def sync(
        self,
        source: Source,
        rules: SyncRules | None = None,
        *,
        progress: Progress | None = None,
    ) -> Synced:
        """Make the records equal to those of a source, in one transaction.

        Records that the source does not have are forgotten by a request.  Ids on the suppression
        list stay out and are counted, unless they may come again.
        """
        self.joined()
        work = Synchroniser(self._held)
        with naming(lambda: work.request), self.suppression.changing() as suppression:
            return work.run(source, rules or SyncRules(), suppression, progress)

    def forget(self, ids: Any, *, dry_run: bool = False, ignore_missing: bool = False) -> Forgotten:
        """Erase records; when this returns they are gone, and the change waits for a round.

        With ``ignore_missing`` ids may be given that are not held, and ids may be given twice, or
        none at all; a call that finds none of them changes nothing.
        """
        plan = self.plan_forget(ids, ignore_missing=ignore_missing)
        return plan.preview if dry_run else self.carry_out(plan)

    def plan_forget(self, ids: Any, *, ignore_missing: bool = False) -> ForgetPlan:
        """What :meth:`forget` would do; nothing changes."""
        self.joined()
        wanted = _parsed(ids).tolist()
        encoded = encoded_ids(wanted)
        named = dict(zip(encoded, wanted, strict=True))
        if not named and not ignore_missing:
            raise UnknownIdError("no ids were given; nothing was forgotten")
        if len(named) < len(wanted) and not ignore_missing:
            some = name_some([wanted[at] for at in _given_again(encoded)])
            raise DuplicateIdError(f"given twice: {some}; nothing was forgotten")
        clusters = self._held.clusters()
        places = self.store.rows_of([*named, *clusters.seed_ids])
        held = {key: one for key, one in named.items() if key in places}
        missing = tuple(one for key, one in named.items() if key not in places)
        if missing and not ignore_missing:
            raise UnknownIdError(
                f"{len(missing)} of {len(named)} ids are not held here: {name_some(missing)};"
                " nothing was forgotten"
            )
        rows = np.array([places[one] for one in held], dtype=np.int64)
        lost = None
        if held and clusters.seed_ids:
            lost = self._held.owner(clusters, places).clusters.first_lost(rows)
        not_held = len(missing) if ignore_missing else None
        preview = Forgotten("", len(held), _from_one(lost), "", tuple(held.values()), missing)
        return ForgetPlan(preview, held, rows, places, clusters.seed_ids, not_held)

    def carry_out(self, plan: ForgetPlan) -> Forgotten:
        """Erase the records of a plan, and store the request that did it, in one transaction."""
        if not plan.held:
            return plan.preview
        self._check_up_to_date(plan)
        salt = os.urandom(receipts.SALT_BYTES)
        request: Request | None = None
        with naming(lambda: request), self.suppression.changing() as suppression:
            change = RecordChange(self._held, plan.places)
            change.remove(plan.rows)
            first = change.finish()
            # While records do not fit there are no seeds to lose; clusters are drawn once they do.
            reseeded = plan.preview.reseeded if plan.seeds else _from_one(first)
            request = note_erasure(
                self.store, suppression, plan.held, salt, reseeded, plan.not_held
            )
        return replace(plan.preview, request=request.name, reseeded=reseeded, salt=salt.hex())

    def _check_up_to_date(self, plan: ForgetPlan) -> None:
        """Refuse a plan if the records have changed since it was made."""
        same = self.store.ids_of(plan.rows).tolist() == list(plan.held)
        if not same or self._held.clusters().seed_ids != plan.seeds:
            raise ClientError("the records have changed since; nothing was forgotten: try again")

    def leave(self, *, alone: bool = False) -> int:
        """Erase all records; a round with enough other leavers takes this client out of the sum.

        ``alone`` if the operator accepts that the sum then shows this client's histogram.
        """
        self.joined()
        ledger = self.ledger()
        if ledger.left:
            raise ClientError(f"{self.name} has left already")
        if ledger.base is None and not alone:
            # Until others leave with it, it must go on with what is counted of it.
            raise ClientError(
                "a full round must come first: what is counted is not known here (--alone does"
                " not wait)"
            )
        with self.suppression.changing() as suppression:
            ids = list(self.store.index())
            records = len(ids)
            if records:
                self._held.erase()
                request = self.store.add_request(now(), records, None, b"", 1)
                suppression.begin_forgetting(np.array(ids, dtype=np.bytes_), request.name)
            self._store_ledger(structs.replace(ledger, leaving=Leaving(alone)))
        self._protocol = None
        return records

    def recover(self, forgotten: Any = ()) -> dict[str, Any]:
        """Go on with a directory that was restored from a backup.

        What was forgotten since is forgotten again: the ids given, as far as they are held, and
        those that the suppression list knows.  What the server counts of this client is taken as
        unknown, so that a full round must come.
        """
        self.joined()
        before = self.ledger()
        given = _parsed(forgotten).tolist() if len(forgotten) else []
        encoded = dict(zip(encoded_ids(given), given, strict=True))
        held = self.store.rows_of(encoded)
        again = dict.fromkeys(decoded_id(one) for one in held)
        again |= dict.fromkeys(self.held_though_forgotten())
        done = self.forget(list(again)) if again else None
        # What it has signed binds it still: the sum may have been opened.
        ledger = structs.replace(before, base=None, pending=None, recovering=True)
        with self.store.transaction():
            self._store_ledger(ledger)
        self._protocol = None
        return {
            "records_forgotten_again": len(again),
            "ids_not_held": len(encoded) - len(held),
            "request": None if done is None else done.request,
            "salt": None if done is None else done.salt,
            "last_round_known": ledger.place.round,
        }

    def held_though_forgotten(self) -> list[int | str]:
        """Ids on the suppression list that are held all the same."""
        with self.suppression.opened() as suppression:
            gate = Gate(suppression, set(), again=False)
            held = self.store.index()
            back = gate.held_though_forgotten(held)
        return [decoded_id(one) for one in held if one in back]

    # -- looking -------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        lists, ledger = self.lists(), self.stored_ledger()
        waiting = self.store.requests()
        keeps_old = bool(waiting) or (ledger is not None and ledger.pending is not None)
        with self.suppression.opened() as suppression:
            suppressed = len(suppression)
        return {
            "name": self.name,
            "federation": None if self.federation is None else self.federation.name,
            "epoch": lists[-1].epoch if lists else None,
            "fingerprint": lists[-1].fingerprint if lists else None,
            "version": None if self.federation is None else self.federation.version,
            "records": len(self.store),
            "records_that_do_not_fit": self._misfit_in_words(),
            "clusters": 0 if ledger is None else len(self._held.clusters().sizes),
            "last_committed_round": None if ledger is None else ledger.place.round,
            "counted_in_round": None if ledger is None else ledger.base_round,
            "needs_full_round": ledger is not None and ledger.needs_full,
            "requests_waiting": len(waiting),
            "records_waiting": sum(one.records for one in waiting),
            "keeps_last_committed_histogram": keeps_old,
            "receipts": len(self.store.receipts()),
            "ids_suppressed": suppressed,
            "suspended": bool(lists) and self.name in lists[-1].suspended,
            "leaving": ledger is not None and ledger.leaving is not None,
            "left": ledger is not None and ledger.left,
        }

    def _misfit_in_words(self) -> str | None:
        if self.federation is None or not self._held.wait():
            return None
        return str(self.misfit())

    def misfit(self) -> Misfit | None:
        """Records that do not fit the federation since it was amended."""
        self.joined()
        return self._held.misfit()

    def requests(self) -> list[dict[str, Any]]:
        """Requests that wait for a round, and those whose receipts were not written out."""

        def line(name: str, tag: str, time: str, records: int, state: str) -> dict[str, Any]:
            salt = self.store.salt_of(tag)
            shown = salt.hex() if salt else None
            return {
                "request": name, "time": time, "records": records, "state": state, "salt": shown
            }  # fmt: skip

        found = [
            line(one.name, one.tag, one.time, one.records, "waits for a round")
            for one in self.store.requests()
        ]
        for stored, receipt in self.receipts():
            if self.store.salt_of(stored.tag) is not None:
                asked = receipt.request
                state = "carried out; its receipt is not written out yet"
                found.append(line(stored.name, stored.tag, asked.time, asked.records, state))
        return found

    def receipts(self) -> list[tuple[StoredReceipt, receipts.Receipt]]:
        """Every receipt as it is stored, and what it says; nothing is verified."""
        found = []
        for one in self.store.receipts():
            try:
                found.append((one, receipts.parse(one.document)))
            except receipts.ReceiptError:
                raise self.store.damage(f"receipt {one.name}") from None
        return found

    def labels(self, centres: Floats) -> tuple[list[int | str], Labels]:
        """Each record's cluster: the nearest of the model's centres, in the clustered space."""
        self._held.check_they_fit()
        _, ids, values = self.store.everything(self._held.n_features)
        nearest_centre = nearest(self.config.grid.to_clustered(values), centres)[0]
        return [decoded_id(one) for one in ids.tolist()], nearest_centre

    def clustered_records(self) -> Floats:
        """All records in the clustered space, in the order of :meth:`labels`."""
        return self.config.grid.to_clustered(self.store.everything(self._held.n_features)[2])

    def state_digest(self) -> str:
        """Digest of the records and the state stored for them, in the order of the ids."""
        return state_digest_of(self._held)

    def audit(self) -> Audit:
        """Fit again from the retained records, and compare with what is stored."""
        self.joined()
        return audit_of(self, self._held)

    # -- rounds --------------------------------------------------------------------------------

    def lists(self) -> list[Membership]:
        """The membership lists that were adopted, in their order."""
        stored = self.store.lists_after(0)
        if not stored and self.store.get("ledger") is not None:
            raise StoreError(
                f"{self.store.path}: the membership lists that were adopted are gone; nothing was"
                f" changed: {SCHEMA.damaged}"
            )
        return [SignedMembership.parse(data).membership for data in stored]

    def reportable(self) -> StoredClusters:
        """The clusters that are stored, with the records."""
        return self._held.with_clusters()

    @property
    def reporting(self) -> Configuration:
        """The public parameters with the rules that this site's policy makes stricter."""
        rules = self.policy.rules(self.joined())
        return replace(self.config, rules=rules)

    def cells(self) -> Cells:
        """The clusters that the client reports, under the rules of the federation and the site."""
        return self.reporting.cells_of(self.reportable())

    def histogram(self) -> Histogram:
        """What the client would like to be counted with."""
        return self.reporting.histogram_of(self.reportable())

    def _offered(self) -> Histogram | None:
        """What a round may take; None if it must do with what was counted last."""
        if self._held.wait():
            raise NotReadyError(self.name)
        preview = self.preview()
        if preview.verdict.problems:
            self.policy.check_round(self.joined(), len(self.lists()[-1]))
        return preview.reported if preview.verdict.goes else None

    def preview(self) -> Preview:
        """What the next round would take, beside what was counted last."""
        federation = self.joined()
        self._held.check_they_fit()
        ledger = self.ledger()
        clusters = self.reportable()
        config = self.reporting
        cells, reported = config.cells_of(clusters), config.histogram_of(clusters)
        approved = self.store.get("approved") == digest_of_input(reported)
        verdict = Verdict(
            tuple(self.policy.problems(federation, len(self.lists()[-1]))),
            needs_approval=self.policy.approval,
            approved=approved,
        )
        smallest = int(cells.sizes[cells.sizes > 0].min()) if (cells.sizes > 0).any() else None
        dissolved = int((clusters.sizes > 0).sum()) - int((cells.sizes > 0).sum())
        records = int(clusters.sizes.sum())
        return Preview(records, smallest, dissolved, reported, ledger.base, verdict)

    def waits_for_approval(self) -> bool:
        """Whether this site's policy keeps a changed report, or a request, from the next round.

        This is for the site itself: nothing that leaves it may depend on it.
        """
        ledger = self.stored_ledger()
        if self.federation is None or ledger is None or not self.policy.approval:
            return False
        if ledger.leaving is not None or ledger.left or self._held.wait():
            return False
        found = self.preview()
        waits = found.reported != found.counted or bool(self.store.requests())
        return waits and not found.verdict.approved

    def approve(self, digest: str) -> None:
        """Approve what was previewed; it must still be what a round would take."""
        found = self.preview().digest
        if digest != found:
            raise ClientError(
                f"the digest {digest[:16]} is not that of what the next round would take now"
                f" ({found[:16]}): run client preview again, and look at what has changed"
            )
        with self.store.transaction():
            self.store.put("approved", bytes.fromhex(digest))

    @property
    def protocol(self) -> ClientSide:
        """The client's part of the protocol; its attempt under way lives in memory alone."""
        if self._protocol is None:
            federation, lists = self.joined(), self.lists()
            if not lists:
                raise ClientError("this client has not joined a federation: run client join first")
            self._protocol = ClientSide(
                self.name,
                self.identity,
                protocol_federation(federation, self.versions),
                lists,
                self._offered,
                self.ledger(),
                self.store,
            )
        return self._protocol

    def receive(self, data: bytes) -> bytes | None:
        """Handle a message of the protocol; what must last is stored before the answer is given."""
        protocol = self.protocol
        step = protocol.handle(data)
        try:
            if step.ledger is not protocol.ledger or step.events:
                with self.store.transaction():
                    self._store_ledger(step.ledger)
                    for event in step.events:
                        self._take(event)
        except BaseException:
            # Begin again from what is stored, whatever that is.
            self._protocol = None
            raise
        protocol.accept(step)
        if not self.suppression.keeps and any(isinstance(one, Followed) for one in step.events):
            # Opening it drops what waits no longer.
            with suppress(ClientError, StoreError), self.suppression.opened():
                pass
        return step.answer

    def _take(self, event: Event) -> None:
        """Requests travel with the input that carries them, and end in receipts."""
        match event:
            case InputFixed():
                self.store.send_requests(event.attempt)
                send_imports(self.store, event.attempt)
            case Followed():
                self.store.add_notice(event.round, event.letter)
                if event.attempt is not None:
                    self._close_requests(event)
                    close_imports(self.store, event.attempt)

    def _close_requests(self, event: Followed) -> None:
        closed = self.store.requests(event.attempt)
        if not closed:
            return
        named = [
            one
            for one in map(SignedMembership.parse, self.store.lists_after(0))
            if one.membership.digest == event.context.membership
        ]
        for request in closed:
            document = receipts.issue(
                self._version_of(event.context),
                self.name,
                self.identity,
                request,
                MembershipDocument.of(named[0]),
                self.store.notice(event.round - 1),
                event.letter,
                event.round,
                suppression=self.suppression.keeps,
            )
            self.store.close_request(request, receipts.text_of(document))

    def _version_of(self, context: Context) -> FederationFile:
        """The version of the federation file with which a round was run."""
        for one in (self.joined(), *self.versions):
            if one.digest == context.configuration:
                return one
        raise ClientError("the version of the federation file of that round is not known here")

    def write_receipts(
        self, out: Path, tell: Callable[[list[WrittenReceipt]], None] = lambda written: None
    ) -> list[WrittenReceipt]:
        """Write every receipt to a file; returns them, with their salts if they are still kept.

        The salt of a receipt that was written out is kept no longer.  ``tell`` is called before
        the salts are erased, so that one that could not be shown is not lost.
        """
        written: list[WrittenReceipt] = []
        stored = self.receipts()
        try:
            out.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ClientError(f"{out} cannot be made: {error.strerror}") from None
        for one, _ in stored:
            path = out / f"receipt-{one.name}.json"
            write_private(path, one.document.encode(), replace=False)
            salt = self.store.salt_of(one.tag)
            written.append(WrittenReceipt(path, one.name, salt.hex() if salt else None))
        tell(written)
        with self.store.transaction():
            for one in self.store.receipts():
                self.store.erase_salt(one.tag)
        return written

    def ledger(self) -> ClientLedger:
        """What the protocol remembers."""
        ledger = self.stored_ledger()
        if ledger is None:
            raise ClientError("this client has not joined a federation: run client join first")
        return ledger

    def stored_ledger(self) -> ClientLedger | None:
        """The same, None before the client has joined."""
        data = self.store.get("ledger")
        if data is None:
            return None
        try:
            if self.store.get("ledger_seal") != self._seal(data):
                raise StoreError(
                    f"{self.folder / STORE}: the stored ledger was altered, or {IDENTITY} is not"
                    " the key with which it was stored"
                )
            ledger: ClientLedger = load(data)
        except (ValueError, TypeError) as error:
            raise self.store.damage("ledger") from error
        return ledger

    def _store_ledger(self, ledger: ClientLedger) -> None:
        data = dump(ledger)
        self.store.put("ledger", data)
        self.store.put("ledger_seal", self._seal(data))

    def _seal(self, data: bytes) -> bytes:
        """Tells a ledger that was changed by hand from one that was stored."""
        return digest_of(b"ledger", self.identity.seed, data)


@contextmanager
def open_client(folder: Path) -> Iterator[ClientParty]:
    """Open a client's directory for this process alone."""
    check_whose(folder, "client")
    with locked(folder):
        party = ClientParty(folder)
        try:
            yield party
        finally:
            party.store.close()


def _seal_of_requests(identity: Identity, data: bytes) -> bytes:
    """Tells requests that were changed by hand from those that were stored."""
    return digest_of(b"requests", identity.seed, data)


def _from_one(step: int | None) -> int | None:
    """A step as it is told to people: counted from 1."""
    return None if step is None else step + 1


def _given_again(encoded: list[bytes]) -> list[int]:
    """The positions of ids that were given before."""
    first: dict[bytes, int] = {}
    return [at for at, one in enumerate(encoded) if first.setdefault(one, at) != at]


def _parsed(ids: Any) -> Ids:
    try:
        return parse_ids(ids)
    except (TypeError, ValueError) as error:
        raise ClientError(f"{error}; nothing was forgotten") from None
