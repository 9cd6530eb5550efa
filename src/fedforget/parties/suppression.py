"""The suppression list: keyed digests of forgotten ids, so that no old export brings them back.

It lies in the client's directory or, better, in a place that is not restored together with it.  It
holds no ids: without the client's secret a digest says nothing.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from fedforget.clustering.prf import Secret
from fedforget.parties.database import Database, ErasureError, Schema, StoreError
from fedforget.parties.store import EncodedIds, keys_of_stored

FILE = "forgotten.sqlite"

_BEGUN = "begun"
"""Under this name a list keeps the store's mark while a change is not settled."""

_SCHEMA = Schema(
    1,
    """
    CREATE TABLE forgotten (digest BLOB PRIMARY KEY, request TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE forgetting (digest BLOB PRIMARY KEY, request TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE forgiving (digest BLOB PRIMARY KEY, change TEXT NOT NULL) WITHOUT ROWID
    """,
)


class SuppressionList:
    """An open list.

    It is another file than the client's store, so the two cannot change at once.  A change is
    first begun here, then made in the store, then settled here by what the store says: whatever
    is cut off in between, no erased id is missing, and none is listed that was not erased.

    A list in another place may also meet a store that was restored to before the change, which
    knows nothing of it.  So the store notes a mark before a change is begun, and the list keeps it
    until the change is settled.  A store without the mark is an older one: then the ids may have
    been erased, and stay on the list.

    Parameters
    ----------
    path : the file.
    secret : the client's secret, from which the digests' key follows.
    create : make the file, which must not exist; otherwise it must be there.
    copy : work on a copy in memory that cannot be changed.

    Attributes
    ----------
    mark : what the store has noted before the next change; None if it notes nothing.
    """

    def __init__(
        self, path: Path, secret: Secret, *, create: bool = False, copy: bool = False
    ) -> None:
        self.path = path
        self.mark: str | None = None
        self._secret = secret.derive("suppression")
        if not create and not path.exists():
            raise StoreError(
                f"the suppression list {path} is missing: mount or restore it; if it is lost, begin"
                " an empty one with `client suppression --anew`"
            )
        self._db = Database(path, _SCHEMA, create=create, copy=copy)
        try:
            self._check_owner()
        except BaseException:
            self._db.close()
            raise

    def _check_owner(self) -> None:
        """A list has one owner, who may replace or remove what it holds."""
        if self._db.strange_tables(_SCHEMA, ("owner", _BEGUN)):
            raise StoreError(f"{self.path} is not a suppression list; name another file")
        if self._db.get("owner") not in (None, self._owner):
            raise StoreError(
                f"{self.path} is the suppression list of another client; name another file"
            )

    @property
    def _owner(self) -> bytes:
        # No encoded id begins like this.
        return self.digests(np.array([b"owner"]))[0]

    def close(self) -> None:
        self._db.close()

    def __len__(self) -> int:
        return len(self.entries())

    def digests(self, ids: EncodedIds) -> list[bytes]:
        """One digest per encoded id."""
        keys = keys_of_stored(self._secret, ids)
        pairs = np.column_stack([keys.low, keys.high]).astype("<u8")
        flat = pairs.tobytes()
        return [flat[at : at + 16] for at in range(0, len(flat), 16)]

    def begin_forgetting(self, ids: EncodedIds, request: str) -> None:
        """Ids are about to be forgotten by a request."""
        self._begin("forgetting", self.digests(ids), request)

    def begin_forgiving(self, digests: Iterable[bytes], change: str) -> None:
        """Ids are about to come again, by a change of the store with this name."""
        self._begin("forgiving", digests, change)

    def _begin(self, table: str, digests: Iterable[bytes], change: str) -> None:
        # An error that says that old pages are not overwritten yet: here, nothing is deleted.
        with suppress(ErasureError), self._db.transaction():
            if self.mark is not None:
                self._db.put(_BEGUN, self.mark)
            self._db.executemany(
                f"INSERT OR REPLACE INTO {table} VALUES (?, ?)", ((one, change) for one in digests)
            )

    @property
    def unsettled(self) -> bool:
        """Whether a change was begun."""
        tables = "SELECT 1 FROM forgetting UNION ALL SELECT 1 FROM forgiving LIMIT 1"
        return bool(self._db.execute(tables))

    def settle(self, made: Container[str], mark: str | None = None) -> None:
        """Every change that was begun takes place if it was made in the store, or not at all.

        ``mark`` is the last one that the store has noted.  If a change was begun with another one,
        the store is older than that change: what it was to forget stays on the list.
        """
        forgotten = self._db.execute("SELECT digest, request FROM forgetting")
        older = self._db.get(_BEGUN, mark) != mark
        forgiven = self._db.execute("SELECT digest, change FROM forgiving")
        with self._db.transaction():
            self._db.put("owner", self._owner)
            self._db.executemany(
                "INSERT OR REPLACE INTO forgotten VALUES (?, ?)",
                [row for row in forgotten if older or row[1] in made],
            )
            self._db.executemany(
                "DELETE FROM forgotten WHERE digest = ?",
                [(digest,) for digest, change in forgiven if change in made],
            )
            self._db.execute("DELETE FROM forgetting")
            self._db.execute("DELETE FROM forgiving")
            self._db.discard(_BEGUN)

    def replace_all(self, entries: Mapping[bytes, str]) -> None:
        """Hold just these."""
        with self._db.transaction():
            self._db.put("owner", self._owner)
            self._db.execute("DELETE FROM forgotten")
            self._db.executemany("INSERT INTO forgotten VALUES (?, ?)", entries.items())

    def entries(self) -> dict[bytes, str]:
        """Every digest with the request that it came from."""
        return dict(
            self._db.execute(
                "SELECT digest, request FROM forgotten"
                " UNION ALL SELECT digest, request FROM forgetting"
            )
        )
