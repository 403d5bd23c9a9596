"""The arithmetic of `sensorpool savings`: slots, pokes, duplicates, conditions, and what the pool makes of them."""

import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorpool.admin.savings.estimate import START_SECONDS, Mode, SensorTry, costs_of, with_duplicates
from sensorpool.admin.savings.records import SensorTask, Taken, condition_of, logged, sensors_in, taken_of
from sensorpool.cli.savings import _count, _hours
from tests.support.airflow_tables import FILE_SENSOR, sensor, serialized


def one_try(
    mode: Mode = Mode.POKE, starts: int = 1, waited: float = 600, interval: float = 60, **more: Any
) -> SensorTry:
    held = more.pop("held", waited if mode is Mode.POKE else 2.0 * starts)
    begun = more.pop("begun", 1_000.0)
    row = {"dag_id": "etl", "op_classpath": FILE_SENSOR, "condition": b"c"} | more
    return SensorTry(**row, mode=mode, starts=starts, begun=begun, ended=begun + waited, held=held, interval=interval)


@pytest.mark.parametrize(
    ("waited", "interval", "pokes"), [(0, 60, 1), (59, 60, 1), (60, 60, 2), (600, 60, 11), (5, 0, 6), (-5, 60, 1)]
)
def test_pokes_come_at_once_and_then_once_an_interval(waited: float, interval: float, pokes: int) -> None:
    assert one_try(waited=waited, interval=interval).pokes == pokes


def test_mode_poke_holds_its_slot_and_the_pool_two_starts() -> None:
    costs = costs_of(one_try(), 4, is_taken=True)
    assert (costs.slot_seconds, costs.pokes, costs.starts) == (600 + START_SECONDS, 11, 1)
    assert (costs.pool_slot_seconds, costs.pool_pokes, costs.pool_starts) == (2 * START_SECONDS, 7, 2)


def test_mode_reschedule_starts_for_each_poke() -> None:
    costs = costs_of(one_try(Mode.RESCHEDULE, starts=11), 0, is_taken=True)
    assert (costs.slot_seconds, costs.pokes, costs.starts) == (pytest.approx(22 + 11 * START_SECONDS), 11, 11)
    assert (costs.pool_slot_seconds, costs.pool_starts) == (pytest.approx(2 * 22 / 11 + 2 * START_SECONDS), 2)


def test_what_the_pool_does_not_take_stays_as_it_is() -> None:
    costs = costs_of(one_try(), 4, is_taken=False)
    assert (costs.pool_slot_seconds, costs.pool_pokes, costs.pool_starts) == (costs.slot_seconds, 11, 1)
    assert costs.duplicates == 4


def test_what_ends_with_its_first_poke_stays_as_it_is() -> None:
    costs = costs_of(one_try(waited=20), 0, is_taken=True)
    assert (costs.pool_slot_seconds, costs.pool_starts) == (costs.slot_seconds, 1)


def test_a_deferred_try_starts_twice_and_its_polls_are_not_counted() -> None:
    costs = costs_of(one_try(Mode.DEFERRED, starts=2, held=3), 0, is_taken=True)
    assert (costs.pokes, costs.starts, costs.pool_starts) == (0, 2, 2)
    assert costs.slot_seconds == costs.pool_slot_seconds == pytest.approx(3 + 2 * START_SECONDS)


# Duplicates


def duplicates(*tries: SensorTry) -> list[Any]:
    return [pytest.approx(count) for _, count in with_duplicates(tries)]


def test_pokes_of_the_time_in_which_an_earlier_one_waited_are_duplicates() -> None:
    assert duplicates(one_try(), one_try()) == [0, 10]
    assert duplicates(one_try(), one_try(begun=1_600.0)) == [0, 0]
    assert duplicates(one_try(begun=1_300.0), one_try()) == [0, 5]
    assert duplicates(one_try(waited=6_000), one_try(), one_try(begun=5_000)) == [0, 10, 10]
    assert duplicates(one_try(), one_try(interval=30)) == [0, 10], "the others of the faster one are needed"
    assert duplicates(one_try(interval=30), one_try()) == [0, 10]


def test_what_is_not_poked_spares_no_other_a_poke() -> None:
    assert duplicates(one_try(Mode.DEFERRED, starts=2), one_try()) == [0, 0]


@given(st.lists(st.tuples(st.integers(0, 1_000), st.integers(0, 1_000), st.integers(1, 100)), max_size=12))
def test_the_first_poke_of_each_is_needed(waits: list[tuple[int, int, int]]) -> None:
    tries = [one_try(begun=float(begun), waited=waited, interval=interval) for begun, waited, interval in waits]
    found = list(with_duplicates(tries))
    assert len(found) == len(tries)
    assert all(0 <= count <= one.pokes - 1 + 1e-6 for one, count in found)


# The audit log


def test_the_slot_is_held_between_each_start_and_its_end() -> None:
    key = ("wait", "run1", -1, 1)
    events = [("running", 0), ("up_for_reschedule", 3), ("success", 4), ("running", 60), ("success", 62)]
    [(_, seen)] = logged((key, event, float(at)) for event, at in events).items()
    assert (seen.first, seen.starts, seen.held, seen.running_since) == (0, 2, 5, None)
    assert seen.waits["up_for_reschedule"] == 1
    assert logged([(key, "success", 1.0)]) == {}


# Conditions

FILE = SensorTask("wait", FILE_SENSOR)


def test_equal_fields_are_one_condition_whatever_their_order_and_their_dag() -> None:
    first = condition_of("a", FILE, '{"filepath": "/x", "fs_conn_id": "fs"}', None)
    assert first is not None
    assert first == condition_of("b", SensorTask("other", FILE_SENSOR), {"fs_conn_id": "fs", "filepath": "/x"}, None)
    assert first != condition_of("a", FILE, {"fs_conn_id": "fs", "filepath": "/y"}, None)
    assert first != condition_of(
        "a", SensorTask("wait", "acme.FileSensor"), {"fs_conn_id": "fs", "filepath": "/x"}, None
    )


@pytest.mark.parametrize(
    "rendered", [None, {}, "", "{", "[]", {"sql": "Truncated. You can change …"}, {"url": "http://u:***@host/"}]
)
def test_what_the_fields_do_not_tell_is_not_known(rendered: Any) -> None:
    assert condition_of("a", FILE, rendered, None) is None


def test_a_sensor_that_asks_for_its_run_waits_for_another_thing_in_each_run() -> None:
    external = SensorTask("wait", "airflow.providers.standard.sensors.external_task.ExternalTaskSensor")
    fields = {"external_dag_id": "up"}
    assert condition_of("a", external, fields, 1.0) == condition_of("b", external, fields, 1.0) is not None
    assert condition_of("a", external, fields, 1.0) != condition_of("a", external, fields, 2.0)
    assert condition_of("a", external, fields, None) is None


def test_functions_are_equal_within_one_task_only() -> None:
    function = SensorTask("wait", "airflow.providers.standard.sensors.python.PythonSensor", has_callable=True)
    fields = {"op_args": []}
    assert condition_of("a", function, fields, None) == condition_of("a", function, fields, None)
    assert condition_of("a", function, fields, None) != condition_of("b", function, fields, None)


# Serialized DAGs


def test_the_sensors_of_a_serialized_dag() -> None:
    other = {"__type": "operator", "__var": {"task_id": "load", "task_type": "BashOperator"}}
    span = {"__type": "timedelta", "__var": 5.0}
    mapped = sensor("mapped", partial_kwargs={"poke_interval": span, "mode": "reschedule", "deferrable": False})
    del mapped["__var"]["reschedule"]
    data = serialized("etl", sensor("plain"), mapped, sensor("again", reschedule=True), other)
    found = sensors_in(json.dumps(data))
    assert found == sensors_in(None, zlib.compress(json.dumps(data).encode())) == sensors_in(data)
    assert found == {
        "plain": SensorTask("plain", FILE_SENSOR),
        "mapped": SensorTask("mapped", FILE_SENSOR, True, 5.0, False),
        "again": SensorTask("again", FILE_SENSOR, reschedule=True),
    }


def test_the_defaults_of_a_dag_tell_the_interval() -> None:
    defaults = {"__type": "dict", "__var": {"poke_interval": 30}}
    assert sensors_in(serialized("etl", sensor("wait"), default_args=defaults))["wait"].poke_interval == 30


@pytest.mark.parametrize(
    ("data", "compressed"),
    [
        (None, None),
        ("{", None),
        (None, b"no zlib"),
        ([], None),
        ({"dag": 1}, None),
        ({"dag": {"tasks": [1, {}]}}, None),
    ],
)
def test_what_is_no_serialized_dag_has_no_sensors(data: Any, compressed: bytes | None) -> None:
    assert sensors_in(data, compressed) == {}


# Classes

PREFIX = "unusual_prefix_550559484ec97d39bcd999259c6291a31b101d90_"


@pytest.mark.parametrize(
    ("path", "taken"),
    [
        (FILE_SENSOR, Taken.BY_DEFAULT),
        ("airflow.sensors.filesystem.FileSensor", Taken.BY_DEFAULT),
        ("airflow.providers.standard.sensors.bash.BashSensor", Taken.NOT_BY_DEFAULT),
        ("airflow.providers.standard.decorators.sensor.DecoratedSensorOperator", Taken.NOT_BY_DEFAULT),
        (f"{PREFIX}sensors.Mine", Taken.NOT_BY_DEFAULT),
        ("acme.sensors.PartnerFileSensor", Taken.NOT_KNOWN),
        ("", Taken.NOT_KNOWN),
    ],
)
def test_whether_the_pool_takes_a_class(path: str, taken: Taken) -> None:
    assert taken_of(path) is taken


@pytest.mark.parametrize("value", [0, 9, 99_999, 99_999.6, 100_000, 999_999, 1_234_567, 99_999_999, 2.5e9])
def test_a_figure_of_a_table_has_six_cells_at_most(value: float) -> None:
    assert len(_count(value)) <= 6
    assert len(_hours(value)) <= 6
