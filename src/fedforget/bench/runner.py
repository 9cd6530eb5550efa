"""Runs a plan: cell after cell, each kept as soon as it is done."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fedforget.bench.catalogue import EXPERIMENTS, reference_cell
from fedforget.bench.cells import Cell, CellResult, CellStore, Value
from fedforget.bench.plan import Library, Plan

Watcher = Callable[[Cell, int, int], None]
"""Called before each cell with the cell, its number and how many there are."""


@dataclass
class Results:
    """Finished cells, by experiment."""

    plan: Plan
    cells: dict[str, list[CellResult]] = field(default_factory=lambda: defaultdict(list))

    def of(self, experiment: str, dataset: str | None = None) -> list[CellResult]:
        """The cells of an experiment, perhaps of one dataset only, by trial."""
        held = self.cells.get(experiment, [])
        return [one for one in held if dataset is None or one.dataset == dataset]

    def reference(self, dataset: str) -> Value | None:
        """The centralised clustering of a dataset."""
        found = self.of("reference", dataset)
        return found[0].value if found else None

    def __contains__(self, experiment: str) -> bool:
        return bool(self.cells.get(experiment))


def run(
    plan: Plan,
    library: Library,
    store: CellStore,
    experiments: Iterable[str] = tuple(EXPERIMENTS),
    watch: Watcher | None = None,
) -> Results:
    """Compute what is missing and gather everything.

    The references come first: other cells build on them.
    """
    references = {name: reference_cell(plan, library, name) for name in _datasets(plan)}

    def reference(dataset: str) -> Value:
        cell = references[dataset]
        return (store.find(cell) or store.compute(cell)).value

    cells = list(references.values())
    for name in experiments:
        cells += EXPERIMENTS[name].cells(plan, library, reference)
    results = Results(plan)
    for number, cell in enumerate(cells):
        if watch is not None:
            watch(cell, number, len(cells))
        results.cells[cell.experiment].append(store.find(cell) or store.compute(cell))
    return results


def _datasets(plan: Plan) -> tuple[str, ...]:
    """Every dataset that an experiment of the plan may ask for."""
    named = (*plan.datasets, plan.synthetic, plan.real, plan.adversarial_main, *plan.batch_sets)
    return tuple(dict.fromkeys((*named, *plan.q_sets)))
