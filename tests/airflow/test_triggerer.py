"""Whatever the pool's rows hold, the triggerer goes on: Airflow's own runner, its frames and its database."""

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("airflow")

from airflow.triggers.base import TaskSuccessEvent

from harness.until import PATIENCE
from sensorpool.airflow.result import InstanceResult, Landing
from sensorpool.airflow.task import conclude
from sensorpool.airflow.trigger import PoolTrigger
from sensorpool.airflow.triggerer import notifier
from sensorpool.airflow.triggerer.notifier import Notifier
from sensorpool.errors import SettingsError, Unreachable
from sensorpool.model.states import Ending, State
from sensorpool.model.values import Registration
from tests.airflow.deployment import SENSOR, Deployment
from tests.airflow.metadata import Metadata
from tests.airflow.running import Flag, Ti, in_dag
from tests.airflow.told import Told

SURROGATE, NUL = "\ud800", "\x00"
DEEP = "[" * 700 + "]" * 700
VALUES = {
    "nul": json.dumps(f"a{NUL}b"),
    "surrogate": json.dumps(f"a{SURROGATE}b"),
    "nul in a name": json.dumps({f"a{NUL}": 1}),
    "surrogate in a name": json.dumps({SURROGATE: 1}),
    "an integer of 80 bits": str(2**80),
    "infinite": "[Infinity]",
    "deep": DEEP,
    "a name that Airflow keeps for itself": json.dumps({"__classname__": "a.B", "__version__": 1, "__data__": 1}),
    "another one": json.dumps({"__type": "set", "__var": [1]}),
    "large": json.dumps("x" * 250_000),
    "plain": "[1]",
}


@pytest.fixture
def deployment(triggerer: Notifier, airflow_metadata: Metadata) -> Deployment:
    return Deployment(triggerer.pool, airflow_metadata)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_value_reaches_the_task_and_never_the_triggerer(deployment: Deployment, value: str) -> None:
    deployment.end(xcom_value=value)
    trigger_id = deployment.defer(instance_id=deployment.instance_id)
    event = deployment.serve(trigger_id, PoolTrigger(deployment.instance_id))
    assert len(json.dumps(event)) < 500
    sensor = in_dag(Flag, flag="x")
    result = conclude.read_result(sensor, {"ti": Ti("triggerer", "wait", deployment.run_id)}, event)
    assert (result.state, result.ending) == (State.SUCCESS, Ending.LANDED)
    assert repr(result.xcom_value) == repr(json.loads(value))


@pytest.mark.parametrize(
    "columns",
    [
        {"state": "x"},
        {"ending": "x"},
        {"state": "failed", "ending": "poke_error", "reason": "x" * 1_000_000},
        {"state": "failed", "ending": "poke_error", "reason": "\x1b[31m\u202e 100 % {x} %s"},
        {"ending": None, "xcom_value": "no JSON"},
        {"xcom_value": "[" * 200_000},
        {"state": "skipped", "xcom_value": "1"},
    ],
    ids=str,
)
def test_rows_written_over_end_their_own_task_only(deployment: Deployment, columns: dict[str, Any]) -> None:
    deployment.end(**columns)
    trigger_id = deployment.defer(instance_id=deployment.instance_id)
    event = deployment.serve(trigger_id, PoolTrigger(deployment.instance_id))
    assert len(json.dumps(event)) < 12_500
    result = conclude.read_result(in_dag(Flag, flag="x"), {"ti": Ti("triggerer", "wait", deployment.run_id)}, event)
    expected = columns.get("state") if columns.get("state") in set(State) else "cancelled"
    assert result.state == expected
    if result.state == "cancelled":
        assert result.ending is Ending.HANDED_BACK


def test_a_value_of_another_task_is_not_taken(deployment: Deployment) -> None:
    deployment.end(xcom_value="[1]")
    context = {"ti": Ti("triggerer", "wait", "another run")}
    result = conclude.read_result(in_dag(Flag, flag="x"), context, {"value_of": deployment.instance_id})
    assert (result.ending, result.xcom_value) == (Ending.HANDED_BACK, None)


def test_a_value_that_is_gone_is_not_taken_for_none(deployment: Deployment) -> None:
    deployment.end(xcom_value=None)
    context = {"ti": Ti("triggerer", "wait", deployment.run_id)}
    result = conclude.read_result(in_dag(Flag, flag="x"), context, {"value_of": deployment.instance_id})
    assert result.ending is Ending.HANDED_BACK


@pytest.mark.parametrize("value_of", [None, "x", 2**80, -1, [], {"__classname__": "a.B"}], ids=str)
def test_an_event_that_names_no_instance_runs_natively(deployment: Deployment, value_of: Any) -> None:
    context = {"ti": Ti("triggerer", "wait", deployment.run_id)}
    assert conclude.read_result(in_dag(Flag, flag="x"), context, {"value_of": value_of}).ending is Ending.HANDED_BACK


def test_a_value_is_asked_for_again_while_the_database_is_away(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment.end(xcom_value="[1]")
    monkeypatch.setattr(conclude, "PAUSE", 0.0)
    asked: list[int] = []
    read = deployment.pool.database.read

    def away(question: Any, *args: Any) -> Any:
        asked.append(1)
        if len(asked) < 3:
            raise Unreachable("it is away")
        return read(question, *args)

    context = {"ti": Ti("triggerer", "wait", deployment.run_id)}
    event = {"value_of": deployment.instance_id}
    monkeypatch.setattr(deployment.pool.database, "read", away)
    assert conclude.read_result(in_dag(Flag, flag="x"), context, event).xcom_value == [1]
    assert len(asked) == 3
    monkeypatch.setattr(deployment.pool.database, "read", _never)
    result = conclude.read_result(in_dag(Flag, flag="x"), context, event)
    assert (result.ending, Landing.read(result.xcom_value).lost.keys()) == (Ending.LANDED, {""})


def _never(*_: Any) -> Any:
    raise Unreachable("it is away")


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"instance_id": None},
        {"instance_id": "4711"},
        {"instance_id": 2**63},
        {"instance_id": -1},
        {"instance_id": True},
        {"instance_id": [], "direct": "no", "registered_at": "never"},
        {"instance_id": 2**62, "registered_at": float("nan")},
        {"instance_id": 2**62, "registered_at": float("inf"), "of_a_later_version": 1},
    ],
    ids=str,
)
def test_a_trigger_with_odd_arguments_hands_its_task_back(deployment: Deployment, kwargs: dict[str, Any]) -> None:
    deployment.end()
    event = deployment.serve(deployment.defer(**kwargs), PoolTrigger(**kwargs))
    assert event["ending"] == Ending.HANDED_BACK
    assert PoolTrigger(**kwargs).direct is False


@pytest.mark.parametrize("text", [f"a{NUL}b", f"a{SURROGATE}b", "x" * 10_000_000], ids=["nul", "surrogate", "large"])
@pytest.mark.parametrize("place", ["a line", "a reason", "an error of the notifier", "an error of the settings"])
def test_no_text_ends_the_triggerer(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, text: str, place: str
) -> None:
    result = InstanceResult(State.FAILED, Ending.POKE_ERROR, text if place == "a reason" else "no")

    async def next_end(subscription: Any, say: Any) -> InstanceResult:
        if place == "a line":
            say(text)
        if place == "an error of the notifier":
            raise RuntimeError(text)
        return result

    tries: list[int] = []
    ours = Notifier.of_this_process()

    def of_this_process(_: Any) -> Notifier:
        tries.append(1)
        if place == "an error of the settings" and len(tries) == 1:
            raise SettingsError(text)
        return ours

    monkeypatch.setattr(notifier, "_RETRY_AFTER", 0.0)
    monkeypatch.setattr(notifier.Subscription, "next_end", next_end)
    monkeypatch.setattr(Notifier, "of_this_process", classmethod(of_this_process))
    trigger_id = deployment.defer(instance_id=deployment.instance_id)
    event = deployment.serve(trigger_id, PoolTrigger(deployment.instance_id))
    assert event["ending"] == (Ending.HANDED_BACK if place == "an error of the notifier" else Ending.POKE_ERROR)


def test_nothing_is_raised_where_a_task_is_marked(triggerer: Notifier, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []

    def cancel(*arguments: Any) -> None:
        called.append(arguments)
        raise RuntimeError(SURROGATE)

    async def waits(_: Any) -> bool:
        return False

    monkeypatch.setattr(triggerer, "cancel", cancel)
    monkeypatch.setattr(triggerer.task_states, "waits", waits)
    asyncio.run(PoolTrigger(1).on_kill())
    asyncio.run(PoolTrigger("x").on_kill())
    assert len(called) == 1


def test_a_row_of_nonsense_holds_up_no_other(deployment: Deployment) -> None:
    """Times that no calendar has, and a group that is gone."""
    waits = Registration(sensor=SENSOR, poke_context={"target_time": "2100-01-01T00:00:00Z"})
    other = deployment.pool.register_many([waits], try_out=False)[0].id
    with deployment.pool.database.engine.begin() as connection:
        statement = "UPDATE sensor_instance SET start_date = -{0}, timeout_at = {0}, group_id = {0} WHERE id = {1}"
        connection.exec_driver_sql(statement.format(2**62, other))
    deployment.end()

    async def both() -> Any:
        trigger = Told(other)
        odd = asyncio.create_task(_first(trigger))
        while not trigger.waits:
            await asyncio.sleep(0.02)
        event = await _first(PoolTrigger(deployment.instance_id, direct=True))
        odd.cancel()
        return event

    assert isinstance(asyncio.run(asyncio.wait_for(both(), PATIENCE)), TaskSuccessEvent)


async def _first(trigger: PoolTrigger) -> Any:
    async for event in trigger.run():
        return event
