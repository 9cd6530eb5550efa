"""Keys and masks: published vectors, how masked vectors look, and that no secret shows anywhere."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable
from functools import cache
from itertools import combinations, pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from scipy import stats

from fedforget.protocol.client_ledger import digest_of_input
from fedforget.protocol.client_stages import Advertised, Consented, Revealed, Sent, Shared
from fedforget.protocol.errors import (
    BadKeyError,
    BadShareError,
    BadSignatureError,
    ProtocolError,
)
from fedforget.protocol.graph import Policy
from fedforget.protocol.keys import (
    Agreement,
    AgreementKey,
    Entropy,
    Identity,
    OneTimeKey,
    PublicKey,
    derive,
    digest_of,
    digest_of_names,
)
from fedforget.protocol.masks import (
    AttemptSecrets,
    View,
    expand,
    pair_mask,
    self_mask,
    share_key,
)
from fedforget.protocol.membership import SERVER
from fedforget.protocol.messages import Context, Letter
from fedforget.protocol.shares import SHARE_BYTES, fingerprint
from fedforget.scma import PRIME, Elements, add
from parties import ANSWERED, Everyone, Stage, body_of, histogram

VECTORS = json.loads(Path(__file__).with_name("vectors.json").read_text())
PUBLISHED = VECTORS["published"]


def raw(case: dict[str, Any], *names: str) -> list[bytes]:
    return [bytes.fromhex(case[name]) for name in names]


def plain(value: Any) -> Any:
    """A value of the vectors' file as the package holds it."""
    if isinstance(value, dict):
        return bytes.fromhex(value["hex"])
    return tuple(map(plain, value)) if isinstance(value, list) else value


def context_of(case: dict[str, Any]) -> Context:
    return Context(*plain(case["context"]))


# -- vectors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", PUBLISHED["RFC 5869"], ids=[1, 3])
def test_hkdf_is_the_published_one(case: dict[str, Any]) -> None:
    secret, salt, info, output = raw(case, "secret", "salt", "info", "output")
    found = HKDF(algorithm=SHA256(), length=len(output), salt=salt or None, info=info)
    assert found.derive(secret) == output


@pytest.mark.parametrize("case", PUBLISHED["RFC 8439 block"], ids=["2.3.2", "A.1"])
def test_chacha20_is_the_published_one(case: dict[str, Any]) -> None:
    key, nonce, output = raw(case, "key", "nonce", "output")
    start = case["counter"].to_bytes(4, "little") + nonce
    stream = Cipher(ChaCha20(key, start), mode=None).encryptor()
    assert stream.update(bytes(64)) == output


def test_masks_begin_where_the_published_stream_does() -> None:
    case = PUBLISHED["RFC 8439 block"][1]
    words = np.frombuffer(bytes.fromhex(case["output"]), dtype="<u8") % 2**62
    below = words[words < PRIME]
    assert expand(bytes(32), below.size).tolist() == below.tolist()


def test_the_aead_is_the_published_one() -> None:
    case = PUBLISHED["RFC 8439 AEAD"][0]
    key, nonce, plaintext, associated, output = raw(
        case, "key", "nonce", "plaintext", "associated", "output"
    )
    assert ChaCha20Poly1305(key).encrypt(nonce, plaintext, associated) == output


@pytest.mark.parametrize("case", PUBLISHED["RFC 7748"], ids=["5.2", "6.1"])
def test_x25519_is_the_published_one(case: dict[str, Any]) -> None:
    private, public, output = raw(case, "private", "public", "output")
    assert Agreement(private).with_peer(AgreementKey(public)) == output


@pytest.mark.parametrize("case", PUBLISHED["RFC 8032"], ids=[1, 2])
def test_ed25519_is_the_published_one(case: dict[str, Any]) -> None:
    seed, public, message, signature = raw(case, "seed", "public", "message", "signature")
    identity = Identity(seed)
    assert (identity.public.data, identity.sign(message)) == (public, signature)
    key = PublicKey(public)
    key.verify(signature, message)
    for wrong, said in (
        (signature, message + b"\0"),
        (bytes(64), message),
        (signature[:-1], message),
        (b"", message),
    ):
        with pytest.raises(BadSignatureError):
            key.verify(wrong, said)
    with pytest.raises(BadKeyError):
        PublicKey(bytes(31))


@pytest.mark.parametrize("case", VECTORS["keys"], ids=lambda case: case["label"])
def test_derived_keys_are_the_twin_s(case: dict[str, Any]) -> None:
    secret, key = raw(case, "secret", "key")
    contexts = [bytes.fromhex(one) for one in case["contexts"]]
    assert derive(secret, case["label"], *contexts) == key


def test_contexts_have_lengths() -> None:
    """What is one context and what is the next cannot be moved."""
    parts: list[tuple[bytes, ...]] = [
        (b"ab",),
        (b"a", b"b"),
        (b"", b"ab"),
        (b"ab", b""),
        (),
        (b"",),
    ]
    assert len({derive(bytes(32), "label", *one) for one in parts}) == len(parts)
    assert derive(bytes(32), "label\0", b"") != derive(bytes(32), "label", b"")


@pytest.mark.parametrize("case", VECTORS["masks"], ids=lambda case: len(case["elements"]))
def test_masks_are_the_twin_s(case: dict[str, Any]) -> None:
    found = expand(bytes.fromhex(case["key"]), len(case["elements"]))
    assert found.dtype == np.uint64
    assert found.tolist() == case["elements"]


@pytest.mark.parametrize("case", VECTORS["sealed"], ids=lambda case: len(case["plaintext"]) // 2)
def test_sealed_shares_are_the_twin_s(case: dict[str, Any]) -> None:
    key, plaintext, associated, ciphertext = raw(
        case, "key", "plaintext", "associated", "ciphertext"
    )
    one_time = OneTimeKey(key)
    assert one_time.encrypt(plaintext, associated) == ciphertext
    assert one_time.decrypt(ciphertext, associated) == plaintext
    for wrong in (ciphertext[:-1], ciphertext + b"\0", b"", bytes(len(ciphertext))):
        with pytest.raises(BadShareError):
            one_time.decrypt(wrong, associated)
    with pytest.raises(BadShareError):
        one_time.decrypt(ciphertext, associated + b"\0")
    with pytest.raises(RuntimeError):
        one_time.encrypt(plaintext, associated)


@pytest.mark.parametrize("case", VECTORS["inputs"], ids=lambda case: len(case["points"]))
def test_digests_of_inputs_are_the_twin_s(case: dict[str, Any]) -> None:
    entries = zip(map(tuple, case["points"]), case["counts"], strict=True)
    assert digest_of_input(histogram(*entries)).hex() == case["digest"]


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("case", VECTORS["attempts"], ids=[0, 1])
def test_what_a_client_derives_is_the_twin_s(case: dict[str, Any], at: int) -> None:
    one, roster = case["clients"][at], tuple(case["roster"])
    context = context_of(case)
    assert context.digest.hex() == case["context digest"]
    randomness, identity, plain_input = raw(one, "randomness", "identity", "input")
    secrets = AttemptSecrets(randomness, Identity(identity), context.digest, plain_input)
    assert secrets.sharing.private.hex() == one["sharing private"]
    assert secrets.sharing.public.data.hex() == one["sharing public"]
    assert secrets.masking.private.hex() == one["masking private"]
    assert secrets.masking.public.data.hex() == one["masking public"]
    assert secrets.seed(roster).hex() == one["seed"]
    coefficients = secrets.coefficients(roster)
    assert [coefficients(48).hex(), coefficients(48).hex()] == one["coefficients"]
    assert secrets.draw("sample", b"message").hex() == one["sample"]


@pytest.mark.parametrize("case", VECTORS["attempts"], ids=[0, 1])
def test_the_secrets_of_an_attempt_are_the_twin_s(case: dict[str, Any]) -> None:
    context, clients = context_of(case), case["clients"]
    one, other = (client["name"] for client in clients)
    for kind in ("sharing", "masking"):
        first, second = (Agreement(*raw(client, f"{kind} private")) for client in clients)
        assert first.with_peer(second.public) == second.with_peer(first.public)
        assert first.with_peer(second.public).hex() == case[f"{kind} secret"]
    masking, sharing, plaintext, associated, sealed = raw(
        case,
        "masking secret",
        "sharing secret",
        "shares from first to second",
        "associated",
        "sealed from first to second",
    )
    view = View(context.digest, tuple(case["roster"]), tuple(case["sharers"]))
    assert view.digest.hex() == case["view"]
    expected = case["pair mask of the first"]
    assert pair_mask(masking, view, one, other, 20).tolist() == expected
    opposite = pair_mask(masking, view, other, one, 20)
    assert add(opposite, np.array(expected, dtype=np.uint64)).tolist() == [0] * 20
    (seed,) = raw(clients[0], "seed")
    assert self_mask(seed, view, one, 20).tolist() == case["self-mask of the first"]
    assert digest_of(b"seed", seed).hex() == case["seed digest of the first"]
    listed = digest_of_names(view.roster)
    key, pair = share_key(sharing, context.digest, listed, one, other)
    hashes = b"".join(fingerprint(plaintext[i : i + SHARE_BYTES]) for i in (0, SHARE_BYTES))
    assert pair + hashes == associated
    assert key.encrypt(plaintext, associated) == sealed


def test_every_use_of_a_secret_has_a_key_of_its_own() -> None:
    """Another attempt, roster, sharer, pair or direction, and nothing is the same."""
    digests = [context_of(case).digest for case in VECTORS["attempts"]]
    rosters = [("a", "b"), ("a", "b", "c"), ("ab",)]
    secret = bytes(32)
    found = [
        share_key(secret, c, digest_of_names(roster), a, b)[0].encrypt(bytes(40), b"")
        for c in digests
        for roster in rosters
        for a, b in ("ab", "ba")
    ]
    for view in (View(c, r, s) for c in digests for r in rosters for s in rosters):
        found += [self_mask(secret, view, name, 4).tobytes() for name in "ab"]
        found.append(pair_mask(secret, view, "a", "b", 4).tobytes())
    assert len(set(found)) == len(found)


def all_secrets(secrets: AttemptSecrets, roster: tuple[str, ...]) -> list[bytes]:
    return [
        secrets.sharing.private,
        secrets.masking.private,
        secrets.seed(roster),
        secrets.coefficients(roster)(32),
        secrets.draw("sample", b""),
    ]


def test_nothing_is_shared_by_two_attempts_inputs_clients_or_draws() -> None:
    """Whoever repeats its random bytes with anything else has unrelated secrets."""
    identities = [Identity(bytes([i]) * 32) for i in (1, 2)]
    randomness, digests = [bytes([i]) * 32 for i in (3, 4)], [bytes([i]) * 32 for i in (5, 6)]
    roster = ("a", "b")
    found = [
        secret
        for drawn in randomness
        for identity in identities
        for context in digests
        for plain_input in (*digests, bytes(32))
        for secret in all_secrets(AttemptSecrets(drawn, identity, context, plain_input), roster)
    ]
    assert len(set(found)) == len(found) == 2 * 2 * 2 * 3 * 5
    # Seeds and coefficients belong to one roster; the keys, which come before it, do not.
    secrets = AttemptSecrets(randomness[0], identities[0], *digests)
    one, other = (all_secrets(secrets, names) for names in (roster, ("a", "b", "c")))
    assert [x == y for x, y in zip(one, other, strict=True)] == [True, True, False, False, True]


LOW_ORDER = [0, 1, 2**255 - 20]
LOW_ORDER += [0xB8495F16056286FDB1329CEB8D09DA6AC49FF1FAE35616AEB8413B7C7AEBE0]
LOW_ORDER += [0x57119FD0DD4E22D8868E1C58C45C44045BEF839C55B1D0B1248C50A3BC959C5F]


@pytest.mark.parametrize("high", [0, 1])
@pytest.mark.parametrize("low", [*LOW_ORDER, 2**255 - 19, 2**255 - 18])
def test_a_key_of_low_order_is_refused(low: int, high: int) -> None:
    """The secret shared with it would be zero for everybody, however it is written."""
    data = (low | high << 255).to_bytes(32, "little")
    with pytest.raises(ValueError, match="shared key"):
        X25519PrivateKey.from_private_bytes(bytes(range(32))).exchange(
            X25519PublicKey.from_public_bytes(data)
        )
    with pytest.raises(BadKeyError):
        AgreementKey(data)


def small_order_points() -> list[bytes]:
    """All encodings of points of Ed25519 whose order divides 8, from -x² + y² = 1 + dx²y².

    Twice a point (x, y) has the height (x² + y²) / (1 - dx²y²).  Of order 1 and 2 are (0, ±1), of
    order 4 those with y = 0, of order 8 those with x² = -y², that is dy⁴ + 2y² - 1 = 0.
    """
    q = 2**255 - 19
    d = -121665 * pow(121666, q - 2, q) % q

    def roots(square: int) -> list[int]:
        for found in (pow(square, (q + 3) // 8, q) * pow(2, i * (q - 1) // 4, q) for i in (0, 1)):
            if found * found % q == square % q:
                return [found % q, -found % q]
        return []

    heights = {0, 1, q - 1}
    for root in roots(1 + d):
        heights |= set(roots((root - 1) * pow(d, q - 2, q)))
    return [(y | bit << 255).to_bytes(32, "little") for y in sorted(heights) for bit in (0, 1)]


def test_an_identity_key_of_small_order_is_refused() -> None:
    """With the neutral point as a key, one signature fits every message."""
    forged = b"\1" + bytes(31) + bytes(32)
    neutral = Ed25519PublicKey.from_public_bytes(b"\1" + bytes(31))
    for message in (b"one", b"other"):
        neutral.verify(forged, message)
    points = small_order_points()
    assert len(points) == 10
    for data in points:
        with pytest.raises(BadKeyError):
            PublicKey(data)
    # The same points, written with y + q where that is below 2²⁵⁵.
    q = 2**255 - 19
    for y in range(19):
        for bit in (0, 1):
            with pytest.raises(BadKeyError):
                PublicKey((y + q | bit << 255).to_bytes(32, "little"))
    PublicKey(Identity(bytes(range(32))).public.data)


def test_a_longer_mask_begins_with_the_shorter_one() -> None:
    longest = expand(bytes(range(32)), 5000)
    assert all(np.array_equal(expand(bytes(range(32)), n), longest[:n]) for n in (0, 1, 63, 4999))


# -- what masked vectors look like -------------------------------------------------------------

Maker = Callable[[bytes, int], Elements]
ALPHA = 1e-6
"""Below this a test fails.  There are about 30 of them here, on numbers that never change."""


def verdicts(values: Elements) -> dict[str, float]:
    """p-values of the usual tests of uniform numbers below p."""
    n = values.size
    unit = values.astype(np.float64) / PRIME
    above = values >= PRIME // 2
    runs = 1 + int((above[1:] != above[:-1]).sum())
    p = above.mean()
    expected, spread = 2 * n * p * (1 - p), 2 * np.sqrt(n) * p * (1 - p)
    correlation = np.corrcoef(unit[:-1], unit[1:])[0, 1] * np.sqrt(n - 1)

    def spread_of(cells: np.ndarray, n_cells: int) -> float:
        return float(stats.chisquare(np.bincount(cells.astype(np.int64), minlength=n_cells)).pvalue)

    # p - 1 is 29 · 2⁵⁷: the top is one of 29, and every bit below it is as good as fair.
    bits = [int((values >> np.uint64(bit) & np.uint64(1)).sum()) for bit in range(57)]
    return {
        "Kolmogorov-Smirnov": float(stats.kstest(unit, "uniform").pvalue),
        "top": spread_of(values >> np.uint64(57), 29),
        "high byte": spread_of(values >> np.uint64(49) & np.uint64(255), 256),
        "low byte": spread_of(values & np.uint64(255), 256),
        "middle byte": spread_of(values >> np.uint64(24) & np.uint64(255), 256),
        "bits": 57 * min(float(stats.binomtest(ones, n).pvalue) for ones in bits),
        "runs": float(2 * stats.norm.sf(abs(runs - expected) / spread)) if spread else 0.0,
        "serial correlation": float(2 * stats.norm.sf(abs(correlation))),
        "pairs": spread_of(
            (values[:-1:2] >> np.uint64(53) & np.uint64(15)) * np.uint64(16)
            + (values[1::2] >> np.uint64(53) & np.uint64(15)),
            256,
        ),
    }


def failed(values: Elements) -> set[str]:
    return {name for name, p in verdicts(values).items() if not p > ALPHA}


@cache
def masked_rounds() -> tuple[dict[str, Elements], ...]:
    """What four clients sent in eight rounds, all of the same small histograms."""
    everyone = Everyone(4, seed="uniform", capacity=1000)
    for name in everyone.names:
        everyone.histograms[name] = histogram(((1, 2), 3))
    found = []
    for _ in range(8):
        everyone.until(Stage.CONSENT)
        sent = everyone.history[-1]
        codec = everyone.federation.codec(sent.context.capacity, sent.context.salt)
        found.append(
            {name: codec.unpack(body_of(data).masked_vector) for name, data in sent.answers.items()}
        )
        everyone.server.abandon()
    return tuple(found)


def difference(one: Elements, other: Elements) -> Elements:
    return np.where(one >= other, one - other, one + np.uint64(PRIME) - other)


def test_masked_vectors_look_uniform() -> None:
    vectors = [vector for one in masked_rounds() for vector in one.values()]
    everything = np.concatenate(vectors)
    assert everything.size > 60_000
    assert failed(everything) == set()
    assert np.unique(everything).size == everything.size


def test_each_place_of_a_vector_looks_uniform() -> None:
    """The numbers at one place, over clients and rounds: an input would be the same each time."""
    vectors = np.stack([vector for one in masked_rounds() for vector in one.values()])
    columns = vectors.T.copy()
    assert failed(columns.ravel()) == set()
    tests = [stats.kstest(column / PRIME, "uniform").pvalue for column in columns[:300]]
    assert min(tests) > ALPHA
    assert stats.kstest(tests, "uniform").pvalue > ALPHA


def test_differences_of_rounds_and_of_clients_look_uniform() -> None:
    rounds = masked_rounds()
    between_rounds = [
        difference(one[name], other[name]) for one, other in pairwise(rounds) for name in one
    ]
    assert failed(np.concatenate(between_rounds)) == set()
    between_clients = [
        difference(one[a], one[b]) for one in rounds for a, b in combinations(sorted(one)[:3], 2)
    ]
    # Sums of two: the mask shared by a pair must not be all that hides them.
    sums = [add(one[a], one[b]) for one in rounds for a, b in combinations(sorted(one)[:3], 2)]
    for group in (between_clients, sums):
        # Only two of three differences are independent.
        assert failed(np.concatenate([v for i, v in enumerate(group) if i % 3 < 2])) == set()


def biased(key: bytes, length: int) -> Elements:
    """Masks as they would be with ``%`` instead of rejection."""
    stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    words = np.frombuffer(stream.update(bytes(8 * length)), dtype="<u8").astype(np.uint64)
    return words % np.uint64(2**62) % np.uint64(PRIME)


BROKEN: dict[str, Maker] = {
    "61 bits": lambda key, n: expand(key, n) >> np.uint64(1),
    "remainders": biased,
    "even numbers": lambda key, n: expand(key, n) & ~np.uint64(1),
    "32 bits": lambda key, n: expand(key, n) & np.uint64(2**32 - 1),
    "a byte": lambda key, n: expand(key, n) & np.uint64(255),
    "every element twice": lambda key, n: np.repeat(expand(key, n), 2)[:n],
    "sorted": lambda key, n: np.sort(expand(key, n)),
    "53 bits": lambda key, n: expand(key, n) >> np.uint64(9) << np.uint64(9),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_tests_notice_a_broken_expand(name: str) -> None:
    n = sum(vector.size for one in masked_rounds() for vector in one.values())
    assert failed(expand(b"a good mask".ljust(32), n)) == set()
    assert failed(BROKEN[name](b"a bad mask".ljust(32), n))


def test_the_tests_notice_a_mask_used_twice() -> None:
    """Each vector looks uniform, and their difference is the difference of the inputs."""
    everyone = Everyone(1, seed="reuse", capacity=1000, policy=Policy(minimum=1))
    codec = everyone.federation.codec(1000, b"salt")
    one, other = (codec.encode([[1, 1]], [count]) for count in (5, 7))
    masked = [add(vector, expand(bytes(range(32)), codec.length)) for vector in (one, other)]
    assert [failed(vector) for vector in masked] == [set(), set()]
    bins, counts = codec.decode(difference(masked[1], masked[0]))
    assert (bins.tolist(), counts.tolist()) == ([[1, 1]], [2])


def test_two_attempts_share_no_expand() -> None:
    """Nor two clients, two rounds or two pairs: no element is ever seen again."""
    everyone = Everyone(3, seed="attempts", capacity=200, first_capacity=2)
    everyone.round("full")
    points = [((i, j), 1) for i in range(6) for j in range(6)]
    everyone.histograms["c001"] = histogram(*points)
    everyone.round("delta")
    assert everyone.server.ledger.attempt >= 6
    everyone.round("delta")
    masked = [step for step in everyone.history if step.stage is Stage.MASK]
    assert len(masked) >= 7
    assert len({step.context.digest for step in masked}) == len(masked)
    elements: list[int] = []
    for step in masked:
        codec = everyone.federation.codec(step.context.capacity, step.context.salt)
        for data in step.answers.values():
            elements += codec.unpack(body_of(data).masked_vector).tolist()
    assert len(set(elements)) == len(elements)
    keys = [
        key
        for step in everyone.history
        if step.stage is Stage.ADVERTISE
        for data in step.answers.values()
        for key in (body_of(data).sharing_key, body_of(data).masking_key)
    ]
    assert len(set(keys)) == len(keys) == 2 * 3 * len(masked)


# -- nothing secret shows ----------------------------------------------------------------------


class Watched:
    """Randomness that remembers what it gave, by party."""

    def __init__(self) -> None:
        self.given: dict[str, list[bytes]] = {}

    def __call__(self, name: str) -> Entropy:
        random, given = Random(f"watched {name}"), self.given.setdefault(name, [])

        def entropy(size: int) -> bytes:
            given.append(random.randbytes(size))
            return given[-1]

        return entropy


def forms(secret: bytes) -> list[bytes]:
    """A secret as it might be written down."""
    texts = [secret.hex(), repr(secret)[2:-1], base64.b64encode(secret).decode()]
    texts += [str(int.from_bytes(secret, order)) for order in ("little", "big")]
    texts += [str(list(secret))[1:-1]]
    return [secret, *(text.encode() for text in texts)]


def shown(secret: bytes, where: bytes) -> bool:
    return any(form in where for form in forms(secret))


@cache
def watched_rounds() -> tuple[Everyone, Watched, bytes, bytes, dict[str, dict[str, Any]]]:
    """Rounds with clients lost at every stage: all messages, all representations, all shares."""
    watched = Watched()
    everyone = Everyone(6, seed="watched", entropy=watched)
    representations: list[str] = []
    stages: dict[str, dict[str, Any]] = {"sent": {}, "shared": {}, "advertised": {}}
    records: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(f"{record.getMessage()} {record.__dict__}")

    handler = Keep(level=0)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(0)
    try:
        everyone.round("full")
        messages = everyone.server.open("delta")
        lost = {Stage.MASK: ["c004"], Stage.CONSENT: ["c005"]}
        while everyone.stage is not Stage.DECIDED:
            step = everyone.ask(messages, lost.get(everyone.stage, ()))
            # A message that is refused says why, and must not say more.
            for name, client in everyone.clients.items():
                try:
                    client.receive(everyone.from_server(name, body_of(step.asked["c000"])))
                except ProtocolError as error:
                    representations.append(f"{error!r} {error}")
                objects = [client, client.stage, client.ledger, client._identity]
                objects += [client.ledger.pending, client._secrets(step.context)]
                representations += map(repr, [*objects, client.federation, client.membership])
                for kind in (Advertised, Shared, Sent):
                    if isinstance(client.stage, kind):
                        stages[kind.__name__.lower()][name] = client.stage
            server = everyone.server
            representations += map(repr, [server, server.ledger, server.result, step.context])
            representations += map(repr, server.present.values())
            representations += [repr(Letter(data)) for data in step.asked.values()]
            messages = everyone.server.advance()
        everyone.commit()
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    sent = [data for step in everyone.history for data in step.asked.values()]
    sent += [data for step in everyone.history for data in step.answers.values()]
    text = "\n".join(representations + records).encode()
    return everyone, watched, b"\n".join(sent), text, stages


def test_the_search_finds_what_is_there() -> None:
    everyone, watched, sent, _, _ = watched_rounds()
    salt = watched.given[SERVER][0]
    assert shown(salt, sent)
    assert shown(everyone.identities["c000"].public.data, repr(everyone.membership).encode())
    for text in (str({"key": salt}), salt.hex(), f"{int.from_bytes(salt, 'little')}"):
        assert shown(salt, text.encode())


def test_no_randomness_of_a_client_is_sent_or_shown() -> None:
    """32 bytes in each attempt, and nothing else, are drawn."""
    everyone, watched, sent, text, _ = watched_rounds()
    for name in everyone.names:
        given = watched.given[name]
        assert [len(secret) for secret in given] == [32, 32]
        for secret in given:
            assert not shown(secret, sent)
            assert not shown(secret, text)


def test_nothing_that_follows_from_it_is_sent_or_shown() -> None:
    """Private keys, self-mask seeds, coefficients and the input's digest, of all attempts."""
    everyone, watched, sent, text, stages = watched_rounds()
    for name in everyone.names:
        shared = stages["shared"][name]
        secrets = everyone.secrets_of(name, watched.given[name][-1], shared.context)
        advertised = body_of(everyone.history[6].answers[name])
        assert secrets.masking.public.data == advertised.masking_key
        assert secrets.sharing.public.data == advertised.sharing_key
        coefficients = secrets.coefficients(shared.roster)
        found = [secrets._root, secrets.plain_input, secrets.seed(shared.roster)]
        found += [secrets.sharing.private, secrets.masking.private]
        found += [coefficients(48) for _ in range(6)]
        for secret in found:
            assert not shown(secret, sent)
            assert not shown(secret, text)


def test_no_identity_is_sent_or_shown() -> None:
    everyone, _, sent, text, _ = watched_rounds()
    for identity in everyone.identities.values():
        assert not shown(identity.seed, sent)
        assert not shown(identity.seed, text)
    for secret in (Identity(b"i" * 32), Agreement(b"a" * 32)):
        public = secret.public.data
        assert b"i" * 8 not in repr(secret).encode()
        assert b"a" * 8 not in repr(secret).encode()
        assert public not in repr(secret).encode()


def test_shared_secrets_are_not_sent_or_shown() -> None:
    _, _, sent, text, stages = watched_rounds()
    found = [secret for stage in stages["shared"].values() for secret in stage.secrets.values()]
    assert len(found) == 6 * 5
    for secret in found:
        assert not shown(secret, sent)
        assert not shown(secret, text)


def test_a_plain_share_is_sent_only_where_the_protocol_reveals_it() -> None:
    """Of a survivor the seed's, of a lost client the key's; nobody's of both kinds."""
    everyone, _, sent, text, stages = watched_rounds()
    held = {
        (holder, owner): shares
        for holder, stage in stages["sent"].items()
        for owner, shares in stage.held.items()
    }
    # Everybody holds shares of five others, except for the one that never sent a vector.
    assert len(held) == 5 * 5
    revealing = {name for name in everyone.names if name not in ("c004", "c005")}
    for (holder, owner), (of_seed, of_key) in held.items():
        reveals = holder in revealing
        assert shown(of_seed, sent) == (reveals and owner != "c004")
        assert shown(of_key, sent) == (reveals and owner == "c004")
        assert not shown(of_seed, text)
        assert not shown(of_key, text)
    reveals = everyone.history[6 + ANSWERED.index(Stage.UNMASK)].answers
    assert set(reveals) == revealing
    for data in reveals.values():
        body = body_of(data)
        owners = [{name for name, _ in part} for part in (body.seeds, body.keys)]
        assert owners == [set(everyone.names) - {"c004"}, {"c004"}]


def test_nothing_secret_is_left_after_a_reveal() -> None:
    everyone = Everyone(3, seed="left")
    everyone.decide("full")
    for client in everyone.clients.values():
        assert isinstance(client.stage, Revealed)
        assert set(vars(client.stage)) == {"context"}
    everyone.commit()
    for client in everyone.clients.values():
        # The random bytes go with the input of the attempt.
        assert client.ledger.pending is None


def test_a_share_kept_for_oneself_is_of_the_seed_alone() -> None:
    """With a share of its own key, a client would be worth one more to whoever reads its memory."""
    everyone = Everyone(4, seed="own share")
    everyone.until(Stage.UNMASK)
    for name, client in everyone.clients.items():
        assert isinstance(client.stage, Consented)
        assert len(client.stage.own_share) == SHARE_BYTES
        assert name not in client.stage.held
