"""One member spoils: the round commits, or whoever can be named is named, and nobody else.

Before: garbage in one share stopped every round, and the log named the honest recipient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import combinations, product
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from fedforget.clustering.histogram import Histogram
from fedforget.protocol.blame import complaints, judge
from fedforget.protocol.client_side import ClientSide
from fedforget.protocol.client_stages import Shared
from fedforget.protocol.errors import Finding, ProtocolError, RoundAbortedError
from fedforget.protocol.keys import digest_of_names
from fedforget.protocol.masks import share_key
from fedforget.protocol.messages import Body, RoundKind
from fedforget.protocol.server_stages import Decided
from fedforget.protocol.shares import SHARE_BYTES, fingerprint
from parties import Everyone, Stage, body_of, histogram

SPOILER = "c001"
Twist = Callable[[Everyone, ClientSide, Body], Body]


def random_of(body: Any) -> Random:
    return Random(repr(body))


def garbage(to: Callable[[int], bool]) -> tuple[Stage, Twist]:
    """Ciphertexts that are none, to some neighbours."""

    def twist(everyone: Everyone, client: ClientSide, body: Any) -> Body:
        random = random_of(body)
        return replace(
            body,
            dealt=tuple(
                replace(one, ciphertext=random.randbytes(82)) if to(at) else one
                for at, one in enumerate(body.dealt)
            ),
        )

    return Stage.SHARE, twist


def low_order(*which: str) -> tuple[Stage, Twist]:
    def twist(everyone: Everyone, client: ClientSide, body: Any) -> Body:
        return replace(body, **dict.fromkeys(which, bytes(32)))

    return Stage.ADVERTISE, twist


def wrong_reveal(part: str) -> tuple[Stage, Twist]:
    def twist(everyone: Everyone, client: ClientSide, body: Any) -> Body:
        shares = getattr(body, part)
        if not shares:
            return replace(body, keys=((client.name, bytes(33)),))
        return replace(body, **{part: tuple((name, bytes(SHARE_BYTES)) for name, _ in shares)})

    return Stage.UNMASK, twist


def no_polynomial(*, honest_hash: bool) -> tuple[Stage, Twist]:
    """Each share can be read and fits its hash, but they do not fit together."""

    def twist(everyone: Everyone, client: ClientSide, body: Any) -> Body:
        stage, random = client.stage, random_of(body)
        assert isinstance(stage, Shared)
        dealt = []
        for one in body.dealt:
            pieces = random.randbytes(32) + b"\0", random.randbytes(32) + b"\0"
            hashes = [fingerprint(piece) for piece in pieces]
            listed = digest_of_names(stage.roster)
            secret = stage.secrets[one.name]
            key, pair = share_key(secret, stage.context.digest, listed, client.name, one.name)
            ciphertext = key.encrypt(b"".join(pieces), pair + b"".join(hashes))
            if not honest_hash:
                hashes[0] = bytes(16)
            dealt.append(replace(one, ciphertext=ciphertext, seed_hash=hashes[0],
                                 key_hash=hashes[1]))  # fmt: skip
        return replace(body, dealt=tuple(dealt))

    return Stage.SHARE, twist


def another_seed() -> tuple[Stage, Twist]:
    return Stage.SHARE, lambda everyone, client, body: replace(body, seed_digest=bytes(32))


def garbage_vector() -> tuple[Stage, Twist]:
    """Field elements of the right number, and no encoding of anything."""

    def twist(everyone: Everyone, client: ClientSide, body: Any) -> Body:
        context = everyone.server.stage.context
        codec = everyone.federation.codec(context.capacity, context.salt)
        elements = codec.unpack(body.masked_vector)
        elements[:] = [random_of(elements.tolist()).randrange(2**60)] * elements.size
        return replace(body, masked_vector=codec.pack(elements))

    return Stage.MASK, twist


def false_complaints(count: int | None) -> tuple[Stage, Twist]:
    def twist(everyone: Everyone, client: ClientSide, body: Any) -> Body:
        others = tuple(name for name in everyone.server.stage.sharers if name != client.name)
        return replace(body, unreadable=others[:count])

    return Stage.MASK, twist


def other_delivery() -> tuple[Stage, Twist]:
    """Signs for shares that it was not sent."""
    return Stage.MASK, lambda everyone, client, body: replace(body, received=bytes(32))


def spoilt_round(
    everyone: Everyone, kind: RoundKind, twists: Mapping[tuple[Stage, str], Twist]
) -> tuple[Decided | None, tuple[Finding, ...], RoundAbortedError | None]:
    """A round as the driver runs it; some answers are twisted and signed again."""
    server, error = everyone.server, None
    everyone.greet()
    for _ in range(4):
        try:
            messages = server.open(kind)
            while not isinstance(server.stage, Decided):
                context, stage = server.stage.context, everyone.stage
                for name, data in messages:
                    client = everyone.clients[name]
                    try:
                        answer = client.receive(data)
                        twist = twists.get((stage, name))
                        if twist is not None:
                            body = twist(everyone, client, body_of(answer))
                            answer = everyone.from_client(name, body, context)
                        assert answer is not None
                        server.receive(answer)
                    except ProtocolError:
                        continue
                messages = server.advance()
            return server.stage, tuple(server.findings), None
        except RoundAbortedError as aborted:
            error = aborted
            if not aborted.again:
                break
    assert error is not None
    return None, error.findings, error


def never_honest_alone(findings: Iterable[Finding], spoilers: Iterable[str]) -> bool:
    return all(not one.members or set(one.members) & set(spoilers) for one in findings)


KINDS: dict[str, tuple[tuple[Stage, Twist], str]] = {
    "garbage to one": (garbage(lambda at: at == 0), "pair"),
    "garbage to all": (garbage(lambda at: True), "named"),
    "low order sharing key": (low_order("sharing_key"), "named"),
    "low order masking key": (low_order("masking_key"), "named"),
    "low order keys": (low_order("sharing_key", "masking_key"), "named"),
    "wrong reveals of seeds": (wrong_reveal("seeds"), "named"),
    "wrong reveals of keys": (wrong_reveal("keys"), "named"),
    "shares without a polynomial": (no_polynomial(honest_hash=True), "named"),
    "shares that do not fit their hashes": (no_polynomial(honest_hash=False), "named"),
    "shares of another seed": (another_seed(), "named"),
    "garbage vector": (garbage_vector(), "nobody"),
    "a complaint of one": (false_complaints(1), "pair"),
    "complaints of all": (false_complaints(None), "named"),
    "signs for other shares": (other_delivery(), "named"),
}


def silence() -> tuple[Stage, Twist]:
    """Says nothing at masked input."""

    def twist(everyone: Everyone, client: ClientSide, body: Any) -> Body:
        raise ProtocolError("nothing arrives")

    return Stage.MASK, twist


def test_a_spoiler_is_named_although_the_attempt_ends_because_somebody_is_missing() -> None:
    """A full round needs everybody; the complaints of those who are there count all the same."""
    everyone = Everyone(5, seed="missing and spoilt")
    everyone.round("full")
    (share, noise), (mask, nothing) = garbage(lambda at: at == 0), silence()
    twists = {(share, SPOILER): noise, (mask, "c002"): nothing}
    decided, findings, error = spoilt_round(everyone, "full", twists)
    assert decided is None
    assert "c002 is missing" in str(error)
    assert [finding.members for finding in findings] == [("c000", SPOILER)]


@pytest.mark.parametrize("kind", ["full", "delta"])
@pytest.mark.parametrize("n", [3, 5, 12])
@pytest.mark.parametrize("how", KINDS)
def test_a_spoiler_is_named_or_the_round_commits_and_nobody_honest_is(
    how: str, n: int, kind: RoundKind
) -> None:
    everyone = Everyone(n, seed=f"spoilt {n}")
    everyone.round("full")
    everyone.histograms["c000"] = histogram(((4, 4), 4))
    (stage, twist), expected = KINDS[how]
    bases = Histogram.sum(2, (everyone.clients[name].ledger.base for name in everyone.names))
    decided, findings, error = spoilt_round(everyone, kind, {(stage, SPOILER): twist})
    assert never_honest_alone(findings, [SPOILER])
    members = {finding.members for finding in findings}
    if expected == "named":
        assert members == {(SPOILER,)}
    elif expected == "pair":
        # Whoever complains falsely and then reveals what it could not read names itself as well.
        assert members - {(SPOILER,)} in ({("c000", SPOILER)}, {(SPOILER, "c000")})
        assert "one of the two is at fault" in findings[0].text
    else:
        assert members == {()}
    if decided is None:
        assert error is not None
        assert everyone.stage is Stage.IDLE
    else:
        survivors = decided.result.survivors
        whole = everyone.total(survivors)
        if survivors == everyone.names:
            assert decided.result.total == (whole if kind == "full" else whole - bases)
        everyone.commit()
    # Somebody who spoils once does not stop the federation.
    if decided is None and everyone.server.ledger.lock is not None:
        everyone.round("delta" if everyone.server.ledger.lock.alive != everyone.names else "full")
    everyone.greet()
    assert everyone.round("full").total == everyone.total(everyone.names)


def test_spoilers_that_need_not_stop_a_round_do_not() -> None:
    """With enough members, one that spoils is left out, or its part is made up for."""
    commits = {}
    for how, ((stage, twist), _) in KINDS.items():
        everyone = Everyone(12, seed="commits")
        everyone.round("full")
        decided, _, error = spoilt_round(everyone, "delta", {(stage, SPOILER): twist})
        commits[how] = decided is not None
        assert (decided is None) == (error is not None)
    stopped = {how for how, done in commits.items() if not done}
    assert stopped == {"shares without a polynomial", "shares of another seed", "garbage vector"}


@pytest.mark.parametrize("how", ["shares without a polynomial", "shares of another seed"])
def test_who_spoils_the_end_is_named_and_can_be_suspended(how: str) -> None:
    """A set was listed by then, and it is in it: a new list lets the others go on."""
    everyone = Everyone(5, seed="suspended")
    everyone.round("full")
    stage, twist = KINDS[how][0]
    _, findings, error = spoilt_round(everyone, "delta", {(stage, SPOILER): twist})
    assert [one.members for one in findings] == [(SPOILER,)]
    assert "--suspend" in str(error)
    everyone.adopt(everyone.members(everyone.names, suspended=[SPOILER]))
    everyone.histograms["c000"] = histogram(((4, 4), 4))
    result = everyone.round("delta")
    assert result.survivors == tuple(name for name in everyone.names if name != SPOILER)


def test_a_garbage_vector_says_how_to_go_on() -> None:
    everyone = Everyone(4, seed="garbage")
    everyone.round("full")
    stage, twist = garbage_vector()
    _, findings, error = spoilt_round(everyone, "delta", {(stage, SPOILER): twist})
    assert [one.members for one in findings] == [()]
    assert "was not used" in str(error)
    assert "suspend members one after the other" in str(error)


# -- complaints, by themselves -----------------------------------------------------------------


def judged(pairs: Iterable[tuple[str, str]], colluders: int) -> set[tuple[str, ...]]:
    """The names found, from pairs of (recipient, dealer)."""
    of_recipients: dict[str, list[str]] = {}
    for recipient, dealer in pairs:
        of_recipients.setdefault(recipient, []).append(dealer)
    return {finding.members for finding in judge(complaints(of_recipients), colluders)}


def test_complaints_name_pairs_dealers_and_complainers() -> None:
    assert judged([], 1) == set()
    assert judged(["ab"], 1) == {("a", "b")}
    assert judged(["ab", "cb"], 1) == {("b",)}
    assert judged(["ab", "ac"], 1) == {("a",)}
    assert judged(["ab", "ac"], 2) == {("a", "b"), ("a", "c")}
    assert judged(["ab", "cb"], 2) == {("a", "b"), ("c", "b")}
    # Who is named for its complaints does not help to name a dealer.
    assert judged(["ab", "ac", "db"], 1) == {("a",), ("d", "b")}


@pytest.mark.parametrize("colluders", [1, 2])
def test_no_complaints_of_few_spoilers_name_an_honest_member_alone(colluders: int) -> None:
    """Everything that one or two spoilers among five can do: deal garbage to anybody, and complain
    of anybody.  Honest members complain of spoilers only, and of garbage only."""
    honest, spoilers = "abcde"[: 5 - colluders], "abcde"[5 - colluders :]
    dealt = list(product(honest, spoilers))
    told = [pair for pair in product(spoilers, "abcde") if pair[0] != pair[1]]
    random = Random(colluders)
    pools = [set(some) for size in range(len(dealt) + 1) for some in combinations(dealt, size)]
    for true in pools:
        lies = [set(some) for size in range(len(told) + 1) for some in combinations(told, size)]
        for false in random.sample(lies, min(len(lies), 40)):
            found = judged(sorted(true | false), colluders)
            assert all(set(members) & set(spoilers) for members in found)
