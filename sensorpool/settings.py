"""The settings: one frozen object, read from ``SENSORPOOL_*``; impossible combinations are refused at start."""

import os
import re
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from sensorpool import extensions
from sensorpool.errors import Refused, SettingsError
from sensorpool.identity import canonical_classpath
from sensorpool.redaction import hide_password, learn

PREFIX = "SENSORPOOL_"
_URLS = ("database_url", "redis_url", "broker_url", "on_settled_broker_url")
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
# Read elsewhere, so not settings: named here so that a typo in a setting can be told from them.
_NOT_SETTINGS = re.compile(r"SENSORPOOL_(CONN_\w+|CONFIG_MODULE|FAILPOINT|TEST_\w+)")
EXTENSIONS = "sensorpool.settings"  # entry points: functions that return settings by name


def _split(value: object) -> object:
    """Take ``a, b`` for a list, as Airflow's configuration does."""
    if isinstance(value, str):
        return tuple(item.strip() for item in value.split(",") if item.strip())
    return value


def _classpaths(value: object) -> object:
    paths = _split(value)
    try:
        return tuple(canonical_classpath(path) for path in paths) if isinstance(paths, tuple | list) else paths
    except Refused as error:
        raise ValueError(str(error)) from None


def _state_folder() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "sensorpool"


def _default_database() -> str:
    return f"sqlite:///{_state_folder() / 'sensorpool.db'}"


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
ClassPaths = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_classpaths)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


class Settings(BaseSettings):
    """All settings of sensorpool. Times are seconds.

    :raises SettingsError: by `Settings.load`, with one line for each thing that is wrong.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid", env_ignore_empty=True)

    # where things are
    database_url: str = Field(
        default_factory=_default_database,
        description="SQLAlchemy URL of the database that holds the truth. The default is an SQLite file.",
    )
    database_schema: str = Field(
        "",
        pattern=r"^([a-z_][a-z0-9_]{0,62})?$",
        description="Schema of our tables on PostgreSQL, made by `db upgrade`. Left out, the connection's own.",
    )
    redis_url: str = Field(MEMORY, description="Redis for leases and heartbeats. `memory://` serves one process only.")
    broker_url: str = Field("", description="Celery's broker, Redis or RabbitMQ. Left out, it is `redis_url`.")

    # what may be poked
    sensors_enabled: ClassPaths = Field(
        BUILT_IN_SENSORS,
        description="The exact class paths that may be poked, comma-separated (AIP-17's `sensors_enabled`).",
    )
    infra_failures: Names = Field(
        INFRA_FAILURES,
        description="Exception classes (also their subclasses) that mean that the backend could not be asked.",
    )
    infra_failure_window: Seconds = Field(
        7800.0,
        description="How long an infrastructure failure is retried before it counts (AIP-17: 130 minutes).",
    )

    # when
    shards: Count = Field(8, description="Number of shard ranges: one job each per tick (AIP-17's `shards`).")
    shard_code_upper_limit: Count = Field(
        10_000, description="Shardcodes run from 0 to this (AIP-17's word); rescue folds those beyond."
    )
    tick: Seconds = Field(5.0, description="Time between two jobs of a shard range; intervals are rounded up to it.")
    poke_interval: Seconds = Field(60.0, description="Interval of a sensor that names none (Airflow's default).")
    timeout: Seconds = Field(604_800.0, description="Timeout of a sensor that names none (Airflow's default, 7 days).")

    # how
    poke_timeout: Seconds = Field(10.0, description="Time limit of one poke.")
    poke_concurrency: Count = Field(64, description="Pokes that one worker process makes at once.")
    job_time_limit: Seconds = Field(
        300.0, description="Hard limit of one job; a job stops taking up pokes well before it."
    )
    lease_ttl: Seconds = Field(30.0, description="How long a lease outlives its holder's last heartbeat.")
    heartbeat: Seconds = Field(5.0, description="Time between two renewals of a lease.")
    commit_overlap: Seconds = Field(
        10.0, description="How far the load looks back for registrations whose commit came late."
    )
    crash_limit: Count = Field(3, description="Crashes after which a condition is quarantined, and its group fails.")
    poke_memory: Count = Field(
        2048,
        description="Memory in MB that pokes may take in one process; one that wants more counts as a crash (Linux).",
    )
    dag_quota: Count = Field(
        100_000,
        description="Sensing instances of one DAG beyond which no more are taken; rescue counts, so it takes a while.",
    )
    max_abandoned: Count = Field(8, description="Hung threads after which a worker child is replaced between jobs.")
    groups_cached: Count = Field(200_000, description="Constructed sensors that one process keeps.")

    # afterwards
    rescue_interval: Seconds = Field(15.0, description="Time between two rounds of rescue.")
    retention: Seconds = Field(604_800.0, description="Terminal instances older than this are pruned.")
    on_settled_tasks: Names = Field(
        (), description="Celery task names that `on_settled` may call; none unless listed here."
    )
    on_settled_broker_url: str = Field(
        "",
        description="Broker of the `on_settled` tasks. Left out, it is the broker, without our key prefix.",
    )

    # to look at it
    metrics_port: int | None = Field(
        None,
        ge=1,
        le=65535,
        description="Port of the worker's Prometheus metrics on loopback; none, no metrics.",
    )
    log_format: Literal["text", "json"] = Field("text", description="`text` (key=value) or `json`, one line each.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", description="The least level logged.")

    @classmethod
    def load(cls, **overrides: object) -> "Settings":
        """Read the settings: ``overrides`` win over the environment, and that over Airflow's ``[sensorpool]`` section.

        :raises SettingsError: with one line for each thing that is wrong.
        """
        for found in extensions.load(EXTENSIONS).values():
            given = {name: value for name, value in found().items() if name in cls.model_fields}
            overrides = {name: value for name, value in given.items() if not _is_in_environment(name)} | overrides
        try:
            return cls(**overrides)  # type: ignore[arg-type]  # pydantic checks them
        except ValidationError as error:
            raise SettingsError("\n".join(_line(item) for item in error.errors())) from None

    @model_validator(mode="after")
    def _check_combinations(self) -> "Settings":
        problems = [message for impossible, message in self._impossible() if impossible]
        if problems:
            raise ValueError("\n".join(problems))
        for name in _URLS:
            learn(str(getattr(self, name)))
        return self

    def _impossible(self) -> list[tuple[bool, str]]:
        """Rules with the message of each that is broken."""
        return [
            (
                self.heartbeat * 2 >= self.lease_ttl,
                f"HEARTBEAT ({self.heartbeat:g} s) must be less than half of LEASE_TTL ({self.lease_ttl:g} s), "
                "or one lost renewal loses the lease",
            ),
            (
                self.shards > self.shard_code_upper_limit,
                f"SHARDS ({self.shards}) must not exceed SHARD_CODE_UPPER_LIMIT ({self.shard_code_upper_limit})",
            ),
            (
                self.poke_timeout * 2 > self.job_time_limit,
                f"POKE_TIMEOUT ({self.poke_timeout:g} s) must be at most half of JOB_TIME_LIMIT "
                f"({self.job_time_limit:g} s), or a slow poke ends its whole job",
            ),
            (
                self.tick > self.poke_interval,
                f"TICK ({self.tick:g} s) must not exceed POKE_INTERVAL ({self.poke_interval:g} s), "
                "or the default interval cannot be kept",
            ),
            (
                bool(self.database_schema) and not self.database_url.startswith("postgres"),
                "DATABASE_SCHEMA is for PostgreSQL only: leave it out, or name a PostgreSQL in DATABASE_URL",
            ),
            (
                "://" not in self.database_url,
                "DATABASE_URL must be a SQLAlchemy URL like postgresql+psycopg://user:password@host/name",
            ),
            (
                not _has_scheme(self.redis_url, "redis", "rediss", "unix", "memory"),
                "REDIS_URL must begin with redis://, rediss://, unix:// or be memory://",
            ),
            (
                bool(self.broker_url)
                and not _has_scheme(self.broker, "redis", "rediss", "unix", "amqp", "amqps", "pyamqp", "memory"),
                "BROKER_URL must begin with redis://, rediss://, amqp:// or amqps://, or be memory://",
            ),
            (
                self.broker == MEMORY != self.redis_url and bool(self.broker_url),
                "BROKER_URL memory:// serves one process only, so REDIS_URL must be memory:// too",
            ),
            (
                self.redis_url == MEMORY and self.broker != MEMORY,
                "REDIS_URL is memory://, which serves one process only, but BROKER_URL is shared: "
                "name the Redis that holds the leases",
            ),
        ]

    @property
    def broker(self) -> str:
        """The broker's URL, with the default applied."""
        return self.broker_url or self.redis_url

    @property
    def embedded(self) -> bool:
        """Whether everything runs in one process."""
        return self.redis_url == MEMORY

    @property
    def tick_ms(self) -> int:
        """The tick in milliseconds."""
        return max(1, round(self.tick * 1000))

    def shown(self) -> dict[str, object]:
        """Return the effective settings with the secrets in URLs hidden, for people and logs."""
        values: dict[str, object] = dict(self)
        for name in _URLS:
            values[name] = hide_password(str(values[name]))
        return values


def _is_in_environment(name: str) -> bool:
    return bool(os.environ.get(f"{PREFIX}{name.upper()}"))


def unknown_variables() -> list[str]:
    """Name the ``SENSORPOOL_*`` variables that no setting has: most likely typos."""
    elsewhere = [name for found in extensions.load(EXTENSIONS).values() for name in getattr(found, "names", ())]
    known = {f"{PREFIX}{name.upper()}" for name in [*Settings.model_fields, *elsewhere]}
    return sorted(
        name
        for name in os.environ
        if name.startswith(PREFIX) and name not in known and not _NOT_SETTINGS.fullmatch(name)
    )


def _has_scheme(url: str, *schemes: str) -> bool:
    try:
        return urlsplit(url).scheme in schemes
    except ValueError:
        return False


def _line(item: object) -> str:
    """Say one pydantic error as one line (or, for combinations, the lines that the rule gave)."""
    assert isinstance(item, dict)
    message = str(item["msg"]).removeprefix("Value error, ")
    if not item["loc"]:
        return "\n".join(f"{PREFIX}{line}" for line in message.splitlines())
    name = f"{PREFIX}{str(item['loc'][0]).upper()}"
    if item["type"] == "extra_forbidden":
        return f"{name}: there is no such setting"
    shown = "" if "url" in name.lower() else f" (it is {str(item.get('input'))[:80]!r})"
    return f"{name}: {message[0].lower()}{message[1:]}{shown}"
