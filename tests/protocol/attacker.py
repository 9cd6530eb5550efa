"""A server that lies, with every message that it saw and all that its colluders hold."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import combinations

import numpy as np

from fedforget.clustering.histogram import Histogram
from fedforget.protocol.client_side import ClientSide
from fedforget.protocol.errors import BadShareError, ProtocolError
from fedforget.protocol.graph import Graph
from fedforget.protocol.keys import Agreement, AgreementKey
from fedforget.protocol.masks import View, pair_mask, self_mask
from fedforget.protocol.messages import Context, Reveal, Survivors, Unmask, consent_to, view_of
from fedforget.protocol.shares import join
from fedforget.scma import DecodeError, add, minus
from parties import Everyone, Stage, body_of


class Attacker:
    """What a server can put together from an attempt, whatever it told the clients.

    Parameters
    ----------
    everyone : the parties, and what was said.
    colluding : members who hand over everything and sign anything.
    context : the attempt; the last one if left out.
    """

    def __init__(
        self,
        everyone: Everyone,
        colluding: Collection[str] = (),
        context: Context | None = None,
    ) -> None:
        self.everyone = everyone
        self.colluding = tuple(colluding)
        self.context = context or everyone.context
        steps = {
            step.stage: step
            for step in everyone.history
            if step.answers and step.context == self.context
        }
        advertised = steps[Stage.ADVERTISE].answers
        self.keys = {name: body_of(data).masking_key for name, data in advertised.items()}
        self.roster = tuple(sorted(self.keys))
        shared = steps[Stage.SHARE].answers if Stage.SHARE in steps else {}
        self.sharers = tuple(sorted(shared))
        n, policy = len(everyone.membership), everyone.federation.policy
        self.graph = Graph.of(self.context.digest, self.roster, n, policy)
        self.codec = everyone.federation.codec(self.context.capacity, self.context.salt)
        sent = steps[Stage.MASK].answers if Stage.MASK in steps else {}
        self.masked = {
            name: self.codec.unpack(body_of(data).masked_vector) for name, data in sent.items()
        }
        self.seed_shares: dict[str, dict[int, bytes]] = {}
        self.key_shares: dict[str, dict[int, bytes]] = {}
        self.private: dict[str, Agreement] = {}
        self.refusals: dict[str, ProtocolError] = {}
        for name in self.colluding:
            self.corrupt(everyone.clients[name])

    @property
    def view(self) -> View:
        return View(self.context.digest, self.roster, self.sharers)

    def take(
        self,
        holder: str,
        seeds: Iterable[tuple[str, bytes]],
        keys: Iterable[tuple[str, bytes]],
    ) -> None:
        point = self.everyone.membership.position[holder]
        for owner, share in seeds:
            self.seed_shares.setdefault(owner, {})[point] = share
        for owner, share in keys:
            self.key_shares.setdefault(owner, {})[point] = share

    def corrupt(self, client: ClientSide) -> None:
        """A colluding client hands over all that it holds, of both kinds, and its own key."""
        held = client.stage.held.items()
        self.take(client.name, [(owner, one) for owner, (one, _) in held], ())
        self.take(client.name, (), [(owner, other) for owner, (_, other) in held])
        self.private[client.name] = client._secrets(self.context).masking

    def show(self, views: Mapping[str, Survivors]) -> None:
        """Tell each client of some survivors, and collect the shares of all who let themselves."""
        everyone, consents = self.everyone, {}
        for name, view in views.items():
            try:
                answer = everyone.clients[name].receive(
                    everyone.from_server(name, view, self.context)
                )
            except ProtocolError as error:
                self.refusals[name] = error
                continue
            consents[name] = body_of(answer).signature
        for name, view in views.items():
            signed = [(other, self.signature(other, view, views, consents)) for other in view.alive]
            unmask = Unmask(tuple((other, data) for other, data in signed if data is not None))
            try:
                answer = everyone.clients[name].receive(
                    everyone.from_server(name, unmask, self.context)
                )
            except ProtocolError as error:
                self.refusals.setdefault(name, error)
                continue
            reveal = body_of(answer)
            assert isinstance(reveal, Reveal)
            self.take(name, reveal.seeds, reveal.keys)

    def signature(
        self,
        name: str,
        view: Survivors,
        views: Mapping[str, Survivors],
        consents: Mapping[str, bytes],
    ) -> bytes | None:
        if name in self.colluding:
            statement = consent_to(
                self.context, view.alive, view_of(self.roster, self.sharers, view.dead)
            )
            return self.everyone.identities[name].sign(statement)
        return consents.get(name) if views.get(name) == view else None

    def sum_of(self, names: Collection[str]) -> Histogram | None:
        """The sum of what some clients sent, if the shares allow it.

        Masks within ``names`` cancel; those shared with others come off with the key of either
        side, if it is a colluder's or there are enough shares of it.
        """
        threshold, length = self.graph.plan.threshold, self.codec.length
        total = np.zeros(length, dtype=np.uint64)
        try:
            for name in names:
                seed = join(self.seed_shares.get(name, {}), threshold)
                own = self_mask(seed, self.view, name, length)
                total = add(total, add(self.masked[name], minus(own)))
                outside = set(self.graph.neighbours(name)) & set(self.sharers) - set(names)
                for other in outside:
                    mask = pair_mask(self._shared(name, other), self.view, name, other, length)
                    total = add(total, minus(mask))
            return Histogram.of(*self.codec.decode(total))
        except (BadShareError, DecodeError, KeyError):
            return None

    def _shared(self, name: str, other: str) -> bytes:
        """The secret of two, from the private key of one of them."""
        threshold = self.graph.plan.threshold
        for one, two in ((other, name), (name, other)):
            key = self.private.get(one)
            if key is None and len(self.key_shares.get(one, {})) >= threshold:
                key = Agreement(join(self.key_shares[one], threshold))
            if key is not None:
                return key.with_peer(AgreementKey(self.keys[two]))
        raise BadShareError("neither key is known")

    def opened(self) -> list[tuple[str, ...]]:
        """Every set of honest members whose sum can be computed."""
        honest = [name for name in self.masked if name not in self.colluding]
        return [
            names
            for size in range(1, len(honest) + 1)
            for names in combinations(honest, size)
            if self.sum_of(names) is not None
        ]


def changes_of(everyone: Everyone, names: Collection[str]) -> Histogram:
    """What some members' histograms have changed by since they were last counted."""
    bases = (everyone.clients[name].ledger.base or Histogram(2) for name in names)
    return everyone.total(names) - Histogram.sum(2, bases)
