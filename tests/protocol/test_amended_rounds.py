"""A server that amends the federation in order to run a second full round without one member.

docs/threat-model.md, rule 11.  Every attack is played with the server's own key.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from attacker import Attacker
from msgspec import structs
from test_malicious_server import VICTIM, WHEN, leave_out, refused_by

from fedforget.protocol.errors import TooFewError, WrongFederationError
from fedforget.protocol.graph import Policy, PolicyError
from fedforget.protocol.joining import check_adoption, check_amended_adoption
from fedforget.protocol.messages import Survivors
from parties import Everyone, Stage

LAXER = Policy(minimum=2, dropout=0.3, colluding=0.1)
"""With it h is below n from four members on: whoever is away is hardly missed."""


def take_over(everyone: Everyone, names: tuple[str, ...], *, other_bins: bool = False) -> None:
    """Some members go on with the version and the list of now."""
    for name in names:
        ledger = everyone.clients[name].ledger
        base = None if other_bins else ledger.base
        everyone.clients[name] = everyone.new_client(name, structs.replace(ledger, base=base))


def amend(everyone: Everyone, policy: Policy | None = None, *, other_bins: bool = False) -> None:
    """The next version, with a list of the same members; nobody has taken it over yet."""
    before = everyone.federation
    number = len(before.earlier) + 2
    everyone.lists.append(everyone.members(everyone.names))
    everyone.federation = replace(
        before,
        configuration=bytes([number]) * 32,
        policy=policy or before.policy,
        first_epoch=everyone.membership.epoch,
        report=bytes([number]) if other_bins else before.report,
        earlier=(*before.earlier, before.version),
    )
    ledger = structs.replace(everyone.server.ledger, full_due=True)
    everyone.server = everyone.new_server(ledger)


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("policy", [None, LAXER], ids=["same policy", "laxer policy"])
@pytest.mark.parametrize("other_bins", [False, True])
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("n", [4, 10])
def test_an_amendment_gives_no_second_full_round_without_somebody(
    n: int, times: int, other_bins: bool, policy: Policy | None, when: Stage
) -> None:
    """The sum before, less a full sum of all others after it, would be the victim's histogram."""
    everyone = Everyone(n, seed=f"amended {n}")
    everyone.round("full")
    for _ in range(times):
        amend(everyone, policy, other_bins=other_bins)
        take_over(everyone, everyone.names, other_bins=other_bins)
    step = leave_out(everyone, when)
    assert set(step.refusals) == set(everyone.names[1:])
    assert refused_by(step) == {TooFewError}
    everyone.server.abandon()
    # The round that everybody may have: the same members as before.
    assert everyone.round("full").total == everyone.total(everyone.names)


def test_a_hidden_sum_of_the_old_version_binds_under_the_new_one() -> None:
    """A full sum was opened and never committed; the amendment does not make a smaller one."""
    everyone = Everyone(5, seed="hidden before an amendment")
    everyone.round("full")
    everyone.decide("full")
    everyone.server.abandon()
    amend(everyone, LAXER)
    take_over(everyone, everyone.names)
    everyone.ask(everyone.server.open("full"))
    everyone.ask(everyone.server.advance())
    everyone.ask(everyone.server.advance())
    attacker = Attacker(everyone)
    rest = everyone.names[1:]
    attacker.show({name: Survivors(rest, (VICTIM,)) for name in rest})
    assert set(attacker.refusals) == set(rest)
    assert attacker.sum_of(rest) is None


def test_a_victim_that_was_not_shown_the_amendment_stops_the_round_of_the_others() -> None:
    """Whoever has the new version needs the victim; the victim has the old one and says nothing."""
    everyone = Everyone(5, seed="not shown")
    everyone.round("full")
    amend(everyone, LAXER)
    take_over(everyone, everyone.names[1:])
    step = everyone.ask(everyone.server.open("full"))
    assert set(step.refusals) == {VICTIM}
    assert refused_by(step) == {WrongFederationError}
    advertised = {name: step.answers[name] for name in everyone.names[1:]}
    assert len(advertised) == 4
    everyone.server.abandon()
    # Told that the roster is without it, nobody deals a share.
    for name in everyone.names[1:]:
        everyone.clients[name] = everyone.new_client(name, everyone.clients[name].ledger)
    with pytest.raises(Exception, match=f"{VICTIM} is missing"):
        everyone.decide("full", {Stage.ADVERTISE: [VICTIM]})


def test_only_the_new_policy_says_how_many_members_a_list_must_have() -> None:
    """Five are too few with a dropout of 0.3; a client that was away gets all lists at once."""
    everyone = Everyone(6, seed="fewer", policy=Policy(minimum=3, dropout=0.3, colluding=0.1))
    before, first = everyone.federation, list(everyone.lists)
    amend(everyone, Policy(minimum=3, dropout=0.1, colluding=0.1))
    everyone.lists.append(everyone.members(everyone.names[:5]))
    name = everyone.names[0]
    identity, new = everyone.identities[name], everyone.lists[1:]
    ledger = everyone.clients[name].ledger
    with pytest.raises(PolicyError, match="If the federation was amended meanwhile, join with its"):
        check_adoption(name, identity, before, first, new, ledger, False)
    check_amended_adoption(name, identity, before, everyone.federation, first, new, ledger, False)
