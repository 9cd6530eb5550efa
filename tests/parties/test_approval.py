"""Approval on the wire: what is sent is what was approved, and nobody sees who waits."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from others_see import a_round, command, differences, of_a_member, of_the_server
from party_world import World, federation_file

from fedforget.clustering.histogram import Histogram
from fedforget.parties.client_party import ClientParty, open_client
from fedforget.parties.disclosure import DisclosurePart
from fedforget.parties.folders import write_private
from fedforget.parties.policy import FILE
from fedforget.parties.server_party import open_server
from fedforget.protocol.client_ledger import ClientLedger

RULES = DisclosurePart(5, 10, 5, 0.01)


def world_of(folder: Path, *asking: str) -> World:
    """Three sites after their first round; some ask for approval from then on."""
    world = World(folder).set_up(federation_file(disclosure=RULES, local_clusters=4)).fill(60)
    world.round()
    for name in asking:
        write_private(world.client(name) / FILE, b"approval = true\n")
    return world


def ledger_of(world: World, name: str) -> ClientLedger:
    with open_client(world.client(name)) as client:
        return client.ledger()


def base_of(world: World, name: str) -> Histogram:
    base = ledger_of(world, name).base
    assert base is not None
    return base


def approve(world: World, name: str) -> Histogram:
    """Look at what would go, and approve it."""
    with open_client(world.client(name)) as client:
        preview = client.preview()
        client.approve(preview.digest)
        return preview.reported


def requests_of(world: World, name: str) -> tuple[int, int]:
    """How many wait, and how many have ended in a receipt."""
    with open_client(world.client(name)) as client:
        status = client.status()
    return status["requests_waiting"], status["receipts"]


def sum_of(world: World) -> Histogram:
    with open_server(world.server) as server:
        return server.aggregate()


@pytest.mark.parametrize("kind", ["delta", "full"])
def test_without_approval_the_last_committed_histogram_is_sent(tmp_path: Path, kind: Any) -> None:
    world = world_of(tmp_path, "aarhus")
    before, total = base_of(world, "aarhus"), sum_of(world)
    world.forget("aarhus", [f"A-{row}" for row in range(40)])
    done = world.round(kind=kind)
    assert done["participants"] == list(world.names)
    assert sum_of(world) == total
    assert base_of(world, "aarhus") == before
    assert requests_of(world, "aarhus") == (1, 0)
    # The records themselves are gone from the directory all the same.
    assert len(world.held("aarhus")) == 20
    with open_client(world.client("aarhus")) as client:
        assert client.histogram() != before


@pytest.mark.parametrize("kind", ["delta", "full"])
def test_exactly_what_was_previewed_is_sent(tmp_path: Path, kind: Any) -> None:
    world = world_of(tmp_path, "aarhus")
    before = {name: base_of(world, name) for name in world.names}
    world.forget("aarhus", [f"A-{row}" for row in range(40)])
    world.forget("bologna", [f"B-{row}" for row in range(30)])
    previewed = approve(world, "aarhus")
    world.round(kind=kind)
    assert base_of(world, "aarhus") == previewed != before["aarhus"]
    with open_client(world.client("bologna")) as client:
        others = client.histogram()
    assert sum_of(world) == Histogram.sum(2, [previewed, others, before["coimbra"]])
    assert requests_of(world, "aarhus") == (0, 1)
    world.check_sums()
    world.check_audits()


def test_a_change_after_the_approval_ends_it(tmp_path: Path) -> None:
    world = world_of(tmp_path, "aarhus")
    before = base_of(world, "aarhus")
    world.forget("aarhus", [f"A-{row}" for row in range(20)])
    first = approve(world, "aarhus")
    world.forget("aarhus", [f"A-{row}" for row in range(20, 40)])
    world.round()
    assert base_of(world, "aarhus") == before
    assert requests_of(world, "aarhus") == (2, 0)
    # An import ends it, too, and so does a policy that changes what is reported.
    approve(world, "aarhus")
    new = np.random.default_rng(5).uniform((0, 0), (120, 300), (30, 2))
    world.hold("aarhus", [f"new-{row}" for row in range(30)], new)
    world.round()
    assert base_of(world, "aarhus") == before
    approve(world, "aarhus")
    write_private(world.client("aarhus") / FILE, b"approval = true\ncount_step = 20\n")
    world.round()
    assert base_of(world, "aarhus") == before
    last = approve(world, "aarhus")
    assert last != first
    world.round()
    assert base_of(world, "aarhus") == last
    assert requests_of(world, "aarhus") == (0, 2)
    world.check_audits()


def test_an_approval_is_for_a_report_and_not_for_a_round(tmp_path: Path) -> None:
    """A request that changes nothing of what is reported needs no new one."""
    world = World(tmp_path).set_up(federation_file(disclosure=RULES, local_clusters=1)).fill(60)
    ids = [f"like-{row}" for row in range(2)]
    # Of 62 records two go, at the mean of all: 60 are reported before and after.
    with open_client(world.client("aarhus")) as client:
        _, _, values = client.store.everything(2)
    world.hold("aarhus", ids, np.repeat(values.mean(axis=0, keepdims=True), 2, axis=0))
    write_private(world.client("aarhus") / FILE, b"approval = true\n")
    approved = approve(world, "aarhus")
    world.round()
    world.forget("aarhus", ids)
    world.round()
    assert base_of(world, "aarhus") == approved
    assert requests_of(world, "aarhus") == (0, 1)


def test_a_round_cut_off_after_the_input_was_fixed_keeps_to_what_was_approved(
    tmp_path: Path,
) -> None:
    """A new attempt asks again: what changed meanwhile is not approved, and does not go."""
    world = world_of(tmp_path, "aarhus")
    before = base_of(world, "aarhus")
    world.forget("aarhus", [f"A-{row}" for row in range(40)])
    approve(world, "aarhus")
    receive, calls = ClientParty.receive, 0

    def cut(self: ClientParty, data: bytes) -> bytes | None:
        nonlocal calls
        answer = receive(self, data)
        calls += self.name == "aarhus"
        if calls == 3:
            raise KeyboardInterrupt
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClientParty, "receive", cut)
        with pytest.raises(KeyboardInterrupt):
            world.round()
    assert ledger_of(world, "aarhus").pending is not None
    world.forget("aarhus", ["A-41", "A-42", "A-43", "A-44", "A-45", "A-46", "A-47"])
    with open_client(world.client("aarhus")) as client:
        assert not client.preview().verdict.goes
    world.round()
    assert base_of(world, "aarhus") == before
    assert requests_of(world, "aarhus") == (2, 0)
    approved = approve(world, "aarhus")
    world.round()
    assert base_of(world, "aarhus") == approved
    assert requests_of(world, "aarhus") == (0, 2)
    world.check_sums()


def test_nobody_sees_who_waits(tmp_path: Path) -> None:
    """A site that holds a change back, and one that has none, look alike to all others."""

    def seen(folder: Path, waits: bool) -> dict[str, Any]:
        folder.mkdir()
        world = world_of(folder, "aarhus")
        if waits:
            world.forget("aarhus", [f"A-{row}" for row in range(40)])
        found: dict[str, Any] = {"round": a_round(world)}
        found |= of_the_server(world)
        found |= {f"bologna: {k}": one for k, one in of_a_member(world, "bologna").items()}
        assert requests_of(world, "aarhus") == (int(waits), 0)
        return found

    found = differences(seen(tmp_path / "waits", True), seen(tmp_path / "has none", False))
    assert not found, "\n".join(found)


def test_who_was_never_counted_takes_part_with_nothing(tmp_path: Path) -> None:
    world = World(tmp_path).set_up(federation_file(disclosure=RULES)).fill(60)
    write_private(world.client("aarhus") / FILE, b"approval = true\n")
    done = world.round()
    assert "aarhus" in done["participants"]
    assert not len(base_of(world, "aarhus"))
    approved = approve(world, "aarhus")
    world.round()
    assert base_of(world, "aarhus") == approved
    world.check_sums()


def test_a_file_that_was_looked_at_is_approved_and_no_other(tmp_path: Path) -> None:
    world = world_of(tmp_path, "aarhus")
    world.forget("aarhus", [f"A-{row}" for row in range(20)])
    looked_at = command(world, "client", "preview", "aarhus", "-o", "seen.json")
    assert "Not approved" in looked_at
    path = tmp_path / "seen.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "exists already" in command(world, "client", "preview", "aarhus", "-o", "seen.json")
    seen = json.loads(path.read_text(encoding="utf-8"))
    # Somebody shows the office other numbers than those that the digest is of.
    forged = seen | {"cells": [cell | {"count": cell["count"] + 5} for cell in seen["cells"]]}
    (tmp_path / "forged.json").write_text(json.dumps(forged), encoding="utf-8")
    (tmp_path / "strange.json").write_text("[1, 2]", encoding="utf-8")
    for name in ("forged.json", "strange.json"):
        told = command(world, "client", "approve", "aarhus", "--preview", name)
        assert "is not a preview of what the next round would take now" in told
    for options in ((), ("--digest", seen["digest"], "--preview", "seen.json")):
        assert "one of the two" in command(world, "client", "approve", "aarhus", *options)
    assert "run client preview again" in command(
        world, "client", "approve", "aarhus", "--digest", "not a digest"
    )
    with open_client(world.client("aarhus")) as client:
        assert not client.preview().verdict.goes
    assert "Approved" in command(world, "client", "approve", "aarhus", "--preview", "seen.json")
    world.round()
    with open_client(world.client("aarhus")) as client:
        assert client.ledger().base == client.histogram()
    world.forget("aarhus", [f"A-{row}" for row in range(20, 40)])
    told = command(world, "client", "approve", "aarhus", "--preview", "seen.json")
    assert "look at what has changed" in told


def test_the_site_sees_that_it_waits_and_its_metrics_do_not_tell(tmp_path: Path) -> None:
    worlds = [world_of(tmp_path / "asks", "aarhus"), world_of(tmp_path / "does not")]
    shown = []
    for world, asks in zip(worlds, (True, False), strict=True):
        world.forget("aarhus", [f"A-{row}" for row in range(20)])
        status = command(world, "client", "status", "aarhus", "--metrics", "m.prom")
        requests = command(world, "client", "requests", "aarhus")
        assert ("waits for client approve" in status) == asks
        assert ("waits for client approve" in requests) == asks
        for name in ("status", "requests"):
            plain = command(world, "client", name, "aarhus", "--json")
            assert f'"waits_for_approval": {str(asks).lower()}' in plain
        text = (world.folder / "m.prom").read_text(encoding="utf-8")
        assert "approv" not in text
        shown.append([line.split()[0] for line in text.splitlines()])
    assert shown[0] == shown[1]
    approve(worlds[0], "aarhus")
    assert '"waits_for_approval": false' in command(
        worlds[0], "client", "status", "aarhus", "--json"
    )


def test_what_preview_and_approve_say(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    preview = ("client", "preview", "aarhus", "-o")
    assert "must end in .json" in command(world, *preview, "p.txt")
    assert not (world.folder / "p.txt").exists()
    assert "Written to p.json" in command(world, *preview, "p.json")
    approving = ("client", "approve", "aarhus", "--preview", "p.json")
    said = "No approval is asked for here"
    assert said in command(world, *approving)
    assert '"needs_approval": false' in command(world, *approving, "--json")
    write_private(world.client("aarhus") / FILE, b"approval = true\n")
    assert said not in command(world, *approving)


def test_a_policy_that_is_a_directory_is_called_one(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    (world.client("aarhus") / FILE).mkdir(mode=0o755)
    said = command(world, "client", "status", "aarhus")
    assert "policy.toml is a directory, and must be a file" in said
    assert "chmod" not in said
