"""Amendments in a world of directories, and the fresh federation that must come to the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from party_world import World, table

from fedforget.parties.amended_servers import amend, plan_amendment
from fedforget.parties.client_party import open_client
from fedforget.parties.disclosure import DisclosurePart
from fedforget.parties.federation_file import Feature, FederationFile
from fedforget.parties.membership_file import MembershipDocument
from fedforget.parties.server_party import open_server

AGE, WEIGHT, HEIGHT = (
    Feature("age", 0.0, 120.0),
    Feature("weight", 0.0, 300.0),
    Feature("height", 20.0, 250.0),
)
RULES = DisclosurePart(min_cell=3, min_records=4, count_step=2, published_step=0.01)

POLICY = ("minimum", "dropout", "colluding")

Records = Mapping[str, Mapping[str, float]]
"""Values by id and feature."""


def changed_file(before: FederationFile, **changes: Any) -> FederationFile:
    """A file with other features, rules, values of the policy or of the model."""
    top = {key: changes.pop(key) for key in ("features", "disclosure") if key in changes}
    policy = {key: changes.pop(key) for key in POLICY if key in changes}
    return replace(
        before,
        model=replace(before.model, **changes),
        protocol=replace(before.protocol, **policy),
        amendment=None,
        **top,
    )


@dataclass(frozen=True)
class Made:
    """An amendment as members get it."""

    file: FederationFile
    document: MembershipDocument


def amend_server(world: World, **changes: Any) -> Made:
    with open_server(world.server) as server:
        plan = plan_amendment(server, changed_file(server.federation, **changes))
        return Made(plan.after, amend(server, plan))


def take_over(world: World, made: Made, *names: str) -> None:
    for name in names or world.names:
        with open_client(world.client(name)) as client:
            client.join(made.file, made.document)


def amend_all(world: World, **changes: Any) -> Made:
    """Amend, and let everybody join."""
    made = amend_server(world, **changes)
    take_over(world, made)
    return made


def write_records(path: Path, records: Records, names: Sequence[str]) -> Path:
    columns = {name: np.array([one[name] for one in records.values()]) for name in names}
    np.savez(path, id=np.array(list(records)), **columns)
    return path


def hold(world: World, name: str, records: Records, *, again: bool = False) -> None:
    """Import records with whatever features the federation has."""
    if not records:
        return
    with open_client(world.client(name)) as client:
        assert client.federation is not None
        names = client.federation.feature_names
        path = write_records(world.folder / "records.npz", records, names)
        client.import_table(table(path, names), replace=again)
    path.unlink()


def patients(name: str, n: int, seed: int) -> dict[str, dict[str, float]]:
    """Records with values of every feature that a federation may have."""
    rng = np.random.default_rng(seed)
    return {
        f"{name[0].upper()}-{seed}-{row}": {
            "age": 20.0 + 80.0 * rng.random(),
            "weight": 40.0 + 100.0 * rng.random(),
            "height": 120.0 + 80.0 * rng.random(),
        }
        for row in range(n)
    }


def fresh_model(folder: Path, world: World, records: Mapping[str, Records]) -> str:
    """The model of a fresh federation with the same parameters, which holds just these records."""
    fresh = World(folder, world.names)
    fresh.set_up(replace(world.federation, server_key="00" * 32, amendment=None))
    for name, held in records.items():
        hold(fresh, name, held)
    digest: str = fresh.round()["model"]
    return digest
