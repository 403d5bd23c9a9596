"""Results that a database refuses: bad data fails its group at once, an unknown error after a window."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event, text

from harness.until import until
from sensorpool import Pool, Settings
from sensorpool.admin import health, instances, status
from sensorpool.errors import SchemaMismatch, Unreachable
from sensorpool.model.states import Outcome, State
from sensorpool.model.values import Fact, PokeReturnValue
from sensorpool.settle.flush import flush
from sensorpool.worker.chores.round import Place
from sensorpool.worker.context import Worker
from sensorpool.worker.rescue import rescue
from tests.integration.test_jobs import QUICK, TICK, job

LARGE = 50_000  # bytes


class Lands:
    """Lands, with a value."""

    def __init__(self, name: str, size: int = 0) -> None:
        self.size = size

    def poke(self, context: Any) -> Any:
        return PokeReturnValue(True, "x" * self.size)


class LandsOnce(Lands):
    """Lands when the test says so."""

    lands = True

    def poke(self, context: Any) -> Any:
        return self.lands


class Raises(Lands):
    """Raises a reason with letters of many scripts."""

    def poke(self, context: Any) -> Any:
        raise ValueError("it fails: 💣")


OURS = [f"{__name__}.{cls.__name__}" for cls in (Lands, LandsOnce, Raises)]


@pytest.fixture
def pool(make_pool: Callable[..., Pool]) -> Pool:
    return make_pool(sensors_enabled=OURS, **QUICK)


def register(pool: Pool, name: str, cls: type = Lands, size: int = 0) -> int:
    return pool.register(
        f"{__name__}.{cls.__name__}", {"name": name, "size": size}, dag_id="d", task_id=name, run_id="r"
    ).id


@contextmanager
def refusing(pool: Pool, when: str = "NEW.task_id = 'bad' AND NEW.state = 'success'") -> Iterator[None]:
    """Have the database refuse to write some rows, with an error of unknown meaning."""
    trigger = (
        f"CREATE TRIGGER refuse BEFORE UPDATE ON sensor_instance WHEN {when} BEGIN SELECT RAISE(ABORT, 'as told'); END"
    )
    pool.database.run(lambda connection: connection.execute(text(trigger)))
    yield
    pool.database.run(lambda connection: connection.execute(text("DROP TRIGGER refuse")))


def said(pool: Pool) -> list[str]:
    return [problem for problem in health.health(pool) if "cannot be written" in problem]


def test_an_error_that_nobody_can_explain_fails_nobody(pool: Pool, worker: Worker) -> None:
    """The group stays sensing and is poked again; the rest of its flush is settled; the commands show it."""
    bad, good = register(pool, "bad"), register(pool, "good")
    with refusing(pool):
        assert job(worker, pool)["unsettled"] == 1
        assert pool.wait([bad, good], 0) == {bad: State.SENSING, good: State.SUCCESS}
        assert len(said(pool)) == 1
        assert said(pool)[0].startswith("the result of group ")
        assert "as told" in said(pool)[0]
        (shown,) = status.status(pool)["unsettled"]
        assert "as told" in shown["cause"]
        assert "as told" in instances.show(pool, bad)["unsettled"]
        since = shown["since"]
        job(worker, pool)
        assert status.status(pool)["unsettled"][0]["since"] == since
    job(worker, pool)
    assert pool.wait([bad], 0) == {bad: State.SUCCESS}
    assert not said(pool)
    assert not pool.leases.unsettled.of(pool.ranges)


def test_after_the_window_it_fails_with_the_cause(
    make_pool: Callable[..., Pool], make_worker: Callable[[Settings], Worker]
) -> None:
    pool = make_pool(sensors_enabled=OURS, infra_failure_window=1.5 * TICK, **QUICK)
    worker = make_worker(pool.settings)
    bad = register(pool, "bad")
    with refusing(pool):
        job(worker, pool)
        assert pool.wait([bad], 0) == {bad: State.SENSING}
        until("the end of the window", lambda: job(worker, pool) and pool.wait([bad], 0)[bad] is not State.SENSING)
        shown = instances.show(pool, bad)
        assert shown["state"] == State.FAILED
        assert "as told" in shown["reason"]
        assert "the poke said landed" in shown["reason"]
    assert not pool.leases.unsettled.of(pool.ranges)


def test_a_failure_that_cannot_be_written_stops_nobody(
    make_pool: Callable[..., Pool], make_worker: Callable[[Settings], Worker]
) -> None:
    pool = make_pool(sensors_enabled=OURS, infra_failure_window=0.5 * TICK, **QUICK)
    worker = make_worker(pool.settings)
    bad = register(pool, "bad")
    with refusing(pool, "NEW.task_id = 'bad'"):
        for number in range(3):
            good = register(pool, f"good{number}")
            job(worker, pool)
            assert pool.wait([bad, good], 0) == {bad: State.SENSING, good: State.SUCCESS}
        assert said(pool)
    job(worker, pool)
    assert pool.wait([bad], 0) == {bad: State.SUCCESS}


def test_a_poke_that_finds_nothing_begins_the_window_anew(
    pool: Pool, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two failures that lie far apart do not count as one that lasted."""
    register(pool, "bad", LandsOnce)
    with refusing(pool):
        job(worker, pool)
        assert said(pool)
        monkeypatch.setattr(LandsOnce, "lands", False)
        job(worker, pool)
        assert not pool.leases.unsettled.of(pool.ranges)


def test_bad_data_fails_its_group_at_once(pool: Pool, worker: Worker) -> None:
    @event.listens_for(worker.database.engine, "connect")
    def _limit(connection: Any, _: Any) -> None:
        connection.setlimit(0, LARGE)  # SQLITE_LIMIT_LENGTH

    bad, good = register(pool, "bad", size=2 * LARGE), register(pool, "good")
    job(worker, pool)
    assert pool.wait([bad, good], 0) == {bad: State.FAILED, good: State.SUCCESS}
    assert "could not be written" in instances.show(pool, bad)["reason"]
    assert not said(pool)


def test_a_reason_that_the_database_cannot_spell_is_spelt_in_ascii(
    pool: Pool, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verdict is kept: a database whose encoding is not UTF-8 refuses the text, and nothing else."""

    @event.listens_for(worker.database.engine, "before_cursor_execute")
    def _refuse(*arguments: Any) -> None:
        if "💣" in str(arguments[3]):
            raise UnicodeEncodeError("latin-1", "💣", 0, 1, "not in its range")

    raising = register(pool, "raising", Raises)
    job(worker, pool)
    shown = instances.show(pool, raising)
    assert (shown["state"], shown["ending"]) == (State.FAILED, "poke_error")
    assert shown["reason"] == "ValueError: it fails: \\U0001f4a3"


def test_a_suspect_is_kept_in_mind_too(pool: Pool, worker: Worker) -> None:
    """Its result is settled by a thread of its own."""
    bad = register(pool, "bad")
    group_id = instances.instance(pool, bad)["group_id"]
    pool.leases.suspects.mark(pool.ranges[0], [group_id], Suspicion.DEAD_HOLDER)
    with refusing(pool):
        job(worker, pool)
        until("what came of it", lambda: said(pool))
        assert pool.wait([bad], 0) == {bad: State.SENSING}
        until("its release", lambda: not pool.leases.suspects.why(pool.ranges[0], group_id))
    job(worker, pool)
    until("its end", lambda: pool.wait([bad], 0)[bad] is State.SUCCESS)
    until("all is well", lambda: not pool.leases.unsettled.of(pool.ranges))


def test_what_was_kept_in_mind_goes_with_its_group(pool: Pool, worker: Worker) -> None:
    bad = register(pool, "bad")
    with refusing(pool):
        job(worker, pool)
    pool.cancel(bad)
    assert pool.leases.unsettled.of(pool.ranges)
    assert not said(pool), "no instance waits for it any more"
    rescue(worker, Place())
    assert not pool.leases.unsettled.of(pool.ranges)


def test_rescue_gets_past_an_instance_that_it_cannot_fail(pool: Pool, worker: Worker) -> None:
    bad, good = register(pool, "bad"), register(pool, "good")
    pool.database.run(lambda connection: connection.execute(text("DELETE FROM poke_group")))
    with refusing(pool, "NEW.task_id = 'bad'"):
        rescue(worker, Place())
        assert pool.wait([bad, good], 0) == {bad: State.SENSING, good: State.FAILED}


@pytest.mark.parametrize("error", [Unreachable("away"), SchemaMismatch("no tables")])
def test_a_database_that_is_away_blames_no_group(pool: Pool, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(pool.database, "transaction", run)
    with pytest.raises(type(error)):
        flush(pool.database, [Fact(1, 1, 1, Outcome.LANDED), Fact(2, 1, 1, Outcome.LANDED)], tick_ms=1000)
