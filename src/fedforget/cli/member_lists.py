"""A membership list as people look at it before they accept it or hand it out."""

from __future__ import annotations

from typing import Any

from rich.panel import Panel
from rich.table import Table

from fedforget.cli.console import console, listed, safe
from fedforget.parties.amendments import consequences, differences
from fedforget.parties.joined import Joined
from fedforget.protocol.membership import Membership

_SHORT_KEY = 16


def plain_join(plan: Joined) -> dict[str, Any]:
    """A list, and what comes with it, for scripts."""
    return (
        plain_list(plan.membership)
        | plain_amendment(plan)
        | {
            "came": plan.came,
            "went": plan.went,
            "changed_keys": plan.changed_keys,
            "suspended": plan.suspended,
            "will_show": plan.will_show(),
            "asked": plan.asked(),
        }
    )


def plain_amendment(plan: Joined) -> dict[str, Any]:
    """What an amendment changes, for scripts; nothing where there is none."""
    if plan.amended is None:
        return {}
    return {
        "version": plan.federation.version,
        "changes": differences(plan.amended, plan.federation),
        "consequences": consequences(plan.amended, plan.federation, len(plan.membership)),
    }


def show_amendment(plan: Joined) -> None:
    """The difference of two versions, and what it means."""
    if plan.amended is None:
        return
    version = plan.federation.version
    console.print(f"[bold]Version {version} of the federation file changes:[/bold]")
    for line in differences(plan.amended, plan.federation):
        console.print(f"  - {safe(line)}", soft_wrap=True)
    console.print("[bold]What follows:[/bold]")
    for line in consequences(plan.amended, plan.federation, len(plan.membership)):
        console.print(f"  - {safe(line)}", soft_wrap=True)


def plain_list(membership: Membership) -> dict[str, Any]:
    """A list for scripts."""
    return {
        "epoch": membership.epoch,
        "fingerprint": membership.fingerprint,
        "members": [
            {"name": one.name, "key": one.key.hex(), "suspended": one.suspended}
            for one in membership.members
        ],
    }


def show_list(membership: Membership, federation: str, own: str | None = None) -> None:
    """The list and its fingerprint; ``own`` is the member who looks at it."""
    console.print(f"Epoch {membership.epoch} of “{safe(federation)}”. Its fingerprint is")
    console.print(Panel.fit(f"[bold]{safe(membership.fingerprint)}[/bold]", padding=(1, 4)))
    console.print("Compare it by telephone with another member.", soft_wrap=True)
    table = Table(box=None)
    for column in ("member", "key", ""):
        table.add_column(column, overflow="fold")
    for one in membership.members:
        notes = ["this client"] * (one.name == own) + ["suspended"] * one.suspended
        table.add_row(safe(one.name), f"{one.key.hex()[:_SHORT_KEY]}…", ", ".join(notes))
    console.print(table)


def show_join(plan: Joined, own: str | None = None) -> None:
    """The same, with what changes and what will show."""
    show_list(plan.membership, plan.federation.name, own)
    show_amendment(plan)
    changes = {
        "came": plan.came,
        "went": plan.went,
        "changed keys": plan.changed_keys,
        "suspended": plan.suspended,
    }
    for word, names in changes.items():
        if names:
            console.print(f"  {word}: {safe(listed(names))}", soft_wrap=True)
    lines = plan.will_show()
    if lines:
        console.print("[bold]What will show:[/bold]")
        for line in lines:
            console.print(f"  - {safe(line)}", soft_wrap=True)
    if own is None and plan.asked():
        who = safe(listed(plan.asked()))
        console.print(f"Can go on only by `client join --alone`: {who}", soft_wrap=True)
