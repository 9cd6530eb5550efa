"""What a party refuses, by name.  A refusal leaves the party's state as it was."""

from __future__ import annotations

from fedforget.errors import FedforgetError


class ProtocolError(FedforgetError):
    """Base of every refusal."""


class MalformedError(ProtocolError):
    """Bytes that are not a message of this version, or are too many."""


class BadSignatureError(ProtocolError):
    """A message that was not signed by the party it names."""


class UnknownPartyError(ProtocolError):
    """A name that is not in the membership list, or a message addressed to somebody else."""


class WrongFederationError(ProtocolError):
    """A message of another federation, configuration or membership list."""


class OutOfOrderError(ProtocolError):
    """A round, attempt or stage that is not the one to come: a replay, or a step left out."""


class ChangedParticipantsError(ProtocolError):
    """A list of participants that contradicts an earlier one, or leaves out who is asked."""


class AliveAndDeadError(ProtocolError):
    """Somebody listed as a survivor and as lost; answering would hand over that party's input."""


class TooFewError(ProtocolError):
    """Fewer survivors, neighbours or signatures than keep an input hidden."""


class SecondSurvivorSetError(ProtocolError):
    """Other survivors than those already answered for since the last commit."""


class BadShareError(ProtocolError):
    """A share that does not decrypt, or secrets that do not fit what was advertised."""


class WrongLengthError(ProtocolError):
    """A vector of another length, code or capacity."""


class BaseMismatchError(ProtocolError):
    """The server counts something else of this client than the client remembers."""


class RoundAbortedError(FedforgetError):
    """The round has ended without a result; nothing was committed, and every party can go on.

    Attributes
    ----------
    needs_new_epoch : whether only a full round in a new epoch can follow.
    """

    def __init__(self, message: str, *, needs_new_epoch: bool = False) -> None:
        super().__init__(message)
        self.needs_new_epoch = needs_new_epoch
