"""A trigger that moves to another triggerer cancels nothing where it was; a mark or a clear does."""

import asyncio
import datetime as dt
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("airflow")

from airflow.jobs import triggerer_job_runner
from airflow.jobs.job import Job
from airflow.jobs.triggerer_job_runner import TriggerRunner
from airflow.models.taskinstance import TaskInstance
from airflow.models.trigger import Trigger
from airflow.sdk import timezone
from airflow.sdk.execution_time import task_runner
from airflow.utils.session import create_session
from sqlalchemy import delete

from harness.until import PATIENCE
from sensorpool.airflow.pool import reconcile
from sensorpool.airflow.triggerer import task_states
from sensorpool.airflow.triggerer.notifier import Notifier
from sensorpool.model.states import State
from tests.airflow.deployment import Deployment
from tests.airflow.metadata import Metadata
from tests.airflow.told import Told

THRESHOLD = 30  # seconds: [triggerer] triggerer_health_check_threshold


@pytest.fixture
def deployment(triggerer: Notifier, airflow_metadata: Metadata, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    monkeypatch.setattr(reconcile, "YOUNG", -60_000)
    monkeypatch.setattr(task_states, "TIME_LIMIT", PATIENCE)  # the first answer needs many imports
    monkeypatch.setattr(triggerer_job_runner, "_ON_CANCEL_TIMEOUT", PATIENCE)
    return Deployment(triggerer.pool, airflow_metadata, "moved")


class Triggerer:
    """A triggerer: its job in Airflow's database, and its runner."""

    def __init__(self) -> None:
        self._runner = TriggerRunner()
        with create_session() as session:
            job = Job(job_type="TriggererJob", state="running", latest_heartbeat=timezone.utcnow())
            session.add(job)
            session.flush()
            self._job_id = job.id

    def stall(self) -> None:
        """Send no heartbeat for longer than the threshold."""
        with create_session() as session:
            job = session.get(Job, self._job_id)
            assert job is not None
            job.latest_heartbeat = timezone.utcnow() - dt.timedelta(seconds=2 * THRESHOLD)

    def take(self) -> None:
        """Take the triggers that are no other live triggerer's."""
        Trigger.assign_unassigned(self._job_id, 1_000, THRESHOLD)

    def has(self, trigger_id: int) -> bool:
        """Whether a trigger is this triggerer's, according to Airflow's database."""
        return trigger_id in Trigger.ids_for_triggerer(self._job_id)

    async def run(self, trigger_id: int, deployment: Deployment) -> "Running":
        """Run a trigger until it waits."""
        waiters = _waiters(deployment)
        trigger = Running(deployment.instance_id)
        trigger.task_instance = deployment.ti()  # type: ignore[assignment]
        waiting = asyncio.create_task(self._runner.run_trigger(trigger_id, trigger))
        self._runner.triggers[trigger_id] = {"task": waiting, "is_watcher": False, "name": "wait", "events": 0}
        while _waiters(deployment) == waiters:
            await asyncio.sleep(0.02)
        return trigger

    async def drop(self, trigger_id: int) -> None:
        """Cancel a trigger that is this triggerer's no more, as Airflow does in `update_triggers`."""
        assert not self.has(trigger_id)
        self._runner.to_cancel.append(trigger_id)
        await self._runner.cancel_triggers()
        with suppress(asyncio.CancelledError):
            await self._runner.triggers[trigger_id]["task"]

    async def event(self, trigger_id: int) -> Any:
        """Wait for the event of a trigger."""
        await self._runner.triggers[trigger_id]["task"]
        return self._runner.events.popleft().event


def _waiters(deployment: Deployment) -> int:
    return len(Notifier.of_this_process()._subscriptions.get(deployment.instance_id, ()))


class Running(Told):
    """A trigger that counts its kills."""

    kills = 0

    async def on_kill(self) -> None:
        """Count, and go on as a trigger of the pool."""
        self.kills += 1
        await super().on_kill()


async def dropped(deployment: Deployment, act: Callable[[Deployment], object]) -> Running:
    """Have a task wait, act on it, and return its trigger after Airflow has cancelled that."""
    triggerer, trigger_id = Triggerer(), deployment.defer(instance_id=deployment.instance_id)
    triggerer.take()
    trigger = await triggerer.run(trigger_id, deployment)
    act(deployment)
    Trigger.clean_unused()  # as a triggerer does
    await triggerer.drop(trigger_id)
    assert trigger.kills == 1
    return trigger


def state(deployment: Deployment, instance_id: int | None = None) -> State | None:
    one = instance_id or deployment.instance_id
    return deployment.pool.wait([one], 0).get(one)


def rescue(deployment: Deployment) -> None:
    worker: Any = SimpleNamespace(database=deployment.pool.database, settler=deployment.pool.settler)
    reconcile.reconcile(worker)


def run(what: Any) -> Any:
    return asyncio.run(asyncio.wait_for(what, PATIENCE))


@pytest.mark.parametrize("map_index", [-1, 3])
def test_a_triggerer_that_thaws_cancels_nothing_that_another_has_taken_over(
    deployment: Deployment, map_index: int
) -> None:
    deployment.write(map_index=map_index)

    async def thaw() -> Any:
        stalled, other = Triggerer(), Triggerer()
        trigger_id = deployment.defer(instance_id=deployment.instance_id)
        stalled.take()
        trigger = await stalled.run(trigger_id, deployment)
        stalled.stall()
        other.take()
        assert other.has(trigger_id), "the fault has not struck"
        await other.run(trigger_id, deployment)
        await stalled.drop(trigger_id)
        assert trigger.kills == 1, "the fault has not struck"
        assert state(deployment) is State.SENSING
        assert trigger.lines[-1].endswith("its task waits on elsewhere")
        rescue(deployment)
        deployment.end()
        return await other.event(trigger_id)

    assert run(thaw()).payload == {"state": "success", "ending": "landed", "reason": None}


def delete_task(deployment: Deployment) -> None:
    with create_session() as session:
        session.execute(delete(TaskInstance).where(TaskInstance.id == deployment.ti().id))


@pytest.mark.parametrize(
    "act",
    [
        lambda deployment: deployment.write(state="success"),
        lambda deployment: deployment.write(state="failed"),
        lambda deployment: deployment.write(state="scheduled"),
        lambda deployment: deployment.write(state="running"),
        delete_task,
    ],
    ids=["marked as a success", "marked as failed", "cleared", "its new try runs", "gone"],
)
@pytest.mark.parametrize("map_index", [-1, 3])
def test_a_task_that_does_not_wait_any_more_is_cancelled_at_once(
    deployment: Deployment, act: Callable[[Deployment], object], map_index: int
) -> None:
    deployment.write(map_index=map_index)
    run(dropped(deployment, act))
    assert state(deployment) is State.CANCELLED


@pytest.mark.parametrize("how", ["an error", "another answer", "no answer", "no time"])
def test_without_an_answer_rescue_cancels_what_waits_no_more(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    asked: list[Any] = []

    async def asend(_: Any, message: Any) -> Any:
        asked.append(message)
        if how == "an error":
            raise RuntimeError("Airflow's database is away")
        if how != "another answer":
            await asyncio.sleep(10 * PATIENCE)

    monkeypatch.setattr(type(task_runner.SUPERVISOR_COMMS), "asend", asend)
    if how == "no answer":
        monkeypatch.setattr(task_states, "TIME_LIMIT", 0.1)
    if how == "no time":
        monkeypatch.setattr(triggerer_job_runner, "_ON_CANCEL_TIMEOUT", 0.1)
    trigger = run(dropped(deployment, lambda deployment: deployment.write(state="failed")))
    assert len(asked) == 1
    assert state(deployment) is State.SENSING
    assert f"rescue cancels instance {deployment.instance_id} if its task does not wait" in trigger.lines[-1]
    rescue(deployment)
    assert state(deployment) is State.CANCELLED


@pytest.mark.parametrize("by", ["rescue", "the registration"])
def test_a_task_that_was_cleared_and_waits_again_leaves_no_instance_behind(deployment: Deployment, by: str) -> None:
    """Its new try is deferred before its old trigger ends."""

    def clear(deployment: Deployment) -> None:
        deployment.start_next_try()
        deployment.defer()

    run(dropped(deployment, clear))
    assert state(deployment) is State.SENSING, "Airflow says of the task that it is deferred"
    if by == "rescue":
        rescue(deployment)
    else:
        again = deployment.register(deployment.key._replace(try_number=2))
        assert again != deployment.instance_id
        assert state(deployment, again) is State.SENSING
    assert state(deployment) is State.CANCELLED
