"""Checks of a sensor's arguments: values of JSON may be of any type."""

import math
import re
from urllib.parse import unquote

_CONN_ID = re.compile(r"[A-Za-z0-9_]+", re.ASCII)
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")


def text(name: str, value: object) -> str:
    """Return the value if it is a string that is not blank and has no control character.

    :raises TypeError: when it is no string.
    :raises ValueError: when it is blank or has a control character.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} is a string, not {type(value).__name__}")
    if not value.strip():
        raise ValueError(f"{name} is empty")
    if _CONTROLS.search(value):
        raise ValueError(f"{name} has a control character in it: {value[:80]!r}")
    return value


def amount(name: str, value: object, unit: str) -> float:
    """Return the value if it is a finite number that is not negative.

    :raises TypeError: when it is no number.
    :raises ValueError: when it is negative or not finite.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is a number of {unit}, not {type(value).__name__}")
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{name} is a number of {unit} from 0 up, not {value}")
    return value


def count(name: str, value: object, unit: str) -> int:
    """Return the value if it is a whole number that is not negative.

    :raises TypeError: when it is no whole number.
    :raises ValueError: when it is negative.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is a whole number of {unit}, not {type(value).__name__}")
    if value < 0:
        raise ValueError(f"{name} is a whole number of {unit} from 0 up, not {value}")
    return value


def conn_id(value: object) -> str:
    """Return the value if it can name a connection.

    :raises TypeError: when it is no string.
    :raises ValueError: when it has other characters than letters, digits and underscores.
    """
    if not isinstance(value, str):
        raise TypeError(f"conn_id is a string, not {type(value).__name__}")
    if not _CONN_ID.fullmatch(value):
        # the value is not quoted: it may be the secret itself
        raise ValueError("conn_id names a connection: letters, digits and underscores, not its URL")
    return value


def climbs(url: str) -> bool:
    """Whether a URL's path has a segment that some server takes for the folder above: encoded, or with parameters."""
    path = re.split("[?#]", url, maxsplit=1)[0]
    for _ in range(3):  # a proxy and its server may both decode it
        path = unquote(path)
    return any(segment.partition(";")[0] == ".." for segment in re.split(r"[/\\]", path))
