"""Every page: its code runs, its links lead somewhere, and its lines are short."""

from __future__ import annotations

import ast
import contextlib
import re
import sys
import warnings
from pathlib import Path

import pytest

from pages import ROOT, anchors, blocks, links, pages, text_of
from test_guide import fits, typed

CONSOLE_ELSEWHERE = {
    "docs/guide.md": "tests/test_guide.py",
    "docs/operate.md": "tests/test_guide.py",
    "docs/data.md": "tests/test_data_page.py",
}
"""Console blocks that another test runs, because they need patients or a federation beforehand."""

BEFORE = {
    "docs/how-to/check-a-receipt.md": "docs/tutorials/three-hospitals.md",
    "docs/tutorials/a-year.md": "docs/tutorials/three-hospitals.md",
}
"""Pages that go on where another one ends."""

WITH_CELLS = {"docs/tutorials/cells.md"}
"""Pages that need anndata.  They are skipped without it."""

PYTHON_ELSEWHERE = {"docs/data.md"}
"""Pages of these whose blocks of Python run there, too: they share files with the commands."""

NOT_RUN = {
    "docs/deploy.md": "needs three machines, nginx and certificates; tests/flower runs these steps",
}
"""Pages with console blocks that no test can run, and why."""

PLAIN_BLOCKS = {
    "README.md": "make demo and make test set up the environment in which this test runs",
    "CONTRIBUTING.md": "the same, and campaigns of minutes",
    "docs/deploy.md": "drawings and messages",
    "docs/results/README.md": "runs of minutes; tests/bench runs their pieces",
}
"""Pages with blocks in no language, which are not run, and why."""


def runnable(page: str) -> list[str]:
    """The languages of a page's blocks that can be run at all."""
    return [block.language for block in blocks(page) if block.language in ("python", "console")]


WITH_CODE = [page for page in pages() if runnable(page)]


@pytest.mark.skipif(sys.platform == "win32", reason="permissions are those of POSIX")
@pytest.mark.parametrize("page", WITH_CODE)
def test_the_blocks_of_a_page_run_one_after_the_other(
    page: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Python blocks share their names; a console block must print what stands on the page."""
    if page in WITH_CELLS:
        pytest.importorskip("anndata")
        request.getfixturevalue("option_of_texts")  # puts the option back that the page sets
    if page in BEFORE:
        run_blocks(BEFORE[page], tmp_path)
    run_blocks(page, tmp_path)


def run_blocks(page: str, folder: Path) -> None:
    elsewhere = page in CONSOLE_ELSEWHERE or page in NOT_RUN
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.language == "python" and page not in PYTHON_ELSEWHERE:
            # Line numbers in a traceback are those of the page.
            code = compile("\n" * (block.line - 1) + block.code, str(ROOT / page), "exec")
            with contextlib.chdir(folder), warnings.catch_warnings():
                warnings.simplefilter("error")
                if page in WITH_CELLS:
                    # The page says so itself, once; here each block has its own warnings.
                    warnings.filterwarnings("ignore", "The '.*' option is deprecated")
                exec(code, names)
        elif block.language == "console" and not elsewhere:
            for command, expected in commands_of(block.code):
                printed = typed(folder, command)
                assert fits(printed, expected), f"{page}: {command}\n{printed}"


def commands_of(code: str) -> list[tuple[str, list[str]]]:
    """The commands of a console block, each with the lines that it is said to print."""
    found: list[tuple[str, list[str]]] = []
    for line in code.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def test_the_lists_of_exceptions_are_up_to_date() -> None:
    """A page that is gone, or has no console block, or is not run elsewhere, is no exception."""
    for page in [*CONSOLE_ELSEWHERE, *NOT_RUN]:
        assert "console" in runnable(page), page
    for page, test in CONSOLE_ELSEWHERE.items():
        assert f'"{Path(page).name}"' in text_of(test), f"{test} does not run {page}"
    plain = {page for page in pages() for block in blocks(page) if not block.language}
    assert plain == set(PLAIN_BLOCKS)


@pytest.mark.parametrize("page", pages())
def test_links_lead_to_files_and_anchors_that_are_there(page: str) -> None:
    for link in links(page):
        if re.match(r"(https?|mailto):", link):
            continue
        address, _, anchor = link.partition("#")
        target = ((ROOT / page).parent / address).resolve() if address else ROOT / page
        assert target.exists(), f"{page}: {link}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target.relative_to(ROOT).as_posix()), f"{page}: {link}"


def is_long(line: str) -> bool:
    """Tables cannot be broken, and neither can a long address."""
    unbreakable = max((len(word) for word in line.split()), default=0) > 60
    return len(line) > 100 and not line.startswith("|") and not unbreakable


@pytest.mark.parametrize("page", pages())
def test_lines_are_short(page: str) -> None:
    inside = False
    for number, line in enumerate(text_of(page).splitlines(), 1):
        inside ^= line.startswith("```")
        assert inside or not is_long(line), f"{page}:{number}: {len(line)} characters"


def all_errors() -> set[str]:
    """The names of all errors and warnings that the package defines."""
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and re.search(r"[a-z](Error|Warning)$", node.name):
                found.add(node.name)
    return found


def test_every_error_is_in_the_reference() -> None:
    written = set(re.findall(r"`(\w+(?:Error|Warning))`", text_of("docs/reference/errors.md")))
    missing = all_errors() - written
    assert not missing, f"docs/reference/errors.md does not say what to do about {missing}"
