"""Sensors that look poolable and are not: they would answer differently in the pool."""

import datetime as dt
import sys
from collections import OrderedDict, defaultdict
from enum import Enum, IntEnum, StrEnum
from pathlib import Path, PurePosixPath
from typing import Any
from zoneinfo import ZoneInfo

import pytest

pytest.importorskip("airflow.providers.google")

import pendulum
from airflow.providers.amazon.aws.sensors.s3 import S3KeysUnchangedSensor
from airflow.providers.amazon.aws.sensors.sagemaker_unified_studio_notebook import SageMakerUnifiedStudioNotebookSensor
from airflow.providers.google.cloud.sensors.gcs import GCSObjectsWithPrefixExistenceSensor
from airflow.providers.redis.sensors.redis_pub_sub import RedisPubSubSensor
from airflow.providers.standard.sensors import date_time
from airflow.providers.standard.sensors.bash import BashSensor
from airflow.providers.standard.sensors.filesystem import FileSensor
from airflow.sdk import BaseSensorOperator

from sensorpool import Settings
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof import known_sensors
from sensorpool.airflow.proof.arguments import rebuild
from sensorpool.airflow.task import deferral, poolable
from sensorpool.airflow.task.first_poke import FirstPoke
from sensorpool.airflow.task.poolable import Condition
from tests.airflow.running import Flag, context_of, in_dag


class Takes(BaseSensorOperator):
    """Takes anything."""

    def __init__(self, *, value: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.value = value


class Colour(str, Enum):  # noqa: UP042  # its str() is not its value's
    RED = "red"


class Shade(StrEnum):
    RED = "red"


class Number(IntEnum):
    ONE = 1


MOMENT = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    "value",
    [
        Colour.RED,
        Shade.RED,
        Number.ONE,
        [Colour.RED],
        {"a": {Colour.RED}},
        {Colour.RED: 1},
        (1, {"b": Number.ONE}),
        Path("/data"),
        frozenset("a"),
        defaultdict(list),
        OrderedDict(a=1),
        pendulum.datetime(2026, 3, 1),
        pendulum.duration(days=1),
        MOMENT.astimezone(ZoneInfo("Europe/Berlin")),
        dt.time(1, tzinfo=ZoneInfo("Europe/Berlin")),
    ],
    ids=repr,
)
def test_what_json_gives_back_as_another_type_is_another_argument(value: Any) -> None:
    with pytest.raises(NotPoolable, match="its attribute value is another one"):
        rebuild.poke_context_of(in_dag(Takes, value=value))


@pytest.mark.parametrize(
    "value",
    [
        "x",
        1.5,
        None,
        [1, "a", True],
        (1, (2, None)),
        {"a": {"b": [dt.date(2026, 1, 1)]}},
        {"a", "b"},
        PurePosixPath("/data"),
        MOMENT,
        MOMENT.astimezone(ZoneInfo("UTC")),
        MOMENT.replace(tzinfo=None),
        MOMENT.astimezone(dt.timezone(dt.timedelta(hours=9))),
        dt.time(1),
        dt.timedelta(days=1),
    ],
    ids=lambda value: type(value).__name__,  # the repr of a set has no fixed order
)
def test_what_json_gives_back_is_the_same_argument(value: Any) -> None:
    context = rebuild.poke_context_of(in_dag(Takes, value=value))
    assert context.keys() == {"value", "doc"}
    assert context["doc"] == ""  # nothing but its argument


def condition_of(sensor: Any) -> Condition:
    path = f"{type(sensor).__module__}.{type(sensor).__qualname__}"
    return poolable.condition_of(sensor, context_of(sensor), Settings.load(sensors_enabled=path), AirflowSettings())


class OurUnchanged(S3KeysUnchangedSensor):
    """Derived from one whose answer builds on earlier pokes."""


class OurPrefix(GCSObjectsWithPrefixExistenceSensor):
    """Derived from one that returns what its last poke left."""


class OurSubscription(RedisPubSubSensor):
    """Derived from one that keeps a subscription."""


@pytest.mark.parametrize(
    ("cls", "arguments", "why"),
    [
        (OurUnchanged, {"bucket_name": "b", "prefix": "p"}, "builds on earlier pokes"),
        (OurPrefix, {"bucket": "b", "prefix": "p"}, "what its last poke left"),
        (OurSubscription, {"channels": "c", "redis_conn_id": "r"}, "builds on earlier pokes"),
        (BashSensor, {"bash_command": 'test -e "/done/$AIRFLOW_CTX_DAG_RUN_ID"'}, "environment of its worker"),
    ],
)
def test_what_is_known_of_a_class_holds_for_those_derived_from_it(cls: Any, arguments: Any, why: str) -> None:
    with pytest.raises(NotPoolable, match=why):
        condition_of(in_dag(cls, **arguments))


class OurNotebook(SageMakerUnifiedStudioNotebookSensor):
    """Derived from one that works on when it has landed."""


class Unread(FileSensor):
    """Stands for a sensor of a provider that was not reviewed, with code after the wait."""

    def execute(self, context: Any) -> Any:
        return super().execute(context)


def test_what_works_on_afterwards_never_ends_without_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Unread, "__module__", "airflow.providers.unread.sensors.unread")
    assert known_sensors.works_afterwards(OurNotebook)
    assert not known_sensors.works_afterwards(FileSensor)
    assert not poolable.ends_directly(in_dag(Unread, filepath="x"), {})
    assert not known_sensors.is_stateless(Unread)
    assert known_sensors.is_stateless(FileSensor)


class DateTimeSensor(date_time.DateTimeSensor):
    """Is called as Airflow's, and pokes in its own way."""

    def poke(self, context: Any) -> bool:
        return False


def test_a_name_is_not_a_class() -> None:
    with pytest.raises(NotPoolable, match="DateTimeSensor is not known here"):
        condition_of(in_dag(DateTimeSensor, target_time="2020-01-01T00:00:00+00:00"))


@pytest.mark.parametrize(
    ("look", "found"),
    [
        (bool, True),
        (len, 1),
        (lambda context: context.copy(), {"ds": "x"}),
        (lambda context: context | {"a": 1}, {"ds": "x", "a": 1}),
        (lambda context: {"a": 1} | context, {"ds": "x", "a": 1}),
        (lambda context: context.setdefault("a", 1), 1),
        (lambda context: context.pop("ds"), "x"),
    ],
)
def test_the_first_poke_sees_the_whole_context_and_that_is_noted(
    look: Any, found: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    kept: list[str] = []
    monkeypatch.setattr(Flag, "answers", {"x": lambda _, context: seen.append(look(context))})
    monkeypatch.setattr(deferral, "report_native", lambda _, error: kept.append(str(error)))

    def native(sensor: Any, context: Any) -> Any:
        sensor.poke(context)
        assert sensor._get_next_poke_interval(None, lambda: 0.0, 1) == 60.0
        assert sensor.poke.__func__ is Flag.poke

    first = FirstPoke(in_dag(Flag, flag="x"), native, 10.0, list)
    first.poke({"ds": "x"})
    assert seen == [found]
    assert first.ended
    assert "from the template context" in kept[0]


def test_a_poke_that_a_dag_file_puts_in_its_place_is_not_that_of_the_class() -> None:
    sensor = in_dag(Takes, value=1)
    sensor.poke = lambda context: True
    with pytest.raises(NotPoolable, match="the DAG file has replaced it"):
        condition_of(sensor)


class Exits(BaseSensorOperator):
    """Takes one name only."""

    def __init__(self, *, task_id: str, **kwargs: Any) -> None:
        if task_id != "wait":
            sys.exit("a task of this class is called wait")
        super().__init__(task_id=task_id, **kwargs)


def test_a_constructor_that_ends_its_process_ends_none() -> None:
    """It was content with the task's own name; neither a DAG file's parse nor a task may end by another one."""
    with pytest.raises(NotPoolable, match="a task of this class is called wait"):
        rebuild.poke_context_of(in_dag(Exits))
