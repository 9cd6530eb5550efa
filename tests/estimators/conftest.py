"""What the tests of the estimators share: a photograph of a model, taken from outside."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

PER_RECORD = ("ids_", "clients_", "labels_", "induced_labels_")


def _exact(value: Any) -> tuple[str, Any]:
    """A value in a form where == means the same bits."""
    if isinstance(value, np.ndarray):
        plain = value.tolist() if value.dtype.kind in "OUST" else value.tobytes()
        return f"array of {value.dtype.kind} {value.shape}", plain
    if isinstance(value, dict):
        return "dict", {key: _exact(one) for key, one in value.items()}
    if isinstance(value, float):
        return "float", value.hex()
    return type(value).__name__, value


@pytest.fixture(scope="session")
def snapshot() -> Callable[..., dict[str, tuple[str, Any]]]:
    """Every public fitted attribute of a model; per-record ones by id if ``by_id``."""

    def photograph(model: Any, *, by_id: bool = False) -> dict[str, tuple[str, Any]]:
        names = [n for n in dir(model) if n.endswith("_") and not n.startswith("_")]
        values = {name: getattr(model, name) for name in names}
        assert "ids_" in values
        assert "cluster_centers_" in values
        if by_id:
            order = np.argsort(values["ids_"], kind="stable")
            values |= {name: values[name][order] for name in PER_RECORD if name in values}
        return {name: _exact(value) for name, value in values.items()}

    return photograph
