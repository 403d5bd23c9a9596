"""The page of all sensor classes and the table of the poolable ones are fresh, and what is enabled can be pooled."""

import importlib
from typing import Any

import pytest

pytest.importorskip("airflow.providers.google")

from airflow.providers.standard.sensors.filesystem import FileSensor
from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool.airflow.catalog import proved
from sensorpool.airflow.configuration import WAITING_OPERATORS
from tools import context_in_poke, sensors_reference

DEFERS = "; with `deferrable=True` it defers by itself"
HIVE = ("NamedHivePartitionSensor", "HivePartitionSensor", "MetastorePartitionSensor")


def test_the_page_and_the_table_are_fresh() -> None:
    found = sensors_reference.look()
    mend = "run `python tools/sensors_reference.py`"
    assert sensors_reference.page(found) == sensors_reference.PAGE.read_text(), mend
    assert sensors_reference.table(found) == sensors_reference.TABLE.read_text(), mend


@pytest.mark.parametrize("op_classpath", sorted({*proved().poolable, *WAITING_OPERATORS}))
def test_what_is_enabled_by_default_can_be_pooled(op_classpath: str) -> None:
    module, _, name = op_classpath.rpartition(".")
    cls = getattr(importlib.import_module(module), name)
    if "operators" in module:  # they wait for what they have started
        assert hasattr(cls, "execute")
    else:
        assert sensors_reference.judge(cls).pooled in {"poolable", "poolable if", "gate", "gate if"}
    assert (cls.__module__, cls.__qualname__) == (module, name)  # its one spelling


@pytest.mark.parametrize("name", HIVE)
def test_those_of_hive_are_in_the_first_group(name: str) -> None:
    assert row(name)[1] in {"poolable", "poolable if"}


@pytest.mark.parametrize(
    ("name", "pooled", "why"),
    [
        ("HttpSensor", "poolable if", "`response_check` is given by name"),
        ("MetastorePartitionSensor", "poolable if", "`failure`, `selector` and `success` are given by name"),
        ("NamedHivePartitionSensor", "poolable if", "`hook` is not given"),
        ("SFTPSensor", "poolable", "with `python_callable` it waits at a gate"),
        ("_DecoratedSFTPSensor", "gate", "its `python_callable` is called once it lands"),
        ("EmrStepSensor", "gate", "its poke pushes XComs"),
        ("GCSObjectExistenceSensor", "gate if", "`retry` is not given; its execute works with what its last poke left"),
        ("DataprocJobSensor", "poolable if", "`wait_timeout` is not given"),
        ("LookerCheckPdtBuildSensor", "poolable if", "its mode is `reschedule`"),
        ("TimeSensorAsync", "by itself", ""),
        ("BashSensor", "native", "its command sees the environment of its worker, where Airflow names the task"),
        ("DayOfWeekSensor", "poolable if", "`use_task_logical_date` is not given"),
        ("SqsSensor", "native", f"its poke takes messages{DEFERS}"),
        ("GCSObjectUpdateSensor", "native", f"its poke hands the template context to `self.ts_func`{DEFERS}"),
        ("PythonSensor", "by exact name, if", "`python_callable` is given by name"),
        ("WaitSensor", "native", f"its `execute` never calls that of BaseSensorOperator{DEFERS}"),
        ("CeleryQueueSensor", "native", "its poke asks the task runner for XComs"),
    ],
)
def test_one_of_each_kind(name: str, pooled: str, why: str) -> None:
    assert row(name)[1:3] == [pooled, why]


@pytest.mark.parametrize(
    ("name", "deferrable"),
    [
        ("FileSensor", "pool"),
        ("BigQueryTableExistenceSensor", "native: it returns the message of its trigger"),
        ("DateTimeSensor", ""),
        ("WaitSensor", ""),
    ],
)
def test_where_deferrable_ones_wait(name: str, deferrable: str) -> None:
    assert row(name)[3] == deferrable


def test_each_poolable_class_with_deferrable_has_been_reviewed() -> None:
    assert "has not been reviewed" not in sensors_reference.PAGE.read_text()


def test_nearly_all_leave_their_slot() -> None:
    rows = [line.split("|")[2:4] for line in sensors_reference.PAGE.read_text().splitlines() if line.startswith("| `")]
    native = [why.strip() for pooled, why in rows if pooled.strip() == "native"]
    assert len(rows) - len(native) >= 105
    assert all(native)
    assert len([why for why in native if not why.endswith(DEFERS)]) <= 6


def row(name: str) -> list[str]:
    rows = (line for line in sensors_reference.PAGE.read_text().splitlines() if line.startswith(f"| `{name}` |"))
    return [cell.strip() for cell in next(rows).strip("|").split("|")]


# what the source shows


class Looks(BaseSensorOperator):
    """Its pokes look at the template context, each in its own way."""

    def poke_by_name(self, ctx: Any) -> Any:
        return ctx["ds"]

    def poke_by_get(self, context: Any) -> Any:
        return context.get("ds")

    def poke_elsewhere(self, context: Any) -> Any:
        return print(x=context)

    def poke_to_a_hook(self, context: Any) -> Any:
        return self.hook.poke_not(context)

    def poke_all_of_it(self, context: Any) -> Any:
        return print(**context)

    def poke_whether(self, context: Any) -> Any:
        return True if context else None

    def poke_kept(self, context: Any) -> Any:
        self.kept = context

    def poke_further_on(self, context: Any) -> Any:
        return self._further_on(1, handed=context)

    def _further_on(self, _: int, handed: Any) -> Any:
        return "ds" in handed

    def poke_through_its_base(self, context: Any) -> Any:
        return super().execute(context)

    def poke_otherwise(self, context: Any) -> Any:
        if self.flag:
            return True
        return context["ds"]

    def poke_in_the_test(self, context: Any) -> Any:
        if context["ds"]:
            return self.flag

    def poke_where_another_flag_is_on(self, context: Any) -> Any:
        if self.other:
            return context["ds"]


class LooksNot(BaseSensorOperator):
    """Its pokes do not, or only where an argument is given."""

    def poke_not(self, context: Any) -> Any:
        return self._not(context)

    def _not(self, context: Any) -> bool:
        return self.log is None

    def poke_if(self, context: Any) -> Any:
        if self.flag is not None:
            return self._if(context)

    def _if(self, context: Any) -> Any:
        return context["ds"]


def of_a_provider(cls: type, poke: str) -> type:
    """Return a class of a provider with this poke."""
    made = type("Made", (cls,), {"poke": vars(cls)[poke]})
    made.__module__ = cls.__module__ = "airflow.providers.made"
    return made


def pokes(cls: type) -> list[str]:
    return [name for name in vars(cls) if name.startswith("poke_")]


@pytest.fixture(autouse=True)
def modules() -> Any:
    yield
    Looks.__module__ = LooksNot.__module__ = __name__


@pytest.mark.parametrize("poke", pokes(Looks))
def test_a_poke_that_looks_at_the_context_is_found(poke: str) -> None:
    found = list(context_in_poke.uses(of_a_provider(Looks, poke), {"flag"}))
    assert found
    assert found[0].only_with is None


@pytest.mark.parametrize(("poke", "guards"), [("poke_not", set()), ("poke_if", {"flag"})])
def test_one_that_does_not_is_not(poke: str, guards: set[str]) -> None:
    assert {use.only_with for use in context_in_poke.uses(of_a_provider(LooksNot, poke), {"flag"})} == guards


def test_what_is_pooled_with_a_lambda_is_no_row_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensors_reference, "_is_object", lambda parameter: parameter.name == "fs_conn_id")
    monkeypatch.setattr(sensors_reference, "_a_lambda", "fs_other")  # which JSON can say
    with pytest.raises(AssertionError, match="FileSensor is pooled with a lambda for fs_conn_id"):
        sensors_reference.judge(FileSensor)
