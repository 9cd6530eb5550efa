"""Scripts in the percent format, as jupytext reads it, turned into Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

CELL = re.compile(r"^# %%(.*)$", re.M)


def cells(text: str, *, empty: bool = False) -> list[tuple[str, str]]:
    """The cells of a script: ``"markdown"`` or ``"code"``, and what is in it.

    Cells of code without any code are left out unless ``empty``.
    """
    _, *parts = CELL.split(text)
    found = []
    for mark, body in zip(parts[::2], parts[1::2], strict=True):
        if "[markdown]" in mark:
            lines = [line.removeprefix("#").removeprefix(" ") for line in body.strip().splitlines()]
            found.append(("markdown", "\n".join(lines)))
        elif body.strip() or empty:
            found.append(("code", body.strip()))
    return found


def as_markdown(text: str, name: str, printed: Sequence[str]) -> str:
    """One page: the words as they are, the code in blocks, below each what that cell prints."""
    parts = []
    for (kind, body), output in zip(cells(text, empty=True), printed, strict=True):
        if kind == "markdown":
            parts.append(body)
        elif body:
            parts.append(f"```python\n{body}\n```")
        if output.strip():
            parts.append(f'```text title="It prints"\n{output.rstrip()}\n```')
    origin = (
        f"*This page is the script `examples/{name}`. Run it with `python examples/{name}`, or turn"
        f" it into a notebook with `jupytext --to notebook examples/{name}`.*"
    )
    head, *rest = parts
    return "\n\n".join([head, origin, *rest]) + "\n"
