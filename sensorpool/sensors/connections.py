"""Connections: what is secret is named in a poke_context, and looked up on the worker when it is needed.

``conn_id="warehouse"`` is the environment variable ``SENSORPOOL_CONN_WAREHOUSE``.
"""

import json
import os
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from sensorpool.errors import InfraFailure, SensorpoolError, SettingsError
from sensorpool.instrumentation.redaction import hide_password, learn

__all__ = [
    "InfraFailure",
    "PokeFailed",
    "connection",
    "connection_object",
    "one_line",
    "shown_url",
    "variable",
]

MAX_REASON = 300
_SHORTEST_SECRET = 4  # hiding every "1" of a message would hide the message


class PokeFailed(SensorpoolError):
    """The question was answered, and waiting longer will not mend the answer: the sensor fails at once."""


def variable(conn_id: str) -> str:
    """Name the environment variable of a connection."""
    return f"SENSORPOOL_CONN_{conn_id.upper()}"


def connection(conn_id: str) -> str:
    """Return the value of a connection.

    :raises SettingsError: when this process has none of that name.
    """
    name = variable(conn_id)
    value = os.environ.get(name, "").strip()
    if not value:
        raise SettingsError(f"conn_id {conn_id!r} is not known here: set {name} for the workers")
    learn(value)
    return value


@lru_cache(maxsize=256)
def connection_object(name: str, value: str) -> dict[str, Any]:
    """Read the value of the variable ``name`` as a JSON object, which is shared and must not be changed.

    :raises SettingsError: when it is none; without the value, which is secret.
    """
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise SettingsError(f"{name} is not a JSON object") from None
    return found


def shown_url(url: str) -> str:
    """Return the URL as it may be shown: without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit((parts.scheme, host, parts.path, "***" if parts.query else "", ""))
    except ValueError:
        return "(a malformed URL)"


def one_line(error: BaseException | str, secrets: Iterable[str] = ()) -> str:
    """Say an error in one line of bounded length, with the given secrets and the passwords in URLs hidden."""
    said = str(error).strip() or type(error).__name__
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            said = said.replace(secret, "***")
    said = hide_password(re.sub(r"://[^\s/@]*@", "://***@", said))
    return " ".join(said.split())[:MAX_REASON]
