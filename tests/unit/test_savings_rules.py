"""The arithmetic of `sensorpool savings`: slots, pokes, duplicates, conditions, and what the pool makes of them."""

import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorpool.admin.savings.classes import readable, taken_of
from sensorpool.admin.savings.conditions import condition_of
from sensorpool.admin.savings.estimate import (
    START_SECONDS,
    after_duplicates,
    costs_of,
    pokes_in,
    slot_seconds,
    span_of,
)
from sensorpool.admin.savings.ledger import Ledger, summed, total
from sensorpool.admin.savings.overlap import distinct_pokes, duplicates_of
from sensorpool.admin.savings.serialized import sensors_in
from sensorpool.admin.savings.span_file import SpanFile
from sensorpool.admin.savings.values import Costs, Mode, SensorTask, SensorTry, Span, Taken
from sensorpool.cli.savings import _count, _hours
from tests.support.airflow_tables import FILE_SENSOR, sensor, serialized

OWNER = ("etl", FILE_SENSOR)


def one_try(
    mode: Mode = Mode.POKE, starts: int = 1, waited: float = 600, interval: float = 60, **more: Any
) -> SensorTry:
    held = more.pop("held", waited if mode is Mode.POKE else 2.0 * starts)
    begun = more.pop("begun", 1_000.0)
    row = {"dag_id": "etl", "op_classpath": FILE_SENSOR, "condition": b"c"} | more
    return SensorTry(**row, mode=mode, starts=starts, begun=begun, ended=begun + waited, held=held, interval=interval)


@pytest.mark.parametrize(
    ("waited", "interval", "pokes"), [(0, 60, 1), (59, 60, 1), (60, 60, 2), (600, 60, 11), (5, 0, 6)]
)
def test_pokes_come_at_once_and_then_once_an_interval(waited: float, interval: float, pokes: int) -> None:
    assert pokes_in(waited, interval) == pokes


def test_a_clock_that_went_back_makes_no_pokes() -> None:
    assert pokes_in(-5, 60) == 1


def test_a_slot_is_held_while_a_task_runs_and_while_it_starts() -> None:
    assert slot_seconds(600, 1, 0.6) == pytest.approx(600.6)
    assert slot_seconds(22, 11, 0.6) == pytest.approx(28.6)


def test_mode_poke_holds_its_slot_and_the_pool_two_starts() -> None:
    costs = costs_of(one_try(), Taken.BY_DEFAULT)
    assert (costs.slot_seconds, costs.pokes, costs.starts) == (600 + START_SECONDS, 11, 1)
    assert (costs.pool_slot_seconds, costs.pool_pokes, costs.pool_starts) == (2 * START_SECONDS, 11, 2)


def test_mode_reschedule_starts_for_each_poke() -> None:
    costs = costs_of(one_try(Mode.RESCHEDULE, starts=11), Taken.BY_DEFAULT)
    assert (costs.slot_seconds, costs.pokes, costs.starts) == (pytest.approx(22 + 11 * START_SECONDS), 11, 11)
    assert (costs.pool_slot_seconds, costs.pool_starts) == (pytest.approx(2 * 22 / 11 + 2 * START_SECONDS), 2)


@pytest.mark.parametrize("taken", [Taken.NOT_BY_DEFAULT, Taken.NOT_KNOWN])
def test_what_the_pool_does_not_take_stays_as_it_is(taken: Taken) -> None:
    costs = after_duplicates(costs_of(one_try(), taken), 4, taken)
    assert (costs.pool_slot_seconds, costs.pool_pokes, costs.pool_starts) == (costs.slot_seconds, 11, 1)
    assert costs.duplicates == 4


def test_what_ends_with_its_first_poke_stays_as_it_is() -> None:
    costs = costs_of(one_try(waited=20), Taken.BY_DEFAULT)
    assert (costs.pool_slot_seconds, costs.pool_starts) == (costs.slot_seconds, 1)


def test_a_deferred_try_starts_twice_and_its_polls_are_not_counted() -> None:
    deferred = one_try(Mode.DEFERRED, starts=2, held=3)
    costs = costs_of(deferred, Taken.BY_DEFAULT)
    assert (costs.pokes, costs.starts, costs.pool_starts) == (0, 2, 2)
    assert costs.slot_seconds == costs.pool_slot_seconds == pytest.approx(3 + 2 * START_SECONDS)
    assert span_of(deferred) is None


# Overlaps


def span(start: float, seconds: float, interval: float, dag_id: str = "etl") -> Span:
    return Span((dag_id, FILE_SENSOR), start, seconds, seconds / interval)


def test_two_that_wait_together_need_the_pokes_of_one() -> None:
    assert distinct_pokes([span(0, 600, 60), span(0, 600, 60)]) == pytest.approx(10)
    assert duplicates_of([span(0, 600, 60, "a"), span(0, 600, 60, "b")]) == {
        ("a", FILE_SENSOR): pytest.approx(5),
        ("b", FILE_SENSOR): pytest.approx(5),
    }


def test_two_that_wait_one_after_the_other_share_nothing() -> None:
    assert distinct_pokes([span(0, 600, 60), span(600, 600, 60)]) == pytest.approx(20)
    assert duplicates_of([span(0, 600, 60), span(5_000, 600, 60)]) == {OWNER: pytest.approx(0)}


def test_a_partial_overlap_is_shared_for_its_length() -> None:
    assert distinct_pokes([span(0, 600, 60), span(300, 600, 60)]) == pytest.approx(15)


def test_the_fastest_serves_the_others_only_while_it_waits() -> None:
    assert distinct_pokes([span(0, 3600, 60), span(600, 60, 10)]) == pytest.approx(60 - 1 + 6)


spans_of_a_condition = st.lists(
    st.builds(
        Span,
        st.sampled_from([("a", "x"), ("b", "x"), ("b", "y")]),
        st.integers(0, 1_000).map(float),
        st.integers(1, 1_000).map(float),
        st.integers(1, 100).map(float),
    ),
    max_size=12,
).map(lambda spans: sorted(spans, key=lambda each: each.start))


@given(spans_of_a_condition)
def test_together_they_need_no_fewer_than_one_and_no_more_than_all(spans: list[Span]) -> None:
    needed = distinct_pokes(spans)
    assert needed <= sum(each.pokes for each in spans) + 1e-6
    assert needed >= max((each.pokes for each in spans), default=0) - 1e-6


@given(spans_of_a_condition)
def test_needed_is_the_fastest_pace_second_by_second(spans: list[Span]) -> None:
    """All begins and ends are whole seconds, so that a sum over seconds is exact."""
    by_second = sum(
        max((each.pokes / each.seconds for each in spans if each.start <= at < each.start + each.seconds), default=0)
        for at in range(2_001)
    )
    assert distinct_pokes(spans) == pytest.approx(by_second)


@given(spans_of_a_condition)
def test_duplicates_are_shared_out_whole(spans: list[Span]) -> None:
    duplicates = duplicates_of(spans)
    assert all(count >= 0 for count in duplicates.values())
    expected = sum(each.pokes for each in spans) - distinct_pokes(spans)
    assert sum(duplicates.values()) == pytest.approx(expected, abs=1e-6)


def test_the_file_of_spans_gives_them_back_by_condition_and_start() -> None:
    with SpanFile() as spans:
        for number in range(12_000):  # more than one batch
            spans.add(bytes([number % 3]), Span(OWNER, float(-number), 1.0, 1.0))
        groups = [[each.start for each in group] for group in spans.by_condition()]
    assert [len(group) for group in groups] == [4_000] * 3
    assert all(group == sorted(group) for group in groups)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.integers(0, 5_000)), max_size=20))
def test_sums_by_dag_and_by_class_are_the_total(tries: list[tuple[str, str, int]]) -> None:
    with SpanFile() as spans:
        ledger = Ledger(spans, lambda path: Taken.BY_DEFAULT if path == "x" else Taken.NOT_KNOWN, START_SECONDS)
        for dag_id, path, waited in tries:
            ledger.add(one_try(waited=waited, dag_id=dag_id, op_classpath=path, condition=path.encode()))
        entries = ledger.entries()
    whole = total(entries)
    assert whole.tries == len(tries)
    for place in (0, 1):
        parts = summed(entries, lambda owner, place=place: owner[place])
        again = Costs()
        for costs in parts.values():
            again.add(costs)
            assert costs.pool_pokes <= costs.pokes
            assert costs.pool_slot_seconds <= costs.slot_seconds + 1e-6
        assert again.duplicates == pytest.approx(whole.duplicates)
        assert again.slot_seconds == pytest.approx(whole.slot_seconds)
        assert list(parts) == sorted(parts, key=lambda name: (-parts[name].slot_seconds, name))


def test_a_try_whose_condition_is_not_known_has_no_duplicates() -> None:
    with SpanFile() as spans:
        ledger = Ledger(spans, lambda _: Taken.BY_DEFAULT, START_SECONDS)
        ledger.add(one_try(condition=None))
        ledger.add(one_try(condition=None))
        assert total(ledger.entries()).duplicates == 0


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


def test_a_class_of_a_dag_file_is_named_without_its_digest() -> None:
    assert readable(f"{PREFIX}sensors.Mine") == "sensors.Mine"


@pytest.mark.parametrize("value", [0, 9, 99_999, 99_999.6, 100_000, 999_999, 1_234_567, 99_999_999, 2.5e9])
def test_a_figure_of_a_table_has_six_cells_at_most(value: float) -> None:
    assert len(_count(value)) <= 6
    assert len(_hours(value)) <= 6
