"""Directories are what they were: digests of stored states and of models, recorded once.

They may change only on purpose, with an entry in the changelog.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from party_world import BOUNDS, World, federation_file

from fedforget.parties.client_party import open_client
from fixed_numbers import units

RECORDED = json.loads(Path(__file__).with_name("recorded_directories.json").read_text())
LOWS, WIDTHS = np.array(BOUNDS)[:, 0], np.diff(BOUNDS).ravel()


def digests_of(world: World) -> Iterator[tuple[str, str]]:
    """What each client has stored, and the model of every round."""
    ids = [f"P-{row}" for row in range(40)]
    for name in world.names:
        world.hold(name, ids, WIDTHS * units(f"directory {name}", (40, len(BOUNDS))) + LOWS)
    yield "import", world.round()["model"]
    world.forget(world.names[0], ids[::2])
    world.forget(world.names[1], ids[:1])
    yield "forget", world.round()["model"]
    for name in world.names:
        with open_client(world.client(name)) as client:
            yield f"stored at {name}", client.state_digest()


@pytest.mark.parametrize("representatives", RECORDED)
def test_directories_are_the_recorded_ones(tmp_path: Path, representatives: str) -> None:
    world = World(tmp_path).set_up(federation_file(representatives=representatives))
    assert dict(digests_of(world)) == RECORDED[representatives]
