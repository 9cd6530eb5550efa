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
import numpy.typing as npt

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
_LONG_INTEGER = re.compile(r"^-?[1-9][0-9]{18,}$", re.MULTILINE)
"""Those that may be too long for 64 bits: numbers of cards and of samples."""
_WRITTEN_OTHERWISE = re.compile(r"^(?!(?:0|-?[1-9][0-9]*)$)[+-]?[0-9]+(?:\.0*)?$", re.MULTILINE)
"""05, 5.0, +5: texts that are numbers to a spreadsheet, and not the integer's own text."""

_NO_NUMBERS = np.empty(0, dtype=np.int64)
_SMALL = 10**18
"""Below it, integers are compared as such."""
_NO_TEXTS = np.empty(0, dtype="S1")


class LookAlikes:
    """Looks at the ids of a source, and remembers those that are to be refused.

    Of ids that are integers it keeps eight bytes each, and of very long ones their digits, to
    compare them with texts such as 5.0.
    """

    def __init__(self) -> None:
        self.count = 0
        self._examples: list[str] = []
        self._integers: list[Ints] = []
        self._long: list[npt.NDArray[np.bytes_]] = []
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

        def found(pattern: re.Pattern[str]) -> list[str]:
            # Lines in an id that is not printable are no ids of their own.
            return pattern.findall(lines) if plain else list(filter(pattern.fullmatch, texts))

        self._integers.append(np.array(found(_INTEGER)).astype(np.int64))
        long = found(_LONG_INTEGER)
        if long:
            self._long.append(np.array(long, dtype=np.bytes_))
        self._others += found(_WRITTEN_OTHERWISE)

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
        values = [_value(one) for one in self._others]
        here, first = self._among_integers({*values, *stored}), dict[int, str]()
        for value, text in zip(values, self._others, strict=True):
            other = str(value) if value in here else first.setdefault(value, text)
            if other == text:
                other = stored.get(value, text)
            if other == text and encoded_ids([str(value)])[0] in known:
                other = str(value)
            if other != text:
                self._add(f"{text!r} stands beside {other!r}")
        for value in sorted(here & stored.keys()):
            self._add(f"{str(value)!r} stands beside {stored[value]!r}, which is held")

    def _among_integers(self, values: Set[int]) -> set[int]:
        """Those of some values that ids are, as integers or as their own texts."""
        small = np.array([one for one in values if abs(one) < _SMALL], dtype=np.int64)
        large = np.array([str(one) for one in values if abs(one) >= _SMALL], dtype=np.bytes_)
        integers = np.concatenate([*self._integers, _NO_NUMBERS])
        found = set(small[np.isin(small, integers)].tolist())
        if len(large):
            # Integers of 19 digits may come as such, too.
            whole = integers[np.abs(integers.astype(np.float64)) >= _SMALL].astype(np.bytes_)
            texts = np.concatenate([*self._long, whole, _NO_TEXTS])
            found |= {int(one) for one in large[np.isin(large, texts)].tolist()}
        return found

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
    r"""Why an id is easily mistaken; None if it is not.

    >>> trouble_with("A1 ")
    'ends with a space'
    >>> trouble_with("null")
    'is a word for a missing value'
    >>> trouble_with("\uff11\uff12")
    "has the character U+FF11, which looks like '1'"
    """
    if one != one.strip():
        return "begins with a space" if one != one.lstrip() else "ends with a space"
    if not (one.isascii() and one.isprintable()):
        unseen = unseen_in(one)
        if unseen is not None:
            return f"has the character U+{ord(unseen):04X}, which nobody sees"
        if not unicodedata.is_normalized("NFC", one):
            return "is not in Unicode's form NFC"
        for sign in one:
            plain = unicodedata.normalize("NFKC", sign)
            if plain != sign and plain.isascii():
                return f"has the character U+{ord(sign):04X}, which looks like {plain!r}"
    if one.lower() in _WORDS:
        return "is a word for a missing value"
    return None
