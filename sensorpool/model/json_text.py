"""JSON of rows, which may have been edited by hand: one garbled row must not stop the work on the others."""

import json
from typing import Any


def read_json(text: str, otherwise: Any = None) -> Any:
    """Return the value of a JSON text, or ``otherwise`` if the text is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return otherwise
