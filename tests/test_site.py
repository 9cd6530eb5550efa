"""The site: it builds without a warning, fetches nothing, and knows every command."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
import typer.main

from fedforget.cli.main import app
from pages import ROOT

sys.path.insert(0, str(ROOT / "tools"))

from command_pages import commands, every_command


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_no_page_fetches_anything_from_the_network(site: Path) -> None:
    """Links lead out where a reader clicks them; nothing is loaded from there by itself."""
    loads = re.compile(
        r'<(?:script|img|iframe|link)\b[^>]*?(?:src|href)="?(?:https?:)?//[^">]*', re.I
    )
    for page in site.rglob("*.html"):
        found = loads.findall(page.read_text(encoding="utf-8"))
        found = [tag for tag in found if 'rel="canonical"' not in tag]
        assert not found, f"{page.name}: {found}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?(?:https?:)?//", sheet.read_text(encoding="utf-8"))


def test_lists_within_lists_are_nested(site: Path) -> None:
    """In a plain viewer two or three spaces are enough; the site's Markdown wants four."""
    page = (site / "architecture.html").read_text(encoding="utf-8")
    assert re.search(
        r"<li>[^<]*<strong><code>clustering/owner.py</code>(?:(?!</li>).)*<ul>", page, re.S
    )


def test_blocks_say_their_language_to_the_style_sheet(site: Path) -> None:
    """Long commands are wrapped, and only commands can be selected, by rules for this class."""
    page = (site / "tutorials" / "three-hospitals.html").read_text(encoding="utf-8")
    assert 'class="language-console highlight"' in page
    sheet = (ROOT / "docs" / "stylesheets" / "site.css").read_text(encoding="utf-8")
    assert ".language-console code" in sheet


def test_pages_of_examples_show_what_they_print(site: Path) -> None:
    for script in (ROOT / "examples").glob("*.py"):
        page = (site / "examples" / f"{script.stem}.html").read_text(encoding="utf-8")
        assert '<span class="filename">It prints</span>' in page, script.name
    assert "178 records, inertia" in (site / "examples" / "one_owner.html").read_text("utf-8")


def test_search_works_on_pages_that_are_opened_from_the_disk(site: Path, tmp_path: Path) -> None:
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next(filter(None, map(shutil.which, names)), None)
    if chromium is None:
        pytest.skip("no chromium on PATH (Debian: apt-get install chromium)")
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000")
    offline = ("--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={tmp_path}")
    address = (site / "index.html").as_uri() + "?q=suppression"
    command = [chromium, *options, *offline, "--dump-dom", address]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert "matching documents" in dom
    assert re.search(r'<a href="[^"]*operate\.html[^"]*" class="md-search-result__link"', dom)


def test_every_command_has_its_options_and_an_example(site: Path) -> None:
    page = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    root = typer.main.get_command(app)
    assert isinstance(root, click.Group)
    every = dict(commands(root, "fedforget"))
    assert {"fedforget client forget", "fedforget demo", "fedforget server enrol"} <= set(every)
    written = every_command()
    for path, command in every.items():
        section = written.split(f"### {path}\n", 1)[1].split("\n### ", 1)[0]
        assert f"$ {path}" in section, f"{path} has no example"
        assert path in page
        for parameter in command.params:
            if isinstance(parameter, click.Option) and "--help" not in parameter.opts:
                assert max(parameter.opts, key=len) in section, f"{path}: {parameter.opts}"
                assert getattr(parameter, "help", None), f"{path}: {parameter.opts} has no help"


def test_everything_public_is_on_the_page_of_the_api(site: Path) -> None:
    import fedforget
    from fedforget import scma, scverse

    page = (site / "reference" / "api.html").read_text(encoding="utf-8")
    public = [name for name in fedforget.__all__ if name != "__version__"]
    public += [f"scma.{name}" for name in scma.__all__ if name not in ("PRIME", "Elements")]
    public += [f"scverse.{name}" for name in scverse.__all__]
    for name in public:
        assert f".{name}" in page, name
    for method in ("forget", "learn", "forget_clients", "save", "load", "predict"):
        assert f">{method}<" in page or f".{method}" in page, method


def drawings() -> dict[str, str]:
    """The pictures as the script draws them now."""
    path = ROOT / "docs" / "images" / "draw.py"
    spec = importlib.util.spec_from_file_location("draw", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {name: draw() for name, draw in module.PICTURES.items()}


def test_pictures_are_what_their_script_draws() -> None:
    for name, drawn in drawings().items():
        kept = (ROOT / "docs" / "images" / name).read_text(encoding="utf-8")
        assert kept == drawn, f"run python docs/images/draw.py: {name} is out of date"
