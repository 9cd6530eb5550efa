"""``fedforget client forget``: one request at one client, or a study's list at several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from fedforget.cli.console import ask, console, listed, messages, number_of, plain_errors, safe
from fedforget.cli.console import show as show_result
from fedforget.cli.given_files import IdList
from fedforget.errors import FedforgetError
from fedforget.parties.client_party import Forgotten, open_client
from fedforget.parties.errors import ClientError


@dataclass(frozen=True)
class Answer:
    """What became of a list at one client, or why nothing did."""

    folder: Path
    client: str = ""
    done: Forgotten | None = None
    error: str | None = None


def run_forget(
    folders: Sequence[Path],
    given: IdList,
    *,
    ignore_missing: bool,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Forget ids at one client or at several, and say what that did."""
    ids = given.ids
    with plain_errors():
        # Of several clients, one that cannot be asked does not keep the others from forgetting.
        if not (ids and ignore_missing and len(folders) > 1):
            for folder in folders:
                _check_directory(folder)
        given.check_some()
    if len(folders) == 1:
        with plain_errors():
            answer = _at_one(folders[0], given, ignore_missing, yes, dry_run, as_json)
        result = _plain(answer, ignore_missing, dry_run)

        def of_one() -> None:
            if ids:
                _in_words(answer, ignore_missing, dry_run)
            else:
                console.print(safe(given.nothing), soft_wrap=True)

        show_result(result, as_json, of_one)
        return
    with plain_errors():
        _check_several(folders, ignore_missing)
        plans = [_tried(folder, ids, dry_run=True) for folder in folders]
        if not any(one.done is not None and one.done.held for one in plans):
            given.check_one_per_line()
        if not dry_run:
            _ask_for(plans, yes, as_json)
    answers = plans if dry_run else [_tried(folder, ids, dry_run=False) for folder in folders]
    nowhere = _nowhere(ids, answers)
    result = {
        "clients": [
            {"folder": str(one.folder), "client": one.client, "error": one.error}
            | ({} if one.done is None else _plain(one, True, dry_run))
            for one in answers
        ],
        "held_nowhere": nowhere,
    }

    def in_words() -> None:
        if not ids:
            console.print(safe(given.nothing), soft_wrap=True)
        for one in answers if ids else [one for one in answers if one.error is not None]:
            console.print(f"[bold]{safe(one.folder)}[/]", soft_wrap=True)
            if one.error is None:
                _in_words(one, True, dry_run)
            else:
                messages.print(f"[bold red]error:[/bold red] {safe(one.error)}", soft_wrap=True)
        if nowhere is None:
            console.print("Not every client could be asked: run this again.")
        elif nowhere:
            console.print(f"{number_of(len(nowhere), 'id')} held by none of them.")

    show_result(result, as_json, in_words)
    if any(one.error is not None for one in answers):
        raise typer.Exit(1)


def _check_directory(folder: Path) -> None:
    """Refuse what is no directory: perhaps an id that was given without its option."""
    try:
        found = folder.is_dir()
    except OSError:
        return  # Whoever opens it says why it cannot be opened.
    if not found:
        raise ClientError(f"{folder} is not a directory; if it is an id, write --ids before it")


def _check_several(folders: Sequence[Path], ignore_missing: bool) -> None:
    if not ignore_missing:
        raise ClientError(
            "with several directories, add --ignore-missing: each client holds only some of the"
            " ids, and forgets those; nothing was forgotten"
        )
    places = [folder.resolve() for folder in folders]
    twice = [one for at, one in enumerate(places) if one in places[:at]]
    if twice:
        raise ClientError(f"{twice[0]} was given twice; nothing was forgotten")


def _at_one(
    folder: Path,
    given: IdList,
    ignore_missing: bool,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> Answer:
    with open_client(folder) as party:
        plan = party.plan_forget(given.ids, ignore_missing=ignore_missing)
        if not plan.held:
            given.check_one_per_line()
        if dry_run or not plan.held:
            return Answer(folder, party.name, plan.preview)
        if not yes:
            ask(f"Erase {number_of(len(plan.held), 'record')} of {party.name} for good?", as_json)
        return Answer(folder, party.name, party.carry_out(plan))


def _tried(folder: Path, ids: Sequence[str], *, dry_run: bool) -> Answer:
    """One of several clients; its error does not keep the others from forgetting."""
    try:
        _check_directory(folder)
        with open_client(folder) as party:
            done = party.forget(ids, dry_run=dry_run, ignore_missing=True)
            return Answer(folder, party.name, done)
    except FedforgetError as error:
        return Answer(folder, error=str(error))


def _ask_for(plans: Sequence[Answer], yes: bool, as_json: bool) -> None:
    found = [(one.client, one.done.records) for one in plans if one.done and one.done.records]
    if found and not yes:
        records = number_of(sum(count for _, count in found), "record")
        ask(f"Erase {records} of {listed(name for name, _ in found)} for good?", as_json)


def _nowhere(ids: Sequence[str], answers: Sequence[Answer]) -> list[int | str] | None:
    """Ids that nobody holds; None if somebody could not be asked."""
    given: dict[int | str, None] = dict.fromkeys(ids)
    for one in answers:
        if one.done is None:
            return None
        for held in one.done.held:
            given.pop(held, None)
    return list(given)


def _plain(answer: Answer, ignore_missing: bool, dry_run: bool) -> dict[str, Any]:
    done = answer.done
    assert done is not None
    result: dict[str, Any] = {"records": done.records, "reseeded": done.reseeded}
    if not dry_run:
        result = {"request": done.request or None, **result, "salt": done.salt or None}
    result["erased"] = not dry_run and done.records > 0
    if ignore_missing:
        result |= {"held": list(done.held), "not_held": list(done.not_held)}
    return result


def _in_words(answer: Answer, ignore_missing: bool, dry_run: bool) -> None:
    done = answer.done
    assert done is not None
    records = number_of(done.records, "record")
    redraw = f"seeds are drawn again from number {done.reseeded}"
    redraw = redraw if done.reseeded else "all seeds stand"
    if dry_run and done.records:
        console.print(f"{records}; {redraw}.")
    elif not done.records:
        console.print("None of the ids is held here: nothing to forget.")
    else:
        console.print(f"[bold green]{records} erased[/]; {redraw}.")
    if ignore_missing and done.records and done.not_held:
        console.print(f"{number_of(len(done.not_held), 'id')} not held here.")
    if dry_run or not done.records:
        return
    console.print(f"Request {safe(done.request)}, salt [bold]{safe(done.salt)}[/bold]")
    console.print(
        "The salt is kept here until the receipt is written out; client requests shows it.",
        soft_wrap=True,
    )
    console.print(
        "The last committed histogram is kept until the next round commits; then there is a"
        " receipt.",
        soft_wrap=True,
    )
