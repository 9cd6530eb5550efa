"""Nodes, the SuperLink and clients that fail or do not belong; ``make test-flower`` runs this."""

from __future__ import annotations

import http.client
import shutil
import ssl
import time
from pathlib import Path

import numpy as np
import pytest
from sites import NAMES, PATIENT, RECORDS, Sites, forget, receipts_of

from fedforget.parties.client_party import open_client
from fedforget.parties.server_party import open_server
from fedforget.parties.store import decoded_id
from fedforget.runtime.flower.network import Network
from fedforget.runtime.flower.trial import make_federation

STAGES = ("advertise", "share", "masked input", "consistency", "unmask")

pytestmark = pytest.mark.usefixtures("campaign")


@pytest.mark.parametrize("stage", STAGES)
def test_a_node_dies_and_comes_back(sites: Sites, stage: str) -> None:
    """In a delta round three of four are enough, and whoever has sent a vector is in the sum."""
    asked, *_, lost = NAMES
    sites.run_in_process()
    with open_client(sites.client(lost)) as client:
        (own, *_) = client.store.index()
    for name, one in ((asked, PATIENT), (lost, decoded_id(own))):
        forget(sites.client(name), [one])
    twin = sites.twin()
    sites.start()
    run = sites.run()
    sites.wait_for_stage(run, 2, stage)
    sites.network.kill_node(lost)
    ending = sites.wait_for_end(run)[-1]
    assert ending["event"] == "end"
    second = sites.wait_for_commit(run, 2)
    assert (lost in second["participants"]) == (stage in ("consistency", "unmask"))
    # Whether the deadline ends first, or Flower's patience with the node.
    refusals = [event for event in sites.events(run) if event["event"] == "refused"]
    assert {event["client"] for event in refusals} == {lost}
    assert {event["error"] for event in refusals} <= {"no answer", "not connected"}
    assert second["model"] == twin.run_in_process(second["participants"])["model"]

    sites.network.restart_node(lost, sites.client(lost))
    run = sites.run()
    third = sites.wait_for_commit(run, 3)
    assert third["participants"] == list(NAMES)
    assert third["model"] == twin.run_in_process()["model"]
    sites.wait_for_end(run)
    assert len(receipts_of(sites.client(asked))) == 1
    assert len(receipts_of(sites.client(lost))) == 1


def test_too_many_nodes_die(sites: Sites) -> None:
    """The round is aborted in order, and the next one succeeds when they have come back."""
    *_, third, fourth = NAMES
    sites.start()
    run = sites.run()
    sites.wait_for_stage(run, 1, "share")
    for name in (third, fourth):
        sites.network.kill_node(name)
    ending = sites.wait_for_end(run)[-1]
    assert ending["event"] == "aborted"
    assert f"{third} and 1 more are missing at share" in ending["reason"]
    assert ending["findings"] == []
    with open_server(sites.server) as server:
        assert server.status()["rounds_committed"] == 0
    for name in (third, fourth):
        sites.network.restart_node(name, sites.client(name))
    run = sites.run()
    assert sites.wait_for_commit(run, 1)["participants"] == list(NAMES)
    sites.wait_for_end(run)


def test_a_restored_server_recovers_by_command(sites: Sites) -> None:
    sites.run_in_process()
    backup = sites.root / "backup"
    shutil.copytree(sites.server, backup)
    forget(sites.client(NAMES[0]), [PATIENT])
    sites.run_in_process()
    shutil.rmtree(sites.server)
    backup.rename(sites.server)
    sites.start()
    ending = sites.wait_for_end(sites.run())[-1]
    assert ending["event"] == "failed"
    assert "it was restored from a backup" in ending["reason"]
    assert "recover=true" in ending["reason"]
    run = sites.run(recover=True)
    third = sites.wait_for_commit(run, 3)
    assert third["kind"] == "full"
    assert third["participants"] == list(NAMES)
    sites.wait_for_end(run)
    with open_server(sites.server) as server:
        assert server.audit()["problems"] == []
        assert server.status()["records"] == RECORDS * len(NAMES)


def test_the_superlink_is_restarted_between_rounds(sites: Sites) -> None:
    twin = sites.twin()
    sites.start()
    run = sites.run()
    assert sites.wait_for_end(run)[-1]["event"] == "end"
    twin.run_in_process()
    sites.network.stop_superlink()
    forget(sites.client(NAMES[0]), [PATIENT])
    forget(twin.client(NAMES[0]), [PATIENT])
    sites.network.start_superlink()
    run = sites.run()
    second = sites.wait_for_commit(run, 2)
    assert second["participants"] == list(NAMES)
    assert second["model"] == twin.run_in_process()["model"]
    sites.wait_for_end(run)


def test_a_node_with_an_unregistered_key_is_refused(sites: Sites) -> None:
    *members, stranger = NAMES
    sites.run_in_process()
    sites.start(members)
    sites.network.make_keys("node", stranger)
    sites.network.start_node(stranger, sites.client(stranger))
    log = sites.network.logs / f"node-{stranger}.log"
    end = time.monotonic() + 60
    while sites.network.nodes[stranger].poll() is None and time.monotonic() < end:
        time.sleep(0.2)
    assert sites.network.nodes[stranger].poll() not in (None, 0), log.read_text()
    assert "Failed to activate SuperNode" in log.read_text()
    assert "with public key" in (sites.network.logs / "superlink.log").read_text()
    run = sites.run()
    assert sites.wait_for_commit(run, 2)["participants"] == members
    assert {"event": "missing", "clients": [stranger]}.items() <= next(
        event for event in sites.events(run) if event["event"] == "missing"
    ).items()
    sites.wait_for_end(run)


def test_a_client_with_another_federation_file_is_refused(sites: Sites, tmp_path: Path) -> None:
    *members, other = NAMES
    sites.run_in_process()
    values = np.random.default_rng(0).uniform(0, 1, (30, 3))
    make_federation(tmp_path / "elsewhere", values, np.arange(30) % 3, n_clusters=2)
    shutil.rmtree(sites.client(other))
    shutil.copytree(tmp_path / "elsewhere" / "clients" / NAMES[0], sites.client(other))
    sites.start()
    run = sites.run()
    assert sites.wait_for_commit(run, 2)["participants"] == members
    refusal = next(event for event in sites.events(run) if event["event"] == "refused")
    # It has proven to be nobody, whatever its name is.
    assert refusal["client"].startswith("node ")
    assert refusal["error"] == "BadSignatureError"
    assert "not the server of the client's federation file" in refusal["text"]
    sites.wait_for_end(run)
    with open_client(sites.client(other)) as client:
        assert client.status()["last_committed_round"] == 0


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_the_gate_lets_nodes_through_and_nobody_to_the_control_api(sites: Sites) -> None:
    sites.network.start_superlink()
    sites.network.start_gate()
    for name in NAMES:
        sites.network.register(name)
        sites.network.start_node(name, sites.client(name))
    run = sites.run()
    assert sites.wait_for_commit(run, 1)["participants"] == list(NAMES)
    sites.wait_for_end(run)
    network = sites.network
    inside, outside = (
        [status(network, port, path) for path in ("/v1/control/list-runs", "/v1/runtime/get-nodes")]
        for port in (network.port, network.gate_port)
    )
    assert outside == [403, 403]
    assert 403 not in inside
    for path in (
        "/v1/fleet/../control/list-runs",
        "/v1/fleet/%2e%2e/control/list-runs",
        "/v1/fleet/..%2fcontrol/list-runs",
        "/health",
        "//v1/control/list-runs",
    ):
        assert status(network, network.gate_port, path) in (400, 403), path


def status(network: Network, port: int, path: str) -> int:
    """What a POST of nothing is answered with."""
    context = ssl.create_default_context(cafile=network.app / "keys" / "authority.pem")
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=10)
    try:
        connection.request("POST", path, body=b"")
        return connection.getresponse().status
    finally:
        connection.close()
