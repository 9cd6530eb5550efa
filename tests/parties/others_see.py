"""All that others see of a site: what a round carries, and what every command of theirs prints.

Two worlds that differ in what a site must not show look the same to everybody else.  What is random
or a time is taken out before they are compared: keys, digests, salts, seconds.  Numbers stay.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from party_world import World
from typer.testing import CliRunner

from fedforget.parties.client_party import ClientParty
from fedforget.parties.server_party import open_server

_RANDOM = [
    (re.compile(r"\d{4}-\d\d-\d\dT?[ ]?\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00| UTC)?"), "TIME"),
    (re.compile(r"(?<![0-9a-zA-Z.])([0-9a-f]{8}|[0-9a-f]{12,})(?![0-9a-zA-Z])"), "HEX"),
    (re.compile(r"\b(\d{5} ){5}\d{5}\b"), "FINGERPRINT"),
    (re.compile(r"\b[0-9]-[0-9a-f]{4,}\b"), "REQUEST"),
    (re.compile(r'"(seconds|advertise|share|masked input|consistency|unmask|commit|who)": '
                r"[0-9.e-]+"), r'"\1": SECONDS'),
    (re.compile(r"\b\d+(\.\d+)? (s|seconds?)\b"), "SECONDS"),
    (re.compile(r'<td class="number">\d+\.\d\d</td>'), "SECONDS"),
    (re.compile(r"[A-Za-z0-9+/]{40,}={0,2}"), "BASE64"),
]  # fmt: skip


def without_randomness(text: str, folder: Path) -> str:
    """A text with all that differs from run to run taken out."""
    text = text.replace(str(folder), "FOLDER")
    for pattern, word in _RANDOM:
        text = pattern.sub(word, text)
    return text


def command(world: World, *arguments: str) -> str:
    """What a command prints, whether it succeeds or not."""
    from fedforget.cli.console import console, messages
    from fedforget.cli.main import app

    with contextlib.chdir(world.folder), pytest.MonkeyPatch.context() as patch:
        # Wide enough for every digest, whatever width these had when they were made.
        for one in (console, messages):
            patch.setattr(one, "_width", 300)
        done = CliRunner().invoke(app, list(arguments))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return without_randomness(f"{done.exit_code}\n{done.output}", world.folder)


@contextlib.contextmanager
def listening(world: World) -> Iterator[list[tuple[str, int, int]]]:
    """Who got how many bytes in a round and answered with how many: what a network sees."""
    heard: list[tuple[str, int, int]] = []
    receive = ClientParty.receive

    def noted(self: ClientParty, data: bytes) -> bytes | None:
        answer = receive(self, data)
        heard.append((self.name, len(data), -1 if answer is None else len(answer)))
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClientParty, "receive", noted)
        yield heard


def a_round(world: World, *names: str) -> dict[str, Any]:
    """A round by command: what it prints and what it carries."""
    with listening(world) as heard:
        told = command(world, "round", "server", *(names or world.names), "--json")
    return {"told": told, "heard": heard}


SERVER_COMMANDS = {
    "status": ("server",),
    "model": ("server", "-o", "model.csv"),
    "audit": ("server",),
    "members": ("server",),
    "choose": ("server", "--clusters", "2:3"),
    "recover": ("server", "--client", "bologna", "--client", "coimbra", "--client", "aarhus"),
}
"""What an operator of the server can run without changing the federation."""
CLIENT_COMMANDS = {
    "status": (),
    "preview": (),
    "audit": (),
    "requests": (),
    "receipts": ("-o", "receipts"),
    "suppression": (),
}
"""What another member can run."""


def of_the_server(world: World) -> dict[str, Any]:
    """All that is in the server's directory in the clear, and all that its commands print."""
    seen: dict[str, Any] = {}
    for name, given in SERVER_COMMANDS.items():
        for form in ((), ("--json",)):
            seen[f"server {name} {' '.join(form)}"] = command(world, "server", name, *given, *form)
    seen |= _written(world, "model.csv")
    seen["page.html"] = page_of(world, "server")
    # Errors, too: a round that nobody comes to, and one for which too few come.
    seen["round of nobody"] = command(world, "round", "server")
    seen["round of two"] = command(world, "round", "server", *world.names[:2])
    with open_server(world.server) as server:
        entries = json.dumps(server.log(), indent=0)
        aggregate = server.aggregate()
    seen["log"] = without_randomness(entries, world.folder)
    seen["sum"] = [aggregate.points().tolist(), aggregate.counts().tolist()]
    return seen


def of_a_member(world: World, name: str) -> dict[str, Any]:
    """All that another member's commands print."""
    seen: dict[str, Any] = {}
    for verb, given in CLIENT_COMMANDS.items():
        for form in ((), ("--json",)):
            seen[f"client {verb} {' '.join(form)}"] = command(
                world, "client", verb, name, *given, *form
            )
    return seen | {"page.html": page_of(world, name)}


def page_of(world: World, name: str) -> str:
    """A party's page, which is made to be sent to others."""
    told = command(world, "report", name, "-o", "page.html")
    return told + _written(world, "page.html")["page.html"]


def of_receipts(world: World, name: str) -> dict[str, Any]:
    """What a site hands out as receipts, and what verifying them says."""
    command(world, "client", "receipts", name, "-o", f"receipts-of-{name}")
    found: dict[str, Any] = {}
    for number, path in enumerate(sorted((world.folder / f"receipts-of-{name}").glob("*.json"))):
        where = str(path.relative_to(world.folder))
        given = ("verify", where, "--federation", "server/federation.toml")
        plain = json.loads(path.read_text(encoding="utf-8"))
        found[f"receipt {number}"] = without_randomness(json.dumps(plain, indent=0), world.folder)
        for form in ((), ("--json",)):
            told = command(world, *given, *form).replace(path.name, "RECEIPT")
            found[f"verify {number} {' '.join(form)}"] = told
    return found


def _written(world: World, name: str) -> dict[str, str]:
    path = world.folder / name
    text = path.read_text(encoding="utf-8") if path.exists() else "nothing"
    path.unlink(missing_ok=True)
    return {name: without_randomness(text, world.folder)}


def differences(first: dict[str, Any], second: dict[str, Any]) -> Sequence[str]:
    """Where two views differ, line by line."""
    assert first.keys() == second.keys()
    found = []
    for key, one in first.items():
        if one != second[key]:
            pairs = zip(str(one).splitlines(), str(second[key]).splitlines(), strict=False)
            lines = [f"{a!r} / {b!r}" for a, b in pairs if a != b]
            found.append(f"{key}: {lines[:3] or 'of another length'}")
    return found
