"""A server that lies about the past, about the list, and about who takes part.

Every attack is carried out with everything that the server has, its colluders' keys included, and
each test says with which refusal it ends.  docs/threat-model.md names the rules.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from random import Random
from typing import Any

import pytest
from attacker import Attacker, changes_of
from msgspec.structs import replace

from fedforget.clustering.histogram import Histogram
from fedforget.protocol.client_ledger import Leaving
from fedforget.protocol.client_side import ClientSide
from fedforget.protocol.client_stages import Resting
from fedforget.protocol.errors import (
    AloneError,
    BadSignatureError,
    ChangedParticipantsError,
    ForkError,
    MissingNoticeError,
    OutOfOrderError,
    ProtocolError,
    RoundAbortedError,
    SecondSurvivorSetError,
    SuspendedError,
    TooFewError,
    WrongFederationError,
    WrongLengthError,
)
from fedforget.protocol.graph import Policy
from fedforget.protocol.history import (
    Place,
    _sample_size,
    check_consents,
    counted_after,
    next_list,
)
from fedforget.protocol.joining import check_adoption
from fedforget.protocol.keys import Identity
from fedforget.protocol.membership import EVERYONE, Member, Membership
from fedforget.protocol.messages import (
    Context,
    LeaveStatement,
    Notice,
    Open,
    Roster,
    Survivors,
    consent_to,
    leave_statement,
    view_of,
)
from fedforget.protocol.rules import Quorum, Requirements
from fedforget.protocol.server_stages import Outgoing
from parties import (
    MODEL,
    Everyone,
    Stage,
    Step,
    body_of,
    came_with,
    changed,
    histogram,
    state_of,
    unchanged,
    with_ledger,
)

VICTIM = "c000"


def refused_by(step: Step) -> set[type[ProtocolError]]:
    return {type(error) for error in step.refusals.values()}


def forged_notice(
    everyone: Everyone,
    context: Context,
    survivors: tuple[str, ...],
    signers: Collection[str],
    **fields: Any,
) -> bytes:
    """A notice with the signatures of those whose keys are known."""
    view = view_of(survivors, survivors, ())
    statement = consent_to(context, survivors, view)
    left, counted = counted_after(context, everyone.server.counted, survivors)
    notice = Notice(
        survivors=survivors,
        left=left,
        counted=tuple(sorted(counted.items())),
        view=view,
        model=MODEL,
        time=0,
        consents=tuple((name, everyone.identities[name].sign(statement)) for name in signers),
    )
    return everyone.from_server(EVERYONE, replace(notice, **fields), context)


def next_context(everyone: Everyone, **fields: Any) -> Context:
    """A context that follows the last commit."""
    place, capacity = everyone.server.ledger.place, everyone.membership.capacity
    usual = {
        "membership": everyone.membership.digest,
        "epoch": everyone.membership.epoch,
        "round": place.round + 1,
        "last": place.link,
        "last_attempt": place.attempt,
        "model": place.model,
        "attempt": everyone.server.ledger.attempt + 1,
        "kind": "full",
        "capacity": capacity,
        "leaving": (),
        "alone": (),
    }
    return changed(everyone.context, **(usual | fields))


# -- 1. forged commit notices ------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["full", "delta"])
@pytest.mark.parametrize("n", [3, 5, 10])
def test_a_forged_notice_that_does_not_count_a_client_changes_nothing(n: int, kind: str) -> None:
    """Before: one signed notice without the victim emptied its base, and in the next delta round
    it sent its whole histogram."""
    everyone = Everyone(n, seed=f"forged {n}")
    everyone.round("full")
    client, rest = everyone.clients[VICTIM], everyone.names[1:]
    before = state_of(client)
    context = next_context(everyone, kind=kind, capacity=16 if kind == "delta" else 4 * n)
    counted = dict(everyone.server.counted) | dict.fromkeys(rest, 2)
    without = {name: at for name, at in counted.items() if name != VICTIM}
    real = body_of(everyone.notices[0]).consents
    colluder = rest[-1:]
    attempts: list[tuple[bytes, type[ProtocolError]]] = []
    attempts += [
        (forged_notice(everyone, context, rest, colluder, **fields), TooFewError)
        for fields in ({}, {"consents": ((VICTIM, bytes(64)),)})
    ]
    # Everybody's signatures of the last round.  Three must all be there, as in any full round.
    enough = BadSignatureError if kind == "delta" and n > 3 else TooFewError
    attempts.append((forged_notice(everyone, context, rest, (), consents=real), enough))
    # With the victim taken out of what is counted: in a delta round that is a lie at once.
    lie = tuple(sorted(without.items()))
    error = ForkError if kind == "delta" else TooFewError
    attempts.append((forged_notice(everyone, context, rest, colluder, counted=lie), error))
    # Nobody but a member can make up the number of signatures.
    fakes = tuple((f"d{i:03}", bytes(64)) for i in range(n))
    attempts.append((forged_notice(everyone, context, rest, (), consents=fakes), TooFewError))
    for data, expected in attempts:
        with pytest.raises(expected) as caught:
            client.receive(data)
        assert caught.type is expected
        assert unchanged(client, before)
        # It does not come in with the next opening either, and without it there is no next round.
        later = changed(context, round=3, attempt=9)
        for notices, refusal in (((data,), ProtocolError), ((), MissingNoticeError)):
            with pytest.raises(refusal):
                client.receive(everyone.from_server(VICTIM, Open(notices), later))
            assert unchanged(client, before)
    everyone.histograms[VICTIM] = new = everyone.histograms[VICTIM] + histogram(((5, 5), 5))
    everyone.server.abandon()
    assert everyone.round("delta").total == histogram(((5, 5), 5))
    assert client.ledger.base == new


def test_a_forged_delta_notice_needs_a_majority_of_those_counted() -> None:
    """It says nothing false about the victim, who was away; but those who were there must sign."""
    everyone = Everyone(10, seed="majority")
    everyone.round("full")
    client, rest = everyone.clients[VICTIM], everyone.names[1:]
    context = next_context(everyone, kind="delta", capacity=16)
    before = state_of(client)
    for count in range(6):
        with pytest.raises(TooFewError):
            client.receive(forged_notice(everyone, context, rest, rest[:count]))
    honest = forged_notice(everyone, context, rest, rest[:6])
    spoilt = replace(
        body_of(honest), consents=((rest[0], bytes(64)), *body_of(honest).consents[1:])
    )
    with pytest.raises(BadSignatureError):
        client.receive(everyone.from_server(EVERYONE, spoilt, context))
    assert unchanged(client, before)
    client.receive(honest)
    assert (client.ledger.place.round, client.ledger.base_round) == (2, 1)


@pytest.mark.parametrize("kind", ["full", "delta"])
def test_one_notice_for_everybody_that_leaves_a_survivor_out_is_followed_by_nobody(
    kind: str,
) -> None:
    """The round was a real one, and so are its signatures; only `counted` is short of one."""
    everyone = Everyone(5, seed="left out")
    everyone.round("full")
    everyone.decide(kind)
    before = {name: state_of(client) for name, client in everyone.clients.items()}
    everyone.server.commit(MODEL)
    honest = everyone.server.last_notice
    body = body_of(honest)
    for counted in (body.counted[1:], (), ((VICTIM, 1), *body.counted[1:])):
        forged = everyone.from_server(EVERYONE, replace(body, counted=counted), everyone.context)
        for name, client in everyone.clients.items():
            with pytest.raises(ForkError):
                client.receive(forged)
            assert unchanged(client, before[name])
    for client in everyone.clients.values():
        client.receive(honest)
        assert client.stage == Resting()


def test_a_notice_of_another_attempt_needs_that_attempt_s_signatures() -> None:
    """Everybody reveals in attempt 2; the notice is held
    back.  The victim alone is made to open attempt 3, with another input, and is told that this one
    was committed, with the same survivors and no signatures.  The others follow attempt 2.

    In the next place the server opens a delta round and a full one of all.  The full sum less the
    changes is the sum of the bases: less the sum it knows, that is the victim's change alone."""
    everyone = Everyone(5, seed="another attempt")
    everyone.round("full")
    client = everyone.clients[VICTIM]
    everyone.decide("delta")
    everyone.histograms[VICTIM] = everyone.histograms[VICTIM] + histogram(((5, 5), 5))
    context = changed(everyone.context, attempt=everyone.context.attempt + 1)
    client.receive(everyone.from_server(VICTIM, Open(()), context))
    assert client.ledger.lock is not None
    before = state_of(client)
    for signers in ((), everyone.names[4:], everyone.names[3:]):
        with pytest.raises(TooFewError):
            client.receive(forged_notice(everyone, context, everyone.names, signers))
    everyone.server.commit(MODEL)
    real = body_of(everyone.server.last_notice)
    # The signatures of attempt 2 are on another context.
    with pytest.raises(BadSignatureError):
        client.receive(everyone.from_server(EVERYONE, real, context))
    assert unchanged(client, before)


# -- 2. full rounds without somebody -----------------------------------------------------------


def leave_out(everyone: Everyone, when: Stage) -> Step:
    """The server opens a full round and drops the victim at a stage.  Returns what they said."""
    server = everyone.server
    server.ledger = replace(server.ledger, lock=None)
    step = everyone.ask(server.open("full"))
    rest = everyone.names[1:]
    letters = step.answers
    if when is Stage.ADVERTISE:
        asked = []
        for name in rest:
            near = tuple(letters[other] for other in rest if other != name)
            asked.append(Outgoing(name, everyone.from_server(name, Roster(rest, near))))
        return carried(everyone, asked)
    step = everyone.ask(server.advance())
    if when is Stage.SHARE:
        asked = []
        for name, data in server.advance():
            honest = body_of(data)
            kept = tuple(one for one in honest.dealt if one.name != VICTIM)
            fewer = replace(honest, sharers=rest, dealt=kept)
            asked.append(Outgoing(name, everyone.from_server(name, fewer)))
        return carried(everyone, [one for one in asked if one.recipient != VICTIM])
    everyone.ask(server.advance())
    lost = Survivors(rest, (VICTIM,))
    return carried(everyone, [Outgoing(name, everyone.from_server(name, lost)) for name in rest])


def carried(everyone: Everyone, messages: Sequence[Outgoing]) -> Step:
    step = Step(everyone.stage, dict(messages))
    for name, data in messages:
        try:
            step.answers[name] = everyone.clients[name].receive(data) or b""
        except ProtocolError as error:
            step.refusals[name] = error
    return step


WHEN = [Stage.ADVERTISE, Stage.SHARE, Stage.MASK]


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("history", ["first", "hidden", "committed", "empty epoch"])
@pytest.mark.parametrize("n", [4, 5, 10])
def test_no_full_round_leaves_anybody_out(n: int, history: str, when: Stage) -> None:
    """The sum of all less the sum of all others is the victim's histogram.

    Before: two full rounds exposed whoever was left out of the second, and so did a first round
    without somebody; a new epoch of the same members made it possible once more.
    """
    everyone = Everyone(n, seed=f"left out {n}")
    if history in ("hidden", "empty epoch"):
        everyone.decide("full")
        everyone.server.abandon()
    if history == "committed":
        everyone.round("full")
    if history == "empty epoch":
        everyone.adopt(everyone.members(everyone.names))
    step = leave_out(everyone, when)
    assert set(step.refusals) == set(everyone.names[1:])
    assert not step.answers
    assert refused_by(step) == {TooFewError}
    everyone.server.abandon()
    assert everyone.round("full").total == everyone.total(everyone.names)


@pytest.mark.parametrize("when", WHEN)
def test_no_full_round_of_a_sparse_graph_leaves_anybody_out(when: Stage) -> None:
    """33 members, of whom few are the victim's neighbours: the others refuse as well."""
    everyone = Everyone(33, seed="left out of many")
    everyone.round("full")
    step = leave_out(everyone, when)
    assert set(step.refusals) == set(everyone.names[1:])
    assert refused_by(step) == {TooFewError}


def test_a_client_that_is_left_out_of_a_roster_does_not_share() -> None:
    everyone = Everyone(4, seed="roster")
    everyone.ask(everyone.server.open("full"))
    letters = everyone.history[-1].answers
    roster = Roster(everyone.names[1:], tuple(letters[name] for name in everyone.names[1:]))
    with pytest.raises(ChangedParticipantsError):
        everyone.clients[VICTIM].receive(everyone.from_server(VICTIM, roster))


def test_a_server_that_is_honest_says_who_is_missing() -> None:
    everyone = Everyone(4, seed="missing")
    everyone.round("full")
    with pytest.raises(RoundAbortedError, match="c000 is missing; it was counted in round 1"):
        everyone.decide("full", {Stage.ADVERTISE: [VICTIM]})


# -- 3. chosen participants --------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["full", "delta"])
def test_a_server_cannot_choose_a_victim_and_its_colluders(kind: str) -> None:
    """100 members, and a round of the victim and two colluders only.

    Before: the thresholds followed from who took part, and three were enough."""
    everyone = Everyone(100, seed="chosen")
    few = everyone.names[:3]
    counted = dict.fromkeys(everyone.names, 1)
    place = Place(round=1, link=bytes(range(32)), attempt=1, model=MODEL, counted=counted)
    everyone.server.ledger = replace(everyone.server.ledger, place=place)
    for name in few:
        with_ledger(everyone.clients[name], place=place, base=Histogram(2), base_round=1)
    messages = dict(everyone.server.open(kind))
    letters = {name: everyone.clients[name].receive(messages[name]) for name in few}
    client = everyone.clients[VICTIM]
    before = state_of(client)
    context = everyone.server.stage.context
    for listed in (few, everyone.names[:50], everyone.names[:89]):
        near = tuple(letters[name] for name in few[1:])
        with pytest.raises(TooFewError):
            client.receive(everyone.from_server(VICTIM, Roster(listed, near), context))
        assert unchanged(client, before)
    # With enough names, somebody's keys are missing.
    listed = everyone.names if kind == "full" else everyone.names[:90]
    with pytest.raises(ChangedParticipantsError):
        client.receive(everyone.from_server(VICTIM, Roster(listed, near), context))


# -- two models for one round ------------------------------------------------------------------


def test_two_models_told_for_one_round_are_found_out_in_the_next_attempt() -> None:
    """Before: nobody noticed that members were told of different models."""
    everyone = Everyone(4, seed="models")
    everyone.round("full")
    everyone.decide("delta")
    everyone.server.commit(MODEL)
    honest = everyone.server.last_notice
    everyone.notices.append(honest)
    other = replace(body_of(honest), model=bytes(32))
    forged = everyone.from_server(EVERYONE, other, everyone.context)
    for name, client in everyone.clients.items():
        client.receive(forged if name == VICTIM else honest)
    links = {client.ledger.place.link for client in everyone.clients.values()}
    assert len(links) == 1
    step = everyone.ask(everyone.server.open("delta"))
    assert refused_by(step) == {ForkError}
    assert set(step.refusals) == {VICTIM}
    everyone.server.ledger = replace(
        everyone.server.ledger, place=replace(everyone.server.ledger.place, model=bytes(32))
    )
    step = everyone.ask(everyone.server.open("delta"))
    assert set(step.refusals) == set(everyone.names[1:])
    assert refused_by(step) == {ForkError}


def test_two_attempts_told_for_one_round_are_found_out_in_the_next_one() -> None:
    """Two attempts at one set have the same link, but their inputs may differ: the sum of the bases
    that clients believe in, less that of either attempt, would be the changes of some of them."""
    everyone = Everyone(4, seed="attempts")
    everyone.round("full")
    everyone.round("delta")
    client = everyone.clients[VICTIM]
    place = client.ledger.place
    assert (place.round, place.attempt) == (2, 2)
    with_ledger(client, place=replace(place, attempt=9))
    step = everyone.ask(everyone.server.open("delta"))
    assert {name: type(error) for name, error in step.refusals.items()} == {VICTIM: ForkError}
    everyone.server.ledger = replace(
        everyone.server.ledger, place=replace(everyone.server.ledger.place, attempt=9)
    )
    step = everyone.ask(everyone.server.open("delta"))
    assert set(step.refusals) == set(everyone.names[1:])
    assert refused_by(step) == {ForkError}


def test_two_histories_do_not_meet() -> None:
    """Half of the members are told of one commit, half of another one that enough signed."""
    everyone = Everyone(10, seed="histories")
    everyone.round("full")
    fork = everyone.server.ledger
    everyone.round("delta", {Stage.MASK: ["c009"], Stage.DECIDED: everyone.names[5:]})
    known = everyone.server.ledger.place
    # The same place again, as if nothing had been: the first half refuses.
    everyone.server.ledger = replace(fork, attempt=everyone.server.ledger.attempt)
    everyone.notices = everyone.notices[:1]
    step = everyone.ask(everyone.server.open("delta"))
    assert {name: type(error) for name, error in step.refusals.items()} == dict.fromkeys(
        everyone.names[:5], OutOfOrderError
    )
    with pytest.raises(RoundAbortedError):
        everyone.server.advance()
    # A notice that differs is refused by those who know the other one.
    context = changed(next_context(everyone), kind="delta", capacity=16)
    other = forged_notice(everyone, context, everyone.names, everyone.names)
    for name in everyone.names[:5]:
        with pytest.raises(ForkError):
            everyone.clients[name].receive(other)
        assert everyone.clients[name].ledger.place == known
    # Those who had signed the other set refuse it, too; the one who was away follows.
    for name in everyone.names[5:9]:
        with pytest.raises(SecondSurvivorSetError):
            everyone.clients[name].receive(other)


# -- lists -------------------------------------------------------------------------------------


def test_capacities_are_those_of_the_list() -> None:
    """A vector that is too short does not decode, one that is too long costs memory."""
    everyone = Everyone(4, seed="capacity")
    everyone.round("full")
    client = everyone.clients[VICTIM]
    for kind, capacity in (("full", 2**30), ("full", 1), ("delta", 1), ("delta", 2**30)):
        context = next_context(everyone, kind=kind, capacity=capacity)
        with pytest.raises(WrongLengthError):
            client.receive(everyone.from_server(VICTIM, Open(()), context))


@pytest.mark.parametrize("capacity", [0, 2**25, 2**61])
def test_no_list_has_an_impossible_capacity(capacity: int) -> None:
    everyone = Everyone(3, seed="capacity")
    with pytest.raises(ValueError, match="capacity"):
        everyone.members(everyone.names, capacity=capacity)


@pytest.mark.parametrize("key", [b"\1" + bytes(31), bytes(32), b"\xec" + b"\xff" * 30 + b"\x7f"])
def test_no_list_has_a_member_with_a_key_of_small_order(key: bytes) -> None:
    """The server could sign in its name, and so make up any number of signatures."""
    everyone = Everyone(3, seed="small order")
    with pytest.raises(ValueError, match="small order"):
        next_list(
            None,
            Place(),
            federation=bytes(16),
            members=[Member("a", key), Member("b", everyone.identities["c000"].public.data)],
            capacity=4,
        )


def test_an_epoch_cannot_be_skipped() -> None:
    """Before: a list of epoch 2**61 was taken, and no later one ever again."""
    everyone = Everyone(4, seed="epochs")
    everyone.round("full")
    honest = everyone.members(everyone.names)
    for epoch in (3, 2**53 - 1, 2**61):
        for name in everyone.names:
            with pytest.raises(MissingNoticeError):
                everyone.clients[name].adopt(replace(honest, epoch=epoch))
    everyone.adopt(honest)


def test_a_list_without_the_victim_is_no_list_for_those_who_signed_with_it() -> None:
    """Two lists of one epoch: a client takes one, and refuses what comes with the other."""
    everyone = Everyone(5, seed="two lists")
    everyone.round("full")
    honest, without = everyone.members(everyone.names), everyone.members(everyone.names[1:])
    everyone.adopt(honest)
    for name in everyone.names[1:]:
        with pytest.raises(MissingNoticeError):
            everyone.clients[name].adopt(without)
        fields = {"membership": without.digest, "capacity": without.capacity}
        data = everyone.from_server(name, Open(()), next_context(everyone, **fields))
        with pytest.raises(WrongFederationError):
            everyone.clients[name].receive(data)
        later = replace(everyone.members(everyone.names), previous=without.digest)
        with pytest.raises(ForkError):
            everyone.clients[name].adopt(later)


# -- leaving -----------------------------------------------------------------------------------


def statement_of(everyone: Everyone, name: str, *, alone: bool = False) -> LeaveStatement:
    """A leave statement for the list and place of the moment."""
    where = (
        everyone.federation.identifier,
        everyone.membership.digest,
        everyone.server.ledger.place.link,
    )
    signature = everyone.identities[name].sign(leave_statement(where, name, alone))
    return LeaveStatement(name, alone, signature)


def open_with_leavers(
    everyone: Everyone, leavers: Sequence[LeaveStatement], kind: str = "delta"
) -> list[Outgoing]:
    """An attempt in which the server lists whom it likes."""
    server = everyone.server
    server._leavers = lambda needed: tuple(leavers)  # type: ignore[method-assign]
    # It would end the attempt before it asks for signatures.
    server._check_leavers = lambda context, alive: None  # type: ignore[method-assign]
    try:
        return server.open(kind)
    finally:
        del server._leavers


def test_leavers_go_together_and_say_nothing_afterwards() -> None:
    everyone = Everyone(10, seed="leaving")
    everyone.round("full")
    gone, staying = everyone.names[:3], everyone.names[3:]
    everyone.leave(gone)
    everyone.greet()
    result = everyone.round("delta")
    assert result.left == gone
    assert result.total == Histogram(2) - everyone.total(gone)
    assert everyone.server.counted == dict.fromkeys(staying, 2)
    for name in gone:
        client = everyone.clients[name]
        assert client.ledger.left
        assert (client.ledger.base, client.ledger.base_round) == (Histogram(2), 0)
        data = everyone.from_server(name, Open(()), next_context(everyone))
        with pytest.raises(SuspendedError):
            client.receive(data)
    everyone.adopt(everyone.members(staying))
    assert everyone.round("full").total == everyone.total(staying)


@pytest.mark.parametrize("listed", ["not at all", "alone", "with one more"])
def test_a_leaver_that_is_alone_sends_what_is_counted_already(listed: str) -> None:
    """Before: `client leave` sent an empty histogram in the next round, whoever left with it: the
    change was the leaver's histogram."""
    everyone = Everyone(10, seed="alone")
    everyone.round("full")
    everyone.histograms[VICTIM] = histogram(((9, 9), 9))
    everyone.leave([VICTIM])
    leavers = {"not at all": [], "alone": [VICTIM], "with one more": [VICTIM, "c001"]}[listed]
    everyone.leave(leavers)
    before = state_of(everyone.clients[VICTIM])
    messages = open_with_leavers(everyone, [statement_of(everyone, name) for name in leavers])
    step = everyone.ask(messages)
    if listed != "not at all":
        assert {name: type(error) for name, error in step.refusals.items()} == dict.fromkeys(
            leavers, AloneError
        )
        assert unchanged(everyone.clients[VICTIM], before)
        everyone.server.abandon()
    # An honest server waits for the others: nothing changes.
    everyone.greet()
    result = everyone.round("delta")
    assert (len(result.total), result.left) == (0, ())


def test_a_leaver_that_says_alone_may_go_alone() -> None:
    everyone = Everyone(10, seed="says alone")
    everyone.round("full")
    everyone.leave([VICTIM], alone=[VICTIM])
    everyone.greet()
    result = everyone.round("delta")
    assert result.left == (VICTIM,)
    assert result.total == Histogram(2) - everyone.histograms[VICTIM]


@pytest.mark.parametrize("lost", [1, 2])
def test_leavers_that_are_called_lost_take_the_round_with_them(lost: int) -> None:
    """Three leave; the server says that some of them vanished, so that the change would be the
    histogram of those who are left.  Everybody refuses to sign, not only they."""
    everyone = Everyone(20, seed="called lost")
    everyone.round("full")
    gone = everyone.names[:4]
    everyone.leave(gone)
    everyone.greet()
    everyone.until(Stage.CONSENT, "delta")
    attacker = Attacker(everyone)
    dead, alive = gone[:lost], everyone.names[lost:]
    attacker.show(dict.fromkeys(alive, Survivors(alive, dead)))
    assert {type(attacker.refusals[name]) for name in alive} == {TooFewError}
    assert (attacker.seed_shares, attacker.key_shares) == ({}, {})
    assert attacker.sum_of(alive) is None
    # The honest end: all four go.
    everyone.server.abandon()
    everyone.greet()
    assert everyone.round("delta").left == gone


@pytest.mark.parametrize("who", [VICTIM, "c005"])
def test_a_server_that_lists_somebody_who_does_not_leave_is_refused(who: str) -> None:
    everyone = Everyone(10, seed="does not leave")
    everyone.round("full")
    gone = everyone.names[7:]
    everyone.leave(gone)
    leavers = [statement_of(everyone, name) for name in gone]
    for forged in (
        replace(leavers[0], name=who),
        LeaveStatement(who, False, bytes(64)),
        replace(statement_of(everyone, who), alone=True),
    ):
        listed = sorted([forged, *leavers], key=lambda one: one.name)
        step = everyone.ask(open_with_leavers(everyone, listed))
        assert set(step.refusals) == set(everyone.names)
        assert refused_by(step) == {BadSignatureError}
    # It signed once, at this very place, and has thought better of it.
    listed = sorted([statement_of(everyone, who), *leavers], key=lambda one: one.name)
    step = everyone.ask(open_with_leavers(everyone, listed))
    assert {name: type(error) for name, error in step.refusals.items()} == {
        who: ChangedParticipantsError
    }


def test_statements_of_another_place_or_list_are_worth_nothing() -> None:
    everyone = Everyone(10, seed="replayed")
    everyone.round("full")
    gone = everyone.names[:3]
    old = [statement_of(everyone, name) for name in gone]
    everyone.leave(gone)
    everyone.round("delta")
    step = everyone.ask(open_with_leavers(everyone, old))
    assert refused_by(step) == {BadSignatureError}
    assert set(step.refusals) == set(everyone.names)
    everyone.server.abandon()
    here = [statement_of(everyone, name) for name in gone]
    everyone.adopt(everyone.members(everyone.names))
    step = everyone.ask(open_with_leavers(everyone, here))
    assert refused_by(step) == {BadSignatureError}
    # The server does not list them, either.
    everyone.server.abandon()
    everyone.greet()
    for name, one in zip(gone, here, strict=True):
        everyone.server.present[name] = replace(everyone.server.present[name], leaving=one)
    everyone.server.open("delta")
    assert everyone.server.stage.context.leaving == ()


def test_what_the_context_says_of_leavers_is_what_they_signed() -> None:
    everyone = Everyone(10, seed="context")
    everyone.round("full")
    leavers = tuple(statement_of(everyone, name) for name in everyone.names[7:])
    for context, listed in (
        (next_context(everyone, kind="delta", capacity=16), leavers),
        (next_context(everyone, kind="delta", capacity=16, leaving=everyone.names[7:]), ()),
        (
            next_context(
                everyone,
                kind="delta",
                capacity=16,
                leaving=everyone.names[7:],
                alone=everyone.names[7:],
            ),
            leavers,
        ),
    ):
        with pytest.raises(ChangedParticipantsError):
            everyone.clients[VICTIM].receive(
                everyone.from_server(VICTIM, Open((), listed), context)
            )


def test_other_leavers_are_another_set() -> None:
    """With the same survivors, one more leaver would show its histogram as the difference: in the
    same list, and across lists."""
    everyone = Everyone(12, seed="other leavers")
    everyone.round("full")
    everyone.leave(everyone.names[:4])
    everyone.greet()
    assert everyone.decide("delta").left == everyone.names[:4]
    everyone.server.abandon()
    everyone.leave([*everyone.names[:5]])
    for again in range(2):
        if again:
            listed = everyone.members(everyone.names)
            everyone.adopt(replace(listed, parted=(everyone.names[:4],)))
        everyone.server.ledger = replace(everyone.server.ledger, lock=None)
        five = [statement_of(everyone, name) for name in everyone.names[:5]]
        step = everyone.ask(open_with_leavers(everyone, five))
        while not step.refusals:
            step = everyone.ask(everyone.server.advance())
        if again:
            # The list names the four: the fifth would be alone.
            assert {name: type(one) for name, one in step.refusals.items()} == {"c004": AloneError}
        else:
            assert refused_by(step) == {SecondSurvivorSetError}
            assert set(step.refusals) == set(everyone.names)
            assert everyone.stage is Stage.CONSENT
        everyone.server.abandon()


CROSSINGS = {
    # Founders, joiners, leavers; who of them must not be let go, as seen from the others.
    "of both groups": (3, 3, ("c000", "c001", "d000")),
    "two of each group": (4, 4, ("c000", "c001", "d000", "d001")),
    "one stays of the newcomers": (4, 4, ("d000", "d001", "d002")),
    "two stay of the founders": (5, 4, ("c000", "c001", "c002")),
}


@pytest.mark.parametrize("crossing", CROSSINGS)
def test_groups_that_came_together_do_not_part_so_that_one_shows(crossing: str) -> None:
    """Founders {0, 1, 2}, newcomers {3, 4, 5}, leavers {0, 1, 3}: with 2 as a colluder, the first
    sum and the leavers' sum show what 3 had, though three left together."""
    founders, joiners, gone = CROSSINGS[crossing]
    everyone = Everyone(founders, seed=f"crossing {crossing}")
    everyone.round("full")
    with_newcomers(everyone, joiners)
    everyone.greet()
    everyone.round("full")
    everyone.leave(gone)
    everyone.greet()
    # An honest server does not list them, and goes on.
    everyone.server.open("delta")
    assert everyone.server.stage.context.leaving == ()
    # A lying one finds nobody who sends nothing for it, or nobody who signs.
    messages = open_with_leavers(everyone, [statement_of(everyone, name) for name in gone])
    refusals: set[type[ProtocolError]] = set()
    while everyone.stage is not Stage.CONSENT:
        step = everyone.ask(messages)
        refusals |= refused_by(step)
        if refusals:
            break
        messages = everyone.server.advance()
    else:
        step = everyone.ask(messages)
        refusals |= refused_by(step)
        assert not step.answers
    assert refusals
    assert refusals <= {AloneError, TooFewError}
    # No client is bound by that: with an honest server the next round goes on without leavers.
    everyone.server.ledger = replace(everyone.server.ledger, lock=None)
    del everyone.server._check_leavers
    everyone.greet()
    assert everyone.round("delta").left == ()


def test_leavers_that_say_alone_do_not_speak_for_those_who_stay() -> None:
    """{0, 1, 2} join, and 0 accepts that it shows: then 1 + 2 would show as well."""
    everyone = Everyone(5, seed="stay behind")
    everyone.round("full")
    newcomers = with_newcomers(everyone, 3)
    everyone.greet()
    everyone.round("full")
    everyone.leave(newcomers[:1], alone=newcomers[:1])
    everyone.greet()
    statement = statement_of(everyone, newcomers[0], alone=True)
    messages = open_with_leavers(everyone, [statement])
    while everyone.stage is not Stage.CONSENT:
        everyone.ask(messages)
        messages = everyone.server.advance()
    step = everyone.ask(messages)
    assert refused_by(step) == {TooFewError}
    assert len(step.refusals) == 8
    assert "--gone" in str(step.refusals["c000"])
    # The way out that the error names asks those who stay.
    dropping = everyone.members([name for name in everyone.membership.position if name != "d000"])
    for name in newcomers[1:]:
        with pytest.raises(AloneError):
            everyone.clients[name].adopt(dropping)
    everyone.adopt(dropping, alone=newcomers[1:])
    everyone.greet()
    assert everyone.round("full").total == everyone.total(list(dropping.position))


@pytest.mark.parametrize("way_out", ["resumed", "dropped"])
def test_a_leaver_that_is_suspended_holds_the_others_up_and_the_error_says_what_helps(
    way_out: str,
) -> None:
    """The set with three leavers was signed: no other may come out at this place."""
    everyone = Everyone(7, seed="suspended leaver")
    everyone.round("full")
    gone = everyone.names[:3]
    everyone.leave(gone)
    everyone.greet()
    everyone.ask(everyone.until(Stage.UNMASK, "delta"))
    everyone.adopt(everyone.members(everyone.names, suspended=gone[:1]))
    everyone.greet()
    with pytest.raises(RoundAbortedError, match=r"c000 of that group is suspended.*--resume"):
        everyone.round("delta")
    if way_out == "resumed":
        everyone.adopt(everyone.members(everyone.names))
        everyone.greet()
        assert everyone.round("delta").left == gone
        return
    everyone.adopt(everyone.members(everyone.names[1:]), alone=gone[1:])
    everyone.greet()
    with pytest.raises(RoundAbortedError, match=r"client leave --alone"):
        everyone.round("full")
    everyone.leave(gone[1:], alone=gone[1:])
    everyone.greet()
    assert everyone.round("full").left == gone[1:]


def test_a_group_may_leave_as_a_whole_and_any_part_that_hides_both_sides() -> None:
    for seed, founders, joiners, gone in (
        ("all newcomers", 4, 3, ("d000", "d001", "d002")),
        ("half of the founders", 6, 3, ("c000", "c001", "c002")),
        ("both", 6, 3, ("c000", "c001", "c002", "d000", "d001", "d002")),
    ):
        everyone = Everyone(founders, seed=seed)
        everyone.round("full")
        with_newcomers(everyone, joiners)
        everyone.greet()
        everyone.round("full")
        everyone.leave(gone)
        everyone.greet()
        assert everyone.round("delta").left == gone


def test_leavers_of_whom_nothing_is_counted_hide_nobody() -> None:
    """The victim and three newcomers leave in the
    newcomers' first round.  Together they are four, as many as must leave at once; but the old sum
    holds the victim's histogram alone."""
    everyone = Everyone(10, seed="uncounted leavers")
    everyone.round("full")
    newcomers = with_newcomers(everyone, 8)
    gone = (VICTIM, *newcomers[:3])
    everyone.leave(gone)
    everyone.greet()
    # An honest server does not list the victim.
    everyone.server.open("full")
    assert everyone.server.stage.context.leaving == newcomers[:3]
    everyone.server.abandon()
    step = everyone.ask(
        open_with_leavers(everyone, [statement_of(everyone, name) for name in gone], "full")
    )
    assert {name: type(error) for name, error in step.refusals.items()} == {VICTIM: AloneError}
    everyone.server.abandon()
    # Whatever the victim's own client says: nobody else agrees to such a set.
    everyone.leave(gone, alone=[VICTIM])
    leavers = [statement_of(everyone, name) for name in gone]
    with_ledger(everyone.clients[VICTIM], leaving=Leaving(True))
    messages = open_with_leavers(everyone, leavers, "full")
    while everyone.stage is not Stage.CONSENT:
        assert not everyone.ask(messages).refusals
        messages = everyone.server.advance()
    step = everyone.ask(messages)
    assert refused_by(step) == {TooFewError}
    assert set(step.refusals) == {*everyone.names, *newcomers}


def test_a_leaver_that_does_not_know_its_base_does_not_empty_a_full_round() -> None:
    """With an empty histogram, the old sum less the new one
    would be all that was counted of it, and nobody said that it may leave alone."""
    everyone = Everyone(10, seed="unknown base")
    everyone.round("full")
    with_ledger(everyone.clients[VICTIM], base=None, leaving=Leaving(False))
    everyone.greet()
    assert everyone.round("full").total == everyone.total(everyone.names)


@pytest.mark.parametrize(("n", "leavers"), [(5, 3), (20, 17)])
def test_leavers_leave_enough_behind(n: int, leavers: int) -> None:
    """With c colluders among those who stay, the sum of one honest one and theirs would show it.
    Twenty members have two colluders: three are too few, though `minimum` is three."""
    everyone = Everyone(n, seed=f"behind {n}")
    everyone.round("full")
    gone = everyone.names[:leavers]
    everyone.leave(gone)
    everyone.greet()
    messages = everyone.server.open("delta")
    assert everyone.server.stage.context.leaving == ()
    messages = open_with_leavers(everyone, [statement_of(everyone, name) for name in gone])
    while everyone.stage is not Stage.CONSENT:
        everyone.ask(messages)
        messages = everyone.server.advance()
    step = everyone.ask(messages)
    assert set(step.refusals) == set(everyone.names)
    assert refused_by(step) == {TooFewError}


# -- joining -----------------------------------------------------------------------------------


def with_newcomers(everyone: Everyone, count: int, alone: Collection[str] = ()) -> tuple[str, ...]:
    newcomers = tuple(f"d{i:03}" for i in range(count))
    for name in newcomers:
        everyone.enrol(name)
    everyone.adopt(everyone.members([*everyone.names, *newcomers]), alone)
    return newcomers


def test_newcomers_are_counted_together_and_deltas_go_on_until_then() -> None:
    everyone = Everyone(5, seed="newcomers")
    everyone.round("full")
    newcomers = with_newcomers(everyone, 3)
    everyone.histograms[VICTIM] = histogram(((9, 9), 9))
    everyone.greet(absent=newcomers[:1])
    assert everyone.server.kind_needed() == "delta"
    assert everyone.round("delta").survivors == everyone.names
    everyone.greet()
    assert everyone.server.kind_needed() == "full"
    result = everyone.round("full")
    assert result.survivors == (*everyone.names, *newcomers)
    assert result.total == everyone.total(result.survivors)
    everyone.greet()
    assert len(everyone.round("delta").total) == 0


@pytest.mark.parametrize("count", [1, 2])
def test_a_joiner_that_is_alone_refuses(count: int) -> None:
    """The next full sum less the last one would be its histogram; `--alone` accepts that."""
    everyone = Everyone(5, seed="joiner")
    everyone.round("full")
    newcomers = with_newcomers(everyone, count)
    place = everyone.membership
    for name in newcomers:
        identity, federation = everyone.identities[name], everyone.federation
        with pytest.raises(AloneError):
            check_adoption(name, identity, federation, [], [place], None, alone=False)
        check_adoption(name, identity, federation, [], [place], None, alone=True)
    everyone.greet()
    step = everyone.ask(everyone.server.open("full"))
    assert set(step.refusals) == set(newcomers)
    assert refused_by(step) == {AloneError}
    everyone.server.abandon()
    for name in newcomers:
        with_ledger(everyone.clients[name], joins_alone=True)
    assert everyone.round("full").total == everyone.total(everyone.membership.active)


def test_co_joiners_that_are_dropped_leave_nobody_alone() -> None:
    """Three join; before their full round, a list drops two of them again."""
    everyone = Everyone(6, seed="dropped")
    everyone.round("full")
    newcomers = with_newcomers(everyone, 3)
    joiner = everyone.clients[newcomers[0]]
    later = everyone.members([*everyone.names, newcomers[0]])
    with pytest.raises(AloneError):
        joiner.adopt(later)
    # A client that took it nevertheless does not take part.
    joiner.adopt(later, alone=True)
    with_ledger(joiner, joins_alone=False)
    everyone.lists.append(later)
    everyone.server.adopt(later)
    for name in everyone.names:
        everyone.clients[name].adopt(later)
    everyone.greet()
    step = everyone.ask(everyone.server.open("full"))
    assert {name: type(error) for name, error in step.refusals.items()} == {
        newcomers[0]: AloneError
    }


def test_whoever_came_with_a_dropped_member_is_asked_first() -> None:
    """Three join and are counted, and one of them colludes: the sum of the other two is known.  A
    list drops one of the two, whose histogram then shows, and so would the last one's."""
    everyone = Everyone(4, seed="companions")
    everyone.round("full")
    newcomers = with_newcomers(everyone, 3)
    everyone.round("full")
    later = everyone.members([*everyone.names, *newcomers[1:]])
    for name in newcomers[1:]:
        with pytest.raises(AloneError, match=f"drops {newcomers[0]}, who came together"):
            everyone.clients[name].adopt(later)
        everyone.clients[name].adopt(later, alone=True)
    for name in everyone.names:  # four founders, who hide each other
        everyone.clients[name].adopt(later)


def test_three_founders_drop_nobody_without_being_asked() -> None:
    everyone = Everyone(3, seed="founders")
    everyone.round("full")
    with_newcomers(everyone, 3)
    everyone.round("full")
    names = [name for name in everyone.membership.position if name != "c001"]
    later = everyone.members(names)
    for name in ("c000", "c002"):
        with pytest.raises(AloneError, match="2 are left of that group"):
            everyone.clients[name].adopt(later)
    everyone.clients[names[-1]].adopt(later)


def test_co_joiners_that_leave_in_the_same_round_leave_nobody_alone() -> None:
    """Three join, and two of them leave in the full round that was to count all three."""
    everyone = Everyone(6, seed="leaving joiners")
    everyone.round("full")
    newcomers = with_newcomers(everyone, 3)
    everyone.leave(newcomers[1:])
    everyone.greet()
    step = everyone.ask(everyone.server.open("full"))
    assert everyone.server.stage.context.leaving == newcomers[1:]
    assert {name: type(error) for name, error in step.refusals.items()} == {
        newcomers[0]: AloneError
    }


def test_a_joiner_beside_a_hidden_round_is_not_hidden_by_those_who_are_not_counted_yet() -> None:
    """Four members run a full round, whose notice the server hides; then a fifth joins.  Nobody
    is counted yet, so five "join"; but the two sums differ by the fifth alone."""
    everyone = Everyone(4, seed="hidden")
    everyone.decide("full")
    everyone.server.abandon()
    (joiner,) = with_newcomers(everyone, 1)
    everyone.server.ledger = replace(everyone.server.ledger, lock=None)
    step = everyone.ask(everyone.server.open("full"))
    assert {name: type(error) for name, error in step.refusals.items()} == {joiner: AloneError}


def test_a_list_that_lies_about_who_came_is_refused_by_those_who_were_there() -> None:
    everyone = Everyone(5, seed="who came")
    everyone.round("full")
    everyone.enrol("d000")
    honest = everyone.members([*everyone.names, "d000"])
    lie = came_with(honest, {"c003": 2, "c004": 2})
    joiner = ClientSide("d000", everyone.identities["d000"], everyone.federation, [lie], Histogram)
    assert joiner.membership == lie
    for name in everyone.names:
        with pytest.raises(ForkError):
            everyone.clients[name].adopt(lie)


def test_a_newcomer_starts_where_its_list_says_and_nowhere_else() -> None:
    """The list vouches for the commit before it: that one's notice must come, and no other."""
    everyone = Everyone(5, seed="starts")
    everyone.round("full")
    everyone.round("delta")
    newcomers = with_newcomers(everyone, 3)
    client = everyone.clients[newcomers[0]]
    assert client.ledger.place.counted is None
    context = next_context(everyone)
    honest = body_of(everyone.notices[1])
    told = everyone.history[-1].context
    before = state_of(client)
    for notices, error in (
        ((), MissingNoticeError),
        ((everyone.notices[0],), MissingNoticeError),
        (
            (
                everyone.from_server(
                    EVERYONE, replace(honest, survivors=honest.survivors[1:]), told
                ),
            ),
            MissingNoticeError,
        ),
        ((forged_notice(everyone, context, everyone.names, everyone.names),), MissingNoticeError),
    ):
        with pytest.raises(error):
            client.receive(everyone.from_server(client.name, Open(notices), context))
        assert unchanged(client, before)
    client.receive(everyone.from_server(client.name, Open((everyone.notices[1],)), context))
    assert client.ledger.place == everyone.server.ledger.place


def test_deltas_of_few_counted_members_on_a_long_list_wait_for_the_newcomers() -> None:
    """Three are counted, eleven join.  Of fourteen, two may
    collude, and both may be among the three: a sum of the three would be the third one's change."""
    everyone = Everyone(3, seed="long list")
    everyone.round("full")
    with_newcomers(everyone, 11)
    everyone.histograms[VICTIM] = histogram(((9, 9), 9))
    context = next_context(everyone, kind="delta", capacity=16)
    letters = {}
    for name in everyone.names:
        data = everyone.from_server(name, Open(()), context)
        letters[name] = everyone.clients[name].receive(data)
    for name in everyone.names:
        near = tuple(letters[other] for other in everyone.names if other != name)
        with pytest.raises(TooFewError):
            everyone.clients[name].receive(
                everyone.from_server(name, Roster(everyone.names, near), context)
            )
    everyone.server.ledger = replace(everyone.server.ledger, attempt=context.attempt)
    everyone.greet()
    assert everyone.round("full").total == everyone.total(everyone.membership.active)


# -- suspending --------------------------------------------------------------------------------


def test_a_suspended_member_stays_counted_and_takes_no_part() -> None:
    everyone = Everyone(5, seed="suspended")
    everyone.round("full")
    everyone.histograms[VICTIM] = histogram(((9, 9), 9))
    everyone.adopt(everyone.members(everyone.names, suspended=[VICTIM]))
    with pytest.raises(RoundAbortedError, match="c000 is suspended and was counted in round 1"):
        everyone.server.open("full")
    # A server that runs one nevertheless is refused by everybody.
    for name in everyone.names[1:]:
        data = everyone.from_server(name, Open(()), next_context(everyone))
        with pytest.raises(ChangedParticipantsError, match="suspended"):
            everyone.clients[name].receive(data)
    for kind, capacity in (("full", 20), ("delta", 16)):
        context = next_context(everyone, kind=kind, capacity=capacity)
        with pytest.raises(SuspendedError):
            everyone.clients[VICTIM].receive(everyone.from_server(VICTIM, Open(()), context))
    everyone.histograms["c001"] = histogram(((8, 8), 8))
    expected = changes_of(everyone, everyone.names[1:])
    result = everyone.round("delta")
    assert (result.survivors, result.total) == (everyone.names[1:], expected)
    assert everyone.server.counted == {VICTIM: 1} | dict.fromkeys(everyone.names[1:], 2)
    # It cannot be put on a roster either.
    everyone.ask(everyone.server.open("delta"))
    roster = Roster(everyone.names, ())
    with pytest.raises(ChangedParticipantsError):
        everyone.clients["c001"].receive(everyone.from_server("c001", roster))
    # It comes back with the next list, and its change with it.
    everyone.adopt(everyone.members(everyone.names))
    everyone.greet()
    assert everyone.round("delta").total == changes_of_victim()


def changes_of_victim() -> Histogram:
    before = Everyone(5, seed="suspended").histograms[VICTIM]
    return histogram(((9, 9), 9)) - before


def test_so_many_cannot_be_suspended_that_too_few_are_left() -> None:
    """h is that of all who are counted, suspended ones included."""
    everyone = Everyone(10, seed="too many suspended")
    everyone.round("full")
    everyone.adopt(everyone.members(everyone.names, suspended=everyone.names[:2]))
    everyone.ask(everyone.server.open("delta"))
    letters = everyone.history[-1].answers
    with pytest.raises(RoundAbortedError, match="at least 9"):
        everyone.server.advance()
    rest = everyone.names[2:]
    for name in rest:
        near = tuple(letters[other] for other in rest if other != name)
        with pytest.raises(TooFewError):
            everyone.clients[name].receive(everyone.from_server(name, Roster(rest, near)))


def test_nobody_who_is_not_counted_is_suspended() -> None:
    """A full round is opened and hidden; the list suspends somebody; a full round without it
    would show its whole histogram.  A list may call somebody
    counted who is not, and was taken."""
    everyone = Everyone(4, seed="not counted")
    everyone.decide("full")
    everyone.server.abandon()
    with pytest.raises(ValueError, match="cannot be suspended"):
        everyone.members(everyone.names, suspended=[VICTIM])
    place = replace(everyone.server.ledger.place, counted={VICTIM: 1})
    with pytest.raises(ValueError, match="nothing is counted"):
        everyone.members(everyone.names, suspended=[VICTIM], place=place)
    # Later on: two are counted of none, by a list that says so.
    everyone.round("full")
    newcomers = with_newcomers(everyone, 3)
    everyone.greet()
    everyone.decide("full")
    everyone.server.abandon()
    place = everyone.server.ledger.place
    assert place.counted is not None
    lying = replace(place, counted=place.counted | {newcomers[0]: 1})
    listed = [*everyone.names, *newcomers]
    lie = everyone.members(listed, suspended=[newcomers[0]], place=lying)
    for name in listed:
        with pytest.raises(ForkError, match="does not count those whom round 1"):
            everyone.clients[name].adopt(lie)


# -- locks across lists ------------------------------------------------------------------------


def test_a_set_signed_under_one_list_binds_under_the_next_ones() -> None:
    """The server hides a delta round, makes one list after another, and drops the victim from the
    survivors: whoever signed refuses, until the list itself suspends the victim."""
    everyone = Everyone(10, seed="across lists")
    everyone.round("full")
    everyone.histograms[VICTIM] = histogram(((9, 9), 9))
    everyone.decide("delta")
    rest = everyone.names[1:]
    for _ in range(2):
        everyone.adopt(everyone.members(everyone.names))
        everyone.server.ledger = replace(everyone.server.ledger, lock=None)
        everyone.until(Stage.CONSENT, "delta")
        attacker = Attacker(everyone)
        attacker.show(dict.fromkeys(rest, Survivors(rest, (VICTIM,))))
        assert {type(attacker.refusals[name]) for name in rest} == {SecondSurvivorSetError}
        assert attacker.opened() == []
        everyone.server.abandon()
    everyone.adopt(everyone.members(everyone.names, suspended=[VICTIM]))
    assert everyone.round("delta").survivors == rest


def test_a_round_under_an_older_list_than_the_one_in_force_is_not_followed() -> None:
    """Two clients that hold the second list must not follow one notice under the first and one
    under the second for the same place."""
    everyone = Everyone(5, seed="older list")
    everyone.round("full")
    everyone.decide("delta")
    everyone.server.commit(MODEL)
    notice = everyone.server.last_notice
    everyone.server.ledger = replace(
        everyone.server.ledger, place=everyone.clients[VICTIM].ledger.place
    )
    later = everyone.members(everyone.names)
    for name in everyone.names:
        everyone.clients[name].adopt(later)
        with pytest.raises(ForkError, match="should not have been run with the list of epoch 1"):
            everyone.clients[name].receive(notice)


# -- signatures, sampled -----------------------------------------------------------------------


def crowd(n: int) -> tuple[Membership, dict[str, Identity]]:
    identities = {f"m{i:03}": Identity(Random(i).randbytes(32)) for i in range(n)}
    members = [Member(name, one.public.data) for name, one in identities.items()]
    listed = next_list(None, Place(), federation=bytes(16), members=members, capacity=4)
    return listed, identities


def test_sampled_signatures_are_found_out_when_too_few_are_valid() -> None:
    """One valid signature fewer than needed, among as many as there can be, and other numbers."""
    n, policy = 200, Policy()
    listed, identities = crowd(n)
    needed = policy.thresholds(n).signers
    everybody = Requirements(
        listed.active, False, needed, (Quorum(frozenset(listed.position), needed),)
    )
    statement = b"what is signed"
    good = {name: one.sign(statement) for name, one in identities.items()}
    size = _sample_size(n, needed, policy.security_bits)
    assert size < needed // 2
    for trial in range(30):
        random = Random(trial)
        valid = set(random.sample(sorted(good), random.choice([needed - 1, needed // 2, c_of(n)])))
        some = tuple(
            (name, signature if name in valid else bytes(64))
            for name, signature in sorted(good.items())
        )
        with pytest.raises(BadSignatureError):
            check_consents(some, statement, listed, everybody, policy, random.randbytes(32))
        check_consents(
            tuple(good.items()), statement, listed, everybody, policy, random.randbytes(32)
        )


def c_of(n: int) -> int:
    return Policy().colluders(n)


def test_the_sample_is_as_sure_as_the_policy_says() -> None:
    """With few bits the errors can be counted: of 2000 trials at 4 bits, at most 1 in 16 passes."""
    n, policy = 40, Policy(security_bits=4)
    listed, identities = crowd(n)
    needed = policy.thresholds(n).signers
    quorum = Requirements(
        listed.active, False, needed, (Quorum(frozenset(listed.position), needed),)
    )
    statement = b"what is signed"
    names = sorted(identities)
    good = {name: identities[name].sign(statement) for name in names}
    assert _sample_size(n, needed, 4) < needed
    passed = 0
    trials = 400
    for trial in range(trials):
        random = Random(trial)
        valid = set(random.sample(names, needed - 1))
        some = tuple((name, good[name] if name in valid else bytes(64)) for name in names)
        try:
            check_consents(some, statement, listed, quorum, policy, random.randbytes(32))
        except BadSignatureError:
            continue
        passed += 1
    # 25 are expected at most; 60 would be passed once in 10⁹ times.
    assert passed < 60


@pytest.mark.parametrize("given", [1, 2, 3, 10, 30, 100, 1000])
def test_the_size_of_the_sample_follows_from_the_worst_case(given: int) -> None:
    """Drawn without replacement from signatures of which needed - 1 are valid, all that are drawn
    are valid with a probability below the policy's; computed here exactly."""
    for needed in {1, min(2, given), given // 2, given - 1, given} - {0}:
        size = _sample_size(given, needed, 40)
        assert 1 <= size <= given
        all_valid = 1.0
        for drawn in range(size):
            all_valid *= max(0, needed - 1 - drawn) / (given - drawn)
        assert all_valid <= 2.0**-40


def test_both_quorums_are_checked() -> None:
    """In a full round with newcomers, so many of all and so many of those counted must sign."""
    n, policy = 30, Policy()
    listed, identities = crowd(n)
    known = frozenset(sorted(identities)[:10])
    of_all, of_known = policy.thresholds(n).signers, policy.thresholds(n, 10).signers
    both = Requirements(
        listed.active,
        True,
        n,
        (Quorum(frozenset(listed.position), of_all), Quorum(known, of_known)),
    )
    statement = b"what is signed"
    signed = [(name, one.sign(statement)) for name, one in sorted(identities.items())]
    check_consents(signed, statement, listed, both, policy, bytes(32))
    with pytest.raises(TooFewError):
        check_consents(signed[10 - of_known + 1 :], statement, listed, both, policy, bytes(32))
    with pytest.raises(TooFewError):
        check_consents(signed[: of_all - 1], statement, listed, both, policy, bytes(32))
    # Enough of all are valid, but too few of those counted.
    spoilt = [(name, bytes(64) if i < 10 - of_known + 1 else one)
              for i, (name, one) in enumerate(signed)]  # fmt: skip
    with pytest.raises(BadSignatureError):
        check_consents(spoilt, statement, listed, both, policy)
    for trial in range(20):
        secret = Random(trial).randbytes(32)
        with pytest.raises(BadSignatureError):
            check_consents(spoilt, statement, listed, both, policy, secret)
