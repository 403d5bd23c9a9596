"""A poke that takes away what it finds: its landing in the pool ends its task, though no second poke would find it."""

import datetime as dt
import json
import tempfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import pytest

pytest.importorskip("airflow")

from airflow.sdk.bases.sensor import BaseSensorOperator, PokeReturnValue

from sensorpool import Settings
from sensorpool.airflow.compat import secrets_masker
from sensorpool.airflow.compat.exceptions import AirflowException, AirflowRescheduleException, TaskDeferred
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.pool.adapters.landing import landing_of
from sensorpool.airflow.task import conclude, deferral, patch
from sensorpool.errors import Unreachable
from sensorpool.model.states import Ending, Outcome, State
from sensorpool.model.values import DueGroup, Key, Settled
from sensorpool.poke.poker import Poker
from tests.airflow.running import PokesLog, as_runner, context_of, in_dag


class Opaque:
    """What JSON cannot say."""


class Takes(BaseSensorOperator):
    """Takes a message from a queue: no two pokes find the same."""

    inbox: ClassVar[PokesLog] = PokesLog()  # by its name it is no state of the class
    take: ClassVar[Callable[["Takes", str], Any]]

    def __init__(self, *, queue: str = "orders", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.queue = queue
        self.messages: list[Any] = []

    def poke(self, context: Any) -> Any:
        """Find nothing where the queue is empty."""
        return Takes.take(self, self.inbox.pop()) if self.inbox else False


class Follows(Takes):
    """Works afterwards with what its last poke has left."""

    told: ClassVar[PokesLog] = PokesLog()

    def post_execute(self, context: Any, result: Any = None) -> None:
        """Note it."""
        self.told.append((self.messages, result))


@pytest.fixture(autouse=True)
def patched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A pool that takes each sensor that is registered; the classes are patched."""
    registered: list[Any] = []

    def register(registration: Any) -> Any:
        registered.append(registration)
        return SimpleNamespace(id=1, opened=True)

    settings = Settings.load(sensors_enabled=f"{__name__}.Takes,{__name__}.Follows")
    database = SimpleNamespace(read=lambda *_: [Waiting.row])
    monkeypatch.setattr(deferral, "pool", lambda: SimpleNamespace(settings=settings, database=database))
    monkeypatch.setattr(deferral, "register", register)
    monkeypatch.setattr(deferral, "airflow_settings", lambda: AirflowSettings(enabled=True))
    monkeypatch.setattr(patch, "is_enabled", lambda: True)
    monkeypatch.setattr(Takes, "inbox", PokesLog())
    monkeypatch.setattr(Follows, "told", PokesLog())
    patch.install()
    return registered


class Waiting:
    """A task that has left its slot, and its group in the pool."""

    row: ClassVar[Settled]  # of the last one that landed with a value

    def __init__(self, registered: list[Any], cls: Any = Takes, **options: Any) -> None:
        self.options = {"poke_interval": 0.01, "timeout": 1.0, **options}
        self.cls = cls
        sensor = in_dag(cls, **self.options)
        with pytest.raises(TaskDeferred) as left:
            as_runner(sensor, "execute", context_of(sensor))
        self.left = left.value.kwargs
        registration = registered[-1]
        cache = Poker(Settings.load(sensors_enabled=registration.sensor)).cache
        group = DueGroup(1, 1, 7, 1, 60_000, 0, 0, None)
        self._kept = cache.keep(group, registration.sensor, json.dumps(dict(registration.poke_context)))
        self.event: dict[str, Any] = {}

    def poke(self) -> Outcome:
        """Poke in the pool."""
        report = self._kept.poke()[0]
        ending = {Outcome.LANDED: ("success", "landed"), Outcome.HAND_BACK: ("cancelled", "handed_back")}
        state = ending.get(report.outcome, ("sensing", ""))
        self.event = {"state": state[0], "ending": state[1], "reason": report.reason}
        if report.xcom_value is not None:
            self.land(report.xcom_value)
        return report.outcome

    def land(self, value: str) -> None:
        """Have the pool keep a value, and its event name it."""
        key = Key("dag", "wait", "run1")
        Waiting.row = Settled(1, key, State.SUCCESS, Ending.LANDED, None, value, 1, None)
        self.event = {"value_of": 1}

    def resume(self) -> tuple[Any, Any]:
        """Resume on a worker; return the sensor and what its execute returns."""
        sensor = in_dag(self.cls, **self.options)
        kwargs = {**self.left, "event": self.event}
        result = as_runner(sensor, "resume_execution", patch.RESUME, kwargs, context_of(sensor))
        sensor.post_execute({}, result)
        return sensor, result


def takes(monkeypatch: pytest.MonkeyPatch, take: Callable[[Any, str], Any]) -> None:
    monkeypatch.setattr(Takes, "take", staticmethod(take), raising=False)


def keeps(sensor: Any, message: str) -> bool:
    sensor.messages.append(message)
    return True


def replaces(sensor: Any, message: str) -> bool:
    sensor.messages = [message]
    sensor.taken_on = dt.date(2026, 11, 22)
    return True


def keeps_what_json_cannot_say(sensor: Any, message: str) -> bool:
    sensor.messages = [message]
    sensor.opaque = Opaque()
    return True


@pytest.mark.parametrize("mode", ["poke", "reschedule"])
@pytest.mark.parametrize("take", [keeps, replaces, keeps_what_json_cannot_say])
def test_one_that_keeps_what_it_took_lands(
    patched: list[Any], monkeypatch: pytest.MonkeyPatch, take: Any, mode: str
) -> None:
    takes(monkeypatch, take)
    task = Waiting(patched, mode=mode)
    assert task.poke() is Outcome.NOT_LANDED
    Takes.inbox.append("first")
    assert task.poke() is Outcome.LANDED
    sensor, result = task.resume()
    assert result is None
    assert sensor.messages == ["first"]


@pytest.mark.parametrize("take", [keeps, replaces])
def test_what_comes_afterwards_finds_what_the_poke_has_left(
    patched: list[Any], monkeypatch: pytest.MonkeyPatch, take: Any
) -> None:
    takes(monkeypatch, take)
    task = Waiting(patched, Follows)
    Takes.inbox.append("first")
    assert task.poke() is Outcome.LANDED
    task.resume()
    assert Follows.told == [(["first"], None)]


def test_a_callback_finds_it_too(patched: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    takes(monkeypatch, replaces)
    task = Waiting(patched, on_success_callback=print)
    Takes.inbox.append("first")
    assert task.poke() is Outcome.LANDED
    sensor, _ = task.resume()
    assert (sensor.messages, sensor.taken_on) == (["first"], dt.date(2026, 11, 22))


@pytest.mark.parametrize(
    "value",
    [
        *([{"of": "first"}], Decimal("1.5"), frozenset({1, 2}), {"a": (1, {2})}),
        dt.datetime(2026, 11, 22, tzinfo=ZoneInfo("Europe/Berlin")),
    ],
    ids=repr,
)
@pytest.mark.parametrize("also_keeps", [False, True])
def test_a_value_comes_along(patched: list[Any], monkeypatch: pytest.MonkeyPatch, value: Any, also_keeps: bool) -> None:
    def take(sensor: Any, message: str) -> Any:
        if also_keeps:
            sensor.messages.append(message)
        return PokeReturnValue(True, value)

    takes(monkeypatch, take)
    task = Waiting(patched)
    Takes.inbox.append("first")
    assert task.poke() is Outcome.LANDED
    sensor, result = task.resume()
    assert (type(result), result) == (type(value), value)
    assert sensor.messages == ["first"] * also_keeps


LOST = [Opaque(), "x" * 300_000, float("nan")]


@pytest.mark.parametrize("value", LOST, ids=["object", "long", "nan"])
def test_a_value_that_cannot_come_along_is_found_by_another_poke(
    patched: list[Any], monkeypatch: pytest.MonkeyPatch, value: Any
) -> None:
    """As it is where a poke may be repeated."""
    takes(monkeypatch, lambda *_: PokeReturnValue(True, value))
    task = Waiting(patched)
    Takes.inbox.extend(["first", "first"])
    assert task.poke() is Outcome.LANDED
    assert task.resume()[1] is value


@pytest.mark.parametrize("mode", ["poke", "reschedule"])
@pytest.mark.parametrize("value", LOST, ids=["object", "long", "nan"])
def test_a_value_that_no_poke_finds_again_fails_its_try_at_once(
    patched: list[Any], monkeypatch: pytest.MonkeyPatch, value: Any, mode: str
) -> None:
    takes(monkeypatch, lambda *_: PokeReturnValue(True, value))
    task = Waiting(patched, mode=mode, timeout=600)
    Takes.inbox.append("first")
    assert task.poke() is Outcome.LANDED
    with pytest.raises(AirflowException, match="has landed in the pool, and finds nothing any more: its XCom") as error:
        task.resume()
    assert not isinstance(error.value, AirflowRescheduleException)


def test_a_value_that_is_not_asked_for_is_not_missed(patched: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    takes(monkeypatch, lambda *_: PokeReturnValue(True, Opaque()))
    task = Waiting(patched, do_xcom_push=False)
    Takes.inbox.append("first")
    assert task.poke() is Outcome.LANDED
    assert task.resume()[1] is None


def test_an_attribute_that_is_worked_with_and_cannot_come_along(
    patched: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    takes(monkeypatch, keeps_what_json_cannot_say)
    task = Waiting(patched, Follows)
    Takes.inbox.extend(["first", "first"])
    assert task.poke() is Outcome.LANDED
    sensor, _ = task.resume()
    assert isinstance(sensor.opaque, Opaque)
    with pytest.raises(AirflowException, match="finds nothing any more: its attribute opaque"):
        task.resume()


def test_soft_fail_skips_nothing_for_want_of_a_value(patched: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    takes(monkeypatch, lambda *_: PokeReturnValue(True, Opaque()))
    task = Waiting(patched, soft_fail=True)
    Takes.inbox.append("first")
    assert task.poke() is Outcome.LANDED
    with pytest.raises(AirflowException, match="finds nothing any more") as error:
        task.resume()
    assert type(error.value) is AirflowException


def test_a_value_that_the_database_does_not_give(patched: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The trigger has seen the landing: the task does not wait for another one."""

    def read(*_: Any) -> Any:
        raise Unreachable("it is away")

    takes(monkeypatch, keeps)
    task = Waiting(patched)
    monkeypatch.setattr(deferral, "pool", lambda: SimpleNamespace(database=SimpleNamespace(read=read)))
    monkeypatch.setattr(conclude, "PAUSE", 0.0)
    task.event = {"value_of": 1}
    with pytest.raises(AirflowException, match="its XCom value cannot be read"):
        task.resume()
    Takes.inbox.append("first")
    assert task.resume()[0].messages == ["first"]


def test_one_that_changes_itself_before_it_lands_goes_back_before_it_takes_anything(
    patched: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answers may build on earlier pokes; as long as it finds nothing, nothing is lost by that."""
    takes(monkeypatch, lambda sensor, message: keeps(sensor, message) and message == "last")
    task = Waiting(patched)
    assert task.poke() is Outcome.NOT_LANDED
    Takes.inbox.extend(["last", "first"])
    assert task.poke() is Outcome.HAND_BACK
    assert "messages" in str(task.event["reason"])


def test_one_that_moves_a_file_and_then_asks_for_its_task_moves_it_on_its_worker(
    patched: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def take(sensor: Any, message: str) -> bool:
        (tmp_path / message).rename(tmp_path / "done")
        sensor.messages.append(sensor.task_id)
        return True

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    takes(monkeypatch, take)
    task = Waiting(patched)
    Takes.inbox.extend(["orders.csv", "orders.csv"])
    (tmp_path / "orders.csv").touch()
    assert task.poke() is Outcome.HAND_BACK
    assert (tmp_path / "orders.csv").exists()
    sensor, _ = task.resume()
    assert sensor.messages == ["wait"]
    assert (tmp_path / "done").exists()


@pytest.mark.parametrize("name", ["poke", "log", "task_id", "on_success_callback", "timeout"])
def test_no_row_of_the_database_puts_on_a_task_what_every_sensor_has(
    patched: list[Any], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    takes(monkeypatch, keeps)
    task = Waiting(patched)
    value = {"__type__": "landing", "value": 1, "attributes": {name: 7, "messages": ["first"]}}
    task.land(json.dumps(value))
    sensor, result = task.resume()
    assert getattr(sensor, name) != 7
    assert (sensor.messages, result) == (["first"], 1)


@pytest.mark.parametrize("value", [float("nan"), [float("nan")], {"a": float("nan")}], ids=repr)
def test_a_value_that_is_unequal_to_itself_is_no_secret(value: Any) -> None:
    assert not secrets_masker.holds_secret(value)
    assert landing_of(value, in_dag(Takes), ()).lost == {
        "": "cannot be carried: it would come back from JSON as another one"
    }
