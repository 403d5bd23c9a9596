"""The ACL of Redis and the roles of PostgreSQL that docs/security.md gives: a whole run under them, and no more."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from sqlalchemy import make_url

from harness.scripted import land, pokes
from harness.servers import fresh_database
from harness.service import Service, kill_tree
from harness.until import until
from sensorpool import Pool, Settings
from sensorpool.admin import findings, instances, status
from sensorpool.leases.background_notes import Isolated
from sensorpool.leases.budgets import BudgetsLeft
from sensorpool.leases.lease import leases_of
from sensorpool.leases.poke_log import Record
from sensorpool.model.budgets import Budget
from sensorpool.model.states import Outcome, State
from sensorpool.model.values import Fact, Report, ShardRange
from sensorpool.publish import listen
from sensorpool.service.app import make_app
from sensorpool.store import callback_rows, inspecting, results
from sensorpool.store.inspecting import Selection
from sensorpool.store.migrate import upgrade
from sensorpool.worker.chores.round import Place
from sensorpool.worker.context import Worker
from sensorpool.worker.rescue import rescue
from tests.security.page import block
from tests.support.builders import due_group

SCRIPTED = "harness.scripted.ScriptedSensor"
ASKED_FOR_IN_VAIN = {"config", "config|get", "client", "client|setinfo", "client|maint_notifications"}
ROLES = {name: f"sensorpool_{name}" for name in ("owner", "worker", "registrant", "reader")}
TABLES = (
    *("poke_group", "sensor_instance", "sensorpool_outbox", "sensorpool_schema", "sensorpool_alembic_version"),
    *("sensorpool_callback", "class_proof", "landing", "group_trouble"),
)


@pytest.fixture
def acl_url(redis_server: Any, redis_url: str) -> Iterator[str]:
    """URL of the user that the page makes."""
    with redis.Redis.from_url(redis_url, decode_responses=True) as admin:
        number = redis_url.rpartition("/")[2]  # the page's is database 0
        for line in block("Redis ACL").replace(":/0.", f":/{number}.").splitlines():
            if line.strip():
                admin.execute_command(*line.split())
        admin.execute_command("ACL", "LOG", "RESET")
        yield redis_url.replace("redis://:", "redis://").replace(redis_server.password, "sensorpool:change-me-redis")
        admin.execute_command("ACL", "DELUSER", "sensorpool")


def whole_run(service: Service, pool: Pool, folder: Path) -> None:
    """Register, poke, settle, publish, hear, wait, supersede, hang, rescue, look."""

    def register(name: str, **more: Any) -> int:
        context = {"folder": str(folder), "name": name, **more.pop("context", {})}
        return pool.register(SCRIPTED, context, dag_id="d", task_id=name, run_id="r", **more).id

    first = register("first")
    other, hanging = register("other"), register("hangs", context={"script": "hang"})
    superseded = register("twice", try_number=1)
    again = register("twice", try_number=2)
    service.start(workers=2)
    until("pokes of all", lambda: {"first", "other", "hangs", "twice"} <= pokes(folder).keys())
    deadline = time.monotonic() + 30
    with listen(pool.settings, until=lambda: time.monotonic() > deadline) as bodies:
        land(folder, "first")
        assert first in (each["id"] for body in bodies for each in body["settled"])
    assert pool.wait([first, superseded], 30) == {first: State.SUCCESS, superseded: State.CANCELLED}
    kill_tree(service.processes[0])  # one worker dies
    before = len(pokes(folder)["other"])
    until("pokes by the other one", lambda: len(pokes(folder)["other"]) > before + 1)
    assert pool.cancel(other, "by hand") is State.CANCELLED
    assert pool.cancel(hanging, "by hand") is State.CANCELLED
    land(folder, "twice")
    assert pool.wait([again], 30) == {again: State.SUCCESS}
    until(
        "an empty outbox",
        lambda: pool.database.read(inspecting.oldest_unpublished) is None,
    )
    assert status.status(pool)["states"]["success"] == 2
    assert instances.show(pool, again)["state"] == "success"
    until("health, once the lease of the dead has expired", lambda: not findings.health(pool))


def test_the_pool_runs_under_the_acl(postgres_database: str, acl_url: str, redis_url: str, tmp_path: Path) -> None:
    """Threat `open Redis`: Celery, kombu and the leases need no more than the page gives."""
    service = Service(tmp_path, postgres_database, acl_url)
    try:
        whole_run(service, service.pool, tmp_path)
        assert [f.said for f in findings.doctor(service.settings) if f.level == "wrong"] == []
    finally:
        service.stop()
    app = make_app(service.settings)
    assert app.control.ping(timeout=0.2) == []  # nobody hears it, and asking is allowed
    app.close()
    with redis.Redis.from_url(redis_url, decode_responses=True) as admin:
        refused = {entry["object"] for entry in admin.execute_command("ACL", "LOG", "128")}
    assert refused <= ASKED_FOR_IN_VAIN, "\n".join(refused)


def test_who_waits_to_be_poked_apart_is_seen_under_the_acl(acl_url: str) -> None:
    """Threat `open Redis`: what nobody may ask would look as if nobody waited."""
    leases, shard_range = leases_of(Settings(redis_url=acl_url)), ShardRange(0, 10)
    isolated = Isolated([3, 4], waiting=1, overdue=1, longest=7_000)
    leases.note_background(shard_range, [1, 2], isolated, 60)
    assert leases.isolated([shard_range]) == [[isolated]]
    leases.note_background(shard_range, [], Isolated(), 60)
    assert leases.isolated([shard_range]) == [[]]


def test_budgets_and_the_record_of_pokes_work_under_the_acl(acl_url: str) -> None:
    """Threat `open Redis`: their commands are in no run without a budget."""
    leases, budget = leases_of(Settings(redis_url=acl_url)), Budget("hive", 10.0, 2)
    left = BudgetsLeft(leases.store, kept=40.0, tick=5.0)
    granted, _ = left.take(budget, "0-10", ["a", "b", "c"], groups=3, waited=0.0)
    left.give_back([(budget, "a")])
    assert (granted, left.look([budget])[0].at_once) == (2, 1)
    record = Record(1)
    record.add([Report(due_group(7), 0.0, Outcome.LANDED)], [0])
    leases.poke_log.keep(ShardRange(0, 10), record, 1)
    assert len(leases.poke_log.records(ShardRange(0, 10))) == 1


@pytest.mark.parametrize(
    "command",
    [
        ["FLUSHALL"],
        ["FLUSHDB"],
        ["KEYS", "*"],
        ["SCAN", "0"],
        ["GET", "others"],
        ["SET", "others", "x"],
        ["EVAL", "return redis.call('GET', 'others')", "0"],
        ["LPUSH", "celery", "x"],
        ["PUBLISH", "others", "x"],
        ["SUBSCRIBE", "others"],
        ["CONFIG", "SET", "dir", "/tmp"],
        ["ACL", "LIST"],
        ["DEBUG", "SLEEP", "0"],
        ["SHUTDOWN"],
        ["REPLICAOF", "NO", "ONE"],
        ["MODULE", "LIST"],
        ["MONITOR"],
    ],
    ids=" ".join,
)
def test_the_acl_allows_no_more(acl_url: str, command: list[str]) -> None:
    """Threat `open Redis`: what the pool's own user may not do."""
    with redis.Redis.from_url(acl_url) as client:
        client.set("sensorpool:ours", "x")
        with pytest.raises(
            (redis.exceptions.NoPermissionError, redis.exceptions.ResponseError), match=r"(?i)permission|can.t access"
        ):
            client.execute_command(*command)


@pytest.fixture
def roles(postgres_server: Any) -> Iterator[Callable[[str], str]]:
    """URLs of the roles that the page makes, on a database of the test's own; the tables are the owner's."""
    with fresh_database(postgres_server) as url:
        admin_url = make_url(url).set(drivername="postgresql")

        def run(sql: str, role: str | None = None) -> None:
            where = admin_url if role is None else admin_url.set(username=ROLES[role], password=f"change-me-{role}")
            with psycopg.connect(where.render_as_string(hide_password=False), autocommit=True) as connection:
                connection.execute(sql.replace("DATABASE sensorpool ", f"DATABASE {admin_url.database} "))

        def url_of(role: str) -> str:
            return (
                make_url(url)
                .set(username=ROLES[role], password=f"change-me-{role}")
                .render_as_string(hide_password=False)
            )

        try:
            run(block("Roles, by an administrator"))
            upgrade(url_of("owner"), schema="sensorpool")
            run(block("Rights, by the owner, after every upgrade"), "owner")
            yield url_of
        finally:
            run("DROP SCHEMA IF EXISTS sensorpool CASCADE")
            for name in ROLES.values():
                run(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


def test_the_pool_runs_under_the_roles(roles: Callable[[str], str], redis_url: str, tmp_path: Path) -> None:
    """Least privilege: worker, registrant and reader do all that they are for."""
    service = Service(tmp_path, roles("worker"), redis_url, database_schema="sensorpool")
    fast = service.settings.model_dump(exclude={"database_url"})
    registrant = Pool(Settings.load(**fast, database_url=roles("registrant")))
    reader = Pool(Settings.load(**fast, database_url=roles("reader")))
    try:
        whole_run(service, registrant, tmp_path)
        assert findings.health(reader) == []
        assert status.status(reader)["states"]["success"] == 2
        listed = instances.list_instances(reader, Selection(text="scripted"), 10)
        assert [row["poke_context"] for row in listed] == [None] * 5, "contexts are not for this role"
        assert instances.count_instances(reader, Selection(text="scripted")) == 5
        assert json.dumps(status.status(reader))
        assert list(reader.database.read(callback_rows.waiting, 10)) == []
    finally:
        service.stop()
        registrant.close()
        reader.close()


def test_callbacks_and_large_values_go_under_the_roles(roles: Callable[[str], str]) -> None:
    """Least privilege: what a worker keeps once a registrant reads, and either tells callbacks."""
    shared = {"sensors_enabled": SCRIPTED, "database_schema": "sensorpool", "retention": 1}
    shared |= {"on_settled_tasks": "t", "on_settled_broker_url": "memory://"}  # a test has no other reader
    registrant = Pool(Settings.load(**shared, database_url=roles("registrant")))
    worker = Worker(Settings.load(**shared, database_url=roles("worker")))
    context = {"folder": "/nowhere", "name": "x"}
    named = {"sensor": SCRIPTED, "poke_context": context, "on_settled": {"task": "t"}}
    ones = registrant.register_many([named] * 20)
    try:
        registrant.cancel(ones[0].id)
        value = json.dumps("x" * 250_000)
        began = worker.database.read(worker.database.now) + 1
        assert worker.settler.settle([Fact(ones[0].group_id, 20, began, Outcome.LANDED, None, value)]) == 19
        read = registrant.database.read(results.read, [one.id for one in ones])
        assert [each.xcom_value for each in read].count(value) == 19
        until("callbacks", lambda: registrant.database.read(callback_rows.backlog) == [])
        until("an empty outbox", lambda: registrant.database.read(inspecting.oldest_unpublished) is None)
        rescue(worker, Place())
    finally:
        worker.close()
        registrant.close()


BEYOND = {
    "worker": [
        "INSERT INTO poke_group SELECT * FROM poke_group",
        "INSERT INTO sensor_instance SELECT * FROM sensor_instance",
        "UPDATE poke_group SET op_classpath = 'os.system'",
        "UPDATE poke_group SET poke_context = '{}'",
        "UPDATE sensor_instance SET on_settled = 'x'",
    ],
    "registrant": [
        "DELETE FROM sensor_instance",
        "UPDATE poke_group SET op_classpath = 'os.system'",
        "UPDATE poke_group SET poke_context = '{}'",
        "UPDATE sensor_instance SET on_settled = 'x'",
        "UPDATE sensor_instance SET dag_id = 'x'",
        "UPDATE sensorpool_outbox SET instance_ids = '[]'",
        "DELETE FROM group_trouble",
        "UPDATE group_trouble SET strikes = 0",
    ],
    "reader": [
        "SELECT poke_context FROM sensor_instance",
        "SELECT on_settled FROM sensor_instance",
        "SELECT xcom_value FROM sensor_instance",
        "SELECT poke_context FROM poke_group",
        "SELECT argument FROM sensorpool_callback",
        "SELECT nextval('poke_group_id_seq')",
        *(f"DELETE FROM {table}" for table in TABLES),
        "UPDATE sensor_instance SET state = 'success'",
        "UPDATE poke_group SET version = 0",
        "INSERT INTO sensorpool_outbox (created_at, instance_ids) VALUES (0, '[]')",
    ],
}
NOBODY = [
    *(f"{what} {table}" for what in ("DROP TABLE", "TRUNCATE") for table in TABLES),
    *(f"ALTER TABLE {table} ADD COLUMN x int" for table in TABLES),
    "CREATE TABLE sensorpool.x (y int)",
    "CREATE TABLE public.x (y int)",
    "CREATE SCHEMA x",
    "CREATE ROLE x",
    "ALTER TABLE poke_group OWNER TO CURRENT_USER",
    "UPDATE sensorpool_schema SET oldest_code = '9'",
    "INSERT INTO sensorpool_alembic_version VALUES ('x')",
    "COPY poke_group TO PROGRAM 'cat'",
    "SELECT pg_read_file('/etc/passwd')",
]


def test_the_roles_can_do_no_more(roles: Callable[[str], str]) -> None:
    """Least privilege: each refusal by its SQLSTATE, so that a typo in a statement is none."""
    for role, statements in BEYOND.items():
        where = roles(role).replace("+psycopg", "")
        with psycopg.connect(where, autocommit=True, options="-c search_path=sensorpool") as connection:
            for statement in (*statements, *NOBODY):
                try:
                    connection.execute(statement)
                except psycopg.errors.InsufficientPrivilege:
                    continue
                pytest.fail(f"{role} may: {statement}")
