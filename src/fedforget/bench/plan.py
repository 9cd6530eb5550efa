"""Which datasets, how many trials and requests: the quick run, the full one, and one's own data.

What the full run took on one core, in minutes (FEMNIST's share in brackets); a run keeps what each
cell took, and the page shows the sums:

==============  ===========  ============================================================
experiment      minutes      what dominates
==============  ===========  ============================================================
reference       1            K-means++ on FEMNIST, 3 starts; 400 starts on Covtype
table1          8 (7)        MUFC's server on FEMNIST's 36,721 uniform points, 3 trials
table2          3 (3)        the same
fig3a, b, c     1            Gaussian and Celltype only
random          18 (17)      FEMNIST: re-seeds of MUFC (2 min each), 2K, retraining
adversarial     13 (11)      the same
batch, clients  10 (8)       MUFC's server runs whenever a client leaves
secure          1            the whole protocol with 100 clients
local-clusters  13 (12)      4K on FEMNIST
others          2            re-seeding, Q-k-means, codes (Alg. 2), exactness
==============  ===========  ============================================================

FEMNIST is why some numbers below are small: one fit of MUFC as published takes it three minutes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedforget.bench.datasets import Dataset, load, load_file, names

PAPER_SETS = ("tmi", "celltype", "gaussian", "tcga", "postures", "femnist", "covtype")
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
    trials : of the tables; ``sweep_trials`` of the curves, ``timing_trials`` of what is timed.
    requests : removals a dataset.
    """

    name: str
    datasets: tuple[str, ...]
    synthetic: str
    real: str
    adversarial_main: str
    batch_sets: tuple[str, ...]
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
        """FEMNIST was run three times in the paper too."""
        return min(self.trials, 3) if dataset in HEAVY else self.trials

    def timing_trials_of(self, dataset: str) -> int:
        return 1 if dataset in HEAVY else self.timing_trials

    def requests_of(self, dataset: str) -> int:
        return min(self.requests, 20) if dataset in HEAVY else self.requests

    def adversarial_requests_of(self, dataset: str) -> int:
        return min(self.adversarial_requests, 20) if dataset in HEAVY else self.adversarial_requests

    def departures_of(self, dataset: str) -> int:
        """How many clients leave; on FEMNIST, MUFC's server then runs for two minutes."""
        return 3 if dataset in HEAVY else 10

    def retrainings_of(self, dataset: str, kind: str) -> int:
        """How often complete retraining is timed in a cell; on FEMNIST it takes a minute."""
        once = dataset in HEAVY and kind != "random"
        return min(self.retrainings, 1) if once else self.retrainings

    def starts_of(self, dataset: str) -> int:
        """One start in a hundred finds Covtype's best optimum; one of FEMNIST's takes a minute."""
        if dataset in HEAVY:
            return 3
        return 40 * self.reference_starts if dataset == "covtype" else self.reference_starts

    def multiples_of(self, dataset: str) -> tuple[int, ...]:
        """Eight times FEMNIST's 62 clusters are more than a client's 367 records."""
        return self.multiples[:3] if dataset in HEAVY else self.multiples


FULL = Plan(
    name="full",
    datasets=PAPER_SETS,
    synthetic="gaussian",
    real="celltype",
    adversarial_main="tmi",
    batch_sets=("celltype", "covtype"),
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
    q_sets=("tmi", "celltype", "gaussian", "tcga", "postures", "covtype"),
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

    ``own`` reads the user's file, which goes by the name of its stem.
    """

    data_dir: Path | None = None
    own: Callable[[], Dataset] | None = None
    _held: dict[str, Dataset] = field(default_factory=dict)
    _digests: dict[str, str] = field(default_factory=dict)

    def get(self, name: str) -> Dataset:
        """A dataset by its name."""
        if name not in self._held:
            self._held[name] = self.own() if self.own else load(name, self.data_dir)
        return self._held[name]

    def digest(self, name: str) -> str:
        """Of the records and their clients, so that results of other data are not mistaken."""
        if name not in self._digests:
            data = self.get(name)
            digest = hashlib.blake2b(data.X.tobytes(), digest_size=8)
            digest.update(data.clients.tobytes())
            digest.update(f"{data.n_clusters} {data.k_prime}".encode())
            self._digests[name] = digest.hexdigest()
        return self._digests[name]


def own_library(path: Path, n_clusters: int | None) -> Library:
    """One file of the user's, which is never taken for one of the paper's sets.

    Raises
    ------
    ValueError
        The file cannot be used, or has no more distinct records than clusters: its reference would
        be perfect, and a ratio to that means nothing.
    """
    data = load_file(path, n_clusters=n_clusters)
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
    if data.name in names():
        data = replace(data, name=f"own-{data.name}")
    return Library(own=lambda: data)
