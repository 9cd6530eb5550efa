"""How far the clusters of a federation move from round to round.

Only the published centres of the latest round are kept for this, in memory: an old model is a copy
of what was forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedforget.arrays import Floats
from fedforget.cli.charts import Cluster
from fedforget.clustering.distance import nearest
from fedforget.clustering.matching import number_like
from fedforget.parties.server_party import ServerParty


@dataclass(frozen=True)
class Centres:
    """The published centres after a round.

    Attributes
    ----------
    round, time : the round, and when it was committed.
    marks : (k, d) the centres in the clustered space.
    values : (k, d) the same in the features' units.
    """

    round: int
    time: str
    marks: Floats
    values: Floats


@dataclass(frozen=True)
class Move:
    """A cluster that has moved, in the feature in which it moved most, as a part of its range."""

    cluster: Cluster
    feature: str
    share: float


@dataclass(frozen=True)
class DriftRow:
    """What one round, or several that came together, have moved.

    Attributes
    ----------
    round : the round, or the first and the last of several.
    most : the cluster that moved most; None if none did, or they cannot be compared.
    average : the mean of what the clusters moved, each in its own feature.
    changed : share of the records counted now whose nearest cluster is another one than before.
    words : why there is nothing to tell.
    """

    round: str
    time: str
    most: Move | None = None
    average: float = 0.0
    changed: float = 0.0
    words: str = ""


def centres_now(party: ServerParty, time: str) -> Centres:
    """The published centres of a server that has a model."""
    marks, values = party.centres()
    return Centres(party.ledger().place.round, time, marks, values)


def drift(before: Centres, after: Centres, party: ServerParty) -> DriftRow:
    """What has moved between two rounds, the later of which is the server's last."""
    first, last = before.round + 1, after.round
    number = str(last) if first == last else f"{first}–{last}"
    if before.values.shape != after.values.shape:
        words = "the federation has another number of clusters or features than before"
        return DriftRow(number, after.time, words=words)
    known = np.arange(len(before.marks))
    partner = number_like(before.marks, known, after.marks).numbers
    features = party.counted_with.features
    ranges = np.array([one.high - one.low for one in features])
    moved = np.abs(after.values - before.values[partner])
    shares = np.divide(moved, ranges, out=np.zeros_like(moved), where=ranges > 0)
    largest = shares.max(axis=1)
    cluster, feature = np.unravel_index(int(shares.argmax()), shares.shape)
    if not largest.max():
        return DriftRow(number, after.time, words="no centre has moved")
    sizes = party.sizes()
    return DriftRow(
        number,
        after.time,
        Move(
            Cluster(int(cluster), sizes[int(cluster)]),
            features[int(feature)].name,
            float(largest.max()),
        ),
        float(largest.mean()),
        _changed(before.marks[partner], after.marks, party),
    )


def _changed(before: Floats, after: Floats, party: ServerParty) -> float:
    """Share of the counted records that are nearest to another cluster than before."""
    aggregate = party.aggregate()
    counts = aggregate.counts()
    if not counts.sum():
        return 0.0
    points = party.model_config.clustered_of(aggregate.points())
    differ = nearest(points, before)[0] != nearest(points, after)[0]
    return float(counts[differ].sum() / counts.sum())


def latest_time(rounds: Sequence[dict[str, str]]) -> str:
    """When the last round of a log was committed."""
    times = [entry["time"] for entry in rounds if entry["kind"] == "round"]
    return times[-1] if times else ""
