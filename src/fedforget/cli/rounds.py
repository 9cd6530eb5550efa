"""``fedforget round``."""

from __future__ import annotations

from pathlib import Path

from fedforget.cli.console import console, listed, plain_errors, progress_bar, safe, show
from fedforget.runtime.directories import run

_STAGES = 6


def run_round(server: Path, clients: list[Path], full: bool, as_json: bool) -> None:
    """Run one round over directories, and say what came of it."""
    with plain_errors(), progress_bar("Opening", _STAGES, quiet=as_json) as bar:
        task = bar.task_ids[0]
        result = run(
            server,
            clients,
            "full" if full else None,
            lambda stage: bar.update(task, description=stage.capitalize(), advance=1),
        )

    def in_words() -> None:
        names = safe(listed(result["participants"]))
        console.print(
            f"Round {result['round']} ({safe(result['kind'])}) committed: {names};"
            f" {result['changed_bins']} bins, {result['bytes_from_a_client'] / 1e3:.1f} kB from a"
            f" client at the most, {result['seconds']:.2f} s."
        )
        console.print(f"Model {safe(result['model'])}")

    show(result, as_json, in_words)
