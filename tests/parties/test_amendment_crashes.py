"""An amendment that is cut off anywhere is there as a whole, or not at all."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amending import (
    AGE,
    HEIGHT,
    Made,
    amend_server,
    changed_file,
    fresh_model,
    hold,
    patients,
    take_over,
)
from crash import dying_at, finish, in_child
from party_world import NAMES, World, all_bytes, found_in, traces

from fedforget.parties.amended_servers import amend, plan_amendment
from fedforget.parties.client_party import open_client
from fedforget.parties.server_party import open_server

POINTS = 24
"""How many places of each work a process is killed at."""


@pytest.fixture
def study(tmp_path: Path) -> tuple[World, dict[str, Any]]:
    world = World(tmp_path / "study").set_up()
    records = {name: patients(name, 20, number) for number, name in enumerate(NAMES)}
    for name, held in records.items():
        hold(world, name, held)
    world.round()
    return world, records


def calls_of(work: Callable[[], object]) -> int:
    calls = 0

    def watch(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def killed_at_many_points(folder: Path, work: Callable[[], object]) -> list[int]:
    """The calls to die at, most of them late, where files and stores are written."""
    backup = folder.with_name("untouched")
    shutil.copytree(folder, backup)
    total = calls_of(work)
    shutil.rmtree(folder)
    backup.rename(folder)
    early = np.linspace(1, total, POINTS // 3)
    late = total - np.geomspace(1, max(2, total / 3), POINTS - POINTS // 3)
    return sorted({int(one) for one in (*early, *late) if one >= 1})


def kill(folder: Path, work: Callable[[], object], call: int) -> None:
    report, killed = finish(*in_child(work, dying_at(call)))
    assert killed or report == b"confirmed", report


def test_a_client_that_is_killed_while_it_takes_an_amendment_over(
    study: tuple[World, dict[str, Any]], tmp_path: Path
) -> None:
    world, records = study
    made = amend_server(world, features=(AGE,))
    take_over(world, made, "bologna", "coimbra")
    folder = world.client("aarhus")
    weights = traces([], np.array([one["weight"] for one in records["aarhus"].values()]))

    def join() -> None:
        with open_client(folder) as client:
            client.join(made.file, made.document)

    seen = set()
    clean = tmp_path / "clean"
    shutil.copytree(folder, clean)
    for call in killed_at_many_points(folder, join):
        shutil.rmtree(folder)
        shutil.copytree(clean, folder)
        kill(folder, join, call)
        with open_client(folder) as client:
            status = client.status()
            assert client.audit().passed
            assert client.federation is not None
            assert client.federation.version == status["version"]
            assert (folder / "federation.toml").read_text() == client.federation.text()
            assert (status["epoch"] == 2) == (status["version"] == 2)
            assert status["records"] == 20
        seen.add(status["version"])
        if status["version"] == 2:
            assert (folder / "federation-1.toml").exists()
            assert found_in(all_bytes(folder), weights) == []
        else:
            join()
    assert seen == {1, 2}
    assert world.round()["model"] == fresh_model(tmp_path / "fresh", world, records)
    world.check_audits()


def test_a_server_that_is_killed_while_it_amends(
    study: tuple[World, dict[str, Any]], tmp_path: Path
) -> None:
    world, records = study
    for held in records.values():
        for values in held.values():
            assert 20.0 <= values["height"] <= 250.0

    def work() -> None:
        with open_server(world.server) as server:
            changed = changed_file(server.federation, features=(HEIGHT, AGE), n_clusters=3)
            amend(server, plan_amendment(server, changed))

    seen = set()
    clean = tmp_path / "clean"
    shutil.copytree(world.server, clean)
    for call in killed_at_many_points(world.server, work):
        shutil.rmtree(world.server)
        shutil.copytree(clean, world.server)
        kill(world.server, work, call)
        with open_server(world.server) as server:
            assert server.audit()["problems"] == []
            version, epoch = server.federation.version, server.membership().epoch
            assert version == epoch
            assert server.needs_full_round() == (version == 2)
            assert (world.server / "federation.toml").read_text() == server.federation.text()
            assert len(server.centres()[0]) == 2
        seen.add(version)
        if version == 1:
            work()
    assert seen == {1, 2}
    with open_server(world.server) as server:
        document = server.document()
        assert document is not None
        made = Made(server.federation, document)
    take_over(world, made)
    for name, held in records.items():
        hold(world, name, held, again=True)
    assert world.round()["model"] == fresh_model(tmp_path / "fresh", world, records)
    world.check_audits()
