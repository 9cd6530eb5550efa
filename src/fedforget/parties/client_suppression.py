"""A client's suppression list beside its store: where it lies, and how the two change together."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from fedforget.clustering.prf import Secret
from fedforget.parties.database import erase_database
from fedforget.parties.errors import ClientError
from fedforget.parties.store import Store, StoreError, SuppressionSetting
from fedforget.parties.suppression import FILE, SuppressionList


class ClientSuppression:
    """The suppression list of one client.

    Parameters
    ----------
    folder : the client's directory.
    store : its store, which says where the list lies and which requests were made.
    secret : the client's.
    copy : work on a copy in memory that cannot be changed.
    """

    def __init__(self, folder: Path, store: Store, secret: Secret, *, copy: bool) -> None:
        self._folder, self._store, self._secret = folder, store, secret
        self._is_copy = copy

    @property
    def _setting(self) -> SuppressionSetting:
        setting: SuppressionSetting = self._store.get("suppression", {"path": None, "on": True})
        return setting

    @property
    def keeps(self) -> bool:
        """Whether ids stay on the list after the commit that forgets them."""
        return bool(self._setting["on"])

    @property
    def path(self) -> Path:
        """Where the list lies."""
        elsewhere = self._setting["path"]
        return self._inside if elsewhere is None else Path(elsewhere)

    @property
    def _inside(self) -> Path:
        """Where it lies if it was not moved."""
        return self._folder.resolve() / FILE

    # -- changing the list and the store together ----------------------------------------------

    @contextmanager
    def opened(self) -> Iterator[SuppressionList]:
        """The list, in agreement with the store."""
        suppression = SuppressionList(self.path, self._secret, copy=self._is_copy)
        try:
            if not self._is_copy:
                self._settle(suppression)
            yield suppression
        finally:
            suppression.close()

    @contextmanager
    def changing(self) -> Iterator[SuppressionList]:
        """A change of the store, and one of the suppression list that goes with it."""
        with self.opened() as suppression:
            if self._setting["path"] is not None:
                suppression.mark = self._note_mark()
            try:
                with self._store.transaction():
                    yield suppression
            finally:
                # If it cannot be settled now, the next opening does it.
                with suppress(StoreError):
                    self._settle(suppression)

    def _note_mark(self) -> str:
        """Note that a change comes: a store that was restored to before it lacks the mark."""
        mark = os.urandom(8).hex()
        with self._store.transaction():
            self._store.put("changing", mark)
        return mark

    def _settle(self, suppression: SuppressionList) -> None:
        """Make the list agree with the store."""
        if suppression.unsettled:
            known = {one.name for one in self._store.requests()}
            known |= {one.name for one in self._store.receipts()}
            made = {*known, self._store.get("let_in")}
            suppression.settle(made, self._store.get("changing"))
        if not self.keeps:
            entries = suppression.entries()
            kept = self._waiting_of(entries)
            if len(kept) < len(entries):
                suppression.replace_all(kept)

    def _waiting_of(self, entries: Mapping[bytes, str]) -> dict[bytes, str]:
        """The entries of requests that wait for a round."""
        waiting = {one.name for one in self._store.requests()}
        return {digest: name for digest, name in entries.items() if name in waiting}

    # -- setting it up -------------------------------------------------------------------------

    def set(self, *, on: bool | None = None, path: Path | None = None, anew: bool = False) -> None:
        """Switch the list off or on, or move it to a place that is not restored with this.

        A list of this client that lies there already is kept, and the two become one.  With
        ``anew`` the present list is lost, and an empty one begins.
        """
        keeps = self.keeps if on is None else on
        before = self.path
        if anew and before.exists():
            raise ClientError(f"the suppression list {before} is there; nothing was changed")
        entries: dict[bytes, str] = {}
        if not anew:
            with self.opened() as old:
                entries = old.entries()
        place = before if path is None else path.resolve()
        target = SuppressionList(place, self._secret, create=not place.exists())
        try:
            entries = target.entries() | entries
            if not keeps:
                entries = self._waiting_of(entries)
            target.replace_all(entries)
        finally:
            target.close()
        with self._store.transaction():
            inside = place == self._inside
            self._store.put("suppression", {"path": None if inside else str(place), "on": keeps})
        if place != before:
            erase_database(before)
