"""Parties under rules of disclosure: what reaches the server, and what leaves it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from party_world import NAMES, World, federation_file

from fedforget.cli.directory_page import client_page, server_page
from fedforget.clustering.distance import nearest
from fedforget.parties.client_party import open_client
from fedforget.parties.disclosure import PRESETS, DisclosurePart, warnings_of
from fedforget.parties.server_party import open_server

RULES = DisclosurePart(5, 10, 5, 0.05)


def world_of(folder: Path, n: int = 40) -> World:
    world = World(folder).set_up(federation_file(disclosure=RULES, local_clusters=8))
    return world.fill(n)


def test_no_small_cell_reaches_the_server(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    for name in NAMES:
        with open_client(world.client(name)) as client:
            stored = client.store.clusters(2)
            assert (stored.sizes < 5).any(), "the test needs a cluster that is too small"
            cells, reported = client.cells(), client.histogram()
            assert (cells.sizes >= 5).all()
            assert cells.sizes.sum() == 40
            assert (reported.counts() >= 5).all()
            assert (reported.counts() % 5 == 0).all()
    world.round()
    world.check_sums()
    world.check_audits()


def test_who_has_too_few_records_takes_part_with_nothing_and_comes_back(tmp_path: Path) -> None:
    world = world_of(tmp_path, 12)
    world.round()
    world.forget("aarhus", [f"A-{row}" for row in range(3)])
    done = world.round()
    assert "aarhus" in done["participants"]
    with open_client(world.client("aarhus")) as client:
        assert len(client.store) == 9
        assert len(client.ledger().base or ()) == 0
    world.check_sums()
    world.hold("aarhus", ["A-new"], np.array([[50.0, 60.0]]))
    world.round()
    with open_client(world.client("aarhus")) as client:
        assert client.histogram().total > 0
    world.check_sums()
    world.check_audits()


def test_the_server_shows_the_published_model_alone(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.round()
    with open_server(world.server) as server:
        clustered, centres = server.centres()
        exact = server.model().centres * server.config.grid.step
        assert np.allclose(clustered / 0.05, np.rint(clustered / 0.05), atol=1e-9)
        assert not np.array_equal(clustered, exact)
        assert np.abs(clustered - exact).max() <= 0.025 + 1e-9
        # Sizes are those around the published centres.
        points = server.config.clustered_of(server.aggregate().points())
        labels, counts = nearest(points, clustered)[0], server.aggregate().counts()
        assert server.sizes() == [int(counts[labels == k].sum()) for k in range(len(centres))]
        entry = [one for one in server.log() if one["kind"] == "round"][-1]
        assert "changed_bins" not in entry["body"]
        page, bins = server_page(server), len(server.aggregate())
    assert "bins of the sum" not in page
    assert "Bins of the sum" not in page
    assert "The published model" in page
    assert bins > 12
    assert page.count("<circle") < bins


def test_a_removal_that_moves_no_published_centre_changes_no_digest(tmp_path: Path) -> None:
    world = World(tmp_path).set_up(
        federation_file(disclosure=DisclosurePart(1, 1, 1, 1.0), local_clusters=8)
    )
    world.fill(40)
    first = world.round()
    world.forget("aarhus", ["A-3"])
    second = world.round()
    assert second["changed_bins"] > 0
    assert second["model"] == first["model"]


def test_the_client_s_page_shows_what_is_reported(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    with open_client(world.client("aarhus")) as client:
        page = client_page(client)
        stored = client.store.clusters(2).sizes
    assert (stored < 5).any()
    assert "with fewer than 5 records are not drawn" not in page


def test_presets_report_no_count_below_their_least_cell() -> None:
    for name, rules in PRESETS.items():
        sizes = np.arange(rules.min_cell, 200)
        assert (rules.rounded(sizes) >= rules.min_cell).all(), name
        assert rules.min_records >= rules.min_cell


def test_a_fine_grid_is_warned_of() -> None:
    assert not warnings_of(DisclosurePart(5, 10, 5, 0.01), 0.01)
    (warning,) = warnings_of(DisclosurePart(5, 10, 5, 0.01), 0.009)
    assert "0.045" in warning


def test_a_least_cell_that_is_rounded_below_itself_is_warned_of() -> None:
    (warning,) = warnings_of(DisclosurePart(7, 10, 5, 0.01), 0.01)
    assert "7 records" in warning
    assert "reported as 5" in warning
    assert "--min-cell 8 or --count-step 7" in warning
    for least_cell in range(2, 30):
        for step in range(1, 30):
            warned = warnings_of(DisclosurePart(least_cell, 10, step, 0.1), 0.1)
            for better in [int(text.split("--min-cell ")[1].split()[0]) for text in warned]:
                assert better > least_cell
                assert not warnings_of(DisclosurePart(better, 10, step, 0.1), 0.1)
            assert not warnings_of(DisclosurePart(least_cell, 10, least_cell, 0.1), 0.1)
