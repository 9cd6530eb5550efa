"""Scripts in the percent format, as jupytext reads it, turned into Markdown."""

from __future__ import annotations

import re

CELL = re.compile(r"^# %%(.*)$", re.M)


def cells(text: str) -> list[tuple[str, str]]:
    """The cells of a script: ``"markdown"`` or ``"code"``, and what is in it."""
    _, *parts = CELL.split(text)
    found = []
    for mark, body in zip(parts[::2], parts[1::2], strict=True):
        if "[markdown]" in mark:
            lines = [line.removeprefix("#").removeprefix(" ") for line in body.strip().splitlines()]
            found.append(("markdown", "\n".join(lines)))
        elif body.strip():
            found.append(("code", body.strip()))
    return found


def as_markdown(text: str, name: str) -> str:
    """One page: the words as they are, the code in blocks."""
    parts = [
        body if kind == "markdown" else f"```python\n{body}\n```" for kind, body in cells(text)
    ]
    origin = (
        f"*This page is the script `examples/{name}`. Run it with `python examples/{name}`, or turn"
        f" it into a notebook with `jupytext --to notebook examples/{name}`.*"
    )
    head, *rest = parts
    return "\n\n".join([head, origin, *rest]) + "\n"
