"""What the doctor looks at where Airflow is installed."""

import importlib.util
from collections.abc import Iterator

from sensorpool.airflow.configuration import AirflowSettings, unknown_options
from sensorpool.client.pool import Pool
from sensorpool.config import extensions
from sensorpool.errors import SensorpoolError, SettingsError
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.finding import Finding
from sensorpool.model.states import State
from sensorpool.store import inspecting


def check(pool: Pool) -> Iterator[Finding]:
    """Look Airflow's side over: the entry point ``sensorpool.checks``."""
    yield from (Finding("airflow", "warning", line) for line in unknown_options())
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
    yield from _look_at_airflow(pool)


def _look_at_airflow(pool: Pool) -> Iterator[Finding]:
    from airflow.configuration import conf
    from sqlalchemy import text

    from sensorpool.airflow import compat

    compat.become_server()
    capacity = conf.getint("triggerer", "capacity", fallback=1000)
    try:
        waiting = pool.database.read(inspecting.count_by_state).get(State.SENSING, 0)
    except SensorpoolError:
        waiting = 0  # what is wrong with our database was said already
    enough = waiting < 0.8 * capacity
    yield Finding(
        "triggerer",
        "ok" if enough else "warning",
        f"[triggerer] capacity is {capacity} a triggerer, {waiting} wait now; a triggerer needs `ulimit -n` above it",
    )
    yield from look_at_teams()
    yield from look_at_secrets()
    if not conf.get("core", "fernet_key", fallback=""):
        yield Finding("fernet key", "warning", "[core] fernet_key is empty: Connections are not encrypted")
    from airflow.api.common.airflow_health import get_airflow_health
    from airflow.utils.session import create_session

    triggerer = get_airflow_health()["triggerer"]["status"]
    if triggerer != "healthy":
        yield Finding("triggerer", "wrong", f"none is alive ({triggerer}): tasks that wait would never end")
    try:
        with create_session() as session:
            session.execute(text("SELECT count(*) FROM connection WHERE is_encrypted")).scalar()
            yield from _try_a_connection(session)
    except Exception as error:
        said = one_line(error)
        yield Finding("airflow database", "wrong", f"Connections and Variables cannot be had from here: {said}")


def look_at_teams() -> Iterator[Finding]:
    """Say what becomes of the tasks of teams."""
    from airflow.configuration import conf

    if conf.getboolean("core", "multi_team", fallback=False):
        said = "on: tasks of a team run natively, for the pool asks for Connections and Variables without a team"
        yield Finding("teams", "warning", f"[core] multi_team is {said}")


def look_at_secrets() -> Iterator[Finding]:
    """Say where the pool looks for Connections and Variables, and which secrets backend it cannot load."""
    from sensorpool.airflow import secrets_chain

    found = list(secrets_chain.backends())
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


def _try_a_connection(session: object) -> Iterator[Finding]:
    """Read one encrypted connection: it takes the fernet key that Airflow wrote it with."""
    from airflow.models.connection import Connection
    from sqlalchemy import select

    found = session.execute(select(Connection).where(Connection.is_encrypted).limit(1)).scalars().first()  # type: ignore[attr-defined]
    try:
        if found is not None:
            found.get_password()
    except Exception as error:
        yield Finding("fernet key", "wrong", f"it is not the one that Airflow has: {type(error).__name__}")
        return
    yield Finding("airflow database", "ok", "Connections and Variables can be had from here")
