"""What a server's store holds: its tables, its values, and a model as it is written there."""

from __future__ import annotations

from typing import TypedDict

import numpy as np

from fedforget.clustering.lattice_kmeans import ServerModel
from fedforget.parties.database import Schema
from fedforget.parties.folders import STORES

STORE = STORES["server"]


class PlainModel(TypedDict):
    """A model as it is stored."""

    centres: bytes
    shape: tuple[int, int]
    labels: bytes
    loss: float
    n_iter: int
    restart: int


SCHEMA = Schema(
    2,
    """
    CREATE TABLE log (number INTEGER PRIMARY KEY, entry TEXT NOT NULL);
    CREATE TABLE list (epoch INTEGER PRIMARY KEY, data BLOB NOT NULL);
    CREATE TABLE notice (round INTEGER PRIMARY KEY, letter BLOB NOT NULL)
    """,
    "its rounds have no history that members could check. Set the federation up anew with"
    " `server init`, and let the members make new directories",
    damaged="restore the directory from a backup, then run `server recover`",
    sound={
        "log": "typeof(entry) = 'text'",
        "list": "typeof(data) = 'blob'",
        "notice": "typeof(letter) = 'blob'",
    },
    values={
        "federation": str,
        "versions": list[str],
        "counted_with": bytes,
        "ledger": bytes,
        "aggregate": dict[bytes, int],
        "model": PlainModel,
    },
)

COUNTED_WITH = "counted_with"
"""Digest of the federation file with which the stored aggregate was counted."""


def plain_model(model: ServerModel) -> PlainModel:
    """A model as the store keeps it."""
    return {
        "centres": model.centres.astype("<f8").tobytes(),
        "shape": (model.centres.shape[0], model.centres.shape[1]),
        "labels": model.labels.astype("<i4").tobytes(),
        "loss": model.loss,
        "n_iter": model.n_iter,
        "restart": model.restart,
    }


def parsed_model(plain: PlainModel) -> ServerModel:
    """The model that is stored; a ValueError if what is stored is not one."""
    centres = np.frombuffer(plain["centres"], dtype="<f8").reshape(plain["shape"])
    labels = np.frombuffer(plain["labels"], dtype="<i4").astype(np.int32)
    if len(labels) and not 0 <= labels.min() <= labels.max() < len(centres):
        raise ValueError("labels of clusters that the model does not have")
    return ServerModel(
        centres.astype(np.float64), labels, plain["loss"], plain["n_iter"], plain["restart"]
    )
