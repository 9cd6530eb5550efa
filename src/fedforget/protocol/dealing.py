"""A client's secrets in shares: dealt to its neighbours, opened when they come from others.

What is dealt here takes the masks off later, if enough members agree on who is left.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedforget import scma
from fedforget.protocol.client_stages import Shared
from fedforget.protocol.errors import BadShareError, ChangedParticipantsError, OutOfOrderError
from fedforget.protocol.graph import Graph
from fedforget.protocol.keys import AgreementKey, digest_of, digest_of_names
from fedforget.protocol.masks import AttemptSecrets, View, pair_mask, self_mask, share_key
from fedforget.protocol.membership import Membership
from fedforget.protocol.messages import (
    Advertise,
    Context,
    Delivery,
    Letter,
    Roster,
    SealedShares,
    Shares,
)
from fedforget.protocol.rules import check_advertised
from fedforget.protocol.shares import SHARE_BYTES, fingerprint, split


def advertised_by(
    neighbours: tuple[str, ...], membership: Membership, context: Context, roster: Roster
) -> dict[str, Advertise]:
    """The neighbours' keys, each signed by its owner for this attempt."""
    found: dict[str, Advertise] = {}
    for data in roster.advertisements:
        letter = Letter(data)
        name = letter.payload.sender
        if name not in neighbours or name in found:
            raise ChangedParticipantsError(f"{name or 'the server'} is not a neighbour here")
        letter.check(membership.keys[name])
        body = letter.payload.body
        if letter.payload.context != context or not isinstance(body, Advertise):
            raise OutOfOrderError(f"{name}'s advertisement belongs to another attempt")
        check_advertised(name, body)
        found[name] = body
    if len(found) != len(neighbours):
        raise ChangedParticipantsError("a neighbour's advertisement is missing")
    return {name: found[name] for name in neighbours}


def deal(
    own: str,
    membership: Membership,
    context: Context,
    graph: Graph,
    secrets: AttemptSecrets,
    neighbours: Mapping[str, Advertise],
) -> tuple[Shared, Shares]:
    """Split the secrets of an attempt, one sealed share for each neighbour and one to keep."""
    points = [membership.position[name] for name in (*neighbours, own)]
    entropy, threshold = secrets.coefficients(graph.participants), graph.plan.threshold
    seed = secrets.seed(graph.participants)
    seeds = split(seed, points, threshold, entropy)
    keys = split(secrets.masking.private, points, threshold, entropy)
    listed = digest_of_names(graph.participants)
    shared: dict[str, bytes] = {}
    dealt = []
    for name, of_seed, of_key in zip(neighbours, seeds, keys, strict=False):
        shared[name] = secrets.sharing.with_peer(AgreementKey(neighbours[name].sharing_key))
        hashes = fingerprint(of_seed), fingerprint(of_key)
        key, pair = share_key(shared[name], context.digest, listed, own, name)
        ciphertext = key.encrypt(of_seed + of_key, pair + b"".join(hashes))
        dealt.append(SealedShares(name, ciphertext, *hashes))
    masking_keys = {name: one.masking_key for name, one in neighbours.items()}
    body = Shares(tuple(dealt), fingerprint(seeds[-1]), digest_of(b"seed", seed))
    return Shared(context, graph.participants, masking_keys, shared, seeds[-1]), body


def opened(
    own: str, stage: Shared, delivery: Delivery
) -> tuple[dict[str, tuple[bytes, bytes]], tuple[str, ...]]:
    """The neighbours' shares, and the neighbours whose shares cannot be used."""
    held, unreadable = {}, []
    listed = digest_of_names(stage.roster)
    for one in delivery.dealt:
        key, pair = share_key(stage.secrets[one.name], stage.context.digest, listed, one.name, own)
        try:
            plaintext = key.decrypt(one.ciphertext, pair + one.hashes)
            pieces = plaintext[:SHARE_BYTES], plaintext[SHARE_BYTES:]
            if tuple(map(fingerprint, pieces)) != (one.seed_hash, one.key_hash):
                raise BadShareError("a share does not fit its hash")
            held[one.name] = pieces
        except BadShareError:
            unreadable.append(one.name)
    return held, tuple(sorted(unreadable))


def masked(
    plain_vector: scma.Elements,
    own: str,
    view: View,
    secrets: AttemptSecrets,
    masking_keys: Mapping[str, bytes],
) -> scma.Elements:
    """A vector under the own mask, and under one for each neighbour that shared its secrets."""
    seed = secrets.seed(view.roster)
    masked_vector = scma.add(plain_vector, self_mask(seed, view, own, len(plain_vector)))
    for name, key in masking_keys.items():
        secret = secrets.masking.with_peer(AgreementKey(key))
        masked_vector = scma.add(
            masked_vector, pair_mask(secret, view, own, name, len(plain_vector))
        )
    return masked_vector
