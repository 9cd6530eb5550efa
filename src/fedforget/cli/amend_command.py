"""``server amend``: the next version of a federation file, shown before and after it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedforget.cli.console import console, number_of, plain_errors, safe, show
from fedforget.cli.member_lists import plain_join, show_join
from fedforget.cli.server_commands import check_nobody_is_asked, feature_of, list_file, write_list
from fedforget.errors import FedforgetError
from fedforget.parties.amended_servers import amend, plan_amendment, take_back
from fedforget.parties.disclosure import preset, warnings_of
from fedforget.parties.federation_file import Feature, FederationFile
from fedforget.parties.folders import FEDERATION
from fedforget.parties.server_party import ServerParty, open_server


def amended(
    before: FederationFile,
    given: Mapping[str, Mapping[str, Any]],
    features: Sequence[str],
    dropped: Sequence[str],
) -> FederationFile:
    """The file with other values; what is None stays as it is."""
    parts = {
        title: {key: value for key, value in values.items() if value is not None}
        for title, values in given.items()
    }
    rules = before.disclosure
    if parts["disclosure"]:
        rules = replace(rules or preset("none", before.model.step), **parts["disclosure"])
    columns = {one.name: one for one in before.features}
    for name in dropped:
        if name not in columns:
            raise FedforgetError(f"--drop-feature {name!r}: there is no such feature")
        del columns[name]
    for text in features:
        name, low, high = feature_of(text)
        columns[name] = Feature(name, low, high)
    changed = replace(
        before,
        model=replace(before.model, **parts["model"]),
        protocol=replace(before.protocol, **parts["protocol"]),
        disclosure=rules,
        features=tuple(columns.values()),
        amendment=None,
    )
    return FederationFile.parse(changed.text(), "the amended federation file")


def make_amendment(
    folder: Path,
    given: Mapping[str, Mapping[str, Any]],
    features: Sequence[str],
    dropped: Sequence[str],
    *,
    dry_run: bool,
    alone: bool,
    as_json: bool,
) -> None:
    """Make an amendment, or show it."""
    with plain_errors(), open_server(folder) as party:
        changed = amended(party.federation, given, features, dropped)
        plan = plan_amendment(party, changed)
        joined = plan.joined
        away = _not_in_last(party)
        path = list_file(folder, joined.membership.epoch)
        if path.exists() or path.is_symlink():
            raise FedforgetError(
                f"{path} exists already, but this server knows no such epoch: it was restored from"
                " a backup (run server recover), or the file is not its own (move it"
                " away)"
            )
        if not alone:
            check_nobody_is_asked(joined)
        if not dry_run:
            write_list(path, amend(party, plan))
    rules, model = plan.after.disclosure, plan.after.model
    warnings = [] if rules is None else warnings_of(rules, model.step)
    if away:
        warnings.append(
            f"{', '.join(away)}: not in the last round. After an amendment there is no round"
            " without them, and they cannot be suspended: make sure that they come back soon"
        )
    if model.local_clusters < model.n_clusters:
        warnings.append(
            f"a client reports at most {model.local_clusters} clusters and the model has"
            f" {model.n_clusters}: more --local-clusters give a better model"
        )
    file = folder / FEDERATION
    result = plain_join(joined) | {
        "federation_file": None if dry_run else str(file),
        "epoch_file": None if dry_run else str(path),
        "warnings": warnings,
    }

    def in_words() -> None:
        show_join(joined)
        for warning in warnings:
            console.print(f"[bold yellow]warning:[/bold yellow] {safe(warning)}", soft_wrap=True)
        if dry_run:
            console.print("Nothing was changed.")
            return
        console.print(
            f"Give every member the files [bold]{safe(file)}[/bold] and [bold]{safe(path)}[/bold]:",
            soft_wrap=True,
        )
        command = f"  fedforget client join CLIENT --federation {safe(file)} --epoch {safe(path)}"
        console.print(command, style="dim", soft_wrap=True)

    show(result, as_json, in_words)


def _not_in_last(party: ServerParty) -> list[str]:
    """Counted members that the last round did without."""
    place, listed = party.ledger().place, party.membership()
    counted = place.counted or {}
    return sorted(one for one, at in counted.items() if at < place.round and one in listed)


def take_versions_back(folder: Path, files: Sequence[Path], as_json: bool, *, others: bool) -> None:
    """Take over versions that this server has lost; ``others``: other options were given, too."""
    with plain_errors():
        if others:
            raise FedforgetError(
                "--restore takes versions over as they are, and goes with no other option except"
                " --json: restore first, run `server recover` and a full round, then amend"
            )
    with plain_errors(), open_server(folder) as party:
        taken = take_back(party, [FederationFile.read(path) for path in files])
        version = party.federation.version

    def in_words() -> None:
        console.print(
            f"{number_of(taken, 'version')} taken over; this server has version {version} of the"
            " federation file. Run `server recover` next: it brings the lists and rounds that go"
            " with it.",
            soft_wrap=True,
        )

    show({"versions_taken_over": taken, "version": version}, as_json, in_words)
