"""A deployment on loopback: a SuperLink and four SuperNodes, with TLS and node authentication."""

from __future__ import annotations

import json

from sites import NAMES, PATIENT, Sites, forget, receipts_of

from fedforget.parties import receipts
from fedforget.parties.client_party import open_client
from fedforget.parties.server_party import open_server


def test_a_patient_is_forgotten_although_a_node_dies(sites: Sites) -> None:
    asked, *others, lost = NAMES
    twin = sites.twin()
    sites.start()
    run = sites.run(rounds=2, pause=10.0)

    first = sites.wait_for_commit(run, 1)
    assert first["kind"] == "full"
    assert first["participants"] == list(NAMES)
    assert first["model"] == twin.run_in_process()["model"]
    old_traces = sites.traces()
    salt = forget(sites.client(asked), [PATIENT])
    forget(twin.client(asked), [PATIENT])

    sites.wait_for_stage(run, 2, "masked input")
    sites.network.kill_node(lost)
    second = sites.wait_for_commit(run, 2)
    assert second["kind"] == "delta"
    assert second["participants"] == [asked, *others]
    assert second["model"] == twin.run_in_process([asked, *others])["model"]
    assert sites.wait_for_end(run)[-1]["event"] == "end"

    (document,) = receipts_of(sites.client(asked))
    proof = receipts.verify(
        json.loads(document), sites.federation, ids=[PATIENT], salt=bytes.fromhex(salt)
    )
    assert proof is not None
    with open_client(sites.client(asked)) as client:
        assert client.audit().passed
        assert not (client.folder / "attempt.key").exists()
    with open_server(sites.server) as server:
        assert server.audit()["problems"] == []
    check_no_traces(sites, old_traces | sites.traces())


def check_no_traces(sites: Sites, traces: dict[str, bytes]) -> None:
    """Neither in the SuperLink's database nor in any log; but the scan finds what there is."""
    own = b"".join(path.read_bytes() for path in sites.server.iterdir() if path.is_file())
    assert any(trace in own for what, trace in traces.items() if what.startswith("centre"))
    assert any(trace in own for what, trace in traces.items() if what.startswith("bin"))
    files = dict(sites.files_of_flower())
    assert any(path.name == "superlink.sqlite" for path in files)
    assert sum(path.suffix == ".log" for path in files) == 5
    for path, content in files.items():
        for what, trace in traces.items():
            assert trace not in content, f"{what} in {path}"
