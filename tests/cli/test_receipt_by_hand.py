"""docs/receipt.md, followed to the letter with none of our code."""

from __future__ import annotations

import hashlib
import json
import tomllib
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from test_operations import TOWNS, Study

pack, unpack = msgspec.msgpack.encode, msgspec.msgpack.decode


def digest(*parts: bytes) -> bytes:
    """H of the page."""
    return hashlib.sha256(b"".join(len(p).to_bytes(8, "little") + p for p in parts)).digest()


def check(key: str | bytes, signature: str | bytes, message: bytes) -> None:
    key, signature = (bytes.fromhex(o) if isinstance(o, str) else o for o in (key, signature))
    Ed25519PublicKey.from_public_bytes(key).verify(signature, message)


def list_digest(listed: dict[str, Any]) -> bytes:
    h = bytes.fromhex
    members = [
        [one["name"], h(one["key"]), one["suspended"], one["since"]] for one in listed["members"]
    ]
    plain = [
        h(listed["federation"]),
        listed["epoch"],
        h(listed["previous"]),
        h(listed["after"]),
        listed["after_round"],
        listed["counted"],
        sorted(listed["dropped"].items()),
        listed["former"],
        listed["parted"],
        members,
        listed["capacity"],
    ]
    return digest(b"membership", pack(plain))


def notice_of(data: str, server: str) -> tuple[list[Any], list[Any]]:
    payload, signature = unpack(bytes.fromhex(data))
    check(server, signature, b"fedforget message 2\0" + payload)
    tag, context, sender, recipient, body = unpack(payload)
    assert (tag, sender, recipient, body[0]) == ("message", "", "*", "notice")
    return context, body[1:]


def link_of(context: list[Any], body: list[Any]) -> bytes:
    round_bytes = context[7].to_bytes(8, "little")
    return digest(b"link", *context[:3], context[4], round_bytes, pack(body[:3]))


@pytest.mark.parametrize("kind", ["delta", "full"])
@pytest.mark.parametrize("version", [2, 3])
def test_a_receipt_is_checked_as_the_page_says(kind: str, version: int, tmp_path: Path) -> None:
    study = Study(tmp_path).set_up()
    more = ["B-1", "--ignore-missing"] if version == 3 else []
    given = [part for one in ("A-1", "A-2") for part in ("--ids", one)]
    given += ["--ids", *more] if more else []
    done = study("client", "forget", "aarhus", *given, "--yes")
    towns = TOWNS if kind == "full" else TOWNS[:3]
    study.round(*(["--full"] if kind == "full" else []), towns=towns)
    path = study("client", "receipts", "aarhus", "-o", "receipts")["files"][0]["file"]
    receipt = json.loads((tmp_path / path).read_text(encoding="utf-8"))
    file = tomllib.loads((tmp_path / "server/federation.toml").read_text(encoding="utf-8"))
    by_hand(receipt, file)
    assert receipt["version"] == version
    assert receipt["request"].get("not_held") == (1 if version == 3 else None)
    salt = bytes.fromhex(done["salt"])
    assert (
        sorted(
            hashlib.sha256(b"fedforget request 1\0" + salt + b"s" + one).hexdigest()
            for one in (b"A-1", b"A-2")
        )
        == receipt["request"]["digests"]
    )


def by_hand(receipt: dict[str, Any], file: dict[str, Any]) -> None:
    server = file["server_key"]
    listed = receipt["membership"]
    found = list_digest(listed)
    check(server, listed["signature"], b"fedforget membership 2\0" + found)
    slow = hashlib.scrypt(found, salt=b"fedforget fingerprint 2", n=4096, r=8, p=1, dklen=16)
    digits = f"{int.from_bytes(slow, 'big') % 10**30:030}"
    assert listed["fingerprint"].replace(" ", "") == digits
    keys = {one["name"]: one["key"] for one in listed["members"]}

    context, body = notice_of(receipt["notice_after"], server)
    before_context, before = notice_of(receipt["notice_before"], server)
    for one in (context, before_context):
        assert one[1].hex() == receipt["configuration"]
    assert (context[2], context[7]) == (found, receipt["round"])
    survivors, left, counted, view = body[:4]
    assert receipt["client"] in survivors
    assert link_of(before_context, before) == context[4]

    attempt = digest(b"attempt", pack(context))
    signed = digest(attempt, digest(*(name.encode() for name in survivors)), view)
    for name, signature in body[6]:
        check(keys[name], signature, b"fedforget survivors 2\0" + signed)
    n = len(keys)
    c = max(1, ceil(Fraction(str(file["protocol"]["colluding"])) * n))
    known = {name for name, _ in before[2]} & set(keys)
    m = n if context[9] == "full" else len(known)
    agreed = {name for name, _ in body[6] if context[9] == "full" or name in known}
    assert len(agreed) >= (m + c) // 2 + 1
    assert (left, len(counted)) == ([], n)

    plain = {key: value for key, value in receipt.items() if key != "client_signature"}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert ("not_held" in receipt["request"]) == (receipt["version"] == 3)
    statement = f"fedforget receipt {receipt['version']}\0".encode() + text.encode()
    check(keys[receipt["client"]], receipt["client_signature"], statement)
