"""How the clients' changes become one sum: in the clear, or through the code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from fedforget.clustering.histogram import Histogram
from fedforget.configuration import Configuration
from fedforget.scma import Codec, DecodeError, add, next_capacity

Sum = Callable[[Sequence[Histogram], int], Histogram]
"""Takes every client's change, and the most points that their sum can have, to the sum."""

FIRST_CAPACITY = 16
"""Different points for which the vector of a change has room at first."""


class PlainSum:
    """Adds histograms up in the clear."""

    def __init__(self, config: Configuration) -> None:
        self._n_features = config.grid.n_features

    def __call__(self, changes: Sequence[Histogram], most: int) -> Histogram:
        return Histogram.sum(self._n_features, changes)


class CodedSum:
    """Adds the clients' encodings up and decodes the sum, without masks.

    A change is small as a rule, so the vectors are short at first; where the sum does not fit, the
    clients encode again for twice as many points.
    """

    def __init__(self, config: Configuration) -> None:
        self._codec = Codec(
            config.grid.levels,
            FIRST_CAPACITY,
            salt=config.public_seed.derive("scma salt").data,
        )
        self._n_features = config.grid.n_features

    def __call__(self, changes: Sequence[Histogram], most: int) -> Histogram:
        if not changes:
            return Histogram(self._n_features)
        # Whoever sends that much at once, as in a first round, need not start small.
        capacity = min(max(FIRST_CAPACITY, *map(len, changes)), most)
        while True:
            codec = self._codec.with_capacity(capacity)
            vectors = (codec.encode(change.points(), change.counts()) for change in changes)
            try:
                return Histogram.of(*codec.decode(reduce(add, vectors)))
            except DecodeError as error:
                capacity = next_capacity(error, capacity, most)


SUMS: dict[str, Callable[[Configuration], Sum]] = {
    "plain": PlainSum,
    "scma": CodedSum,
    "centroids": PlainSum,
}
"""How each ``aggregation`` adds up."""
