"""Members that spoil rounds, each in one way."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from msgspec.structs import replace

from fedforget.protocol.client_ledger import ClientLedger, Event
from fedforget.protocol.client_side import ClientSide
from fedforget.protocol.client_stages import Advertised, ClientStage, Consented, Shared
from fedforget.protocol.messages import (
    Advertise,
    Body,
    Context,
    Delivery,
    Masked,
    Open,
    Reveal,
    Roster,
    SealedShares,
    Shares,
    Unmask,
)
from fedforget.protocol.shares import SHARE_BYTES, fingerprint


@dataclass
class Mischief:
    """When a spoiler spoils.  ``done`` counts how often it did.

    ``deeds`` are the messages that give it away, each with those who can notice it; nobody where
    the server does.
    """

    rng: Random
    rate: float
    done: int = 0
    cured: bool = False
    deeds: list[tuple[Body, frozenset[str]]] = field(default_factory=list)

    def witnesses(self, body: Body) -> frozenset[str] | None:
        """Who can notice what is wrong with a message; None if nothing is."""
        found = [names for deed, names in self.deeds if deed == body]
        return found[-1] if found else None

    def strikes(self) -> bool:
        if self.cured or self.rng.random() >= self.rate:
            return False
        self.done += 1
        return True


class Spoiler(ClientSide):
    """A member that may do something wrong."""

    mischief: Mischief


class GarbageToAll(Spoiler):
    """Its ciphertexts are noise."""

    def _share(self, stage: Advertised, roster: Roster) -> tuple[ClientStage, ClientLedger, Body]:
        after, ledger, body = super()._share(stage, roster)
        assert isinstance(body, Shares)
        if body.dealt and self.mischief.strikes():
            body = replace(body, dealt=tuple(map(self._noise, body.dealt)))
            self.mischief.deeds.append((body, frozenset(one.name for one in body.dealt)))
        return after, ledger, body

    def _noise(self, one: SealedShares) -> SealedShares:
        return replace(one, ciphertext=self.mischief.rng.randbytes(len(one.ciphertext)))


class GarbageToOne(GarbageToAll):
    """The ciphertext for one neighbour is noise."""

    def _share(self, stage: Advertised, roster: Roster) -> tuple[ClientStage, ClientLedger, Body]:
        after, ledger, body = ClientSide._share(self, stage, roster)
        assert isinstance(body, Shares)
        if body.dealt and self.mischief.strikes():
            at = self.mischief.rng.randrange(len(body.dealt))
            dealt = (*body.dealt[:at], self._noise(body.dealt[at]), *body.dealt[at + 1 :])
            body = replace(body, dealt=dealt)
            self.mischief.deeds.append((body, frozenset((dealt[at].name,))))
        return after, ledger, body


class LowOrderKeys(Spoiler):
    """One of its keys has low order."""

    def _open(
        self, context: Context, opening: Open
    ) -> tuple[ClientStage, ClientLedger, Body, tuple[Event, ...]]:
        after, ledger, body, events = super()._open(context, opening)
        assert isinstance(body, Advertise)
        if self.mischief.strikes():
            one = self.mischief.rng.choice(("sharing_key", "masking_key"))
            low = self.mischief.rng.choice((0, 1, 2**255 - 20)).to_bytes(32, "little")
            body = replace(body, **{one: low})
            self.mischief.deeds.append((body, frozenset()))
        return after, ledger, body, events


class WrongReveals(Spoiler):
    """It reveals another share than the one it was dealt."""

    def _reveal(
        self, stage: Consented, unmask: Unmask, message: bytes
    ) -> tuple[ClientStage, ClientLedger, Body]:
        after, ledger, body = super()._reveal(stage, unmask, message)
        assert isinstance(body, Reveal)
        if self.mischief.strikes():
            at = self.mischief.rng.randrange(len(body.seeds))
            owner, share = body.seeds[at]
            wrong = owner, bytes([share[0] ^ 1]) + share[1:]
            body = replace(body, seeds=(*body.seeds[:at], wrong, *body.seeds[at + 1 :]))
            self.mischief.deeds.append((body, frozenset()))
        return after, ledger, body


class SharesThatDoNotFit(Spoiler):
    """Its shares fit their hashes, and lie on no polynomial that gives its seed."""

    def _share(self, stage: Advertised, roster: Roster) -> tuple[ClientStage, ClientLedger, Body]:
        after, ledger, body = super()._share(stage, roster)
        assert isinstance(body, Shares)
        assert isinstance(after, Shared)
        if self.mischief.strikes():
            wrong = self.mischief.rng.randbytes(SHARE_BYTES - 1) + b"\0"
            after = Shared(after.context, after.roster, after.masking_keys, after.secrets, wrong)
            body = replace(body, own_hash=fingerprint(wrong))
            if self.mischief.rng.random() < 0.5:
                # A seed that is not the one of the shares.
                body = replace(body, seed_digest=self.mischief.rng.randbytes(32))
        return after, ledger, body


class GarbageVector(Spoiler):
    """Its vector encodes nothing."""

    def _send(self, stage: Shared, delivery: Delivery) -> tuple[ClientStage, ClientLedger, Body]:
        after, ledger, body = super()._send(stage, delivery)
        assert isinstance(body, Masked)
        if self.mischief.strikes():
            codec = self.federation.codec(stage.context.capacity, stage.context.salt)
            vector = codec.unpack(body.masked_vector)
            for at in range(vector.size):
                vector[at] = self.mischief.rng.randrange(2**60)
            body = replace(body, masked_vector=codec.pack(vector))
        return after, ledger, body


class FalseComplaints(Spoiler):
    """It says that it cannot read shares that it can read."""

    def _send(self, stage: Shared, delivery: Delivery) -> tuple[ClientStage, ClientLedger, Body]:
        after, ledger, body = super()._send(stage, delivery)
        assert isinstance(body, Masked)
        near = [one.name for one in delivery.dealt]
        if near and self.mischief.strikes():
            some = self.mischief.rng.sample(near, self.mischief.rng.randint(1, len(near)))
            body = replace(body, unreadable=tuple(sorted({*body.unreadable, *some})))
        return after, ledger, body


SPOILERS: dict[str, type[Spoiler]] = {
    "garbage to all": GarbageToAll,
    "garbage to one": GarbageToOne,
    "low-order keys": LowOrderKeys,
    "wrong reveals": WrongReveals,
    "shares that do not fit": SharesThatDoNotFit,
    "garbage vector": GarbageVector,
    "false complaints": FalseComplaints,
}


def spoiler(kind: str, mischief: Mischief) -> type[ClientSide]:
    """A class of clients that spoil in this way, whenever this mischief strikes."""
    return type(SPOILERS[kind].__name__, (SPOILERS[kind],), {"mischief": mischief})
