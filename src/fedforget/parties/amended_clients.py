"""A client takes an amendment over: its records stay, its clusters and its report may not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from fedforget.clustering.histogram import Histogram
from fedforget.parties.amendments import reports_alike
from fedforget.parties.fitting import rearranged
from fedforget.parties.version_store import put_version
from fedforget.protocol.client_ledger import ClientLedger
from fedforget.protocol.membership import Membership

if TYPE_CHECKING:
    from fedforget.parties.client_party import ClientParty
    from fedforget.parties.federation_file import FederationFile


def take_amendment(
    party: ClientParty, before: FederationFile, after: FederationFile, membership: Membership
) -> None:
    """Store the next version and what follows from it; belongs in a transaction.

    ``membership`` is the last of the lists that come with it.
    """
    put_version(party.store, before, after)
    if not reports_alike(before, after):
        ledger = party.stored_ledger()
        assert ledger is not None
        party.keep_ledger(ledger_after(ledger, len(after.features), membership))
        # What was approved was meant for other bins.
        party.store.discard("approved")
        names = before.feature_names, after.feature_names
        if names[0] != names[1]:
            _, ids, values = party.store.everything(len(names[0]))
            party.store.rewrite(ids, rearranged(values, *names))
    party.follow_version(after, redraw=not reports_alike(before, after))


def ledger_after(ledger: ClientLedger, n_features: int, membership: Membership) -> ClientLedger:
    """What is counted of the client says nothing in other bins."""
    base = None
    if ledger.base is not None and not ledger.base_round:
        base = Histogram(n_features)
    ledger = structs.replace(ledger, base=base)
    if ledger.place.round >= membership.after_round:
        # No attempt of before can be committed any more.
        ledger = structs.replace(ledger, pending=None)
    return ledger
