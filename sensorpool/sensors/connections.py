"""Connections: a poke_context names a secret, and the worker looks it up when a poke needs it.

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
    """The backend answered, and a longer wait will not mend the answer: the sensor fails at once."""


def variable(conn_id: str) -> str:
    """Return the name of a connection's environment variable."""
    return f"SENSORPOOL_CONN_{conn_id.upper()}"


def connection(conn_id: str) -> str:
    """Return the value of a connection.

    :raises SettingsError: when this process does not have the variable.
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

    :raises SettingsError: when it is no JSON object; the text leaves out the value, which is secret.
    """
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise SettingsError(f"{name} is not a JSON object") from None
    return found


def shown_url(url: str) -> str:
    """Return the URL without its user, password, query and fragment, so that it can be shown."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit((parts.scheme, host, parts.path, "***" if parts.query else "", ""))
    except ValueError:
        return "(a malformed URL)"


def one_line(error: BaseException | str, secrets: Iterable[str] = ()) -> str:
    """Return an error as one line of bounded length, with the given secrets and the passwords in URLs hidden."""
    said = str(error).strip() or type(error).__name__
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            said = said.replace(secret, "***")
    said = hide_password(re.sub(r"://[^\s/@]*@", "://***@", said))
    return " ".join(said.split())[:MAX_REASON]
