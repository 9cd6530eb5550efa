"""How records leave a client for good: a request, its digests, and the suppression list."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from fedforget.parties import receipts
from fedforget.parties.database import ErasureError
from fedforget.parties.log import now
from fedforget.parties.store import Request, Store
from fedforget.parties.suppression import SuppressionList


def note_erasure(
    store: Store,
    suppression: SuppressionList,
    ids: Mapping[bytes, int | str],
    salt: bytes,
    reseeded: int | None,
    not_held: int | None = None,
) -> Request:
    """Store the request by which records are erased, in the transaction that erases them.

    Parameters
    ----------
    store, suppression : the client's.
    ids : of the records, encoded and as people write them.
    salt : of the request.
    reseeded : the first seed that is drawn again, from 1; None if all stand.
    not_held : how many more ids the request named, if it may name such.
    """
    digests = sorted(receipts.request_digest(salt, one) for one in ids.values())
    request = store.add_request(now(), len(digests), digests, salt, reseeded, not_held)
    # Before the erasure is final: an id must never be gone and not on the list.
    suppression.begin_forgetting(np.array(list(ids), dtype=np.bytes_), request.name)
    return request


@contextmanager
def naming(request: Callable[[], Request | None]) -> Iterator[None]:
    """Let an error about what could not be overwritten name the request that is stored."""
    try:
        yield
    except ErasureError as error:
        stored = request()
        if stored is None:
            raise
        raise ErasureError(
            f"request {stored.name} is stored and its records are forgotten; but {error}"
        ) from None
