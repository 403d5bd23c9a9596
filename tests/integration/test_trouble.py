"""The cause of failed jobs and chores is shown to operators, and a failure stops nothing else."""

import re
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, insert, text
from sqlalchemy.exc import ProgrammingError

from sensorpool import Pool, Settings
from sensorpool.admin import findings
from sensorpool.config import __version__
from sensorpool.errors import SettingsError, Unreachable
from sensorpool.leases.lease import leases_of
from sensorpool.leases.range_state import RangeState
from sensorpool.leases.roster import Roster
from sensorpool.publish import wire
from sensorpool.service.app import make_app
from sensorpool.service.presence import terms_of
from sensorpool.store.database import Database
from sensorpool.store.schema import callback, outbox
from sensorpool.worker import rescue
from sensorpool.worker.chores.round import Place
from sensorpool.worker.context import Worker
from sensorpool.worker.job import Jobs

DENIED = "permission denied for table sensor_callback"


@pytest.fixture
def pool(make_pool: Callable[..., Pool]) -> Pool:
    return make_pool(shards=2, tick=1.0)


def denies(*_: Any, **__: Any) -> Any:
    raise ProgrammingError("SELECT", {}, psycopg.errors.InsufficientPrivilege(DENIED))


def done_lately(pool: Pool, worker: Worker) -> None:
    """Give each range the state of a finished job."""
    now = pool.database.read(pool.database.now)
    for shard_range in pool.ranges:
        held = worker.leases.acquire(shard_range, "us")
        assert not isinstance(held, str)
        held.lease.finish(RangeState(last=now))


def test_a_missing_grant_is_told_as_what_it_is() -> None:
    database = Database("sqlite://")
    for ask in (database.read, database.transaction(attempts=1).run):
        with pytest.raises(Unreachable, match=f"refuses: {DENIED}: give the role its rights .docs/security.md") as told:
            ask(denies)
        assert "does not answer" not in str(told.value)
    database.dispose()


def test_a_chore_that_fails_stops_no_other_and_turns_health_red(
    pool: Pool, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    done_lately(pool, worker)
    others: list[int] = []
    monkeypatch.setattr(worker.outbox, "send_waiting_callbacks", lambda: others.append(1))
    monkeypatch.setattr("sensorpool.store.pruning.look_at_instances", denies)
    for number in range(3):
        assert findings.health(pool) == []
        assert len(others) == number
        rescue.rescue(worker, Place())
    [problem] = findings.health(pool)
    assert problem.startswith("rescue fails at pruning instances, for 3 rounds and more: the database")
    assert DENIED in problem
    monkeypatch.undo()
    rescue.rescue(worker, Place())
    assert findings.health(pool) == []


def test_a_database_that_does_not_answer_ends_the_round(
    pool: Pool, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> Any:
        raise Unreachable("away")

    others: list[int] = []
    monkeypatch.setattr(worker.outbox, "send_waiting_callbacks", lambda: others.append(1))
    monkeypatch.setattr(worker.database, "read", away)
    with pytest.raises(Unreachable):
        rescue.rescue(worker, Place())
    assert not others


@pytest.mark.parametrize("error", [Unreachable(f"the database x refuses: {DENIED}"), ValueError("odd")], ids=repr)
def test_a_range_whose_jobs_fail_says_why(
    pool: Pool, worker: Worker, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The line names the cause, and not the missing holder."""

    def fails(*_: Any) -> Any:
        raise error

    app = make_app(pool.settings)
    monkeypatch.setattr(Jobs, "run", fails)
    for shard_range in pool.ranges:
        app.tasks[wire.POKE_SHARD].apply([shard_range.shard_min, shard_range.shard_max])
    [problem] = findings.health(pool)
    assert problem.startswith("the jobs of 2 ranges (0-5000 and others) fail: ")
    assert str(error) in problem
    done_lately(pool, worker)
    assert findings.health(pool) == []
    app.sensorpool_runtime.close()
    app.close()


def test_a_holder_that_is_not_done_is_told_from_none(pool: Pool, worker: Worker) -> None:
    [stopped] = findings.health(pool)
    assert stopped.startswith(
        "ticks have stopped: `sensorpool standalone` is not running, has other settings, or cannot "
    )
    assert stopped.endswith("; no job has looked at any range since Redis started")
    worker.leases.acquire(pool.ranges[0], "celery@here/1")
    held, free = findings.health(pool)
    assert held == (
        "the holder of range 0-5000, celery@here/1, is not done with it: no job has finished since Redis started"
    )
    assert free == (
        "ticks have stopped: the workers may be busy; no job has looked at range 5000-10000 since Redis started"
    )


def test_what_is_not_running_is_named_and_not_each_range(make_pool: Callable[..., Pool], redis_url: str) -> None:
    pool = make_pool(redis_url=redis_url, shards=8, tick=1.0)
    [stopped] = findings.health(pool)
    assert stopped == (
        "ticks have stopped: no worker is running (start `celery -A sensorpool worker`), and beat is not running "
        "(start `celery -A sensorpool beat`); no job has looked at any range since Redis started"
    )
    terms = terms_of(pool.settings, pool.database)
    pool.roster.enroll("celery@there/1", terms, tick=1.0, version=__version__, must_agree=True)
    now = pool.database.read(pool.database.now)
    for shard_range in pool.ranges[1:]:
        held = pool.leases.acquire(shard_range, "celery@there/a")
        assert not isinstance(held, str)
        held.lease.finish(RangeState(last=now - 60_000))
    [stopped] = findings.health(pool)
    assert stopped.startswith(
        "ticks have stopped: beat is not running (start `celery -A sensorpool beat`); no job has "
    )
    pool.roster.note_beat(1.0, 60.0)
    [stopped] = findings.health(pool)
    assert re.fullmatch(
        r"ticks have stopped: the workers may be busy; no job has looked at any range for 6\d s", stopped
    )
    held = pool.leases.acquire(pool.ranges[0], "celery@there/a")
    assert not isinstance(held, str)
    held.lease.finish(RangeState(last=pool.database.read(pool.database.now)))
    [stopped] = findings.health(pool)
    assert "no job has looked at 7 ranges (1250-2500 and others) for 6" in stopped


def test_a_wrong_password_is_named_as_such(
    make_pool: Callable[..., Pool], redis_url: str, postgres_database: str
) -> None:
    wrong = [re.sub(r"(://[^:@/]*):[^@/]*@", r"\1:wrong-password@", url) for url in (redis_url, postgres_database)]
    with pytest.raises(Unreachable, match=r"^Redis .* refuses the user or password: ") as told:
        leases_of(Settings.load(redis_url=wrong[0])).store.probe()
    assert "does not answer" not in str(told.value)
    with pytest.raises(Unreachable, match=r"refuses the connection: .*password authentication failed") as told:
        Database(wrong[1]).read(Connection.scalar, text("SELECT 1"))
    assert "does not answer" not in str(told.value)


def test_what_is_settled_and_not_told_for_minutes_turns_health_red(pool: Pool, worker: Worker) -> None:
    done_lately(pool, worker)
    now = pool.database.read(pool.database.now)
    row = {"instance_id": 1, "task": "theirs.go_on", "next_try_at": now, "cause": "no server listens"}
    with pool.database.engine.begin() as connection:
        connection.execute(insert(callback), [row | {"created_at": now - 200_000}])
        connection.execute(insert(outbox), [{"created_at": now - 200_000, "instance_ids": "[1]"}])
    assert findings.health(pool) == []
    with pool.database.engine.begin() as connection:
        connection.execute(insert(callback), [row | {"instance_id": 2, "created_at": now - 400_000}])
        connection.execute(insert(outbox), [{"created_at": now - 400_000, "instance_ids": "[2]"}])
    waiting, unpublished = findings.health(pool)
    assert waiting.startswith("callbacks wait to be sent: 2 of theirs.go_on, for 40")
    assert waiting.endswith("no server listens")
    assert unpublished.startswith("results wait to be published, for 40")


@pytest.mark.parametrize("url", ["foo", "sqs://x", "redis://h/notanumber"])
def test_a_broker_of_on_settled_that_cannot_be_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="SENSORPOOL_ON_SETTLED_BROKER_URL"):
        Settings.load(on_settled_broker_url=url)


def test_health_asks_the_roster_once(pool: Pool, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    done_lately(pool, worker)
    asked: list[str] = []

    def counting(name: str) -> Any:
        real = getattr(Roster, name)

        def ask(roster: Roster) -> Any:
            asked.append(name)
            return real(roster)

        return ask

    for name in ("workers", "beat_tick"):
        monkeypatch.setattr(Roster, name, counting(name))
    assert findings.health(pool) == []
    assert sorted(asked) == ["beat_tick", "workers"]
