"""The versions of the federation file that a party keeps, in its store and beside it.

The store decides.  ``federation.toml`` shows the version in force, ``federation-N.toml`` an earlier
one, which auditors of old receipts need.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedforget.parties.database import Database
from fedforget.parties.federation_file import FederationFile, FederationFileError, check_unchanged
from fedforget.parties.folders import FEDERATION, write_private

VALUE = "versions"
"""Under this name a store keeps the texts of earlier versions, the first one first."""


def earlier_file(folder: Path, version: int) -> Path:
    """Where an earlier version lies."""
    return folder / f"federation-{version}.toml"


def stored_versions(database: Database) -> list[FederationFile]:
    """The earlier versions that a party keeps; a newcomer has none of those before it."""
    return [_parsed(database, VALUE, text) for text in database.get(VALUE, [])]


def _parsed(database: Database, name: str, text: str) -> FederationFile:
    try:
        return FederationFile.parse(text)
    except FederationFileError:
        raise database.damage(name) from None


def current_file(
    folder: Path, database: Database, found: FederationFile | None
) -> FederationFile | None:
    """The version in force, of a party whose file says ``found``; None before a client has joined.

    A party that was killed while it took an amendment over has the old file beside the new store:
    the file is then written again.  Any other difference is refused.
    """
    stored = database.get("federation")
    if found is None or stored is None or found.text() == stored:
        return found
    current, earlier = _parsed(database, "federation", stored), stored_versions(database)
    if any(found.digest == one.digest for one in earlier):
        write_files(folder, current, earlier)
        return current
    check_unchanged(found, current, folder / FEDERATION)
    return found


def put_version(database: Database, before: FederationFile, after: FederationFile) -> None:
    """Store the next version; belongs in a transaction."""
    database.put(VALUE, [*database.get(VALUE, []), before.text()])
    database.put("federation", after.text())


def write_files(folder: Path, current: FederationFile, earlier: Sequence[FederationFile]) -> None:
    """Write the files that show what is stored."""
    for one in earlier:
        write_private(earlier_file(folder, one.version), one.text().encode())
    write_private(folder / FEDERATION, current.text().encode())
