"""Runs a round among parties in directories of this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from fedforget.errors import FedforgetError
from fedforget.parties.attempts import note_failure
from fedforget.parties.client_party import ClientParty, open_client
from fedforget.parties.database import StoreError
from fedforget.parties.errors import ClientError
from fedforget.parties.folders import FolderInUseError
from fedforget.parties.round_progress import RoundProgress
from fedforget.parties.server_party import ServerParty, open_server
from fedforget.protocol.errors import ProtocolError
from fedforget.protocol.messages import RoundKind
from fedforget.protocol.server_stages import Outgoing
from fedforget.runtime.driver import (
    NOBODY,
    Committed,
    Onlooker,
    OnStage,
    ask_everybody,
    drive,
)
from fedforget.wall_clock import present_clock

LOOK_AGAIN_SECONDS = 2.0
"""How often a directory that is in use is tried."""

ELSEWHERE = "its operator sees why (client status)"

WAITING = "waiting"
"""What a watcher is told while a directory is in use; no stage of the protocol."""


class RoundError(FedforgetError):
    """A round that cannot begin, or a member that cannot take part in it."""


class Directories:
    """Carries messages between an open server and open clients.

    A member that refuses is left out, and the reason is kept: it is the operator's to read.
    """

    def __init__(self, clients: Mapping[str, ClientParty], onlooker: Onlooker = NOBODY) -> None:
        self._clients = clients
        self._onlooker = onlooker
        self.refusals: dict[str, str] = {}
        self.own_reasons: dict[str, str] = {}
        """What a member's own operator is told, where the others are not."""

    def ask(self, question: bytes) -> Iterator[bytes]:
        for name in self._clients:
            answer = self._deliver(name, question)
            if answer is not None:
                yield answer

    def exchange(self, messages: Sequence[Outgoing]) -> Iterator[tuple[str, bytes | None]]:
        for name, data in messages:
            if name in self._clients and name not in self.refusals:
                answer = self._deliver(name, data)
                if name not in self.refusals:
                    yield name, answer

    def _deliver(self, name: str, data: bytes) -> bytes | None:
        try:
            return self._clients[name].receive(data)
        except ProtocolError as error:
            self.refused(name, error)
        except ClientError as error:
            # A site's policy stops the site alone, and what it says is the site's affair.
            self.own_reasons[name] = str(error)
            self.refused(name, ClientError(f"it cannot take part; {ELSEWHERE}"))
        return None

    def refused(self, name: str, error: Exception) -> None:
        self.refusals[name] = str(error)
        self._onlooker.refused(name, str(error))


class SparingDirectories(Directories):
    """The same; a member whose disk is full or broken is left out, too, and the others go on.

    ``broken`` are those members: nothing about them changes when their disk gets room again.
    """

    def __init__(self, clients: Mapping[str, ClientParty], onlooker: Onlooker = NOBODY) -> None:
        super().__init__(clients, onlooker)
        self.broken: set[str] = set()

    def _deliver(self, name: str, data: bytes) -> bytes | None:
        try:
            return super()._deliver(name, data)
        except (StoreError, OSError) as error:
            self.refused(name, error)
            self.broken.add(name)
            return None


class RoundFailedError(RoundError):
    """A round that came to nothing, with what its members said.

    Attributes
    ----------
    refusals : why members, or directories, were left out.
    broken : those of them whose directories could not be read or written.
    """

    def __init__(self, message: str, refusals: Mapping[str, str], broken: Set[str]) -> None:
        super().__init__(message)
        self.refusals = dict(refusals)
        self.broken = frozenset(broken)


def run(
    server_folder: Path,
    client_folders: Sequence[Path],
    kind: RoundKind | None = None,
    watch: OnStage = lambda stage: None,
    *,
    wait: float = 0.0,
    spare: bool = False,
) -> dict[str, Any]:
    """Open the directories, bring everybody up to date, and run one round to its commit.

    A round that was cut off before is finished if it was committed, and repeated otherwise.

    Parameters
    ----------
    server_folder, client_folders : the parties.
    kind : ``"full"`` or ``"delta"``; what is needed, if left out.
    watch : told each stage as it begins.
    wait : seconds for which directories that are in use are tried again; none is held meanwhile.
    spare : go on without a client that cannot be opened, has another list or another federation
        file, or cannot store what it must, as far as the rules let the others go on.
    """
    unable: dict[str, Exception] | None = {} if spare else None
    with (
        _opened(server_folder, client_folders, wait, unable, watch) as (server, clients),
        RoundProgress(server_folder).shown(server.ledger().place.round + 1) as onlooker,
    ):
        unopened = {folder: str(error) for folder, error in (unable or {}).items()}
        for name, client in list(clients.items()):
            try:
                _check_list(server, client, name)
            except NotUpToDateError as error:
                if not spare:
                    raise
                unopened[name] = str(error)
                del clients[name]
        carrier = (SparingDirectories if spare else Directories)(clients, onlooker)
        ask_everybody(server.protocol, carrier, onlooker=onlooker)
        problem = server.behind(server.protocol.present.values())
        if problem is not None:
            raise RestoredServerError(problem)
        watch("who")
        try:
            committed = drive(server, kind, carrier, watch, ask=False, onlooker=onlooker)
        except FedforgetError as error:
            refusals = unopened | carrier.refusals
            if refusals:
                told = f"{error} ({_in_words(refusals)})"
                raise RoundFailedError(told, refusals, _broken(carrier, unable)) from error
            raise
        finally:
            for name in carrier.refusals.keys() & clients.keys():
                told = carrier.own_reasons.get(name, carrier.refusals[name])
                note_failure(clients[name].folder, told)
        return summary(committed) | {"refused": unopened | carrier.refusals}


def recover(server_folder: Path, client_folders: Sequence[Path]) -> dict[str, int]:
    """Give a restored server what its members know.

    Those who came with a list that it has lost are recognised once another member has shown it.
    """
    with _opened(server_folder, client_folders) as (server, clients):
        rounds = lists = 0
        while True:
            carrier = Directories(clients)
            ask_everybody(server.protocol, carrier)
            present = server.protocol.present
            if not present:
                raise RoundError(_in_words(carrier.refusals) or "no member is there to help")
            found = server.recover(present.values())
            rounds += found["rounds_taken_over"]
            lists += found["lists_taken_over"]
            if not found["lists_taken_over"]:
                return found | {"rounds_taken_over": rounds, "lists_taken_over": lists}


def summary(committed: Committed) -> dict[str, Any]:
    """What a round came to, for people and scripts."""
    traffic, result = committed.traffic, committed.result
    sizes = (size for party, size in traffic.sent.items() if party != "server")
    return {
        "round": committed.round,
        "kind": result.kind,
        "participants": list(result.survivors),
        "left": list(result.left),
        "model": committed.model.hex(),
        "attempts": traffic.attempts,
        "seconds": round(sum(traffic.seconds.values()), 3),
        "bytes_from_a_client": max(sizes, default=0),
        "changed_bins": len(result.total),
        "findings": [str(one) for one in committed.findings],
        "stages": {stage: round(seconds, 3) for stage, seconds in traffic.seconds.items()},
    }


def _broken(carrier: Directories, unable: Mapping[str, Exception] | None) -> set[str]:
    """Members and folders whose disks did not do their work."""
    found = set(carrier.broken) if isinstance(carrier, SparingDirectories) else set()
    failed = (unable or {}).items()
    return found | {folder for folder, error in failed if isinstance(error, (StoreError, OSError))}


def _in_words(refusals: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {reason}" for name, reason in refusals.items())


@contextmanager
def _opened(
    server_folder: Path,
    client_folders: Sequence[Path],
    wait: float = 0.0,
    unable: dict[str, Exception] | None = None,
    watch: OnStage = lambda stage: None,
) -> Iterator[tuple[ServerParty, dict[str, ClientParty]]]:
    """Open all directories.

    While one is in use, and there is time to wait, all of them are let go: nobody else has to wait
    for this process.  ``unable`` gets the folders that cannot be opened, and why; if it is None,
    such a folder is an error.
    """
    clock = present_clock()
    end = clock.now() + timedelta(seconds=wait)
    while True:
        with ExitStack() as stack:
            patient = clock.now() < end
            try:
                server = stack.enter_context(open_server(server_folder))
                clients = _opened_clients(stack, server, client_folders, unable, patient)
            except FolderInUseError:
                if not patient:
                    raise
            else:
                yield server, clients
                return
        watch(WAITING)
        clock.sleep(LOOK_AGAIN_SECONDS)


def _opened_clients(
    stack: ExitStack,
    server: ServerParty,
    folders: Sequence[Path],
    unable: dict[str, Exception] | None,
    patient: bool,
) -> dict[str, ClientParty]:
    if unable is not None:
        unable.clear()
    clients: dict[str, ClientParty] = {}
    for folder in folders:
        try:
            client = stack.enter_context(open_client(folder))
            _check_federation(server, client, folder)
        except (FedforgetError, OSError) as error:
            waits = patient and isinstance(error, FolderInUseError)
            if unable is None or waits or isinstance(error, RestoredServerError):
                raise
            unable[str(folder)] = error
            continue
        if client.name in clients:
            raise RoundError(f"{folder}: there are two clients named {client.name}")
        clients[client.name] = client
    return clients


class RestoredServerError(RoundError):
    """A member knows something that the server has lost; going on would make a second history."""


class NotUpToDateError(RoundError):
    """A client that is not on the server's list, or has not taken it over."""


def _check_federation(server: ServerParty, client: ClientParty, folder: Path) -> None:
    ours, theirs = server.federation, client.federation
    if theirs is None:
        raise RoundError(f"{folder}: {client.name} has not joined a federation")
    difference = theirs.difference(ours)
    if difference is None:
        return
    if any(one.digest == theirs.digest.hex() for one in ours.earlier):
        raise NotUpToDateError(
            f"{client.name} has version {theirs.version} of the federation file, which has been"
            f" amended: run client join with version {theirs.version + 1} and its list"
        )
    if any(one.digest == ours.digest.hex() for one in theirs.earlier):
        raise RestoredServerError(
            f"{client.name} has version {theirs.version} of the federation file, and this server"
            f" version {ours.version}: it was restored from a backup. Run `server amend --restore"
            f" {folder / 'federation.toml'}`, then `server recover`"
        )
    raise RoundError(f"{folder}: {client.name} has another federation file: {difference}")


def _check_list(server: ServerParty, client: ClientParty, name: str) -> None:
    listed, known = server.membership(), client.lists()[-1]
    if known.epoch > listed.epoch:
        raise RestoredServerError(
            f"{name} knows epoch {known.epoch}; this server knows epoch {listed.epoch}: it was"
            " restored from a backup. Run `server recover`"
        )
    if name not in listed:
        raise NotUpToDateError(f"{name} is not enrolled at the server")
    if known.epoch < listed.epoch:
        raise NotUpToDateError(
            f"{name} knows epoch {known.epoch}, the server is at {listed.epoch}: run client join"
            " with the new list"
        )
