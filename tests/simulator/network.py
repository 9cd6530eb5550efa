"""A network that loses, delays, repeats, reorders, misdirects and damages messages."""

from __future__ import annotations

from dataclasses import dataclass, replace

from simulator.faults import Fate

LATENCY = (1, 2)
"""Ticks that an ordinary message takes; two of them may overtake each other already."""

LATE = (3, 25)
"""Ticks that a delayed one takes: the attempt it belongs to may be over by then."""

_REMEMBERED = 60


@dataclass(frozen=True)
class Envelope:
    """A message on its way.  ``intact`` says that the bytes are those that were sent."""

    number: int
    recipient: str
    data: bytes
    intact: bool = True


class Network:
    """Messages in flight.

    Parameters
    ----------
    fate : decides what goes wrong.
    """

    def __init__(self, fate: Fate) -> None:
        self._fate = fate
        self._rng = fate.rng
        self._in_flight: list[tuple[int, Envelope]] = []
        self._past: list[Envelope] = []
        self._delivered: dict[str, int] = {}
        self._sent = 0
        self.clock = 0

    def send(self, recipient: str, data: bytes, others: tuple[str, ...] = ()) -> None:
        """Put a message on its way; ``others`` are those it could reach by mistake."""
        self._sent += 1
        envelope = Envelope(self._sent, recipient, data)
        self._remember(envelope)
        if self._fate.strikes("replayed"):
            self._post(self._rng.choice(self._past))
        if self._fate.strikes("dropped"):
            return
        if others and self._fate.strikes("misdirected"):
            self._post(replace(envelope, recipient=self._rng.choice(others)))
            return
        if self._fate.strikes("duplicated"):
            self._post(envelope)
        self._post(self._damaged(envelope))

    def _remember(self, envelope: Envelope) -> None:
        if len(self._past) < _REMEMBERED:
            self._past.append(envelope)
        else:
            self._past[self._rng.randrange(_REMEMBERED)] = envelope

    def _damaged(self, envelope: Envelope) -> Envelope:
        data = envelope.data
        if self._fate.strikes("truncated"):
            data = data[: self._rng.randrange(len(data))]
        if data and self._fate.strikes("corrupted"):
            at = self._rng.randrange(len(data))
            flipped = data[at] ^ self._rng.randrange(1, 256)
            data = data[:at] + bytes([flipped]) + data[at + 1 :]
        return replace(envelope, data=data, intact=data == envelope.data)

    def _post(self, envelope: Envelope) -> None:
        late = self._fate.strikes("delayed")
        self._in_flight.append(
            (self.clock + self._rng.randint(*(LATE if late else LATENCY)), envelope)
        )

    def tick(self) -> list[Envelope]:
        """Let time pass; returns what arrives now, in no order."""
        self.clock += 1
        arrived = [envelope for due, envelope in self._in_flight if due <= self.clock]
        self._in_flight = [entry for entry in self._in_flight if entry[0] > self.clock]
        self._rng.shuffle(arrived)
        for envelope in arrived:
            latest = self._delivered.get(envelope.recipient, 0)
            if envelope.number < latest:
                self._fate.tally["reordered"] += 1
            self._delivered[envelope.recipient] = max(latest, envelope.number)
        return arrived
