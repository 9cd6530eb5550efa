"""The suppression list: keyed digests of forgotten ids, so that no old export brings them back.

It lies in the client's directory or, better, in a place that is not restored together with it.  It
holds no ids: without the client's secret a digest says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from fedforget.clustering.prf import Secret
from fedforget.parties.database import Database, Schema, StoreError
from fedforget.parties.store import EncodedIds, keys_of_stored

FILE = "forgotten.sqlite"

_SCHEMA = Schema(
    1,
    "CREATE TABLE forgotten (digest BLOB PRIMARY KEY, request TEXT NOT NULL) WITHOUT ROWID",
)


class SuppressionList:
    """An open list.

    Parameters
    ----------
    path : the file.
    secret : the client's secret, from which the digests' key follows.
    create : make the file; otherwise it must be there.
    """

    def __init__(self, path: Path, secret: Secret, *, create: bool = False) -> None:
        self.path = path
        self._secret = secret.derive("suppression")
        if not create and not path.exists():
            raise StoreError(
                f"the suppression list {path} is missing: mount or restore it; if it is lost, begin"
                " an empty one with `client suppression --anew`"
            )
        self._db = Database(path, _SCHEMA, create=create)
        try:
            self._check_owner()
        except BaseException:
            self._db.close()
            raise

    def _check_owner(self) -> None:
        """A list has one owner, who may replace or remove what it holds."""
        if self._db.strange_tables(_SCHEMA):
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
        count: int = self._db.execute("SELECT count(*) FROM forgotten")[0][0]
        return count

    def digests(self, ids: EncodedIds) -> list[bytes]:
        """One digest per encoded id."""
        keys = keys_of_stored(self._secret, ids)
        pairs = np.column_stack([keys.low, keys.high]).astype("<u8")
        flat = pairs.tobytes()
        return [flat[at : at + 16] for at in range(0, len(flat), 16)]

    def add(self, ids: EncodedIds, request: str) -> None:
        """Ids are forgotten by a request, named by its tag."""
        with self._db.transaction():
            self._db.put("owner", self._owner)
            self._db.executemany(
                "INSERT OR REPLACE INTO forgotten VALUES (?, ?)",
                ((digest, request) for digest in self.digests(ids)),
            )

    def remove(self, digests: Iterable[bytes]) -> None:
        """Ids may come again."""
        with self._db.transaction():
            self._db.executemany(
                "DELETE FROM forgotten WHERE digest = ?", ((one,) for one in digests)
            )

    def remove_requests(self, requests: Iterable[str]) -> None:
        """Forget what requests forgot."""
        with self._db.transaction():
            self._db.executemany(
                "DELETE FROM forgotten WHERE request = ?", ((one,) for one in requests)
            )

    def replace_all(self, entries: Mapping[bytes, str]) -> None:
        """Hold just these."""
        with self._db.transaction():
            self._db.put("owner", self._owner)
            self._db.execute("DELETE FROM forgotten")
            self._db.executemany("INSERT INTO forgotten VALUES (?, ?)", entries.items())

    def entries(self) -> dict[bytes, str]:
        """Every digest with the request that it came from."""
        return dict(self._db.execute("SELECT digest, request FROM forgotten"))
