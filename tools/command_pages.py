"""The reference of the command line, made of the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import typer.core
import typer.main

EXAMPLE = re.compile(r"^Example: `(.*)`$", re.S)


def every_command() -> str:
    """All commands in Markdown, each with its arguments, its options and its example."""
    from fedforget.cli.main import app

    root = typer.main.get_command(app)
    assert isinstance(root, click.Group)
    return "\n\n".join(_group(root, "fedforget"))


def commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    """Every command below a group, with the words that call it."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _group(group: click.Group, path: str) -> Iterator[str]:
    inner = [c for c in group.commands.items() if isinstance(c[1], click.Group)]
    own = [c for c in group.commands.items() if not isinstance(c[1], click.Group)]
    for name, command in inner:
        yield f"## {path} {name}"
        yield command.help or ""
        yield from _group(command, f"{path} {name}")  # type: ignore[arg-type]
    if own and path == "fedforget":
        yield "## Other commands"
    for name, command in own:
        yield from _command(command, f"{path} {name}")


def _command(command: click.Command, path: str) -> Iterator[str]:
    yield f"### {path}"
    *words, last = re.split(r"\n\s*\n", (command.help or "").strip())
    example = EXAMPLE.match(last)
    yield "\n\n".join(words if example else [*words, last])
    if example:
        yield f"```text\n$ {' '.join(example[1].split())}\n```"
    shown = [p for p in command.params if "--help" not in p.opts]
    if shown:
        rows = [f"| {_name(p)} | {_meaning(p)} | {_default(p)} |" for p in shown]
        yield "\n".join(["| name | meaning | default |", "|---|---|---|", *rows])


def _name(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Argument):
        many = " …" if parameter.nargs == -1 else ""
        return f"`{parameter.human_readable_name.upper()}`{many}"
    long_first = sorted(parameter.opts, key=len, reverse=True)
    value = "" if getattr(parameter, "is_flag", False) else " …"
    return ", ".join(f"`{name}`" for name in long_first) + value


def _meaning(parameter: click.Parameter) -> str:
    words = (getattr(parameter, "help", None) or "").replace("|", "\\|")
    choices = getattr(parameter.type, "choices", None)
    return f"{words} One of {', '.join(f'`{c}`' for c in choices)}." if choices else words


def _default(parameter: click.Parameter) -> str:
    if parameter.required:
        return "required"
    if parameter.default is None or parameter.default is False or callable(parameter.default):
        return ""
    return f"`{parameter.default}`"
