"""A real browser: Debian's Chromium, driven by Playwright, which downloads nothing here."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--no-first-run",
    # No name leads anywhere: what the page needs comes from this machine.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
]
SIZES = {"screen": (1300, 900), "phone": (400, 800)}


def chromium_path() -> str:
    """Where the browser is; the test is skipped if there is none."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found is not None:
            return found
    pytest.skip("no chromium on PATH (Debian: apt-get install chromium)")


@contextmanager
def browser() -> Iterator[Any]:
    """An open browser."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed (pip install '.[dev]')"
    )
    path = chromium_path()
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=path, args=ARGUMENTS)
        try:
            yield found
        finally:
            found.close()


@dataclass
class Tab:
    """A tab, and whatever went wrong in it."""

    page: Any
    wrong: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def check(self) -> None:
        """No script failed, nothing was complained of, nothing sticks out or is covered."""
        assert not self.wrong, self.wrong
        assert not self.page.evaluate(STICKS_OUT), self.page.evaluate(STICKS_OUT)
        assert not self.page.evaluate(COVERED), self.page.evaluate(COVERED)


@contextmanager
def tab(found: Any, size: str = "screen", scheme: str = "light") -> Iterator[Tab]:
    """A tab of a browser, of a screen or a phone."""
    width, height = SIZES[size]
    context = found.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
    )
    page = context.new_page()
    one = Tab(page)
    page.on("pageerror", lambda error: one.wrong.append(f"script error: {error}"))
    page.on(
        "console",
        lambda said: (
            one.wrong.append(f"{said.type}: {said.text}")
            if said.type in ("error", "warning")
            else None
        ),
    )
    page.on("request", lambda request: one.asked.append(request.url))
    try:
        yield one
    finally:
        context.close()


STICKS_OUT = """() => {
  const root = document.documentElement, found = [];
  if (root.scrollWidth > root.clientWidth)
    found.push(`the page is ${root.scrollWidth} wide, its window ${root.clientWidth}`);
  for (const one of document.querySelectorAll("main *")) {
    if (one.closest(".scroll") && !one.matches(".scroll")) continue;
    const box = one.getBoundingClientRect();
    if (box.width && (box.right > root.clientWidth + 1 || box.left < -1))
      found.push(`${one.tagName} ${one.getAttribute("class")} ${one.textContent.slice(0, 40)}`);
  }
  return found;
}"""
"""What does not fit into the window, except in tables that scroll."""

COVERED = """() => {
  const found = [];
  for (const chart of document.querySelectorAll("svg")) {
    const texts = [...chart.querySelectorAll("text")]
      .filter((one) => getComputedStyle(one).display !== "none" && one.getClientRects().length);
    const boxes = texts.map((one) => one.getBoundingClientRect());
    for (let i = 0; i < boxes.length; i++) for (let j = i + 1; j < boxes.length; j++) {
      const a = boxes[i], b = boxes[j];
      // A font's box is taller than its letters; half of one lying over another is not read.
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 1 && down > 4) found.push(`${texts[i].textContent} / ${texts[j].textContent}`);
    }
  }
  return found;
}"""
"""Labels of charts that lie over each other."""
