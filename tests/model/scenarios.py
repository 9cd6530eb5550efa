"""What is explored: small scenarios for every run of the tests, large ones for ``make model``.

Names stand for roles: members are alike, so one of them may be taken as the colluder, one as the
member that is restored, and so on, without loss of generality.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from model.operators import Plan
from model.rules import NOBODY, Set, Wishes
from model.world import SAME, Change, Scenario


def some(*members: int) -> Set:
    return frozenset(members)


def change(what: str, *who: int) -> Change:
    return Change(what, some(*who))


def commands(members: int, *more: Change) -> tuple[Change, ...]:
    """What operators may do to each member, one at a time."""
    what = ("suspend", "resume", "drop")
    single = tuple(change(word, member) for word in what for member in range(members))
    return (*single, SAME, *more)


LISTS = (
    SAME,
    change("suspend", 2),
    change("suspend", 3),
    change("resume", 2),
    change("drop", 2),
    change("drop", 3),
)
JOIN = change("join", 3, 4, 5)
THREE = Scenario("three members, the first rounds", 3, False, some(2), attempts=4, places=4)
FOUR = Scenario("four members", 4, colluding=some(3), recovers=True)
FOUR_NEW = Scenario("four members, nothing counted yet", 4, False, some(3), attempts=3)
FOUR_LISTS = Scenario(
    "four members, any new list", 4, colluding=some(3), changes=LISTS, lists=1, places=1
)
# Two of four could not be tolerated: four must sign, and three may end a round.
FIVE_TWO = Scenario("five members, two of whom collude", 5, colluding=some(3, 4), tolerated=2)
FOUR_SAME = Scenario(
    "four members, a needless list", 4, colluding=some(3), changes=(SAME,), lists=1
)
JOINING = Scenario(
    "three members and three newcomers",
    3,
    colluding=some(2),
    newcomers=some(3, 4, 5),
    changes=(JOIN, SAME),
    lists=1,
    places=1,
)
FIVE_LEAVE = Scenario(
    "five, three of whom want to leave", 5, colluding=some(4), wishes=Wishes(some(1, 2, 3))
)
SIX_LEAVE = Scenario(
    "six, four of whom want to leave",
    6,
    colluding=some(5),
    wishes=Wishes(some(1, 2, 3, 5)),
    places=1,
    all_sign=True,
)
RESTORED = Scenario("three members, one restored", 3, restorable=0, recovers=True, places=1)
# Three sums under three lists at one place.
IN_TURN = Scenario(
    "four members, suspended one after the other",
    4,
    colluding=some(3),
    changes=(change("suspend only", 0), change("suspend only", 1)),
    attempts=3,
    lists=2,
    places=1,
    all_sign=True,
    together=True,
)
BACK_AGAIN = Scenario(
    "four members, one is suspended and comes back",
    4,
    colluding=some(3),
    changes=(change("suspend only", 0), change("suspend only")),
    attempts=3,
    lists=2,
    places=1,
    all_sign=True,
    together=True,
)
# A list hides who was to leave in a sum that was begun.
HIDDEN = Scenario(
    "six, two of whom would leave alone, two are dropped",
    6,
    colluding=some(0),
    wishes=Wishes(some(1, 2), some(1, 2)),
    leavings=(NOBODY, some(1, 2)),
    changes=(change("drop", 4, 5),),
    lists=1,
    places=1,
    together=True,
    silent=True,
)
NO_SIGNER = Scenario(
    "six, one of whom would leave alone, three are dropped",
    6,
    colluding=some(0),
    wishes=Wishes(some(1), some(1)),
    changes=(change("drop", 3, 4, 5),),
    lists=1,
    places=1,
    together=True,
    silent=True,
)
# 5 has a key of the server's own; its line goes to an honest newcomer.
PASSED_ON = Scenario(
    "three members, and a newcomer's line is passed on",
    3,
    colluding=some(5),
    newcomers=some(3, 4, 6),
    changes=(JOIN, Change("pass on", some(6), 5)),
    lists=2,
    places=1,
    together=True,
    silent=True,
)

#: Searched completely in every run of the tests.
SMALL = (
    THREE,
    FOUR,
    FOUR_NEW,
    FOUR_LISTS,
    FOUR_SAME,
    FIVE_TWO,
    JOINING,
    FIVE_LEAVE,
    SIX_LEAVE,
    RESTORED,
    IN_TURN,
    BACK_AGAIN,
    HIDDEN,
    NO_SIGNER,
    PASSED_ON,
)

#: Searched by ``make model``, as far as the bound on states allows.
LARGE = (
    Scenario("four members, three attempts", 4, colluding=some(3), attempts=3),
    Scenario("four members, four attempts at one place", 4, True, some(3), attempts=4, places=1),
    Scenario("four members, any list", 4, colluding=some(3), changes=LISTS, lists=1),
    Scenario(
        "five members, two of whom collude, any list",
        5,
        colluding=some(3, 4),
        tolerated=2,
        changes=LISTS,
        lists=1,
        places=1,
    ),
    Scenario("six members, two of whom collude", 6, colluding=some(4, 5), tolerated=2, places=1),
    Scenario(
        "five members, two of whom collude, suspended one after the other",
        5,
        colluding=some(3, 4),
        tolerated=2,
        changes=(change("suspend only", 0), change("suspend only", 1)),
        attempts=3,
        lists=2,
        places=1,
        all_sign=True,
        together=True,
    ),
    Scenario("four, no colluder, any list", 4, changes=LISTS, lists=1, places=1),
    Scenario(
        "four members, nothing counted yet, two lists", 4, False, some(3), changes=LISTS, lists=2
    ),
    Scenario(
        "four members, two lists at one place",
        4,
        colluding=some(3),
        changes=LISTS,
        lists=2,
        attempts=2,
        places=1,
    ),
    Scenario(
        "four members, a needless list, three attempts",
        4,
        colluding=some(3),
        changes=(SAME,),
        lists=1,
        attempts=3,
        places=2,
    ),
    Scenario(
        "five members, two are dropped",
        5,
        colluding=some(2),
        changes=(change("drop", 3), change("drop", 4), change("drop", 3, 4)),
        lists=2,
        together=True,
        places=1,
    ),
    Scenario(
        "three members and newcomers, two lists",
        3,
        colluding=some(2),
        newcomers=some(3, 4, 5),
        changes=(JOIN, change("drop", 5), change("suspend", 4), SAME),
        lists=2,
        places=1,
        together=True,
    ),
    Scenario(
        "three members and newcomers, one of whom colludes",
        3,
        colluding=some(5),
        newcomers=some(3, 4),
        changes=(JOIN, change("drop", 3), SAME),
        lists=2,
        together=True,
    ),
    Scenario(
        "one member joins alone, by its own word",
        3,
        colluding=some(2),
        newcomers=some(3),
        wishes=Wishes(alone=some(3)),
        changes=(change("join", 3), SAME),
        lists=2,
    ),
    Scenario(
        "six, four of whom want to leave, a needless list",
        6,
        colluding=some(5),
        wishes=Wishes(some(1, 2, 3, 5)),
        changes=(SAME,),
        lists=1,
        places=1,
        all_sign=True,
        together=True,
    ),
    Scenario(
        "six, three of whom leave and are dropped",
        6,
        colluding=some(5),
        wishes=Wishes(some(1, 2, 3)),
        changes=(change("drop", 1, 2, 3),),
        lists=1,
        together=True,
        all_sign=True,
    ),
    Scenario("three, one restored", 3, restorable=0, recovers=True, attempts=3),
    Scenario(
        "three, one restored, nothing counted yet",
        3,
        False,
        restorable=0,
        recovers=True,
        attempts=3,
    ),
    Scenario(
        "three, one restored, a needless list",
        3,
        restorable=0,
        recovers=True,
        changes=(SAME,),
        lists=1,
        places=1,
    ),
    Scenario("four, one restored", 4, restorable=0, recovers=True, places=1),
    Scenario(
        "four members, suspended one after the other, any three signers",
        4,
        colluding=some(3),
        changes=(change("suspend only", 0), change("suspend only", 1), change("suspend only")),
        attempts=3,
        lists=2,
        places=1,
        together=True,
        silent=True,
    ),
    replace(PASSED_ON, name=f"{PASSED_ON.name}, with notices", silent=False),
)

#: More bad members than c: the rules must fail, and do.
TOO_MANY = Scenario(
    "four members, one restored and one colluding", 4, True, some(3), restorable=0, places=1
)


class Needed(NamedTuple):
    """A scenario that goes wrong without a rule, and other rules that would catch it as well."""

    scenario: Scenario
    also_off: tuple[str, ...] = ()


ALONE = Scenario(
    "a newcomer alone", 4, True, some(3), some(4), changes=(change("join", 4),), lists=1
)
ALONE_NEW = Scenario(
    "a newcomer before the first notice",
    4,
    False,
    some(3),
    some(4),
    changes=(change("join", 4),),
    lists=1,
)
SUSPEND = Scenario(
    "one is suspended", 4, colluding=some(2), changes=(change("suspend", 3),), lists=1
)
SUSPEND_NEW = Scenario(
    "one is suspended before the first notice",
    4,
    False,
    some(2),
    changes=(change("suspend", 3),),
    lists=1,
)
DROP = Scenario("one is dropped", 4, colluding=some(2), changes=(change("drop", 3),), lists=1)
LEAVE_ONE = Scenario(
    "one wants to leave",
    4,
    colluding=some(3),
    wishes=Wishes(some(1)),
    changes=(change("drop", 1),),
    lists=1,
    together=True,
)
TORN = Scenario(
    "one of three newcomers is dropped",
    3,
    colluding=some(5),
    newcomers=some(3, 4),
    changes=(JOIN, change("drop", 3)),
    lists=2,
    together=True,
    all_sign=True,
)
SIX_LISTS = Scenario(
    "leavers under two lists",
    6,
    colluding=some(5),
    wishes=Wishes(some(1, 2, 3, 5)),
    changes=(SAME,),
    lists=1,
    places=1,
    all_sign=True,
    together=True,
)
LIES = Scenario("notices that lie", 4, colluding=some(3), lies=True)
RESTORE = Scenario("one is restored", 3, restorable=0, attempts=3)

NEEDED = {
    "lock_at_consent": Needed(FOUR),
    "locks": Needed(FOUR),
    "full_keeps_the_lock": Needed(FOUR),
    "lock_names_leavers": Needed(SIX_LEAVE),
    "link_in_context": Needed(FOUR, ("notice_in_context",)),
    "notice_in_context": Needed(RESTORE),
    "counted_recomputed": Needed(LIES),
    "colluders_in_quorum": Needed(Scenario("five members", 5, colluding=some(4))),
    "joint_quorum": Needed(JOINING),
    "list_names_link": Needed(FOUR_SAME),
    "right_list": Needed(FOUR_SAME),
    "keys_in_notice": Needed(RESTORE),
    "superset_across_lists": Needed(FOUR_SAME),
    "leavers_across_lists": Needed(SIX_LISTS, ("leavers_named", "parted_apart")),
    "stop_without_input": Needed(RESTORE),
    "thresholds_from_list": Needed(FOUR),
    "full_of_everybody": Needed(FOUR),
    "no_full_beside_suspended": Needed(SUSPEND),
    "delta_of_counted": Needed(JOINING),
    "no_delta_beside_dropped": Needed(DROP),
    "joiners_in_groups": Needed(ALONE, ("companions_kept",)),
    "joiners_by_list": Needed(ALONE_NEW, ("companions_kept",)),
    "companions_kept": Needed(TORN),
    "leavers_named": Needed(HIDDEN),
    "parted_apart": Needed(HIDDEN),
    "few_in_every_sum": Needed(IN_TURN),
    "few_beside_absent": Needed(BACK_AGAIN),
    "signers_stay": Needed(NO_SIGNER),
    "lines_end_with_sums": Needed(PASSED_ON),
    "suspend_counted_only": Needed(SUSPEND_NEW),
    "leaver_waits_for_group": Needed(LEAVE_ONE, ("leavers_survive_in_groups", "companions_kept")),
    "leavers_survive_in_groups": Needed(LEAVE_ONE, ("companions_kept",)),
    "enough_stay": Needed(SIX_LEAVE),
    "fixed_at_advertise": Needed(RESTORE),
}

# Under an honest server

VANISH = Plan("four members, any may vanish", 4, commands=commands(4))
LEAVES = Plan(
    "four, one wishes to leave", 4, leaving=some(1), attempts=1, lists=0, commands=commands(4)
)
LIVE_SMALL = (
    Plan("three members", 3, commands=commands(3)),
    Plan("four members, any may vanish", 4, commands=commands(4), lists=0),
    Plan("four, nothing counted yet", 4, False, commands=commands(4), lists=0),
    Plan("three, one restored", 3, restorable=0, forgets=True, commands=commands(3), lists=0),
    Plan(
        "four, one restored",
        4,
        restorable=0,
        forgets=True,
        attempts=1,
        lists=0,
        commands=commands(4),
    ),
    Plan("four, one spoils", 4, spoiler=3, lists=0, commands=commands(4)),
    Plan(
        "three, one spoils, three may join",
        3,
        newcomers=some(3, 4, 5),
        spoiler=2,
        alone=some(0, 1),
        lists=0,
        commands=commands(3, JOIN),
    ),
    LEAVES,
    Plan(
        "four, one wishes to leave alone",
        4,
        leaving=some(1),
        alone=some(1),
        lists=0,
        commands=commands(4),
    ),
)
LIVE_LARGE = (
    # After a second list without a commit those who are left are asked for --alone.
    Plan(
        "four, any may vanish, one list",
        4,
        alone=some(0, 1, 2, 3),
        changes=commands(4),
        commands=commands(4),
    ),
    Plan(
        "four, one spoils, one list",
        4,
        alone=some(0, 1, 2, 3),
        spoiler=3,
        changes=commands(4),
        commands=commands(4),
    ),
    Plan(
        "three, one restored, three attempts",
        3,
        True,
        restorable=0,
        forgets=True,
        attempts=3,
        lists=0,
        commands=commands(3),
    ),
    Plan(
        "four, one restored, two attempts",
        4,
        True,
        restorable=0,
        forgets=True,
        lists=0,
        commands=commands(4),
    ),
    Plan(
        "three members and newcomers",
        3,
        newcomers=some(3, 4, 5),
        attempts=1,
        changes=(JOIN,),
        commands=commands(6),
    ),
    Plan(
        "three, one wishes to leave, three may join",
        3,
        newcomers=some(3, 4, 5),
        leaving=some(1),
        alone=some(0, 1, 2),
        attempts=1,
        lists=0,
        commands=commands(3, JOIN),
    ),
)
#: Rules without which members get stuck or a record comes back.
LIVE_NEEDED = {
    "others_sets_followed": VANISH,
    "leavers_wait": LEAVES,
    "stop_without_input": Plan(
        "three, one restored", 3, restorable=0, forgets=True, lists=0, commands=commands(3)
    ),
}
