"""The index of ids: open addressing, linear probing, deletion by shifting back."""

from __future__ import annotations

import numpy as np

from fedforget.clustering.kernels.memory import AHEAD, fetch_entry
from fedforget.compilation import helper, kernel


@helper
def _fetch(slots0, slots1, handles, keys0, i):
    """Ask for the entry at which the search for a later key begins."""
    key = keys0[min(i + AHEAD, keys0.shape[0] - 1)]
    at = np.int64(key & np.uint64(handles.shape[0] - 1))
    fetch_entry(slots0, at)
    fetch_entry(slots1, at)
    fetch_entry(handles, at)


@kernel
def index_find(slots0, slots1, handles, keys0, keys1, out):
    """Look keys up; -1 for a key that is not there.  OUT: out."""
    mask = np.uint64(handles.shape[0] - 1)
    for i in range(keys0.shape[0]):
        _fetch(slots0, slots1, handles, keys0, i)
        at = keys0[i] & mask
        out[i] = -1
        while handles[at] >= 0:
            if slots0[at] == keys0[i] and slots1[at] == keys1[i]:
                out[i] = handles[at]
                break
            at = (at + np.uint64(1)) & mask


@kernel
def index_put(slots0, slots1, handles, keys0, keys1, new, fresh):
    """Insert keys, or change the handle of those present.  OUT: slots0, slots1, handles, fresh.

    ``fresh`` tells which keys were not there.  The caller keeps the table at most half full.
    """
    mask = np.uint64(handles.shape[0] - 1)
    for i in range(keys0.shape[0]):
        _fetch(slots0, slots1, handles, keys0, i)
        at = keys0[i] & mask
        fresh[i] = True
        while handles[at] >= 0:
            if slots0[at] == keys0[i] and slots1[at] == keys1[i]:
                fresh[i] = False
                break
            at = (at + np.uint64(1)) & mask
        slots0[at] = keys0[i]
        slots1[at] = keys1[i]
        handles[at] = new[i]


@kernel
def index_drop(slots0, slots1, handles, keys0, keys1):
    """Remove keys that are present and leave nothing of them.  OUT: slots0, slots1, handles."""
    one = np.uint64(1)
    mask = np.uint64(handles.shape[0] - 1)
    for i in range(keys0.shape[0]):
        _fetch(slots0, slots1, handles, keys0, i)
        at = keys0[i] & mask
        while slots0[at] != keys0[i] or slots1[at] != keys1[i] or handles[at] < 0:
            at = (at + one) & mask
        gap = at
        at = (at + one) & mask
        while handles[at] >= 0:
            home = slots0[at] & mask
            if ((at - home) & mask) >= ((at - gap) & mask):
                slots0[gap] = slots0[at]
                slots1[gap] = slots1[at]
                handles[gap] = handles[at]
                gap = at
            at = (at + one) & mask
        slots0[gap] = np.uint64(0)
        slots1[gap] = np.uint64(0)
        handles[gap] = -1
