"""Writes vectors.json: keys, masks, shares, graphs, lists and messages, made by slow twins.

    python tests/protocol/make_vectors.py

Nothing is taken from the package or from a library of cryptography: HKDF is RFC 5869's over
``hmac``, ChaCha20 and Poly1305 are RFC 8439's, X25519 is RFC 7748's, Ed25519 is RFC 8032's, and
msgpack is written byte by byte.  The twins are first checked against the RFCs' own examples, which
are in the file as well.  Another implementation of the protocol can be checked against it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import random
import struct
import textwrap
from pathlib import Path
from typing import Any

TARGET = Path(__file__).with_name("vectors.json")
ABOUT = (
    "Bytes are in hexadecimal. digest(parts) is SHA-256 of the parts, each after its length in 8 "
    "little-endian bytes; digest of names is that of their UTF-8. 'published' holds examples of "
    "RFC 5869, 8439, 7748 and 8032. 'keys': HKDF-SHA256 without salt, info = 'fedforget/2 ' label "
    "00 digest(contexts). 'masks': ChaCha20's stream (counter and nonce zero) cut into "
    "little-endian 64-bit words, the low 62 bits of each, those below p = 29*2^57 + 1. 'sealed': "
    "ChaCha20-Poly1305, nonce zero. 'shares': Shamir modulo 2^256 + 297, little-endian, 33 bytes; "
    "coefficients from 48 random bytes each; a fingerprint is the first 16 bytes of SHA-256 of "
    "'fedforget share 2' 00 share. 'graphs': the circle is sorted by digest(attempt, name), and "
    "attempt is digest('circle', context, all names in order); neighbours are the degree/2 next "
    "ones on either side, or everybody. 'inputs': digest('input', msgpack [features, [[point, "
    "count], ...] sorted]). 'attempts': all that follows from two clients' random bytes, identity "
    "seeds and inputs in an attempt. 'memberships': digest('membership', msgpack of the list), the "
    "fingerprint that people compare, and the server's signature. 'links': what identifies a "
    "commit. 'consents' and 'leaves': what members sign. 'messages': [content, signature] in "
    "msgpack, content being ['message', context, sender, recipient, body], ['who', ...] or "
    "['present', ...], signed with Ed25519."
)
P = 29 * 2**57 + 1
SHAMIR = 2**256 + 297


# -- RFC 5869 ----------------------------------------------------------------------------------


def hkdf(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    key = hmac.digest(salt or bytes(32), secret, "sha256")
    out = block = b""
    counter = 1
    while len(out) < length:
        block = hmac.digest(key, block + info + bytes([counter]), "sha256")
        out += block
        counter += 1
    return out[:length]


# -- RFC 8439 ----------------------------------------------------------------------------------


def _quarter(s: list[int], a: int, b: int, c: int, d: int) -> None:
    for into, source, target, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        s[into] = (s[into] + s[source]) & 0xFFFFFFFF
        mixed = s[target] ^ s[into]
        s[target] = ((mixed << turn) | (mixed >> (32 - turn))) & 0xFFFFFFFF


def chacha20_block(key: bytes, counter: int, nonce: bytes) -> bytes:
    start = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key), counter]
    start += struct.unpack("<3I", nonce)
    s = list(start)
    for _ in range(10):
        for column in range(4):
            _quarter(s, column, column + 4, column + 8, column + 12)
        for i in range(4):
            _quarter(s, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return struct.pack(
        "<16I", *((one + other) & 0xFFFFFFFF for one, other in zip(s, start, strict=True))
    )


def chacha20(key: bytes, counter: int, nonce: bytes, data: bytes) -> bytes:
    out = bytearray()
    for at in range(0, len(data), 64):
        block = chacha20_block(key, counter + at // 64, nonce)
        out += bytes(x ^ y for x, y in zip(data[at : at + 64], block, strict=False))
    return bytes(out)


def poly1305(key: bytes, data: bytes) -> bytes:
    r = int.from_bytes(key[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    total = 0
    for at in range(0, len(data), 16):
        block = data[at : at + 16] + b"\1"
        total = (total + int.from_bytes(block, "little")) * r % (2**130 - 5)
    return ((total + int.from_bytes(key[16:], "little")) % 2**128).to_bytes(16, "little")


def aead(key: bytes, nonce: bytes, plaintext: bytes, associated: bytes) -> bytes:
    ciphertext = chacha20(key, 1, nonce, plaintext)
    padded = [part + bytes(-len(part) % 16) for part in (associated, ciphertext)]
    lengths = struct.pack("<QQ", len(associated), len(ciphertext))
    one_time = chacha20_block(key, 0, nonce)[:32]
    return ciphertext + poly1305(one_time, b"".join(padded) + lengths)


# -- RFC 7748 and RFC 8032 ---------------------------------------------------------------------

Q = 2**255 - 19


def x25519(private: bytes, u: bytes) -> bytes:
    k = bytearray(private)
    k[0] &= 248
    k[31] = k[31] & 127 | 64
    scalar = int.from_bytes(k, "little")
    x1 = (int.from_bytes(u, "little") & (2**255 - 1)) % Q
    x2, z2, x3, z3, swap = 1, 0, x1, 1, 0
    for t in reversed(range(255)):
        bit = scalar >> t & 1
        if swap ^ bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swap = bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        aa, bb, da, cb = a * a % Q, b * b % Q, d * a % Q, c * b % Q
        x3, z3 = (da + cb) ** 2 % Q, x1 * (da - cb) ** 2 % Q
        e = aa - bb
        x2, z2 = aa * bb % Q, e * (aa + 121665 * e) % Q
    if swap:
        x2, z2 = x3, z3
    return (x2 * pow(z2, Q - 2, Q) % Q).to_bytes(32, "little")


BASE = (9).to_bytes(32, "little")
D = -121665 * pow(121666, Q - 2, Q) % Q
ORDER = 2**252 + 27742317777372353535851937790883648493
Point = tuple[int, int]


def _root(square: int) -> int:
    x = pow(square, (Q + 3) // 8, Q)
    return x if x * x % Q == square % Q else x * pow(2, (Q - 1) // 4, Q) % Q


_Y = 4 * pow(5, Q - 2, Q) % Q
_X = _root((_Y * _Y - 1) * pow(D * _Y * _Y + 1, Q - 2, Q))
GENERATOR: Point = (_X if _X % 2 == 0 else Q - _X, _Y)


def _sum(one: Point, other: Point) -> Point:
    (x1, y1), (x2, y2) = one, other
    product = D * x1 * x2 * y1 * y2 % Q
    return (
        (x1 * y2 + x2 * y1) * pow(1 + product, Q - 2, Q) % Q,
        (y1 * y2 + x1 * x2) * pow(1 - product, Q - 2, Q) % Q,
    )


def _times(scalar: int, point: Point) -> Point:
    out: Point = (0, 1)
    while scalar:
        if scalar & 1:
            out = _sum(out, point)
        point = _sum(point, point)
        scalar >>= 1
    return out


def _encoded(point: Point) -> bytes:
    return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")


def ed25519(seed: bytes, message: bytes) -> tuple[bytes, bytes]:
    """The public key, and the signature."""
    digest = hashlib.sha512(seed).digest()
    secret = int.from_bytes(digest[:32], "little") & (2**254 - 8) | 2**254
    public = _encoded(_times(secret, GENERATOR))
    r = int.from_bytes(hashlib.sha512(digest[32:] + message).digest(), "little") % ORDER
    commitment = _encoded(_times(r, GENERATOR))
    challenge = hashlib.sha512(commitment + public + message).digest()
    s = (r + int.from_bytes(challenge, "little") * secret) % ORDER
    return public, commitment + s.to_bytes(32, "little")


# -- msgpack -----------------------------------------------------------------------------------


def msgpack(value: Any) -> bytes:
    """The shortest form of each value, which is what the package writes."""
    match value:
        case None:
            return b"\xc0"
        case bool():
            return b"\xc3" if value else b"\xc2"
        case int() if value < 2**7:
            return bytes([value])
        case int():
            for code, size in ((0xCC, 1), (0xCD, 2), (0xCE, 4), (0xCF, 8)):
                if value < 256**size:
                    return bytes([code]) + value.to_bytes(size, "big")
        case str():
            data = value.encode()
            if len(data) < 32:
                return bytes([0xA0 | len(data)]) + data
            return _counted((0xD9, 0xDA, 0xDB), len(data)) + data
        case bytes():
            return _counted((0xC4, 0xC5, 0xC6), len(value)) + value
        case list():
            parts = b"".join(map(msgpack, value))
            if len(value) < 16:
                return bytes([0x90 | len(value)]) + parts
            return _counted((None, 0xDC, 0xDD), len(value)) + parts
    raise TypeError(value)


def _counted(codes: tuple[int | None, int, int], length: int) -> bytes:
    for code, size in zip(codes, (1, 2, 4), strict=True):
        if code is not None and length < 256**size:
            return bytes([code]) + length.to_bytes(size, "big")
    raise ValueError(length)


# -- the protocol ------------------------------------------------------------------------------


def digest_of(*parts: bytes) -> bytes:
    return hashlib.sha256(
        b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    ).digest()


def digest_of_names(names: list[str]) -> bytes:
    return digest_of(*(name.encode() for name in names))


def derive(secret: bytes, label: str, *contexts: bytes) -> bytes:
    info = b"fedforget/2 " + label.encode() + b"\0" + digest_of(*contexts)
    return hkdf(secret, b"", info, 32)


def mask(key: bytes, length: int) -> list[int]:
    elements: list[int] = []
    counter = 0
    while len(elements) < length:
        words = struct.unpack("<8Q", chacha20_block(key, counter, bytes(12)))
        elements += [word % 2**62 for word in words if word % 2**62 < P]
        counter += 1
    return elements[:length]


def split(secret: bytes, holders: list[int], threshold: int, randomness: list[bytes]) -> list[str]:
    coefficients = [secret, *randomness[: threshold - 1]]
    numbers = [int.from_bytes(data, "little") % SHAMIR for data in coefficients]
    values = [sum(c * x**i for i, c in enumerate(numbers)) % SHAMIR for x in holders]
    return [value.to_bytes(33, "little").hex() for value in values]


def circle_of(context: bytes, names: list[str]) -> list[str]:
    """In the order of a digest that depends on all of them."""
    attempt = digest_of(b"circle", context, *(name.encode() for name in names))
    return sorted(names, key=lambda name: digest_of(attempt, name.encode()))


def neighbours(circle: list[str], degree: int) -> dict[str, list[str]]:
    """By distance on the circle, not by steps along it."""
    n = len(circle)
    found = {}
    for i, name in enumerate(circle):
        near = [
            other for j, other in enumerate(circle)
            if i != j and 2 * min((i - j) % n, (j - i) % n) <= degree
        ]  # fmt: skip
        found[name] = sorted(near if degree < n - 1 else set(circle) - {name})
    return found


def fingerprint(share: bytes) -> bytes:
    return hashlib.sha256(b"fedforget share 2\0" + share).digest()[:16]


def context_fields(rng: random.Random) -> list[Any]:
    leaving = rng.choice([[], ["a", "b", "ö"]])
    return [
        rng.randbytes(16),
        rng.randbytes(32),
        rng.randbytes(32),
        rng.randrange(1, 300),
        rng.randbytes(32),
        rng.randrange(1, 2**20),
        rng.randbytes(32),
        rng.randrange(1, 2**40),
        rng.randrange(1, 2**20),
        rng.choice(["full", "delta"]),
        rng.randrange(1, 70_000),
        rng.randbytes(rng.choice([0, 16, 64])),
        leaving,
        leaving[1:2],
        2,
    ]


def attempt_digest(context: list[Any]) -> bytes:
    return digest_of(b"attempt", msgpack(context))


def signed(content: list[Any], seed: bytes) -> dict[str, Any]:
    data = msgpack(content)
    public, signature = ed25519(seed, b"fedforget message 2\0" + data)
    return {
        "content": hexed(content),
        "seed": seed.hex(),
        "public": public.hex(),
        "data": msgpack([data, signature]).hex(),
    }


def hexed(value: Any) -> Any:
    """Lists as they are, bytes marked and in hexadecimal."""
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    return [hexed(one) for one in value] if isinstance(value, list) else value


def contents(rng: random.Random) -> list[list[Any]]:
    names = ["Ärzte am Zoo", "b", "c" * 40]
    client, server = names[0], ""

    def pairs(size: int, some: list[str]) -> list[Any]:
        return [[name, rng.randbytes(size)] for name in some]

    def dealt(some: list[str]) -> list[Any]:
        return [[name, *map(rng.randbytes, (82, 16, 16))] for name in some]

    leavers = [[names[0], False, rng.randbytes(64)], [names[1], True, rng.randbytes(64)]]
    notice = [
        "notice", names[:2], names[1:2], [[names[0], 7], [names[2], 2**33]], rng.randbytes(32),
        rng.randbytes(32), 1_700_000_000, pairs(64, names),
    ]  # fmt: skip
    messages: list[tuple[str, str, list[Any]]] = [
        (server, client, ["open", [], []]),
        (server, client, ["open", [rng.randbytes(300), rng.randbytes(5)], leavers]),
        (client, server, ["advertise", rng.randbytes(32), rng.randbytes(32)]),
        (server, client, ["roster", names, [rng.randbytes(200), rng.randbytes(70)]]),
        (client, server, ["shares", dealt(names[1:]), rng.randbytes(16), rng.randbytes(32)]),
        (server, client, ["delivery", [f"m{i:02}" for i in range(17)], dealt(names[1:])]),
        (client, server, ["masked", rng.randbytes(400), names[1:2], rng.randbytes(32)]),
        (server, client, ["survivors", names[:2], names[2:]]),
        (client, server, ["consent", rng.randbytes(64)]),
        (server, client, ["unmask", pairs(64, names[1:])]),
        (client, server, ["reveal", pairs(33, names), []]),
        (server, "*", notice),
    ]
    found = [
        ["message", context_fields(rng), sender, recipient, body]
        for sender, recipient, body in messages
    ]
    found.append(
        ["who", rng.randbytes(16), rng.randbytes(32), rng.randbytes(16), 3, rng.randrange(2**40)]
    )
    return found + [
        [
            "present", rng.randbytes(16), rng.randbytes(16), client, rng.randbytes(32), 3, 70,
            rng.randbytes(32), 2**52, leaving is None, leaving, [rng.randbytes(9)], [],
            None if leaving is None else [rng.randbytes(32), ["a", "b"], ["b"]],
        ]
        for leaving in (None, leavers[0])
    ]  # fmt: skip


def view_of(roster: list[str], sharers: list[str], dead: list[str]) -> bytes:
    return digest_of(b"view", *map(digest_of_names, (roster, sharers, dead)))


def consent(rng: random.Random, alive: list[str], dead: list[str]) -> dict[str, Any]:
    context = context_fields(rng)
    sharers = sorted(alive + dead)
    roster = sorted([*sharers, "never shared"])
    view = view_of(roster, sharers, dead)
    data = b"fedforget survivors 2\0" + digest_of(
        attempt_digest(context), digest_of_names(alive), view
    )
    return {
        "context": hexed(context),
        "roster": roster,
        "sharers": sharers,
        "alive": alive,
        "dead": dead,
        "view": view.hex(),
        "signed": data.hex(),
    }


def leave(rng: random.Random, name: str, alone: bool) -> dict[str, Any]:
    federation, membership, link = (rng.randbytes(size) for size in (16, 32, 32))
    parts = (federation, membership, link, name.encode(), bytes([alone]))
    return {
        "federation": federation.hex(),
        "membership": membership.hex(),
        "link": link.hex(),
        "name": name,
        "alone": alone,
        "signed": (b"fedforget leave 2\0" + digest_of(*parts)).hex(),
    }


def link(rng: random.Random, survivors: list[str], left: list[str]) -> dict[str, Any]:
    context = context_fields(rng)
    federation, configuration, membership, _, last, _, _, number, *_ = context
    counted = [[name, number] for name in survivors if name not in left] + [["z", 3]]
    lists = msgpack([survivors, left, counted])
    rounds = number.to_bytes(8, "little")
    parts = (b"link", federation, configuration, membership, last, rounds, lists)
    return {
        "context": hexed(context),
        "survivors": survivors,
        "left": left,
        "counted": counted,
        "link": digest_of(*parts).hex(),
    }


def membership(rng: random.Random, names: list[str], suspended: list[str]) -> dict[str, Any]:
    keys = {name: ed25519(rng.randbytes(32), b"")[0] for name in names}
    epoch = rng.randrange(3, 300)
    since = {name: rng.randrange(1, epoch + 1) for name in names} | {names[1]: epoch}
    listed = [
        rng.randbytes(16),
        epoch,
        rng.randbytes(32),
        rng.randbytes(32),
        rng.randrange(2**40),
        sorted([*suspended, "gone"]),
        [["gone", rng.randrange(1, epoch + 1)]],
        sorted(["back", names[1]]),
        [["gone", names[0]] if names[0] > "gone" else [names[0], "gone"], [names[1]]],
        [[name, keys[name], name in suspended, since[name]] for name in names],
        rng.randrange(1, 70_000),
    ]
    digest = digest_of(b"membership", msgpack(listed))
    slow = hashlib.scrypt(digest, salt=b"fedforget fingerprint 2", n=4096, r=8, p=1, dklen=16)
    digits = str(int.from_bytes(slow, "big") % 10**30).rjust(30, "0")
    seed = rng.randbytes(32)
    public, signature = ed25519(seed, b"fedforget membership 2\0" + digest)
    return {
        "list": hexed(listed),
        "digest": digest.hex(),
        "fingerprint": " ".join(textwrap.wrap(digits, 5)),
        "seed": seed.hex(),
        "public": public.hex(),
        "data": msgpack([listed, signature]).hex(),
    }


def histogram(rng: random.Random, size: int) -> dict[str, Any]:
    """Points of two features as pairs of big-endian 64-bit numbers."""
    points = [[rng.randrange(50), rng.randrange(-3, 50)] for _ in range(size)]
    counts = [rng.randrange(1, 2**40) for _ in points]
    entries = sorted(
        [struct.pack(">2q", *point), count] for point, count in zip(points, counts, strict=True)
    )
    found = digest_of(b"input", msgpack([2, entries])).hex()
    return {"points": points, "counts": counts, "digest": found}


def secrets(rng: random.Random, name: str, context: bytes, roster: list[str]) -> dict[str, Any]:
    """Everything secret that one client derives."""
    randomness, identity, plain_input = (rng.randbytes(32) for _ in range(3))
    root = derive(randomness + identity, "attempt", context, plain_input)
    sharing, masking = derive(root, "sharing key"), derive(root, "masking key")
    listed = digest_of_names(roster)
    stream = chacha20(derive(root, "coefficients", listed), 0, bytes(12), bytes(96))
    return {
        "name": name,
        "randomness": randomness.hex(),
        "identity": identity.hex(),
        "input": plain_input.hex(),
        "sharing private": sharing.hex(),
        "sharing public": x25519(sharing, BASE).hex(),
        "masking private": masking.hex(),
        "masking public": x25519(masking, BASE).hex(),
        "seed": derive(root, "seed", listed).hex(),
        "coefficients": [stream[:48].hex(), stream[48:].hex()],
        "sample": derive(root, "sample", b"message").hex(),
    }


def attempt(rng: random.Random) -> dict[str, Any]:
    """Two clients' secrets in one attempt, from their random bytes to masks and sealed shares."""
    context = context_fields(rng)
    bound = attempt_digest(context)
    names = ["client two", "client one"]
    roster = sorted([*names, "client three", "client four"])
    sharers = sorted([*names, "client four"])
    one, other = (secrets(rng, name, bound, roster) for name in names)

    def shared(kind: str) -> bytes:
        private, public = (
            bytes.fromhex(one[f"{kind} private"]),
            bytes.fromhex(other[f"{kind} public"]),
        )
        return x25519(private, public)

    view = digest_of(b"view", bound, digest_of_names(roster), digest_of_names(sharers))
    first, second = sorted(names)
    key = derive(shared("masking"), "pair mask", view, first.encode(), second.encode())
    elements = mask(key, 20)
    own = derive(bytes.fromhex(one["seed"]), "self mask", view, names[0].encode())
    listed = digest_of_names(roster)
    pair = digest_of(b"pair", bound, listed, names[0].encode(), names[1].encode())
    plaintext = rng.randbytes(66)
    hashes = fingerprint(plaintext[:33]) + fingerprint(plaintext[33:])
    sealed = aead(derive(shared("sharing"), "shares", pair), bytes(12), plaintext, pair + hashes)
    return {
        "context": hexed(context),
        "context digest": bound.hex(),
        "roster": roster,
        "sharers": sharers,
        "clients": [one, other],
        "masking secret": shared("masking").hex(),
        "sharing secret": shared("sharing").hex(),
        "view": view.hex(),
        "pair mask of the first": [-x % P for x in elements] if names[0] != first else elements,
        "self-mask of the first": mask(own, 20),
        "shares from first to second": plaintext.hex(),
        "associated": (pair + hashes).hex(),
        "sealed from first to second": sealed.hex(),
        "seed digest of the first": digest_of(b"seed", bytes.fromhex(one["seed"])).hex(),
    }


# -- published examples ------------------------------------------------------------------------

SUNSCREEN = (
    "Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, "
    "sunscreen would be it."
)
PUBLISHED: dict[str, list[dict[str, Any]]] = {
    "RFC 5869": [
        {
            "secret": "0b" * 22,
            "salt": "000102030405060708090a0b0c",
            "info": "f0f1f2f3f4f5f6f7f8f9",
            "output": "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"
            "34007208d5b887185865",
        },
        {
            "secret": "0b" * 22,
            "salt": "",
            "info": "",
            "output": "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"
            "9d201395faa4b61a96c8",
        },
    ],
    "RFC 8439 block": [
        {
            "key": bytes(range(32)).hex(),
            "counter": 1,
            "nonce": "000000090000004a00000000",
            "output": "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
            "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e",
        },
        {
            "key": "00" * 32,
            "counter": 0,
            "nonce": "00" * 12,
            "output": "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
            "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586",
        },
    ],
    "RFC 8439 AEAD": [
        {
            "key": bytes(range(0x80, 0xA0)).hex(),
            "nonce": "070000004041424344454647",
            "plaintext": SUNSCREEN.encode().hex(),
            "associated": "50515253c0c1c2c3c4c5c6c7",
            "output": "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d6"
            "3dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b36"
            "92ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc"
            "3ff4def08e4b7a9de576d26586cec64b6116"
            "1ae10b594f09e26a7e902ecbd0600691",
        },
    ],
    "RFC 7748": [
        {
            "private": "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
            "public": "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
            "output": "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
        },
        {
            "private": "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
            "public": "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a",
            "output": "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742",
        },
    ],
    "RFC 8032": [
        {
            "seed": "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
            "public": "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            "message": "",
            "signature": "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555f"
            "b8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
        },
        {
            "seed": "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
            "public": "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
            "message": "72",
            "signature": "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da08"
            "5ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
        },
    ],
}


def check_twins() -> None:
    def raw(case: dict[str, Any], *names: str) -> list[Any]:
        return [
            bytes.fromhex(case[name]) if isinstance(case[name], str) else case[name]
            for name in names
        ]

    for case in PUBLISHED["RFC 5869"]:
        assert hkdf(*raw(case, "secret", "salt", "info"), 42).hex() == case["output"]
    for case in PUBLISHED["RFC 8439 block"]:
        assert chacha20_block(*raw(case, "key", "counter", "nonce")).hex() == case["output"]
    for case in PUBLISHED["RFC 8439 AEAD"]:
        parts = raw(case, "key", "nonce", "plaintext", "associated")
        assert aead(*parts).hex() == case["output"]
    for case in PUBLISHED["RFC 7748"]:
        assert x25519(*raw(case, "private", "public")).hex() == case["output"]
    for case in PUBLISHED["RFC 8032"]:
        public, signature = ed25519(*raw(case, "seed", "message"))
        assert (public.hex(), signature.hex()) == (case["public"], case["signature"])


def vectors(rng: random.Random) -> dict[str, Any]:
    keys = []
    for label in ("shares", "self mask", "pair mask"):
        for sizes in ((), (0,), (32,), (32, 5)):
            secret, contexts = rng.randbytes(32), [rng.randbytes(size) for size in sizes]
            keys.append(
                {
                    "secret": secret.hex(),
                    "label": label,
                    "contexts": [one.hex() for one in contexts],
                    "key": derive(secret, label, *contexts).hex(),
                }
            )
    masks = []
    for length in (0, 1, 7, 200):
        key = rng.randbytes(32)
        masks.append({"key": key.hex(), "elements": mask(key, length)})
    sealed = []
    for size in (0, 1, 66):
        key, plaintext, associated = rng.randbytes(32), rng.randbytes(size), rng.randbytes(32)
        sealed.append(
            {
                "key": key.hex(),
                "plaintext": plaintext.hex(),
                "associated": associated.hex(),
                "ciphertext": aead(key, bytes(12), plaintext, associated).hex(),
            }
        )
    shares = []
    plain = [bytes(32), b"\xff" * 32, rng.randbytes(32), rng.randbytes(32)]
    for threshold, secret in zip((1, 2, 5, 12), plain, strict=True):
        holders = sorted(rng.sample(range(1, 1000), threshold + 3))
        randomness = [rng.randbytes(48) for _ in range(threshold - 1)]
        values = split(secret, holders, threshold, randomness)
        shares.append(
            {
                "secret": secret.hex(),
                "threshold": threshold,
                "holders": holders,
                "randomness": [data.hex() for data in randomness],
                "shares": values,
                "fingerprints": [fingerprint(bytes.fromhex(one)).hex() for one in values],
            }
        )
    graphs = []
    for n, degree in ((1, 0), (2, 1), (7, 6), (33, 4), (40, 10)):
        context = rng.randbytes(32)
        names = sorted({f"client {rng.randrange(10**6)}" for _ in range(n)})
        circle = circle_of(context, names)
        graphs.append(
            {
                "context": context.hex(),
                "participants": names,
                "degree": degree,
                "circle": circle,
                "neighbours": neighbours(circle, degree),
            }
        )
    return {
        "keys": keys,
        "masks": masks,
        "sealed": sealed,
        "shares": shares,
        "graphs": graphs,
        "inputs": [histogram(rng, size) for size in (0, 1, 20)],
        "attempts": [attempt(rng) for _ in range(2)],
        "memberships": [
            membership(rng, ["a", "b", "Ärzte"], []),
            membership(rng, [f"m{i:02}" for i in range(17)], ["m03", "m11"]),
        ],
        "messages": [signed(content, rng.randbytes(32)) for content in contents(rng)],
        "consents": [consent(rng, ["a", "b"], ["c"]), consent(rng, ["a", "bc"], [])],
        "leaves": [leave(rng, "a", False), leave(rng, "a", True), leave(rng, "Ärzte", False)],
        "links": [link(rng, ["a", "b"], ["b"]), link(rng, ["a", "bc"], [])],
    }


def main() -> None:
    check_twins()
    found = {"about": ABOUT, "published": PUBLISHED, **vectors(random.Random(5869))}
    TARGET.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
