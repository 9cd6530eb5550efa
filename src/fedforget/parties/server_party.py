"""A server in a directory: the current aggregate and model, the membership list, the public log.

The previous aggregate and model are overwritten when a round commits: an old model is a copy of
what was forgotten.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

from msgspec import structs

from fedforget.arrays import Floats
from fedforget.clustering.histogram import Histogram
from fedforget.clustering.lattice_kmeans import ServerModel
from fedforget.configuration import Configuration
from fedforget.errors import FedforgetError
from fedforget.modelling import model_of, sizes_of
from fedforget.parties.amended_servers import check_lists_known
from fedforget.parties.amendments import protocol_federation
from fedforget.parties.database import Database
from fedforget.parties.federation_file import FederationFile
from fedforget.parties.folders import (
    FEDERATION,
    IDENTITY,
    being_made,
    check_whose,
    locked,
    read_key,
    write_private,
)
from fedforget.parties.log import LogError, entry_digest, next_entry, now
from fedforget.parties.membership_file import MembershipDocument
from fedforget.parties.server_audit import audit_of
from fedforget.parties.server_store import (
    COUNTED_WITH,
    SCHEMA,
    STORE,
    parsed_model,
    plain_model,
)
from fedforget.parties.store import histogram_of, plain_histogram
from fedforget.parties.version_store import current_file, stored_versions
from fedforget.protocol.client_ledger import dump, leavers_since, load, opened_since
from fedforget.protocol.errors import ProtocolError, RoundAbortedError
from fedforget.protocol.federation import Federation
from fedforget.protocol.history import check_lists, next_list
from fedforget.protocol.keys import Identity, PublicKey
from fedforget.protocol.membership import Member, Membership, SignedMembership
from fedforget.protocol.messages import Letter, Notice, Present
from fedforget.protocol.recovery import highest_attempt
from fedforget.protocol.rules import Waiting
from fedforget.protocol.server_side import ServerSide
from fedforget.protocol.server_stages import Outgoing, RoundResult, ServerLedger
from fedforget.report import Traffic
from fedforget.text import check_new_name
from fedforget.wall_clock import utc_now


class ServerError(FedforgetError):
    """Something that a server cannot do in its present state."""


class ListChanges(TypedDict, total=False):
    """What another list of members changes, besides those who come.

    Attributes
    ----------
    gone : who is taken off the list; whoever is still counted is taken out of the model by a full
        round of the others, which shows its histogram.
    renew : members whose enrolment replaces their key.
    suspend, resume : who takes no part for a while, and who does again.
    afresh : begin an epoch with the same members.  What they have signed since the last commit
        binds them less then: after a restore, this server may not know it.
    """

    gone: Sequence[str]
    renew: Sequence[str]
    suspend: Sequence[str]
    resume: Sequence[str]
    afresh: bool


class ServerParty:
    """An open server directory.  Use :func:`open_server`, or to look at it ``reading``."""

    def __init__(self, folder: Path, *, copy: bool = False) -> None:
        self.folder = folder
        self.identity = Identity(read_key(folder / IDENTITY, 32, "restore it from a backup"))
        found = FederationFile.read(folder / FEDERATION)
        self._protocol: ServerSide | None = None
        self._db = Database(folder / STORE, SCHEMA, copy=copy)
        try:
            self._read_versions(found)
            if self.identity.public.data.hex() != self.federation.server_key:
                raise ServerError(f"{folder / IDENTITY} is not the key of this federation's server")
        except BaseException:
            self._db.close()
            raise

    @classmethod
    def create(cls, folder: Path, federation: FederationFile) -> FederationFile:
        """Make a server; returns the federation file with the server's key in it."""
        identity = Identity(os.urandom(32))
        federation = replace(federation, server_key=identity.public.data.hex())
        with being_made(folder, (IDENTITY, FEDERATION, STORE)):
            write_private(folder / IDENTITY, identity.seed)
            write_private(folder / FEDERATION, federation.text().encode())
            database = Database(folder / STORE, SCHEMA, create=True)
            with database.transaction():
                database.put("federation", federation.text())
            database.close()
        return federation

    def _read_versions(self, found: FederationFile) -> None:
        federation = current_file(self.folder, self._db, found)
        assert federation is not None
        self.federation = federation
        self.versions = stored_versions(self._db)
        self.config = federation.configuration()

    def close(self) -> None:
        self._db.close()

    # -- storage -------------------------------------------------------------------------------

    def log(self) -> list[dict[str, Any]]:
        entries = []
        for number, text in self._db.execute("SELECT number, entry FROM log ORDER BY number"):
            try:
                entry = json.loads(text)
            except ValueError:
                raise LogError(f"log entry {number} is damaged: it is not JSON") from None
            match entry:
                case {"number": int(), "time": str(), "kind": str(), "body": dict()}:
                    entries.append(entry)
                case _:
                    raise LogError(f"log entry {number} is damaged: it is not that of a log")
        return entries

    def _append(self, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        rows = self._db.execute("SELECT entry FROM log ORDER BY number DESC LIMIT 1")
        previous = json.loads(rows[0][0]) if rows else None
        entry = next_entry(previous, now(), kind, body, self.identity)
        text = json.dumps(entry, ensure_ascii=False)
        self._db.execute("INSERT INTO log VALUES (?, ?)", (entry["number"], text))
        return entry

    # -- members -------------------------------------------------------------------------------

    def signed_lists(self) -> list[SignedMembership]:
        """Every membership list with the server's signature, in their order."""
        rows = self._db.execute("SELECT data FROM list ORDER BY epoch")
        return [SignedMembership.parse(data) for (data,) in rows]

    def lists(self) -> list[Membership]:
        """Every membership list, in their order."""
        return [one.membership for one in self.signed_lists()]

    def _latest(self) -> SignedMembership | None:
        """The list in force, None before anybody is enrolled."""
        rows = self._db.execute("SELECT data FROM list ORDER BY epoch DESC LIMIT 1")
        return SignedMembership.parse(rows[0][0]) if rows else None

    def document(self) -> MembershipDocument | None:
        """The list in force, as members get it."""
        latest = self._latest()
        return None if latest is None else MembershipDocument.of(latest)

    def membership(self) -> Membership:
        """The list in force."""
        latest = self._latest()
        if latest is None:
            raise ServerError("nobody is enrolled: run server enrol first")
        return latest.membership

    def enrol(
        self, enrolments: Mapping[str, str] | None = None, **changes: Unpack[ListChanges]
    ) -> MembershipDocument:
        """Begin an epoch with another list of members.

        Parameters
        ----------
        enrolments : names and keys, in hexadecimal, of those who come or get a new key.
        **changes : what else differs from the list in force.
        """
        membership = self.plan(enrolments, **changes)
        signed, ledger = SignedMembership.by(membership, self.identity), self.ledger()
        # Whoever comes back with a new key does not know what was counted of it.
        counted = ledger.place.counted or {}
        if any(name in counted for name in changes.get("renew", ())):
            ledger = structs.replace(ledger, full_due=True)
        with self._db.transaction():
            self.add_list(signed, ledger)
        self._protocol = None
        return MembershipDocument.of(signed)

    def add_list(self, signed: SignedMembership, ledger: ServerLedger) -> None:
        """Store a list and the ledger that goes with it; belongs in a transaction."""
        membership = signed.membership
        self._db.execute("INSERT INTO list VALUES (?, ?)", (membership.epoch, signed.data))
        self._store_ledger(ledger)
        keys = {one.name: one.key.hex() for one in membership.members}
        entry = {"epoch": membership.epoch, "members": keys, "list": membership.digest.hex()}
        if membership.suspended:
            entry["suspended"] = sorted(membership.suspended)
        self._append("epoch", entry)

    # -- versions ------------------------------------------------------------------------------

    @contextmanager
    def storing(self) -> Iterator[Database]:
        """A transaction of the store, for those who amend the federation."""
        with self._db.transaction():
            yield self._db

    def append_to_log(self, kind: str, body: dict[str, Any]) -> None:
        """Add an entry to the public log; belongs in a transaction."""
        self._append(kind, body)

    def keep_ledger(self, ledger: ServerLedger) -> None:
        """Store the ledger; belongs in a transaction."""
        self._store_ledger(ledger)

    def follow_versions(self) -> None:
        """Go on with the version that is stored."""
        self.federation = FederationFile.parse(self._db.get("federation"))
        self.versions = stored_versions(self._db)
        self.config = self.federation.configuration()
        self._protocol = None

    def plan(
        self, enrolments: Mapping[str, str] | None = None, **changes: Unpack[ListChanges]
    ) -> Membership:
        """The list that :meth:`enrol` would make; nothing is stored."""
        gone, renew = changes.get("gone", ()), changes.get("renew", ())
        suspend, resume = changes.get("suspend", ()), changes.get("resume", ())
        check_lists_known(self.federation, self.lists())
        latest = self._latest()
        before = None if latest is None else latest.membership
        members = {} if before is None else {one.name: one for one in before.members}
        enrolments = dict(enrolments or {})
        if not (enrolments or gone or suspend or resume or (changes.get("afresh") and members)):
            raise ServerError("nothing would change: say who comes, goes, is suspended or resumes")
        for name in (*gone, *suspend, *resume, *renew):
            if name not in members:
                raise ServerError(f"{name} is not a member")
        for name in gone:
            if name in (*suspend, *resume, *renew):
                raise ServerError(f"{name} cannot go and stay with one list")
            if name in enrolments:
                raise ServerError(f"{name} cannot go and come with one list: renew its key instead")
            del members[name]
        taken = {*members, *enrolments}
        if before is not None:
            taken |= {*before.position, *before.counted, *before.former}
        for name, key in enrolments.items():
            # A member that is on the list already keeps its name.
            check_new_name(name, () if name in members else taken)
            self._check_enrolment(name, key, members, renew)
            suspended = name in members and members[name].suspended
            members[name] = Member(name, bytes.fromhex(key), suspended)
        for names, state in ((suspend, True), (resume, False)):
            for name in names:
                if members[name].suspended == state:
                    word = "is suspended" if state else "is not suspended"
                    raise ServerError(f"{name} {word} already")
                members[name] = structs.replace(members[name], suspended=state)
        for name in renew:
            if name not in enrolments:
                raise ServerError(f"{name} is to get a new key: give its enrolment file")
        self.federation.policy().check(len(members))
        ledger = self.ledger()
        try:
            return next_list(
                before,
                ledger.place,
                federation=bytes.fromhex(self.federation.identifier),
                members=members.values(),
                capacity=self.federation.model.local_clusters * len(members),
                leavers=[leavers_since(ledger.place, ledger.lock)],
                opened=opened_since(ledger.place, ledger.lock),
            )
        except ValueError as error:
            raise ServerError(str(error)) from None

    def _check_enrolment(
        self, name: str, key: str, members: Mapping[str, Member], renew: Sequence[str]
    ) -> None:
        try:
            PublicKey(bytes.fromhex(key))
        except (ProtocolError, ValueError) as error:
            raise ServerError(f"the enrolment of {name} is not valid: {error}") from None
        if name in members and name not in renew:
            same = members[name].key.hex() == key
            raise ServerError(
                f"{name} is a member already"
                + (" with this key" if same else "; --renew replaces its key by the new one")
            )

    # -- rounds --------------------------------------------------------------------------------

    @property
    def protocol(self) -> ServerSide:
        if self._protocol is None:
            self._protocol = ServerSide(
                self.identity,
                self.protocol_federation,
                self.membership(),
                self.ledger(),
                self.notices_after,
            )
        return self._protocol

    @property
    def protocol_federation(self) -> Federation:
        """What the protocol works with, all versions included."""
        return protocol_federation(self.federation, self.versions)

    def notices_after(self, round_number: int) -> list[bytes]:
        """The commit notices after a round, in their order."""
        rows = self._db.execute(
            "SELECT letter FROM notice WHERE round > ? ORDER BY round", (round_number,)
        )
        return [letter for (letter,) in rows]

    def opened_since_the_last_commit(self) -> frozenset[str]:
        """Whose inputs are in a sum that clients were asked to sign and that is not committed."""
        ledger = self.ledger()
        return opened_since(ledger.place, ledger.lock)

    def ledger(self) -> ServerLedger:
        data = self._db.get("ledger")
        if data is None:
            return ServerLedger()
        try:
            ledger: ServerLedger = load(data, ServerLedger)
        except (ValueError, TypeError) as error:
            raise self._db.damage("ledger") from error
        return ledger

    def _store_ledger(self, ledger: ServerLedger) -> None:
        self._db.put("ledger", dump(ledger))

    def remember(self) -> None:
        """Store the ledger; to be called before messages go out."""
        with self._db.transaction():
            self._store_ledger(self.protocol.ledger)

    def failed(self, error: RoundAbortedError) -> None:
        """Keep who took part in an attempt that failed, and who is to blame."""
        with self._db.transaction():
            self._store_ledger(self.protocol.ledger)
            self._append(
                "failure",
                {
                    "round": self.protocol.ledger.place.round + 1,
                    "attempt": self.protocol.ledger.attempt,
                    "participants": list(self.protocol.took_part),
                    "findings": [
                        {"members": list(one.members), "text": one.text} for one in error.findings
                    ],
                },
            )

    def commit(self, result: RoundResult, traffic: Traffic) -> list[Outgoing]:
        """Compute the model of a result and make both final, in one transaction."""
        aggregate = Histogram(len(self.federation.features))
        if result.kind == "delta":
            aggregate = self.aggregate()
        aggregate += result.total
        if any(count < 0 for _, count in aggregate.items()):
            self.protocol.abandon()
            raise ServerError("the sum takes out more than was counted; it was not used")
        model = model_of(self.config, aggregate)
        digest = self.config.model_digest(aggregate, model)
        findings, waiting = list(self.protocol.findings), list(self.protocol.waiting)
        attempt = self.protocol.ledger.attempt
        messages = self.protocol.commit(bytes.fromhex(digest), int(utc_now().timestamp()))
        place = self.protocol.ledger.place
        entry: dict[str, Any] = {
            "round": place.round,
            "epoch": self.protocol.membership.epoch,
            "kind": result.kind,
            "participants": list(result.survivors),
            "configuration": self.federation.digest.hex(),
            "model": digest,
            "attempt": attempt,
            "attempts": traffic.attempts,
            "seconds": round(sum(traffic.seconds.values()), 3),
            "bytes_from_a_client": max(
                (size for party, size in traffic.sent.items() if party != "server"), default=0
            ),
        }
        if self.config.published_step is None:
            # The log is public, and this tells of changes that the published model does not show.
            entry["changed_bins"] = len(result.total)
        if result.left:
            entry["left"] = list(result.left)
        if waiting:
            entry["waiting"] = [{"members": list(one.members), "text": one.text} for one in waiting]
        if findings:
            entry["findings"] = [
                {"members": list(one.members), "text": one.text} for one in findings
            ]
        try:
            with self._db.transaction():
                self._db.put("aggregate", plain_histogram(aggregate))
                self._db.put("model", plain_model(model))
                if self.versions:
                    self._db.put(COUNTED_WITH, self.federation.digest)
                self._db.execute(
                    "INSERT INTO notice VALUES (?, ?)", (place.round, self.protocol.last_notice)
                )
                self._store_ledger(self.protocol.ledger)
                self._append("round", entry)
        except BaseException:
            # What could not be stored is not committed: begin again from the store.
            self._protocol = None
            raise
        return messages

    def aggregate(self) -> Histogram:
        n_features, plain = len(self.counted_with.features), self._db.get("aggregate")
        if plain is None and self._db.get("model") is not None:
            # The two are stored together.
            raise self._db.damage("aggregate")
        try:
            stored = histogram_of(plain, n_features)
        except (ValueError, TypeError) as error:
            raise self._db.damage("aggregate") from error
        return stored or Histogram(n_features)

    # -- recovery ------------------------------------------------------------------------------

    def behind(self, greetings: Iterable[Present]) -> str | None:
        """Whether members know commits or lists that this server has lost, and who does.

        Only what this server once signed itself is believed.
        """
        place, epoch = self.ledger().place, self.membership().epoch
        for one in sorted(greetings, key=lambda greeting: greeting.name):
            lists, letters = self._evidence(one)
            latest = max([place.round, *letters])
            newest = max([epoch, *lists])
            if latest > place.round or newest > epoch:
                return (
                    f"{one.name} knows round {latest} and epoch {newest}; this server knows round"
                    f" {place.round} and epoch {epoch}: it was restored from a backup. Run"
                    " `server recover`"
                )
        return None

    def _evidence(self, greeting: Present) -> tuple[dict[int, SignedMembership], dict[int, bytes]]:
        """Lists by epoch and commit notices by round that this server signed, from a member."""
        federation = self.protocol_federation
        lists: dict[int, SignedMembership] = {}
        letters: dict[int, bytes] = {}
        try:
            for data in greeting.lists:
                one = SignedMembership.parse(data)
                one.check(federation.server_key, federation.identifier)
                lists[one.membership.epoch] = one
            for data in greeting.notices:
                letter = Letter(data)
                letter.check(federation.server_key)
                if isinstance(letter.payload.body, Notice):
                    letters[letter.payload.context.round] = data
        except ProtocolError:
            # Whatever else this member says is not worth reading.
            return {}, {}
        return lists, letters

    def recover(self, greetings: Iterable[Present]) -> dict[str, int]:
        """Take over the commits and lists that members know and this server has lost.

        A full round must follow: what the aggregate counts is not known any more.
        """
        greetings = list(greetings)
        signed = self.signed_lists()
        own = len(signed)
        known = {one.membership.epoch for one in signed}
        letters: dict[int, bytes] = {}
        for greeting in greetings:
            lists_told, letters_told = self._evidence(greeting)
            signed += [one for epoch, one in lists_told.items() if epoch not in known]
            known |= lists_told.keys()
            letters = letters_told | letters
        signed.sort(key=lambda one: one.membership.epoch)
        lists = [one.membership for one in signed]
        before = self.ledger()
        attempt = highest_attempt(before.attempt, greetings)
        ordered = [letters[number] for number in sorted(letters)]
        try:
            check_lists(signed, self.protocol_federation)
            found = self.protocol.recover(ordered, lists, attempt, greetings)
        except ProtocolError as error:
            self._protocol = None
            raise ServerError(
                f"{error}. If a list was made since the restore (server enrol), members know"
                " another one of that epoch: restore the backup once more, and run `server"
                " recover` before anything else"
            ) from None
        ledger, place = self.protocol.ledger, self.protocol.ledger.place
        with self._db.transaction():
            for one in signed[own:]:
                self._db.execute("INSERT INTO list VALUES (?, ?)", (one.membership.epoch, one.data))
            for number in sorted(letters):
                if before.place.round < number <= place.round:
                    self._db.execute("INSERT INTO notice VALUES (?, ?)", (number, letters[number]))
            self._store_ledger(ledger)
            self._append(
                "recovery",
                {
                    "round": place.round,
                    "epoch": lists[-1].epoch,
                    "members": {one.name: one.key.hex() for one in lists[-1].members},
                    "list": lists[-1].digest.hex(),
                    "model": place.model.hex(),
                    "rounds_taken_over": found,
                },
            )
        self._protocol = None
        return {
            "rounds_taken_over": found,
            "lists_taken_over": len(lists) - own,
            "round": place.round,
            "epoch": lists[-1].epoch,
        }

    # -- looking -------------------------------------------------------------------------------

    @property
    def counted_with(self) -> FederationFile:
        """The federation file with which the stored aggregate was counted."""
        known = {one.digest: one for one in (*self.versions, self.federation)}
        # It is noted only where there are several versions.
        noted = self._db.get(COUNTED_WITH)
        if noted is None:
            return next(iter(known.values()))
        if noted not in known:
            raise self._db.damage(COUNTED_WITH)
        return known[noted]

    @property
    def model_config(self) -> Configuration:
        """The public parameters of the stored aggregate and model."""
        return self.counted_with.configuration()

    def model(self) -> ServerModel:
        plain = self._db.get("model")
        if plain is None:
            raise ServerError("there is no model yet: run a round first")
        try:
            return parsed_model(plain)
        except ValueError:
            raise self._db.damage("model") from None

    def sizes(self) -> list[int]:
        """How many records each cluster of the model counts."""
        config, aggregate, model = self.model_config, self.aggregate(), self.model()
        weighted = config.published_step is None and config.server_points == "weighted"
        if weighted and len(model.labels) != len(aggregate):
            raise self._db.damage("model")
        sizes: list[int] = sizes_of(config, aggregate, model).tolist()
        return sizes

    def centres(self) -> tuple[Floats, Floats]:
        """The published centres, in the clustered space and in the original units."""
        return self.model_config.centres_of(self.model())

    def status(self) -> dict[str, Any]:
        lists, ledger, log = self.lists(), self.ledger(), self.log()
        listed = lists[-1] if lists else None
        rounds = [entry for entry in log if entry["kind"] == "round"]
        has_model = self._db.get("model") is not None
        return {
            "name": self.federation.name,
            "identifier": self.federation.identifier,
            "version": self.federation.version,
            "epoch": None if listed is None else listed.epoch,
            "fingerprint": None if listed is None else listed.fingerprint,
            "members": [] if listed is None else list(listed.position),
            "suspended": [] if listed is None else sorted(listed.suspended),
            "rounds_committed": ledger.place.round,
            "last_round": ledger.place.round or None,
            "counted": dict(ledger.place.counted or {}),
            "needs_full_round": self.needs_full_round(),
            "waiting_to_leave": self.waiting_to_leave(),
            "clusters": len(self.model().centres) if has_model else 0,
            "bins": len(self.aggregate()),
            "records": self.aggregate().total,
            "model": rounds[-1]["body"]["model"] if rounds else None,
            "log_entries": len(log),
            "log_head": entry_digest(log[-1]) if log else None,
        }

    def waiting_to_leave(self) -> list[str]:
        """Who wished to leave in the last round and could not, and what would let them go."""
        rounds = [entry["body"] for entry in self.log() if entry["kind"] == "round"]
        told = rounds[-1].get("waiting", ()) if rounds else ()
        return [str(Waiting(tuple(one["members"]), one["text"])) for one in told]

    def needs_full_round(self) -> bool:
        """Whether the next round, if nobody asks for another one, is a full one."""
        return self._latest() is None or self.protocol.kind_needed() == "full"

    def audit(self) -> dict[str, Any]:
        """Recompute the model from the aggregate, walk the log and the history."""
        return audit_of(self, self._db)


@contextmanager
def open_server(folder: Path) -> Iterator[ServerParty]:
    """Open a server's directory for this process alone."""
    check_whose(folder, "server")
    with locked(folder):
        party = ServerParty(folder)
        try:
            yield party
        finally:
            party.close()
