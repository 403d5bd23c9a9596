"""SqlSensor, beside pokes that hang in a database server: what they leave there, and what they take from others."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pymysql
import pytest
from sqlalchemy import Connection, event, make_url, text
from sqlalchemy.exc import DBAPIError

from harness.until import until
from sensorpool.config.settings import Settings
from sensorpool.errors import InfraFailure
from sensorpool.model.states import Outcome
from sensorpool.model.values import Report
from sensorpool.poke.child import Suspect
from sensorpool.poke.isolated_lane import IsolatedLane
from sensorpool.poke.poker import Poker
from sensorpool.poke.unit import PokeUnit
from sensorpool.sensors import SqlSensor, engines, shared, statement_limits
from sensorpool.sensors.connections import connection
from sensorpool.sensors.sql_errors import is_passing
from tests.support.builders import due_group

from .warehouse import Warehouse, close_engines

SetConnection = Callable[[str, str], None]
PATH = "sensorpool.sensors.SqlSensor"
LOCKED = "SELECT count(*) FROM loads WHERE day = :day"
MANY = 12  # more than the eight connections that were once the most of a process


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(shared, "_seconds", None)
    close_engines()  # those of other files
    yield
    close_engines()


@pytest.fixture
def postgres(postgres_url: str, set_connection: SetConnection) -> Iterator[Warehouse]:
    yield from _warehouse(postgres_url, set_connection)


@pytest.fixture
def mariadb(mariadb_url: str, set_connection: SetConnection) -> Iterator[Warehouse]:
    yield from _warehouse(mariadb_url, set_connection)


def _warehouse(url: str, set_connection: SetConnection) -> Iterator[Warehouse]:
    set_connection("warehouse", url)
    warehouse = Warehouse(url)
    yield warehouse
    warehouse.close()


def sensor(sql: str, **parameters: Any) -> SqlSensor:
    return SqlSensor(sql, conn_id="warehouse", parameters=parameters or None)


def test_pokes_that_hang_take_no_connection_from_others(postgres: Warehouse) -> None:
    _others_are_poked_beside_pokes_that_hang(postgres)


def test_pokes_that_hang_on_mariadb_take_no_connection_from_others(mariadb: Warehouse) -> None:
    _others_are_poked_beside_pokes_that_hang(mariadb)


def _others_are_poked_beside_pokes_that_hang(warehouse: Warehouse) -> None:
    with warehouse.locked():
        hanging = [threading.Thread(target=sensor(LOCKED, day=day).poke) for day in range(MANY)]
        for thread in hanging:
            thread.start()
        try:
            assert sensor("SELECT count(*) + 1 FROM free").poke({}) is True
            until("all wait for the lock", lambda: warehouse.waiting() == MANY)
            assert sensor("SELECT count(*) + 2 FROM free").poke({}) is True
        finally:
            assert any(thread.is_alive() for thread in hanging)
    for thread in hanging:
        thread.join(30)


@pytest.mark.usefixtures("postgres")
def test_a_burst_keeps_its_connections_until_they_have_been_idle_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    _connections_are_kept_for_a_while(monkeypatch)


@pytest.mark.usefixtures("mariadb")
def test_a_burst_on_mariadb_keeps_its_connections_too(monkeypatch: pytest.MonkeyPatch) -> None:
    _connections_are_kept_for_a_while(monkeypatch)


def _connections_are_kept_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    _poke_at_once()
    (engine,) = engines._engines._things.values()
    pool: Any = engine.pool
    opened: list[object] = []
    event.listen(engine, "connect", lambda *_: opened.append(1))
    pool.close_idle()
    for _ in range(3):
        _poke_at_once()
    assert not opened
    idle = engines.IDLE_KEPT
    monkeypatch.setattr(engines, "IDLE_KEPT", -1.0)
    pool.close_idle()
    assert (pool.checkedin(), pool.checkedout()) == (engines.KEPT, 0)
    monkeypatch.setattr(engines, "IDLE_KEPT", idle)
    _poke_at_once()
    assert pool.checkedin() > engines.KEPT


@pytest.mark.usefixtures("postgres")
def test_they_are_closed_though_no_poke_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "IDLE_KEPT", 0.05)
    _poke_at_once()
    (engine,) = engines._engines._things.values()
    pool: Any = engine.pool
    until("the idle connections are closed", lambda: pool.checkedin() <= engines.KEPT)
    assert sensor("SELECT 1").poke({}) is True


@pytest.mark.usefixtures("postgres")
def test_where_no_thread_can_be_started_a_poke_has_its_answer_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    _poke_at_once()
    (engine,) = engines._engines._things.values()
    pool: Any = engine.pool
    pool._is_watched = False
    with monkeypatch.context() as patched:
        patched.setattr(threading.Timer, "start", refuse)
        assert sensor("SELECT 1").poke({}) is True
        assert not pool._is_watched
    assert sensor("SELECT 1").poke({}) is True
    assert pool._is_watched


def _poke_at_once() -> None:
    """Have several pokes in the server at one moment."""
    inside = threading.Barrier(2 * engines.KEPT)

    def ask(database: Connection) -> None:
        inside.wait(30)
        database.execute(text("SELECT 1"))

    def poke() -> None:
        engines.ask("it", connection("warehouse"), ask)

    pokes = [threading.Thread(target=poke) for _ in range(inside.parties)]
    for thread in pokes:
        thread.start()
    for thread in pokes:
        thread.join(30)
    assert not inside.broken


def test_a_statement_that_waits_for_a_lock_ends_on_postgresql(
    postgres: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    _each_wait_for_the_lock_ends(postgres, "statement timeout", monkeypatch)


def test_a_statement_that_waits_for_a_lock_ends_on_mariadb(mariadb: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    _each_wait_for_the_lock_ends(mariadb, "max_statement_time", monkeypatch)


def _each_wait_for_the_lock_ends(warehouse: Warehouse, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_seconds", 0.1)
    with warehouse.locked():
        for _ in range(3):
            with pytest.raises(InfraFailure, match=said):
                sensor(LOCKED, day=1).poke({})
            assert warehouse.waiting() == 0
        assert sensor("SELECT count(*) + 1 FROM free").poke({}) is True
    assert sensor(LOCKED, day=1).poke({}) is False


def test_pokes_that_were_given_up_leave_no_sessions_on_postgresql(postgres: Warehouse) -> None:
    _sessions_end_after_each_round(postgres)


def test_pokes_that_were_given_up_leave_no_sessions_on_mariadb(mariadb: Warehouse) -> None:
    _sessions_end_after_each_round(mariadb)


def _sessions_end_after_each_round(warehouse: Warehouse, rounds: int = 3) -> None:
    settings = Settings.load(sensors_enabled=[PATH], poke_timeout=0.3)
    poker = Poker(settings)
    with warehouse.locked():
        for _ in range(rounds):
            assert set(_poked(poker)) == {Outcome.POKE_TIMEOUT}
            until("the given-up pokes have returned", lambda: not poker.abandoned)
            until("no session is left", lambda: not warehouse.waiting())
    poker.close()


def _poked(poker: Poker) -> list[Outcome]:
    contexts = (f'{{"sql": "{LOCKED}", "conn_id": "warehouse", "parameters": {{"day": {day}}}}}' for day in range(MANY))
    units = [PokeUnit(due_group(day), PATH, context, poker.tools) for day, context in enumerate(contexts)]
    poking, seen = poker.begin(), list[Report]()
    poking.put(units, [unit.group.id for unit in units])

    def all_seen() -> bool:
        seen.extend(poking.step())
        return len(seen) == MANY

    until("all are reported", all_seen)
    poking.end()
    return [report.outcome for report in seen]


def test_a_child_of_the_isolated_lane_ends_its_statements_too(postgres: Warehouse) -> None:
    settings = Settings.load(sensors_enabled=[PATH], poke_timeout=3.0, heartbeat=0.1, lease_ttl=1)
    seen: list[Report] = []
    lane = IsolatedLane(settings, seen.extend)
    context = f'{{"sql": "{LOCKED} AND pg_sleep(0) IS NOT NULL", "conn_id": "warehouse", "parameters": {{"day": 1}}}}'
    limited = '{"sql": "SELECT current_setting(\'statement_timeout\') = \'4s\'", "conn_id": "warehouse"}'
    try:
        with postgres.locked():
            lane.offer([Suspect(due_group(1), PATH, context, False), Suspect(due_group(2), PATH, limited, False)])
            until("both are reported", lambda: len(seen) == 2)
            until("no session is left", lambda: not postgres.waiting())
    finally:
        lane.close()
    assert {report.group.id: report.outcome for report in seen} == {1: Outcome.POKE_TIMEOUT, 2: Outcome.LANDED}


def test_a_limit_of_the_users_own_stays(
    postgres: Warehouse, set_connection: SetConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "_seconds", 10.0)
    is_now = "SELECT current_setting('statement_timeout') = :limit"
    assert sensor(is_now, limit="11s").poke({}) is True
    (engine,) = engines._engines._things.values()
    with engine.connect() as connection:  # the session that PgBouncer would lend to another client
        assert connection.execute(text("SHOW statement_timeout")).scalar_one() == "0"
    for limit in ("5s", "1min"):
        url = make_url(postgres.url).update_query_dict({"options": f"-c statement_timeout={limit}"})
        set_connection("warehouse", url.render_as_string(hide_password=False))
        assert sensor(is_now, limit=limit).poke({}) is True


def test_a_limit_of_the_users_own_stays_on_mariadb(
    mariadb: Warehouse, set_connection: SetConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "_seconds", 10.5)
    is_now = "SELECT @@max_statement_time = :limit"
    assert sensor(is_now, limit=11.5).poke({}) is True
    for limit in (5, 60):
        url = make_url(mariadb.url).update_query_dict({"init_command": f"SET max_statement_time={limit}"})
        set_connection("warehouse", url.render_as_string(hide_password=False))
        assert sensor(is_now, limit=limit).poke({}) is True


@pytest.mark.usefixtures("postgres")
def test_a_server_that_lacks_the_setting_is_asked_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statement_limits, "_POSTGRESQL", "SELECT no_such_function()")
    _poked_in_vain_for_a_limit(monkeypatch)


@pytest.mark.usefixtures("mariadb")
def test_a_server_that_lacks_mysqls_setting_is_asked_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statement_limits, "_MYSQL", "SET no_such_variable = {milliseconds}")
    _poked_in_vain_for_a_limit(monkeypatch)


def _poked_in_vain_for_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_seconds", 10.0)
    for _ in range(2):
        assert sensor("SELECT count(*) + 1 FROM free").poke({}) is True


@pytest.mark.parametrize("what", ["QUERY", "CONNECTION"])
def test_a_statement_that_is_killed_on_mariadb_is_an_infra_failure(mariadb: Warehouse, what: str) -> None:
    ended: list[BaseException] = []

    def poke() -> None:
        try:
            sensor(LOCKED, day=1).poke({})
        except Exception as error:
            ended.append(error)

    with mariadb.locked():
        thread = threading.Thread(target=poke)
        thread.start()
        until("it waits for the lock", mariadb.waiting)
        session = mariadb.ask("SELECT id FROM information_schema.processlist WHERE state LIKE 'Waiting for table%'")
        mariadb.run(f"KILL {what} {session}")
        thread.join(30)
    assert [type(error) for error in ended] == [InfraFailure]
    assert sensor("SELECT 1").poke({}) is True


@pytest.mark.parametrize("number", [1317, 1969, 3024, 1205, 1040, 1047])
def test_what_mysql_ends_or_cannot_take_is_passing(number: int) -> None:
    error = DBAPIError.instance("SELECT 1", {}, pymysql.OperationalError(number, "said"), pymysql.Error)
    assert is_passing(error)


def test_a_statement_that_mariadb_refuses_is_not_passing() -> None:
    error = DBAPIError.instance("SELEC 1", {}, pymysql.ProgrammingError(1064, "syntax"), pymysql.Error)
    assert not is_passing(error)


def test_rows_after_the_first_stay_on_mariadb(mariadb: Warehouse) -> None:
    rows = 5_000_000
    sent = _bytes_sent(mariadb)
    assert sensor(f"SELECT seq FROM seq_1_to_{rows} -- all").poke({}) is True
    until("no session reads them", lambda: not _sessions_with(mariadb, "-- all"))
    assert _bytes_sent(mariadb) - sent < 5 * rows  # a row takes at least that; what fits into the sockets is sent


def test_a_connection_that_mariadb_closed_is_replaced(mariadb: Warehouse) -> None:
    assert sensor("SELECT 1").poke({}) is True
    session = mariadb.ask("SELECT max(id) FROM information_schema.processlist WHERE id <> CONNECTION_ID()")
    mariadb.run(f"KILL CONNECTION {session}")
    assert sensor("SELECT 1").poke({}) is True


def test_a_connection_to_mariadb_is_kept_unless_rows_are_left(mariadb: Warehouse) -> None:
    assert sensor("SELECT 1").poke({}) is True
    (engine,) = engines._engines._things.values()

    def session() -> int:
        with engine.connect() as connection:
            return int(connection.execute(text("SELECT CONNECTION_ID()")).scalar_one())

    kept = session()
    for sql in ("SELECT 1", "SELECT 0", "SELECT 1 FROM free", "SELECT count(*) FROM free"):
        sensor(sql).poke({})
        assert session() == kept
    assert sensor("SELECT 1 UNION ALL SELECT 2").poke({}) is True
    assert session() != kept


def _bytes_sent(warehouse: Warehouse) -> int:
    return warehouse.ask("SELECT variable_value FROM information_schema.global_status WHERE variable_name='BYTES_SENT'")


def _sessions_with(warehouse: Warehouse, remark: str) -> int:
    return warehouse.ask(
        f"SELECT count(*) FROM information_schema.processlist WHERE info LIKE '%{remark}' AND id <> CONNECTION_ID()"
    )
