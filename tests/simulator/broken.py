"""Parties with a fault of their own, which the simulator has to find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from unittest.mock import patch

from msgspec.structs import replace as with_fields

from fedforget.clustering.histogram import Histogram
from fedforget.protocol import client_side as client_module
from fedforget.protocol.client_ledger import ClientLedger, Event, Followed, Lock, Pending
from fedforget.protocol.client_side import ClientSide
from fedforget.protocol.client_stages import ClientStage, ClientStep, Consented, Sent, Shared
from fedforget.protocol.errors import AloneError, Finding, OlderDirectoryError, ProtocolError
from fedforget.protocol.federation import Federation
from fedforget.protocol.history import Place
from fedforget.protocol.masks import AttemptSecrets, View, self_mask
from fedforget.protocol.membership import SignedMembership
from fedforget.protocol.messages import (
    Body,
    Context,
    Delivery,
    Letter,
    Masked,
    Notice,
    Open,
    Reveal,
    Survivors,
    Unmask,
)
from fedforget.protocol.rules import Requirements
from fedforget.protocol.server_side import ServerSide
from fedforget.protocol.server_stages import Decided, Outgoing, RoundResult
from fedforget.scma import add
from simulator.hosts import ClientHost, ServerHost
from simulator.parties import Parties

# -- clients that a lying server can use -------------------------------------------------------


class SignsAnySurvivors(ClientSide):
    """Does not remember for whom it has signed."""

    def _check_signed(self, ledger: ClientLedger, context: Context, alive: tuple[str, ...]) -> None:
        pass

    def _check_still_there(self, lock: Lock, names: tuple[str, ...]) -> None:
        pass


class ForgetsAtANewList(ClientSide):
    """Remembers for whom it has signed under this list only."""

    def _check_still_there(self, lock: Lock, names: tuple[str, ...]) -> None:
        pass


class NeedsNobody(ClientSide):
    """Goes on however few are left."""

    def _requirements(self, context: Context) -> Requirements:
        needed = super()._requirements(context)
        return replace(needed, everyone=False, present=1)


class RevealsUnsigned(ClientSide):
    """Does not look at the signatures of the others."""

    def _reveal(
        self, stage: Consented, unmask: Unmask, message: bytes
    ) -> tuple[ClientStage, ClientLedger, Body]:
        with patch.object(client_module, "check_consents", lambda *arguments: None):
            return super()._reveal(stage, unmask, message)


class FollowsAnything(ClientSide):
    """Does not look at the signatures of a notice."""

    def _with_notice(
        self, ledger: ClientLedger, letter: Letter
    ) -> tuple[ClientLedger, tuple[Event, ...]]:
        with patch.object(client_module, "check_consents", lambda *arguments: None):
            return super()._with_notice(ledger, letter)


class JoinsAloneUnknowingly(ClientSide):
    """Does not count who joins with it."""

    def _check_joining(self, *arguments: object) -> None:
        pass


class AdoptsAnyList(ClientHost):
    """Does not count who joins with it, and takes the list over."""

    def adopt(self, signed: object) -> None:
        alone, self.alone = self.alone, True
        try:
            super().adopt(signed)  # type: ignore[arg-type]
        finally:
            self.alone = alone


class LetsOneLeave(ClientSide):
    """Does not count the leavers."""

    def _consent(self, stage: Sent, survivors: Survivors) -> tuple[ClientStage, ClientLedger, Body]:
        with patch.object(client_module, "check_leavers", lambda *arguments: None):
            return super()._consent(stage, survivors)

    def _with_notice(
        self, ledger: ClientLedger, letter: Letter
    ) -> tuple[ClientLedger, tuple[Event, ...]]:
        with patch("fedforget.protocol.history.check_leavers", lambda *arguments: None):
            return super()._with_notice(ledger, letter)


class MasksFromTheAttemptAlone(ClientSide):
    """Its masks follow from the attempt, and not from fresh bytes and the input."""

    def _secrets(self, context: Context, pending: Pending | None = None) -> AttemptSecrets:
        secrets = super()._secrets(context, pending)
        return AttemptSecrets(bytes(32), secrets.identity, secrets.context, b"")


# -- clients that are wrong by themselves ------------------------------------------------------


class MovesBaseEarly(ClientSide):
    """Takes for counted what it has only sent."""

    def _send(self, stage: Shared, delivery: Delivery) -> tuple[ClientStage, ClientLedger, Body]:
        after, ledger, body = super()._send(stage, delivery)
        assert ledger.pending is not None
        return after, with_fields(ledger, base=ledger.pending.plain_input), body


class CountsPendingTwice(ClientSide):
    """Overlooks that a commit has counted its change, and sends it again."""

    def _moved(
        self, ledger: ClientLedger, after: Place, context: Context, notice: Notice, data: bytes
    ) -> tuple[ClientLedger, Followed]:
        moved, event = super()._moved(ledger, after, context, notice, data)
        return with_fields(moved, base=ledger.base), event


class SendsAnOldHistogram(ClientSide):
    """Keeps what it fixed for an earlier attempt, and sends that again."""

    _first: Histogram | None = None

    def _plain_input(self, ledger: ClientLedger, context: Context, opening: Open) -> Histogram:
        fixed = super()._plain_input(ledger, context, opening)
        self._first = self._first or fixed
        return self._first


class RevealsTooMuch(ClientSide):
    """Reveals its shares of everybody's masking key."""

    def _reveal(
        self, stage: Consented, unmask: Unmask, message: bytes
    ) -> tuple[ClientStage, ClientLedger, Body]:
        after, ledger, body = super()._reveal(stage, unmask, message)
        assert isinstance(body, Reveal)
        keys = tuple((name, shares[1]) for name, shares in sorted(stage.held.items()))
        return after, ledger, Reveal(body.seeds, keys)


class SendsInTheClear(ClientSide):
    """Forgets to put its masks on."""

    def _send(self, stage: Shared, delivery: Delivery) -> tuple[ClientStage, ClientLedger, Body]:
        after, ledger, body = super()._send(stage, delivery)
        assert isinstance(body, Masked)
        codec = self.federation.codec(stage.context.capacity, stage.context.salt)
        change = _change(ledger, stage.context)
        vector = codec.encode(change.points(), change.counts())
        return after, ledger, with_fields(body, masked_vector=codec.pack(vector))


class MasksForItselfAlone(ClientSide):
    """Leaves the masks for its neighbours out: the sum is right, and each vector can be read."""

    def _send(self, stage: Shared, delivery: Delivery) -> tuple[ClientStage, ClientLedger, Body]:
        after, ledger, body = super()._send(stage, delivery)
        assert isinstance(body, Masked)
        codec = self.federation.codec(stage.context.capacity, stage.context.salt)
        change = _change(ledger, stage.context)
        view = View(stage.context.digest, stage.roster, delivery.sharers)
        seed = self._secrets(stage.context).seed(stage.roster)
        vector = codec.encode(change.points(), change.counts())
        vector = add(vector, self_mask(seed, view, self.name, codec.length))
        return after, ledger, with_fields(body, masked_vector=codec.pack(vector))


def _change(ledger: ClientLedger, context: Context) -> Histogram:
    assert ledger.pending is not None
    if context.kind == "full":
        return ledger.pending.plain_input
    assert ledger.base is not None
    return ledger.pending.plain_input - ledger.base


class RemembersRefusals(ClientSide):
    """Changes its ledger although it refuses the message."""

    def handle(self, data: bytes) -> ClientStep:
        try:
            return super().handle(data)
        except ProtocolError:
            self.ledger = with_fields(self.ledger, seen=self.ledger.seen + 1)
            raise


class TrustsItsDirectory(ClientSide):
    """Goes on with an older directory as if nothing had been counted since."""

    def _moved(
        self, ledger: ClientLedger, after: Place, context: Context, notice: Notice, data: bytes
    ) -> tuple[ClientLedger, Followed]:
        try:
            return super()._moved(ledger, after, context, notice, data)
        except OlderDirectoryError:
            moved = with_fields(ledger, place=after, pending=None, lock=None)
            return moved, Followed(context.round, data, context, None, False)


class TakesTheBackupForTheTruth(ClientSide):
    """Goes on with an older directory in full rounds, and brings back what was forgotten."""

    def _moved(
        self, ledger: ClientLedger, after: Place, context: Context, notice: Notice, data: bytes
    ) -> tuple[ClientLedger, Followed]:
        recovering = with_fields(ledger, recovering=True)
        return super()._moved(recovering, after, context, notice, data)


class LeavesWithoutTheOthers(ClientSide):
    """Sends nothing as soon as it wants to leave."""

    def _plain_input(self, ledger: ClientLedger, context: Context, opening: Open) -> Histogram:
        try:
            fixed = super()._plain_input(ledger, context, opening)
        except AloneError:
            return Histogram(len(self.federation.levels))
        return fixed if ledger.leaving is None else Histogram(len(self.federation.levels))


class KeepsItsLedgerToItself(ClientHost):
    """Does not let the observer compare its base, so that only the sums can tell."""

    quiet = True


class KeepsItsBaseInOtherBins(ClientHost):
    """Takes for its base what was counted of it before an amendment, in whatever bins."""

    def amend(self, version: Federation, *signed: SignedMembership) -> None:
        before = self.ledger
        super().amend(version, *signed)
        assert before is not None
        assert self.ledger is not None
        self._store_ledger(with_fields(self.ledger, base=before.base))


class RunsOnAfterAnAmendment(ServerHost):
    """Goes on with rounds of changes, and adds them to what was counted in other bins."""

    def amend(self, version: Federation, signed: SignedMembership) -> None:
        super().amend(version, signed)
        self.store = replace(self.store, ledger=with_fields(self.store.ledger, full_due=False))


class SendsBeforeItStores(ClientHost):
    """Sends the answer first; a kill in between leaves it with the directory of before."""

    def _conclude(self, data: bytes, step: ClientStep) -> bytes | None:
        stored = self.directory
        self._store(data, step)
        if self._fate.strikes("client_killed_before_storing"):
            self.directory = stored
            self.kill()
        return step.answer


# -- servers -----------------------------------------------------------------------------------


class CountsTheVanished(ServerSide):
    """Its notice counts all who shared secrets, also those whose vectors never came."""

    def _decide(self, stage):  # type: ignore[no-untyped-def]
        messages = super()._decide(stage)
        if isinstance(self.stage, Decided):
            self.stage.result = replace(self.stage.result, survivors=stage.sharers)  # type: ignore[misc]
        return messages


class AcceptsAnyShares(ServerSide):
    """Takes shares that it has not asked for, and uses those that it has."""

    def _check_answer(self, stage, name: str, body: Body) -> None:  # type: ignore[no-untyped-def]
        if not isinstance(body, Reveal):
            super()._check_answer(stage, name, body)

    def _unmasked(self, stage):  # type: ignore[no-untyped-def]
        for name, body in stage.gathering.answers.items():
            keys = tuple(entry for entry in body.keys if entry[0] in stage.dead)
            stage.gathering.answers[name] = with_fields(body, keys=keys)
        return super()._unmasked(stage)


class RepeatsNoNotice(ServerSide):
    """Does not tell of earlier commits when it opens a round."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self._notices = lambda after: ()


class BlamesTheComplainer(ServerSide):
    """Takes whoever complains of a share for the one who spoils."""

    def _list_survivors(self, stage):  # type: ignore[no-untyped-def]
        with patch("fedforget.protocol.server_side.judge", _blame_the_complainer):
            return super()._list_survivors(stage)


def _blame_the_complainer(
    unreadable: Mapping[str, frozenset[str]], colluders: int
) -> list[Finding]:
    names = sorted({name for complainers in unreadable.values() for name in complainers})
    return [Finding((name,), f"{name} complains") for name in names]


class NamesNobody(ServerSide):
    """Keeps no findings: whoever spoils can go on for ever."""

    def _find(self, finding: Finding) -> None:
        if not finding.members:
            super()._find(finding)


class StoresInTwoSteps(ServerHost):
    """Stores the aggregate first and the ledger afterwards, and may die in between."""

    def _outcome(self, result: RoundResult) -> tuple[Histogram, bytes]:
        aggregate, model = super()._outcome(result)
        self.store = replace(self.store, aggregate=aggregate, model=model)
        return aggregate, model


class CommitsTwice(ServerHost):
    """Takes its last result over once more when it was killed before it could tell of it."""

    _result: RoundResult | None = None

    def _outcome(self, result: RoundResult) -> tuple[Histogram, bytes]:
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


class RecoversWithoutAFullRound(ServerHost):
    """Goes on with the aggregate of the backup."""

    def recover(self, greetings: Sequence[tuple[Sequence[bytes], Sequence[bytes], int]]) -> int:
        aggregate = self.store.aggregate
        found = super().recover(greetings)
        self.running.ledger = with_fields(self.running.ledger, full_due=False)
        self.store = replace(self.store, ledger=self.running.ledger, aggregate=aggregate)
        return found


@dataclass(frozen=True)
class Flaw:
    """Broken parties, how that shows, and the conditions without which it could not.

    ``shows`` are texts of which a violation must contain one, ``seed`` is where to begin to look.
    """

    parties: Parties
    shows: tuple[str, ...]
    lying: bool = False
    faults: Mapping[str, float] = field(default_factory=dict)
    trouble: str | None = None
    seed: int = 0
    amending: bool = False


_EXPOSED = ("must be in it", "follows from the sums that show")
_FORKED = ("follow different commits",)
_BASE = ("for what it is counted with", "has a base and is not counted")
_SUM = ("and what was committed adds up to",)

FLAWS = {
    "signs any survivors": Flaw(
        Parties(client=SignsAnySurvivors), (*_EXPOSED, *_FORKED), lying=True, seed=25
    ),
    "forgets at a new list": Flaw(
        Parties(client=ForgetsAtANewList), _EXPOSED, lying=True, seed=100
    ),
    "needs nobody": Flaw(Parties(client=NeedsNobody), _EXPOSED, lying=True, seed=20),
    "reveals unsigned": Flaw(Parties(client=RevealsUnsigned), ("for a set that only",), lying=True),
    "follows anything": Flaw(Parties(client=FollowsAnything), _FORKED, lying=True),
    "joins alone unknowingly": Flaw(
        Parties(client=JoinsAloneUnknowingly, client_host=AdoptsAnyList),
        _EXPOSED,
        lying=True,
        seed=250,
    ),
    "lets one leave": Flaw(Parties(client=LetsOneLeave), _EXPOSED, lying=True),
    "masks from the attempt alone": Flaw(
        Parties(client=MasksFromTheAttemptAlone), ("under one mask",), lying=True
    ),
    "leaves without the others": Flaw(
        Parties(client=LeavesWithoutTheOthers), _EXPOSED, lying=True, seed=340
    ),
    "moves its base without a notice": Flaw(Parties(client=MovesBaseEarly), _BASE),
    "counts a pending change twice": Flaw(Parties(client=CountsPendingTwice), _BASE),
    "counts a pending change twice, unseen": Flaw(
        Parties(client=CountsPendingTwice, client_host=KeepsItsLedgerToItself), _SUM
    ),
    "sends an old histogram": Flaw(
        Parties(client=SendsAnOldHistogram), ("not its present histogram",)
    ),
    "reveals too much": Flaw(
        Parties(client=RevealsTooMuch, server=AcceptsAnyShares), ("must be in it",)
    ),
    "sends in the clear": Flaw(Parties(client=SendsInTheClear), ("without masks",)),
    "masks for itself alone": Flaw(
        Parties(client=MasksForItselfAlone), ("can take the masks off the vector",)
    ),
    "remembers refusals": Flaw(
        Parties(client=RemembersRefusals), ("although it refused a message",)
    ),
    "trusts its directory": Flaw(
        Parties(client=TrustsItsDirectory), (*_BASE, *_SUM), trouble="client restored", seed=25
    ),
    "takes the backup for the truth": Flaw(
        Parties(client=TakesTheBackupForTheTruth),
        ("are counted again",),
        trouble="client restored",
    ),
    "sends before it stores": Flaw(
        Parties(client_host=SendsBeforeItStores),
        ("OlderDirectoryError",),
        faults={"client_killed_before_storing": 0.05},
    ),
    "counts the vanished": Flaw(
        Parties(server=CountsTheVanished),
        ("in which it sent nothing",),
        faults={"client_killed_before_sending": 0.03},
        seed=105,
    ),
    "repeats no notice": Flaw(
        Parties(server=RepeatsNoNotice), ("does not become whole", "refused an honest")
    ),
    "blames the complainer": Flaw(
        Parties(server=BlamesTheComplainer), ("honest members are blamed",), trouble="spoiler"
    ),
    "names nobody": Flaw(Parties(server=NamesNobody), ("and is not named",), trouble="spoiler"),
    "stores in two steps": Flaw(
        Parties(server_host=StoresInTwoSteps),
        _SUM,
        faults={"server_killed_before_storing": 0.08},
        seed=40,
    ),
    "commits twice": Flaw(
        Parties(server_host=CommitsTwice),
        _SUM,
        faults={"server_killed_before_sending": 0.08},
        seed=35,
    ),
    "keeps its base in other bins": Flaw(
        Parties(client_host=KeepsItsBaseInOtherBins), ("in other bins for its base",), amending=True
    ),
    "runs on after an amendment": Flaw(
        Parties(server_host=RunsOnAfterAnAmendment),
        ("refused an honest message", *_SUM),
        amending=True,
    ),
    "recovers without a full round": Flaw(
        Parties(server_host=RecoversWithoutAFullRound), _SUM, trouble="server restored", seed=15
    ),
}
"""Each flaw by its name."""
