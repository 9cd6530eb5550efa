"""What the commands and the services around Flower have to agree on."""

from __future__ import annotations

PROGRESS = "flower.jsonl"
"""The file in the server's directory that says how runs went."""

OFFLINE_FLOWER = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
"""Environment variables with which Flower calls nobody outside."""
