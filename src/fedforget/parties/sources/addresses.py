"""Addresses of databases, and messages without their passwords.

A password may stand in an address.  It is handed to the driver and to nobody else: messages name
the database only, and what a driver says is cleaned before it is shown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote

from fedforget.parties.sources.reader import TableError

DatabaseKind = Literal["postgresql", "sqlite", "duckdb"]

_KINDS: dict[str, DatabaseKind] = {
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "sqlite": "sqlite",
    "duckdb": "duckdb",
}
_SERVER = r"(?:\[[0-9A-Fa-f:.%]+\]|[^:@/?#\[\],\s]*)(?::[0-9]*)?"
_SETTING = r"[A-Za-z_]+=[^@&#\s]*"
# Strict, so that no part of a password that is not encoded can be taken for a server or a setting.
_POSTGRES = re.compile(
    r"(?:(?P<user>[^:@/?#\[\]\s]*)(?::(?P<password>[^:@/?#\[\]\s]*))?@)?"
    rf"(?P<place>{_SERVER}(?:,{_SERVER})*(?:/[^@?#/\s]*)?)"
    rf"(?:\?(?P<settings>{_SETTING}(?:&{_SETTING})*))?"
)
_STARS = "***"


@dataclass(frozen=True)
class Address:
    """Where a database is.

    Attributes
    ----------
    kind : which database it is.
    uri : the whole address, for the driver alone.
    name : the address without user, password and settings, for messages.
    file : the path of a database that is a file.
    """

    kind: DatabaseKind
    uri: str = field(repr=False)
    name: str
    file: str | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def parse(cls, uri: str) -> Address:
        """Take an address apart.

        Raises
        ------
        TableError
            If it is not an address.  The message does not repeat it: a password may stand anywhere
            in it.
        """
        scheme, found, rest = uri.partition("://")
        kind = _KINDS.get(scheme.lower())
        if not found or kind is None:
            raise TableError(
                "--uri must begin with postgresql://, sqlite:// or duckdb://, followed by a server"
                " and a database, or by the path of a file"
            )
        if kind != "postgresql":
            path = unquote(rest)
            if not path:
                raise TableError(
                    f"--uri {kind}:// needs the path of a file: {kind}://patients.db, or"
                    f" {kind}:///data/patients.db from the root on"
                )
            return cls(kind, uri, path, path)
        parts = _POSTGRES.fullmatch(rest)
        if parts is None or re.search(r"%(?![0-9A-Fa-f]{2})", rest):
            raise TableError(
                "--uri is not an address that can be read. In a password, characters such as"
                " : / ? # @ % and spaces are written as %3A %2F %3F %23 %40 %25 and %20; better,"
                " put it into ~/.pgpass or PGPASSWORD, and leave it out here"
            )
        given = [parts["password"] or ""]
        for setting in (parts["settings"] or "").split("&"):
            key, _, value = setting.partition("=")
            if "pass" in unquote(key).lower():
                given.append(value)
        secrets = {form for one in given if one for form in (one, unquote(one))}
        ordered = tuple(sorted(secrets, key=len, reverse=True))
        # PostgreSQL's own library takes the scheme in small letters only.
        uri = f"postgresql://{rest}"
        return cls(kind, uri, f"postgresql://{parts['place']}", secrets=ordered)

    def cleaned(self, message: str) -> str:
        """What a driver says, in one line, without the address and its password."""
        for secret in (self.uri, *self.secrets):
            message = message.replace(secret, _STARS)
        lines = [line.strip() for line in message.splitlines() if line.strip()]
        first = lines[0] if lines else "the driver does not say why"
        return re.sub(r"^[A-Z_]+: (?:\[\w+\] )?", "", first)
