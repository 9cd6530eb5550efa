"""What a federation's parties let out: the section ``[disclosure]`` of its file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedforget.clustering.disclosure import ReportRules
from fedforget.errors import FedforgetError

LEAST_PRODUCT = 0.05
"""A guess at a removed record errs by about the step times the least cell, part of the range."""


@dataclass(frozen=True)
class DisclosurePart:
    """The rules of a federation.

    Attributes
    ----------
    min_cell : clients report no cluster of fewer records.
    min_records : a client with fewer records reports nothing.
    count_step : clients round sizes to multiples of this.
    published_step : centres leave the server on a public grid of this step; 0 leaves them as they
        are.
    """

    min_cell: int
    min_records: int
    count_step: int
    published_step: float

    @property
    def rules(self) -> ReportRules:
        """What clients may report."""
        return ReportRules(self.min_cell, self.min_records, self.count_step)


PRESETS: dict[str, ReportRules] = {
    "datashield": ReportRules(3, 10, 5),
    "omop": ReportRules(5, 10, 5),
    "cms": ReportRules(11, 22, 11),
    "none": ReportRules(),
}
"""The least cells that DataSHIELD, networks on OMOP's data model and the CMS have agreed on.

Those agreements are about tables; the other two numbers are chosen here.  The step of counts is
such that no rounded count is below the least cell.
"""

DEFAULT = "omop"


def preset(name: str, step: float, **given: Any) -> DisclosurePart:
    """A preset for a grid of some step; what is given, and is not None, replaces its values.

    >>> preset("omop", 0.01, min_cell=8)
    DisclosurePart(min_cell=8, min_records=10, count_step=5, published_step=0.01)
    >>> preset("none", 0.01).published_step
    0.0
    """
    if name not in PRESETS:
        raise ValueError(f"there is no preset {name!r}; use one of {', '.join(PRESETS)}")
    rules = PRESETS[name]
    published_step = 0.0 if rules.are_off else step
    part = DisclosurePart(rules.min_cell, rules.min_records, rules.count_step, published_step)
    return replace(part, **{key: value for key, value in given.items() if value is not None})


def checked_preset(name: str) -> str:
    """The name of a preset that somebody typed."""
    if name not in PRESETS:
        raise FedforgetError(f"--disclosure must be one of {', '.join(PRESETS)}; got {name!r}")
    return name


def first_capacity(part: DisclosurePart) -> int:
    """How many changed bins a delta round first makes room for.

    A cluster that is dissolved changes more bins than a removal without rules does.
    """
    return 16 if part.rules.are_off else 32


def warnings_of(part: DisclosurePart, step: float) -> list[str]:
    """What an operator should know of rules that hide little, or that look as if they did."""
    warnings = []
    product = step * part.min_cell
    if product < LEAST_PRODUCT:
        warnings.append(
            f"the step times the least cell is {product:.12g}, below {LEAST_PRODUCT:g}: when one"
            " record is forgotten, the change of the sum can locate it to about that part of each"
            " feature's range. A larger --step or --min-cell hides it better."
        )
    least_count = int(part.rules.rounded(np.array([part.min_cell]))[0])
    if 0 < least_count < part.min_cell:
        warnings.append(
            f"a cluster of {part.min_cell} records, the least cell, is reported as {least_count},"
            f" because sizes go in steps of {part.count_step}. An output checker will read a count"
            f" below the least cell. --min-cell {least_count + (part.count_step + 1) // 2} or"
            f" --count-step {part.min_cell} avoids this."
        )
    return warnings
