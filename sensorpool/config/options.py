"""All settings, each with its default, its limits and its meaning, and values that follow from them."""

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from sensorpool.config.defaults import BUILT_IN_SENSORS, INFRA_FAILURES, MEMORY, PREFIX, default_database
from sensorpool.errors import Refused
from sensorpool.model.budgets import Budget, read_budgets
from sensorpool.model.identity import canonical_classpath
from sensorpool.model.patterns import canonical_entry
from sensorpool.model.values import LONGEST_SPAN


def _split(value: object) -> object:
    """Read ``a, b`` as a list, as Airflow's configuration does."""
    if isinstance(value, str):
        return tuple(item.strip() for item in value.split(",") if item.strip())
    return value


def _classpaths(value: object) -> object:
    return _spelled(value, canonical_classpath)


def _spelled(value: object, canonical: Callable[[object], str]) -> object:
    entries = _split(value)
    try:
        return tuple(canonical(entry) for entry in entries) if isinstance(entries, tuple | list) else entries
    except Refused as error:
        raise ValueError(str(error)) from None


def _enabled(value: object) -> object:
    if isinstance(value, str) and not _split(value):
        raise ValueError("names no class: leave it out for the built-in sensors, or list what may be poked")
    return _spelled(value, canonical_entry)


def _budgets(value: object) -> object:
    return () if value == "" else read_budgets(value)


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
ClassPaths = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_classpaths)]
Enabled = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_enabled)]
BudgetsOfBackends = Annotated[tuple[Budget, ...], NoDecode, BeforeValidator(_budgets)]
Seconds = Annotated[float, Field(gt=0, le=LONGEST_SPAN, allow_inf_nan=False)]
# spans between repeated actions: with shorter ones the process would do nothing else
Moments = Annotated[float, Field(ge=0.05, le=LONGEST_SPAN, allow_inf_nan=False)]
WholeSeconds = Annotated[float, Field(ge=1, le=LONGEST_SPAN, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, lt=2**31)]


class Options(BaseSettings):
    """The fields of `Settings`, which reads them and refuses impossible combinations. Times are seconds."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", env_ignore_empty=True, str_strip_whitespace=True
    )

    # where things are
    database_url: str = Field(
        default_factory=default_database,
        description="SQLAlchemy URL of the database.",
    )
    database_schema: str = Field(
        "",
        pattern=r"^([a-z_][a-z0-9_]{0,62})?$",
        description="Schema of the tables on PostgreSQL, created by `db upgrade`. The default is the connection's own.",
    )
    redis_url: str = Field(MEMORY, description="Redis for leases and heartbeats. `memory://` serves one process only.")
    broker_url: str = Field("", description="Celery's broker, Redis or RabbitMQ. The default is `redis_url`.")
    namespace: str = Field(
        "",
        pattern=r"^[A-Za-z0-9_-]{0,32}$",
        description="Separates two pools on one Redis or broker. All processes of a pool need the same one.",
    )

    # what may be poked
    sensors_enabled: Enabled = Field(
        BUILT_IN_SENSORS,
        description="Class paths that may be poked, and patterns like `mycompany.sensors.*`, which enable the sensors "
        "that are defined in a package and below.",
    )
    infra_failures: ClassPaths = Field(
        INFRA_FAILURES,
        description="Exception classes, with their subclasses, that mean that the backend could not be asked.",
    )
    infra_failure_window: Seconds = Field(
        7800.0,
        description="How long an infrastructure failure is retried before it counts (AIP-17: 130 minutes).",
    )

    # when
    shards: Count = Field(
        2,
        le=100_000,
        description="Number of shard ranges. Use one for each child that pokes (AIP-17's `shards`).",
    )
    shard_code_upper_limit: Count = Field(
        10_000, description="Highest shardcode (AIP-17's word). Rescue folds higher ones."
    )
    tick: Moments = Field(5.0, description="Time between two jobs of a shard range. Intervals are rounded up to it.")
    poke_interval: Seconds = Field(60.0, description="Interval of a sensor without one (Airflow's default).")
    timeout: Seconds = Field(604_800.0, description="Timeout of a sensor without one (Airflow's default, 7 days).")

    # how
    poke_timeout: Moments = Field(10.0, description="Time limit of one poke.")
    poke_concurrency: Count = Field(64, le=100_000, description="Pokes that one worker process makes at once.")
    budgets: BudgetsOfBackends = Field(
        (),
        description="A JSON object that gives each backend, or pattern with `*`, a budget like `50/s`, `8 at once`, "
        "or `50/s, 8 at once`. All workers share it.",
    )
    adaptive: bool = Field(
        False,
        description="Poke only every tenth interval until ten intervals before the earliest landing of the same "
        "family. Needs ten landings.",
    )
    hanging_concurrency: Count = Field(
        256,
        le=100_000,
        description="Pokes of hanging groups that one worker process makes at once, in child processes of 64 pokes "
        "and 26 MB.",
    )
    job_time_limit: WholeSeconds = Field(300.0, description="Hard limit of one job.")
    lease_ttl: Seconds = Field(30.0, description="How long a lease outlives its holder's last heartbeat.")
    heartbeat: Moments = Field(5.0, description="Time between two renewals of a lease.")
    commit_overlap: Seconds = Field(10.0, description="How far the load looks back for late commits of registrations.")
    crash_limit: Count = Field(3, description="Strikes after which a condition is quarantined, and its group fails.")
    overrun_limit: int = Field(
        3,
        ge=0,
        lt=2**31,
        description="Pokes in a row that overrun POKE_TIMEOUT until Airflow's tasks are handed back. 0: never.",
    )
    poke_memory: Count = Field(
        2048,
        ge=16,
        description="Memory in MB that pokes may take in one process (Linux). A poke that needs more is an "
        "infrastructure failure.",
    )
    max_abandoned: Count = Field(
        8,
        description="Hung threads after which a worker child is replaced between jobs.",
    )
    child_max_age: WholeSeconds = Field(
        14_400.0,
        description="Age at which a worker child is replaced between two jobs, which loads new code of classes.",
    )
    groups_cached: Count = Field(200_000, description="Constructed sensors that one process keeps.")

    # afterwards
    rescue_interval: Moments = Field(15.0, description="Time between two rounds of rescue.")
    retention: WholeSeconds = Field(
        604_800.0,
        description="Terminal instances older than this are pruned. A waiter that asks later finds no result.",
    )
    landing_retention: WholeSeconds = Field(
        34_560_000.0,
        description="Records of landings older than this are pruned. They tell when a condition usually lands.",
    )
    on_settled_tasks: Names = Field(
        (),
        description="Celery tasks that callbacks may call: names, or patterns like `shop.tasks.*`.",
    )
    on_settled_broker_url: str = Field(
        "",
        description="Broker of the callbacks' tasks. The default is the pool's broker, without its key prefix.",
    )
    on_settled_queue: str = Field(
        "celery",
        min_length=1,
        max_length=255,
        description="Queue of a callback that names no queue and has no application to route it.",
    )

    on_late_task: str = Field(
        "",
        max_length=250,
        description="Celery task that is sent for each condition that is later than usual, as a callback is. Its "
        "argument is an object with a sentence as `text`.",
    )

    # to look at it
    metrics_host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="Address of a worker's metrics and probes. Use `0.0.0.0` in a container.",
    )
    metrics_port: int | None = Field(
        None,
        ge=1,
        le=65535,
        description="Port of a worker's Prometheus metrics, `/healthz` and `/readyz`. Each worker of a host needs its "
        "own.",
    )
    web_token: str = Field(
        "",
        description="Secret of `sensorpool web`, 16 characters at least: a password with any user name, or a bearer "
        "token. By default each start prints a new one.",
    )
    wake_token: str = Field(
        "",
        description="Secret of `POST /wake`, 16 characters at least, by which `sensorpool web` accepts wake-ups. "
        "Without it there is no such address.",
    )
    log_format: Literal["text", "json"] = Field("text", description="`text` (key=value) or `json`, one line each.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "INFO", description="Lowest level logged. `--loglevel` of a worker or beat overrides it."
    )
    poke_log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "WARNING", description="Lowest level of what pokes log into the worker's log, 200 lines in 10 s at most."
    )

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

    @property
    def commit_overlap_ms(self) -> int:
        """The overlap of two loads in milliseconds."""
        return round(self.commit_overlap * 1000)

    @property
    def job_span(self) -> float:
        """For how many seconds one job takes up pokes: a tick, or less where its hard limit is near."""
        return min(self.tick, self.job_time_limit / 3)
