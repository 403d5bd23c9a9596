"""The ``[sensorpool]`` section of Airflow's configuration: one configuration for Airflow and the pool.

``AIRFLOW__SENSORPOOL__NAME`` or ``airflow.cfg`` give the settings of `config.settings` by the same names, and
those of Airflow's side, below. ``SENSORPOOL_NAME`` wins where both are set. Nothing here imports airflow unless the
section is in use: the command line stays quick.
"""

import importlib.util
import os
from configparser import Error, RawConfigParser
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from sensorpool.airflow.callables_enabled import Callables
from sensorpool.airflow.catalog import catalog
from sensorpool.airflow.compat import secrets_masker
from sensorpool.config.defaults import BUILT_IN_SENSORS, PREFIX
from sensorpool.config.options import ClassPaths, Count, Names, Seconds
from sensorpool.config.settings import Settings, refusal_of
from sensorpool.errors import SettingsError
from sensorpool.instrumentation.redaction import ask, one_line
from sensorpool.model.values import LONGEST_SPAN
from sensorpool.model.words import nearest

SECTION = "sensorpool"
_ENVIRONMENT = f"AIRFLOW__{SECTION.upper()}__"
SCHEMA = "sensorpool"  # of the pool's tables, in the PostgreSQL database that the section names

# Enabled by default beside our own sensors: the sensors that docs/sensors.md proves poolable, and operators that wait
# for what they have started. Each process of Airflow reads it as the option's default, so it is short.
WAITING_OPERATORS = (
    "airflow.providers.apache.spark.operators.spark_submit.SparkSubmitOperator",
    "airflow.providers.standard.operators.trigger_dagrun.TriggerDagRunOperator",
)
AIRFLOW_SENSORS = ("airflow.providers.*", *WAITING_OPERATORS)
DEFAULT_SENSORS = BUILT_IN_SENSORS + AIRFLOW_SENSORS


class AirflowSettings(BaseSettings):
    """The settings of Airflow's side. Times are seconds."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid", env_ignore_empty=True)

    enabled: bool = Field(
        False,
        description="Whether sensors leave their worker slots (AIP-17's `use_smart_sensor`).",
    )
    first_poke: Literal["worker", "pool"] = Field(
        "worker",
        description="`worker`: the task pokes once before it registers. `pool`: the pool makes the first poke.",
    )
    start: Literal["worker", "scheduler"] = Field(
        "worker",
        description="`scheduler`: a sensor begins to wait without a worker if it can. `worker`: each begins on one.",
    )
    listeners: Literal["respect", "ignore"] = Field(
        "respect",
        description="With `start = scheduler` and listeners of task instances: `respect` lets each sensor begin on a "
        "worker, `ignore` does not.",
    )
    deferrable: Literal["native", "pool"] = Field(
        "native",
        description="Sensors with `deferrable=True`: `native`: each waits by its own trigger. `pool`: they wait in "
        "the pool.",
    )
    include: Names = Field(("*",), description="Patterns over `dag_id` and `dag_id.task_id`: who is pooled.")
    exclude: Names = Field((), description="Patterns over `dag_id` and `dag_id.task_id`: who is not.")
    callables_enabled: Callables = Field(
        (),
        description="Functions that sensors may take as arguments in the pool: names like `mycompany.checks.ready`, "
        "or `mycompany.checks.*` for all of a package.",
    )
    dag_bundle_processes: Count = Field(
        4,
        le=100,
        description="Processes that load DAG files for one process of the pool, one for each bundle and version.",
    )
    gates_enabled: ClassPaths = Field(
        (),
        description="Class paths of your own sensors whose last poke is repeated on the worker. That poke must take "
        "nothing away.",
    )
    on_pool_dead: Literal["wait", "native"] = Field(
        "wait",
        description="When no tick has finished for `pool_dead_after`: wait for the pool (`wait`), or run the sensors "
        "natively (`native`).",
    )
    pool_dead_after: Seconds = Field(
        300.0, description="Time without a finished tick after which the pool counts as dead."
    )
    hand_back_rate: Seconds = Field(5.0, description="Sensors a second that go back to workers when the pool is dead.")
    deferral_grace: Seconds = Field(
        3600.0, description="How long after a sensor's timeout Airflow itself ends the task."
    )
    resume_hold: float = Field(
        10.0,
        ge=0,
        le=LONGEST_SPAN,
        allow_inf_nan=False,
        description="Time after registration before which no task resumes on a worker (a race of Airflow 3.3).",
    )
    rebuild_after: Seconds = Field(
        300.0,
        description="Age at which the pool checks for changed Connections and rebuilds a sensor.",
    )
    log_every: Seconds = Field(300.0, description="Time between two lines in the log of a task that waits.")

    @classmethod
    def load(cls, **overrides: object) -> "AirflowSettings":
        """Read the settings of Airflow's side; ``overrides`` win.

        :raises SettingsError: with one line for each wrong setting.
        """
        given = {name: value for name, value in section().items() if name in cls.model_fields}
        given = {name: value for name, value in given.items() if not os.environ.get(f"{PREFIX}{name.upper()}")}
        try:
            return cls(**(given | overrides))  # type: ignore[arg-type]  # pydantic checks them
        except ValidationError as error:
            lines = [refusal_of(item, cls.model_fields, lambda name: f"[{SECTION}] {name}") for item in error.errors()]
            raise SettingsError("\n".join(lines)) from None

    def admits(self, dag_id: str, task_id: str) -> bool:
        """Whether the patterns let a task be pooled."""
        names = (dag_id, f"{dag_id}.{task_id}")

        def matches(patterns: tuple[str, ...]) -> bool:
            return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)

        return matches(self.include) and not matches(self.exclude)


def section() -> dict[str, str]:
    """Return the options of the section, by name; empty if the section is not in use.

    :raises SettingsError: when Airflow cannot read it.
    """
    in_environment = _environment()
    # a command or a secret back end gives the value, and only Airflow can ask it
    is_indirect = any(name.endswith(("_cmd", "_secret")) for name in in_environment)
    if not (is_indirect or _in_file()):
        return in_environment
    if importlib.util.find_spec("airflow") is None:
        return in_environment
    names = [*Settings.model_fields, *AirflowSettings.model_fields]
    try:
        from airflow.configuration import conf

        found = {name: conf.get(SECTION, name, fallback=None) for name in names}
    except Exception as error:  # a command fails, a secret back end does not answer, the file is garbled
        raise SettingsError(f"[{SECTION}] of Airflow's configuration cannot be read: {one_line(error)}") from None
    return {name: value for name, value in found.items() if value not in (None, "")}


def unknown_options() -> list[str]:
    """Return each option of the section that no setting has, most likely a typo, with what was most likely meant."""
    known = [*Settings.model_fields, *AirflowSettings.model_fields]
    lines = []
    for option in sorted(_options()):
        name = _name_of(option)
        if name not in known:
            place = option if option.startswith(_ENVIRONMENT) else f"[{SECTION}] {option}"
            lines.append(f"{place}{nearest(name, known)}")
    return lines


def written_options() -> set[str]:
    """Return the names of the settings that the section names, in the environment or in Airflow's file."""
    return {_name_of(option) for option in _options()}


def _options() -> set[str]:
    """Return the section's options, those of the environment by their variables."""
    return {*(f"{_ENVIRONMENT}{name.upper()}" for name in _environment()), *_options_in_file()}


def _name_of(option: str) -> str:
    name = option.removeprefix(_ENVIRONMENT).lower()
    for indirect in ("_cmd", "_secret"):
        name = name.removesuffix(indirect)
    return name


def settings() -> dict[str, Any]:
    """Return the core's settings that the section gives: the entry point ``sensorpool.settings``.

    All processes of the pool read settings, so here they begin to mask the secrets that Airflow's maskers know.
    """
    ask(secrets_masker.new_secrets)
    found: dict[str, Any] = {name: value for name, value in section().items() if name in Settings.model_fields}
    if not section() and not os.environ.get(f"{PREFIX}ENABLED"):
        return {}
    found.setdefault("sensors_enabled", DEFAULT_SENSORS)
    if str(os.environ.get(f"{PREFIX}DATABASE_URL") or found.get("database_url", "")).startswith("postgres"):
        found.setdefault("database_schema", SCHEMA)
    elif found.get("database_schema") == SCHEMA:
        del found["database_schema"]  # the default; other databases have no schemas
    return found


settings.names = tuple(AirflowSettings.model_fields)  # type: ignore[attr-defined]  # for SENSORPOOL_NAME
settings.own = AirflowSettings.load  # type: ignore[attr-defined]  # for `sensorpool config`
settings.shared = ("enabled", "callables_enabled", "gates_enabled", "rebuild_after")  # type: ignore[attr-defined]
settings.default_sensors = DEFAULT_SENSORS  # type: ignore[attr-defined]
settings.written = written_options  # type: ignore[attr-defined]
settings.unknown = unknown_options  # type: ignore[attr-defined]
settings.place = f"Airflow's [{SECTION}]"  # type: ignore[attr-defined]
settings.catalog = catalog  # type: ignore[attr-defined]  # for the patterns of ``sensors_enabled``


def _environment() -> dict[str, str]:
    """Return the options of the section in the environment."""
    return {
        name.removeprefix(_ENVIRONMENT).lower(): value
        for name, value in os.environ.items()
        if name.startswith(_ENVIRONMENT) and value
    }


def _file() -> Path:
    home = Path(os.environ.get("AIRFLOW_HOME") or "~/airflow").expanduser()
    return Path(os.environ.get("AIRFLOW_CONFIG") or home / "airflow.cfg").expanduser()


def _options_in_file() -> list[str]:
    """Return the names of the section's options in Airflow's file, unknown ones included."""
    file = RawConfigParser(strict=False, allow_no_value=True)
    try:
        file.read(_file(), encoding="utf-8")
        return file.options(SECTION) if file.has_section(SECTION) else []
    except (Error, OSError, ValueError):
        return []  # Airflow itself reports what is wrong with the file


def _in_file() -> bool:
    path = _file()
    try:
        return _names_section(str(path), path.stat().st_mtime_ns)
    except OSError:
        return False


@lru_cache(maxsize=4)
def _names_section(path: str, _changed: int) -> bool:
    with open(path, encoding="utf-8", errors="replace") as lines:
        return any(line.strip() == f"[{SECTION}]" for line in lines)
