"""Federations in directories, for the tests of this folder."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from fedforget.clustering.histogram import Histogram
from fedforget.parties.client_party import SECRET, ClientParty, open_client
from fedforget.parties.federation_file import Feature, FederationFile, ModelPart, ProtocolPart
from fedforget.parties.joined import Joined
from fedforget.parties.membership_file import MembershipDocument
from fedforget.parties.server_party import ServerParty, open_server
from fedforget.parties.sources import Source, SourceOptions, open_source
from fedforget.parties.store import decoded_id
from fedforget.runtime.directories import recover, run

FEATURES = ("age", "weight")
BOUNDS = ((0.0, 120.0), (0.0, 300.0))
NAMES = ("aarhus", "bologna", "coimbra")
FIVE = (*NAMES, "dresden", "evora")


def federation_file(**changes: Any) -> FederationFile:
    """A small federation.

    ``changes`` are keys of the model, the minimum, the features, or the rules of disclosure, which
    are off here.
    """
    disclosure = changes.pop("disclosure", None)
    minimum = changes.pop("minimum", 3)
    features = changes.pop(
        "features",
        tuple(Feature(name, low, high) for name, (low, high) in zip(FEATURES, BOUNDS, strict=True)),
    )
    model = {
        "n_clusters": 2,
        "local_clusters": 4,
        "scale": "box",
        "step": 0.01,
        "shift": False,
        "representatives": "means",
        "server_points": "weighted",
        "n_init": 2,
        "max_iter": 50,
        "public_seed": "5e" * 16,
    }
    return FederationFile(
        name="study",
        identifier="1d" * 16,
        server_key="00" * 32,
        model=ModelPart(**model | changes),
        protocol=ProtocolPart(0.2, 0.1, minimum, 16, 60.0),
        features=features,
        disclosure=disclosure,
    )


def secret_of(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()[:16]


def values_of(n: int, seed: int) -> np.ndarray:
    """Values that occur nowhere else: all bits of their fractions are random."""
    low, high = np.array(BOUNDS).T
    return low + np.random.default_rng(seed).random((n, len(BOUNDS))) * (high - low)


def write_npz(path: Path, ids: Sequence[Any], values: np.ndarray) -> Path:
    columns = dict(zip(FEATURES, values.T, strict=True))
    np.savez(path, id=np.array(ids), **columns)
    return path


def table(path: Path, features: Sequence[str] = FEATURES, **options: Any) -> Source:
    return open_source([path], features, "id", SourceOptions(**options))


class World:
    """A server and its clients below one folder."""

    def __init__(self, folder: Path, names: Sequence[str] = NAMES) -> None:
        self.folder = folder
        self.names = tuple(names)

    @property
    def server(self) -> Path:
        return self.folder / "server"

    def client(self, name: str) -> Path:
        return self.folder / name

    @property
    def clients(self) -> list[Path]:
        return [self.client(name) for name in self.names]

    def set_up(self, federation: FederationFile | None = None) -> World:
        """Keys and members, no records."""
        file = federation or federation_file(minimum=min(3, len(self.names)))
        ServerParty.create(self.server, file)
        self.enrol({name: self.make_client(name) for name in self.names})
        return self

    def make_client(self, name: str) -> str:
        """Make a directory; returns the key."""
        key = ClientParty.create(self.client(name), name)["key"]
        # The draws depend on it: every run has the same.
        (self.client(name) / SECRET).write_bytes(secret_of(name))
        return key

    @property
    def federation(self) -> FederationFile:
        return FederationFile.read(self.server / "federation.toml")

    def enrol(
        self, enrolments: Mapping[str, str] | None = None, *, alone: bool = False, **changes: Any
    ) -> MembershipDocument:
        """Begin an epoch, and let the clients of this world join."""
        with open_server(self.server) as server:
            document = server.enrol(enrolments, **changes)
        for name in self.names:
            self.join(name, document, alone=alone)
        return document

    def join(self, name: str, document: MembershipDocument, *, alone: bool = False) -> Joined:
        with open_client(self.client(name)) as client:
            return client.join(self.federation, document, alone=alone)

    def without(self, *names: str) -> World:
        """The same directories, fewer clients."""
        return World(self.folder, [name for name in self.names if name not in names])

    def with_others(self, *names: str) -> World:
        return World(self.folder, [*self.names, *names])

    def forget(self, name: str, ids: Iterable[Any]) -> Any:
        with open_client(self.client(name)) as client:
            return client.forget(list(ids))

    def copy_to(self, folder: Path) -> World:
        """Another world, the same in every byte."""
        for name in ("server", *self.names):
            shutil.copytree(self.folder / name, folder / name)
        return World(folder, self.names)

    def back_up(self, name: str, copy: str = "backup") -> None:
        """Copy a party's directory aside; ``restore`` puts it back."""
        folder = self.folder / f"{copy}-{name}"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder / name, folder)

    def restore(self, name: str, copy: str = "backup") -> None:
        shutil.rmtree(self.folder / name)
        shutil.copytree(self.folder / f"{copy}-{name}", self.folder / name)

    def recover_server(self) -> dict[str, int]:
        return recover(self.server, self.clients)

    def hold(self, name: str, ids: Sequence[Any], values: np.ndarray) -> None:
        """Import records at a client."""
        path = write_npz(self.folder / "table.npz", ids, values)
        with open_client(self.client(name)) as client:
            client.import_table(table(path))
        path.unlink()

    def fill(self, n: int = 40, seed: int = 0) -> World:
        for number, name in enumerate(self.names):
            ids = [f"{name[0].upper()}-{row}" for row in range(n)]
            self.hold(name, ids, values_of(n, 100 * seed + number))
        return self

    def round(self, **options: Any) -> dict[str, Any]:
        return run(self.server, self.clients, **options)

    def held(self, name: str) -> set[Any]:
        with open_client(self.client(name)) as client:
            return {decoded_id(one) for one in client.store.index()}

    def records(self, name: str) -> frozenset[tuple[Any, bytes]]:
        """The ids and values that a client holds."""
        with open_client(self.client(name)) as client:
            _, ids, values = client.store.everything(len(FEATURES))
        names = [decoded_id(one) for one in ids.tolist()]
        return frozenset(zip(names, (row.tobytes() for row in values), strict=True))

    def check_sums(self) -> None:
        """The aggregate is the sum of what clients know to be counted, and of what they hold."""
        with ExitStack() as stack:
            server = stack.enter_context(open_server(self.server))
            clients = [stack.enter_context(open_client(folder)) for folder in self.clients]
            ledgers = [client.ledger() for client in clients]
            n_features = len(server.federation.features)
            aggregate = server.aggregate()
            assert all(ledger.pending is None for ledger in ledgers)
            bases = [ledger.base for ledger in ledgers]
            assert None not in bases
            assert aggregate == Histogram.sum(n_features, bases)
            assert aggregate == Histogram.sum(n_features, [one.histogram() for one in clients])
            if server.config.rules.are_off:
                assert aggregate.total == sum(len(client.store) for client in clients)
            place = server.ledger().place
            assert all(ledger.place == place or ledger.left for ledger in ledgers)

    def problems(self) -> dict[str, list[str]]:
        """What the audits of all parties find; parties without problems are left out."""
        found = {}
        for folder in self.clients:
            with open_client(folder) as client:
                audit = client.audit()
                wrong = (
                    [] if audit.stored == audit.fresh else ["the clusters are not a fresh fit's"]
                )
                found[client.name] = [*wrong, *audit.problems]
                assert audit.passed == (not found[client.name])
        with open_server(self.server) as server:
            found["server"] = server.audit()["problems"]
        return {name: problems for name, problems in found.items() if problems}

    def check_audits(self) -> None:
        problems = self.problems()
        assert not problems, problems


def all_bytes(*folders: Path) -> dict[Path, bytes]:
    """Every byte of every file."""
    return {
        path: path.read_bytes()
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def traces(
    ids: Sequence[Any], values: np.ndarray, fixed_point: np.ndarray | None = None
) -> dict[str, bytes]:
    """What must be found nowhere: ids, and values as text, float bytes and fixed-point integers."""
    found = {f"id {one}": str(one).encode() for one in ids if isinstance(one, str)}
    found |= {
        f"id {one}": b"i" + int(one).to_bytes(8, "little", signed=True)
        for one in ids
        if not isinstance(one, str)
    }
    for number in np.ravel(values).tolist():
        found[f"text {number!r}"] = repr(number).encode()
        for order in "<>":
            found[f"float {number!r} {order}"] = np.array(number, dtype=f"{order}f8").tobytes()
    for number in () if fixed_point is None else np.ravel(fixed_point).tolist():
        for order in ("<i8", ">i8"):
            found[f"fixed point {number} {order}"] = np.array(number, dtype=order).tobytes()
        found[f"fixed point {number} as text"] = str(number).encode()
    return found


def found_in(contents: Mapping[Path, bytes], wanted: Mapping[str, bytes]) -> list[str]:
    """Which patterns are where.  Only where a pattern's first eight bytes are is it looked for."""
    beginnings = {name: int.from_bytes(one[:8], "little") for name, one in wanted.items()}
    sought = np.array(sorted(set(beginnings.values())), dtype=np.uint64)
    found = []
    for path, data in contents.items():
        there: set[int] = set()
        for offset in range(min(8, len(data))):
            words = np.frombuffer(data, "<u8", (len(data) - offset) // 8, offset)
            there.update(words[np.isin(words, sought)].tolist())
        found += [
            f"{name} in {path.name}"
            for name, pattern in wanted.items()
            if (len(pattern) < 8 or beginnings[name] in there) and pattern in data
        ]
    return found


def memory_folder() -> str | None:
    """Where files cost nothing, if there is such a place: nothing here survives a power cut."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
