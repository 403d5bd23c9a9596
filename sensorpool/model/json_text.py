"""JSON in rows that somebody may have written over by hand: one such row must not stop what is done for the others."""

import json
from typing import Any


def read_json(text: str, otherwise: Any = None) -> Any:
    """Return what the text says, or ``otherwise`` where it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return otherwise
