"""The terminal, and what several commands show on it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fedforget.errors import FedforgetError

console = Console()
messages = Console(stderr=True)


def warm_up_kernels() -> None:
    """Compile the kernels if need be, and say so: the first time takes a while."""
    start = time.perf_counter()

    def announce() -> None:
        messages.print("Compiling the kernels for this machine (the first run only) …")

    with messages.status("Loading …"):
        from fedforget.warmup import warm_up

        compiled = warm_up(announce)
    if compiled:
        seconds = time.perf_counter() - start
        messages.print(f"[dim]{compiled} kernels compiled in {seconds:.0f} s and cached.[/dim]")


@contextmanager
def plain_errors() -> Iterator[None]:
    """Say in plain words what went wrong, and end with status 1."""
    try:
        yield
    except FedforgetError as error:
        messages.print(f"[bold red]error:[/bold red] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(1) from None


def show(result: dict[str, Any], as_json: bool, in_words: Callable[[], None]) -> None:
    """Print a result for a script or for a person."""
    if as_json:
        print(json.dumps(result, indent=2, ensure_ascii=False))
    else:
        in_words()


@contextmanager
def progress_bar(description: str, total: int | None, *, quiet: bool) -> Iterator[Progress]:
    """A progress bar on the error stream; none for scripts."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, TimeElapsedColumn(), console=messages, transient=True, disable=quiet
    ) as progress:
        progress.add_task(description, total=total)
        yield progress
