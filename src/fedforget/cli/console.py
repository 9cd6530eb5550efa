"""The terminal, and what several commands show on it."""

from __future__ import annotations

import time

from rich.console import Console

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
