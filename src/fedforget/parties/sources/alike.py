"""Ids that people or programs may take for other ids, or for missing ones.

``A1`` and ``A1␠`` are two patients here, but people take them for one.  A patient who is forgotten
under one of the two ids would stay under the other.  So such ids are refused where they come in.
They are never mended here: only their owner knows which of the two was meant.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Set

import numpy as np

from fedforget.arrays import Ints
from fedforget.clustering.ids import Ids
from fedforget.parties.store import encoded_ids
from fedforget.text import unseen_in

EXAMPLES = 5

_WORDS = ("na", "n/a", "#n/a", "<na>", "nan", "nat", "null", "none", "nil", "\\n", "missing")
_SUSPECT = re.compile(
    rf"^\s|\s$|^(?:{'|'.join(map(re.escape, _WORDS))})$", re.MULTILINE | re.IGNORECASE
)
_INTEGER = re.compile(r"^(?:0|-?[1-9][0-9]{0,17})$", re.MULTILINE)
_WRITTEN_OTHERWISE = re.compile(
    r"^(?!(?:0|-?[1-9][0-9]*)$)[+-]?[0-9]{1,18}(?:\.0*)?$", re.MULTILINE
)
"""05, 5.0, +5: texts that are numbers to a spreadsheet, and not the integer's own text."""

_NO_NUMBERS = np.empty(0, dtype=np.int64)


class LookAlikes:
    """Looks at the ids of a source, and remembers those that are to be refused.

    Of ids that are integers it keeps eight bytes each, to compare them with texts such as 5.0.
    """

    def __init__(self) -> None:
        self.count = 0
        self._examples: list[str] = []
        self._integers: list[Ints] = []
        self._others: list[str] = []

    def see(self, ids: Ids, place: Callable[[int], str]) -> None:
        """Look at some ids; ``place`` says where one of them stands."""
        if ids.dtype.kind == "i":
            self._integers.append(ids)
            return
        texts: list[str] = ids.tolist()
        lines = "\n".join(texts)
        plain = lines.isascii() and "".join(texts).isprintable()
        if not plain or _SUSPECT.search(lines):
            for at, one in enumerate(texts):
                trouble = trouble_with(one)
                if trouble is not None:
                    self._add(f"{one!r} ({place(at)}) {trouble}")
        if plain:
            self._integers.append(np.array(_INTEGER.findall(lines)).astype(np.int64))
            self._others += _WRITTEN_OTHERWISE.findall(lines)
        else:
            integers = [int(one) for one in texts if _INTEGER.fullmatch(one)]
            self._integers.append(np.array(integers, dtype=np.int64))
            self._others += filter(_WRITTEN_OTHERWISE.fullmatch, texts)

    def _add(self, example: str) -> None:
        self.count += 1
        if len(self._examples) < EXAMPLES:
            self._examples.append(example)

    def compare(self, held: Collection[bytes] = ()) -> None:
        """At the end: numbers that are there in two ways, here or among the ids ``held``."""
        known = held if isinstance(held, Set) else set(held)
        texts = [one[1:].decode() for one in known if one[:1] == b"s" and one[1:2] in _BEGIN]
        stored = {_value(one): one for one in texts if _WRITTEN_OTHERWISE.fullmatch(one)}
        if not self._others and not stored:
            return
        integers = np.concatenate([*self._integers, _NO_NUMBERS])
        values = np.array([_value(one) for one in self._others], dtype=np.int64)
        beside = np.isin(values, integers)
        first: dict[int, str] = {}
        for value, text, both in zip(values.tolist(), self._others, beside.tolist(), strict=True):
            other = str(value) if both else first.setdefault(value, text)
            if other == text:
                other = stored.get(value, text)
            if other == text and encoded_ids([value])[0] in known:
                other = str(value)
            if other != text:
                self._add(f"{text!r} stands beside {other!r}")
        again = integers[np.isin(integers, list(stored))] if stored else _NO_NUMBERS
        for value in again.tolist():
            self._add(f"{str(value)!r} stands beside {stored[value]!r}, which is held")

    def problem(self) -> str:
        """What is refused, in words."""
        more = self.count - len(self._examples)
        listed = "; ".join(self._examples) + (f"; and {more} more" if more else "")
        ids = "1 id" if self.count == 1 else f"{self.count} ids"
        return (
            f"{ids} can be mistaken for other ids or for missing ones: {listed}. Mend them where"
            " they come from; --ids-as-is takes them as they are"
        )


_BEGIN = tuple(bytes([code]) for code in b"+-0123456789")


def _value(text: str) -> int:
    return int(text.partition(".")[0])


def trouble_with(one: str) -> str | None:
    """Why an id is easily mistaken; None if it is not.

    >>> trouble_with("A1 ")
    'ends with a space'
    >>> trouble_with("null")
    'is a word for a missing value'
    """
    if one != one.strip():
        return "begins with a space" if one != one.lstrip() else "ends with a space"
    if not (one.isascii() and one.isprintable()):
        unseen = unseen_in(one)
        if unseen is not None:
            return f"has the character U+{ord(unseen):04X}, which nobody sees"
        if not unicodedata.is_normalized("NFC", one):
            return "is not in Unicode's form NFC"
    if one.lower() in _WORDS:
        return "is a word for a missing value"
    return None
