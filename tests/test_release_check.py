"""The parts of ``make release-check`` that judge; building and installing is what it is for."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from pages import ROOT

sys.path.insert(0, str(ROOT / "tools"))

import release_check


def test_every_python_is_found_and_this_one_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the path and in pyenv; those that are too old or do not start are left out."""

    def stand_in(path: Path, answer: str) -> str:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{answer}\n")
        path.chmod(0o755)
        return str(path)

    on_path = stand_in(tmp_path / "bin" / "python3.99", "echo 3 99")
    stand_in(tmp_path / "bin" / "python3.10", "echo 3 10")
    stand_in(tmp_path / "bin" / "python3.98", "exit 127")
    stand_in(tmp_path / "bin" / "python3.99-config", "echo 3 96")
    managed = stand_in(tmp_path / ".pyenv/versions/3.97.1/bin/python3.97", "echo 3 97")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    this = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = release_check.pythons()
    assert list(found.items()) == [(this, sys.executable), ("3.97", managed), ("3.99", on_path)]


def test_licences_of_what_is_installed_here() -> None:
    rows = release_check.licences(Path(sys.executable))
    known = {name.lower(): licence for name, _, licence in rows}
    assert known["fedforget"] == "Apache-2.0"
    assert "BSD" in known["scikit-learn"]
    assert all(known.values())
    table = release_check.as_table([("a", "1", "MIT")])
    assert table.splitlines()[-1] == "| a | 1 | MIT |"


def test_a_network_that_refuses_is_said_and_is_no_failure() -> None:
    errors = "ERROR: HTTPSConnectionPool(host='pypi.org', port=443): Max retries exceeded\n"
    result = release_check.judged(1, "", errors)
    assert not result.checked
    assert "Max retries" in result.reason


def test_other_failures_of_the_audit_end_the_check() -> None:
    with pytest.raises(SystemExit, match="no such option"):
        release_check.judged(2, "", "no such option: --jsn")


def test_vulnerabilities_are_listed() -> None:
    dependencies = [
        {"name": "good", "version": "1", "vulns": []},
        {"name": "bad", "version": "2", "vulns": [{"id": "CVE-2026-1"}]},
        {"name": "unknown", "skip_reason": "not on the index"},
    ]
    result = release_check.judged(1, json.dumps({"dependencies": dependencies}), "")
    assert result.checked == 2
    assert result.vulnerable == ["bad 2: CVE-2026-1"]
    assert result.skipped == ["unknown"]


def test_an_index_that_knows_nothing_has_checked_nothing() -> None:
    """pip-audit then says that there are no known vulnerabilities."""
    dependencies = [{"name": "numpy", "skip_reason": "Dependency not found on PyPI"}]
    result = release_check.judged(0, json.dumps({"dependencies": dependencies}), "")
    assert result == release_check.Audit(0, [], ["numpy"], "Dependency not found on PyPI")


def test_nothing_known_is_said_too() -> None:
    output = json.dumps({"dependencies": [{"name": "good", "version": "1", "vulns": []}]})
    assert release_check.judged(0, output, "") == release_check.Audit(1, [], [])
