"""What a server's page says: the sum and the model, the rounds, the members, the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedforget.cli.charts import Cluster, Column, Columns, LossCurve, columns
from fedforget.cli.log_rows import (
    Presence,
    RoundRow,
    epochs_of,
    presences,
    rounds_of,
    trouble,
)
from fedforget.cli.pictures import Checked, Picture, spread_around
from fedforget.clustering.distance import nearest
from fedforget.parties.disclosure import DisclosurePart
from fedforget.parties.log import LogError
from fedforget.parties.server_party import ServerParty
from fedforget.parties.times import Limits, Missing, overdue_texts, server_times
from fedforget.protocol.graph import Thresholds
from fedforget.protocol.membership import Membership
from fedforget.wall_clock import utc_now

MOST_ROUNDS = 100


@dataclass(frozen=True)
class MemberRow:
    """A member, its state, and when it took part last."""

    name: str
    key: str
    state: str
    counted: int | None
    last: Presence
    is_missing: bool


@dataclass(frozen=True)
class Rules:
    """What clients report and the server publishes, and how many must be there."""

    disclosure: DisclosurePart | None
    thresholds: Thresholds | None
    deadline: float


def server_values(
    party: ServerParty, check: Checked | None = None, curve: LossCurve | None = None
) -> dict[str, Any]:
    """The values of the template ``server.html``; without a check, an audit is made now."""
    status, log, lists = party.status(), party.log(), party.lists()
    listed = lists[-1] if lists else None
    rounds = rounds_of(log)
    recent = rounds[-MOST_ROUNDS:]
    times = server_times(party, utc_now(), Limits())
    members = _members(listed, status, rounds, times.missing)
    return {
        "name": party.federation.name,
        "identifier": party.federation.identifier,
        "status": status,
        "check": check or server_check(party),
        "picture": _picture(party) if status["clusters"] else None,
        "features": party.counted_with.features,
        "published_step": party.model_config.published_step,
        "rounds": recent,
        "left_out": len(rounds) - len(recent),
        "charts_of_rounds": charts_of(recent, party.config.published_step is None),
        "trouble": trouble(log)[-MOST_ROUNDS:],
        "listed": listed,
        "members": members,
        "missing": [one for one in members if one.is_missing],
        "epochs": epochs_of(log),
        "rules": _rules(party, listed),
        "curve": curve,
        "overdue": overdue_texts(times),
        # Those with an attempt are in the log, and so in "trouble".
        "failed": [one for one in times.failed if "attempt" not in one],
    }


def server_check(party: ServerParty) -> Checked:
    """What an audit says."""
    try:
        result = party.audit()
    except LogError as error:
        return Checked(False, str(error))
    if result["problems"]:
        return Checked(False, "; ".join(result["problems"]))
    words = "the log's chain and signatures fit"
    if result["rounds"]:
        words += "; the model is the one that follows from the sum"
    return Checked(True, words)


def charts_of(rounds: Sequence[RoundRow], shows_bins: bool) -> list[Columns]:
    """Who took part in each round, and how many bins of the sum it changed if that may be seen."""

    def column(row: RoundRow, height: int, missing: int, what: str) -> Column:
        number, day = str(row.body["round"]), row.date
        colour = "c1" if row.body["kind"] == "full" else "c0"
        return Column(height, number, day, colour, missing, f"round {number}, {day}: {what}")

    charts = [
        columns(
            "Members who took part, by round",
            [
                column(row, row.present, len(row.absent), f"{row.present} of {row.expected}")
                for row in rounds
            ],
        )
    ]
    if shows_bins:
        changed = [int(row.body.get("changed_bins", 0)) for row in rounds]
        charts.append(
            columns(
                "Bins of the sum that changed, by round",
                [
                    column(row, bins, 0, f"{bins:,} bins")
                    for row, bins in zip(rounds, changed, strict=True)
                ],
            )
        )
    return charts


def _members(
    listed: Membership | None,
    status: dict[str, Any],
    rounds: Sequence[RoundRow],
    missing: Sequence[Missing],
) -> list[MemberRow]:
    """Those first who were missing in the last rounds."""
    if listed is None:
        return []
    last = presences(list(listed.position), rounds)
    lacking = {one.name: one for one in missing}
    # A newcomer has missed all rounds there were.
    missed = {one.name: len(rounds) if one.rounds is None else one.rounds for one in missing}
    rows = []
    for one in listed.members:
        state = "suspended" if one.suspended else "takes part"
        if one.name in lacking:
            state = _state_of(lacking[one.name])
        counted, is_missing = status["counted"].get(one.name), one.name in lacking
        rows.append(MemberRow(one.name, one.key.hex(), state, counted, last[one.name], is_missing))
    return sorted(rows, key=lambda row: -missed.get(row.name, 0))


def _state_of(missing: Missing) -> str:
    if missing.rounds is None:
        return "missing since it came"
    rounds = "round" if missing.rounds == 1 else f"{missing.rounds} rounds"
    return f"missing in the last {rounds}"


def _rules(party: ServerParty, listed: Membership | None) -> Rules:
    federation = party.federation
    thresholds = None if listed is None else federation.policy().thresholds(len(listed))
    return Rules(federation.disclosure, thresholds, federation.protocol.deadline)


def _picture(party: ServerParty) -> Picture:
    """The model among the bins of the sum; alone, where only the published one may be seen."""
    config, aggregate, model = party.model_config, party.aggregate(), party.model()
    bins, counts = aggregate.points(), aggregate.counts()
    marks, centres = config.centres_of(model)
    sizes = party.sizes()
    clusters = [Cluster(number, size) for number, size in enumerate(sizes)]
    if config.published_step is not None:
        # The spread would tell of the sum what the published centres do not.
        numbers = np.arange(len(sizes), dtype=np.int32)
        return Picture(clusters, centres, marks, marks, np.array(sizes, dtype=np.int64), numbers)
    places, values = config.grid.from_units(config.grid.units_of_bins(bins))
    labels = nearest(config.coordinates_of(bins), model.centres)[0]
    spread = spread_around(values, counts, labels, len(sizes))
    return Picture(clusters, centres, marks, places, counts, labels, spread)
