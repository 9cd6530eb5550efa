"""Fixtures that all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from postgres_server import postgres  # noqa: F401

settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("default")

DATA = Path(os.environ.get("FEDFORGET_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture(params=range(3))
def seed(request: pytest.FixtureRequest) -> int:
    """Every test that draws numbers must hold for every seed."""
    return int(request.param)


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture
def data_folder() -> Path:
    if not DATA.is_dir():
        pytest.skip(f"the real datasets are not at {DATA} (set FEDFORGET_DATA to their folder)")
    return DATA
