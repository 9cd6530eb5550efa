"""Taking the masks off a sum, once enough members have revealed shares."""

from __future__ import annotations

from collections.abc import Mapping

from fedforget import scma
from fedforget.protocol.errors import BadShareError, ProtocolError, WrongLengthError
from fedforget.protocol.keys import Agreement, AgreementKey, digest_of
from fedforget.protocol.masks import View, pair_mask, self_mask
from fedforget.protocol.membership import Membership
from fedforget.protocol.messages import Reveal
from fedforget.protocol.server_stages import Unmasking
from fedforget.protocol.shares import fingerprint, join


class MisdealtError(ProtocolError):
    """Shares that were all revealed as they were dealt, and do not fit together."""

    def __init__(self, dealer: str, reason: str) -> None:
        super().__init__(f"{dealer} dealt shares that do not fit together ({reason})")
        self.dealer = dealer


def check_reveal(stage: Unmasking, name: str, body: Reveal) -> None:
    """Shares must be those asked for, and fit the hashes that their dealers signed."""
    hidden = {dealer for dealer, readers in stage.unreadable.items() if name in readers}
    holders = {name, *stage.graph.neighbours(name)} - hidden
    seeds, keys = ([owner for owner, _ in part] for part in (body.seeds, body.keys))
    if sorted(seeds) != sorted(holders & set(stage.alive)):
        raise WrongLengthError(f"{name} revealed other seeds than those asked for")
    if sorted(keys) != sorted(holders & set(stage.dead)):
        raise WrongLengthError(f"{name} revealed other keys than those asked for")
    for owner, share in body.seeds:
        if fingerprint(share) != _dealt_hash(stage, owner, name, of_seed=True):
            raise BadShareError(f"{name} revealed another share than {owner} dealt")
    for owner, share in body.keys:
        if fingerprint(share) != _dealt_hash(stage, owner, name, of_seed=False):
            raise BadShareError(f"{name} revealed another share than {owner} dealt")


def _dealt_hash(stage: Unmasking, dealer: str, holder: str, *, of_seed: bool) -> bytes:
    dealt = stage.dealt[dealer]
    if dealer == holder:
        return dealt.own_hash
    one = dealt.dealt[stage.graph.neighbours(dealer).index(holder)]
    return one.seed_hash if of_seed else one.key_hash


def unmasked(stage: Unmasking, membership: Membership) -> scma.Elements:
    """The sum of the survivors' vectors, from which every mask is taken off."""
    graph = stage.graph
    seeds: dict[str, dict[int, bytes]] = {name: {} for name in stage.alive}
    keys: dict[str, dict[int, bytes]] = {name: {} for name in stage.dead}
    for name, body in stage.gathering.answers.items():
        assert isinstance(body, Reveal)
        point = membership.position[name]
        for owner, share in body.seeds:
            seeds[owner][point] = share
        for owner, share in body.keys:
            keys[owner][point] = share
    view = View(stage.context.digest, graph.participants, stage.sharers)
    total, length = stage.masked_total, stage.masked_total.size
    alive = set(stage.alive)
    for name, shares in seeds.items():
        total = scma.add(
            total, scma.minus(self_mask(_seed_of(stage, name, shares), view, name, length))
        )
    for name, shares in keys.items():
        key = _key_of(stage, name, shares)
        for other in graph.neighbours(name):
            if other in alive:
                secret = key.with_peer(AgreementKey(stage.keys[other].masking_key))
                total = scma.add(total, pair_mask(secret, view, name, other, length))
    return total


def _seed_of(stage: Unmasking, dealer: str, shares: Mapping[int, bytes]) -> bytes:
    seed = _joined(stage, dealer, shares)
    if digest_of(b"seed", seed) != stage.dealt[dealer].seed_digest:
        raise MisdealtError(dealer, "they give another seed")
    return seed


def _key_of(stage: Unmasking, dealer: str, shares: Mapping[int, bytes]) -> Agreement:
    key = Agreement(_joined(stage, dealer, shares))
    if key.public.data != stage.keys[dealer].masking_key:
        raise MisdealtError(dealer, "they give another key")
    return key


def _joined(stage: Unmasking, dealer: str, shares: Mapping[int, bytes]) -> bytes:
    try:
        return join(shares, stage.graph.plan.threshold)
    except ProtocolError as error:
        raise MisdealtError(dealer, str(error)) from error
