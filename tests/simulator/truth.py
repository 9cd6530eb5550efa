"""What ought to be counted, kept beside the parties and compared with what they keep."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedforget.clustering.histogram import Histogram
from fedforget.protocol.client_ledger import ClientLedger, Followed
from fedforget.protocol.messages import Consent, Context, Letter, Masked, Notice, Survivors
from simulator.data import Data
from simulator.faults import ViolationError
from simulator.hosts import Answer, ClientHost, ServerStore, link_of_notice
from simulator.members import Members


@dataclass(frozen=True)
class Input:
    """What a client fixed for an attempt, and the records that it follows from.

    ``back`` are those of them that had been forgotten by then, and not imported again; ``out`` are
    the other records of which that is true.  Each comes with the number of its request.
    ``report`` says in which bins the histogram is.
    """

    histogram: Histogram
    records: frozenset[int]
    back: frozenset[tuple[int, int]]
    out: frozenset[tuple[int, int]]
    report: bytes


@dataclass(frozen=True)
class State:
    """What is counted after a commit."""

    counted: dict[str, Input] = field(default_factory=dict)
    counted_in: dict[str, int] = field(default_factory=dict)
    round: int = 0
    survivors: tuple[str, ...] = ()


class Histories:
    """Which commits each client follows: those who hold one list must follow the same ones."""

    def __init__(self) -> None:
        self._links: dict[str, dict[int, bytes]] = {}

    def follows(self, name: str, round_number: int, link: bytes) -> None:
        self._links.setdefault(name, {})[round_number] = link

    def check(self, hosts: list[ClientHost]) -> None:
        """Compare clients that were never taken back."""
        known: dict[tuple[bytes, int], tuple[str, bytes]] = {}
        for host in hosts:
            if host.troubled or host.membership is None:
                continue
            for at, link in self._links.get(host.name, {}).items():
                other, before = known.setdefault((host.membership.digest, at), (host.name, link))
                if before != link:
                    raise ViolationError(
                        f"{host.name} and {other} hold the list of epoch {host.membership.epoch}"
                        f" and follow different commits of round {at}"
                    )


class Truth:
    """The histograms that clients sent, and which of them a commit has counted."""

    def __init__(self, data: Data, members: Members) -> None:
        self._data = data
        self._members = members
        self._n_features = len(data.levels)
        self._inputs: dict[tuple[str, bytes], Input] = {}
        self._sent: dict[tuple[str, bytes], Input] = {}
        self._sets: dict[tuple[str, int, bytes], tuple[str, ...]] = {}
        self._taken_out: dict[str, set[tuple[int, int]]] = {}
        self._checked: ServerStore | None = None
        self._states: dict[bytes, State] = {}
        self._link = b""
        self.state = State()
        self.histories = Histories()

    # -- what clients do -----------------------------------------------------------------------

    def client_answers(self, host: ClientHost, answer: Answer) -> None:
        """A client has stored a step and is about to send its answer."""
        ledger = answer.step.ledger
        pending, before = ledger.pending, answer.before.pending
        if pending is not None and (
            before is None or before.secret_randomness != pending.secret_randomness
        ):
            self._fixes(host, answer)
        for event in answer.step.events:
            if isinstance(event, Followed):
                self.histories.follows(host.name, event.round, link_of_notice(event.letter))
        self.check_base(host, ledger)
        if answer.step.answer is None:
            return
        content = Letter(answer.step.answer).content
        body, context = getattr(content, "body", None), getattr(content, "context", None)
        if isinstance(body, Masked):
            assert isinstance(context, Context)
            # Who was taken back may send once more; the server takes the first.
            key = host.name, context.digest
            self._sent.setdefault(key, self._inputs[key])
        elif isinstance(body, Consent) and not host.troubled:
            assert isinstance(context, Context)
            self._signs(host.name, context, Letter(answer.message).payload.body)

    def _fixes(self, host: ClientHost, answer: Answer) -> None:
        pending, before = answer.step.ledger.pending, answer.step.ledger
        assert pending is not None
        fixed, records = pending.plain_input, answer.records
        asked = frozenset(self._data.requests[host.name].items())
        back = frozenset(pair for pair in asked if pair[0] in records)
        if before.leaving is None:
            if fixed != host.current:
                raise ViolationError(f"{host.name} fixed what is not its present histogram")
        elif not len(fixed):
            records = frozenset()
        elif before.base is None:
            # What is counted is not known; what it has comes closest.
            if fixed != host.current:
                raise ViolationError(f"{host.name} leaves, and fixed not what it has")
        elif fixed != before.base:
            raise ViolationError(f"{host.name} leaves, and fixed neither its base nor nothing")
        else:
            counted = self.state.counted.get(host.name)
            records = counted.records if counted is not None else records
        out = frozenset(pair for pair in asked if pair[0] not in records) - back
        report = host.federation.report
        self._inputs[host.name, pending.context] = Input(fixed, records, back, out, report)

    def _signs(self, name: str, context: Context, survivors: object) -> None:
        assert isinstance(survivors, Survivors)
        key = name, context.round, context.membership
        before = self._sets.setdefault(key, survivors.alive)
        if before != survivors.alive:
            raise ViolationError(
                f"{name} signed {before} and {survivors.alive} at one place under one list"
            )

    def check_base(self, host: ClientHost, ledger: ClientLedger) -> None:
        """A client that knows of the last commit knows what it is counted with."""
        if ledger.place.link != self._link or ledger.place.counted is None or host.quiet:
            return
        counted = self.state.counted.get(host.name)
        if counted is not None and counted.report != host.federation.report:
            if ledger.base is not None:
                raise ViolationError(f"{host.name} takes a histogram in other bins for its base")
            return
        if counted is None:
            if ledger.base is not None and len(ledger.base):
                raise ViolationError(f"{host.name} has a base and is not counted")
        elif ledger.base is None:
            if not host.troubled and not ledger.recovering:
                raise ViolationError(f"{host.name} no longer knows what it is counted with")
        elif ledger.base != counted.histogram:
            raise ViolationError(
                f"{host.name} takes {shown(ledger.base)} for what it is counted with,"
                f" which is {shown(counted.histogram)}"
            )

    # -- what the server does ------------------------------------------------------------------

    @property
    def expected(self) -> Histogram:
        return Histogram.sum(
            self._n_features, (one.histogram for one in self.state.counted.values())
        )

    def recovered(self, store: ServerStore) -> None:
        """The server knows again what members know; a commit that nobody heard of is lost."""
        self._link = store.ledger.place.link
        self.state = self._states.get(self._link, State())
        self._checked = store

    def check_store(self, store: ServerStore) -> bool:
        """Compare what the server keeps; returns whether a round was committed."""
        if store is self._checked:
            return False
        self._checked = store
        place = store.ledger.place
        committed = place.round > 0 and place.link != self._link
        if committed:
            self._commit(store)
        if store.aggregate != self.expected and store.aggregate is not None:
            raise ViolationError(
                f"the aggregate is {shown(store.aggregate)}, and what was committed"
                f" adds up to {shown(self.expected)}"
            )
        if place.counted != self.state.counted_in:
            raise ViolationError(
                f"the server counts {place.counted}, committed was {self.state.counted_in}"
            )
        if committed:
            self._check_model(store)
        return committed

    def _check_model(self, store: ServerStore) -> None:
        notice = Letter(store.notices[-1]).payload.body
        assert isinstance(notice, Notice)
        fresh = self._data.new_model().follow(self.expected, None)
        if (notice.model, store.model) != (fresh, fresh):
            raise ViolationError("the committed model is not that of a fresh run")

    def _commit(self, store: ServerStore) -> None:
        payload = Letter(store.notices[-1]).payload
        context, notice = payload.context, payload.body
        assert isinstance(notice, Notice)
        if context.round != self.state.round + 1:
            raise ViolationError(f"round {context.round} came after round {self.state.round}")
        counted = {} if context.kind == "full" else dict(self.state.counted)
        counted_in = {} if context.kind == "full" else dict(self.state.counted_in)
        for name in notice.survivors:
            if (name, context.digest) not in self._sent:
                raise ViolationError(f"{name} is counted in a round in which it sent nothing")
            counted[name] = self._sent[name, context.digest]
            counted_in[name] = context.round
        for name in notice.left:
            if len(counted.pop(name).histogram):
                raise ViolationError(f"{name} has left, and something of it is still counted")
            del counted_in[name]
        self._check_forgotten(counted)
        self.state = State(counted, counted_in, context.round, notice.survivors)
        self._link = store.ledger.place.link
        self._states[self._link] = self.state

    def _check_forgotten(self, counted: dict[str, Input]) -> None:
        """What was forgotten when a counted input was fixed stays out, unless imported again."""
        for name, one in counted.items():
            out = self._taken_out.setdefault(name, set())
            again = sorted(record for record, _ in out & one.back)
            if again:
                raise ViolationError(
                    f"{name}'s records {again} were forgotten, taken out by a commit, and are"
                    " counted again"
                )
            out |= one.out


def shown(histogram: Histogram) -> dict[tuple[int, ...], int]:
    """A histogram as one reads it."""
    points = map(tuple, histogram.points().tolist())
    return dict(zip(points, histogram.counts().tolist(), strict=True))
