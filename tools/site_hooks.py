"""What the site adds to the pages of ``docs/`` when it is built.

Some pages live elsewhere in the repository (README, CONTRIBUTING, …) or are made of code (the
commands, the examples).  Links between them are written for a reader of the repository; here they
are turned into links of the site.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from command_pages import every_command  # noqa: E402
from example_outputs import recorded  # noqa: E402
from percent_scripts import as_markdown  # noqa: E402

MOVED = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    # Its folder has an index.html of its own: the page of the full run.
    "docs/results/README.md": "results/paper.md",
}
"""Pages that lie elsewhere in the repository than on the site."""

COMMANDS = "<!-- commands -->"
NESTED = re.compile(r"^ {2,3}(?=(?:[-*]|\d+\.) )", re.M)
LINK = re.compile(r"(\]\()([^)\s]+)(\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie elsewhere."""
    for source, target in MOVED.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, target, content=text))
    for script in sorted((ROOT / "examples").glob("*.py")):
        code = script.read_text(encoding="utf-8")
        text = as_markdown(code, script.name, recorded(script))
        files.append(File.generated(config, f"examples/{script.stem}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in what is made of code, and turn links of the repository into links of the site."""
    if COMMANDS in markdown:
        markdown = markdown.replace(COMMANDS, every_command())
    return with_nested_lists(with_site_links(markdown, page.file.src_uri))


def with_site_links(markdown: str, page: str) -> str:
    """Links of a page, which point from where its source lies, as links within the site."""
    home = next((source for source, target in MOVED.items() if target == page), f"docs/{page}")

    def rewritten(match: re.Match[str]) -> str:
        address, mark, anchor = match[2].partition("#")
        if not address or re.match(r"[a-z]+:", address):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(home), address))
        target = place_on_site(path)
        if target is None:
            return match[0]
        relative = posixpath.relpath(target, posixpath.dirname(page) or ".")
        return f"{match[1]}{relative}{mark}{anchor}{match[3]}"

    return LINK.sub(rewritten, markdown)


def with_nested_lists(markdown: str) -> str:
    """Lists within lists as Python-Markdown wants them, by four spaces; viewers take two, too."""
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.M | re.S)
    parts[::2] = [NESTED.sub("    ", part) for part in parts[::2]]
    return "".join(parts)


def place_on_site(path: str) -> str | None:
    """Where a file of the repository is on the site; None if it is not there."""
    if path in MOVED:
        return MOVED[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith("examples/") and path.endswith(".py"):
        return path.removesuffix(".py") + ".md"
    return None
