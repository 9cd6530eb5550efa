"""``policy.toml`` in a client's directory: what the site itself lets out.

The federation's rules bind everybody; a site may be stricter.  The file belongs to the site alone:
nothing of it is sent, and no message to the server tells that there is one.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fedforget.clustering.disclosure import ReportRules
from fedforget.incoming import IncomingFileError, read_text
from fedforget.parties.errors import ClientError
from fedforget.parties.federation_file import FederationFile
from fedforget.text import visible

FILE = "policy.toml"
MAX_BYTES = 1 << 20


class SitePolicyError(ClientError):
    """A policy that cannot be read, or that something contradicts."""


@dataclass(frozen=True)
class SitePolicy:
    """What a site lets out.  The default values forbid nothing.

    Attributes
    ----------
    min_cell, min_records, count_step : as in the federation's rules, and never laxer.
    features : the columns that may ever be used; None for any.
    least_members : the fewest members that a list must have for the site to take part.
    approval : whether somebody must approve what a round would take.
    tighten : whether a federation with laxer numbers may be joined; the site's own numbers then
        apply to what it reports.  Otherwise such a federation is refused.
    """

    min_cell: int = 1
    min_records: int = 1
    count_step: int = 1
    features: tuple[str, ...] | None = None
    least_members: int = 0
    approval: bool = False
    tighten: bool = False

    @classmethod
    def read(cls, folder: Path) -> SitePolicy:
        """The policy in a client's directory; one that forbids nothing where there is no file."""
        path = folder / FILE
        if not path.exists():
            return cls()
        try:
            text = read_text(path, MAX_BYTES)
            data = tomllib.loads(text)
        except IncomingFileError as error:
            raise SitePolicyError(str(error)) from None
        except (ValueError, RecursionError) as error:
            raise SitePolicyError(f"{path}: {error}") from None
        return cls(**{key: _value(path, key, value) for key, value in data.items()})

    def rules(self, federation: FederationFile) -> ReportRules:
        """The stricter of the federation's rules and the site's own.

        Raises
        ------
        SitePolicyError
            If sizes cannot be rounded to suit both.
        """
        theirs = federation.rules
        if self.count_step > theirs.count_step and self.count_step % theirs.count_step:
            raise SitePolicyError(
                f"{FILE}: count_step = {self.count_step} is not a multiple of the federation's"
                f" {theirs.count_step}: rounded sizes would tell this site from the others"
            )
        return ReportRules(
            max(self.min_cell, theirs.min_cell),
            max(self.min_records, theirs.min_records),
            max(self.count_step, theirs.count_step),
        )

    def problems(self, federation: FederationFile, n_members: int) -> list[str]:
        """What of a federation the policy forbids and the site cannot mend by itself."""
        found = []
        if self.features is not None:
            others = [one for one in federation.feature_names if one not in self.features]
            if others:
                names = ", ".join(map(visible, others))
                found.append(f"features: the federation uses {names}, which is not allowed here")
        if n_members < self.least_members:
            found.append(
                f"least_members = {self.least_members}: the membership list has {n_members}"
            )
        return found

    def check_join(self, federation: FederationFile, n_members: int) -> None:
        """Refuse a federation that is laxer than the policy, naming the line that differs."""
        found = self.problems(federation, n_members)
        rules = self.rules(federation)
        if not self.tighten:
            theirs = federation.rules
            found += [
                f"{key} = {getattr(self, key)}: the federation has {getattr(theirs, key)}"
                for key in ("min_cell", "min_records", "count_step")
                if getattr(rules, key) > getattr(theirs, key)
            ]
        if found:
            raise SitePolicyError(f"{FILE} of this site forbids joining: {'; '.join(found)}")

    def check_round(self, federation: FederationFile, n_members: int) -> None:
        """Refuse to report if the policy forbids it, even one that was written after joining."""
        found = self.problems(federation, n_members)
        if found:
            raise SitePolicyError(f"{FILE} of this site forbids taking part: {'; '.join(found)}")


_KINDS = {
    "min_cell": "a number of at least 1",
    "min_records": "a number of at least 1",
    "count_step": "a number of at least 1",
    "least_members": "a number of at least 0",
    "features": "a list of columns",
    "approval": "true or false",
    "tighten": "true or false",
}


def _value(path: Path, key: str, value: Any) -> Any:
    """A value of the file, if it is one that its key can have."""
    if key not in {one.name for one in fields(SitePolicy)}:
        raise SitePolicyError(f"{path}: {visible(key)} is not a key of a policy")
    kind = _KINDS[key]
    if kind == "true or false":
        good = isinstance(value, bool)
    elif kind == "a list of columns":
        good = isinstance(value, list) and all(isinstance(one, str) for one in value)
        value = tuple(value) if good else value
    else:
        least = 0 if key == "least_members" else 1
        good = type(value) is int and least <= value < 2**31
    if not good:
        raise SitePolicyError(f"{path}: {key} must be {kind}")
    return value
