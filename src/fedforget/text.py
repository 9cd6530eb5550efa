"""Text that comes from outside: which names are allowed, and how any text is shown safely.

A name ends up in signed lists, on terminals, in pages and in logs.  A character that nobody sees,
that turns the text around it, or that a terminal obeys makes two names look alike or one line look
like another.  Such characters are refused in names, and escaped wherever other text is shown.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

from fedforget.errors import FedforgetError

LONGEST_NAME = 200
LONGEST_LABEL = 1000
_UNSEEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
"""Control, format, surrogate, private, unassigned; separators of lines and paragraphs."""


_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Fillers and joiners that are letters, marks or symbols to Unicode and nothing to the eye."""

_SELECTORS = re.compile("[\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""They choose a form of the character before them; many fonts know one form only."""

# Letters of other scripts that are drawn like Latin ones, small or capital.
_LATIN = str.maketrans(
    "\u0430\u0432\u0435\u043a\u043c\u043d\u043e\u0440\u0441\u0442\u0443\u0445\u0455\u0456\u0458"
    "\u04bb\u04cf\u0501\u051b\u051d"
    "\u03b1\u03b2\u03b5\u03b6\u03b7\u03b9\u03ba\u03bc\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7\u0131",
    "abekmhopctyxsijhldqwabezhikmnoptyxi",
)


class UnsafeNameError(FedforgetError, ValueError):
    """A name with characters that cannot be told apart or seen, or of a forbidden form."""


def check_name(name: object) -> str:
    """Return the name of a client or a federation if it is allowed.

    Parameters
    ----------
    name : str
        The name: 1 to 200 characters in Unicode's form NFC, all of them printable, without spaces
        at either end and with no other space than U+0020.  ``*`` stands for everybody and is not
        a name.

    Returns
    -------
    str
        The same name.

    Raises
    ------
    UnsafeNameError
        If the name is not allowed.  The message names the character and its place.

    Examples
    --------
    >>> check_name("Århus, ward 3")
    'Århus, ward 3'
    >>> check_name("aarhus\\u202egol")
    Traceback (most recent call last):
    fedforget.text.UnsafeNameError: the name 'aarhus\\u202egol' has U+202E at character 7: ...
    """
    if name == "*":
        raise UnsafeNameError("* stands for everybody and cannot be a name; choose another one")
    return check_label(name, "the name", LONGEST_NAME)


def check_new_name(name: object, known: Iterable[str] = ()) -> str:
    """Return the name of somebody new if it is allowed and looks like no name that is known.

    Names look alike here if they differ in capitals, compatibility forms, spaces, selectors of
    variants, or letters that Cyrillic and Greek share with Latin.  There are more look-alikes in
    Unicode than that: what tells members apart in the end are their keys.

    Parameters
    ----------
    name : str
        The name, as for :func:`check_name`.
    known : iterable of str
        Names that are taken.  The same name may be among them.

    Returns
    -------
    str
        The same name.

    Raises
    ------
    UnsafeNameError
        If the name is not allowed, or looks like another one.

    Examples
    --------
    >>> check_new_name("Aarhus North", ["Aarhus"])
    'Aarhus North'
    >>> check_new_name("AARHUS", ["Aarhus"])
    Traceback (most recent call last):
    fedforget.text.UnsafeNameError: the name 'AARHUS' looks like 'Aarhus', which is taken: ...
    """
    new = check_name(name)
    for at, character in enumerate(new, 1):
        if character in _BLANK:
            raise UnsafeNameError(
                f"the name {new!r} has U+{ord(character):04X} at character {at}, which nobody sees:"
                f" it looks like {new.replace(character, '')!r}; leave it out"
            )
    looks = _outline(new)
    like = next((one for one in known if one != new and _outline(one) == looks), None)
    if like is not None:
        others = [f"U+{ord(one):04X}" for one in new if one not in like and not one.isascii()]
        raise UnsafeNameError(
            f"the name {new!r} looks like {like!r}, which is taken"
            + (f" (it has {', '.join(others[:5])})" if others else "")
            + ": choose one that people can tell apart, or write it exactly so if it is the same"
            " member"
        )
    return new


def _outline(name: str) -> str:
    """What is left of a name if everything is taken away that is easily overlooked."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    plain = unicodedata.normalize("NFKC", _SELECTORS.sub("", folded)).translate(_LATIN)
    return " ".join(plain.split())


def check_label(label: object, what: str, longest: int = LONGEST_LABEL) -> str:
    """Return a label, such as a column's name, if it has the characters that a name may have.

    Parameters
    ----------
    label : str
        The text to check.
    what : str
        What the label is, in words; error messages begin with it.
    longest : int
        The largest number of characters.

    Returns
    -------
    str
        The same label.

    Raises
    ------
    UnsafeNameError
        If the label is not allowed.
    """
    if not isinstance(label, str):
        raise UnsafeNameError(f"{what} must be text, not {type(label).__name__}")
    if not 1 <= len(label) <= longest:
        raise UnsafeNameError(f"{what} must have 1 to {longest} characters, not {len(label)}")
    for at, character in enumerate(label, 1):
        if _is_unseen(character) or (character.isspace() and character != " "):
            raise UnsafeNameError(
                f"{what} {label!r} has U+{ord(character):04X} at character {at}: only printable"
                " characters and plain spaces are allowed"
            )
    if label != label.strip(" "):
        end = "begins" if label[0] == " " else "ends"
        raise UnsafeNameError(f"{what} {label!r} {end} with a space (U+0020); remove it")
    normal = unicodedata.normalize("NFC", label)
    if label != normal:
        pairs = zip(label, normal, strict=False)
        at = next((at for at, (a, b) in enumerate(pairs, 1) if a != b), len(normal))
        raise UnsafeNameError(
            f"{what} {label!r} is not in Unicode's form NFC from character {at} on"
            f" (U+{ord(label[at - 1]):04X}); write it with composed characters"
        )
    return label


def unseen_in(text: str) -> str | None:
    """Return the first character of a text that nobody sees, or that looks like a plain space.

    Parameters
    ----------
    text : str
        Any text.

    Returns
    -------
    str or None
        The character; None if every character is seen for what it is.

    Examples
    --------
    >>> unseen_in("P-\\u200b17") == "\\u200b", unseen_in("P 17") is None
    (True, True)
    """
    for character in text:
        odd_space = character.isspace() and character != " "
        if odd_space or character in _BLANK or _is_unseen(character):
            return character
    return None


def visible(text: object) -> str:
    r"""Return text in which every character that could act is written as an escape.

    Control, format and bidirectional characters, line ends, unassigned and private characters
    become ``\x1b``, ``\u202e`` or ``\U000e0001``.  Everything else stays as it is.

    Parameters
    ----------
    text : object
        Any text from outside; other objects are turned into text first.

    Returns
    -------
    str
        One line that only shows its characters.

    Examples
    --------
    >>> print(visible("valid\n\x1b[2Jage \u202e"))
    valid\n\x1b[2Jage \u202e
    """
    shown = str(text)
    # Almost all text is like this; str.isprintable refuses what is escaped, and odd spaces.
    return shown if shown.isprintable() else "".join(map(_visible, shown))


def json_text(value: Any, indent: int | None = None) -> str:
    r"""Return a value as JSON that is safe to show: the same value, with unseen characters escaped.

    Parameters
    ----------
    value : object
        What ``json.dumps`` takes.
    indent : int, optional
        As for ``json.dumps``.

    Returns
    -------
    str
        JSON; only its own line ends are not escaped.

    Examples
    --------
    >>> print(json_text({"name": "Århus\u202e"}))
    {"name": "Århus\u202e"}
    """
    written = json.dumps(value, indent=indent, ensure_ascii=False)
    return re.sub(r"[^\n\x20-\x7e]", _json_escape, written)


def _is_unseen(character: str) -> bool:
    return unicodedata.category(character) in _UNSEEN


_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _visible(character: str) -> str:
    if not _is_unseen(character):
        return character
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escape(found: re.Match[str]) -> str:
    character = found.group()
    return json.dumps(character)[1:-1] if _is_unseen(character) else character
