"""The text of a query: one that reads, without what may follow it in its file."""

from __future__ import annotations

import re

from fedforget.parties.sources.reader import TableError

_TOKEN = re.compile(
    r"""
      (?P<nothing> \s+ | --[^\n]* )
    | (?P<remark> /\* )
    | [eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | "(?:[^"]|"")*" | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$
    | (?P<end> ; )
    | \w+ | .
    """,
    re.VERBOSE | re.DOTALL,
)
_REMARK = re.compile(r"/\*|\*/")
_READING = ("select", "with", "values", "table", "from", "(")


def only_query(text: str, where: str = "--sql") -> str:
    """The one query of a text, without semicolons and remarks behind it; ``where`` it is used.

    PostgreSQL's driver puts a query into brackets: a remark at its end would comment the bracket
    out.  Other commands can write even where tables cannot be changed: COPY writes files, and
    ATTACH makes them.

    Raises
    ------
    TableError
        If it is empty, does not begin as a query does, or goes on behind a semicolon.

    >>> only_query("select 'a;' -- first\\n; -- done\\n")
    "select 'a;'"
    """
    first, last, ended, at = "", 0, False, 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        assert token is not None
        at = token.end()
        if token["remark"]:
            at = _end_of_remark(text, at)
        elif token["end"]:
            ended = bool(first)
        elif not token["nothing"]:
            if ended:
                raise TableError(f"{where}: there is more than one command; nothing was imported")
            first, last = first or token[0].lower(), at
    if not first:
        raise TableError(f"{where}: the file is empty; it must hold one query")
    if first not in _READING:
        raise TableError(
            f"{where}: a query begins with SELECT, WITH, VALUES, TABLE or FROM, not with"
            f" {first[:20]!r}; nothing was imported"
        )
    return text[:last]


def _end_of_remark(text: str, at: int) -> int:
    """Where a remark ends; in PostgreSQL one may stand in another."""
    depth = 1
    while depth:
        sign = _REMARK.search(text, at)
        if sign is None:
            return len(text)
        depth, at = depth + (1 if sign[0] == "/*" else -1), sign.end()
    return at
