"""From finished cells to tables: our numbers, with the printed ones beside them."""

from __future__ import annotations

from fedforget.bench import code_tables, quality_tables, removal_tables
from fedforget.bench.numbers import ResultTable
from fedforget.bench.runner import Results

_MAKERS = (
    quality_tables.table_1,
    removal_tables.speed_ups,
    quality_tables.table_2,
    quality_tables.sizes,
    quality_tables.variants,
    quality_tables.step_table,
    quality_tables.fragmented,
    removal_tables.removal_times,
    removal_tables.loss_drift,
    removal_tables.batches,
    removal_tables.clients,
    removal_tables.secure,
    quality_tables.local_clusters,
    quality_tables.guarantee_table,
    quality_tables.growth,
    quality_tables.remark,
    removal_tables.scaling,
    removal_tables.reseeding,
    removal_tables.q_k_means,
    code_tables.code_lengths,
    code_tables.code_times,
    code_tables.exactness,
    code_tables.laws,
)


def all_tables(results: Results) -> list[ResultTable]:
    """Every table that the results have something for."""
    made = (make(results) for make in _MAKERS)
    return [table for table in made if table is not None]
