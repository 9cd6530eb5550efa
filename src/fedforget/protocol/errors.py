"""What a party refuses, by name.  A refusal leaves the party's state as it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedforget.errors import FedforgetError


class ProtocolError(FedforgetError):
    """Base of every refusal."""


class MalformedError(ProtocolError):
    """Bytes that are not a message of this version, or are too many."""


class BadKeyError(ProtocolError):
    """A key that is not valid: of small order, or of another length."""


class BadSignatureError(ProtocolError):
    """A message that was not signed by the party it names."""


class UnknownPartyError(ProtocolError):
    """A name that is not in the membership list, or a message addressed to somebody else."""


class WrongFederationError(ProtocolError):
    """A message of another federation, configuration or membership list."""


class OutOfOrderError(ProtocolError):
    """A round, attempt or stage that is not the one to come: a replay, or a step left out."""


class MissingNoticeError(OutOfOrderError):
    """A commit notice, or a membership list, that does not follow the last one known here."""


class ForkError(ProtocolError):
    """Two histories: the server tells this client another one than it told somebody, or before."""


class ChangedParticipantsError(ProtocolError):
    """A list of participants that contradicts an earlier one, or leaves out who is asked."""


class AliveAndDeadError(ProtocolError):
    """Somebody listed as a survivor and as lost; answering would hand over that party's input."""


class TooFewError(ProtocolError):
    """Fewer participants, survivors or signatures than keep an input hidden."""


class SecondSurvivorSetError(ProtocolError):
    """Other survivors than those already signed for since the last commit."""


class AloneError(ProtocolError):
    """Joining or leaving with so few others that the sums would show this client's histogram."""


class BadShareError(ProtocolError):
    """A share that does not decrypt, or secrets that do not fit what was advertised."""


class WrongLengthError(ProtocolError):
    """A vector of another length, code or capacity."""


class FullRoundNeededError(ProtocolError):
    """A change was asked for, but this client does not know what the server counts of it."""


class NotReadyError(ProtocolError):
    """This client has nothing that it could send: its operator has to act.

    Its records do not fit the federation as it was amended, or nothing was approved and what is
    counted of it is not known.  The server is not told which.
    """

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} cannot take part now; its operator sees why (client status, client preview)"
        )


class SuspendedError(ProtocolError):
    """The membership list suspends this client, or it has left: it takes no part."""


class OlderDirectoryError(ProtocolError):
    """The server counts a round of this client that the client does not remember.

    The directory was restored from a backup, or copied.  Its operator has to act.
    """


@dataclass(frozen=True)
class Finding:
    """Who made an attempt fail, as far as that can be told.

    One member is *named*; or two of them, where one of the two must be at fault; or, with no member
    at all, it can only be said what happened.
    """

    members: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return self.text


class RoundAbortedError(FedforgetError):
    """The attempt has ended without a result; nothing was committed, and every party can go on.

    Attributes
    ----------
    findings : who is to blame, as far as that can be told.
    again : whether another attempt, without those who are named, can succeed at once.
    missing : members who were not there; a round can be tried again once they are.
    person : whether no repetition helps, only a command that the message names.
    """

    def __init__(
        self,
        message: str,
        *,
        findings: Sequence[Finding] = (),
        again: bool = False,
        missing: Sequence[str] = (),
        person: bool = False,
    ) -> None:
        super().__init__(message)
        self.findings = tuple(findings)
        self.again = again
        self.missing = tuple(missing)
        self.person = person
