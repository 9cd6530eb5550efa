"""The templates of all pages.

Every value that a template prints is escaped, unless a template made it: a name that comes from
somebody else can never become markup.  Characters that would hide or turn what is around them are
shown as codes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fedforget.text import visible
from fedforget.wall_clock import time_since


def render(template: str, **values: Any) -> str:
    """A whole page."""
    return _environment().get_template(template).render(values)


def macro(template: str, name: str) -> Callable[..., Markup]:
    """A part of a page, by the name of its macro.

    >>> macro("parts.html", "named")("<b>")
    Markup('<bdi>&lt;b&gt;</bdi>')
    """
    found: Callable[..., Markup] = getattr(_environment().get_template(template).module, name)
    return found


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("fedforget.pages", "html"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "grouped": grouped,
        "figure": figure,
        "rough": _rough,
        "coordinate": _coordinate,
        "moment": _moment,
        "clock": _clock,
        "epoch": _epoch,
        "ago": _ago,
    }
    return environment


def _printable(value: Any) -> Any:
    """What stands for a value on a page; markup of a template stays as it is."""
    return value if hasattr(value, "__html__") else visible(value)


def grouped(number: int) -> str:
    """An integer with its thousands apart.

    >>> grouped(1234567)
    '1,234,567'
    """
    return f"{number:,}"


def figure(value: float) -> str:
    """A measured number, to four digits or to the integer.

    >>> figure(0.123456), figure(27.0), figure(499812.3)
    ('0.1235', '27', '499,812')
    """
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e9 else f"{value:.4g}"


def _rough(value: float) -> str:
    """A measured number, to two digits or to the integer.

    >>> _rough(0.123456), _rough(27.4), _rough(1499.3)
    ('0.12', '27', '1,499')
    """
    return f"{value:,.0f}" if 10 <= abs(value) < 1e9 else f"{value:.2g}"


def _coordinate(value: float) -> str:
    """A length in a drawing."""
    return f"{value:.4g}"


def _moment(text: str) -> str:
    """A time of a log or a receipt, in a form that people read.

    >>> _moment("2030-01-02T03:04:05+00:00")
    '2030-01-02 03:04:05 UTC'
    """
    with suppress(ValueError):
        return f"{datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%d %H:%M:%S UTC}"
    return text


def _clock(seconds: float) -> str:
    """A time of this machine, in a form that people read.

    >>> _clock(1893553445.25)
    '2030-01-02 03:04:05 UTC'
    """
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S UTC}"


def _epoch(seconds: float) -> str:
    """A time of this machine, for a script."""
    return f"{seconds:.1f}"


def _ago(text: str, now: datetime) -> str:
    """How long ago a time of a log was.

    >>> _ago("2030-01-02T03:04:05+00:00", datetime(2030, 1, 3, 9, tzinfo=UTC))
    '1 d 5 h ago'
    """
    with suppress(ValueError, TypeError):
        return time_since(datetime.fromisoformat(text), now)
    return text
