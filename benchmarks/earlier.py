"""Figures of an earlier run, which ``page.py`` shows beside those of the last one."""

from __future__ import annotations

from typing import NamedTuple

COMMIT = "8171ce078"
"""The commit of that run; it was made on the same kind of machine."""


class Earlier(NamedTuple):
    """A figure: what it is, where a run has it, and what it was."""

    what: str
    script: str
    row: str
    figure: str
    was: float


BLOBS = "blobs 1,000,000"

SPEEDS = (
    Earlier("seeding, Celltype", "seeding", "celltype", "seeding_speed_up", 9.4),
    Earlier("seeding, Covtype", "seeding", "covtype", "seeding_speed_up", 6.2),
    Earlier("seeding, Gaussian", "seeding", "gaussian", "seeding_speed_up", 12.0),
    Earlier("seeding, MNIST", "seeding", "femnist", "seeding_speed_up", 45.0),
    Earlier("`SeededKMeans.fit`, Celltype", "seeding", "celltype", "fit_speed_up", 3.1),
    Earlier("`SeededKMeans.fit`, Covtype", "seeding", "covtype", "fit_speed_up", 3.2),
    Earlier("`SeededKMeans.fit`, Gaussian", "seeding", "gaussian", "fit_speed_up", 3.8),
    Earlier("`SeededKMeans.fit`, MNIST", "seeding", "femnist", "fit_speed_up", 6.4),
    Earlier("server's replay, Celltype", "replay", "celltype", "replay_speed_up", 22.0),
    Earlier("server's replay, Covtype", "replay", "covtype", "replay_speed_up", 30.0),
    Earlier("server's replay, Gaussian", "replay", "gaussian", "replay_speed_up", 23.0),
    Earlier("server's replay, MNIST", "replay", "femnist", "replay_speed_up", 55.0),
    Earlier("server's replay, 12,400 bins", "many-bins", "many-bins", "replay_speed_up", 13.0),
    Earlier("`KMeans.forget`, Gaussian", "lloyd", "gaussian", "forget_speed_up", 9.4),
    Earlier("`KMeans.forget`, MNIST", "lloyd", "femnist", "forget_speed_up", 26.0),
    Earlier("`KMeans.forget`, 10⁶ blobs", "lloyd", BLOBS, "forget_speed_up", 1131.0),
    Earlier(
        "`KMeans.forget`, mean of the eight", "lloyd", "geometric mean", "forget_speed_up", 65.0
    ),
    Earlier("decoding, T = 400", "scma", "T = 400", "flint_speed_up", 28.0),
    Earlier("decoding, T = 6,200", "scma", "T = 6,200", "flint_speed_up", 173.0),
)
"""How many times faster than what it is compared with."""

SECONDS = (
    Earlier("secure sum of 100 clients", "securesum", "100 clients", "full_seconds", 0.91),
    Earlier(
        "compiling everything, processor time",
        "coldstart",
        "warm-up, empty cache",
        "processor_seconds",
        28.0,
    ),
    Earlier("`client status`", "coldstart", "client status", "seconds", 0.28),
    Earlier(
        "`client forget`, one record",
        "coldstart",
        "client forget, an ordinary record",
        "seconds",
        0.27,
    ),
)

SHARES = (
    Earlier("memory of `KMeans.fit`, of X", "lloyd", BLOBS, "fit_memory", 3.93),
    Earlier("memory of `SeededKMeans.fit`, of X", "memory", "SeededKMeans", "memory", 1.28),
    Earlier("memory of an import, of the data", "parties", "import", "memory", 1.5),
    Earlier(
        "time of `KMeans.fit`, of scikit-learn's", "lloyd", "geometric mean", "fit_ratio", 0.69
    ),
)
