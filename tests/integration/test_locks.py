"""A transaction that does not end holds up only its own groups, and not for long."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, event, text
from sqlalchemy.engine import make_url

from sensorpool import Pool, Settings
from sensorpool.admin import findings
from sensorpool.admin.status import status
from sensorpool.client.wait import Wait
from sensorpool.errors import Unreachable
from sensorpool.model.states import Outcome, State
from sensorpool.model.values import Fact
from sensorpool.settle.flush import flush
from sensorpool.store import engine, registering_postgres, transaction

SENSOR = "harness.scripted.ScriptedSensor"
IDLE_MS, WAIT_MS = 300, 500  # MariaDB has whole seconds


@pytest.fixture
def make_pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Pool]]:
    """Makes pools with short lock timeouts."""

    def bounds(idle: int, wait: int) -> None:
        monkeypatch.setattr(engine, "IDLE_LIMIT_MS", idle)
        monkeypatch.setattr(engine, "LOCK_WAIT_MS", wait)
        registering_postgres._join_text.cache_clear()
        monkeypatch.setattr(transaction, "LOCKED_PATIENCE", 1.5 * wait / 1_000)

    with ExitStack() as made:

        def make(url: str, idle: int = IDLE_MS, wait: int = WAIT_MS) -> Pool:
            bounds(idle, wait)
            pool = Pool(Settings.load(database_url=url, sensors_enabled=SENSOR))
            made.callback(pool.close)
            return pool

        yield make
    registering_postgres._join_text.cache_clear()


def register(pool: Pool, name: str, task_id: str = "t", **more: Any) -> Any:
    context = {"folder": "/nowhere", "name": name}
    return pool.register(SENSOR, context, dag_id="d", task_id=task_id, run_id="r", **more)


@contextmanager
def locked(pool: Pool, row_id: int, table: str = "poke_group") -> Iterator[Connection]:
    """Hold the lock of a group, or of an instance."""
    with pool.database.engine.connect() as connection:
        if connection.dialect.name != "postgresql":
            connection.execute(text("SET SESSION idle_transaction_timeout = 0"))
        connection.execute(text(f"UPDATE {table} SET shardcode = shardcode WHERE id = {row_id}"))
        yield connection


def settle_beside(pool: Pool) -> None:
    ones = [register(pool, name, f"t-{name}") for name in "abc"]
    facts = [Fact(one.group_id, 1, 2**42, Outcome.LANDED, None) for one in ones]
    started = time.monotonic()
    with locked(pool, ones[1].group_id):
        done = flush(pool.database, facts, tick_ms=1_000)
    assert time.monotonic() - started < 3
    assert sorted(each.id for flushed in done for each in flushed.settled) == [ones[0].id, ones[2].id]
    assert {group_id for flushed in done for group_id in flushed.unsettled} == {ones[1].group_id}
    done = flush(pool.database, facts, tick_ms=1_000)
    assert [each.id for flushed in done for each in flushed.settled] == [ones[1].id]
    assert [flushed.unsettled for flushed in done] == [{}]


def settle_beside_a_member(pool: Pool) -> None:
    """One instance is locked: the instances of its group settle when the lock ends, all others now."""
    ones = [register(pool, name, f"beside-{name}") for name in "abc"]
    mates = [register(pool, "b", f"mate-{number}") for number in range(2)]
    version = 1 + len(mates)
    facts = [Fact(one.group_id, version, 2**42, Outcome.LANDED, None) for one in ones]
    started = time.monotonic()
    with locked(pool, mates[0].id, "sensor_instance"):
        done = flush(pool.database, facts, tick_ms=1_000)
        assert time.monotonic() - started < 4
        assert sorted(each.id for flushed in done for each in flushed.settled) == [ones[0].id, ones[2].id]
        assert {group_id for flushed in done for group_id in flushed.unsettled} == {ones[1].group_id}
        held = [ones[1].id, *(mate.id for mate in mates)]
        assert set(pool.wait(held, 0).values()) == {State.SENSING}
    done = flush(pool.database, facts, tick_ms=1_000)
    assert sorted(each.id for flushed in done for each in flushed.settled) == sorted(held)
    assert [flushed.unsettled for flushed in done] == [{}]


def register_beside(pool: Pool) -> None:
    one = register(pool, "a")
    started = time.monotonic()
    with locked(pool, one.group_id):
        with pytest.raises(Unreachable, match="is busy") as raised:
            register(pool, "a", "other")
        assert register(pool, "b", "beside").created
    assert time.monotonic() - started < 4
    assert "\n" not in str(raised.value)
    assert register(pool, "a", "other").created


def test_a_locked_group_stops_no_others(make_pool: Callable[..., Pool], postgres_database: str) -> None:
    settle_beside(make_pool(postgres_database))


def test_a_locked_instance_stops_no_other_groups(make_pool: Callable[..., Pool], postgres_database: str) -> None:
    settle_beside_a_member(make_pool(postgres_database))


def test_a_registration_waits_for_a_lock_within_bounds(make_pool: Callable[..., Pool], postgres_database: str) -> None:
    register_beside(make_pool(postgres_database))


def freeze_beside(pool: Pool, others: Pool, **key: Any) -> None:
    frozen: list[float] = []

    def freeze(_: Connection) -> None:
        if not frozen:
            frozen.append(time.monotonic())
            waits = register(others, "a", "other")  # it takes the lock that is held here
            frozen.append(time.monotonic())
            assert waits.state is State.SENSING

    event.listen(pool.database.engine, "commit", freeze)
    made = pool.register(SENSOR, {"folder": "/nowhere", "name": "a"}, **key)
    assert made.created
    began, had = frozen
    assert had - began < 3
    assert others.wait([made.id], 0) == {made.id: State.SENSING}


@pytest.mark.parametrize("try_number", [None, 1, 2], ids=["no key", "a first try", "a second try"])
def test_one_that_freezes_as_it_registers_loses_its_locks(
    make_pool: Callable[..., Pool], postgres_database: str, try_number: int | None
) -> None:
    """The server ends its transaction, and the registration is tried again."""
    key = {} if try_number is None else {"dag_id": "d", "task_id": "t", "run_id": "r", "try_number": try_number}
    freeze_beside(make_pool(postgres_database), make_pool(postgres_database), **key)


@contextmanager
def whole_table(url: str, table: str) -> Iterator[None]:
    """Hold a whole table, as VACUUM FULL and ALTER TABLE do."""
    with psycopg.connect(url.replace("+psycopg", "")) as theirs:
        theirs.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        yield


@pytest.mark.parametrize("table", ["poke_group", "sensor_instance"])
def test_a_lock_on_a_whole_table_holds_no_call_for_ever(
    make_pool: Callable[..., Pool], postgres_database: str, table: str
) -> None:
    pool = make_pool(postgres_database)
    one = register(pool, "a")
    calls: dict[str, Callable[[], Any]] = {
        "register": lambda: register(pool, "a", "other"),
        "register many": lambda: pool.register_many(
            {"sensor": SENSOR, "poke_context": {"folder": "/nowhere", "name": name}} for name in "ab"
        ),
        "cancel": lambda: pool.cancel(one),
        "status": lambda: status(pool),
    }
    if table == "sensor_instance":
        calls["wait"] = lambda: pool.wait([one.id], 0.1)
        calls["get"] = lambda: pool.get(one.id)
    with whole_table(postgres_database, table):
        for name, call in calls.items():
            started = time.monotonic()
            with pytest.raises(Unreachable, match=r"is busy: .*lock timeout"):
                call()
            assert time.monotonic() - started < 10, name
        problems = findings.health(pool)
        assert table != "poke_group" or [line for line in problems if "is busy: " in line]
    assert register(pool, "a", "other").created
    assert pool.wait([one.id], 0) == {one.id: State.SENSING}


def test_a_wait_outlasts_a_lock_on_a_whole_table(make_pool: Callable[..., Pool], postgres_database: str) -> None:
    pool = make_pool(postgres_database)
    one = register(pool, "a")
    waiting = Wait(pool.database, [one.id], 60)
    assert waiting.look() is not None
    with whole_table(postgres_database, "sensor_instance"):
        assert waiting.look() is not None
    pool.cancel(one)
    assert waiting.look() is None
    assert waiting.states == {one.id: State.CANCELLED}


@pytest.mark.parametrize(("asked", "limit"), [("", f"{WAIT_MS}ms"), ("-c lock_timeout=7000", "7s")])
def test_a_limit_of_the_url_stays(
    make_pool: Callable[..., Pool], postgres_database: str, asked: str, limit: str
) -> None:
    url = make_url(postgres_database).update_query_dict({"options": asked} if asked else {})
    pool = make_pool(url.render_as_string(hide_password=False))
    assert pool.database.read(lambda c: c.exec_driver_sql("SHOW lock_timeout").scalar()) == limit


def test_behind_a_pooler_nothing_is_set(
    make_pool: Callable[..., Pool], postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says a process id of its own making, and gives the connection to its next client."""
    monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", 1)
    pool = make_pool(postgres_database)
    assert pool.database.read(lambda c: c.exec_driver_sql("SHOW lock_timeout").scalar()) == "0"


def test_the_bounds_on_mariadb(make_pool: Callable[..., Pool], mariadb_database: str) -> None:
    pool = make_pool(mariadb_database, 1_000, 1_000)
    asked = text("SELECT @@innodb_lock_wait_timeout, @@idle_transaction_timeout")
    assert tuple(pool.database.read(lambda c: c.execute(asked).one())) == (1, 1)
    settle_beside(pool)
    settle_beside_a_member(make_pool(mariadb_database, 1_000, 1_000))
    freeze_beside(make_pool(mariadb_database, 1_000, 2_000), make_pool(mariadb_database, 1_000, 2_000))
