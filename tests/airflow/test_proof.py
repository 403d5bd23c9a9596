"""What looks poolable and is not: sensors that would answer differently in the pool."""

import datetime as dt
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
from sensorpool.airflow import known, own_names, poolable, rebuild
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.first_poke import FirstPoke
from sensorpool.airflow.refusal import NotPoolable
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
    ids=repr,
)
def test_what_json_gives_back_is_the_same_argument(value: Any) -> None:
    assert rebuild.poke_context_of(in_dag(Takes, value=value)).keys() == {"value"}


def condition_of(sensor: Any) -> poolable.Condition:
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
    """Stands for a provider that nobody has read, and which works on."""

    def execute(self, context: Any) -> Any:
        return super().execute(context)


def test_what_works_on_afterwards_never_ends_without_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Unread, "__module__", "airflow.providers.unread.sensors.unread")
    assert known.works_afterwards(OurNotebook)
    assert not known.works_afterwards(FileSensor)
    assert not poolable.ends_directly(in_dag(Unread, filepath="x"), {})
    assert not known.vouches_for_itself(Unread)
    assert known.vouches_for_itself(FileSensor)


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
    monkeypatch.setattr(Flag, "answers", {"x": lambda _, context: seen.append(look(context))})

    def native(sensor: Any, context: Any) -> Any:
        sensor.poke(context)
        sensor._get_next_poke_interval(None, lambda: 0.0, 1)

    first = FirstPoke(in_dag(Flag, flag="x"), native)
    first.poke({"ds": "x"})
    assert seen == [found]
    with pytest.raises(NotPoolable, match="from the template context"):
        first.check(limit=10.0)


class Plain(BaseSensorOperator):
    """Asks for nothing but its arguments."""

    def __init__(self, *, root: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.root = root

    def poke(self, context: Any) -> bool:
        """Look."""
        self.log.info("looking at %s", self.root)
        return self._exists(self.root)

    def _exists(self, path: str) -> bool:
        return any(each == path for each in ())

    def never(self) -> str:
        """No part of a poke."""
        return self.task_id


class ByName(Plain):
    """Looks for a file with its task's name."""

    def _exists(self, path: str) -> bool:
        return all(self.wanted == path for _ in range(1))

    @property
    def wanted(self) -> str:
        """What it looks for."""
        return f"{self.task_id}.done"


class ByParams(Plain):
    """Asks for the params of its task, by way of its base."""

    def poke(self, context: Any) -> bool:
        """Look."""
        return super().poke(context) and all(name in self.params for name in ("x",))


class AsItsArgumentsSay(ByName):
    """Says itself what makes it another one."""

    poke_context_fields = ("root",)


@pytest.mark.parametrize(
    ("cls", "asked"), [(Plain, None), (ByName, "task_id"), (ByParams, "params"), (AsItsArgumentsSay, "task_id")]
)
def test_what_only_a_task_has_is_no_argument(cls: Any, asked: str | None) -> None:
    """Two tasks that differ in nothing else would share a poke, and get each other's answer."""
    assert own_names.read_by(cls) == asked
    first = FirstPoke(in_dag(cls, root="/nowhere"), lambda *_: None)
    if asked is None or cls is AsItsArgumentsSay:
        first.check(10.0)
    else:
        with pytest.raises(NotPoolable, match=f"asks for its {asked}, which only its task has"):
            first.check(10.0)
