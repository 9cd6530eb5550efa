"""``federation.toml``: everything that the parties of a federation must agree on.

Its digest covers every value.  Members are not in it: their list is numbered and signed, so that
old receipts can still be checked when somebody joins or leaves.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np

from fedforget.clustering.disclosure import NO_RULES, ReportRules
from fedforget.clustering.distance import MAX_MAGNITUDE
from fedforget.clustering.grid import SMALLEST_STEP, Grid, Scale
from fedforget.clustering.prf import Secret
from fedforget.configuration import Configuration, Representatives, ServerPoints
from fedforget.digests import Digest
from fedforget.errors import FedforgetError
from fedforget.incoming import IncomingFileError, read_text
from fedforget.parties.disclosure import DisclosurePart
from fedforget.parties.folders import FEDERATION
from fedforget.protocol.errors import ProtocolError
from fedforget.protocol.federation import Federation
from fedforget.protocol.graph import Policy, too_demanding
from fedforget.protocol.keys import PublicKey
from fedforget.text import LONGEST_LABEL, UnsafeNameError, check_label, check_name, visible

VERSION = 2
MAX_BYTES = 16 << 20
LONGEST_LINE = 4000
"""The longest line that this module writes, with the longest name of a column, is shorter."""


class FederationFileError(FedforgetError, ValueError):
    """A federation file that cannot be used; the message names the key and the line."""


@dataclass(frozen=True)
class Feature:
    """A column, and the public bounds between which its values lie.

    ``fill`` is a public constant that a member may take for a missing value; files without it have
    none.
    """

    name: str
    low: float
    high: float
    fill: float | None = None

    def values(self) -> dict[str, Any]:
        """What the file says of it."""
        return {key: value for key, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class ModelPart:
    """What the model depends on."""

    n_clusters: int
    local_clusters: int
    scale: Scale
    step: float
    shift: bool
    representatives: Representatives
    server_points: ServerPoints
    n_init: int
    max_iter: int
    public_seed: str


@dataclass(frozen=True)
class ProtocolPart:
    """What the secure sum depends on.  ``deadline`` is how many seconds a stage may last."""

    dropout: float
    colluding: float
    minimum: int
    first_capacity: int
    deadline: float


@dataclass(frozen=True)
class EarlierVersion:
    """A version that was in force: since which membership list, and its digest, in hexadecimal."""

    epoch: int
    digest: str


@dataclass(frozen=True)
class Amendment:
    """What makes a file the next version of another one.

    Attributes
    ----------
    number : the version; the file of ``server init`` is the first and has no such section.
    epoch : the membership list with which it comes into force.
    signature : of the server, on everything else in the file.
    earlier : the versions before it, the first one first.
    """

    number: int
    epoch: int
    signature: str
    earlier: tuple[EarlierVersion, ...]


@dataclass(frozen=True)
class FederationFile:
    """What the parties of a federation agree on, in one version."""

    name: str
    identifier: str
    server_key: str
    model: ModelPart
    protocol: ProtocolPart
    features: tuple[Feature, ...]
    disclosure: DisclosurePart | None = None
    """Files of earlier versions have none: everything is reported and published as it is."""
    amendment: Amendment | None = None

    # -- reading and writing -------------------------------------------------------------------

    @classmethod
    def read(cls, path: Path) -> FederationFile:
        try:
            text = read_text(path, MAX_BYTES)
        except IncomingFileError as error:
            raise FederationFileError(str(error)) from None
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, source: str = FEDERATION) -> FederationFile:
        _check_lines(text, source)
        try:
            data = tomllib.loads(text)
        except RecursionError:
            line = _deepest_line(text)
            raise FederationFileError(f"{source}, line {line}: it is nested too deeply") from None
        except ValueError as error:  # TOML's own errors, and numbers that Python does not take
            raise FederationFileError(f"{source}: {error}") from None
        return _Reader(source, text).federation(data)

    def text(self) -> str:
        """The file's contents, in one canonical form."""
        lines = [
            "# A fedforget federation.  Every party has this file; a single differing value, and",
            "# the parties refuse each other.  Bounds, step and seeds are public.",
            "",
            f"version = {VERSION}",
            f"name = {_toml(self.name)}",
            f"identifier = {_toml(self.identifier)}",
            f"server_key = {_toml(self.server_key)}",
        ]
        for title, part in self._parts():
            lines += ["", f"[{title}]"]
            lines += [f"{one.name} = {_toml(getattr(part, one.name))}" for one in fields(part)]
        for feature in self.features:
            lines += ["", "[[features]]"]
            lines += [f"{key} = {_toml(value)}" for key, value in feature.values().items()]
        lines += self._amendment_lines()
        return "\n".join(lines) + "\n"

    def _amendment_lines(self) -> list[str]:
        if self.amendment is None:
            return []
        keys = ("number", "epoch", "signature")
        lines = ["", "[amendment]"]
        lines += [f"{key} = {_toml(getattr(self.amendment, key))}" for key in keys]
        for one in self.amendment.earlier:
            lines += ["", "[[amendment.earlier]]"]
            lines += [f"{key} = {_toml(value)}" for key, value in vars(one).items()]
        return lines

    def _parts(self) -> list[tuple[str, Any]]:
        """The sections that there are, with their titles."""
        parts: list[tuple[str, Any]] = [("model", self.model), ("protocol", self.protocol)]
        if self.disclosure is not None:
            parts.append(("disclosure", self.disclosure))
        return parts

    # -- what follows from it ------------------------------------------------------------------

    def values(self) -> dict[str, Any]:
        """Every value by its key, as an error message would name it."""
        flat: dict[str, Any] = {
            key: getattr(self, key) for key in ("name", "identifier", "server_key")
        }
        for title, part in self._parts():
            flat |= {f"{title}.{key}": value for key, value in vars(part).items()}
        flat["features"] = len(self.features)
        for number, feature in enumerate(self.features, 1):
            values = feature.values()
            flat |= {f"features[{number}].{key}": value for key, value in values.items()}
        if self.amendment is not None:
            # The signature is on the digest of all the others.
            flat["amendment.number"] = self.amendment.number
            flat["amendment.epoch"] = self.amendment.epoch
            for number, one in enumerate(self.amendment.earlier, 1):
                flat |= {f"amendment.earlier[{number}].{key}": v for key, v in vars(one).items()}
        return flat

    @property
    def version(self) -> int:
        """1 for the file that a federation was set up with, and one more with every amendment."""
        return 1 if self.amendment is None else self.amendment.number

    @property
    def first_epoch(self) -> int:
        """The membership list with which this version came into force."""
        return 1 if self.amendment is None else self.amendment.epoch

    @property
    def earlier(self) -> tuple[EarlierVersion, ...]:
        """The versions before this one."""
        return () if self.amendment is None else self.amendment.earlier

    def digest_at(self, epoch: int) -> bytes:
        """The digest of the version that was in force with a membership list."""
        if epoch >= self.first_epoch:
            return self.digest
        found = [one for one in self.earlier if epoch >= one.epoch]
        return bytes.fromhex(found[-1].digest) if found else b""

    def difference(self, other: FederationFile) -> str | None:
        """The first key in which two files differ, None if they agree."""
        ours, theirs = self.values(), other.values()
        for key in [*ours, *(key for key in theirs if key not in ours)]:
            if ours.get(key) != theirs.get(key):
                return f"{key} is {ours.get(key)!r} here and {theirs.get(key)!r} there"
        return None

    @property
    def digest(self) -> bytes:
        digest = Digest("federation")
        for key, value in self.values().items():
            digest.field(key, value)
        return digest.bytes()

    @property
    def feature_names(self) -> list[str]:
        return [feature.name for feature in self.features]

    @property
    def rules(self) -> ReportRules:
        """What clients may report."""
        return NO_RULES if self.disclosure is None else self.disclosure.rules

    @property
    def fill(self) -> dict[str, float]:
        """The constants that may stand for missing values, by features."""
        return {one.name: one.fill for one in self.features if one.fill is not None}

    def configuration(self) -> Configuration:
        """The public parameters, as the mathematics wants them."""
        seed = Secret(bytes.fromhex(self.model.public_seed))
        disclosure = self.disclosure
        bounds = np.array([(feature.low, feature.high) for feature in self.features])
        return Configuration(
            n_clusters=self.model.n_clusters,
            local_clusters=self.model.local_clusters,
            grid=Grid(
                bounds,
                self.model.step,
                self.model.scale,
                seed.derive("shift") if self.model.shift else None,
            ),
            representatives=self.model.representatives,
            lattice="grid",
            server_points=self.model.server_points,
            mode="exact",
            n_init=self.model.n_init,
            max_iter=self.model.max_iter,
            tol=0.0,
            public_seed=seed,
            rules=self.rules,
            published_step=None if disclosure is None else disclosure.published_step or None,
        )

    def protocol_federation(self) -> Federation:
        """The same for the protocol."""
        levels = self.configuration().grid.levels
        return Federation(
            identifier=bytes.fromhex(self.identifier),
            configuration=self.digest,
            server_key=PublicKey(bytes.fromhex(self.server_key)),
            levels=tuple(levels.tolist()),
            first_capacity=self.protocol.first_capacity,
            policy=self.policy(),
        )

    def policy(self) -> Policy:
        """What is expected of the members."""
        return Policy(
            dropout=self.protocol.dropout,
            colluding=self.protocol.colluding,
            minimum=self.protocol.minimum,
        )


def with_fill(features: Sequence[Feature], fill: Mapping[str, float]) -> tuple[Feature, ...]:
    """Features with constants for their missing values."""
    names = [one.name for one in features]
    unknown = next((name for name in fill if name not in names), None)
    if unknown is not None:
        raise FederationFileError(f"there is no feature {unknown!r} to be filled")
    return tuple(replace(one, fill=fill.get(one.name, one.fill)) for one in features)


def amendment_statement(file: FederationFile) -> bytes:
    """What the server signs when it amends a federation."""
    return b"fedforget amendment 1\0" + file.digest


def check_unchanged(federation: FederationFile, stored: FederationFile, path: Path) -> None:
    """Refuse a file that is not the one with which a party was set up."""
    difference = federation.difference(stored)
    if difference is not None:
        raise FederationFileError(
            f"{path} was changed after this party was set up with it: {difference}"
        )


def _check_lines(text: str, source: str) -> None:
    """Refuse lines that no federation file has: endless numbers, thousands of brackets."""
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > LONGEST_LINE:
            raise FederationFileError(
                f"{source}, line {number}: it has more than {LONGEST_LINE} characters"
            )


def _deepest_line(text: str) -> int:
    """Where most brackets are open; near enough, since some may stand in strings."""
    depth, deepest, found = 0, 0, 1
    for number, line in enumerate(text.split("\n"), 1):
        depth += line.count("[") + line.count("{") - line.count("]") - line.count("}")
        if depth > deepest:
            deepest, found = depth, number
    return found


def _quoted(value: Any) -> str:
    """A value of a file as an error message shows it: printable, and short."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, (list, dict)):
        return "a list" if isinstance(value, list) else "a table"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        # TOML's escapes are those of JSON, except that one more character is escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


_RANGES: dict[str, tuple[float, float]] = {
    "model.n_clusters": (1, 10**6),
    "model.local_clusters": (1, 10**6),
    "model.step": (SMALLEST_STEP, 1.0),
    "model.n_init": (1, 10**4),
    "model.max_iter": (1, 10**6),
    "protocol.dropout": (0.0, 0.999),
    "protocol.colluding": (0.0, 0.999),
    "protocol.minimum": (2, 10**5),
    "protocol.first_capacity": (1, 10**6),
    "protocol.deadline": (0.001, 10**6),
    "disclosure.min_cell": (1, 10**6),
    "disclosure.min_records": (1, 10**9),
    "disclosure.count_step": (1, 10**6),
    "disclosure.published_step": (0.0, 1.0),
    "amendment.number": (2, 10**6),
    "amendment.epoch": (2, 2**53 - 1),
    "amendment.earlier.epoch": (1, 2**53 - 1),
}
_KINDS = {str: "text", int: "an integer", float: "a number", bool: "true or false"}
_HEX = {
    "identifier": 16,
    "server_key": 32,
    "model.public_seed": 16,
    "amendment.signature": 64,
    "amendment.earlier.digest": 32,
}


class _Reader:
    """Takes parsed TOML to a :class:`FederationFile`, or says what is wrong and where."""

    def __init__(self, source: str, text: str) -> None:
        self.source = source
        self.lines = text.split("\n")

    def federation(self, data: dict[str, Any]) -> FederationFile:
        version = data.get("version")
        # True and 1.0 would be equal to it.
        if type(version) is not int or version != VERSION:
            earlier = "; it was made by an earlier fedforget: set the federation up anew with"
            advice = f"{earlier} `server init`" if version == 1 else ""
            raise self.error("version", f"must be {VERSION}, got {_quoted(version)}{advice}")
        known = {"version", "name", "identifier", "server_key", "model", "protocol", "features"}
        self.no_others(data, known | {"disclosure", "amendment"}, "")
        result = FederationFile(
            name=self.value(data, "name", str, ""),
            identifier=self.value(data, "identifier", str, ""),
            server_key=self.value(data, "server_key", str, ""),
            model=self.part(data, "model", ModelPart),
            protocol=self.part(data, "protocol", ProtocolPart),
            features=self.features(data),
            disclosure=self.disclosure(data),
            amendment=self.amendment(data),
        )
        if result.amendment is not None:
            self.check_amendment(result)
        with self.explained("name"):
            check_name(result.name)
        if too_demanding(result.protocol.dropout, result.protocol.colluding):
            raise self.error("protocol.dropout", "twice, plus protocol.colluding, must be below 1")
        return result

    def part(self, data: dict[str, Any], title: str, kind: type[Any]) -> Any:
        if title not in data:
            raise self.error(title, "is missing: there must be a section of this name")
        section = data[title]
        if not isinstance(section, dict):
            raise self.error(title, f"must be a section, got {_quoted(section)}")
        hints = get_type_hints(kind)
        self.no_others(section, set(hints), f"{title}.")
        return kind(**{key: self.value(section, key, hints[key], f"{title}.") for key in hints})

    def disclosure(self, data: dict[str, Any]) -> DisclosurePart | None:
        if "disclosure" not in data:
            return None
        found: DisclosurePart = self.part(data, "disclosure", DisclosurePart)
        if 0.0 < found.published_step < SMALLEST_STEP:
            problem = f"must be 0 or at least {SMALLEST_STEP:g}, got {found.published_step!r}"
            raise self.error("disclosure.published_step", problem)
        return found

    def amendment(self, data: dict[str, Any]) -> Amendment | None:
        if "amendment" not in data:
            return None
        section = data["amendment"]
        if not isinstance(section, dict):
            raise self.error("amendment", f"must be a section, got {_quoted(section)}")
        prefix = "amendment."
        self.no_others(section, {"number", "epoch", "signature", "earlier"}, prefix)
        entries = section.get("earlier")
        if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
            raise self.error("amendment.earlier", "must list the versions before this one")
        earlier = []
        for entry in entries:
            self.no_others(entry, {"epoch", "digest"}, "amendment.earlier.")
            epoch = self.value(entry, "epoch", int, "amendment.earlier.")
            digest = self.value(entry, "digest", str, "amendment.earlier.")
            earlier.append(EarlierVersion(epoch, digest))
        return Amendment(
            self.value(section, "number", int, prefix),
            self.value(section, "epoch", int, prefix),
            self.value(section, "signature", str, prefix),
            tuple(earlier),
        )

    def check_amendment(self, result: FederationFile) -> None:
        """Versions are numbered, come in their order, and are signed by the server."""
        amendment = result.amendment
        assert amendment is not None
        if amendment.number != len(amendment.earlier) + 1 or amendment.number < 2:
            raise self.error("amendment.number", "must be one more than there are earlier versions")
        epochs = [one.epoch for one in amendment.earlier] + [amendment.epoch]
        if epochs[0] != 1 or any(one >= other for one, other in pairwise(epochs)):
            raise self.error(
                "amendment.epoch", "and those of the earlier versions must grow from 1"
            )
        try:
            key = PublicKey(bytes.fromhex(result.server_key))
            key.verify(bytes.fromhex(amendment.signature), amendment_statement(result))
        except ProtocolError:
            problem = "is not the server's: the file was changed, or is not from this federation"
            raise self.error("amendment.signature", problem) from None

    def features(self, data: dict[str, Any]) -> tuple[Feature, ...]:
        entries = data.get("features")
        if not isinstance(entries, list) or not entries:
            raise self.error("features", "must list at least one feature")
        found: dict[str, Feature] = {}
        for number, entry in enumerate(entries, 1):
            prefix = f"features[{number}]."
            if not isinstance(entry, dict):
                raise self.error(
                    "features",
                    f"must hold tables, [[features]]; number {number} is {_quoted(entry)}",
                )
            self.no_others(entry, {"name", "low", "high", "fill"}, prefix)
            feature = Feature(
                self.value(entry, "name", str, prefix),
                self.value(entry, "low", float, prefix),
                self.value(entry, "high", float, prefix),
                self.value(entry, "fill", float, prefix) if "fill" in entry else None,
            )
            with self.explained(f"{prefix}name"):
                check_label(feature.name, "the column", LONGEST_LABEL)
            if feature.name in found:
                raise self.error(f"{prefix}name", f"{_quoted(feature.name)} occurs twice")
            if max(abs(feature.low), abs(feature.high)) > MAX_MAGNITUDE:
                raise self.error(f"{prefix}high", f"and low must lie within ±{MAX_MAGNITUDE:g}")
            if not feature.low <= feature.high:
                raise self.error(f"{prefix}high", "must not be below low")
            if feature.fill is not None and not feature.low <= feature.fill <= feature.high:
                raise self.error(f"{prefix}fill", "must lie between low and high")
            found[feature.name] = feature
        return tuple(found.values())

    def value(self, section: dict[str, Any], key: str, kind: Any, prefix: str) -> Any:
        path = prefix + key
        if key not in section:
            raise self.error(path, "is missing")
        value = section[key]
        choices = get_args(kind)
        if choices:
            if value not in choices:
                raise self.error(path, f"must be one of {', '.join(choices)}; got {_quoted(value)}")
            return value
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            if value.bit_length() > 1000:  # more than a float takes
                raise self.error(path, f"must be finite, got {_quoted(value)}")
            value = float(value)
        if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
            raise self.error(path, f"must be {_KINDS[kind]}, got {_quoted(value)}")
        if kind is float and not np.isfinite(value):
            raise self.error(path, f"must be finite, got {value!r}")
        if path in _RANGES:
            low, high = _RANGES[path]
            if not low <= value <= high:
                raise self.error(
                    path, f"must be between {low:g} and {high:g}, got {_quoted(value)}"
                )
        if path in _HEX and not re.fullmatch(rf"[0-9a-f]{{{2 * _HEX[path]}}}", value):
            raise self.error(path, f"must be {2 * _HEX[path]} hexadecimal digits")
        return value

    def no_others(self, section: dict[str, Any], known: set[str], prefix: str) -> None:
        for key in section:
            if key not in known:
                raise self.error(prefix + key, "is not a key of a federation file")

    @contextmanager
    def explained(self, path: str) -> Iterator[None]:
        """Say where an unsafe name stands."""
        try:
            yield
        except UnsafeNameError as error:
            raise self.error(path, f"cannot be used: {error}") from None

    def error(self, path: str, problem: str) -> FederationFileError:
        line = self.line_of(path)
        where = f", line {line}" if line else ""
        return FederationFileError(f"{self.source}{where}: {visible(path)} {problem}")

    def line_of(self, path: str) -> int | None:
        """Where a key stands, or the section that it is missing from."""
        parts = _PATH.fullmatch(path)
        assert parts is not None
        title, number, key = parts.groups()
        if title is None:
            return self._key(0, key) or self._head(key)
        start = self._head(title, int(number or 1))
        if start is None:  # the section is a value, or has parts only
            return self._key(0, title) or self._head(title, end=r"[\].]")
        return self._key(start, key) or start

    def _head(self, title: str, wanted: int = 1, end: str = r"\]") -> int | None:
        """The line of a section's head; of its nth one, if it may be there several times."""
        head = re.compile(rf"\s*\[+\s*[\"']?{re.escape(title)}[\"']?\s*{end}")
        heads = [at for at, line in enumerate(self.lines, 1) if head.match(line)]
        return heads[wanted - 1] if len(heads) >= wanted else None

    def _key(self, start: int, key: str) -> int | None:
        """The first line after ``start``, in the same section, that gives a key its value."""
        for at in range(start, len(self.lines)):
            if re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[.=]", self.lines[at]):
                return at + 1
            if re.match(r"\s*\[", self.lines[at]):
                break
        return None


_PATH = re.compile(
    r"(?:(model|protocol|disclosure|features|amendment\.earlier|amendment)(?:\[(\d+)\])?\.)?(.*)",
    re.DOTALL,
)
