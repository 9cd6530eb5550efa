"""Which datasets, how many trials and requests: the quick run, the full one, and one's own data.

FEMNIST is only in the two tables of losses, with one trial: a fit of MUFC as published takes it
more than a minute, and so does every removal that hits a seed.  A run keeps what each cell took,
and the page shows sums.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedforget.bench.datasets import Dataset, Split, load, load_file, names

PAPER_SETS = ("tmi", "celltype", "gaussian", "tcga", "postures", "femnist", "covtype")
FULL_SETS = (
    "tmi", "celltype", "gaussian", "tcga", "postures", "body-postures", "femnist", "covtype",
)  # fmt: skip
"""The paper's, and a stand-in for the whole of Postures, of which only a part is at hand."""
QUICK_SETS = ("gaussian", "digits", "breast_cancer", "wine", "iris")
HEAVY = frozenset({"femnist"})
"""Sets on which one fit takes minutes."""


@dataclass(frozen=True)
class Plan:
    """What a run computes.

    Attributes
    ----------
    datasets : those of the tables and of Fig. 3 (f)–(l), in this order.
    synthetic, real : the sets of Fig. 3 (a)(b), and of (c) and (d).
    adversarial_main : the set of Fig. 3 (e).
    batch_sets : the sets of the batch removals.
    fragmented_sets : the sets that are dealt in slices, too.
    growth : numbers of clusters for which Theorem 4.1's first term is measured.
    scales : numbers of records for which Theorem 5.4 is measured.
    remark_runs : fits of clients that hold one cluster each.
    trials : of the tables; ``sweep_trials`` of the curves, ``timing_trials`` of what is timed.
    requests : removals per dataset.
    """

    name: str
    datasets: tuple[str, ...]
    synthetic: str
    real: str
    adversarial_main: str
    batch_sets: tuple[str, ...]
    fragmented_sets: tuple[str, ...]
    growth: tuple[int, ...]
    scales: tuple[int, ...]
    remark_runs: int
    trials: int
    sweep_trials: int
    timing_trials: int
    requests: int
    adversarial_requests: int
    retrainings: int
    reference_starts: int
    seedings: int
    k_primes: tuple[int, ...]
    steps: tuple[float, ...]
    multiples: tuple[int, ...]
    q_sets: tuple[str, ...]
    q_epsilons: tuple[float, ...]
    q_requests: int
    exact_sets: tuple[str, ...]
    exact_requests: int
    code_features: tuple[int, ...]
    code_clients: tuple[int, ...]
    code_literal: int

    def trials_of(self, dataset: str) -> int:
        """FEMNIST was run less often in the paper, too: three times of five."""
        return min(self.trials, 1) if dataset in HEAVY else self.trials

    def rounds_of(self, dataset: str) -> int:
        """The most rounds of FKM, one of which takes half a minute on FEMNIST."""
        return 3 if dataset in HEAVY else 20

    def starts_of(self, dataset: str) -> int:
        """One start in a hundred finds Covtype's best optimum; one of FEMNIST's takes long."""
        if dataset in HEAVY:
            return 2
        return 40 * self.reference_starts if dataset == "covtype" else self.reference_starts

    @property
    def light_sets(self) -> tuple[str, ...]:
        """The sets of all experiments except the two tables of losses, which FEMNIST is in."""
        return tuple(name for name in self.datasets if name not in HEAVY)


FULL = Plan(
    name="full",
    datasets=FULL_SETS,
    synthetic="gaussian",
    real="celltype",
    adversarial_main="tmi",
    batch_sets=("celltype", "covtype"),
    fragmented_sets=("celltype", "gaussian", "postures", "covtype"),
    growth=(2, 4, 8, 16, 32, 64),
    scales=(10**3, 10**4, 10**5, 10**6),
    remark_runs=2000,
    trials=10,
    sweep_trials=5,
    timing_trials=3,
    requests=100,
    adversarial_requests=100,
    retrainings=3,
    reference_starts=10,
    seedings=400,
    k_primes=(1, 2, 3, 4, 6, 8, 10),
    steps=(1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.2, 0.3, 0.5),
    multiples=(1, 2, 4, 8),
    q_sets=("tmi", "celltype", "gaussian", "tcga", "postures", "body-postures", "covtype"),
    q_epsilons=(0.5, 0.125, 0.03125, 0.0078125),
    q_requests=100,
    exact_sets=("celltype", "tcga", "covtype"),
    exact_requests=100,
    code_features=(1, 2, 3, 4, 6, 8, 10, 16, 32, 52, 128, 784),
    code_clients=(10, 30, 100, 300, 1000),
    code_literal=5200,
)

QUICK = Plan(
    name="quick",
    datasets=QUICK_SETS,
    synthetic="gaussian",
    real="digits",
    adversarial_main="breast_cancer",
    batch_sets=("digits",),
    fragmented_sets=("gaussian", "iris"),
    growth=(2, 8, 32),
    scales=(10**3, 10**4),
    remark_runs=100,
    trials=3,
    sweep_trials=2,
    timing_trials=1,
    requests=30,
    adversarial_requests=15,
    retrainings=3,
    reference_starts=5,
    seedings=60,
    k_primes=(1, 3, 6, 10),
    steps=(1e-3, 1e-2, 0.1, 0.3),
    multiples=(1, 2, 4),
    q_sets=("digits", "breast_cancer"),
    q_epsilons=(0.5, 0.125, 0.03125),
    q_requests=20,
    exact_sets=("digits", "iris"),
    exact_requests=15,
    code_features=(1, 2, 3, 8, 32, 128),
    code_clients=(10, 30, 100),
    code_literal=400,
)


def own_plan(plan: Plan, data: Dataset) -> Plan:
    """The same experiments on one dataset of the user's; requests leave half of the records."""
    name, most = data.name, max(1, (len(data.X) - data.n_clusters) // 2)
    return replace(
        plan,
        name=f"{plan.name}, own data",
        datasets=(name,),
        synthetic=name,
        real=name,
        adversarial_main=name,
        batch_sets=(name,),
        fragmented_sets=() if data.clusters is None else (name,),
        k_primes=tuple(one for one in plan.k_primes if one <= data.n_clusters),
        q_sets=(name,),
        exact_sets=(name,),
        requests=min(plan.requests, most),
        adversarial_requests=min(plan.adversarial_requests, most),
        q_requests=min(plan.q_requests, most),
        exact_requests=min(plan.exact_requests, most),
    )


@dataclass
class Library:
    """Datasets, loaded when first asked for and kept.

    ``own`` reads the user's file, which goes by the name of its stem.  ``split`` says how records
    are dealt.
    """

    data_dir: Path | None = None
    own: Callable[[Split], Dataset] | None = None
    split: Split = "file"
    _held: dict[str, Dataset] = field(default_factory=dict)
    _digests: dict[str, str] = field(default_factory=dict)

    def get(self, name: str) -> Dataset:
        """A dataset by its name."""
        if name not in self._held:
            self._held[name] = (
                self.own(self.split) if self.own else load(name, self.data_dir, split=self.split)
            )
        return self._held[name]

    def dealt(self, split: Split) -> Library:
        """The same records, dealt in another way; the same library where that is its own."""
        return self if split == self.split else Library(self.data_dir, self.own, split)

    def digest(self, name: str) -> str:
        """Of the records and their clients, so that results of other data are not mistaken."""
        if name not in self._digests:
            data = self.get(name)
            digest = hashlib.blake2b(data.X.tobytes(), digest_size=8)
            digest.update(data.clients.tobytes())
            digest.update(f"{data.n_clusters} {data.k_prime}".encode())
            self._digests[name] = digest.hexdigest()
        return self._digests[name]


def own_library(path: Path, n_clusters: int | None, split: Split = "file") -> Library:
    """One file of the user's, which is never taken for one of the paper's sets.

    Raises
    ------
    ValueError
        The file cannot be used, or has no more distinct records than clusters: its reference would
        be perfect, and a ratio to that means nothing.
    """
    data = load_file(path, n_clusters=n_clusters, split=split)
    distinct: set[bytes] = set()
    for row in data.X:
        distinct.add(row.tobytes())
        if len(distinct) > data.n_clusters:
            break
    else:
        raise ValueError(
            f"{path.name} has {len(distinct)} distinct records, which {data.n_clusters} clusters"
            " fit without loss, so that ratios to it mean nothing; ask for fewer clusters"
        )
    name = f"own-{data.name}" if data.name in names() else data.name

    def read(way: Split) -> Dataset:
        dealt = data if way == split else load_file(path, n_clusters=n_clusters, split=way)
        return replace(dealt, name=name)

    return Library(own=read, split=split)
