"""What the server gets to see, and what it could make of it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from fedforget.clustering.histogram import Histogram
from fedforget.protocol.client import pair_mask, self_mask
from fedforget.protocol.federation import Federation
from fedforget.protocol.graph import Graph
from fedforget.protocol.keys import Agreement
from fedforget.protocol.messages import (
    Advertise,
    Context,
    Delivery,
    Letter,
    Masked,
    Open,
    Reveal,
    Roster,
    Survivors,
)
from fedforget.protocol.shares import join
from fedforget.scma import add
from fedforget.scma.polynomials import Elements, minus
from simulator.faults import ViolationError
from simulator.truth import State, Truth

Held = defaultdict[str, dict[int, bytes]]
"""Shares of each owner's secret, by the number of their holder."""


def _held() -> Held:
    return defaultdict(dict)


@dataclass
class Attempt:
    """What was said in one attempt."""

    context: Context
    state: State
    masking_keys: dict[str, bytes] = field(default_factory=dict)
    graph: Graph | None = None
    sharers: tuple[str, ...] = ()
    alive: tuple[str, ...] = ()
    masked: dict[str, bytes] = field(default_factory=dict)
    changes: dict[str, Histogram] = field(default_factory=dict)
    seeds: Held = field(default_factory=_held)
    keys: Held = field(default_factory=_held)

    def has(self, held: Held, owner: str) -> bool:
        """Whether the server holds enough shares of a secret."""
        assert self.graph is not None
        return owner in held and len(held[owner]) >= self.graph.plan.threshold

    @property
    def unmasked(self) -> bool:
        """Whether the server can take the masks off the sum of the survivors."""
        dead = set(self.sharers) - set(self.alive)
        return (
            bool(self.alive)
            and all(self.has(self.seeds, name) for name in self.alive)
            and all(self.has(self.keys, name) for name in dead)
        )


class ServerView:
    """Every message that the server sent or received, an attempt at a time."""

    def __init__(self, federation: Federation) -> None:
        self._federation = federation
        self._attempts: dict[bytes, Attempt] = {}

    def said(self, data: bytes, truth: Truth) -> None:
        """The server sent a message."""
        payload = Letter(data).payload
        context = payload.context
        attempt = self._attempts.get(context.digest)
        match payload.body:
            case Open() if attempt is None:
                self._attempts[context.digest] = Attempt(context, truth.server_opens(context))
            case Roster() as roster if attempt is not None and attempt.graph is None:
                policy = self._federation.policy
                attempt.graph = Graph.of(context.digest, roster.participants, policy)
            case Delivery() as delivery if attempt is not None:
                attempt.sharers = delivery.sharers
            case Survivors() as survivors if attempt is not None:
                attempt.alive = survivors.alive

    def encoded(self, name: str, context: Context, change: Histogram) -> None:
        """A client put this change under its masks."""
        self._attempts[context.digest].changes[name] = change

    def heard(self, data: bytes) -> None:
        """A message reached the server, which may have refused it, but has it."""
        payload = Letter(data).payload
        attempt = self._attempts.get(payload.context.digest)
        if attempt is None:
            return
        match payload.body:
            case Advertise() as advertise:
                attempt.masking_keys[payload.sender] = advertise.masking_key
            case Masked() as masked:
                attempt.masked[payload.sender] = masked.vector
                self._check_masked(attempt, payload.sender)
            case Reveal() as reveal:
                self._take_shares(attempt, payload.sender, reveal)

    def _take_shares(self, attempt: Attempt, holder: str, reveal: Reveal) -> None:
        assert attempt.graph is not None
        number = attempt.graph.number(holder)
        for held, shares in ((attempt.seeds, reveal.seeds), (attempt.keys, reveal.keys)):
            for owner, share in shares:
                held[owner][number] = share
                if attempt.has(attempt.seeds, owner) and attempt.has(attempt.keys, owner):
                    raise ViolationError(
                        f"the server can rebuild both the seed and the masking key of {owner}"
                    )

    # -- what it could make of it --------------------------------------------------------------

    def check(self) -> None:
        """No vector can be read, and no two sums differ by one client."""
        for attempt in self._attempts.values():
            for name in attempt.masked:
                self._check_hidden(attempt, name)
        for one, other in self._pairs_that_show_one():
            if one.state == other.state:
                raise ViolationError(
                    f"in state {one.state} the sums of {one.alive} and {other.alive} show one"
                )
        for one, other in self.deltas_that_show_one():
            raise ViolationError(f"the changes of {one.alive} and {other.alive} show one")

    def deltas_that_show_one(self) -> list[tuple[Attempt, Attempt]]:
        """Sums of changes since the same commit, in whatever epoch, that differ by one client."""
        return [
            (one, other)
            for one, other in self._pairs_that_show_one()
            if one.state[1] == other.state[1] and one.context.kind == other.context.kind == "delta"
        ]

    def _pairs_that_show_one(self) -> list[tuple[Attempt, Attempt]]:
        unmasked = [attempt for attempt in self._attempts.values() if attempt.unmasked]
        return [
            (one, other)
            for one, other in combinations(unmasked, 2)
            if len(set(one.alive) ^ set(other.alive)) == 1
        ]

    def _check_masked(self, attempt: Attempt, name: str) -> None:
        vector, plain = self._vectors(attempt, name)
        if np.array_equal(vector, plain):
            raise ViolationError(f"{name} sent its vector without masks")

    def _check_hidden(self, attempt: Attempt, name: str) -> None:
        if attempt.alive == (name,):
            return  # A sum of one is that one; the policy's minimum allowed it.
        vector, plain = self._vectors(attempt, name)
        if np.array_equal(self._peeled(attempt, name, vector), plain):
            raise ViolationError(f"the server can take the masks off the vector of {name}")

    def _vectors(self, attempt: Attempt, name: str) -> tuple[Elements, Elements]:
        """What a client sent, and what it hides."""
        codec = self._federation.codec(attempt.context.capacity, attempt.context.salt)
        change = attempt.changes[name]
        plain = codec.encode(change.points(), change.counts())
        return codec.unpack(attempt.masked[name]), plain

    def _peeled(self, attempt: Attempt, name: str, vector: Elements) -> Elements:
        """A vector without the masks that the server can compute."""
        graph, context = attempt.graph, attempt.context
        assert graph is not None
        threshold, size = graph.plan.threshold, vector.size
        if attempt.has(attempt.seeds, name):
            seed = join(attempt.seeds[name], threshold)
            vector = add(vector, minus(self_mask(seed, context, name, size)))
        for other in graph.neighbours(name):
            for owner, peer in ((name, other), (other, name)):
                if other in attempt.sharers and attempt.has(attempt.keys, owner):
                    key = Agreement(join(attempt.keys[owner], threshold))
                    secret = key.with_peer(attempt.masking_keys[peer])
                    vector = add(vector, minus(pair_mask(secret, context, name, other, size)))
                    break
        return vector
