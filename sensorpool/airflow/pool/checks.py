"""The doctor's checks of Airflow's side."""

import importlib.util
import os
import threading
from collections.abc import Container, Iterator
from contextlib import suppress
from urllib.parse import urlsplit

from sensorpool.admin.look import Finding
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.client.pool import Pool
from sensorpool.config import extensions
from sensorpool.config.allowlist import Allowlist
from sensorpool.config.settings import Settings
from sensorpool.errors import CannotPoke, SensorpoolError, SettingsError
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.states import State
from sensorpool.store import inspecting

_PATIENCE = 30.0  # seconds for a bundle to be brought here


def check(pool: Pool) -> Iterator[Finding]:
    """Check Airflow's side: the entry point ``sensorpool.checks``."""
    if importlib.util.find_spec("airflow") is None:
        yield Finding("airflow", "ok", "is not installed here: the pool serves others")
        return
    try:
        ours = AirflowSettings.load()
    except SettingsError as error:
        yield from (Finding("airflow", "wrong", line) for line in str(error).splitlines())
        return
    state = "on" if ours.enabled else "off: all sensors run natively"
    yield Finding("airflow", "ok" if ours.enabled else "warning", f"[sensorpool] enabled is {state}")
    if "sensorpool" not in extensions.named("airflow.policy"):
        yield Finding("airflow", "wrong", "the policy is not installed: install sensorpool where Airflow is")
    if ours.enabled:
        yield from check_redis(pool.settings)
    yield from check_callables(ours)
    yield from check_gates(ours, pool.settings)
    yield from check_start(ours)
    yield from _check_airflow(pool)


def check_callables(ours: AirflowSettings) -> Iterator[Finding]:
    """Report which functions that `callables_enabled` names the pool can import here; packages are not looked into."""
    if not ours.callables_enabled:
        return
    from sensorpool.airflow.proof.arguments import callables

    for name in ours.callables_enabled:
        if name.endswith("*"):
            continue
        try:
            callables.find([name])
        except CannotPoke as error:
            yield Finding("callable", "warning", f"{one_line(error)}; its sensors are left to other workers")
        else:
            yield Finding("callable", "ok", f"{name} can be imported")


def check_gates(ours: AirflowSettings, settings: Settings) -> Iterator[Finding]:
    """Report classes of `gates_enabled` that the pool does not poke."""
    listed = Allowlist(settings.sensors_enabled)
    for name in ours.gates_enabled:
        if name not in listed:
            said = f"{name} is in gates_enabled, and runs natively: list it in sensors_enabled, too"
            yield Finding("gate", "warning", said)


def check_bundles(enabled: Container[str]) -> Iterator[Finding]:
    """Report which DAG bundles the pool can load DAG files of here, if it may.

    :param enabled: the class paths that may be poked.
    """
    from sensorpool.airflow.compat import dag_bundles
    from sensorpool.airflow.proof.arguments import dag_file

    if dag_file.SENSOR not in enabled:
        return
    try:
        names = dag_bundles.configured()
    except Exception as error:
        said = f"[dag_processor] dag_bundle_config_list cannot be read here: {one_line(error)}"
        yield Finding("dag bundle", "warning", said)
        return
    for name in names:
        findings: list[Finding] = []
        looker = threading.Thread(target=lambda name=name, found=findings: found.append(_look_at(name)), daemon=True)
        looker.start()
        looker.join(_PATIENCE)
        late = f"{name} is not here after {_PATIENCE:g} s: look whether what it comes from answers from here"
        yield findings[0] if findings else Finding("dag bundle", "warning", late)


def _look_at(name: str) -> Finding:
    from sensorpool.airflow.compat.dag_bundles import Bundle

    then = "sensors of its DAG files go back to their workers"
    try:
        bundle = Bundle(name, None)
    except BaseException as error:  # a bundle is code of others
        mend = "configure it as on the workers, and install here what it needs"
        return Finding("dag bundle", "warning", f"{name} cannot be had here: {one_line(error)}; {then}: {mend}")
    try:
        with os.scandir(bundle.folder):
            return Finding("dag bundle", "ok", f"{name} is here: {bundle.place}")
    except OSError as error:
        mend = "bring its files to the same folder as on the workers"
        return Finding("dag bundle", "warning", f"{name} cannot be read here: {one_line(error)}; {then}: {mend}")


def _check_airflow(pool: Pool) -> Iterator[Finding]:
    from airflow.configuration import conf

    from sensorpool.airflow.compat import server_process

    server_process.become_server()
    capacity = conf.getint("triggerer", "capacity", fallback=1000)
    try:
        waiting = pool.database.read(inspecting.count_by_state).get(State.SENSING, 0)
    except SensorpoolError:
        waiting = 0  # another check reports what is wrong with the pool's database
    enough = waiting < 0.8 * capacity
    yield Finding(
        "triggerers' room",
        "ok" if enough else "warning",
        f"[triggerer] capacity is {capacity} a triggerer, {waiting} wait now; a triggerer needs `ulimit -n` above it",
    )
    yield from check_teams()
    yield from check_secrets()
    yield from check_bundles(Allowlist(pool.settings.sensors_enabled))
    if not conf.get("core", "fernet_key", fallback=""):
        yield Finding("fernet key", "warning", "[core] fernet_key is empty: Connections are not encrypted")
    yield from _check_database(conf.get("database", "sql_alchemy_conn"))


def check_redis(settings: Settings) -> Iterator[Finding]:
    """Report that the pool's Redis is this process's memory, which no task of Airflow's reaches."""
    from airflow.configuration import conf

    if settings.embedded:
        host, port = None, 6379
        with suppress(Exception):  # a command that does not answer, no URL
            broker = urlsplit(conf.get("celery", "broker_url", fallback=""))
            if broker.scheme in {"redis", "rediss"}:
                host, port = broker.hostname, broker.port or port
        example = f"redis://{host or 'redis'}:{port}/2" + (", on the Redis of [celery] broker_url" if host else "")
        said = f"redis_url is not set, so no other process sees what waits here: set [sensorpool] redis_url ({example})"
        yield Finding("redis", "wrong", said)


def _check_database(url: str) -> Iterator[Finding]:
    """Report whether Airflow's database can be read, and whether a triggerer is alive there."""
    from airflow.api.common.airflow_health import get_airflow_health
    from airflow.utils.session import create_session
    from sqlalchemy import text

    try:
        with create_session() as session:
            session.execute(text("SELECT count(*) FROM connection WHERE is_encrypted")).scalar()
            yield from _check_fernet_key(session)
    except Exception as error:
        said = f"Connections and Variables cannot be read from {_place_of(url)}: {one_line(error)}"
        mend = "if that is not Airflow's database, set AIRFLOW__DATABASE__SQL_ALCHEMY_CONN here as Airflow has it"
        yield Finding("airflow database", "wrong", f"{said}; {mend}")
        return
    triggerer = get_airflow_health()["triggerer"]["status"]
    if triggerer != "healthy":
        said = f"none is alive ({triggerer}), and tasks that wait would never end: start `airflow triggerer`"
        yield Finding("triggerer", "wrong", said)


def _place_of(url: str) -> str:
    """Return kind, host and name of a database; not its URL, which is a secret of Airflow's as a whole."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(url)
    except ArgumentError:
        return "the database of [database] sql_alchemy_conn, which is no URL"
    where = f" at {parsed.host}" if parsed.host else ""
    return f"the {parsed.get_backend_name()} database {parsed.database}{where}"


def check_teams() -> Iterator[Finding]:
    """Report what becomes of the tasks of teams."""
    from sensorpool.airflow.compat import features, task_runtime

    if not task_runtime.has_teams():
        return
    if features.has(features.TEAM_OF_RUN):
        said = "on: a task waits with the Connections and Variables of its team; none begins without a worker"
        yield Finding("teams", "ok", f"[core] multi_team is {said}")
    else:
        said = "on: in this version all tasks run natively, for Airflow does not say of which team they are"
        yield Finding("teams", "warning", f"[core] multi_team is {said}")


def check_start(ours: AirflowSettings) -> Iterator[Finding]:
    """Report that sensors cannot begin without a worker, if they are told to."""
    from sensorpool.airflow.compat import features

    if ours.start == "scheduler" and not features.has(features.START_FROM_TRIGGER):
        since = ".".join(map(str, features.START_FROM_TRIGGER.since))
        said = f"[sensorpool] start = scheduler needs Airflow {since}: all sensors begin on a worker"
        yield Finding("airflow", "warning", said)


def check_secrets() -> Iterator[Finding]:
    """Report where the pool looks for Connections and Variables, and which secrets backend it cannot load."""
    from sensorpool.airflow.compat import secrets_backends

    found = list(secrets_backends.configured_backends())
    for option, name, error in found:
        if error is not None:
            then = "tasks that look for a Connection or Variable go back to their workers"
            yield Finding(
                "secrets", "wrong", f"{option} {name} cannot be loaded here: {one_line(error)}; in the pool {then}"
            )
    if all(error is None for *_, error in found):
        places = [f"{option} {name}" for option, name, _ in found]
        said = ", ".join([*places[:1], "the environment", *places[1:], "Airflow's database"])
        yield Finding("secrets", "ok", f"the pool looks for Connections and Variables as workers do: {said}")


def _check_fernet_key(session: object) -> Iterator[Finding]:
    """Read one encrypted Connection: that takes the fernet key with which Airflow wrote it."""
    from airflow.models.connection import Connection
    from sqlalchemy import select

    found = session.execute(select(Connection).where(Connection.is_encrypted).limit(1)).scalars().first()  # type: ignore[attr-defined]
    try:
        if found is not None:
            found.get_password()
    except Exception as error:
        said = f"it is not Airflow's fernet key: {type(error).__name__}"
        yield Finding("fernet key", "wrong", f"{said}; set AIRFLOW__CORE__FERNET_KEY here as Airflow has it")
        return
    yield Finding("airflow database", "ok", "Connections and Variables can be read from here")
