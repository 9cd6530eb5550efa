"""What keeps a round's secrets out of the reach of Flower's database and of later processes.

Answers: masked vectors and the shares that take their masks off pass through the SuperLink, whose
database may keep deleted pages for long.  So a client encrypts each answer for a key that the
ServerApp makes for one run, signs with the server's identity and never stores.

Memory: a ClientApp is a new process for every message, and keeps its attempt in Flower's
``context.state``.  There it lies encrypted; the key is in the client's directory, is another one
after every message, and is erased at the end.  An attempt that was cut off can then not be read
from a SuperNode's memory once another one has begun, in whichever run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedforget.parties.folders import write_private
from fedforget.protocol.client_side import ClientSide
from fedforget.protocol.client_stages import Resting, Revealed
from fedforget.protocol.errors import BadShareError, BadSignatureError, MalformedError
from fedforget.protocol.keys import (
    KEY_BYTES,
    Agreement,
    AgreementKey,
    Identity,
    OneTimeKey,
    PublicKey,
    derive,
)
from fedforget.protocol.memory import freeze, thaw

ATTEMPT_KEY = "attempt.key"

_DOMAIN = b"fedforget run key 2\0"


@dataclass(frozen=True)
class RunKey:
    """The server's key for the answers of one run.  ``offer`` is its signed public half."""

    agreement: Agreement
    offer: bytes

    @classmethod
    def fresh(cls, identity: Identity, federation: bytes) -> RunKey:
        agreement = Agreement(os.urandom(KEY_BYTES))
        public = agreement.public.data
        return cls(agreement, public + identity.sign(_DOMAIN + federation + public))

    def open(self, sealed: bytes) -> bytes:
        """What a client sealed for this key."""
        if len(sealed) < KEY_BYTES:
            raise MalformedError("an answer that is too short")
        peer = AgreementKey(sealed[:KEY_BYTES])
        key = _answer_key(self.agreement.with_peer(peer), self.agreement.public, peer)
        try:
            return key.decrypt(sealed[KEY_BYTES:], peer.data)
        except BadShareError:
            raise MalformedError("an answer that was not sealed for this run") from None


def checked(offer: bytes, server_key: PublicKey, federation: bytes) -> AgreementKey:
    """The public key that the server offers, if the server did sign it."""
    public, signature = offer[:KEY_BYTES], offer[KEY_BYTES:]
    try:
        server_key.verify(signature, _DOMAIN + federation + public)
    except BadSignatureError:
        raise BadSignatureError(
            "this is not the server of the client's federation file: its key for the run has"
            " another signature"
        ) from None
    return AgreementKey(public)


def seal_for(public: AgreementKey, answer: bytes) -> bytes:
    """Encrypt an answer for a key that was checked."""
    own = Agreement(os.urandom(KEY_BYTES))
    key = _answer_key(own.with_peer(public), public, own.public)
    return own.public.data + key.encrypt(answer, own.public.data)


def _answer_key(secret: bytes, server: AgreementKey, client: AgreementKey) -> OneTimeKey:
    # The client's half is fresh for every answer, so the key is, too.
    return OneTimeKey(derive(secret, "flower answer", server.data, client.data))


class AttemptMemory:
    """A client's attempt between two messages.

    Parameters
    ----------
    folder : the client's directory, where the key is.
    state : a mapping that outlives the process, Flower's ``context.state``.
    record : makes a value for ``state`` from bytes under the name ``"attempt"``.
    """

    def __init__(self, folder: Path, state: Any, record: Any) -> None:
        self._path = folder / ATTEMPT_KEY
        self._state = state
        self._record = record

    def recall(self, client: ClientSide) -> None:
        """Take a client to where the last message left it, if that was in an attempt."""
        if "attempt" not in self._state or not self._path.exists():
            return
        try:
            key = OneTimeKey(self._path.read_bytes())
            secret_attempt = key.decrypt(self._state["attempt"]["attempt"], b"attempt")
        except (BadShareError, ValueError):
            # Left over from a run that was cut off: the key has been replaced since.
            del self._state["attempt"]
            return
        thaw(client, secret_attempt)

    def keep(self, client: ClientSide) -> None:
        """Remember where a client is; nothing, if it is in no attempt any more."""
        self.wipe()
        if isinstance(client.stage, Resting | Revealed):
            return
        key = os.urandom(KEY_BYTES)
        write_private(self._path, key)
        secret_attempt = OneTimeKey(key).encrypt(freeze(client), b"attempt")
        self._state["attempt"] = self._record({"attempt": secret_attempt})

    def wipe(self) -> None:
        """Forget the attempt."""
        forget(self._state)
        if self._path.exists():
            with self._path.open("r+b") as file:
                file.write(bytes(KEY_BYTES))
                file.flush()
                os.fsync(file.fileno())
            self._path.unlink()


def forget(state: Any) -> None:
    """Take the attempt out of Flower's state, where the directory cannot be opened."""
    if "attempt" in state:
        del state["attempt"]
