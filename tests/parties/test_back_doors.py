"""Small counts through the back door: nothing that others see depends on what a site must hide."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from others_see import (
    CLIENT_COMMANDS,
    SERVER_COMMANDS,
    a_round,
    command,
    differences,
    of_a_member,
    of_receipts,
    of_the_server,
    page_of,
)
from party_world import World, federation_file

from fedforget.parties.client_party import open_client
from fedforget.parties.disclosure import DisclosurePart
from fedforget.parties.server_party import open_server

RULES = DisclosurePart(5, 10, 5, 0.01)


def crowd(n: int, age: float, weight: float) -> np.ndarray:
    """Records so close together that they are all in the middle of one bin."""
    spread = np.linspace(-0.001, 0.001, n)[:, np.newaxis]
    return np.array([[age, weight]]) + spread


def world_of(folder: Path, small: int, few: int) -> World:
    """At aarhus ``small`` records are apart from all others; coimbra has ``few`` in all."""
    world = World(folder).set_up(federation_file(disclosure=RULES, local_clusters=3))
    crowds = [crowd(30, 24.0, 60.0), crowd(30, 84.0, 240.0), crowd(small, 86.4, 246.0)]
    ids = [f"A-{row}" for row in range(60)] + [f"small-{row}" for row in range(small)]
    world.hold("aarhus", ids, np.concatenate(crowds))
    world.hold("bologna", [f"B-{row}" for row in range(25)], crowd(25, 36.0, 90.0))
    world.hold("coimbra", [f"C-{row}" for row in range(few)], crowd(few, 60.0, 150.0))
    return world


def local_sizes(world: World, name: str) -> list[int]:
    with open_client(world.client(name)) as client:
        return sorted(client.store.clusters(2).sizes.tolist())


def everything(world: World) -> dict[str, Any]:
    """All that others see in the course of two rounds, between which records are forgotten."""
    seen: dict[str, Any] = {"first round": a_round(world)}
    seen |= {f"first: {key}": value for key, value in of_the_server(world).items()}
    world.forget("aarhus", ["small-0"])
    world.forget("coimbra", ["C-0"])
    seen |= {f"between: page of {name}": page_of(world, name) for name in world.names}
    seen["second round"] = a_round(world)
    seen |= {f"second: {key}": value for key, value in of_the_server(world).items()}
    seen |= {f"bologna: {key}": value for key, value in of_a_member(world, "bologna").items()}
    for name in ("aarhus", "coimbra"):
        seen[f"{name}: page"] = page_of(world, name)
        seen |= {f"{name}: {key}": value for key, value in of_receipts(world, name).items()}
    return seen


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, dict[str, Any]]:
    world = world_of(tmp_path_factory.mktemp("first"), small=2, few=3)
    assert local_sizes(world, "aarhus") == [2, 30, 30]
    return world, everything(world)


@pytest.mark.parametrize(("small", "few"), [(1, 3), (2, 9), (1, 7)])
def test_nobody_else_can_tell_how_many_records_a_site_hides(
    tmp_path: Path, first: tuple[World, dict[str, Any]], small: int, few: int
) -> None:
    world = world_of(tmp_path, small, few)
    assert local_sizes(world, "aarhus") == [small, 30, 30]
    found = differences(first[1], everything(world))
    assert not found, "\n".join(found)


def test_the_comparison_sees_what_may_be_seen(
    tmp_path: Path, first: tuple[World, dict[str, Any]]
) -> None:
    """One record more than the rules hide, and almost everything differs."""
    world = world_of(tmp_path, small=2, few=10)
    found = " ".join(differences(first[1], everything(world)))
    for where in ("sum", "server model", "server status", "page.html", "model.csv"):
        assert where in found


def test_sizes_that_are_shown_are_never_small(first: tuple[World, dict[str, Any]]) -> None:
    world = first[0]
    with open_server(world.server) as server:
        sizes, counts = server.sizes(), server.aggregate().counts()
    assert all(size == 0 or size >= RULES.min_cell for size in sizes)
    assert (counts >= RULES.min_cell).all()
    shown = json.loads(command(world, "server", "model", "server", "--json").split("\n", 1)[1])
    assert shown["sizes"] == sizes
    for text in (first[1]["aarhus: receipt 0"], first[1]["coimbra: receipt 0"]):
        assert text.count('"records": 1') == 1


def test_no_command_is_forgotten_here() -> None:
    """A new command must be added to the sweep, or named as one that shows nothing of others."""
    from fedforget.cli import client_commands, server_commands

    def names(app: Any) -> set[str]:
        return {one.name or one.callback.__name__ for one in app.registered_commands}

    # A page that is served shows what the written one does; that is looked at below.
    changing = {"init", "enrol", "amend", "page"}
    assert names(server_commands.app) == {*SERVER_COMMANDS, *changing}
    own = {"init", "join", "import", "sync", "forget", "leave", "recover", "approve", "labels"}
    own |= {"page"}
    assert names(client_commands.app) == {*CLIENT_COMMANDS, *own}
