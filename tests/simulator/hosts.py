"""Parties as processes that may die: what they store outlives them, and nothing else does.

A party stores before it sends.  It may die before it stores, and then nobody has heard of what it
did, or after, and then it remembers an answer that nobody has got.  A machine may also be taken
back to an earlier moment, its memory included, and a directory to an older backup of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from msgspec.structs import replace as with_fields

from fedforget.clustering.histogram import Histogram
from fedforget.parties.amended_clients import ledger_after
from fedforget.parties.amendments import check_lists_of
from fedforget.parties.federation_file import FederationFileError
from fedforget.protocol.client_ledger import ClientLedger, Followed, Leaving, dump, load
from fedforget.protocol.client_side import ClientSide
from fedforget.protocol.client_stages import ClientStep
from fedforget.protocol.errors import ForkError, OlderDirectoryError, ProtocolError
from fedforget.protocol.federation import Federation
from fedforget.protocol.history import link_of
from fedforget.protocol.joining import check_adoption, check_amended_adoption, joins_alone
from fedforget.protocol.keys import Identity
from fedforget.protocol.membership import Membership, SignedMembership
from fedforget.protocol.memory import freeze, thaw
from fedforget.protocol.messages import Letter, Notice, RoundKind
from fedforget.protocol.server_side import ServerSide
from fedforget.protocol.server_stages import Outgoing, RoundResult, ServerLedger
from simulator.data import Data, Model, Records
from simulator.faults import Fate, KilledError, ViolationError


@dataclass(frozen=True)
class Directory:
    """What a client's disk holds; one transaction replaces all of it."""

    ledger: ClientLedger | None
    lists: tuple[SignedMembership, ...]
    federation: Federation
    notices: tuple[tuple[int, bytes], ...] = ()

    @property
    def memberships(self) -> tuple[Membership, ...]:
        return tuple(one.membership for one in self.lists)


@dataclass(frozen=True)
class Backup:
    """A moment of a client's life; ``memory`` is that of its process, if it had one."""

    directory: Directory
    records: Records
    memory: bytes | None


@dataclass
class Answer:
    """A step that a client has stored, and what came of it."""

    message: bytes
    step: ClientStep
    before: ClientLedger
    taken: Histogram | None
    records: frozenset[int]


class ClientHost:
    """A client and its store.

    Parameters
    ----------
    name, identity, federation : as for a client; the federation may be amended later.
    data : gives the histogram that it would like to be counted with.
    fate : decides where it dies, and is the source of its random bytes.
    observe : called with every answer before it leaves.
    party : the class of the process.

    Attributes
    ----------
    directory : what is stored.
    process : None while it is dead.
    away : the tick before which it does not come back.
    alone : its operator accepts that it joins with few others.
    troubled : it was rolled back, restored, or spoils: it counts as one of those who collude.
    stopped : why it waits for its operator, None if it does not.
    backups : moments to which it can be taken back.
    quiet : nobody compares its base with what was counted.
    """

    quiet = False

    def __init__(
        self,
        name: str,
        identity: Identity,
        federation: Federation,
        data: Data,
        fate: Fate,
        observe: Callable[[ClientHost, Answer], None],
        party: type[ClientSide] = ClientSide,
    ) -> None:
        self.name = name
        self.identity = identity
        self.directory = Directory(None, (), federation)
        self.process: ClientSide | None = None
        self.away = 0
        self.alone = False
        self.troubled = False
        self.stopped: OlderDirectoryError | None = None
        self.keeps_backups = False
        self.backups: list[Backup] = []
        self.party = party
        self._data = data
        self._fate = fate
        self._observe = observe
        self._taken: Histogram | None = None

    @property
    def federation(self) -> Federation:
        """In the version that it knows."""
        return self.directory.federation

    @property
    def ledger(self) -> ClientLedger | None:
        return self.directory.ledger

    @property
    def membership(self) -> Membership | None:
        return self.directory.lists[-1].membership if self.directory.lists else None

    @property
    def leaving(self) -> bool:
        return self.ledger is not None and self.ledger.leaving is not None

    @property
    def left(self) -> bool:
        return self.ledger is not None and self.ledger.left

    # -- the process ---------------------------------------------------------------------------

    def start(self, memory: bytes | None = None) -> None:
        """Begin a new process with what is stored."""
        ledger = self.ledger
        self.process = self.party(
            self.name,
            self.identity,
            self.federation,
            self.directory.memberships,
            self._take,
            None if ledger is None else load(dump(ledger)),
            self,
            self._fate.rng.randbytes,
        )
        if ledger is None:
            self._store_ledger(with_fields(self.process.ledger, joins_alone=self.alone))
        if memory is not None:
            thaw(self.process, memory)

    @property
    def current(self) -> Histogram:
        """What it has now, in the bins of the version that it knows."""
        return self._data.current(self.name, self.federation.report)

    def _take(self) -> Histogram:
        self._taken = self.current
        return self._taken

    def kill(self) -> None:
        self.process = None

    def _store_ledger(self, ledger: ClientLedger) -> None:
        """Change the ledger outside an attempt, as a command does."""
        self.directory = replace(self.directory, ledger=ledger)
        if self.process is not None:
            self.process.ledger = ledger

    def adopt(self, signed: SignedMembership) -> None:
        """Take the next list over, or refuse it."""
        membership = signed.check(self.federation.server_key, self.federation.identifier)
        lists = self.directory.memberships
        check_adoption(
            self.name, self.identity, self.federation, lists, [membership], self.ledger, self.alone
        )
        self.directory = replace(self.directory, lists=(*self.directory.lists, signed))
        if self.process is not None:
            self.process.adopt(membership, alone=self.alone)
            self._store_ledger(self.process.ledger)
        elif self.ledger is not None:
            alone = joins_alone(self.name, membership, self.ledger, self.alone)
            self._store_ledger(with_fields(self.ledger, joins_alone=alone))

    def amend(self, version: Federation, *signed: SignedMembership) -> None:
        """Take the next version over, with the lists that come with it, or refuse it.

        As ``ClientParty.join`` does: what it is judged by is the real thing.
        """
        ours, lists, ledger = self.federation, self.directory.memberships, self.ledger
        assert ledger is not None
        if version.earlier[-1:] != (ours.version,):
            raise ForkError("the version does not follow the one that is known here")
        new = [one.check(ours.server_key, ours.identifier) for one in signed]
        known = replace(version, earlier=(*ours.earlier, ours.version))
        try:
            check_lists_of(known, lists, new, ledger.place)  # type: ignore[arg-type]
        except FederationFileError as error:
            raise ForkError(str(error)) from None
        check_amended_adoption(
            self.name, self.identity, ours, known, lists, new or lists[-1:], ledger, self.alone
        )
        membership = (*lists, *new)[-1]
        if known.report != ours.report:
            ledger = ledger_after(ledger, len(known.levels), membership)
        alone = joins_alone(self.name, membership, ledger, self.alone)
        self.directory = replace(
            self.directory,
            federation=known,
            lists=(*self.directory.lists, *signed),
            ledger=with_fields(ledger, joins_alone=alone),
        )
        if self.process is not None:
            self.start()

    def leave(self, *, alone: bool) -> None:
        """Its operator wants it to leave."""
        assert self.ledger is not None
        self._store_ledger(with_fields(self.ledger, leaving=Leaving(alone)))

    # -- the archive ---------------------------------------------------------------------------

    def notices_after(self, round_number: int) -> Sequence[bytes]:
        return [data for at, data in self.directory.notices if at > round_number]

    def lists_after(self, epoch: int) -> Sequence[bytes]:
        return [one.data for one in self.directory.lists if one.membership.epoch > epoch]

    # -- messages ------------------------------------------------------------------------------

    def receive(self, data: bytes) -> bytes | None:
        """Handle a message, store, and return what is to be sent."""
        assert self.process is not None
        if self._fate.strikes("thawed"):
            # The runtime starts a process for every message, and keeps the attempt in its memory.
            self.start(freeze(self.process))
        self._taken = None
        before = _client_state(self.process)
        try:
            step = self.process.handle(data)
        except ProtocolError as error:
            if isinstance(error, OlderDirectoryError):
                self.stopped = error
            self._check_unchanged(before, error)
            raise
        self._check_unchanged(before, None)
        return self._conclude(data, step)

    def _check_unchanged(self, before: tuple[object, ...], error: ProtocolError | None) -> None:
        assert self.process is not None
        after = _client_state(self.process)
        if any(one is not other for one, other in zip(before, after, strict=True)):
            raise ViolationError(
                f"{self.name} changed although it {'refused' if error else 'has not stored'}"
                f" a message: {error}"
            )

    def _conclude(self, data: bytes, step: ClientStep) -> bytes | None:
        self._die_if("client_killed_before_storing")
        self._store(data, step)
        self._die_if("client_killed_before_sending")
        return step.answer

    def _store(self, data: bytes, step: ClientStep) -> None:
        assert self.process is not None
        before = self.process.ledger
        if self.keeps_backups:
            self.back_up()
        followed = tuple(
            (event.round, event.letter) for event in step.events if isinstance(event, Followed)
        )
        self.directory = replace(
            self.directory, ledger=step.ledger, notices=self.directory.notices + followed
        )
        records = self._data.records(self.name)
        self._observe(self, Answer(data, step, before, self._taken, records))
        self.process.accept(step)

    def _die_if(self, kind: str) -> None:
        if self._fate.strikes(kind):
            self.kill()
            raise KilledError(f"{self.name}: {kind}")

    # -- backups -------------------------------------------------------------------------------

    def back_up(self) -> None:
        memory = None if self.process is None else freeze(self.process)
        self.backups.append(Backup(self.directory, self._data.snapshot(self.name), memory))

    def go_back(self, backup: Backup, *, memory: bool) -> None:
        """Take the directory, and perhaps the running process with it, to an earlier moment."""
        self.troubled = True
        self.kill()
        self.directory = backup.directory
        self._data.restore(self.name, backup.records)
        self.start(backup.memory if memory else None)

    def recover(self) -> None:
        """The operator's command: erasures are applied again, and what is counted is not known."""
        assert self.ledger is not None
        self._data.reapply(self.name)
        self.stopped = None
        self._store_ledger(with_fields(self.ledger, recovering=True, base=None, pending=None))


def _client_state(client: ClientSide) -> tuple[object, ...]:
    """What a message must leave as it was until its step is accepted; all of it is frozen."""
    return client.stage, client.ledger, client._last, client.membership


@dataclass(frozen=True)
class ServerStore:
    """What the server's disk holds; one transaction replaces all of it.

    ``aggregate`` is None where it was lost.
    """

    ledger: ServerLedger
    lists: tuple[SignedMembership, ...]
    federation: Federation
    aggregate: Histogram | None
    model: bytes
    notices: tuple[bytes, ...] = field(default=())

    @property
    def membership(self) -> Membership:
        return self.lists[-1].membership


class ServerHost:
    """The server, its store and its model."""

    def __init__(
        self,
        identity: Identity,
        federation: Federation,
        signed: SignedMembership,
        data: Data,
        fate: Fate,
        party: type[ServerSide] = ServerSide,
    ) -> None:
        self.identity = identity
        empty = Histogram(len(federation.levels))
        model = data.new_model().follow(empty, None)
        self.store = ServerStore(ServerLedger(), (signed,), federation, empty, model)
        self.process: ServerSide | None = None
        self._data = data
        self._fate = fate
        self._party = party
        self._model: Model = data.new_model()

    @property
    def federation(self) -> Federation:
        """In the version that it knows."""
        return self.store.federation

    def start(self) -> None:
        """Begin a new process with what is stored."""
        self._model = self._data.new_model()
        self.process = self._party(
            self.identity,
            self.federation,
            self.store.membership,
            load(dump(self.store.ledger), ServerLedger),
            self._notices_after,
            self._fate.rng.randbytes,
        )

    def _notices_after(self, round_number: int) -> Sequence[bytes]:
        letters = map(Letter, self.store.notices)
        return [one.data for one in letters if one.payload.context.round > round_number]

    def kill(self) -> None:
        self.process = None

    @property
    def running(self) -> ServerSide:
        assert self.process is not None
        return self.process

    def open(self, kind: RoundKind) -> list[Outgoing]:
        return self._stored(self.running.open(kind))

    def advance(self) -> list[Outgoing]:
        return self._stored(self.running.advance())

    def remember(self) -> None:
        self._stored([])

    def adopt(self, signed: SignedMembership, *, full_due: bool = False) -> None:
        self.running.adopt(signed.membership)
        if full_due:
            self.running.ledger = with_fields(self.running.ledger, full_due=True)
        self._stored([], lists=(*self.store.lists, signed))

    def amend(self, version: Federation, signed: SignedMembership) -> None:
        """The operator's command, which another process carries out: an attempt is lost."""
        self.kill()
        ledger = with_fields(self.store.ledger, full_due=self.store.ledger.place.round > 0)
        lists = (*self.store.lists, signed)
        self.store = replace(self.store, ledger=ledger, lists=lists, federation=version)

    def take_back(self, version: Federation) -> None:
        """``server amend --restore``: a version that was made before this server was restored."""
        self.kill()
        ledger = with_fields(self.store.ledger, full_due=True)
        self.store = replace(self.store, ledger=ledger, federation=version)

    def commit(self) -> list[Outgoing]:
        """Take the result over: ledger, aggregate, model and notice change together."""
        result = self.running.result
        assert result is not None
        aggregate, model = self._outcome(result)
        messages = self.running.commit(model)
        notices = (*self.store.notices, self.running.last_notice)
        return self._stored(messages, aggregate=aggregate, model=model, notices=notices)

    def _outcome(self, result: RoundResult) -> tuple[Histogram, bytes]:
        if result.kind == "full":
            return result.total, self._model.follow(result.total, None)
        assert self.store.aggregate is not None
        aggregate = self.store.aggregate + result.total
        return aggregate, self._model.follow(aggregate, result.total)

    def _stored(self, messages: list[Outgoing], **changes: object) -> list[Outgoing]:
        self._die_if("server_killed_before_storing")
        self.store = replace(self.store, ledger=self.running.ledger, **changes)  # type: ignore[arg-type]
        self._die_if("server_killed_before_sending")
        return messages

    def _die_if(self, kind: str) -> None:
        if self._fate.strikes(kind):
            self.kill()
            raise KilledError(f"server: {kind}")

    def receive(self, data: bytes) -> None:
        """Take an answer; a refusal must change nothing except for what was found out."""
        before = _server_state(self.running)
        try:
            self.running.receive(data)
        except ProtocolError as error:
            if _server_state(self.running) != before:
                raise ViolationError(
                    f"the server changed although it refused a message: {error}"
                ) from error
            raise

    def recover(self, greetings: Sequence[tuple[Sequence[bytes], Sequence[bytes], int]]) -> int:
        """The operator's command: take over what members know; returns how many commits were new.

        ``greetings`` are each member's notices and lists, and the last attempt that it has seen.
        """
        lists = {one.membership.epoch: one for one in self.store.lists}
        letters: dict[int, bytes] = {}
        for notices, others, _ in greetings:
            for data in others:
                signed = SignedMembership.parse(data)
                signed.check(self.federation.server_key, self.federation.identifier)
                lists[signed.membership.epoch] = signed
            for data in notices:
                letters[Letter(data).payload.context.round] = data
        ordered = tuple(lists[epoch] for epoch in sorted(lists))
        attempt = max(seen for _, _, seen in greetings)
        missing = [letters[at] for at in sorted(letters)]
        before = self.store.ledger.place.round
        memberships = [one.membership for one in ordered]
        present = tuple(self.running.present.values())
        found = self.running.recover(missing, memberships, attempt, present)
        new = [data for at, data in sorted(letters.items()) if at > before][:found]
        self.store = replace(
            self.store,
            ledger=self.running.ledger,
            lists=ordered,
            aggregate=None if found else self.store.aggregate,
            notices=self.store.notices + tuple(new),
        )
        return found


def _server_state(server: ServerSide) -> tuple[object, ...]:
    """What a refusal must leave as it was."""
    gathering = getattr(server.stage, "gathering", None)
    total = getattr(server.stage, "masked_total", None)
    return (
        server.ledger,
        id(server.stage),
        server.membership.digest,
        None if gathering is None else tuple(gathering.fingerprints.items()),
        None if total is None else total.tobytes(),
    )


def link_of_notice(data: bytes) -> bytes:
    """The link of a commit, from its notice."""
    payload = Letter(data).payload
    assert isinstance(payload.body, Notice)
    return link_of(payload.context, payload.body)
