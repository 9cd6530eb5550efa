"""Fixtures that all tests share."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
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
def option_of_texts() -> Iterator[Callable[[bool], None]]:
    """Sets how pandas stores texts.  Afterwards it is as before, whoever has set it."""
    import pandas as pd

    def infer(value: bool) -> None:
        with warnings.catch_warnings():
            # Pandas warns that this option will go.
            warnings.simplefilter("ignore")
            pd.set_option("future.infer_string", value)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = bool(pd.get_option("future.infer_string"))
    yield infer
    infer(before)


@pytest.fixture
def texts_are_objects(option_of_texts: Callable[[bool], None]) -> None:
    """pandas as anndata knows it: its releases beside pandas 3 cannot write the new texts."""
    option_of_texts(False)


@pytest.fixture
def data_folder() -> Path:
    if not DATA.is_dir():
        pytest.skip(f"the real datasets are not at {DATA} (set FEDFORGET_DATA to their folder)")
    return DATA
