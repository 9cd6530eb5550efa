"""The server amends a federation: the next version of its file, with a list of the same members."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec import structs

from fedforget.errors import FedforgetError
from fedforget.parties.amendments import (
    check_next,
    consequences,
    differences,
    next_version,
    reports_alike,
)
from fedforget.parties.federation_file import FederationFile
from fedforget.parties.joined import Joined
from fedforget.parties.membership_file import MembershipDocument
from fedforget.parties.version_store import put_version, write_files
from fedforget.protocol.client_ledger import leavers_since
from fedforget.protocol.history import next_list
from fedforget.protocol.membership import Membership, SignedMembership

if TYPE_CHECKING:
    from fedforget.parties.server_party import ServerParty


class AmendmentError(FedforgetError):
    """An amendment that cannot be made now."""


@dataclass(frozen=True)
class PlannedAmendment:
    """An amendment that is not made yet."""

    before: FederationFile
    after: FederationFile
    joined: Joined

    @property
    def differences(self) -> list[str]:
        return differences(self.before, self.after)

    @property
    def consequences(self) -> list[str]:
        return consequences(self.before, self.after, len(self.joined.membership))


def check_lists_known(federation: FederationFile, lists: Sequence[Membership]) -> None:
    """Refuse to make a list while the one that a version came with is still to be recovered."""
    known = lists[-1].epoch if lists else 0
    if federation.version > 1 and known < federation.first_epoch:
        raise AmendmentError(
            f"version {federation.version} of the federation file came with the list of epoch"
            f" {federation.first_epoch}, and this server knows epoch {known}: it was restored. Run"
            " `server recover` first, which brings the lists; if no member has them, restore the"
            " backup once more, without `server amend --restore`"
        )


def plan_amendment(party: ServerParty, changed: FederationFile) -> PlannedAmendment:
    """The next version and its list; nothing is stored."""
    before, lists, ledger = party.federation, party.lists(), party.ledger()
    check_lists_known(before, lists)
    if not differences(before, changed):
        raise AmendmentError("nothing would change: say what is to be amended")
    if not lists:
        raise AmendmentError(
            "nobody is enrolled yet: set the federation up anew with server init instead"
        )
    listed = lists[-1]
    if listed.suspended:
        away = min(listed.suspended)
        raise AmendmentError(
            f"{away} is suspended, and an amendment needs a full round of everybody: let it come"
            f" back first (server enrol --resume {away}), or take it off the list (--gone)"
        )
    if not reports_alike(before, changed) and party.waiting_to_leave():
        raise AmendmentError(
            "some members wait to leave, have erased their records and cannot report in other bins:"
            f" {'; '.join(party.waiting_to_leave())}. Let them go first"
        )
    changed.policy().check(len(listed))
    try:
        membership = next_list(
            listed,
            ledger.place,
            federation=bytes.fromhex(before.identifier),
            members=listed.members,
            capacity=changed.model.local_clusters * len(listed),
            leavers=[leavers_since(ledger.place, ledger.lock)],
            opened=party.opened_since_the_last_commit(),
        )
    except ValueError as error:
        raise AmendmentError(str(error)) from None
    after = next_version(before, changed, membership.epoch, party.identity)
    opened = party.opened_since_the_last_commit()
    joined = Joined.after(after, lists, [membership], opened, amended=before)
    return PlannedAmendment(before, after, joined)


def amend(party: ServerParty, plan: PlannedAmendment) -> MembershipDocument:
    """Make an amendment; returns the list that comes with it."""
    membership = plan.joined.membership
    signed = SignedMembership.by(membership, party.identity)
    with party.storing() as database:
        put_version(database, plan.before, plan.after)
        ledger = structs.replace(party.ledger(), full_due=party.ledger().place.round > 0)
        party.add_list(signed, ledger)
        party.append_to_log("amendment", _entry(plan))
    party.follow_versions()
    write_files(party.folder, party.federation, party.versions)
    return MembershipDocument.of(signed)


def _entry(plan: PlannedAmendment) -> dict[str, Any]:
    return {
        "version": plan.after.version,
        "epoch": plan.after.first_epoch,
        "configuration": plan.after.digest.hex(),
        "changes": plan.differences,
    }


def take_back(party: ServerParty, files: Sequence[FederationFile]) -> int:
    """Take over versions that this server made before it was restored; returns how many.

    Their lists and rounds come from the members, by ``server recover``.
    """
    taken = 0
    for file in sorted(files, key=lambda one: one.version):
        if file.digest in {one.digest for one in (*party.versions, party.federation)}:
            continue
        check_next(party.federation, file)
        if any(one.epoch >= file.first_epoch for one in party.lists()):
            raise AmendmentError(
                f"version {file.version} came with the list of epoch {file.first_epoch}, and this"
                " server has made another list of that number since it was restored: restore the"
                " backup once more, and take the version over before anything else"
            )
        with party.storing() as database:
            put_version(database, party.federation, file)
            database.put("counted_with", party.counted_with.digest)
            ledger = structs.replace(party.ledger(), full_due=True)
            party.keep_ledger(ledger)
            party.append_to_log(
                "amendment",
                {
                    "version": file.version,
                    "epoch": file.first_epoch,
                    "configuration": file.digest.hex(),
                    "restored": True,
                },
            )
        party.follow_versions()
        write_files(party.folder, party.federation, party.versions)
        taken += 1
    if not taken:
        raise AmendmentError(
            f"this server has version {party.federation.version} of the federation file already"
        )
    return taken


def problems_of_versions(
    log: Sequence[dict[str, Any]], versions: Sequence[FederationFile]
) -> Iterator[str]:
    """The versions that are stored must be those that the log names."""
    told = [entry["body"]["configuration"] for entry in log if entry["kind"] == "amendment"]
    if told != [one.digest.hex() for one in versions[1:]]:
        yield "the versions of the federation file are not those that the log names"
    before: FederationFile | None = None
    for one in versions:
        try:
            if before is not None:
                check_next(before, one)
        except FedforgetError as error:
            yield str(error)
        before = one
