"""The terminal, and what several commands show on it."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from fedforget.cli.json_errors import print_error, wants_json
from fedforget.errors import FedforgetError
from fedforget.text import json_text, visible

if TYPE_CHECKING:
    from rich.progress import Progress

# Names and paths may hold what looks like the code of an emoji; they are shown as they are.
console = Console(emoji=False)
messages = Console(stderr=True, emoji=False)


def safe(value: object) -> str:
    r"""A value from outside, to be put into text with Rich's markup.

    Every name, path, id and message goes through here.  Neither the terminal nor Rich takes
    anything in it for a command, whatever stands before and after it.

    >>> print(safe("[/b]\x1b[2J"))
    \[/b]\x1b\[2J
    """
    # A backslash before a bracket, or before what follows the value, would itself be markup.
    shown = re.sub(r"\\(?=\[|\Z)", r"\\x5c", visible(value))
    return shown.replace("[", "\\[")


def listed(names: Iterable[object]) -> str:
    """Names from outside as one text, in which each of them can be told from the others.

    >>> listed(["aarhus", "bologna, coimbra"])
    'aarhus, "bologna, coimbra"'
    """
    return ", ".join(map(_apart, names))


def _apart(name: object) -> str:
    shown = visible(name)
    return json_text(shown) if "," in shown or '"' in shown or not shown else shown


def number_of(count: int, thing: str) -> str:
    """A number and what it counts.

    >>> number_of(1, "record"), number_of(2, "record")
    ('1 record', '2 records')
    """
    return f"{count} {thing}{'s' * (count != 1)}"


def warm_up_kernels(parts: Iterable[str] | None = None) -> None:
    """Compile the kernels that are not kept yet, of some parts or all, and show how far it is."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    start = time.perf_counter()
    with messages.status("Loading …"):
        from fedforget.warmup import PARTS, compile_ahead
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}"))
    with Progress(*columns, TimeElapsedColumn(), console=messages, transient=True) as progress:
        task = progress.add_task("", total=None, visible=False)

        def show_kernel(name: str) -> None:
            progress.update(
                task, advance=1, visible=True, description="Compiling for this machine, once"
            )

        compiled = compile_ahead(PARTS if parts is None else parts, show_kernel)
    if compiled:
        seconds = time.perf_counter() - start
        messages.print(f"[dim]{compiled} kernels compiled in {seconds:.0f} s and kept.[/dim]")


@contextmanager
def plain_errors() -> Iterator[None]:
    """Say what went wrong, in plain words or as JSON, and end with status 1."""
    try:
        yield
    except FedforgetError as error:
        if wants_json():
            print_error(str(error))
        else:
            messages.print(f"[bold red]error:[/bold red] {safe(error)}", soft_wrap=True)
        raise typer.Exit(1) from None


def ask(question: str, as_json: bool) -> None:
    """Go on only if somebody says yes."""
    if as_json or not sys.stdin.isatty():
        raise FedforgetError("nobody can be asked here: add --yes to erase")
    typer.confirm(visible(question), abort=True)


def show(result: dict[str, Any], as_json: bool, in_words: Callable[[], None]) -> None:
    """Print a result for a script or for a person."""
    if as_json:
        print(json_text(result, indent=2))
    else:
        in_words()


@contextmanager
def progress_bar(description: str, total: int | None, *, quiet: bool) -> Iterator[Progress]:
    """A progress bar on the error stream; none for scripts."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    words = TextColumn("{task.description}", markup=False)
    columns = (words, BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, TimeElapsedColumn(), console=messages, transient=True, disable=quiet
    ) as progress:
        progress.add_task(description, total=total)
        yield progress
