"""The parts of ``make release-check`` that judge; building and installing is what it is for."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from pages import ROOT

sys.path.insert(0, str(ROOT / "tools"))

import release_check


def test_this_python_is_found() -> None:
    found = release_check.pythons()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert next(iter(found)) == version
    assert all(f"python{known}" in release_check.CANDIDATES for known in found)


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
