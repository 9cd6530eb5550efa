"""Writes the figures of ``docs/performance.md`` from the files of one run of ``make bench``.

What stands between ``<!-- figures: NAME -->`` and ``<!-- end of figures -->`` is written here; the
words around it are not touched.  A figure that no file holds is left out, with a warning.  The
charts that belong to the page are drawn anew.

``--check`` writes nothing.  It says where the page, and figures that other pages repeat, differ
from the run.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import earlier

ROOT = Path(__file__).parents[1]
RUN = ROOT / "build" / "bench"
PAGE = ROOT / "docs" / "performance.md"
BLOCK = re.compile(r"(<!-- figures: ([\w-]+) -->\n)(.*?)(<!-- end of figures -->)", re.S)
NOTHING = "*This run has no figures here.*"
NO_BREAK = "\u00a0"

Form = Callable[[float], str]


# -- a run -------------------------------------------------------------------------------------


class Run:
    """The files of a run, and which figures were asked for in vain."""

    def __init__(self, folder: Path) -> None:
        found = sorted(folder.glob("*.json"))
        if not found:
            sys.exit(f"there are no figures in {folder}: run make bench first")
        self.files: dict[str, dict[str, Any]] = {
            path.stem: json.loads(path.read_text(encoding="utf-8")) for path in found
        }
        self.missing: list[str] = []

    def rows(self, script: str) -> dict[str, dict[str, float]]:
        """All figures of a script, row by row."""
        found: dict[str, dict[str, float]] = self.files.get(script, {}).get("figures", {})
        return found

    def figure(self, script: str, row: str, name: str) -> float | None:
        """One figure; None, and noted, if it is not there."""
        value = self.rows(script).get(row, {}).get(name)
        if value is None:
            self.missing.append(f"{script}: {row}: {name}")
        return value

    def show(self, script: str, row: str, name: str, form: Form) -> str:
        """A figure in words; empty if it is not there."""
        value = self.figure(script, row, name)
        return "" if value is None else form(value)

    @property
    def quick(self) -> bool:
        return any(one["quick"] for one in self.files.values())

    def same(self, what: Callable[[dict[str, Any]], str]) -> str:
        """What all files say; if they differ, everything that is said, and by which files."""
        said: dict[str, list[str]] = {}
        for name, one in self.files.items():
            said.setdefault(what(one), []).append(name)
        if len(said) == 1:
            return next(iter(said))
        return "; ".join(f"{words} ({', '.join(names)})" for words, names in said.items())


# -- figures in words --------------------------------------------------------------------------


def digits(value: float, count: int = 2) -> str:
    """A number rounded to so many digits, without an exponent."""
    rounded = float(f"{value:.{count - 1}e}")
    places = max(0, count - 1 - int(f"{rounded:e}".split("e")[1]))
    return f"{rounded:,.{places}f}"


def share(value: float) -> str:
    return f"{value:.2f}"


def whole(value: float) -> str:
    return f"{value:,.0f}"


def factor(value: float) -> str:
    """How many times: a decimal below ten."""
    return f"{value:.1f}" if value < 9.95 else whole(value)


def times(value: float) -> str:
    return f"{factor(value)}×"


def faster(value: float) -> str:
    return f"{times(value)} faster"


def seconds(value: float) -> str:
    """In the unit that fits."""
    if value < 1e-3:
        return f"{digits(1e3 * value)} ms"
    return f"{digits(1e3 * value, 3)} ms" if value < 0.9995 else f"{digits(value, 3)} s"


def short(value: float) -> str:
    return f"{digits(value)} s" if value >= 0.9995 else f"{digits(1e3 * value)} ms"


def rate(value: float) -> str:
    return f"{digits(value, 3)} rows/s"


def of_data(value: float) -> str:
    return f"{share(value)} times"


# -- blocks ------------------------------------------------------------------------------------


def table(head: Iterable[str], rows: Iterable[list[str]]) -> str:
    """A table of the rows of which at least one figure is there."""
    kept = [row for row in rows if any(row[1:])]
    if not kept:
        return NOTHING
    kept = [[label, *map(unbroken, cells)] for label, *cells in kept]
    first, *rest = (
        "|" + "|".join(f" {cell} " if cell else " " for cell in row) + "|"
        for row in ([*head], *kept)
    )
    return "\n".join([first, "|" + "---|" * (first.count("|") - 1), *rest])


def unbroken(cell: str) -> str:
    """A number stays on one line with its unit where columns are narrow; words do not."""
    return cell.replace(" ", NO_BREAK) if len(cell) < 16 else cell


def paragraph(words: str) -> str:
    """One paragraph in lines of a hundred characters; a code span is not broken by a hyphen."""
    return textwrap.fill(words, 100, break_on_hyphens=False, break_long_words=False)


def sentence(words: str, *found: str) -> str:
    """A sentence with its figures; nothing if one of them is missing."""
    return paragraph(words.format(*found)) if all(found) else NOTHING


SETS = {
    "celltype": "Celltype",
    "covtype": "Covtype",
    "gaussian": "Gaussian",
    "body-postures": "body postures",
    "tcga": "TCGA expression",
    "tmi": "gut microbiome",
    "femnist": "MNIST by writer",
}
BLOBS = "blobs 1,000,000"


def the_run(run: Run) -> str:
    """Date, machine and commit."""

    def day(one: dict[str, Any]) -> str:
        found = date.fromisoformat(one["date"])
        return f"{found.day} {found:%B %Y}"

    def code(one: dict[str, Any]) -> str:
        return f"`{one['commit']}`"

    def machine(one: dict[str, Any]) -> str:
        has = one["machine"]
        return (
            f"one thread of a machine with {has['cores']} cores ({has['processor']},"
            f" {has['architecture']}), {has['system']}, Python {has['Python']}, NumPy"
            f" {has['NumPy']}, numba {has['numba']}, scikit-learn {has['scikit-learn']}"
        )

    quick = " **This run was a quick one: its figures mean nothing.**" if run.quick else ""
    commits = {one["commit"] for one in run.files.values()}
    one_run = "All figures are of one run" if len(commits) == 1 else "Figures are of several runs"
    return paragraph(
        f"**The run.** {one_run}: {run.same(day)}; commit {run.same(code)};"
        f" {run.same(machine)}.{quick}"
    )


OWNED = SETS | {"femnist": "MNIST", BLOBS: "blobs, 10⁶ × 20"}


def one_owner(run: Run) -> str:
    return table(
        [
            "dataset",
            "`fit`, share of scikit-learn's time",
            "plain",
            "`forget`, times faster",
            "plain",
            "one removal, median",
            "mean",
        ],
        [
            [
                label,
                run.show("lloyd", name, "fit_ratio", share),
                run.show("lloyd", name, "plain_fit_ratio", share),
                run.show("lloyd", name, "forget_speed_up", times),
                run.show("lloyd", name, "plain_forget_speed_up", times),
                run.show("lloyd", name, "forget_seconds", short),
                run.show("lloyd", name, "forget_mean_seconds", short),
            ]
            for name, label in OWNED.items()
        ],
    )


def losses(run: Run) -> str:
    def with_error(name: str) -> str:
        error = run.figure("lloyd", name, "loss_error")
        ratio = run.show("lloyd", name, "loss_ratio", lambda x: f"{x:.4f}")
        return f"{ratio} ± {error:.4f}" if ratio and error is not None else ratio

    return table(
        [
            "dataset",
            "seeds",
            "greedy, over scikit-learn's default",
            "plain, over scikit-learn's Lloyd from plain seeds",
            "plain, over scikit-learn's default",
        ],
        [
            [
                label,
                run.show("lloyd", name, "seeds", whole),
                with_error(name),
                run.show("lloyd", name, "plain_loss_ratio", lambda x: f"{x:.4f}"),
                run.show("lloyd", name, "plain_over_greedy", lambda x: f"{x:.4f}"),
            ]
            for name, label in OWNED.items()
        ],
    )


def other_libraries(run: Run) -> str:
    sides = {
        "fit_seconds": "fedforget",
        "their_fit_seconds": "scikit-learn",
        "scikit-learn-intelex_seconds": "scikit-learn-intelex",
        "faiss_seconds": "faiss, 25 iterations",
    }
    return table(
        ["dataset", *sides.values()],
        [
            [label, *(run.show("lloyd", name, figure, short) for figure in sides)]
            for name, label in OWNED.items()
        ],
    )


def slope(run: Run) -> str:
    return sentence(
        "The slope of log time over log n is {}.",
        run.show("lloyd", "blobs", "slope", share),
    )


def more_records(run: Run) -> str:
    sizes = {"blobs 10,000": "10⁴", "blobs 100,000": "10⁵", BLOBS: "10⁶"}
    return table(
        [
            "blobs",
            "one removal",
            "a batch of 1,000, against scikit-learn's fit",
            "in turns with it",
            "against our own fit",
        ],
        [
            [
                f"{label} records",
                run.show("lloyd", name, "removal_seconds", short),
                run.show("lloyd", name, "batch_speed_up", faster),
                run.show("lloyd", name, "batch_in_turns", faster),
                run.show("lloyd", name, "batch_over_own_fit", faster),
            ]
            for name, label in sizes.items()
        ],
    )


def memory_of_a_fit(run: Run) -> str:
    return sentence(
        "Memory of a fit of 10⁶ × 20 records with {} iterations: {} X, including the model's own"
        " copy of X (same command).",
        run.show("lloyd", BLOBS, "iterations", whole),
        run.show("lloyd", BLOBS, "fit_memory", of_data),
    )


def less_memory(run: Run) -> str:
    parts = ("all", "half", "a fifth", "none")
    return table(
        ["room for", "iterations run again", "one removal"],
        [
            [
                f"{part} of them",
                run.show("lloyd", f"{BLOBS}, {part}", "unkept", whole),
                run.show("lloyd", f"{BLOBS}, {part}", "removal_seconds", short),
            ]
            for part in parts
        ],
    )


def seeded(run: Run) -> str:
    names = {
        "femnist": "MNIST by writer, 36,721 × 784, K = 62",
        "covtype": "Covtype, 15,120 × 52, K = 7",
        "gaussian": "Gaussian, 30,000 × 10, K = 10",
        "celltype": "Celltype, 12,009 × 10, K = 4",
    }
    return table(
        [
            "dataset", "seeding, against `kmeans_plusplus`",
            "whole fit, against `kmeans_plusplus` and assignment",
            "forgetting a seed, against a fresh fit",
        ],
        [
            [
                label,
                run.show("seeding", name, "seeding_speed_up", times),
                run.show("seeding", name, "fit_speed_up", times),
                run.show("forgetting", name, "lost_seed_speed_up", times),
            ]
            for name, label in names.items()
        ],
    )  # fmt: skip


def no_seed(run: Run) -> str:
    sizes = ("10,000 records", "100,000 records", "1,000,000 records")
    return sentence(
        "A record that is no seed takes {} µs at 10⁴ records, {} at 10⁵ and {} at 10⁶, in batches"
        " of 1,000 (`python benchmarks/forgetting.py`).",
        *(run.show("forgetting", size, "microseconds", digits) for size in sizes),
    )


def server(run: Run) -> str:
    return table(
        ["dataset", "bins", "median", "95 %", "worst of 200", "times faster, median"],
        [
            [
                label,
                run.show("replay", name, "bins", whole),
                *(
                    run.show("replay", name, f"replay_{which}", seconds)
                    for which in ("seconds", "95_seconds", "worst_seconds")
                ),
                run.show("replay", name, "replay_speed_up", times),
            ]
            for name, label in SETS.items()
        ],
    )


def many_bins(run: Run) -> str:
    names = "replay_seconds", "replay_speed_up", "full_seconds", "first_seconds"
    forms = short, factor, short, short
    return sentence(
        "With 12,400 bins (MNIST by writer, 2K local clusters) a removal takes {} on the median of"
        " 48. That is {} times faster than a full run, which takes {}. The first run of a server"
        " that will follow changes takes {}: its columns follow from row to row, too (`python"
        " benchmarks/replay.py many-bins`).",
        *(
            run.show("many-bins", "many-bins", name, form)
            for name, form in zip(names, forms, strict=True)
        ),
    )


def rules(run: Run) -> str:
    names = [name for name in SETS if name != "femnist"]
    found = [run.show("disclosure", name, "rules_ratio", share) for name in names]
    listed = ", ".join(f"{SETS[name]} {{}}" for name in names)
    return sentence(
        "Under the default rules of disclosure a whole removal takes, on the mean of 200, this many"
        f" times as long as without rules: {listed}"
        " (processor's seconds; `python benchmarks/replay.py --disclosure`).",
        *found,
    )


def removals(run: Run) -> str:
    return table(
        ["dataset", "means, times faster", "lloyd, times faster"],
        [
            [
                label,
                run.show("replay", name, "removal_speed_up", times),
                run.show("complete", name, "removal_speed_up", times),
            ]
            for name, label in SETS.items()
        ],
    )


def memory(run: Run) -> str:
    kinds = ("SeededKMeans", "FederatedKMeans, 1 client", "FederatedKMeans, 10 clients")
    found = [run.show("memory", kind, "memory", share) for kind in kinds]
    return table(["", "one owner", "one client", "ten clients"], [["times the data", *found]])


def sums(run: Run) -> str:
    return table(
        ["decode a sum of T different bins", "time", "against python-flint"],
        [
            [
                size,
                run.show("scma", size, "decode_seconds", short),
                "" if size == "T = 100,000" else run.show("scma", size, "flint_speed_up", faster),
            ]
            for size in ("T = 400", "T = 6,200", "T = 100,000")
        ],
    )


def images(run: Run) -> str:
    return sentence(
        "At FEMNIST's shape (784 features, 193 levels, T = 6,200): a client encodes in {}, the sum"
        " decodes in {}, and a change of 16 bins decodes in {}.",
        *(
            run.show("scma", "FEMNIST", f"{what}_seconds", short)
            for what in ("encode", "decode", "change")
        ),
    )


def bits(run: Run) -> str:
    return table(
        ["bits that a client sends, over the information bound", "here", "the paper's scheme"],
        [
            [
                name,
                run.show("scma", name, "bits_ratio", share),
                run.show("scma", name, "paper_bits_ratio", share),
            ]
            for name in ("Celltype", "Covtype", "FEMNIST")
        ],
    )


def secure_sum(run: Run) -> str:
    return table(
        ["clients", "full round", "delta round", "one client", "memory of all"],
        [
            [
                size,
                *(
                    run.show("securesum", f"{size} clients", f"{what}_seconds", short)
                    for what in ("full", "delta", "client")
                ),
                run.show("securesum", f"{size} clients", "mebibytes", lambda x: f"{whole(x)} MiB"),
            ]
            for size in ("10", "30", "100", "300", "1,000")
        ],
    )


def traffic(run: Run) -> str:
    def kilobytes(value: float) -> str:
        return f"{value / 1e3:.1f} kB"

    row = ("securesum", "100 clients")
    return sentence(
        "In a full round of 100, a client sends a masked vector of {} ({} the code's own bits) and"
        " {} of keys, shares and signatures.",
        run.show(*row, "masked_bytes", kilobytes),
        run.show(*row, "masked_over_code", of_data),
        run.show(*row, "other_bytes", kilobytes),
    )


def directory(run: Run) -> str:
    def took(row: str) -> str:
        return run.show("parties", row, "seconds", short)

    def needed(row: str) -> str:
        return run.show("parties", row, "memory", of_data)

    changed = "sync, 1 % changed"
    of_import = run.show("parties", changed, "of_an_import", share)
    night = f"{took(changed)}, {of_import} of an import" if of_import else ""
    return table(
        ["what", "time", "additional memory, of the data"],
        [
            [
                "import from Parquet",
                run.show("parties", "import", "rows_per_second", rate),
                needed("import"),
            ],
            ["sync, 1 % of the records changed", night, needed(changed)],
            ["sync, nothing changed", took("sync, nothing changed"), ""],
            ["status", took("status"), needed("status")],
            ["one `forget`, no seed", took("forget 1, seeds stand"), ""],
            ["one `forget`, the first seed", took("forget 1, the first seed"), ""],
            ["a batch of 1,000", took("forget 1,000"), ""],
            ["the largest of these three", "", needed("forget")],
            ["audit", "", needed("audit")],
        ],
    )


def sources(run: Run) -> str:
    names = {
        "Parquet": "Parquet", "CSV": "CSV", "Arrow stream": "Arrow stream",
        "cells (h5py alone)": "cells (`.h5ad`)", "PostgreSQL": "PostgreSQL",
    }  # fmt: skip
    return table(
        ["source", "import", "reader alone"],
        [
            [
                label,
                run.show("parties", f"import, {name}", "rows_per_second", rate),
                run.show("parties", f"import, {name}", "reader_rows_per_second", rate),
            ]
            for name, label in names.items()
        ],
    )


def quality(run: Run) -> str:
    kinds = ("seeds, 1 K", "means, 1 K", "means, 2 K", "lloyd, 1 K")
    found = [run.show("quality", kind, "induced", lambda x: f"{x:.3f}") for kind in kinds]
    head = ["", "seeds, as in the paper", "means", "means, 2K local clusters"]
    return table([*head, "K-means at the clients"], [["loss", *found]])


def starting(run: Run) -> str:
    first = {
        "warm-up, empty cache": "`fedforget warm-up`: all kernels compiled",
        "demo, empty cache": "`fedforget demo`, its kernels compiled first",
        "demo, again": "`fedforget demo`, again",
    }
    later = {
        "git clone, make demo": "`git clone`, `make demo`: from nothing to the demo's table",
        "python -c pass": "`python -c pass`, for comparison",
        "client status": "`fedforget client status`",
        "client receipts": "`fedforget client receipts`",
        "client requests": "`fedforget client requests`",
        "client join": "`fedforget client join`",
        "server status": "`fedforget server status`",
        "verify": "`fedforget verify`",
        "client forget, an ordinary record": "`fedforget client forget`, one record",
    }

    def row(name: str, label: str, *figures: str) -> list[str]:
        return [label, *(run.show("coldstart", name, one, short) for one in figures)]

    rows = [row(name, label, "seconds", "processor_seconds") for name, label in first.items()]
    rows += [[*row(name, label, "seconds"), ""] for name, label in later.items()]
    return table(["command", "time", "processor time, all processes"], rows)


def slowest(run: Run) -> str:
    """The kernels that take longest to compile."""
    mark = "kernel "
    spent = {
        row.removeprefix(mark): found["processor_seconds"]
        for row, found in run.rows("coldstart").items()
        if row.startswith(mark)
    }
    longest = sorted(spent.items(), key=lambda item: -item[1])[:3]
    named = ", ".join(f"`{name}` {short(seconds)}" for name, seconds in longest)
    return sentence(
        "One after the other, the {} kernels take {}; those that take longest are {}.",
        run.show("coldstart", "kernels", "count", whole),
        run.show("coldstart", "all kernels, one by one", "processor_seconds", short),
        named,
    )


def size(run: Run) -> str:
    gives = {
        "core": ("`pip install .`", "the estimators and all commands of the parties"),
        "bench": ("`pip install '.[bench]'`", "also `fedforget demo` and `fedforget bench`"),
    }
    found = {
        name: run.show("size", name, "megabytes", lambda x: f"{whole(x)} MB") for name in gives
    }
    rows = [[command, found[name], what] for name, (command, what) in gives.items() if found[name]]
    return table(["command", "installs", "gives"], rows)


def largest(run: Run) -> str:
    names = ("llvmlite", "pyarrow", "scipy", "numpy", "sklearn")
    return sentence(
        "A hospital's client needs the first line. Most of it is compiled code of others: LLVM for"
        " numba {} MB, pyarrow {}, SciPy {}, NumPy {}, scikit-learn {}.",
        *(run.show("size", name, "megabytes", whole) for name in names),
    )


def beside_earlier(run: Run) -> str:
    """Figures of an earlier run beside those of this one."""
    forms = ((earlier.SPEEDS, times), (earlier.SECONDS, short), (earlier.SHARES, share))
    rows = [
        [one.what, form(one.was), run.show(one.script, one.row, one.figure, form)]
        for some, form in forms
        for one in some
    ]
    return table(["", f"earlier, commit `{earlier.COMMIT}`", "this run"], rows)


BLOCKS: dict[str, Callable[[Run], str]] = {
    "run": the_run,
    "one-owner": one_owner,
    "losses": losses,
    "other-libraries": other_libraries,
    "more-records": more_records,
    "slope": slope,
    "memory-of-a-fit": memory_of_a_fit,
    "less-memory": less_memory,
    "seeded": seeded,
    "no-seed": no_seed,
    "server": server,
    "many-bins": many_bins,
    "rules": rules,
    "removals": removals,
    "memory": memory,
    "sums": sums,
    "images": images,
    "bits": bits,
    "secure-sum": secure_sum,
    "traffic": traffic,
    "directory": directory,
    "sources": sources,
    "quality": quality,
    "starting": starting,
    "slowest": slowest,
    "earlier": beside_earlier,
    "size": size,
    "largest": largest,
}
"""What is written, by the name of its place on the page."""


def written(page: str, run: Run) -> str:
    """The page with the figures of a run."""
    places = [match[2] for match in BLOCK.finditer(page)]
    if sorted(places) != sorted(BLOCKS):
        different = sorted(set(places) ^ set(BLOCKS)) or "one of them is there twice"
        sys.exit(f"the page has not the places that are to be filled: {different}")
    return BLOCK.sub(lambda match: f"{match[1]}\n{BLOCKS[match[2]](run)}\n\n{match[4]}", page)


# -- what other pages repeat -------------------------------------------------------------------


class Claim(NamedTuple):
    """Figures of a run in the words of another page; each group of the pattern is one of them."""

    page: str
    pattern: str
    figures: Callable[[Run], list[str]]


def _of(script: str, row: str, name: str, form: Form) -> Callable[[Run], list[str]]:
    return lambda run: [run.show(script, row, name, form)]


def _range_of_removals(run: Run) -> list[str]:
    found = [run.figure("replay", name, "removal_speed_up") for name in SETS]
    there = [one for one in found if one is not None]
    return [whole(min(there)), whole(max(there))] if len(there) == len(found) else ["", ""]


def _overlapping(run: Run) -> list[str]:
    return [run.show("lloyd", name, "forget_speed_up", factor) for name in ("gaussian", "femnist")]


def _many_bins(run: Run) -> list[str]:
    return [
        run.show("many-bins", "many-bins", name, form)
        for name, form in (
            ("replay_speed_up", factor),
            ("replay_seconds", short),
            ("full_seconds", short),
            ("removal_speed_up", factor),
        )
    ]


def _flint(run: Run) -> list[str]:
    return [run.show("scma", size, "flint_speed_up", factor) for size in ("T = 400", "T = 6,200")]


def _rules(run: Run) -> list[str]:
    names = ("tmi", "celltype", "gaussian", "tcga", "body-postures", "covtype")
    return [run.show("disclosure", name, "rules_ratio", share) for name in names]


NUMBER = r"([\d,.]*\d)"
CLAIMS = [
    Claim(
        "README.md",
        rf"forget one record of a million .*? \| {NUMBER} times faster",
        _of("lloyd", BLOBS, "forget_speed_up", factor),
    ),
    Claim(
        "README.md",
        rf"on the same records, against scikit-learn's \| {NUMBER} of its time",
        _of("lloyd", BLOBS, "fit_ratio", share),
    ),
    Claim(
        "README.md",
        rf"seven datasets \| {NUMBER} to {NUMBER} times faster",
        _range_of_removals,
    ),
    Claim(
        "README.md",
        r"processor time of one client \| ([\d.]+ m?s)",
        _of("securesum", "100 clients", "client_seconds", short),
    ),
    Claim(
        "README.md",
        rf"the paper has 1\.14\) \| {NUMBER}",
        _of("quality", "lloyd, 1 K", "induced", lambda x: f"{x:.3f}"),
    ),
    Claim(
        "README.md",
        r"a hospital's client: ([\d,]+ MB)",
        _of("size", "core", "megabytes", lambda x: f"{whole(x)} MB"),
    ),
    Claim(
        "docs/replay.md",
        rf"a removal of `KMeans` is {NUMBER} times faster .*?, and on MNIST .*? {NUMBER} times",
        _overlapping,
    ),
    Claim(
        "docs/replay.md",
        rf"Replay is then {NUMBER} times faster than a full run \(([\d.]+ m?s) against"
        rf" ([\d.]+ m?s)\), and a removal is {NUMBER} times faster than complete retraining",
        _many_bins,
    ),
    Claim(
        "docs/explanation/scma.md",
        r"numbers: 6,200 bins take ([\d.]+ m?s)",
        _of("scma", "T = 6,200", "decode_seconds", short),
    ),
    Claim(
        "docs/architecture.md",
        rf"root finding is {NUMBER} times slower at 400 roots and {NUMBER} times slower at 6,200",
        _flint,
    ),
    Claim(
        "docs/results/README.md",
        rf"rules over none\): TMI {NUMBER}, Celltype {NUMBER}, Gaussian {NUMBER}, TCGA {NUMBER},"
        rf" body postures {NUMBER}, Covtype {NUMBER}",
        _rules,
    ),
]


def disagreements(claim: Claim, text: str, run: Run) -> list[str]:
    """What a page says otherwise than the run, with the line where it says so."""
    # Where a line of the page ends has no meaning.
    match = re.search(claim.pattern.replace(" ", r"\s+"), text, re.S)
    if match is None:
        return [f"{claim.page}: nothing there fits {claim.pattern!r}"]
    return [
        f"{claim.page}:{text.count(chr(10), 0, match.start(place)) + 1}:"
        f" says {match[place]}, the run has {found}"
        for place, found in enumerate(claim.figures(run), 1)
        if found and match[place] != found
    ]


def check(page: Path, run: Run, root: Path = ROOT) -> list[str]:
    """Every place that differs from the run."""
    text = page.read_text(encoding="utf-8")
    before, after = (
        {match[2]: match[3].strip() for match in BLOCK.finditer(one)}
        for one in (text, written(text, run))
    )
    found = [
        f"{page.name}: {name} is not of this run" for name in after if before[name] != after[name]
    ]
    for claim in CLAIMS:
        found += disagreements(claim, (root / claim.page).read_text(encoding="utf-8"), run)
    return found


# -- charts ------------------------------------------------------------------------------------


def draw_charts(page: Path) -> None:
    """The charts of a page's tables, in the folder ``images`` beside it."""
    path = ROOT / "docs" / "images" / "draw.py"
    spec = importlib.util.spec_from_file_location("draw", path)
    assert spec is not None
    assert spec.loader is not None
    drawing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(drawing)
    folder = page.parent / "images"
    folder.mkdir(exist_ok=True)
    for name, draw in drawing.CHARTS.items():
        (folder / name).write_text(draw(page), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, default=RUN, metavar="FOLDER", help="of make bench")
    parser.add_argument("--page", type=Path, default=PAGE, metavar="FILE", help="another page")
    parser.add_argument("--check", action="store_true", help="write nothing; say what differs")
    given = parser.parse_args()
    run = Run(given.run)
    if given.check:
        found = check(given.page, run)
        print("\n".join(found) or "all pages have the figures of this run")
    else:
        if run.quick and given.page.resolve() == PAGE:
            sys.exit("these are figures of a quick run, which mean nothing; use --page elsewhere")
        found = []
        text = written(given.page.read_text(encoding="utf-8"), run)
        given.page.write_text(text, encoding="utf-8")
        draw_charts(given.page)
        print(f"wrote {given.page}; see git diff, then --check")
    for one in sorted(set(run.missing)):
        print(f"warning: no file holds {one}; it is left out", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
