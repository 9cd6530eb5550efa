"""Flower's simulation engine; ``make test-flower`` runs this."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sites import Family, check_loopback

from fedforget import __version__
from fedforget.parties.amended_servers import amend, plan_amendment
from fedforget.parties.client_party import open_client
from fedforget.parties.server_party import open_server
from fedforget.runtime import directories
from fedforget.runtime.flower.app_folder import write_app
from fedforget.runtime.flower.network import Network, NetworkError
from fedforget.runtime.flower.simulation import (
    PROGRESS,
    forget_records,
    read_progress,
    run_once,
    simulate,
)
from fedforget.runtime.flower.trial import make_federation

pytestmark = pytest.mark.usefixtures("campaign")


def records(n: int, n_clients: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    return rng.uniform(0, 1, (n, 4)), rng.permutation(n) % n_clients


def test_twenty_clients_give_the_model_of_the_in_process_runtime(tmp_path: Path) -> None:
    values, owners = records(1000, 20)
    root, twin = tmp_path / "flower", tmp_path / "twin"
    make_federation(root, values, owners, n_clusters=4)
    shutil.copytree(root, twin)
    write_app(root / "app", __version__, server=root / "server", clients=root / "clients")
    family, sockets = Family(), []
    with Network(tmp_path / "net", root / "app", simulation=True) as network:

        def look(stage: str) -> None:
            family.look(network)
            sockets.append(check_loopback(family.alive()))

        network.start_superlink()
        for gone in (None, np.array([3, 14, 159, 265])):
            if gone is not None:
                forget_records(root, gone, owners)
                forget_records(twin, gone, owners)
            result = run_once(network, root / "server", 20, look)
            folders = sorted((twin / "clients").iterdir())
            expected = directories.run(twin / "server", folders)
            for key in ("round", "kind", "participants", "model", "attempts", "changed_bins"):
                assert result[key] == expected[key], key
    assert family.survivors() == []
    assert max(sockets) > 10, "Ray was not looked at"


def test_an_amendment_between_two_rounds(tmp_path: Path) -> None:
    """Whoever has not joined yet is missing; after it, the model is that of the directories."""
    values, owners = records(300, 3)
    root, twin = tmp_path / "flower", tmp_path / "twin"
    make_federation(root, values, owners, n_clusters=3)
    folders = sorted((root / "clients").iterdir())
    write_app(root / "app", __version__, server=root / "server", clients=root / "clients")
    with Network(tmp_path / "net", root / "app", simulation=True) as network:
        network.start_superlink()
        assert run_once(network, root / "server", 3)["kind"] == "full"
        with open_server(root / "server") as server:
            before = server.federation
            model = replace(before.model, n_clusters=4, local_clusters=9)
            plan = plan_amendment(server, replace(before, model=model))
            document = amend(server, plan)
        for folder in folders[:2]:
            with open_client(folder) as client:
                client.join(plan.after, document)
        with pytest.raises(NetworkError, match="client-2 is missing"):
            run_once(network, root / "server", 3)
        with open_client(folders[2]) as client:
            client.join(plan.after, document)
        forget_records(root, np.array([3, 14, 159]), owners)
        shutil.copytree(root, twin)
        result = run_once(network, root / "server", 3)
        expected = directories.run(twin / "server", sorted((twin / "clients").iterdir()))
        for key in ("kind", "participants", "model"):
            assert result[key] == expected[key], key
        assert result["kind"] == "full"
        assert run_once(network, root / "server", 3)["kind"] == "delta"
    with open_server(root / "server") as server:
        assert server.federation.version == 2
        assert server.status()["clusters"] == 4
        assert server.audit()["problems"] == []


def test_a_hundred_clients_run(tmp_path: Path) -> None:
    values, owners = records(5000, 100)
    first, second = simulate(tmp_path / "root", values, owners, n_clusters=4, rounds=2, forget=5)
    assert (first["kind"], second["kind"]) == ("full", "delta")
    assert len(first["participants"]) == len(second["participants"]) == 100


def test_what_was_restored_needs_its_operator(tmp_path: Path) -> None:
    """Neither a client nor the server goes on by itself, and both errors say what to do."""
    values, owners = records(300, 3)
    # Without rounded counts, the server's total tells which records are in the model.
    make_federation(tmp_path, values, owners, n_clusters=3, disclosure="none")
    server, restored = tmp_path / "server", tmp_path / "clients" / "client-1"
    write_app(tmp_path / "app", __version__, server=server, clients=tmp_path / "clients")
    with Network(tmp_path / "net", tmp_path / "app", simulation=True) as network:
        network.start_superlink()
        assert run_once(network, server, 3)["kind"] == "full"
        shutil.copytree(restored, tmp_path / "backup")
        shutil.copytree(server, tmp_path / "server-backup")
        forget_records(tmp_path, np.flatnonzero(owners == 1)[:5], owners)
        assert run_once(network, server, 3)["kind"] == "delta"

        shutil.rmtree(restored)
        (tmp_path / "backup").rename(restored)
        # Of three, all must be there.
        with pytest.raises(NetworkError, match="client-1 is missing"):
            run_once(network, server, 3)
        with open_client(restored) as client:
            client.forget(np.flatnonzero(owners == 1)[:5])
            client.recover()
        with pytest.raises(NetworkError, match='a full round: start the run with kind="full"'):
            run_once(network, server, 3)
        assert run_once(network, server, 3, kind="full")["kind"] == "full"
        assert run_once(network, server, 3)["kind"] == "delta"
        lines = map(json.loads, (server / PROGRESS).read_text().splitlines())
        refusals = [line["error"] for line in lines if line["event"] == "refused"]
        assert refusals == ["OlderDirectoryError", "FullRoundNeededError"]

        shutil.rmtree(server)
        (tmp_path / "server-backup").rename(server)
        with pytest.raises(NetworkError, match="restored from a backup"):
            run_once(network, server, 3)
        assert run_once(network, server, 3, recover=True)["kind"] == "full"
        assert run_once(network, server, 3)["round"] == 6
    with open_server(server) as party:
        assert party.status()["records"] == 295


def test_runs_that_overlap_do_not_disturb_each_other(tmp_path: Path) -> None:
    values, owners = records(300, 3)
    make_federation(tmp_path, values, owners, n_clusters=3)
    server = tmp_path / "server"
    write_app(tmp_path / "app", __version__, server=server, clients=tmp_path / "clients")
    with Network(tmp_path / "net", tmp_path / "app", simulation=True) as network:
        network.start_superlink()
        with (
            open_server(server),
            pytest.raises(NetworkError, match="in use by another process"),
        ):
            run_once(network, server, 3)

        # One run is between its two rounds when another one begins and ends.
        long = network.start_run(3, server=server, rounds=2, pause=45.0)

        def committed() -> list[int]:
            events = read_progress(server / PROGRESS, long)
            return [event["round"] for event in events if event["event"] == "committed"]

        wait_for(lambda: len(committed()) == 1)
        assert run_once(network, server, 3)["round"] == 2
        wait_for(lambda: len(committed()) == 2)
    assert committed() == [1, 3]
    assert read_progress(server / PROGRESS, long)[0]["event"] == "begin"


def test_an_interrupted_simulation_leaves_nothing_behind(tmp_path: Path) -> None:
    values, _ = records(300, 3)
    np.savez(tmp_path / "records.npz", X=values)
    command = [str(Path(sys.executable).parent / "fedforget"), "simulate", "--clients", "5"]
    command += ["--clusters", "3", "--dataset", "records.npz"]
    # Shells let what they start in the background ignore Ctrl-C, and so would this test's child.
    listen = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL)"
    listen += "; os.execv(sys.argv[1], sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", listen, *command],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        start_new_session=True,
    )
    family = Family()

    def ray_runs() -> bool:
        family.look_at([process.pid])
        return any("ClientAppActor" in name for name in family.names())

    wait_for(ray_runs)
    (scratch,) = set(re.findall(r"/tmp/ray-[^/]+", " ".join(family.names())))
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert family.survivors() == []
    assert [path.name for path in tmp_path.iterdir()] == ["records.npz"]
    assert not Path(scratch).exists()


def wait_for(done: Callable[[], bool], seconds: float = 240.0) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.2)
