"""Everything here except the envelope needs Flower; the long campaign needs to be asked for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from sites import Sites

CAMPAIGN = "FEDFORGET_FLOWER"

# These import Flower itself.
collect_ignore = [] if find_spec("flwr") else ["fake_grid.py", "test_rounds.py"]


@pytest.fixture
def flower() -> None:
    if find_spec("flwr") is None:
        pytest.skip("Flower is not installed: pip install 'fedforget[flower]'")
    for program in ("openssl", "ssh-keygen"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed; it makes the certificates and node keys")


@pytest.fixture
def campaign(flower: None) -> None:
    if not os.environ.get(CAMPAIGN):
        pytest.skip(f"part of the long campaign: run make test-flower, or set {CAMPAIGN}=1")


@pytest.fixture
def sites(flower: None, tmp_path: Path) -> Iterator[Sites]:
    """Four hospitals with records, a server, and Flower's processes; nothing is started yet."""
    made = Sites.make(tmp_path / "study")
    with made.network:
        yield made
        made.check_loopback()
    assert made.survivors() == []
