"""What ought to be counted, kept beside the parties and compared with what they keep."""

from __future__ import annotations

from fedforget.clustering.histogram import Histogram
from fedforget.protocol.client import Ledger
from fedforget.protocol.messages import (
    Consent,
    Context,
    Letter,
    Masked,
    Notice,
    Reveal,
    Survivors,
)
from simulator.data import Data
from simulator.faults import ViolationError
from simulator.hosts import ServerStore

State = tuple[int, int]
"""Epoch and last committed round: what a client answers for one survivor set in."""


class Truth:
    """The histograms that clients sent, and which of them a commit has counted."""

    def __init__(self, data: Data) -> None:
        self._data = data
        self._n_features = len(data.levels)
        self._sent: dict[tuple[str, int], Histogram] = {}
        self._notice: bytes | None = None
        self._checked: ServerStore | None = None
        self._consented: dict[tuple[str, bytes], tuple[str, ...]] = {}
        self._answered: dict[tuple[str, State], tuple[str, ...]] = {}
        self._state_of: dict[bytes, State] = {}
        self._rounds: set[int] = set()
        self._expected = Histogram(self._n_features)
        self.counted: dict[str, Histogram] = {}
        self.counted_in: dict[str, int] = {}
        self.committed: State = (0, 0)
        self.survivors: tuple[str, ...] = ()

    # -- what clients do -----------------------------------------------------------------------

    def client_answers(
        self, name: str, message: bytes, answer: bytes, taken: Histogram | None
    ) -> None:
        """A client is about to send an answer."""
        payload = Letter(answer).payload
        context = payload.context
        match payload.body:
            case Masked():
                self._sends(name, context, taken)
            case Consent():
                survivors = Letter(message).payload.body
                assert isinstance(survivors, Survivors)
                self._consented[name, context.digest] = survivors.alive
            case Reveal():
                self._reveals(name, context)

    def _sends(self, name: str, context: Context, taken: Histogram | None) -> None:
        if taken is not None:
            known = self._sent.setdefault((name, context.round), taken)
            if known != taken:
                raise ViolationError(f"{name} sent two histograms in round {context.round}")
        elif (name, context.round) not in self._sent:
            raise ViolationError(f"{name} sent something, but it did not look at its data")

    def _reveals(self, name: str, context: Context) -> None:
        alive = self._consented.get((name, context.digest))
        if alive is None:
            raise ViolationError(f"{name} revealed shares and had agreed to no survivors")
        state = self._state_of[context.digest]
        known = self._answered.setdefault((name, state), alive)
        if known != alive:
            raise ViolationError(
                f"{name} answered for the survivors {known} and {alive} between two commits"
            )

    def change_of(self, name: str, context: Context) -> Histogram:
        """What a client's vector encodes in an attempt that is under way."""
        sent = self._sent[name, context.round]
        return sent if context.kind == "full" else sent - self._counted(name)

    def _counted(self, name: str) -> Histogram:
        return self.counted.get(name, Histogram(self._n_features))

    def check_base(self, name: str, ledger: Ledger, *, amnesic: bool) -> None:
        """A client that knows of the last commit knows what it is counted with.

        An amnesic one has lost its store, and may know that it does not know.
        """
        if ledger.committed != self.committed:
            return
        if ledger.base is None:
            if not amnesic:
                raise ViolationError(f"{name} no longer knows what it is counted with")
        elif ledger.base != self._counted(name):
            raise ViolationError(
                f"{name} takes {shown(ledger.base)} for what it is counted with,"
                f" which is {shown(self._counted(name))}"
            )

    # -- what the server does ------------------------------------------------------------------

    def server_opens(self, context: Context) -> State:
        """An attempt begins; returns the state it begins in."""
        return self._state_of.setdefault(context.digest, (context.epoch, self.committed[1]))

    def departed(self, names: tuple[str, ...]) -> None:
        """Clients left that are counted with nothing."""
        for name in names:
            self.counted.pop(name, None)
            self.counted_in.pop(name, None)
        self._expected = Histogram.sum(self._n_features, self.counted.values())

    def check_store(self, store: ServerStore) -> bool:
        """Compare what the server keeps; returns whether a round was committed."""
        if store is self._checked:
            return False
        self._checked = store
        committed = store.ledger.notice is not None and store.ledger.notice != self._notice
        if committed:
            self._commit(store)
        if store.aggregate != self._expected:
            raise ViolationError(
                f"the aggregate is {shown(store.aggregate)}, and what was committed"
                f" adds up to {shown(self._expected)}"
            )
        if dict(store.ledger.counted) != self.counted_in:
            raise ViolationError(
                f"the server counts {dict(store.ledger.counted)}, committed was {self.counted_in}"
            )
        if committed:
            self._check_model(store)
        return committed

    def _check_model(self, store: ServerStore) -> None:
        assert self._notice is not None
        notice = Letter(self._notice).payload.body
        assert isinstance(notice, Notice)
        fresh = self._data.new_model().follow(self._expected, None)
        if (notice.model, store.model) != (fresh, fresh):
            raise ViolationError("the committed model is not that of a fresh run")

    def _commit(self, store: ServerStore) -> None:
        self._notice = store.ledger.notice
        assert self._notice is not None
        payload = Letter(self._notice).payload
        context, notice = payload.context, payload.body
        assert isinstance(notice, Notice)
        if context.round in self._rounds:
            raise ViolationError(f"round {context.round} was committed twice")
        self._rounds.add(context.round)
        if context.kind == "full":
            self.counted, self.counted_in = {}, {}
        for name in notice.survivors:
            if (name, context.round) not in self._sent:
                raise ViolationError(f"{name} is counted in a round in which it sent nothing")
            self.counted[name] = self._sent[name, context.round]
            self.counted_in[name] = context.round
        self.committed = context.epoch, context.round
        self.survivors = notice.survivors
        self._expected = Histogram.sum(self._n_features, self.counted.values())
        if dict(notice.counted) != self.counted_in:
            raise ViolationError(f"the notice counts {notice.counted}, not {self.counted_in}")


def shown(histogram: Histogram) -> dict[tuple[int, ...], int]:
    """A histogram as one reads it."""
    points = map(tuple, histogram.points().tolist())
    return dict(zip(points, histogram.counts().tolist(), strict=True))
