"""The suppression list: keyed digests of forgotten ids, so that no old export brings them back.

It lies in the client's directory or, better, in a place that is not restored together with it.  It
holds no ids: without the client's secret a digest says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from fedforget.clustering.prf import Secret
from fedforget.parties.database import Database, Schema
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
    path : the file; it is made if it is missing.
    secret : the client's secret, from which the digests' key follows.
    """

    def __init__(self, path: Path, secret: Secret) -> None:
        self.path = path
        self._secret = secret.derive("suppression")
        self._db = Database(path, _SCHEMA, create=not path.exists())

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
            self._db.execute("DELETE FROM forgotten")
            self._db.executemany("INSERT INTO forgotten VALUES (?, ?)", entries.items())

    def entries(self) -> dict[bytes, str]:
        """Every digest with the request that it came from."""
        return dict(self._db.execute("SELECT digest, request FROM forgotten"))
