"""The answer to a COMMIT gets lost: a committed change is recognised, and its caller can always find it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from sensorpool import Key, Pool, Registration, Settings
from sensorpool.client.register import register as register_batch
from sensorpool.errors import InDoubt, KeyConflict, Refused, Unreachable
from sensorpool.model.states import Outcome, State
from sensorpool.model.values import Fact, Registered
from sensorpool.settle.flush import flush
from sensorpool.store import inspecting, registering
from tests.faults.proxy import COMMIT, Proxy

SCRIPTED = "harness.scripted.ScriptedSensor"


@pytest.fixture
def proxy(postgres_database: str) -> Iterator[Proxy]:
    """Stands before the database."""
    with Proxy.before(postgres_database) as between:
        yield between


@pytest.fixture
def pool(postgres_database: str, proxy: Proxy) -> Iterator[Pool]:
    made = Pool(Settings.load(database_url=proxy.url(postgres_database), sensors_enabled=SCRIPTED))
    yield made
    made.close()


@contextmanager
def lost(proxy: Proxy, times: int = 1) -> Iterator[None]:
    """Lose the answers to commits; make sure that so many were lost."""
    before = proxy.cut
    proxy.cut_answer(COMMIT, times=times)
    yield
    proxy.heal()
    assert proxy.cut == before + times, "the fault did not strike"


def register(pool: Pool, name: str = "x", **key: Any) -> Registered:
    return pool.register(SCRIPTED, {"folder": "/nowhere", "name": name}, **key)


def waiting(pool: Pool) -> tuple[int, int]:
    """Return the numbers of groups and instances."""
    return pool.database.read(inspecting.count_waiting)


KEY = {"dag_id": "d", "task_id": "t", "run_id": "r"}


@pytest.mark.parametrize("key", [{}, KEY, KEY | {"dag_id": "-"}], ids=["fresh", "chosen", "a dash"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_registration_recognises_its_own_row(pool: Pool, proxy: Proxy, key: dict[str, str], times: int) -> None:
    with lost(proxy, times):
        instance = register(pool, **key)
    assert (instance.created, instance.opened) == (True, True), "it made what it found"
    assert waiting(pool) == (1, 1)
    assert pool.wait([instance.id], 0) == {instance.id: State.SENSING}


def test_many_fresh_registrations_recognise_their_own_rows(pool: Pool, proxy: Proxy) -> None:
    with lost(proxy):
        made = pool.register_many(
            Registration(sensor=SCRIPTED, poke_context={"folder": "/nowhere", "name": f"n{n % 3}"}) for n in range(10)
        )
    assert len({instance.id for instance in made}) == 10
    assert waiting(pool) == (3, 10)


def test_a_superseded_try_is_told_though_the_answer_is_lost(
    pool: Pool, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    monkeypatch.setattr(pool.publisher, "publish", lambda settled: told.extend(each.id for each in settled))
    first = register(pool, **KEY)
    with lost(proxy):
        register(pool, "y", **KEY, try_number=2)
    assert told == [first.id]


def test_a_settle_recognises_what_it_wrote(pool: Pool, proxy: Proxy) -> None:
    """So its results are published at once, and not by rescue."""
    instance = register(pool)
    landed = Fact(instance.group_id, 1, pool.database.read(pool.database.now), Outcome.LANDED)
    with lost(proxy):
        (flushed,) = flush(pool.database, [landed], tick_ms=1000)
    assert [each.id for each in flushed.settled] == [instance.id]
    assert flushed.outbox_id is not None


def test_a_cancellation_recognises_what_it_wrote(pool: Pool, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setattr(pool.publisher, "publish", lambda settled: told.extend(each.id for each in settled))
    instance = register(pool)
    with lost(proxy):
        assert pool.cancel(instance.id) is State.CANCELLED
    assert told == [instance.id]


def test_a_registration_that_stays_in_doubt_names_its_key(
    pool: Pool, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> bool:
        raise OperationalError("SELECT", {}, psycopg.OperationalError("away, as told"))

    with monkeypatch.context() as patched, lost(proxy):
        patched.setattr(registering, "is_there", away)
        with pytest.raises(InDoubt, match="is open: register again") as raised:
            register(pool)
    assert "\n" not in str(raised.value)
    (key,) = raised.value.keys
    assert waiting(pool) == (1, 1)
    again = register(pool, **key._asdict())
    assert not again.created
    assert waiting(pool) == (1, 1)


def test_earlier_thousands_are_handed_over_with_the_error(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sensorpool.client.register.AT_ONCE", 2)
    rounds: list[int] = []

    def register_two(*arguments: Any) -> Any:
        rounds.append(1)
        if len(rounds) == 2:
            raise Unreachable("as told")
        return register_batch(*arguments)

    monkeypatch.setattr("sensorpool.client.register.register", register_two)
    with pytest.raises(Unreachable) as raised:
        pool.register_many(
            Registration(sensor=SCRIPTED, poke_context={"folder": "/nowhere", "name": f"n{n}"}) for n in range(4)
        )
    assert set(pool.wait([each.id for each in raised.value.registered], 0).values()) == {State.SENSING}
    assert len(raised.value.registered) == 2


def test_a_key_that_looks_like_a_fresh_one_is_a_key(make_pool: Callable[..., Pool]) -> None:
    """A DAG may have such a name."""
    pool = make_pool(sensors_enabled=SCRIPTED)
    for key in (KEY | {"dag_id": "-"}, Key.fresh("x")._asdict()):
        first = register(pool, **key)
        assert register(pool, **key) == first._replace(created=False, opened=False)
        with pytest.raises(KeyConflict):
            register(pool, "y", **key)
        higher = register(pool, "y", **(key | {"try_number": 2}))
        assert pool.wait([first.id, higher.id], 0) == {first.id: State.CANCELLED, higher.id: State.SENSING}


def test_a_row_that_is_in_the_way_for_good_is_said_in_one_line(
    make_pool: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For instance a row of a restored database whose ids are given out twice."""
    pool = make_pool(sensors_enabled=SCRIPTED)
    unique = "CREATE UNIQUE INDEX ids ON sensor_instance (operator)"
    pool.database.run(lambda connection: connection.execute(text(unique)))
    register(pool)
    monkeypatch.setattr("sensorpool.store.transaction.time.sleep", lambda _: None)
    with pytest.raises(Refused, match="the database refuses") as refused:
        register(pool)
    assert "\n" not in str(refused.value)
    assert waiting(pool) == (1, 1)
