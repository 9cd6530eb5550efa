"""How many clusters? What several numbers of clusters give, side by side, and a reasoned hint.

Nothing here runs K-means: runs come in, a table comes out.  Sizes below the least that may be shown
never get into it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np

from fedforget.arrays import Floats, Ints, Labels

STEADY = 0.8
"""Restarts that agree this well on average found the same clusters (Steinley, 2004: "good")."""


def adjusted_rand(one: Labels, other: Labels, weights: Ints | None = None) -> float:
    """The adjusted Rand index of two clusterings of the same points (Hubert and Arabie, 1985).

    A point of weight w counts as w records.  1 means equal clusterings, 0 what chance gives.  The
    sums are exact and divided once, so the order of points and the names of clusters do not show.

    >>> adjusted_rand(np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0]))
    1.0
    """
    width = int(other.max(initial=0)) + 1
    cells = one.astype(np.int64) * width + other
    # Totals stay below 2^53, so sums of weights in floating point are exact.
    table = np.bincount(cells, weights, minlength=0).astype(np.int64)
    table = np.pad(table, (0, -len(table) % width)).reshape(-1, width)
    together = _pairs(table)
    rows, columns = _pairs(table.sum(axis=1)), _pairs(table.sum(axis=0))
    everything = _pairs(table.sum(keepdims=True))
    # (together - expected) / ((rows + columns) / 2 - expected), times 2 * everything.
    above = 2 * (together * everything - rows * columns)
    below = (rows + columns) * everything - 2 * rows * columns
    return above / below if below else 1.0


def _pairs(counts: Ints) -> int:
    """The number of pairs of records within the same cell."""
    return sum(count * (count - 1) // 2 for count in counts.ravel().tolist() if count)


def agreement_of(labels: Sequence[Labels], weights: Ints | None = None) -> float | None:
    """The mean adjusted Rand index over all pairs of restarts; None with a single restart."""
    found = [adjusted_rand(one, other, weights) for one, other in combinations(labels, 2)]
    return math.fsum(found) / len(found) if found else None


class Trial(NamedTuple):
    """What K-means came to with one number of clusters.

    Attributes
    ----------
    n_clusters : the number asked for.
    loss : sum of squared distances of all records to their centres.
    sizes : records of each cluster that was found.
    agreement : that of :func:`agreement_of`.
    """

    n_clusters: int
    loss: float
    sizes: Ints
    agreement: float | None


@dataclass(frozen=True)
class ChoiceRow:
    """One number of clusters, and what speaks for and against it.

    Attributes
    ----------
    n_clusters, found : the number asked for, and how many there are (fewer where there are fewer
        distinct points).
    loss : sum of squared distances of all records to their centres.
    decrease : by what share the loss is lower than with the next smaller number looked at (for the
        smallest, than with one cluster less); None where there is nothing to compare with.
    agreement : mean adjusted Rand index between restarts; None with a single restart.
    smallest : records of the smallest cluster; None where they are fewer than may be shown.
    too_small : how many clusters have fewer records than may be shown.
    """

    n_clusters: int
    found: int
    loss: float
    decrease: float | None
    agreement: float | None
    smallest: int | None
    too_small: int

    @property
    def complies(self) -> bool:
        """Whether every cluster may be shown with its size."""
        return self.too_small == 0


class Suggestion(NamedTuple):
    """The number of clusters that the table suggests, or None, and the reason."""

    n_clusters: int | None
    reason: str


@dataclass(frozen=True)
class Choices:
    """Numbers of clusters side by side, the smallest first.  ``min_cell`` is what may be shown."""

    rows: tuple[ChoiceRow, ...]
    min_cell: int = 1

    @property
    def suggested(self) -> Suggestion:
        """The number at which the loss stops falling steeply, with the reason; it is only
        suggested."""
        return suggestion_of(self)

    def smallest_in_words(self, row: ChoiceRow) -> str:
        """The size of a row's smallest cluster as it may be shown."""
        return f"<{self.min_cell}" if row.smallest is None else str(row.smallest)

    def columns(self) -> list[tuple[str, ...]]:
        """The table as text, a heading first."""
        lines: list[tuple[str, ...]] = [
            ("clusters", "loss", "decrease", "agreement", "smallest", "rules")
        ]
        for row in self.rows:
            few = "" if row.found == row.n_clusters else f" ({row.found} found)"
            kept = "kept" if row.complies else f"{row.too_small} too small"
            shares = (_percent(row.decrease), _two_digits(row.agreement))
            smallest = self.smallest_in_words(row)
            lines.append((f"{row.n_clusters}{few}", f"{row.loss:.6g}", *shares, smallest, kept))
        return lines

    def __str__(self) -> str:
        lines = self.columns()
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        shown = [
            "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
            for line in lines
        ]
        return "\n".join([*shown, in_words(self.suggested)])


def in_words(suggestion: Suggestion) -> str:
    """A suggestion as a sentence."""
    if suggestion.n_clusters is None:
        return f"No number is suggested: {suggestion.reason}."
    return f"Suggested, not taken: {suggestion.n_clusters} clusters. {suggestion.reason}."


def runs_for(wanted: Sequence[int]) -> list[int]:
    """The sorted numbers to be run, for which choices are wanted.

    Also the one before the smallest, to tell what the smallest gains.

    >>> runs_for([3, 5]), runs_for([1, 2])
    ([2, 3, 5], [1, 2])
    """
    return [*wanted] if wanted[0] == 1 else [wanted[0] - 1, *wanted]


def choices_among(found: Mapping[int, Trial], wanted: Sequence[int], min_cell: int = 1) -> Choices:
    """The wanted numbers beside each other, of all that were run."""
    return choices_of(found.get(wanted[0] - 1), [found[one] for one in wanted], min_cell)


def choices_of(before: Trial | None, found: Sequence[Trial], min_cell: int = 1) -> Choices:
    """The table of runs with growing numbers of clusters.

    ``before`` is the run with one cluster less than the first, if there is one.
    """
    rows = []
    for last, one in pairwise([before, *found]):
        assert one is not None
        small = int(np.count_nonzero(one.sizes < min_cell))
        shown = int(one.sizes.min()) if len(one.sizes) and not small else None
        rows.append(
            ChoiceRow(
                one.n_clusters,
                len(one.sizes),
                one.loss,
                None if last is None or not last.loss else 1.0 - one.loss / last.loss,
                one.agreement,
                shown,
                small,
            )
        )
    return Choices(tuple(rows), min_cell)


def suggestion_of(choices: Choices) -> Suggestion:
    """Where the loss bends most, among numbers that keep the rules and whose restarts agree.

    The *bend* at a number is by how much the logarithm of the loss falls with it, over by how much
    it falls with the next one.  The last number has no next one, so it cannot be judged.  Of equals
    the smaller number is taken.
    """
    rows = choices.rows
    if len(rows) < 2:
        return Suggestion(None, "more than one number is needed to compare")
    judged = [(row, after) for row, after in pairwise(rows) if row.decrease is not None]
    kept = [pair for pair in judged if pair[0].complies and pair[0].found == pair[0].n_clusters]
    if not kept:
        return Suggestion(
            None, "no number of clusters gives every cluster as many records as the rules ask for"
        )
    steady = [pair for pair in kept if pair[0].agreement is None or pair[0].agreement >= STEADY]
    if not steady:
        return Suggestion(
            None,
            f"restarts do not agree well (at least {STEADY} on average) for any number of clusters,"
            " so the clusters found depend on chance",
        )
    row, after = max(steady, key=lambda pair: (_bend(*pair), -pair[0].n_clusters))
    agree = "" if row.agreement is None else f"; its restarts agree ({row.agreement:.2f})"
    return Suggestion(
        row.n_clusters,
        f"The loss falls by {_percent(row.decrease)} with {row.n_clusters} clusters, and by"
        f" {_percent(after.decrease)} more with {after.n_clusters}{agree}",
    )


def _bend(row: ChoiceRow, after: ChoiceRow) -> float:
    gained, next_gained = _fall(row), _fall(after)
    if gained <= 0.0:
        return 0.0
    return gained / next_gained if next_gained > 0.0 else math.inf


def _fall(row: ChoiceRow) -> float:
    """By how much the logarithm of the loss falls.

    Shares would make little of the step that halves the loss four times: it has 94 %, and one that
    halves it once 50 %.
    """
    share = row.decrease or 0.0
    return -math.log1p(-share) if share < 1.0 else math.inf


def _percent(share: float | None) -> str:
    return "—" if share is None else f"{100 * share:.1f} %"


def _two_digits(value: float | None) -> str:
    return "—" if value is None else f"{value:.2f}"


def squared_loss(weights: Ints, d2: Floats) -> float:
    """The weighted sum of squared distances, correctly rounded."""
    return math.fsum((weights * d2).tolist())
