"""Defaults of settings, and the prefixes of environment variables and of keys in Redis."""

import os
from pathlib import Path

PREFIX = "SENSORPOOL_"
MEMORY = "memory://"

PATH_SENSOR = "sensorpool.sensors.PathSensor"
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
    """Return the folder of this user's own pool: below ``XDG_STATE_HOME``."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "sensorpool"


def default_database() -> str:
    """Return the URL of this user's own SQLite file."""
    return f"sqlite:///{state_folder() / 'sensorpool.db'}"


def key_prefix(namespace: str) -> str:
    """Return the prefix of all our keys in Redis."""
    return f"sensorpool:{namespace}:" if namespace else "sensorpool:"
