"""Directories in memory, where there is such a place: rounds wait for the disk at every step."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from party_world import memory_folder


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fedforget-", dir=memory_folder()) as folder:
        yield Path(folder).resolve()
