"""A task in ``mode="poke"`` that continues natively waits with the attributes that it started with."""

import datetime as dt
import inspect
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import pendulum
import pytest

pytest.importorskip("airflow.providers.standard")

from airflow._shared.secrets_masker import mask_secret as mask_in_core
from airflow._shared.secrets_masker import reset_secrets_masker as reset_core_masker
from airflow.providers.common.sql.sensors.sql import SqlSensor
from airflow.providers.standard.sensors.time import TimeSensor
from airflow.sdk import DAG, BaseHook, BaseOperator
from airflow.sdk._shared.secrets_masker import mask_secret, reset_secrets_masker
from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool import Settings
from sensorpool.airflow.compat import features
from sensorpool.airflow.compat.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSkipException,
    TaskDeferred,
)
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.proof.state.equality import is_equal
from sensorpool.airflow.result import InstanceResult
from sensorpool.airflow.task import deferral, patch, resumable_job, saved_attributes, sensor_task, triggered_run
from sensorpool.model.states import Ending, State
from tests.airflow.needs import needs
from tests.airflow.running import PokesLog, as_runner, context_of, in_dag
from tests.airflow.versions import ResumableJobMixin, deserialize, serialize

DAY = dt.date(2026, 11, 2)
SECRET = "Canary4Secret"


class Waits(BaseSensorOperator):
    """Takes an argument and what it finds elsewhere, and notes what it is poked with."""

    template_fields = ("path",)
    elsewhere: ClassVar[Callable[[], Any]] = staticmethod(lambda: None)
    poked: ClassVar[PokesLog] = PokesLog()
    region: str = "one"

    def __init__(self, *, path: str = "p", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.path = path
        self.found = type(self).elsewhere()

    def poke(self, context: Any) -> bool:
        """Land where it is poked natively, once it has resumed."""
        self.poked.append((self.path, self.found))
        return len(self.poked) > 1


class Declared(Waits):
    """Says itself what its condition is."""

    poke_context_fields = ("path",)


@dataclass
class Window:
    """Data that JSON cannot say."""

    since: Any
    log: Any = None


class Colour(Enum):
    RED = 1
    BLUE = 2


class Hook(BaseHook):
    """Asks a backend."""

    def __init__(self, host: str) -> None:
        self.host = host


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool that takes each registration; the classes are patched."""
    ours = ",".join(f"{__name__}.{cls.__qualname__}" for cls in (Waits, Declared, Submits))
    settings = Settings.load(sensors_enabled=f"{ours},{TimeSensor.__module__}.TimeSensor")
    monkeypatch.setattr(deferral, "pool", lambda: SimpleNamespace(settings=settings))
    monkeypatch.setattr(deferral, "register", lambda _: SimpleNamespace(id=1, opened=True))
    monkeypatch.setattr(deferral, "airflow_settings", lambda: AirflowSettings(enabled=True))
    monkeypatch.setattr(patch, "is_enabled", lambda: True)
    monkeypatch.setattr(Waits, "poked", PokesLog())
    patch.install()


@pytest.fixture
def maskers() -> Iterator[None]:
    yield
    reset_secrets_masker()
    reset_core_masker()


def found(value: Any) -> None:
    """Have constructors find something from now on."""
    Waits.elsewhere = staticmethod(lambda: value)


def leaves(sensor: Any) -> dict[str, Any]:
    """Return what Airflow keeps for a task that leaves its slot."""
    with pytest.raises(TaskDeferred) as deferred:
        as_runner(sensor, "execute", context_of(sensor))
    kept: dict[str, Any] = deserialize(json.loads(json.dumps(serialize(deferred.value.kwargs))))
    return kept


def resumes(sensor: Any, kept: dict[str, Any], ending: Ending = Ending.HANDED_BACK) -> Any:
    state = State.SUCCESS if ending is Ending.LANDED else State.CANCELLED
    event = InstanceResult(state, ending, "because").as_payload()
    return as_runner(sensor, "resume_execution", patch.RESUME, {"event": event, **kept}, context_of(sensor))


VALUES = {
    "a date": (DAY, DAY + dt.timedelta(days=1)),
    "a time": (dt.datetime(2026, 11, 2, tzinfo=dt.UTC), dt.datetime(2026, 11, 3, tzinfo=dt.UTC)),
    "a time of a zone": (
        dt.datetime(2026, 11, 2, tzinfo=ZoneInfo("Europe/Berlin")),
        dt.datetime(2026, 11, 2, tzinfo=ZoneInfo("Asia/Tokyo")),
    ),
    "an hour that comes twice": (
        dt.datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
        dt.datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")),
    ),
    "pendulum's time": (pendulum.datetime(2026, 11, 2, tz="Europe/Berlin"), pendulum.datetime(2026, 11, 3)),
    "pendulum's date": (pendulum.date(2026, 11, 2), pendulum.date(2026, 11, 3)),
    "a Variable": ("s3://a", "s3://b"),
    "a number": (1, 2),
    "a number of another kind": (1, 1.0),
    "a span": (dt.timedelta(hours=1), dt.timedelta(hours=2)),
    "a path": (PurePosixPath("a"), PurePosixPath("b")),
    "none": (None, "x"),
    "one that is gone": ("x", None),
    "a list": ([1, "a"], [1, "b"]),
    "a tuple": (("a",), ("b",)),
    "a set": ({"a", "b"}, {"b"}),
    "a mapping": ({"b": [DAY], "a": 1}, {"a": 1, "b": [DAY]}),
}


@pytest.mark.parametrize(("old", "new"), VALUES.values(), ids=VALUES)
def test_what_its_constructor_found_elsewhere(pool: None, old: Any, new: Any) -> None:
    found(old)
    kept = leaves(in_dag(Waits))
    found(new)
    sensor = in_dag(Waits)
    resumes(sensor, kept)
    assert len(Waits.poked) == 2
    assert is_equal(Waits.poked[1], ("p", old))


def test_what_its_dag_file_and_its_templates_said(pool: None) -> None:
    found(None)
    sensor = in_dag(Waits, path=f"/data/{DAY}")
    sensor.path = "/data/rendered"
    kept = leaves(sensor)
    resumes(in_dag(Waits, path=f"/data/{DAY + dt.timedelta(days=1)}"), kept)
    assert Waits.poked[1] == ("/data/rendered", None)


def test_its_log_says_so(pool: None, capsys: pytest.CaptureFixture[str]) -> None:
    found(DAY)
    kept = leaves(in_dag(Waits))
    resumes(in_dag(Waits), kept)
    assert "built here" not in capsys.readouterr().out
    found(DAY + dt.timedelta(days=1))
    resumes(in_dag(Waits, path="q"), kept)
    line = "sensorpool: found, path differs in this process; the task goes on with the value that it started with"
    assert capsys.readouterr().out.count(line) == 1


def test_a_mapped_one(pool: None) -> None:
    found(DAY)

    def built() -> Any:
        with DAG("dag", schedule=None):
            return Waits.partial(task_id="mapped").expand(path=["a", "b"]).unmap({"path": "b"})

    kept = leaves(built())
    found(DAY + dt.timedelta(days=1))
    resumes(built(), kept)
    assert Waits.poked[1] == ("b", DAY)


@pytest.mark.parametrize("cls", [Waits, Declared])
def test_a_constant_of_its_class(pool: None, monkeypatch: pytest.MonkeyPatch, cls: Any) -> None:
    found(DAY)
    kept = leaves(in_dag(cls))
    monkeypatch.setattr(Waits, "region", "two")
    sensor = in_dag(cls)
    resumes(sensor, kept)
    assert sensor.region == "one"
    monkeypatch.setattr(Waits, "region", property(lambda _: "three"))
    sensor = in_dag(cls)
    resumes(sensor, kept)
    assert sensor.region == "three"
    assert "region" not in vars(sensor), "its code is another one"


def test_in_reschedule_mode_it_is_built_anew_as_natively(pool: None, monkeypatch: pytest.MonkeyPatch) -> None:
    found(DAY)
    kept = leaves(in_dag(Waits, mode="reschedule"))
    assert kept.keys() == {"started", "condition", "limits"}
    monkeypatch.setattr(Waits, "poked", PokesLog())
    in_poke_mode = leaves(in_dag(Waits))
    found("new")
    for told in (kept, in_poke_mode):  # a DAG file may change the mode, too
        monkeypatch.setattr(Waits, "poked", PokesLog())
        with pytest.raises(AirflowRescheduleException):
            resumes(in_dag(Waits, mode="reschedule"), told)
        assert Waits.poked == [("p", "new")]


def test_a_sensor_of_a_day(pool: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """TimeSensor works out today's moment when it is built."""
    noon = dt.time(23, 59, 59, 999_999)
    kept = leaves(in_dag(TimeSensor, target_time=noon))
    was = in_dag(TimeSensor, target_time=noon).target_datetime
    tomorrow = in_dag(TimeSensor, target_time=noon)
    tomorrow.target_datetime += dt.timedelta(days=1)
    assert saved_attributes.restore(tomorrow, kept["as_started"]) is None
    assert is_equal(tomorrow.target_datetime, was)


# what cannot be put back

OTHERS = {
    "data of a class": (Window(DAY), Window(DAY + dt.timedelta(days=1))),
    "among it a logger": (Window(DAY, re), Window(DAY + dt.timedelta(days=1), re)),
    "a choice": (Colour.RED, Colour.BLUE),
    "bytes": (b"a", b"b"),
    "a pattern": (re.compile("a"), re.compile("b")),
    "a pair with names": ([Window("a")], [Window("b")]),
    "too large": ("a" * 5_000, "b" * 5_000),
}


@pytest.mark.parametrize(
    ("options", "raised"),
    [({}, AirflowException), ({"soft_fail": True}, AirflowException), ({"never_fail": True}, AirflowSkipException)],
)
@pytest.mark.parametrize(("old", "new"), OTHERS.values(), ids=OTHERS)
def test_what_cannot_be_put_back_ends_the_try(
    pool: None, old: Any, new: Any, options: dict[str, Any], raised: type[Exception]
) -> None:
    if isinstance(old, Window) and old.log is re:
        old.log, new.log = in_dag(Waits).log, in_dag(Waits).log
    found(old)
    kept = leaves(in_dag(Waits, **options))
    found(new)
    with pytest.raises(AirflowException) as error:
        resumes(in_dag(Waits, **options), kept)
    assert type(error.value) is raised, "it retries"
    if raised is AirflowException:
        assert "its attribute found is another one than when it started" in str(error.value)
    assert len(Waits.poked) == 1
    assert resumes(in_dag(Waits, **options), kept, Ending.LANDED) is None, "what the pool saw counts"
    found(old)
    resumes(in_dag(Waits, **options), kept)
    assert len(Waits.poked) == 2


NO_DATA = {
    "a hook": (Hook("a"), Hook("b")),
    "a function": (len, max),
    "an object of hooks": (Window(DAY, Hook("a")), Window(DAY, Hook("b"))),
    "a machine": (SimpleNamespace(run=len, host="a"), SimpleNamespace(run=len, host="b")),
}


@pytest.mark.parametrize(("old", "new"), NO_DATA.values(), ids=NO_DATA)
def test_what_it_asks_by_is_that_of_the_moment(pool: None, old: Any, new: Any) -> None:
    found(old)
    kept = leaves(in_dag(Waits))
    found(new)
    resumes(in_dag(Waits), kept)
    assert Waits.poked[1][1] is new


def test_a_class_that_names_its_fields_goes_by_them(pool: None) -> None:
    found(Window(DAY))
    kept = leaves(in_dag(Declared))
    found(Window("new"))
    resumes(in_dag(Declared, path="q"), kept)
    assert Waits.poked[1][0] == "p"


def test_a_long_argument_of_a_provider(pool: None) -> None:
    told = saved_attributes.save(in_dag(SqlSensor, conn_id="c", sql="SELECT 1" + " " * 5_000))["as_started"]
    same_sql, other = (in_dag(SqlSensor, conn_id="c", sql=f"SELECT {n}" + " " * 5_000) for n in (1, 2))
    assert saved_attributes.restore(same_sql, told) is None
    assert "its attribute sql is another one" in str(saved_attributes.restore(other, told))
    vars(same_sql)["worked_out"] = Window(1)
    assert "worked_out" not in saved_attributes.save(same_sql)["as_started"]


# what Airflow keeps

SECRETS = {
    "of the Task SDK": SECRET,
    "in a text": f"host=h password={SECRET}",
    "deep down": [[[[[[[[{"a": [SECRET]}]]]]]]]],
    "a name": {SECRET: 1},
    "under a name": {"api_key": "Canary4Named"},
    "in a URL": "postgres://us:Canary4Url@h/db",
    "of an object": Window(SECRET),
    "of core": "Canary4Core",
    "escaped": f'"{SECRET}"\n\\',
}


@pytest.mark.parametrize("value", SECRETS.values(), ids=SECRETS)
def test_no_secret_is_kept_and_a_new_one_is_no_other_condition(pool: None, maskers: None, value: Any) -> None:
    def known(secret: str) -> Any:
        mask_secret(secret)
        mask_in_core("Canary4Core" if secret == SECRET else "Another4Core")
        if isinstance(value, Window):
            return Window(secret)
        return json.loads(json.dumps(value).replace(SECRET, secret).replace("Canary4", secret.removesuffix("Secret")))

    found(known(SECRET))
    kept = leaves(in_dag(Waits))
    assert "Canary" not in json.dumps(kept)
    assert '"found"' not in json.dumps(json.loads(kept["as_started"])["values"])
    new = known("Another4Secret")
    found(new)
    resumes(in_dag(Waits), kept)
    assert Waits.poked[1][1] == new


def test_what_stands_beside_a_secret_counts(pool: None, maskers: None) -> None:
    found("postgres://us:Canary4Url@h/db1")
    kept = leaves(in_dag(Waits))
    found("postgres://us:Another4@h/db2")
    with pytest.raises(AirflowException, match="its attribute found"):
        resumes(in_dag(Waits), kept)


def test_an_attribute_with_the_name_of_a_secret(pool: None) -> None:
    sensor = in_dag(Waits)
    vars(sensor)["auth_token"] = "Canary"
    vars(sensor)["password"] = ["Canary"]
    assert "Canary" not in saved_attributes.save(sensor)["as_started"]


def test_it_is_small(pool: None) -> None:
    sensor = in_dag(Waits)
    for number in range(500):
        vars(sensor)[f"a{number}"] = "x" * (number * 40)
    told = saved_attributes.save(sensor)["as_started"]
    assert len(told) <= 4_096
    values = json.loads(told)["values"]
    assert values["a10"] == "x" * 400
    assert values["path"] == "p"


def test_an_odd_object_stops_nobody(pool: None) -> None:
    class Odd:
        @property
        def __dict__(self) -> Any:
            raise RuntimeError("no")

        def __eq__(self, _: object) -> bool:
            raise RuntimeError("no")

        __hash__ = None  # type: ignore[assignment]

        def __repr__(self) -> str:
            raise RuntimeError("no")

    sensor = in_dag(Waits)
    vars(sensor)["odd"] = Odd()
    told = saved_attributes.save(sensor)["as_started"]
    assert "odd" not in told
    vars(sensor)["odd"] = 1
    told = saved_attributes.save(sensor)["as_started"]
    vars(sensor)["odd"] = Odd()
    assert saved_attributes.restore(sensor, told) is None
    assert sensor.odd == 1


# versions


def test_what_the_version_before_has_left(pool: None) -> None:
    found(DAY)
    kept = leaves(in_dag(Waits))
    del kept["as_started"]
    found("new")
    resumes(in_dag(Waits), kept)
    assert Waits.poked[1] == ("p", "new")


@pytest.mark.parametrize(
    "told", [None, "", "{", "[]", 7, "{}", '{"values": 3, "digests": {}}', '{"values": {"found": {"__type__": "x"}}}']
)
def test_what_another_version_has_left(pool: None, told: Any) -> None:
    found("new")
    leaves(in_dag(Waits))
    resumes(in_dag(Waits), {"as_started": told})
    assert Waits.poked[1] == ("p", "new")


@pytest.mark.parametrize("part", [sensor_task, resumable_job, triggered_run])
def test_each_part_takes_what_it_does_not_know(part: Any) -> None:
    kinds = {one.kind for one in inspect.signature(part.resume).parameters.values()}
    assert inspect.Parameter.VAR_KEYWORD in kinds


# operators that wait


class Submits(ResumableJobMixin, BaseOperator):
    """Waits for a job on a cluster that is named elsewhere."""

    cluster: ClassVar[Any] = "a"
    asked: ClassVar[PokesLog] = PokesLog()

    def __init__(self, *, name: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.name = name
        self.where = self.cluster
        self.titled = f"job of {self.task_id}"
        self.count = 0

    def execute(self, context: Any) -> Any:
        """Submit, and wait."""
        self.count += 1
        return self.execute_resumable(context)

    def submit_job(self, context: Any) -> str:
        """Submit it."""
        return "7"

    def get_job_status(self, external_id: Any, context: Any) -> str:
        """Run."""
        return "running"

    def is_job_active(self, status: str) -> bool:
        """Whether it runs."""
        return True

    def is_job_succeeded(self, status: str) -> bool:
        """Whether it has ended well."""
        return False

    def poll_until_complete(self, external_id: Any, context: Any) -> None:
        """Wait."""
        self.asked.append((self.where, self.name, self.titled, self.count))

    def get_job_result(self, external_id: Any, context: Any) -> None:
        """Return nothing."""


@pytest.fixture
def job(pool: None, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], dict[str, Any]]:
    """Return what is kept of a task that has submitted its job to a cluster."""
    monkeypatch.setattr(Submits, "asked", PokesLog())

    def submits(cluster: Any) -> dict[str, Any]:
        monkeypatch.setattr(Submits, "cluster", cluster)

        def native(operator: Any, context: Any) -> Any:
            return operator.poll_until_complete(operator.submit_job(context), context)

        operator = in_dag(Submits, name="n")
        operator.count += 1  # as its execute does
        with pytest.raises(TaskDeferred) as deferred:
            resumable_job.execute(operator, context_of(operator), native)
        return deferred.value.kwargs or {}

    return submits


def again(kept: dict[str, Any], monkeypatch: pytest.MonkeyPatch, cluster: Any) -> None:
    monkeypatch.setattr(Submits, "cluster", cluster)
    operator = in_dag(Submits, name="of another day")
    event = InstanceResult.handed_back("because").as_payload()
    as_runner(operator, "resume_execution", patch.RESUME, {"event": event, **kept}, context_of(operator))


@needs(features.RESUMABLE_JOBS)
def test_a_job_is_asked_for_where_it_was_submitted(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = job("a")
    again(kept, monkeypatch, "b")
    assert Submits.asked == [("a", "n", "job of wait", 1)]


@needs(features.RESUMABLE_JOBS)
def test_a_job_that_would_be_asked_for_elsewhere(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = job(Window("a"))
    with pytest.raises(AirflowException, match="its attribute where is another one") as error:
        again(kept, monkeypatch, Window("b"))
    assert not isinstance(error.value, AirflowFailException)
    assert Submits.asked == []


@needs(features.RESUMABLE_JOBS)
def test_what_the_version_before_left_of_a_job(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = job("a")
    again({"job": kept["job"], "started": time.time()}, monkeypatch, "b")
    assert Submits.asked == [("b", "of another day", "job of wait", 1)]
