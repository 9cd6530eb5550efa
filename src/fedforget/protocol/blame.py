"""A member is named alone only if its fault is proved.

A recipient complains of a dealer whose share it cannot use.  Either of the two may be lying, so one
complaint names a pair.  More complainers than can collude name the dealer; a complainer that
accuses more dealers than can collude names itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fedforget.protocol.errors import Finding


def complaints(of_recipients: Mapping[str, Iterable[str]]) -> dict[str, frozenset[str]]:
    """For each dealer that somebody complains of, who does."""
    found: dict[str, set[str]] = {}
    for recipient, dealers in of_recipients.items():
        for dealer in dealers:
            found.setdefault(dealer, set()).add(recipient)
    return {dealer: frozenset(recipients) for dealer, recipients in sorted(found.items())}


def judge(unreadable: Mapping[str, frozenset[str]], colluders: int) -> list[Finding]:
    """Who is to blame for shares that cannot be read.

    Parameters
    ----------
    unreadable : for each dealer, who complains.
    colluders : how many members may collude; one more cannot all be lying.
    """
    accused: dict[str, set[str]] = {}
    for dealer, recipients in unreadable.items():
        for recipient in recipients:
            accused.setdefault(recipient, set()).add(dealer)
    liars = {name for name, dealers in accused.items() if len(dealers) > colluders}
    found = [
        Finding((name,), f"{name} says that it cannot read the shares of {len(accused[name])}"
                " members; so many cannot all be at fault")
        for name in sorted(liars)
    ]  # fmt: skip
    for dealer, recipients in unreadable.items():
        honest = sorted(recipients - liars)
        if len(honest) > colluders:
            text = f"{dealer} dealt shares that {len(honest)} members cannot read"
            found.append(Finding((dealer,), text))
            continue
        for recipient in honest:
            text = f"{recipient} cannot read {dealer}'s share: one of the two is at fault"
            found.append(Finding((recipient, dealer), text))
    return found
