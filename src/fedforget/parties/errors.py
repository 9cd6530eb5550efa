"""What a party cannot do in its present state."""

from __future__ import annotations

from fedforget.errors import FedforgetError


class ClientError(FedforgetError):
    """Something that a client cannot do in its present state."""
