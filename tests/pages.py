"""The pages of the documentation: their code blocks, links and anchors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"\]\(([^)\s]+)\)")


class Block(NamedTuple):
    """A code block, and the line of its first line of code."""

    language: str
    code: str
    line: int


def pages() -> list[str]:
    """Every page, as a path from the root of the repository."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> Iterator[Block]:
    """The code blocks of a page, in their order."""
    text = text_of(page)
    for match in FENCE.finditer(text):
        yield Block(match[1], match[2], text.count("\n", 0, match.start(2)) + 1)


def prose(page: str) -> str:
    """A page without its code."""
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", text_of(page)))


def links(page: str) -> list[str]:
    return LINK.findall(prose(page))


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as MkDocs and repository viewers both make them."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} (.+)$", FENCE.sub("", text_of(page)), re.M):
        words = re.sub(r"[`*]|\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        name = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", words)).strip("-")
        while name in found:
            name += "-1"
        found.add(name)
    return found
