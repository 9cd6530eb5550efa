"""What a node may say, and what becomes of everything else."""

from __future__ import annotations

import pytest

from fedforget.protocol.errors import MalformedError
from fedforget.runtime.flower import replies
from fedforget.runtime.flower.replies import Answered, Refused, Reply, Taken, letter, parse, shown


@pytest.mark.parametrize(
    "reply", [Answered(b""), Answered(bytes(1000)), Taken(), Refused("OutOfOrderError", "later")]
)
def test_a_reply_comes_back(reply: Reply) -> None:
    assert parse({"letter": letter(reply)}) == reply


@pytest.mark.parametrize(
    "content",
    [
        None,
        7,
        {},
        {"letter": None},
        {"letter": {}},
        {"letter": {"refused": b"\xff"}},
        {"letter": {"reply": None}},
        {"letter": {"reply": "answered"}},
        {"letter": {"reply": b""}},
        {"letter": {"reply": b"\xc0"}},
        {"letter": {"reply": b"\x81\xa4type\xa8answered"}},
        {"letter": {"reply": b"\x82\xa4type\xa5taken\xa4more\x01"}},
        {"letter": {"reply": b"\x83\xa4type\xa7refused\xa5error\x07\xa4text\xa0"}},
        {"letter": {"reply": letter(Taken())["reply"] + b"\x00"}},
        {"letter": {"reply": b"\x91" * 100_000}},
    ],
)
def test_anything_else_is_refused_by_name(content: object) -> None:
    with pytest.raises(MalformedError):
        parse(content)


def test_a_reply_that_is_too_long_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "LONGEST_REPLY", 50)
    with pytest.raises(MalformedError, match="bytes"):
        parse({"letter": letter(Answered(bytes(51)))})


def test_texts_are_one_visible_line_of_500_characters_at_most() -> None:
    assert shown("a\nb\x1b[2J\u202e") == "a\\nb\\x1b[2J\\u202e"
    assert shown("\x00" * 10**6) == "\\x00" * 125
    assert len(shown("x" * 10**6)) == 500
