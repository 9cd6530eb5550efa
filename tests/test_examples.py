"""The scripts of ``examples/`` run as they are, and read as notebooks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pages import ROOT

sys.path.insert(0, str(ROOT / "tools"))

from percent_scripts import as_markdown, cells

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(script: Path, tmp_path: Path) -> None:
    """In a process of its own, with warnings as errors; what it claims it asserts itself."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    if done.stdout.startswith("skipped:"):
        pytest.skip(done.stdout.strip())
    assert "assert " in script.read_text(encoding="utf-8")


def test_the_example_with_cells_says_what_it_lacks() -> None:
    """Without anndata it ends in order, and names what to install."""
    script = ROOT / "examples" / "scverse_cells.py"
    start = f"import runpy, sys; sys.modules['anndata'] = None; runpy.run_path({str(script)!r})"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", start], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("skipped: ")
    assert ".[anndata]" in done.stdout


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_a_notebook(script: Path) -> None:
    """It begins with a title, and every line of it is in a cell."""
    text = script.read_text(encoding="utf-8")
    assert text.startswith("# %% [markdown]\n# # ")
    found = cells(text)
    assert {kind for kind, _ in found} == {"markdown", "code"}
    for kind, body in found:
        if kind == "code":
            compile(body, str(script), "exec")
    assert as_markdown(text, script.name).startswith("# ")


def test_words_and_code_are_told_apart() -> None:
    text = "# %% [markdown]\n# # Title\n#\n# Words.\n\n# %%\nx = 1  # one\n\n# %%\n"
    assert cells(text) == [("markdown", "# Title\n\nWords."), ("code", "x = 1  # one")]
    assert as_markdown(text, "a.py").endswith("```python\nx = 1  # one\n```\n")
