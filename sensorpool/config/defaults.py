"""What settings are where nothing is said, and what variables and keys in Redis begin with."""

import os
from pathlib import Path

PREFIX = "SENSORPOOL_"
MEMORY = "memory://"

BUILT_IN_SENSORS = tuple(
    f"sensorpool.sensors.{name}" for name in ("HttpSensor", "PathSensor", "SqlSensor", "TimeSensor")
)
INFRA_FAILURES = (
    "builtins.ConnectionError",
    "socket.gaierror",
    "httpx.TransportError",
    "requests.exceptions.ConnectionError",
    "requests.exceptions.Timeout",
)


def state_folder() -> Path:
    """Return where this user's own pool lives: below ``XDG_STATE_HOME``."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "sensorpool"


def default_database() -> str:
    """Return the URL of this user's own SQLite file."""
    return f"sqlite:///{state_folder() / 'sensorpool.db'}"


def key_prefix(namespace: str) -> str:
    """Return what all our keys in Redis begin with."""
    return f"sensorpool:{namespace}:" if namespace else "sensorpool:"
