"""A sensor that the pool keeps is built again: a changed Connection reaches a group that lives long."""

import datetime as dt
import json
import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar
from unittest.mock import Mock

import pytest

pytest.importorskip("airflow")

from airflow.sdk import BaseHook, Variable
from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool import Settings
from sensorpool.airflow.compat.exceptions import AirflowException, AirflowFailException
from sensorpool.airflow.pool.adapters import kept_operator
from sensorpool.airflow.proof.arguments import rebuild
from sensorpool.model.states import Outcome
from sensorpool.model.values import DueGroup
from sensorpool.poke.classes import Classes
from sensorpool.poke.poker import Poker
from tests.airflow.running import PokesLog, in_dag

AGE = 300.0


class Hook(str):
    """Knows a password."""

    __slots__ = ()


class Hooked(BaseSensorOperator):
    """Keeps a hook, as the providers' sensors do; it answers whether what it knows is what its backend wants."""

    poke_context_fields = ("hooked_conn_id",)
    asks: ClassVar[Any] = Mock(wanted="old", act=None, built=0)  # of the standard library: it is not looked into

    def __init__(self, *, hooked_conn_id: str = "hooked", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hooked_conn_id = hooked_conn_id
        Hooked.asks.built += 1

    @cached_property
    def hook(self) -> Hook:
        return Hook(BaseHook.get_connection(self.hooked_conn_id).password)

    def poke(self, context: Any) -> Any:
        if Hooked.asks.act is not None:
            return Hooked.asks.act(self)
        if self.hook != Hooked.asks.wanted:
            raise AirflowException(f"403 for {self.hook}")
        return False


class Nameless(Hooked):
    """Says nowhere which Connection it uses."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        del self.hooked_conn_id
        self.__dict__["hook"] = Hook(BaseHook.get_connection("hooked").password)


class Clock:
    """The time, as a test wants it."""

    now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(kept_operator, "time", clock)
    monkeypatch.setattr(kept_operator, "_connections", kept_operator._Connections())
    monkeypatch.setattr(Hooked.asks, "wanted", "old")
    monkeypatch.setattr(Hooked.asks, "act", None)
    monkeypatch.setattr(Hooked.asks, "built", 0)
    monkeypatch.setenv("AIRFLOW_CONN_HOOKED", json.dumps({"conn_type": "http", "password": "old"}))
    return clock


@pytest.fixture
def change(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def change() -> None:
        monkeypatch.setenv("AIRFLOW_CONN_HOOKED", json.dumps({"conn_type": "http", "password": "new"}))

    return change


def pooled(cls: type = Hooked) -> Any:
    path = f"{cls.__module__}.{cls.__qualname__}"
    return Classes([path]).find(path).construct({})


def held(sensor: Any) -> str:
    return str(sensor.use(lambda operator: operator.hook))


@pytest.mark.parametrize("cls", [Hooked, Nameless])
def test_a_changed_connection_reaches_it_at_a_bounded_age(clock: Clock, change: Callable[[], None], cls: type) -> None:
    sensor = pooled(cls)
    assert held(sensor) == "old"
    change()
    clock.now += AGE / 2
    assert held(sensor) == "old"
    clock.now += AGE / 2
    assert held(sensor) == "new"


@pytest.mark.parametrize(("given", "age"), [("40", 40.0), ("nonsense", AGE)])
def test_that_age_is_a_setting(
    clock: Clock, change: Callable[[], None], monkeypatch: pytest.MonkeyPatch, given: str, age: float
) -> None:
    """A quarter earlier at most, so that not all are built at once. A wrong setting fails no poke."""
    monkeypatch.setenv("SENSORPOOL_REBUILD_AFTER", given)
    monkeypatch.setattr(kept_operator, "_limit", kept_operator._limit.__wrapped__)
    sensor = pooled()
    assert held(sensor) == "old"
    change()
    clock.now += age * 0.7
    assert held(sensor) == "old"
    clock.now += age * 0.3
    assert held(sensor) == "new"


def test_one_whose_connection_stays_the_same_stays_as_it_is(clock: Clock) -> None:
    sensor = pooled()
    for _ in range(20):
        clock.now += AGE / 3
        assert held(sensor) == "old"
    assert Hooked.asks.built == 1
    other = pooled(Nameless)
    clock.now += AGE
    assert held(other) == "old"
    assert Hooked.asks.built == 3, "whether it is unchanged cannot be told"


class Undeclared(Hooked):
    """Does not say that its constructor takes nothing from elsewhere."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)


def test_one_whose_constructor_may_take_more_than_its_connection_is_built_again_at_its_age(clock: Clock) -> None:
    sensor = pooled(Undeclared)
    for built in (2, 3):
        clock.now += AGE
        assert held(sensor) == "old"
        assert Hooked.asks.built == built


def test_thousands_that_name_one_connection_cost_one_look(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    get = BaseHook.get_connection
    monkeypatch.setattr(BaseHook, "get_connection", lambda name: looked.append(name) or get(name))
    sensors = [pooled() for _ in range(50)]
    for sensor in sensors:
        held(sensor)
    looked.clear()
    clock.now += AGE
    for sensor in sensors:
        held(sensor)
    assert len(looked) == 1


def test_a_connection_that_cannot_be_had_counts_as_unchanged(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    sensor = pooled()
    assert held(sensor) == "old"
    monkeypatch.setattr(BaseHook, "get_connection", lambda name: 1 / 0)
    clock.now += AGE
    assert held(sensor) == "old"
    assert Hooked.asks.built == 1


def test_an_error_of_one_that_was_kept_is_held_against_a_new_one(clock: Clock, change: Callable[[], None]) -> None:
    sensor = pooled()
    assert sensor.poke({}) is False
    change()
    Hooked.asks.wanted = "new"
    assert sensor.poke({}) is False
    Hooked.asks.wanted = "newer"
    with pytest.raises(AirflowException, match="403 for new"):
        sensor.poke({})
    built = Hooked.asks.built
    with pytest.raises(AirflowException, match="403 for new"):
        sensor.poke({})
    assert Hooked.asks.built == built + 1, "an error of a new one is final, and it is not used again"


@pytest.mark.parametrize("error", [AirflowFailException("no"), ConnectionRefusedError("away")])
def test_an_answer_is_asked_for_once_and_so_is_a_backend_that_is_away(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    asked: list[Hooked] = []

    def act(operator: Hooked) -> Any:
        asked.append(operator)
        if len(asked) == 2:
            raise error
        return False

    monkeypatch.setattr(Hooked.asks, "act", act)
    sensor = pooled()
    sensor.poke({})
    with pytest.raises(type(error)):
        sensor.poke({})
    sensor.poke({})
    assert len(asked) == 3
    assert asked[0] is asked[1] is not asked[2]


def test_an_error_that_took_long_is_not_asked_about_again(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Hooked] = []

    def act(operator: Hooked) -> Any:
        asked.append(operator)
        clock.now += 5.0
        if len(asked) == 2:
            raise ValueError("after five seconds")
        return False

    monkeypatch.setattr(Hooked.asks, "act", act)
    sensor = pooled()
    sensor.poke({})
    with pytest.raises(ValueError, match="five"):
        sensor.poke({})
    assert len(asked) == 2


def test_one_that_does_not_come_back_is_not_used_again(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs, goes_on = threading.Event(), threading.Event()

    def act(operator: Hooked) -> Any:
        if not hangs.is_set():
            hangs.set()
            goes_on.wait(10)
        return False

    monkeypatch.setattr(Hooked.asks, "act", act)
    sensor = pooled()
    thread = threading.Thread(target=sensor.poke, args=({},))
    thread.start()
    assert hangs.wait(10)
    assert sensor.poke({}) is False
    assert Hooked.asks.built == 2
    goes_on.set()
    thread.join(10)


def test_another_waiter_has_it_look_at_once(clock: Clock, change: Callable[[], None]) -> None:
    """Who mends a Connection and clears the task must not be answered with the old one."""
    path = f"{Hooked.__module__}.{Hooked.__qualname__}"
    cache = Poker(Settings.load(sensors_enabled=path)).cache
    first, second = (DueGroup(1, version, 7, 1, 60_000, 0, 0, None) for version in (1, 2))
    one = cache.keep(first, path, "{}")
    assert one.poke()[0].outcome is Outcome.NOT_LANDED
    change()
    Hooked.asks.wanted = "new"
    assert cache.keep(first, path, "{}") is one
    assert one._poke.__self__._expires > clock.now, "no waiter has joined"
    assert cache.keep(second, path, "{}") is one
    Hooked.asks.built = 0
    assert one.poke()[0].outcome is Outcome.NOT_LANDED
    assert Hooked.asks.built == 1
    cache.keep(second._replace(version=3), path, "{}")
    assert one.poke()[0].outcome is Outcome.NOT_LANDED
    assert Hooked.asks.built == 1, "it is as it was"


class Dated(BaseSensorOperator):
    """Works out in its constructor what it waits for."""

    today: ClassVar[dt.date] = dt.date(2026, 11, 2)
    lands: ClassVar[bool] = False
    error: ClassVar[Exception | None] = None
    poked: ClassVar[PokesLog] = PokesLog()

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.day = self.today

    def poke(self, context: Any) -> bool:
        """Land, wherever another day is waited for."""
        Dated.poked.append(self.day)
        error, Dated.error = Dated.error, None
        if error is not None:
            raise error
        return self.day != dt.date(2026, 11, 2)


def dated(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Any]:
    monkeypatch.setattr(Dated, "today", dt.date(2026, 11, 2))
    monkeypatch.setattr(Dated, "poked", PokesLog())
    path = f"{Dated.__module__}.{Dated.__qualname__}"
    context = json.dumps(rebuild.poke_context_of(in_dag(Dated)))
    cache = Poker(Settings.load(sensors_enabled=path)).cache
    return lambda version: cache.keep(DueGroup(1, version, 7, 1, 60_000, 0, 0, None), path, context)


@pytest.mark.parametrize("how", ["its age", "another waiter", "an error", "another process"])
def test_no_poke_of_another_day_lands_a_group(clock: Clock, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """What differs from what was registered is never poked: the one that was kept, or its worker."""
    keep = dated(monkeypatch)
    assert keep(1).poke()[0].outcome is Outcome.NOT_LANDED
    monkeypatch.setattr(Dated, "today", dt.date(2026, 11, 3))
    assert keep(1).poke()[0].outcome is Outcome.NOT_LANDED
    if how == "its age":
        clock.now += AGE
    if how == "an error":
        monkeypatch.setattr(Dated, "error", ValueError("after a while"))
    if how == "another process":
        keep = dated(monkeypatch)
        monkeypatch.setattr(Dated, "today", dt.date(2026, 11, 3))
    outcomes = [keep(2 if how == "another waiter" else 1).poke()[0].outcome for _ in range(3)]
    assert set(outcomes) == {Outcome.HAND_BACK}
    assert set(Dated.poked) <= {dt.date(2026, 11, 2)}


class Prefixed(BaseSensorOperator):
    """Takes a Variable, and names a Connection, which says nothing of that."""

    asks: ClassVar[Any] = Mock(there=())

    def __init__(self, *, hooked_conn_id: str = "hooked", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hooked_conn_id = hooked_conn_id
        self.prefix = Variable.get("prefix")

    def poke(self, context: Any) -> bool:
        """Whether something is there."""
        return self.prefix in Prefixed.asks.there


@pytest.mark.parametrize("version", [1, 2], ids=["its age", "another waiter"])
def test_a_connection_that_stays_the_same_lands_nothing_of_an_old_variable(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_PREFIX", "old")
    path = f"{Prefixed.__module__}.{Prefixed.__qualname__}"
    context = json.dumps(rebuild.poke_context_of(in_dag(Prefixed)))
    cache = Poker(Settings.load(sensors_enabled=path)).cache

    def poke(version: int) -> Outcome:
        return cache.keep(DueGroup(1, version, 7, 1, 60_000, 0, 0, None), path, context).poke()[0].outcome

    assert poke(1) is Outcome.NOT_LANDED
    monkeypatch.setenv("AIRFLOW_VAR_PREFIX", "new")
    monkeypatch.setattr(Prefixed.asks, "there", ("old",))
    if version == 1:
        clock.now += AGE
    assert poke(version) is Outcome.HAND_BACK


def test_the_hook_that_an_s3_sensor_keeps(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    s3 = pytest.importorskip("airflow.providers.amazon.aws.sensors.s3")

    def connection(key: str) -> None:
        value = {"conn_type": "aws", "login": key, "password": "a-secret-key", "extra": {"region_name": "eu-west-1"}}
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(value))

    connection("OLD")
    path = f"{s3.S3KeySensor.__module__}.S3KeySensor"
    sensor = Classes([path]).find(path).construct({"bucket_key": "s3://lake/key", "aws_conn_id": "lake"})

    def key() -> str:
        return str(sensor.use(lambda operator: operator.hook.get_credentials().access_key))

    assert key() == "OLD"
    connection("NEW")
    assert key() == "OLD"
    clock.now += AGE
    assert key() == "NEW"
