"""One list of findings: what is wrong is in `health`; `status`, the pages and `doctor` show also what is behind."""

import json
import time
from collections.abc import Callable

import pytest
from click.testing import CliRunner
from sqlalchemy import insert, update

from sensorpool import Pool
from sensorpool.admin import findings
from sensorpool.admin.explain import explain
from sensorpool.admin.status import overview, status
from sensorpool.cli.main import main
from sensorpool.leases.outages import Outages
from sensorpool.model.outage import throttled
from sensorpool.store.schema import callback, dag_over_quota, poke_group, poke_quarantine
from tests.support.troubled import put_in_trouble

SENSOR = "sensorpool.sensors.PathSensor"
FORGED = "\x1b[2J\u202ename"


@pytest.fixture
def pool(make_pool: Callable[..., Pool], redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Pool:
    """A pool that `standalone` would not run: its leases are in a Redis, where nothing has ticked."""
    made = make_pool(redis_url=redis_url)
    monkeypatch.setenv("SENSORPOOL_DATABASE_URL", made.settings.database_url)
    monkeypatch.setenv("SENSORPOOL_REDIS_URL", redis_url)
    return made


def fall_behind(pool: Pool, name: str = "some.task") -> int:
    """Put into the pool one of each that `health` does not report; return an instance that waits."""
    made = pool.register(SENSOR, {"path": "/x"})
    now = pool.database.read(pool.database.now)
    rows = [
        (callback, {"instance_id": 1, "task": name, "created_at": now - 5_000, "next_try_at": now, "tries": 1}),
        (dag_over_quota, {"dag_id": name, "sensing": 10_001, "since": now}),
        (
            poke_quarantine,
            {
                "digest": b"x" * 32,
                "op_classpath": SENSOR,
                "poke_context": "{}",
                "crashes": 3,
                "reason": name,
                "since": now,
            },
        ),
    ]
    with pool.database.engine.begin() as connection:
        for table, row in rows:
            connection.execute(insert(table), [row])
        connection.execute(update(poke_group).values(late_since=now))
    put_in_trouble(pool.database, [made.group_id], overruns=2)
    Outages(pool.leases.store).write(throttled(None, name, "429", time.monotonic(), 1, 60))
    pool.incidents.add_death(name, 1, -9)
    return made.id


BEHIND = (
    "later than usual: 1 condition (`sensorpool list --late` names who waits)",
    "in quarantine: 1 condition (`sensorpool quarantine` lists them)",
    "overran SENSORPOOL_POKE_TIMEOUT: the last poke of 1 group",
    "is over its quota (10,001 sensing): its further sensors are refused",
    " wants to be left alone, for ",
    "callbacks wait to be sent: 1 of ",
    "died in the last 10 minutes: 1 process of the workers, last ",
)


def test_what_is_behind_is_in_status_on_the_pages_and_in_doctor_and_not_in_health(pool: Pool) -> None:
    fall_behind(pool)
    found = status(pool)
    doctor = [each.said for each in findings.doctor(pool.settings) if each.level == "warning"]
    page = overview(pool, None)["status"]["warnings"]
    said = CliRunner().invoke(main, ["status"]).stdout.splitlines()
    red = findings.health(pool)
    for part in BEHIND:  # a line may tell seconds, which pass
        assert [sum(part in each for each in lines) for lines in (found["warnings"], doctor, page, said, red)] == [
            *(1, 1, 1, 1, 0)
        ]
    assert found["problems"] == findings.health(pool) != []


def test_what_stops_the_pool_is_first_everywhere(pool: Pool) -> None:
    waiting = pool.register(SENSOR, {"path": "/x"}).id
    [problem] = findings.health(pool)
    assert problem.startswith("ticks have stopped: no worker is running")
    assert status(pool)["problems"] == [problem]
    assert CliRunner().invoke(main, ["status"]).stdout.splitlines()[1] == problem
    assert overview(pool, None)["problems"] == [problem]
    explained = explain(pool, waiting)
    assert (explained["stopped"], explained["trouble"]) == (f"T{problem[1:].rstrip('.')}.", None)
    ended = CliRunner().invoke(main, ["doctor", "--json"])
    assert ended.exit_code == 1
    assert {"subject": "ticks", "level": "wrong", "said": problem} in json.loads(ended.stdout)
    ended = CliRunner().invoke(main, ["health", "--json"])
    assert (ended.exit_code, json.loads(ended.stdout)) == (1, {"healthy": False, "problems": [problem]})


def test_what_waits_for_too_long_is_wrong(pool: Pool) -> None:
    fall_behind(pool)
    with pool.database.engine.begin() as connection:
        connection.execute(update(callback).values(created_at=callback.c.created_at - 600_000))
    part = "callbacks wait to be sent: 1 of some.task, for 60"
    assert [each for each in findings.health(pool) if each.startswith(part)]
    assert not [each for each in status(pool)["warnings"] if each.startswith(part)]


def test_no_line_has_what_a_terminal_acts_upon(pool: Pool) -> None:
    """The texts come from Redis, the database and other hosts, where somebody may have forged them."""
    fall_behind(pool, FORGED)
    for command in ("status", "doctor"):
        said = CliRunner().invoke(main, [command]).stdout
        assert said.count("\\u001b[2J") >= 3
        assert said.replace("\n", "").isprintable()
