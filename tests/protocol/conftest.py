"""Scripts here are not test modules; the vectors' script has a namesake in another folder."""

from __future__ import annotations

collect_ignore = ["make_vectors.py"]
