"""Forgetting by replay: the model of changed points from the trajectories of the old run.

The points are the bins of an aggregate, at the server, or the records of one owner.

A full run keeps, for each restart, the race's winners with their scores and, for each assignment of
Lloyd's iteration, the labels, the exact integer sums, and what tells whether a label can change:

* *margins*, by how much a point's own centre is nearer than any other.  They last until the
  centres have moved by as much, and most rows of most changes touch a short list of points alone;
* or, where features and clusters are many, so that margins are small and dear, *estimates* of
  every point's distance to every centre, which follow a change by inner products;
* or, where a server has so many bins that estimates of all rows take up too much memory or time,
  *columns* of estimates that follow the run from row to row.

Where these do not tell the nearest centre for certain, the exact kernel does.  The result is that
of a full run, bit for bit.  docs/replay.md explains the steps, docs/math.md has the proof.

What is kept is a cache.  Its memory is bounded, it is never saved, and losing it costs time only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedforget.lazy import names_from

if TYPE_CHECKING:
    from fedforget.clustering.replay.engine import Work
    from fedforget.clustering.replay.following import ReplayingServer
else:
    # They load numba.
    __getattr__ = names_from(
        __name__,
        {
            "ReplayingServer": "fedforget.clustering.replay.following",
            "Work": "fedforget.clustering.replay.engine",
        },
    )

__all__ = ["ReplayingServer", "Work"]
