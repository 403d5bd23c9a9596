"""Results that a database refuses: bad data fails its group at once; after an unknown error it is poked again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event, text

from harness.until import until
from sensorpool import Pool, Settings
from sensorpool.admin import instances
from sensorpool.errors import SchemaMismatch, Unreachable
from sensorpool.model.states import Outcome, State
from sensorpool.model.values import Fact, PokeReturnValue
from sensorpool.settle.flush import flush
from sensorpool.worker.context import Worker
from tests.integration.test_jobs import QUICK, job
from tests.support.troubled import put_in_trouble

LARGE = 50_000  # bytes


class Lands:
    """Lands, with a value."""

    def __init__(self, name: str, size: int = 0) -> None:
        self.size = size

    def poke(self, context: Any) -> Any:
        return PokeReturnValue(True, "x" * self.size)


class Raises(Lands):
    """Raises a reason with letters of many scripts."""

    def poke(self, context: Any) -> Any:
        raise ValueError("it fails: 💣")


OURS = [f"{__name__}.{cls.__name__}" for cls in (Lands, Raises)]


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


def test_an_error_that_nobody_can_explain_fails_nobody(
    pool: Pool, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    """The group stays sensing and is poked again; the rest of its flush is settled; the log has the cause."""
    bad, good = register(pool, "bad"), register(pool, "good")
    with refusing(pool):
        job(worker, pool)
        assert pool.wait([bad, good], 0) == {bad: State.SENSING, good: State.SUCCESS}
        [line] = [each for each in caplog.records if "cannot be settled" in each.getMessage()]
        assert "as told" in str(vars(line))
    job(worker, pool)
    assert pool.wait([bad], 0) == {bad: State.SUCCESS}


def test_a_failure_that_cannot_be_written_stops_nobody(
    make_pool: Callable[..., Pool], make_worker: Callable[[Settings], Worker]
) -> None:
    pool = make_pool(sensors_enabled=OURS, **QUICK)
    worker = make_worker(pool.settings)
    bad = register(pool, "bad", Raises)
    with refusing(pool, "NEW.task_id = 'bad'"):
        for number in range(3):
            good = register(pool, f"good{number}")
            job(worker, pool)
            assert pool.wait([bad, good], 0) == {bad: State.SENSING, good: State.SUCCESS}
    job(worker, pool)
    assert pool.wait([bad], 0) == {bad: State.FAILED}


def test_bad_data_fails_its_group_at_once(pool: Pool, worker: Worker) -> None:
    @event.listens_for(worker.database.engine, "connect")
    def _limit(connection: Any, _: Any) -> None:
        connection.setlimit(0, LARGE)  # SQLITE_LIMIT_LENGTH

    bad, good = register(pool, "bad", size=2 * LARGE), register(pool, "good")
    job(worker, pool)
    assert pool.wait([bad, good], 0) == {bad: State.FAILED, good: State.SUCCESS}
    assert "could not be written" in instances.show(pool, bad)["reason"]


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


def test_a_result_of_a_child_is_refused_and_made_again_too(pool: Pool, worker: Worker) -> None:
    """It is settled by a thread of its own."""
    bad = register(pool, "bad")
    put_in_trouble(pool.database, [pool.get(bad).group_id], strikes=1)
    with refusing(pool):
        job(worker, pool)
        until("its poke", lambda: not worker.background.is_busy)
        assert pool.wait([bad], 0) == {bad: State.SENSING}
    until("its end", lambda: job(worker, pool) and pool.wait([bad], 0)[bad] is State.SUCCESS)


@pytest.mark.parametrize("error", [Unreachable("away"), SchemaMismatch("no tables")])
def test_a_database_that_is_away_blames_no_group(pool: Pool, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(pool.database, "transaction", run)
    with pytest.raises(type(error)):
        flush(pool.database, [Fact(1, 1, 1, Outcome.LANDED), Fact(2, 1, 1, Outcome.LANDED)], tick_ms=1000)
