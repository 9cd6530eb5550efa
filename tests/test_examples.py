"""The scripts of ``examples/`` run as they are, and read as notebooks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pages import ROOT

sys.path.insert(0, str(ROOT / "tools"))

from example_outputs import ExampleError, recorded, run, steady
from percent_scripts import as_markdown, cells

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_the_site_shows(script: Path) -> None:
    """In a process of its own, with warnings as errors; what it claims it asserts itself."""
    printed = run(script)
    assert "".join(printed).strip()
    if any(text.startswith("skipped:") for text in printed):
        pytest.skip("".join(printed).strip())
    assert "assert " in script.read_text(encoding="utf-8")
    shown = recorded(script)
    again = f"run python tools/example_outputs.py {script.stem} if this is meant"
    assert [*map(steady, printed)] == [*map(steady, shown)], again


def test_only_what_changes_from_run_to_run_is_not_compared() -> None:
    one = "round 1; model 0123456789abcdef; fit 0.123 s, 12 ms;  on 2026-11-16T10:00:00Z"
    other = "round 1; model fedcba9876543210; fit 12.5 s, 3.5 ms; on 2027-01-02"
    assert steady(one) == steady(other)
    for different in ("round 2", "model x", "0.123 records"):
        assert steady(one.replace("round 1", different)) != steady(one)


def test_an_example_that_fails_is_no_output(tmp_path: Path) -> None:
    script = tmp_path / "bad.py"
    script.write_text("# %% [markdown]\n# # Bad\n\n# %%\nassert 1 == 2, 'no'\n")
    with pytest.raises(ExampleError, match="line 5"):
        run(script)


def test_outputs_belong_to_their_cells(tmp_path: Path) -> None:
    """Words print nothing; a cell that prints nothing has an empty output."""
    script = tmp_path / "small.py"
    script.write_text("# %% [markdown]\n# # T\n\n# %%\nx = 1\n\n# %%\nprint(x)\nprint('%%')\n")
    printed = run(script)
    assert printed == ["", "", "1\n%%\n"]
    page = as_markdown(script.read_text(), "small.py", printed)
    assert page.endswith("print('%%')\n```\n\n```text title=\"It prints\"\n1\n%%\n```\n")
    assert page.count("It prints") == 1


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
    assert as_markdown(text, script.name, recorded(script)).startswith("# ")


def test_words_and_code_are_told_apart() -> None:
    text = "# %% [markdown]\n# # Title\n#\n# Words.\n\n# %%\nx = 1  # one\n\n# %%\n"
    assert cells(text) == [("markdown", "# Title\n\nWords."), ("code", "x = 1  # one")]
    page = as_markdown(text, "a.py", ["", "", ""])
    assert page.endswith("```python\nx = 1  # one\n```\n")
