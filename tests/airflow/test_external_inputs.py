"""External inputs of a constructor are part of the condition, and the pool finds the same."""

import datetime as dt
import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("airflow.providers.amazon")

from airflow.providers.amazon.aws.sensors.s3 import S3KeySensor
from airflow.providers.common.sql.sensors.sql import SqlSensor
from airflow.providers.http.sensors.http import HttpSensor
from airflow.providers.standard.sensors.filesystem import FileSensor
from airflow.sdk import BaseOperator, BaseSensorOperator, Variable

from sensorpool.airflow.compat import features
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.pool.adapters import job, kept_operator, sensor
from sensorpool.airflow.proof.arguments import rebuild
from sensorpool.errors import HandBack
from sensorpool.model.identity import identify
from tests.airflow.needs import needs
from tests.airflow.running import Flag, in_dag
from tests.airflow.versions import ResumableJobMixin


class Reads(BaseSensorOperator):
    """Builds what the test says from its argument and from elsewhere."""

    template_fields = ("path",)
    elsewhere: ClassVar[Callable[[], Any]] = staticmethod(lambda: None)

    def __init__(self, *, path: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.path = path
        self.found = type(self).elsewhere()

    def poke(self, context: Any) -> bool:
        """Look."""
        return self.found == "there"


class Terse(BaseSensorOperator):
    """Takes no more than it needs."""

    def __init__(
        self, *, task_id: str, flag: str, dag: Any = None, task_group: Any = None, default_args: Any = None
    ) -> None:
        super().__init__(task_id=task_id, dag=dag)
        self.flag = flag

    def poke(self, context: Any) -> bool:
        """Look."""
        return False


class Plain(BaseSensorOperator):
    """Has what it was given."""

    def __init__(self, *, path: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.path = path

    def poke(self, context: Any) -> bool:
        """Look."""
        return False


class Overrides(Flag):
    """Takes an argument for what it is, unless something else is said elsewhere."""

    elsewhere: ClassVar[str | None] = None

    def __init__(self, *, flag: str, **kwargs: Any) -> None:
        super().__init__(flag=self.elsewhere or flag, **kwargs)


class Holder:
    """Holds a value, as a hook does."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.log = logging.getLogger("holder")


class Defaults(BaseSensorOperator):
    """Has a default that was found out when its module was imported, and a constant."""

    day = "2026-01-01"

    def __init__(self, *, path: str, since: Any = None, mode_of_day: str = "a", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.path = path
        self._mode_of_day = mode_of_day

    def poke(self, context: Any) -> bool:
        """Look."""
        return False


class Declared(Reads):
    """Says itself what its condition is."""

    poke_context_fields = ("path",)


def at(found: Any, cls: Any = Reads, **arguments: Any) -> dict[str, Any]:
    """Return the condition of a sensor whose constructor finds something elsewhere."""
    cls.elsewhere = staticmethod(lambda: found)
    return json.loads(json.dumps(rebuild.poke_context_of(in_dag(cls, **{"path": "p", **arguments}))))


def pooled(context: dict[str, Any], found: Any, cls: Any = Reads) -> Any:
    """Build in a pool whose process finds something there."""
    cls.elsewhere = staticmethod(lambda: found)
    return sensor.adapt(cls)(**context)


DAY = dt.date(2026, 11, 2)
ELSEWHERE = {
    "a Variable": ("s3://a", "s3://b"),
    "a date": (DAY, DAY + dt.timedelta(days=1)),
    "a time": (dt.datetime(2026, 11, 2, 1), dt.datetime(2026, 11, 2, 2)),
    "a flag": (True, False),
    "a number": (0, 1),
    "one that is missing": (None, "x"),
    "an empty one": ("", "x"),
    "a list": ([], ["x"]),
    "a mapping": ({"a": [1]}, {"a": [2]}),
    "a path": (Path("a").as_posix(), Path("b").as_posix()),
    "a hook": (Holder("a"), Holder("b")),
    "a hook of a hook": (Holder([Holder("a")]), Holder([Holder("b")])),
    "a function": (len, max),
    "the argument's value": ("p", "x"),
}


@pytest.mark.parametrize(("one", "other"), ELSEWHERE.values(), ids=ELSEWHERE)
def test_what_a_constructor_finds_elsewhere_makes_another_condition(one: Any, other: Any) -> None:
    contexts = [at(found) for found in (one, other, one)]
    conditions = [identify("tests.airflow.test_external_inputs.Reads", context) for context in contexts]
    assert conditions[0] != conditions[1]
    assert conditions[0] == conditions[2]
    for context, same, another in ((contexts[0], one, other), (contexts[1], other, one)):
        assert pooled(context, same).poke({}) is False
        with pytest.raises(HandBack, match="its attribute found is another one"):
            pooled(context, another)


def test_the_environment_and_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for read in (lambda: os.environ["AIRFLOW_VAR_DAY"], lambda: Variable.get("day")):
        contexts = []
        for day in ("1", "2"):
            monkeypatch.setenv("AIRFLOW_VAR_DAY", day)
            monkeypatch.setattr(Reads, "elsewhere", staticmethod(read))
            contexts.append(rebuild.poke_context_of(in_dag(Reads, path="p")))
        assert contexts[0] != contexts[1]
        assert sensor.adapt(Reads)(**contexts[1]).poke({}) is False
        with pytest.raises(HandBack, match="another one"):
            sensor.adapt(Reads)(**contexts[0])
        monkeypatch.delenv("AIRFLOW_VAR_DAY")
        with pytest.raises(HandBack, match="cannot be built in the pool"):
            sensor.adapt(Reads)(**contexts[1])


def test_two_builds_that_differ_mean_natively() -> None:
    numbers = iter(range(100))
    Reads.elsewhere = staticmethod(lambda: next(numbers))
    with pytest.raises(NotPoolable, match="its attribute found is another one"):
        rebuild.poke_context_of(in_dag(Reads, path="p"))


def test_a_constructor_that_asks_for_its_task_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CTX_DAG_ID", "dag")
    context = at("x")
    monkeypatch.setattr(Reads, "elsewhere", staticmethod(lambda: os.environ.get("AIRFLOW_CTX_DAG_ID")))
    with pytest.raises(HandBack, match="AIRFLOW_CTX_DAG_ID in the environment"):
        sensor.adapt(Reads)(**context)


def test_a_backend_that_does_not_answer_a_constructor_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    context = at("x")

    def refused() -> Any:
        raise ConnectionRefusedError

    monkeypatch.setattr(Reads, "elsewhere", staticmethod(refused))
    with pytest.raises(ConnectionRefusedError):
        sensor.adapt(Reads)(**context)


def test_a_constant_and_a_default_of_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    contexts = []
    for day in ("2026-01-01", "2026-01-02"):
        monkeypatch.setattr(Defaults, "day", day)
        plain = rebuild.poke_context_of(in_dag(Defaults, path="p"))
        assert plain == rebuild.poke_context_of(in_dag(Defaults, path="p", mode_of_day="a"))  # spelled out
        assert plain != rebuild.poke_context_of(in_dag(Defaults, path="p", mode_of_day="b"))
        contexts.append(plain)
    assert contexts[0] != contexts[1]
    sensor.adapt(Defaults)(**contexts[1])
    with pytest.raises(HandBack, match="its attribute day is another one"):
        sensor.adapt(Defaults)(**contexts[0])


def test_what_is_found_in_the_pool_alone_makes_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    context = rebuild.poke_context_of(in_dag(Overrides, flag="x"))
    assert sensor.adapt(Overrides)(**context).poke({}) is False
    monkeypatch.setattr(Overrides, "elsewhere", "y")  # as an environment may say
    with pytest.raises(HandBack, match=r"its attribute (flag|elsewhere) is another one"):
        sensor.adapt(Overrides)(**context)


def test_a_class_that_names_its_fields_is_what_they_say() -> None:
    assert at("a", Declared) == at("b", Declared) == {"path": "p"}
    assert pooled({"path": "p"}, "there", Declared).poke({}) is True


GOLDEN: list[tuple[Any, dict[str, Any], dict[str, Any]]] = [
    (Plain, {"path": "x"}, {"path": "x", "doc": ""}),  # a company's: nothing is found elsewhere
    (Terse, {"flag": "x"}, {"flag": "x"}),
    (FileSensor, {"filepath": "/a", "recursive": True}, {"filepath": "/a", "recursive": True}),
    (SqlSensor, {"conn_id": "c", "sql": "SELECT 1"}, {"conn_id": "c", "sql": "SELECT 1"}),
    (S3KeySensor, {"bucket_key": ["s3://a/b"]}, {"bucket_key": ["s3://a/b"]}),
    (HttpSensor, {"endpoint": "done"}, {"endpoint": "done"}),
]


@pytest.mark.parametrize(("cls", "arguments", "context"), GOLDEN, ids=lambda value: getattr(value, "__name__", ""))
def test_a_plain_sensor_is_what_it_was(cls: Any, arguments: dict[str, Any], context: dict[str, Any]) -> None:
    assert rebuild.poke_context_of(in_dag(cls, **arguments)) == context


def test_without_a_digest_nothing_is_compared() -> None:
    """A class with a state of its own, registered by hand."""
    context = at("there")
    assert rebuild.rebuild(Reads, context).found == "there"
    assert pooled({"path": "p"}, "there").poke({}) is True


def test_it_does_not_depend_on_the_process() -> None:
    """Sets have no order, objects have addresses."""
    assert at({"b", "a"}) == at({"a", "b"})
    assert at(Holder({"x", "y"})) == at(Holder({"y", "x"}))
    assert at("x")["doc"] == "found=e385388bc49b0fc8996e3cf4"


@pytest.fixture
def aged(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What the pool keeps is built again with each poke."""
    monkeypatch.setattr(kept_operator, "_limit", lambda: 0.0)
    return


def test_what_is_built_again_at_its_age_is_held_against_it_too(aged: None) -> None:
    built = pooled(at("a"), "a")
    assert built.poke({}) is False
    Reads.elsewhere = staticmethod(lambda: "there")
    with pytest.raises(HandBack, match="its attribute found is another one"):
        built.poke({})


class Submits(ResumableJobMixin, BaseOperator):
    """Waits for a job on a cluster that is named elsewhere."""

    cluster: ClassVar[str] = "a"

    def __init__(self, *, name: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.name = name
        self.where = self.cluster

    def submit_job(self, context: Any) -> str:
        """Submit it."""
        return "7"

    def get_job_status(self, external_id: Any, context: Any) -> str:
        """Ask for it."""
        return f"{self.where} {self.task_id}" if self.name == "asks" else self.where

    def is_job_active(self, status: str) -> bool:
        """Whether it runs."""
        return True

    def is_job_succeeded(self, status: str) -> bool:
        """Whether it has ended well."""
        return False

    def poll_until_complete(self, external_id: Any, context: Any) -> None:
        """Wait."""

    def get_job_result(self, external_id: Any, context: Any) -> None:
        """Return nothing."""


@needs(features.RESUMABLE_JOBS)
def test_an_operator_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = rebuild.arguments_of(in_dag(Submits, name="n"), None)
    assert job.job_of(Submits)(**arguments, __external_id__="7").poke({}) is False
    asks = rebuild.arguments_of(in_dag(Submits, name="asks"), None)
    with pytest.raises(HandBack, match="which only its task has"):
        job.job_of(Submits)(**asks, __external_id__="7").poke({})
    monkeypatch.setattr(Submits, "cluster", "b")
    with pytest.raises(HandBack, match="is another one"):
        job.job_of(Submits)(**arguments, __external_id__="7").poke({})


class SubmitsTo(Submits):
    """Names a Connection beside."""

    def __init__(self, *, cluster_conn_id: str = "cluster", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cluster_conn_id = cluster_conn_id


@needs(features.RESUMABLE_JOBS)
def test_a_connection_that_stays_the_same_keeps_no_operator(aged: None, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = job.job_of(SubmitsTo)(**rebuild.arguments_of(in_dag(SubmitsTo, name="n"), None), __external_id__="7")
    assert kept.poke({}) is False
    assert kept._connections, "it names a Connection"
    monkeypatch.setattr(Submits, "cluster", "b")
    with pytest.raises(HandBack, match="is another one"):
        kept.poke({})
