"""The report: one page for a server or a client, safe to open and safe to send."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from browsing import SIZES, browser, tab
from jinja2 import UndefinedError
from matplotlib.image import imread
from typer.testing import CliRunner

from fedforget.cli.charts import Cluster as Drawn
from fedforget.cli.charts import plane, scatter, strip
from fedforget.cli.directory_page import SMALLEST_SHOWN, report_of, rounded_means, trouble
from fedforget.cli.main import app
from fedforget.pages.templates import macro, render
from fedforget.parties.client_party import ClientParty, open_client
from fedforget.parties.federation_file import (
    Feature,
    FederationFile,
    ModelPart,
    ProtocolPart,
    Representatives,
    ServerPoints,
)
from fedforget.parties.server_party import ServerParty, open_server
from fedforget.parties.sources import open_source
from fedforget.runtime import directories

HOSTILE = "<script>alert(1)</script>\"'&amp;"
HOSTILE_FEATURE = "<img src=x onerror=alert(1)>"
CLIENTS = ("aarhus", "</title><b>bologna", "coimbra")
RECORDS = 80


class Parties(NamedTuple):
    """A federation in directories, and everything that no client's page may show."""

    server: Path
    clients: list[Path]
    ids: list[str]
    values: np.ndarray
    salt: str


def federation(
    points: ServerPoints = "weighted", representatives: Representatives = "means"
) -> FederationFile:
    model = ModelPart(3, 6, "box", 0.01, False, representatives, points, 3, 50, "ab" * 16)
    features = (Feature("age", 0.0, 120.0), Feature(HOSTILE_FEATURE, -3.0, 3.0))
    protocol = ProtocolPart(0.0, 0.1, 2, 16, 60.0)
    return FederationFile(HOSTILE, "cd" * 16, "00" * 32, model, protocol, features)


def make_parties(
    root: Path, points: ServerPoints = "weighted", representatives: Representatives = "means"
) -> Parties:
    """Three clients with records, two rounds with a request between them, and one that waits."""
    rng = np.random.default_rng(0)
    agreed = ServerParty.create(root / "server", federation(points, representatives))
    clients = [root / f"client-{number}" for number in range(len(CLIENTS))]
    keys = {
        name: ClientParty.create(folder, name)["key"]
        for name, folder in zip(CLIENTS, clients, strict=True)
    }
    with open_server(root / "server") as server:
        members = server.enrol(keys)
    ids, values = [], rng.uniform((0.0, -3.0), (120.0, 3.0), (len(CLIENTS), RECORDS, 2))
    for folder, some in zip(clients, values, strict=True):
        names = [f"{folder.name}-patient-{row}" for row in range(RECORDS)]
        path = root / f"{folder.name}.npz"
        columns = dict(zip(agreed.feature_names, some.T, strict=True))
        np.savez(path, patient=np.array(names), **columns)
        with open_client(folder) as client:
            client.join(agreed, members)
            client.import_table(open_source([path], agreed.feature_names, "patient"))
        ids += names
    directories.run(root / "server", clients)
    with open_client(clients[0]) as client:
        salt = client.forget(ids[:2]).salt
    directories.run(root / "server", clients)
    with open_client(clients[0]) as client:
        client.forget(ids[2:4])
    return Parties(root / "server", clients, ids, values.reshape(-1, 2), salt)


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    return make_parties(tmp_path_factory.mktemp("parties"))


@pytest.fixture(scope="module")
def pages(parties: Parties) -> dict[str, str]:
    return dict(report_of(folder) for folder in (parties.server, parties.clients[0]))


class Outline(HTMLParser):
    """The elements and the text of a page; complains about one that is not closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text += data + " "


# -- what is on the pages --------------------------------------------------------------------------


def test_the_servers_page(parties: Parties, pages: dict[str, str]) -> None:
    outline = Outline(pages["server"])
    with open_server(parties.server) as server:
        status = server.status()
        head, model = status["log_head"], status["model"]
    assert head in outline.text
    assert model in outline.text
    assert f"{status['records']} " in outline.text
    for title in ("Clusters", "Profiles", "Rounds", "Members", "Epochs", "Log"):
        assert f" {title} " in outline.text
    assert status["fingerprint"] in outline.text
    assert "Failures and findings" in outline.text
    for word in ("full", "delta", "attempts", "kB", "the log's chain and signatures fit"):
        assert word in outline.text
    assert outline.tags.count("circle") >= status["bins"] + 3
    for name in CLIENTS:
        assert name in outline.text


def test_the_clients_page(pages: dict[str, str]) -> None:
    outline = Outline(pages["client"])
    for word in ("Local clusters", "Requests waiting", "for the next round", "Receipts", "valid"):
        assert word in outline.text
    assert "the stored state is that of a fresh fit of the 76 records held" in outline.text
    assert "holds no record's id, no record's values and no keys" in outline.text


@pytest.mark.parametrize("points", ["weighted", "uniform"])
def test_sizes_are_those_of_the_model(points: ServerPoints, tmp_path: Path) -> None:
    page = report_of(make_parties(tmp_path, points).server)[1]
    listed = re.search(r'<ul class="sizes".*?</ul>', page, re.DOTALL)
    assert listed is not None
    sizes = [int(one) for one in re.findall(r'class="number">(\d+)<', listed[0])]
    assert len(sizes) == 3
    assert sum(sizes) == 3 * RECORDS - 2


def test_directories_at_every_stage(tmp_path: Path) -> None:
    """Nothing enrolled, nothing joined, nothing imported, everything erased."""
    agreed = ServerParty.create(tmp_path / "server", federation())
    assert "Nobody is enrolled yet." in report_of(tmp_path / "server")[1]
    key = ClientParty.create(tmp_path / "one", "one")["key"]
    assert "has not joined a federation" in report_of(tmp_path / "one")[1]
    other = ClientParty.create(tmp_path / "other", "other")["key"]
    with open_server(tmp_path / "server") as server, open_client(tmp_path / "one") as client:
        client.join(agreed, server.enrol({"one": key, "other": other}))
    assert "No round was committed yet." in report_of(tmp_path / "server")[1]
    assert "audit, now" in report_of(tmp_path / "one")[1]
    with open_client(tmp_path / "one") as client:
        client.leave()
    assert "a later round takes this client out" in report_of(tmp_path / "one")[1]


def test_a_changed_log_is_shown(tmp_path: Path) -> None:
    import sqlite3

    server = make_parties(tmp_path).server
    with sqlite3.connect(server / "server.sqlite") as database:
        database.execute("UPDATE log SET entry = replace(entry, '\"full\"', '\"delta\"')")
    database.close()
    page = report_of(server)[1]
    assert re.search(r'class="bad">log entry \d was changed', page)


def test_failures_and_findings() -> None:
    """One member is named, or a pair, or nobody; committed rounds can have findings too."""
    evil = "<b>aarhus"
    found = [{"members": [evil], "text": f"{evil} signed what is wrong"}]
    pair = [{"members": ["bologna", "coimbra"], "text": "bologna cannot read coimbra's share"}]
    taking_part = {"round": 3, "participants": [evil, "bologna", "coimbra"]}
    log = [
        {"kind": "epoch", "time": "2030-01-01T00:00:00+00:00", "body": {"findings": found}},
        {"kind": "failure", "time": "x", "body": taking_part | {"attempt": 7, "findings": []}},
        {"kind": "failure", "time": "x", "body": taking_part | {"attempt": 8, "findings": pair}},
        {"kind": "round", "time": "x", "body": taking_part | {"attempt": 9, "findings": found}},
        {"kind": "round", "time": "x", "body": taking_part | {"attempt": 10}},
    ]
    draw = macro("history.html", "trouble")
    shown = draw(trouble(log))
    assert shown.count("<tr>") == 1 + 3
    assert evil not in shown
    outline = Outline(str(shown))
    assert "nobody can be named" in outline.text
    assert "bologna cannot read coimbra's share" in outline.text
    assert f"{evil} signed what is wrong" in outline.text
    assert "committed" in outline.text
    assert "None." in draw(trouble(log[-1:]))


# -- safe to open ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["server", "client"])
def test_a_page_needs_nothing_and_runs_nothing(kind: str, pages: dict[str, str]) -> None:
    page, outline = pages[kind], Outline(pages[kind])
    assert not re.search(r"https?:|//|url\(|@import|javascript:", page)
    assert not {"script", "link", "img", "iframe", "object", "embed", "form", "a"} & {*outline.tags}
    names = {name for name, _ in outline.attributes}
    assert not {"src", "href", "srcset", "style"} & names
    assert not [name for name in names if name.startswith("on")]
    assert "default-src 'none'" in page


@pytest.mark.parametrize("kind", ["server", "client"])
def test_names_stay_text(kind: str, pages: dict[str, str]) -> None:
    outline = Outline(pages[kind])
    assert HOSTILE in outline.text
    assert HOSTILE_FEATURE in outline.text
    assert outline.tags.count("title") == pages[kind].count("<title>")
    assert "b" not in outline.tags


SOME = {
    "shell": "base.html", "live": None, "kind": "k", "made": "now", "version": "1",
    "federation": None,
}  # fmt: skip


def test_whatever_is_not_markup_is_escaped() -> None:
    page = render("client.html", title="<x>", name='"<b>"', **SOME)
    assert "<title>&lt;x&gt;</title>" in page
    assert "<h1><bdi>&#34;&lt;b&gt;&#34;</bdi></h1>" in page


def test_a_value_that_a_template_lacks_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="'name' is undefined"):
        render("client.html", title="x", **SOME)


# -- safe to send ----------------------------------------------------------------------------------


def secrets_of(folder: Path) -> list[str]:
    return [path.read_bytes().hex() for path in folder.glob("*.key")]


def test_a_clients_page_has_no_records_and_no_secrets(
    parties: Parties, pages: dict[str, str]
) -> None:
    page, text = pages["client"], Outline(pages["client"]).text
    assert "patient" not in page
    for identifier in parties.ids:
        assert identifier not in page
    # Whole numbers alone: the digits of a fingerprint may be anything.
    numbers = {number.rstrip(".") for number in re.findall(r"-?[0-9.]+", text)}
    for value in parties.values.ravel().tolist():
        assert repr(value) not in page
        assert f"{value:.6g}" not in numbers
    for secret in (*secrets_of(parties.clients[0]), parties.salt):
        assert secret not in page
    with open_client(parties.clients[0]) as client:
        audit = client.audit()
        digests = [
            digest
            for one in client.store.receipts()
            for digest in json.loads(one.document)["request"]["digests"]
        ]
    for digest in (audit.stored, audit.fresh, *digests):
        assert digest[:12] not in page


@pytest.mark.parametrize("representatives", ["means", "seeds", "lloyd"])
def test_means_are_rounded_and_never_records(
    representatives: Representatives, tmp_path: Path
) -> None:
    folder = make_parties(tmp_path, representatives=representatives).clients[1]
    with open_client(folder) as client:
        rows, _, values = client.store.everything(2)
        labels = client.store.labels_of(rows)
        clusters = client.store.clusters(2)
        coarse, shown = rounded_means(client.config, clusters)
    means = [values[labels == number].mean(axis=0) for number in range(len(clusters.sizes))]
    exact = (np.array(means) - (0.0, -3.0)) / (120.0, 6.0)
    assert np.abs(coarse - exact).max() <= 0.005 + 1e-9
    np.testing.assert_allclose(coarse * 100, np.round(coarse * 100), atol=1e-9)
    np.testing.assert_allclose(shown, (0.0, -3.0) + coarse * (120.0, 6.0))


def test_a_cluster_without_records_is_not_shown(tmp_path: Path) -> None:
    """Lloyd's iteration may leave one: it has no mean, and nothing is divided by its size."""
    folder = make_parties(tmp_path, representatives="lloyd").clients[1]
    with open_client(folder) as client:
        stored = client.store.clusters(2)
        stored.sizes[1] = stored.sums[1] = 0
        with client.store.transaction():
            client.store.set_clusters(stored)
        coarse, _ = rounded_means(client.config, stored)
        assert np.isfinite(coarse).all()
    page = report_of(folder)[1]
    sizes = stored.sizes[stored.sizes > 0]
    small = int((sizes < SMALLEST_SHOWN).sum())
    assert (f"{small} with fewer than {SMALLEST_SHOWN} records" in page) == bool(small)
    assert not re.search(r"\bnan\b", page, re.IGNORECASE)


def test_small_clusters_are_counted_but_not_drawn(tmp_path: Path) -> None:
    """The mean of one record is that record."""
    agreed = ServerParty.create(tmp_path / "server", federation())
    key = ClientParty.create(tmp_path / "one", "one")["key"]
    near = np.tile([[60.0, 0.0]], (20, 1)) + np.linspace(0, 0.1, 20)[:, np.newaxis]
    values = np.vstack([near, [[108.0, 2.7]]])
    columns = dict(zip(agreed.feature_names, values.T, strict=True))
    np.savez(tmp_path / "table.npz", patient=np.arange(21), **columns)
    other = ClientParty.create(tmp_path / "other", "other")["key"]
    with open_server(tmp_path / "server") as server, open_client(tmp_path / "one") as client:
        client.join(agreed, server.enrol({"one": key, "other": other}))
        client.import_table(open_source([tmp_path / "table.npz"], agreed.feature_names, "patient"))
        sizes = client.store.clusters(2).sizes
    page = report_of(tmp_path / "one")[1]
    small = int((sizes < SMALLEST_SHOWN).sum())
    assert small
    assert f"{small} with fewer than {SMALLEST_SHOWN} records are not drawn" in page
    text = Outline(page).text
    assert " 108 " not in text
    assert " 2.7 " not in text
    assert page.count('class="centred"') == 3 * (len(sizes) - small)


# -- the drawing -----------------------------------------------------------------------------------


def test_the_plane_is_that_of_the_repeated_points(rng: np.random.Generator) -> None:
    points, weights = rng.normal(size=(30, 5)), rng.integers(1, 6, 30)
    mean, axes, shares = plane(points, weights)
    repeated = np.repeat(points, weights, axis=0)
    centred = repeated - repeated.mean(axis=0)
    variances = np.linalg.eigvalsh(centred.T @ centred)[::-1]
    np.testing.assert_allclose(mean, repeated.mean(axis=0))
    np.testing.assert_allclose(axes @ axes.T, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(shares, variances[:2] / variances.sum())
    np.testing.assert_allclose(((centred @ axes.T) ** 2).sum(axis=0), variances[:2])


def test_the_plane_of_one_feature_or_one_point() -> None:
    _, axes, shares = plane(np.array([[1.0], [3.0]]), np.array([1, 1]))
    assert axes.tolist() == [[1.0], [0.0]]
    assert shares.tolist() == [1.0, 0.0]
    _, _, shares = plane(np.array([[1.0, 2.0, 3.0]]), np.array([5]))
    assert shares.tolist() == [0.0, 0.0]


def test_a_circles_area_is_its_count() -> None:
    points = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 0.5]])
    chart = scatter(
        points, np.array([400, 100, 25]), np.array([0, 0, 0]), points[:1], [Drawn(0, 525)]
    )
    drawn = macro("charts.html", "scatter")(chart)
    radii = [float(r) for r in re.findall(r' r="([\d.]+)" class="bin', drawn)]
    assert radii == pytest.approx([radii[0], radii[0] / 2, radii[0] / 4], rel=1e-3)


@pytest.mark.parametrize(
    ("n", "mark"), [(1, "circle"), (12, "circle"), (13, "line"), (300, "line")]
)
def test_a_strip_holds_any_number_of_clusters(n: int, mark: str) -> None:
    clusters = [Drawn(number, 9) for number in range(n)]
    chart = strip("x", 5.0, 5.0, [5.0] * n, clusters)  # a constant feature
    drawn = macro("charts.html", "strip")(chart)
    assert drawn.count(f"<{mark} ") == n + (mark == "line")


# -- the command -----------------------------------------------------------------------------------


def test_the_command_writes_over_an_older_page(parties: Parties, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    out.write_text("old")
    done = CliRunner().invoke(app, ["report", str(parties.server), "-o", str(out), "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert told == {"report": str(out), "kind": "server", "bytes": out.stat().st_size}
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_the_command_reads_while_a_round_has_the_directories(
    parties: Parties, tmp_path: Path
) -> None:
    """As a round has them: locked, and in the middle of a change."""
    client = parties.clients[0]
    before = {folder: report_of(folder)[1] for folder in (parties.server, client)}
    made = re.compile(r"\d\d:\d\d:\d\d UTC|(\d+ (d|h|min|s) )+ago")

    class CutOff(Exception):
        """So that nothing of the change is left."""

    def write_them() -> None:
        for folder, page in before.items():
            out = tmp_path / f"{folder.name}.html"
            done = CliRunner().invoke(app, ["report", str(folder), "-o", str(out)])
            assert done.exit_code == 0, done.output
            assert made.sub("", out.read_text()) == made.sub("", page)
        raise CutOff

    with open_server(parties.server) as server, open_client(client), suppress(CutOff):
        with server.storing():
            server.append_to_log("epoch", {"epoch": 99, "members": {}})
            write_them()
        pytest.fail("the change was not cut off")


def test_a_page_in_the_directory_does_not_lock_its_owner_out(parties: Parties) -> None:
    out = parties.clients[0] / "report.html"
    for _ in range(2):
        done = CliRunner().invoke(app, ["report", str(parties.clients[0]), "-o", str(out)])
        assert done.exit_code == 0, done.output
    out.unlink()


@pytest.mark.parametrize(
    ("folder", "out", "words"),
    [
        (".", "page.html", "neither a client's nor a server's directory"),
        ("nowhere", "page.html", "neither a client's nor a server's directory"),
        ("server", "server.sqlite", "the file name must end in .html"),
        ("server", "nowhere/page.html", "cannot be written"),
    ],
)
def test_errors_are_plain(folder: str, out: str, words: str, tmp_path: Path) -> None:
    ServerParty.create(tmp_path / "server", federation())
    command = ["report", str(tmp_path / folder), "-o", str(tmp_path / out)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 1
    assert words in done.output


# -- in a browser ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as found:
        yield found


@pytest.mark.parametrize("kind", ["server", "client"])
@pytest.mark.parametrize(
    ("size", "scheme", "background"), [("screen", "light", 255), ("phone", "dark", 20)]
)
def test_a_browser_shows_the_page(
    kind: str,
    size: str,
    scheme: str,
    background: int,
    chromium: Any,
    pages: dict[str, str],
    tmp_path: Path,
) -> None:
    path = tmp_path / "page.html"
    path.write_text(pages[kind], encoding="utf-8")
    with tab(chromium, size, scheme) as one:
        one.page.goto(path.as_uri())
        assert one.page.locator("#profiles h2").inner_text() == "Profiles"
        assert "<script>alert(1)" in one.page.locator("body").inner_text()
        assert one.page.locator("script").count() == 0
        one.check()
        assert one.asked == [path.as_uri()]
        picture = tmp_path / "page.png"
        one.page.screenshot(path=picture, full_page=True)
    pixels = np.round(imread(picture)[..., :3] * 255).astype(int)
    assert pixels.shape[1] == SIZES[size][0]
    assert pixels[2, 2, 0] == background
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 100
    blank = (pixels == pixels[2, 2]).all(axis=2)
    assert blank[:, -8:].all(), "something sticks out at the right"
    assert (~blank).mean() > 0.02
