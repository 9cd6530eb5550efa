"""The demonstration: five hospitals, real patients, and five things that happen to them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich import box
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer
from threadpoolctl import threadpool_limits

from fedforget.arrays import Floats, Labels
from fedforget.cli.console import console, messages, safe, warm_up_kernels
from fedforget.clustering.ids import Ids
from fedforget.clustering.losses import loss_ratio
from fedforget.estimators import FederatedKMeans
from fedforget.report import Report
from fedforget.text import json_text
from fedforget.warmup import FOR_THE_DEMO

N_CLUSTERS = 3
HOSPITALS = ("Aarhus", "Bologna", "Coimbra", "Delft", "Espoo")

# Ranges that a measurement of each kind can take, agreed before anybody looks at a patient: the
# mean over the cells of an image, its standard error, and the mean of the three worst cells.
PUBLIC_BOUNDS = {
    "radius": (40.0, 4.0, 50.0),
    "texture": (50.0, 6.0, 60.0),
    "perimeter": (250.0, 30.0, 350.0),
    "area": (3000.0, 600.0, 5000.0),
    "smoothness": (0.2, 0.04, 0.3),
    "compactness": (0.4, 0.2, 1.2),
    "concavity": (0.5, 0.5, 1.5),
    "concave points": (0.25, 0.06, 0.35),
    "symmetry": (0.4, 0.1, 0.8),
    "fractal dimension": (0.12, 0.04, 0.25),
}


@dataclass(frozen=True)
class Patients:
    """Records with their hospital and id."""

    values: Floats
    hospital: Ids
    ids: Ids

    def __len__(self) -> int:
        return len(self.ids)

    def where(self, chosen: Ids) -> Patients:
        return Patients(self.values[chosen], self.hospital[chosen], self.ids[chosen])

    def without(self, ids: Ids) -> Patients:
        return self.where(~np.isin(self.ids, ids))

    def joined_by(self, other: Patients) -> Patients:
        return Patients(
            np.concatenate([self.values, other.values]),
            np.concatenate([self.hospital, other.hospital]),
            np.concatenate([self.ids, other.ids]),
        )


@dataclass(frozen=True)
class DemoStep:
    """What happened, what it cost, and whether the model is that of a fresh fit.

    ``milliseconds`` are those of the clients and the server; the secure sum has its own, and its
    bytes are those that one hospital sends.
    """

    title: str
    happened: str
    patients: int
    loss_ratio: float
    nearest_loss_ratio: float
    milliseconds: float
    sum_milliseconds: float
    sum_bytes: int
    retraining_milliseconds: float
    digest: str
    fresh_digest: str

    @property
    def speed_up(self) -> float:
        return self.retraining_milliseconds / self.milliseconds

    @property
    def exact(self) -> bool:
        return self.digest == self.fresh_digest


def public_bounds() -> Floats:
    """One (low, high) pair per feature, in the order of the data set."""
    highs = [kinds[place] for place in range(3) for kinds in PUBLIC_BOUNDS.values()]
    return np.array([(0.0, high) for high in highs])


def load_patients(rng: np.random.Generator) -> tuple[Patients, Patients]:
    """The patients, dealt to hospitals of different size and case mix; and some who come later."""
    data = load_breast_cancer()
    severity = np.argsort(np.argsort(data.data[:, 0])) * 4 // len(data.data)
    case_mix = rng.dirichlet(np.full(len(HOSPITALS), 0.7), size=4)
    hospital = np.array([HOSPITALS[rng.choice(len(HOSPITALS), p=case_mix[s])] for s in severity])
    ids = np.array([f"P-{number:04d}" for number in rng.permutation(len(severity)) + 1])
    everyone = Patients(np.ascontiguousarray(data.data), hospital, ids)
    later = np.zeros(len(everyone), dtype=np.bool_)
    later[rng.choice(len(everyone), 25, replace=False)] = True
    return everyone.where(~later), everyone.where(later)


def new_model(seed: int, aggregation: str) -> FederatedKMeans:
    return FederatedKMeans(
        N_CLUSTERS,
        bounds=public_bounds(),
        scale="box",
        step=0.02,
        local_clusters=2 * N_CLUSTERS,
        aggregation=aggregation,
        random_state=seed,
    )


def retraining_seconds(patients: Patients, unit: Floats) -> float:
    """Complete retraining: K-means++ with Lloyd, at the slowest hospital and then at the server."""
    slowest, centres = 0.0, []
    with threadpool_limits(1):  # more threads than free cores would slow it down, not speed it up
        for name in np.unique(patients.hospital):
            rows = unit[patients.hospital == name]
            start = time.perf_counter()
            local = KMeans(min(N_CLUSTERS, len(rows)), n_init=1, random_state=0).fit(rows)
            slowest = max(slowest, time.perf_counter() - start)
            centres.append(local.cluster_centers_[local.labels_])
        points = np.concatenate(centres)
        start = time.perf_counter()
        KMeans(N_CLUSTERS, n_init=10, random_state=0).fit(points)
        return slowest + time.perf_counter() - start


class Scene(NamedTuple):
    """A moment of the story, to be drawn."""

    patients: Patients
    labels: Labels
    centres: Floats


class Story:
    """The model and its patients as they change, with a record of every step."""

    def __init__(self, patients: Patients, newcomers: Patients, seed: int) -> None:
        self.patients, self.newcomers, self.seed = patients, newcomers, seed
        self.model = new_model(seed, "secure")
        self.steps: list[DemoStep] = []
        self.gone: list[Patients] = []

    def _record(self, title: str, happened: str, report: Report) -> None:
        patients, model = self.patients, self.model
        unit = patients.values / public_bounds()[:, 1]
        central = KMeans(N_CLUSTERS, n_init=10, random_state=0).fit(unit).inertia_
        fresh = new_model(self.seed, "plain").fit(
            patients.values, clients=patients.hospital, ids=patients.ids
        )
        self.steps.append(
            DemoStep(
                title=title,
                happened=happened,
                patients=len(patients),
                loss_ratio=loss_ratio(model.induced_inertia_, central),
                nearest_loss_ratio=loss_ratio(model.inertia_, central),
                milliseconds=1e3 * (report.seconds["total"] - report.seconds["sum"]),
                sum_milliseconds=1e3 * report.seconds["sum"],
                sum_bytes=_largest_sender(report),
                retraining_milliseconds=1e3 * retraining_seconds(patients, unit),
                digest=model.model_digest_,
                fresh_digest=fresh.model_digest_,
            )
        )

    def scene(self) -> Scene:
        """The patients, their clusters and the centres as they are now."""
        labels = self.model.predict(self.patients.values)
        return Scene(self.patients, labels, self.model.cluster_centers_)

    def cluster(self) -> None:
        patients = self.patients
        self.model.fit(patients.values, clients=patients.hospital, ids=patients.ids)
        happened = f"{len(HOSPITALS)} hospitals, {len(patients)} patients"
        self._record("Cluster together", happened, self.model._fit_report)

    def _forget(self, title: str, ids: Ids) -> None:
        self.gone.append(self.patients.where(np.isin(self.patients.ids, ids)))
        report = self.model.forget(ids)
        self.patients = self.patients.without(ids)
        self._record(title, _in_words(report), report)

    def forget_ordinary_patients(self) -> None:
        seeds = np.concatenate(list(self.model.seed_ids_.values()))
        ordinary = self.patients.ids[~np.isin(self.patients.ids, seeds)]
        self._forget("Forget 10 patients", ordinary[:: len(ordinary) // 10][:10])

    def forget_a_seed(self) -> None:
        largest = max(HOSPITALS, key=lambda name: int((self.patients.hospital == name).sum()))
        self._forget("Forget a seed", self.model.seed_ids_[largest][1:2])

    def lose_a_hospital(self) -> None:
        name = HOSPITALS[1]
        self.gone.append(self.patients.where(self.patients.hospital == name))
        report = self.model.forget_clients(name)
        self.patients = self.patients.where(self.patients.hospital != name)
        self._record(f"{name} leaves", _in_words(report), report)

    def receive_patients(self) -> None:
        arriving = self.newcomers.where(self.newcomers.hospital != HOSPITALS[1])
        report = self.model.learn(arriving.values, clients=arriving.hospital, ids=arriving.ids)
        self.patients = self.patients.joined_by(arriving)
        self._record("New patients", _in_words(report), report)


def _largest_sender(report: Report) -> int:
    """Bytes that the busiest hospital sent."""
    assert report.traffic is not None
    return max(size for party, size in report.traffic.sent.items() if party != "server")


def _in_words(report: Report) -> str:
    lines = []
    if report.removed:
        lines.append(f"{report.removed} {'record' if report.removed == 1 else 'records'} erased")
    if report.added:
        lines.append(f"{report.added} records added")
    if report.reseeded:
        drawn = ", ".join(f"{name} from seed {step}" for name, step in report.reseeded.items())
        lines.append(f"redrawn: {drawn}")
    elif not report.left:
        lines.append("all seeds stand")
    lines.append(f"{report.changed_points} bins of the sum changed")
    return "\n".join(lines)


def run_demo(out: Path, seed: int, as_json: bool) -> None:
    """Play the story, show it as a table (or JSON) and draw it."""
    warm_up_kernels(FOR_THE_DEMO)
    patients, newcomers = load_patients(np.random.default_rng(seed))
    story = Story(patients, newcomers, seed)
    scenes: list[tuple[str, Callable[[], None]]] = [
        ("Clustering", story.cluster),
        ("Forgetting patients", story.forget_ordinary_patients),
        ("Forgetting a seed", story.forget_a_seed),
        ("A hospital leaves", story.lose_a_hospital),
        ("New patients", story.receive_patients),
    ]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=messages, transient=True) as progress:
        task = progress.add_task("", total=len(scenes) + 1)
        before: Scene | None = None
        for description, scene in scenes:
            progress.update(task, description=description)
            scene()
            if before is None:
                before = story.scene()
            progress.advance(task)
        progress.update(task, description="Drawing")
        from fedforget.cli.demo_picture import draw_story

        assert before is not None
        picture = draw_story(out, before, story.scene(), story.gone, public_bounds()[:, 1])
        progress.advance(task)
    if as_json:
        rows = [
            asdict(step) | {"exact": step.exact, "speed_up": step.speed_up} for step in story.steps
        ]
        print(json_text({"steps": rows, "picture": str(picture)}, indent=2))
        return
    _show(story.steps, picture)


def _show(steps: list[DemoStep], picture: Path) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("step", style="bold", max_width=8)
    table.add_column("touched and run again", min_width=26)
    table.add_column("loss\nratio", justify="right")
    table.add_column("took\nms", justify="right")
    table.add_column("sum\nms,kB", justify="right")
    table.add_column("retrain\nms", justify="right")
    table.add_column("digest", no_wrap=True)
    for step in steps:
        digest = Text(f"{step.digest[:8]}\n")
        if step.exact:
            digest.append("= fresh fit", "bold green")
        else:
            digest.append(f"≠ {step.fresh_digest[:8]}", "bold red")
        table.add_row(
            step.title,
            step.happened,
            f"{step.loss_ratio:.3f}\n[dim]{step.nearest_loss_ratio:.3f}[/dim]",
            f"{step.milliseconds:.1f}",
            f"{step.sum_milliseconds:.0f}\n[dim]{step.sum_bytes / 1e3:.1f}[/dim]",
            f"{step.retraining_milliseconds:.1f}\n[bold]{step.speed_up:.0f}×[/bold]",
            digest,
        )
    console.print()
    console.print(table)
    exact = all(step.exact for step in steps)
    if exact:
        verdict = Text(
            "After every step the model equals a fresh fit on what is left, bit for bit."
        )
        verdict.stylize("bold green")
    else:
        verdict = Text("A model differs from a fresh fit. This is a bug; please report it.")
        verdict.stylize("bold red")
    console.print(verdict)
    console.print(
        "[dim]loss ratio: to centralised K-means++; induced clusters, then nearest centres\n"
        "sum: the secure sum (the server sees masked vectors); sent by one hospital\n"
        "retrain: K-means++ with Lloyd at the slowest hospital, then at the server[/dim]\n"
    )
    console.print(f"Picture: [bold]{safe(picture)}[/bold]\n", soft_wrap=True)
    if not exact:
        raise SystemExit(1)
