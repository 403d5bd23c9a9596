"""Connections: a poke_context names a secret, and the worker looks it up when a poke needs it.

``conn_id="warehouse"`` is the environment variable ``SENSORPOOL_CONN_WAREHOUSE``.
"""

import json
import os
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from sensorpool.errors import SensorpoolError, SettingsError
from sensorpool.instrumentation.redaction import hide_password, learn

MAX_REASON = 300
_SHORTEST_SECRET = 4  # hiding every "1" of a message would hide the message
_PORTS = {"http": 80, "https": 443, "ftp": 21, "sftp": 22, "ssh": 22, "smb": 445}


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


class Server(NamedTuple):
    """What a URL names before its path."""

    scheme: str
    host: str
    port: object


def server_of(url: str, port: object = None) -> Server:
    """Return the server of a URL: a password for one goes to no other.

    :param port: that of URLs without one, if it is not the protocol's.
    :raises ValueError: when the URL is malformed.
    """
    parts = urlsplit(url)
    return Server(parts.scheme, parts.hostname or "", parts.port or port or _PORTS.get(parts.scheme))


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
