"""Parties with a fault of their own, which the simulator has to find."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fedforget.clustering.histogram import Histogram
from fedforget.protocol.client import (
    Client,
    Consented,
    Ledger,
    Shared,
    Stage,
    self_mask,
)
from fedforget.protocol.errors import ProtocolError
from fedforget.protocol.messages import (
    Body,
    Context,
    Delivery,
    Masked,
    Notice,
    Open,
    Reveal,
    Unmask,
)
from fedforget.protocol.server import Outgoing, Result, Server
from fedforget.scma import add
from simulator.hosts import ClientHost, ServerHost
from simulator.schedule import Parties

# -- clients -----------------------------------------------------------------------------------


class AnswersForAnySurvivors(Client):
    """Does not remember for whom it has revealed shares."""

    def _reveal(self, stage: Consented, unmask: Unmask) -> tuple[Stage, Ledger, Body]:
        after, ledger, body = super()._reveal(stage, unmask)
        return after, replace(ledger, answered=None), body


class MovesBaseEarly(Client):
    """Takes for counted what it has only sent."""

    def _send(self, stage: Shared, delivery: Delivery) -> tuple[Stage, Ledger, Body]:
        after, ledger, body = super()._send(stage, delivery)
        return after, replace(ledger, base=ledger.pending), body


class CountsPendingTwice(Client):
    """Overlooks that a commit has counted its change, and sends it again."""

    def _with_notice(self, ledger: Ledger, context: Context, notice: Notice) -> Ledger:
        after = super()._with_notice(ledger, context, notice)
        return replace(after, base=ledger.base)


class SendsAnOldHistogram(Client):
    """Keeps what it sent in an aborted round, and sends that again in the next one."""

    def _open(self, context: Context, opening: Open) -> tuple[Stage, Ledger, Body]:
        after, ledger, body = super()._open(context, opening)
        if ledger.pending is None and self.ledger.pending_round > ledger.committed[1]:
            pending = self.ledger.pending
            ledger = replace(ledger, pending=pending, pending_round=context.round)
        return after, ledger, body


class TakesAnyNotice(Client):
    """Moves its base on every notice, also on one that does not count it."""

    def _with_notice(self, ledger: Ledger, context: Context, notice: Notice) -> Ledger:
        after = super()._with_notice(ledger, context, notice)
        return after if ledger.pending is None else replace(after, base=ledger.pending)


class RevealsTooMuch(Client):
    """Reveals its shares of everybody's masking key."""

    def _reveal(self, stage: Consented, unmask: Unmask) -> tuple[Stage, Ledger, Body]:
        after, ledger, body = super()._reveal(stage, unmask)
        assert isinstance(body, Reveal)
        keys = tuple((name, shares[1]) for name, shares in sorted(stage.held.items()))
        return after, ledger, Reveal(body.seeds, keys)


class SendsInTheClear(Client):
    """Forgets to put its masks on."""

    def _send(self, stage: Shared, delivery: Delivery) -> tuple[Stage, Ledger, Body]:
        after, ledger, _ = super()._send(stage, delivery)
        _, change = self._change(stage.context)
        codec = self.federation.codec(stage.context.capacity, stage.context.salt)
        vector = codec.encode(change.points(), change.counts())
        return after, ledger, Masked(codec.pack(vector))


class MasksForItselfAlone(Client):
    """Leaves the masks for its neighbours out: the sum is right, and each vector can be read."""

    def _send(self, stage: Shared, delivery: Delivery) -> tuple[Stage, Ledger, Body]:
        after, ledger, _ = super()._send(stage, delivery)
        context = stage.context
        _, change = self._change(context)
        codec = self.federation.codec(context.capacity, context.salt)
        vector = codec.encode(change.points(), change.counts())
        vector = add(vector, self_mask(stage.seed, context, self.name, codec.length))
        return after, ledger, Masked(codec.pack(vector))


class RemembersRefusals(Client):
    """Changes its ledger although it refuses the message."""

    def receive(self, data: bytes) -> bytes | None:
        try:
            return super().receive(data)
        except ProtocolError:
            epoch, round_, attempt = self.ledger.seen
            self.ledger = replace(self.ledger, seen=(epoch, round_, attempt + 1))
            raise


class KeepsItsLedgerToItself(ClientHost):
    """Does not let the observer compare its base, so that only the sums can tell."""

    def _store(self, data: bytes, answer: bytes | None) -> None:
        assert self.process is not None
        self.ledger = self.process.ledger
        if answer is not None:
            shown = self.process.ledger
            self.process.ledger = replace(shown, committed=(0, 0))
            self._observe(self, data, answer, self._taken)
            self.process.ledger = shown


class SendsBeforeItStores(ClientHost):
    """Sends the answer first; a kill in between leaves it with the ledger of before."""

    def _conclude(self, data: bytes, answer: bytes | None) -> bytes | None:
        stored = self.ledger
        self._store(data, answer)
        if self._fate.strikes("client_killed_before_storing"):
            self.ledger = stored
            self.kill()
        return answer


# -- servers -----------------------------------------------------------------------------------


class CountsTheVanished(Server):
    """Its notice counts all who shared secrets, also those whose vectors never came."""

    def commit(self, model: bytes) -> list[Outgoing]:
        assert self.result is not None
        self.result = replace(self.result, survivors=self._sharers)
        return super().commit(model)


class AcceptsAnyShares(Server):
    """Takes shares that it has not asked for."""

    def _check_reveal(self, name: str, body: Reveal) -> None:
        pass


class ForgetsWhomItExposed(Server):
    """Invites everybody after an attempt that may have been unmasked."""

    def _ask_to_unmask(self) -> list[Outgoing]:
        messages = super()._ask_to_unmask()
        self.ledger = replace(self.ledger, exposed=None)
        return messages


class RepeatsNoNotice(Server):
    """Does not tell of its last commit when it opens a round."""

    def _open_attempt(self, kind: str, capacity: int) -> list[Outgoing]:
        notice = self.ledger.notice
        self.ledger = replace(self.ledger, notice=None)
        messages = super()._open_attempt(kind, capacity)
        self.ledger = replace(self.ledger, notice=notice)
        return messages


class StoresInTwoSteps(ServerHost):
    """Stores the aggregate first and the ledger afterwards, and may die in between."""

    def _outcome(self, result: Result) -> tuple[Histogram, bytes]:
        aggregate, model = super()._outcome(result)
        self.store = replace(self.store, aggregate=aggregate, model=model)
        return aggregate, model


class CommitsTwice(ServerHost):
    """Takes its last result over once more when it was killed before it could tell of it."""

    _result: Result | None = None

    def _outcome(self, result: Result) -> tuple[Histogram, bytes]:
        self._result = result
        return super()._outcome(result)

    def commit(self) -> list[Outgoing]:
        messages = super().commit()
        self._result = None
        return messages

    def start(self) -> None:
        super().start()
        if self._result is not None and self._result.kind == "delta":
            aggregate, model = super()._outcome(self._result)
            self.store = replace(self.store, aggregate=aggregate, model=model)
        self._result = None


@dataclass(frozen=True)
class Flaw:
    """Broken parties, how that shows, and the faults without which it could not."""

    parties: Parties
    shows: str
    faults: Mapping[str, float] = field(default_factory=dict)


FLAWS = {
    "answers for any survivors": Flaw(
        Parties(client=AnswersForAnySurvivors),
        "answered for the survivors",
        {"server_killed": 0.03, "pried": 1.0, "impatient": 0.05},
    ),
    "moves its base without a notice": Flaw(
        Parties(client=MovesBaseEarly), "for what it is counted with"
    ),
    "counts a pending change twice": Flaw(
        Parties(client=CountsPendingTwice), "for what it is counted with"
    ),
    "counts a pending change twice, unseen": Flaw(
        Parties(client=CountsPendingTwice, client_host=KeepsItsLedgerToItself),
        "and what was committed adds up to",
    ),
    "sends an old histogram": Flaw(
        Parties(client=SendsAnOldHistogram), "it did not look at its data"
    ),
    "takes any notice": Flaw(Parties(client=TakesAnyNotice), "for what it is counted with"),
    "reveals too much": Flaw(
        Parties(client=RevealsTooMuch, server=AcceptsAnyShares),
        "both the seed and the masking key",
    ),
    "sends in the clear": Flaw(Parties(client=SendsInTheClear), "without masks"),
    "masks for itself alone": Flaw(
        Parties(client=MasksForItselfAlone), "can take the masks off the vector"
    ),
    "remembers refusals": Flaw(Parties(client=RemembersRefusals), "although it refused a message"),
    "sends before it stores": Flaw(
        Parties(client_host=SendsBeforeItStores),
        "no longer knows what it is counted with",
        {"client_killed_before_storing": 0.05},
    ),
    "counts the vanished": Flaw(
        Parties(server=CountsTheVanished), "in which it sent nothing", {"dropped": 0.03}
    ),
    "forgets whom it exposed": Flaw(Parties(server=ForgetsWhomItExposed), "SecondSurvivorSetError"),
    "repeats no notice": Flaw(
        Parties(server=RepeatsNoNotice), "no longer knows what it is counted with"
    ),
    "stores in two steps": Flaw(
        Parties(server_host=StoresInTwoSteps),
        "and what was committed adds up to",
        {"server_killed_before_storing": 0.08},
    ),
    "commits twice": Flaw(
        Parties(server_host=CommitsTwice),
        "and what was committed adds up to",
        {"server_killed_before_sending": 0.08},
    ),
}
"""Each flaw by its name."""
