"""Under ``--json`` everything that a command says is JSON, its complaints as well."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click
from typer.core import TyperGroup

from fedforget.text import json_text


def wants_json() -> bool:
    """Whether the command that runs was asked for JSON."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.params.get("as_json"))


def print_error(message: str) -> None:
    """Print what went wrong, for a script."""
    print(json_text({"error": message}, indent=2))


class JsonErrors(TyperGroup):
    """Commands whose usage errors are JSON, too, where JSON is asked for."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        given = list(sys.argv[1:] if args is None else args)
        alone = standalone_mode and "--json" not in given
        try:
            status = super().main(
                given, prog_name, complete_var, alone, windows_expand_args, **extra
            )
        except click.ClickException as error:
            if not standalone_mode:
                raise
            print_error(error.format_message())
            sys.exit(error.exit_code)
        except click.Abort:
            if not standalone_mode:
                raise
            print_error("aborted")
            sys.exit(1)
        if standalone_mode:
            sys.exit(status if isinstance(status, int) else 0)
        return status
