"""A site's own policy: what it refuses, what it makes stricter, what waits for an approval."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from others_see import command
from party_world import FIVE, World, all_bytes, federation_file, found_in

from fedforget.parties.attempts import failures_since
from fedforget.parties.client_party import open_client
from fedforget.parties.disclosure import DisclosurePart
from fedforget.parties.errors import ClientError
from fedforget.parties.folders import FolderError, write_private
from fedforget.parties.policy import FILE, SitePolicy, SitePolicyError
from fedforget.parties.server_party import ServerParty, open_server
from fedforget.runtime.directories import RoundFailedError, run

RULES = DisclosurePart(3, 6, 2, 0.01)


def set_policy(world: World, name: str, text: str) -> None:
    write_private(world.client(name) / FILE, text.encode())


def new_world(folder: Path, **policies: str) -> World:
    """Three sites with 40 records each, some with a policy before they join."""
    world = World(folder)
    file = federation_file(disclosure=RULES, local_clusters=8)
    ServerParty.create(world.server, file)
    keys = {name: world.make_client(name) for name in world.names}
    for name, text in policies.items():
        set_policy(world, name, text)
    world.enrol(keys)
    return world.fill(40)


def reported(world: World, name: str) -> np.ndarray:
    with open_client(world.client(name)) as client:
        return client.histogram().counts()


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("min_cell = 4", "min_cell = 4: the federation has 3"),
        ("min_records = 7", "min_records = 7: the federation has 6"),
        ("count_step = 4", "count_step = 4: the federation has 2"),
        ("count_step = 3", "count_step = 3 is not a multiple of the federation's 2"),
        ("tighten = true\ncount_step = 3", "is not a multiple"),
        ('features = ["age"]', "features: the federation uses weight"),
        ('tighten = true\nfeatures = ["age"]', "features: the federation uses weight"),
        ("least_members = 4", "least_members = 4: the membership list has 3"),
    ],
)
def test_a_laxer_federation_is_refused_with_the_line_that_differs(
    tmp_path: Path, policy: str, words: str
) -> None:
    with pytest.raises(SitePolicyError, match=words):
        new_world(tmp_path, aarhus=policy)
    with open_client(tmp_path / "aarhus") as client:
        assert client.federation is None


def test_what_is_strict_enough_is_joined(tmp_path: Path) -> None:
    policy = 'min_cell = 3\ncount_step = 1\nfeatures = ["weight", "age", "x"]\nleast_members = 3'
    world = new_world(tmp_path, aarhus=policy)
    world.round()
    world.check_audits()


def test_a_site_may_be_stricter_for_itself(tmp_path: Path) -> None:
    policy = "tighten = true\nmin_cell = 9\ncount_step = 4"
    world = new_world(tmp_path, aarhus=policy)
    world.round()
    world.check_sums()
    assert (reported(world, "aarhus") % 4 == 0).all()
    assert reported(world, "aarhus").min() >= 8  # 9 records, rounded
    assert reported(world, "bologna").min() < 8
    # Nothing of the policy is outside the site.
    with open_server(world.server) as server:
        assert server.config.rules == RULES.rules
    # A policy that was written after joining counts from the next round on.
    set_policy(world, "bologna", "min_records = 41")
    world.round()
    world.check_sums()
    assert not len(reported(world, "bologna"))


FORBIDDING = ["least_members = 9", 'features = ["age"]', "count_step = 3"]


@pytest.mark.parametrize("policy", FORBIDDING)
@pytest.mark.parametrize("spare", [False, True])
def test_a_policy_that_forbids_a_round_stops_nobody_else(
    tmp_path: Path, policy: str, spare: bool
) -> None:
    """Written after joining, it keeps the site out; only the site learns why."""
    world = World(tmp_path, FIVE)
    world.set_up(federation_file(disclosure=RULES, local_clusters=8)).fill(40)
    world.round()
    set_policy(world, "coimbra", policy)
    done = world.round(spare=spare)
    assert set(done["participants"]) == set(FIVE) - {"coimbra"}
    assert "its operator sees why" in done["refused"]["coimbra"]
    told = json.dumps(done)
    with open_server(world.server) as server:
        told += json.dumps(server.status()) + json.dumps(server.log())
    assert "policy" not in told
    assert policy.split(" =")[0] not in told
    causes = [one["cause"] for one in failures_since(world.client("coimbra"), None)]
    assert len(causes) == 1
    assert causes[0].startswith("policy.toml")
    assert policy.split(" =")[0] in causes[0]


def test_where_too_few_are_left_the_server_is_not_told_of_a_policy(tmp_path: Path) -> None:
    world = new_world(tmp_path)
    set_policy(world, "coimbra", "least_members = 9")
    told = command(world, "round", "server", *world.names)
    told += command(world, "server", "status", "server", "--json")
    assert "its operator sees why" in told
    assert "least_members" not in told
    assert "least_members = 9" in command(world, "client", "status", "coimbra", "--json")
    assert "least_members = 9" in failures_since(world.client("coimbra"), None)[-1]["cause"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("min_cell = 0", "min_cell must be a number of at least 1"),
        ("min_cell = true", "min_cell must be a number of at least 1"),
        ("features = 'age'", "features must be a list of columns"),
        ("approval = 1", "approval must be true or false"),
        ("max_cell = 3", "max_cell is not a key"),
        ("min_cell", "policy.toml"),
    ],
)
def test_a_policy_that_cannot_be_read_stops_everything(
    tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / FILE).write_text(text, encoding="utf-8")
    with pytest.raises(SitePolicyError, match=words):
        SitePolicy.read(tmp_path)


def test_others_are_not_told_what_a_policy_forbids(tmp_path: Path) -> None:
    world = new_world(tmp_path)
    world.round()
    set_policy(world, "aarhus", "least_members = 99")
    with pytest.raises(
        RoundFailedError, match="aarhus: it cannot take part; its operator sees why"
    ) as caught:
        world.round()
    assert "least_members" not in str(caught.value)
    assert "99" not in str(caught.value)


def test_a_policy_that_others_could_change_stops_everything(tmp_path: Path) -> None:
    """A link, also one that leads nowhere, and a file that others may write."""
    world = new_world(tmp_path)
    site, elsewhere = world.client("aarhus"), tmp_path / "elsewhere.toml"
    policy = site / FILE
    policy.symlink_to(elsewhere)
    with (
        pytest.raises(FolderError, match=r"policy\.toml is a link"),
        open_client(world.client("aarhus")),
    ):
        pass
    elsewhere.write_text("min_cell = 9", encoding="utf-8")
    elsewhere.chmod(0o600)
    with (
        pytest.raises(FolderError, match=r"policy\.toml is a link"),
        open_client(world.client("aarhus")),
    ):
        pass
    policy.unlink()
    policy.write_text("approval = true", encoding="utf-8")
    policy.chmod(0o622)
    with (
        pytest.raises(FolderError, match=r"mode 622.*chmod 600"),
        open_client(world.client("aarhus")),
    ):
        pass


def test_without_a_file_nothing_is_forbidden(tmp_path: Path) -> None:
    assert SitePolicy.read(tmp_path) == SitePolicy()


@pytest.mark.parametrize("spare", [False, True])
@pytest.mark.parametrize("policy", ["least_members = 9", "count_step = 3"])
def test_a_policy_stops_its_own_site_alone(tmp_path: Path, policy: str, spare: bool) -> None:
    """The others go on, and are not told what the policy says."""
    world = World(tmp_path, FIVE).set_up(federation_file(disclosure=RULES)).fill(12)
    world.round()
    set_policy(world, "aarhus", policy)
    done = run(world.server, world.clients, spare=spare)
    assert done["participants"] == list(FIVE[1:])
    assert done["refused"] == {
        "aarhus": "it cannot take part; its operator sees why (client status)"
    }
    (failure,) = failures_since(world.client("aarhus"), None)
    assert policy in failure["cause"]
    assert not found_in(all_bytes(world.server), {FILE: FILE.encode()})
    set_policy(world, "aarhus", "")
    assert world.round()["participants"] == list(FIVE)


def test_a_preview_is_what_the_round_takes(tmp_path: Path) -> None:
    world = new_world(tmp_path)
    before = all_bytes(world.client("aarhus"))
    with open_client(world.client("aarhus")) as client:
        preview = client.preview()
        plain = preview.plain(client.config, ["age", "weight"])
        sizes = client.store.clusters(2).sizes
    assert all_bytes(world.client("aarhus")) == before
    assert preview.records == 40
    assert preview.smallest_cell is not None
    assert preview.smallest_cell >= 3 > sizes.min()
    assert preview.dissolved > 0
    assert all(cell["change"] == cell["count"] > 0 for cell in plain["cells"])
    assert plain["policy"]["goes"]
    world.round()
    with open_client(world.client("aarhus")) as client:
        assert client.ledger().base == preview.reported
        again = client.preview().plain(client.config, ["age", "weight"])
        assert {cell["change"] for cell in again["cells"]} == {0}
        # In the features' own units.
        grid = client.config.grid
        found = [[cell["centre"]["age"], cell["centre"]["weight"]] for cell in again["cells"]]
        assert np.array_equal(grid.bins(found), preview.reported.points())
    world.forget("aarhus", [f"A-{row}" for row in range(20)])
    with open_client(world.client("aarhus")) as client:
        changed = client.preview().plain(client.config, ["age", "weight"])
    assert sum(cell["change"] for cell in changed["cells"]) < 0
    assert any(cell["count"] == 0 and cell["change"] < 0 for cell in changed["cells"])


def test_without_approval_a_round_takes_what_was_counted_last(tmp_path: Path) -> None:
    world = new_world(tmp_path)
    world.round()
    set_policy(world, "aarhus", "approval = true")
    with open_client(world.client("aarhus")) as client:
        base = client.ledger().base
    world.forget("aarhus", [f"A-{row}" for row in range(15)])
    done = world.round()
    assert "aarhus" in done["participants"]
    with open_client(world.client("aarhus")) as client:
        assert client.ledger().base == base
        assert client.ledger().base_round == done["round"]
        assert client.status()["requests_waiting"] == 1
        assert client.status()["receipts"] == 0
        preview = client.preview()
        assert not preview.verdict.goes
        assert client.waits_for_approval()
        with pytest.raises(ClientError, match="run client preview again"):
            client.approve("00" * 32)
        client.approve(preview.digest)
        assert client.preview().verdict.goes
        assert not client.waits_for_approval()
        # An approval is for one report.
        client.forget([f"A-{row}" for row in range(15, 30)])
        assert not client.preview().verdict.goes
    world.round()
    with open_client(world.client("aarhus")) as client:
        assert client.ledger().base == base
        assert client.status()["receipts"] == 0
        client.approve(client.preview().digest)
    world.round()
    with open_client(world.client("aarhus")) as client:
        assert client.ledger().base == client.histogram() != base
        assert client.status()["receipts"] == 2
        assert client.status()["requests_waiting"] == 0
    world.check_sums()
    world.check_audits()
