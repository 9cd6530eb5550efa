"""How one version of a federation file follows another, and what that means for the parties.

An amendment is a new version of the file together with a membership list of the same members.  The
list gives it its place in the history: rounds under that list and later ones belong to the new
version, rounds before it to the old ones.  The file names the digests of all versions before it,
and the server signs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fedforget.digests import Digest
from fedforget.parties.federation_file import (
    Amendment,
    EarlierVersion,
    Feature,
    FederationFile,
    FederationFileError,
    amendment_statement,
)
from fedforget.parties.fitting import HOW_TO_GIVE_VALUES
from fedforget.protocol.federation import Federation, Version
from fedforget.protocol.history import Place
from fedforget.protocol.keys import Identity
from fedforget.protocol.membership import Membership

_FIXED = ("name", "identifier", "server_key", "model.public_seed")
_WORDS = {
    "model.n_clusters": "clusters",
    "model.local_clusters": "clusters that a client reports",
    "model.step": "step of the grid",
    "model.scale": "scale of the features",
    "model.representatives": "what a client reports of its clusters",
    "model.n_init": "restarts at the server",
    "model.max_iter": "most iterations",
    "disclosure.min_cell": "fewest records of a cluster that a client reports (min_cell)",
    "disclosure.min_records": "fewest records of a client that reports (min_records)",
    "disclosure.count_step": "step of reported sizes (count_step)",
    "disclosure.published_step": "step of published centres (published_step)",
    "protocol.dropout": "share of the members that may be away",
    "protocol.colluding": "share of the members that may side with the server",
    "protocol.minimum": "fewest members whose inputs are summed up",
    "protocol.first_capacity": "first capacity of a round of changes",
    "protocol.deadline": "seconds that a stage may last",
}


# -- one version after another -----------------------------------------------------------------


def next_version(
    before: FederationFile, changed: FederationFile, epoch: int, identity: Identity
) -> FederationFile:
    """The version that follows another one, signed by the server.

    ``changed`` holds the new values, and ``epoch`` is the list with which they come into force.
    """
    amendment = Amendment(before.version + 1, epoch, "", (*before.earlier, _entry(before)))
    unsigned = replace(changed, amendment=amendment)
    signature = identity.sign(amendment_statement(unsigned)).hex()
    return replace(unsigned, amendment=replace(amendment, signature=signature))


def _entry(file: FederationFile) -> EarlierVersion:
    return EarlierVersion(file.first_epoch, file.digest.hex())


def check_next(ours: FederationFile, theirs: FederationFile) -> None:
    """Refuse a federation file that does not follow the one that is known."""
    ours_now, their_values = ours.values(), theirs.values()
    for key in _FIXED:
        if ours_now[key] != their_values[key]:
            raise FederationFileError(
                f"another federation's file: this party belongs to “{ours.name}”:"
                f" {ours.difference(theirs)}"
            )
    if theirs.version == ours.version + 1 and theirs.earlier == (*ours.earlier, _entry(ours)):
        return
    if theirs.version <= ours.version:
        is_old = any(one.digest == theirs.digest.hex() for one in ours.earlier)
        what = "which has been amended since" if is_old else "and there is another one here"
        raise FederationFileError(
            f"the file is version {theirs.version}, {what}: version {ours.version} is in force"
            f" here ({ours.difference(theirs)})"
        )
    if theirs.version > ours.version + 1 and theirs.earlier[ours.version - 1] == _entry(ours):
        raise FederationFileError(
            f"the file is version {theirs.version}, and version {ours.version} is known here: take"
            f" version {ours.version + 1} first (federation-{ours.version + 1}.toml)"
        )
    raise FederationFileError(
        f"version {theirs.version} of the file does not follow version {ours.version}, which is"
        f" known here: {ours.difference(theirs)}; the server tells two histories, or was restored"
    )


def check_lists_of(
    federation: FederationFile,
    known: Sequence[Membership],
    new: Sequence[Membership],
    place: Place,
) -> None:
    """Refuse an amendment whose list is missing, came too long ago, or changes the members.

    The next full sum is of the same members as the sum before the amendment.  So the difference of
    the two tells what all of them changed together, and nothing of one alone.
    """
    first = federation.first_epoch
    lists = {one.epoch: one for one in (*known, *new)}
    if first not in lists:
        raise FederationFileError(
            f"version {federation.version} of the federation file comes into force with the list of"
            f" epoch {first}: give that list, too"
        )
    amending = lists[first]
    if place.round > amending.after_round:
        raise FederationFileError(
            f"a round was committed with the list of epoch {first} before this client knew version"
            f" {federation.version} of the federation file; the server tells two histories"
        )
    before = lists.get(first - 1)
    if before is not None and before.members != amending.members:
        raise FederationFileError(
            f"the list of epoch {first} amends the federation and also changes its members: the"
            " next sum would tell one of them from the others. The server must make two lists"
        )


def check_newcomer(federation: FederationFile, lists: Sequence[Membership]) -> None:
    """Refuse a list that is older than the version of the file that comes with it."""
    if lists[0].epoch < federation.first_epoch:
        raise FederationFileError(
            f"the list of epoch {lists[0].epoch} is older than version {federation.version} of the"
            f" federation file, which came with epoch {federation.first_epoch}"
        )


# -- what follows ------------------------------------------------------------------------------


def report_digest(file: FederationFile) -> bytes:
    """Digest of everything on which a client's histogram depends, except its records."""
    model, rules = file.model, file.disclosure
    digest = Digest("report").field("local_clusters", model.local_clusters)
    for key in ("scale", "step", "shift", "representatives"):
        digest.field(key, getattr(model, key))
    # Lloyd's iteration at the clients ends with the server's number of iterations.
    digest.field("max_iter", model.max_iter if model.representatives == "lloyd" else None)
    for key in ("min_cell", "min_records", "count_step"):
        digest.field(key, 1 if rules is None else getattr(rules, key))
    for one in file.features:
        digest.field("name", one.name).field("low", one.low).field("high", one.high)
    return digest.bytes()


def reports_alike(one: FederationFile, other: FederationFile) -> bool:
    """Whether clients report the same with two versions."""
    return report_digest(one) == report_digest(other)


def protocol_federation(file: FederationFile, earlier: Sequence[FederationFile]) -> Federation:
    """What the protocol works with: the version in force, and the earlier ones known here."""
    return replace(
        file.protocol_federation(),
        first_epoch=file.first_epoch,
        report=report_digest(file),
        earlier=tuple(
            Version(one.digest, one.first_epoch, one.policy(), report_digest(one))
            for one in earlier
        ),
    )


def differences(before: FederationFile, after: FederationFile) -> list[str]:
    """What an amendment changes, in words."""
    ours, theirs = before.values(), after.values()
    keys = [key for key in dict.fromkeys((*ours, *theirs)) if not key.startswith("amendment")]
    lines = []
    for key in keys:
        if key.startswith("features") or ours.get(key) == theirs.get(key):
            continue
        old = _rule_before(key, before) if key not in ours else ours[key]
        new = _rule_before(key, after) if key not in theirs else theirs[key]
        if old != new:
            lines.append(f"{_WORDS.get(key, key)}: {_shown(old)} → {_shown(new)}")
    known = {one.name: one for one in before.features}
    now = {one.name: one for one in after.features}
    for name, one in now.items():
        if name not in known:
            lines.append(f"feature {name}: new, {_bounds(one)}")
        elif known[name] != one:
            lines.append(f"feature {name}: {_bounds(known[name])} → {_bounds(one)}")
    lines += [f"feature {name}: no longer used" for name in known if name not in now]
    kept = [name for name in known if name in now]
    if kept != [name for name in now if name in known]:
        lines.append(f"features in another order: {', '.join(now)}")
    return lines


def _rule_before(key: str, file: FederationFile) -> object:
    """The value of a rule in a file that has no rules: everything is reported as it is."""
    return 0.0 if key == "disclosure.published_step" else 1


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _bounds(feature: Feature) -> str:
    fill = "" if feature.fill is None else f", {feature.fill:g} where a value is missing"
    return f"{feature.low:g} to {feature.high:g}{fill}"


def consequences(before: FederationFile, after: FederationFile, n_members: int) -> list[str]:
    """What an amendment means for those who accept it."""
    lines = []
    new = [one for one in after.feature_names if one not in before.feature_names]
    if new:
        lines.append(
            f"{', '.join(new)}: records held now have no such values. Import them again"
            f" ({HOW_TO_GIVE_VALUES}); until then a client takes part in no round"
        )
    gone = [one for one in before.feature_names if one not in after.feature_names]
    if gone:
        whose = "its values are" if len(gone) == 1 else "their values are"
        lines.append(
            f"{', '.join(gone)}: {whose} erased at every client that joins. No later version brings"
            " them back; only another import does"
        )
    if not reports_alike(before, after):
        lines.append(
            "clients draw their local clusters again and report in other bins: the server gets"
            " another sum of the same records, and the two sums together may tell more than either"
            " of them"
        )
    if after.model.representatives == "seeds" != before.model.representatives:
        lines.append("seeds are real records: the sum shows the bins of some of them")
    old_policy, new_policy = before.policy(), after.policy()
    if old_policy != new_policy:
        old, now = (one.thresholds(n_members) for one in (old_policy, new_policy))
        lines.append(
            f"with {n_members} members, {old.colluders} → {now.colluders} may collude,"
            f" {old.present} → {now.present} must be there, {old.signers} → {now.signers} must sign"
        )
        if now.colluders > old.colluders:
            lines.append(
                f"sums of before were made so that they hide everybody from {old.colluders} who"
                f" collude; that they are hidden from {now.colluders} holds for what is reported"
                " from now on"
            )
    lines.append(
        "the next round is a full one of everybody; its sum is of the same members as the last"
    )
    return lines
