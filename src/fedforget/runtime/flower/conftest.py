"""Doctests are looked for in every module, and two cannot be imported without Flower."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [] if find_spec("flwr") else ["client_app.py", "server_app.py"]
