"""The terminal, and what several commands show on it."""

from __future__ import annotations

import time

from rich.console import Console

console = Console()
messages = Console(stderr=True)


def warm_up_kernels() -> None:
    """Compile the kernels if need be, and say so: the first time takes a while."""
    start = time.perf_counter()
    with messages.status("Loading …") as status:
        from fedforget.clustering.warmup import warm_up

        compiled = warm_up(
            lambda: status.update("Compiling the kernels for this machine (first run only) …")
        )
    if compiled:
        seconds = time.perf_counter() - start
        messages.print(
            f"[dim]Compiled {compiled} kernels for this machine in {seconds:.0f} s;"
            f" they are cached for the next run.[/dim]"
        )
