"""The triggers in which a task waits: `PoolTrigger` for an instance, `PauseTrigger` for its next poke on a worker.

Airflow passes what a trigger raises, logs or fires between its processes and into its database. A value that cannot
pass ends the triggerer with all tasks that wait there. So a trigger raises nothing, and logs printable lines only.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from airflow.triggers.base import BaseTrigger, TaskSuccessEvent, TriggerEvent

from sensorpool.airflow.result import NEXT_POKE, InstanceResult
from sensorpool.airflow.triggerer.instance_owner import ti_id_of
from sensorpool.airflow.triggerer.notifier import Notifier
from sensorpool.instrumentation.redaction import one_line, printable
from sensorpool.model.states import State

_LONGEST_LINE = 2_000  # characters
_LONGEST_SLEEP = 60.0  # seconds: a clock that was set is noticed
_CANCELS_WITHIN = 60.0  # seconds until it is left to rescue
NO_TURN = 5.0  # seconds: where settings hang there is no turn to wait for


_cancelling: set[asyncio.Future[None]] = set()  # an event loop has only weak references to its tasks


def _has_cancelled(work: asyncio.Future[None]) -> None:
    _cancelling.discard(work)
    if not work.cancelled():
        work.exception()  # asyncio logs an error that is not asked for


def one_log_line(line: str) -> str:
    """Return a line of a bounded length that every JSON column and pipe takes."""
    return printable(line)[:_LONGEST_LINE]


class PoolTrigger(BaseTrigger):
    """Waits for one instance of the pool. Its arguments come from Airflow's database: odd ones raise nothing.

    :param instance_id: the id of the instance; with an odd one the task runs natively.
    :param direct: whether a success may be written without a worker (`poolable.ends_directly`).
    :param registered_at: seconds since 1970, by the worker's clock.
    :param at_gate: whether the task's own poke follows a landing (`task.gate`).
    """

    supports_triggerer_queue = False  # the task's queue is one for workers; any triggerer will do

    def __init__(
        self,
        instance_id: Any = None,
        direct: Any = False,
        registered_at: Any = 0.0,
        at_gate: Any = False,
        **_: Any,
    ) -> None:
        # the worker of another version may give more arguments
        super().__init__()
        self.instance_id: int = instance_id if type(instance_id) is int and 0 < instance_id < 2**63 else 0
        self.direct = direct is True
        self.at_gate = at_gate is True
        self.registered_at = registered_at if isinstance(registered_at, float) and math.isfinite(registered_at) else 0.0

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return class path and arguments."""
        arguments = {"instance_id": self.instance_id, "direct": self.direct, "registered_at": self.registered_at}
        if self.at_gate:
            arguments["at_gate"] = True
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait for the end of the instance; the task's log gets a line for each change."""
        try:
            event = await self._event()
        except Exception as error:
            self._warn(f"sensorpool: the task goes back to its worker: {one_line(error)}")
            event = TriggerEvent(
                InstanceResult.handed_back(f"its trigger could not wait: {one_line(error)}").as_payload()
            )
        yield event

    async def on_kill(self) -> None:
        """Cancel the instance if its task was marked or cleared, and not if another triggerer has the trigger now.

        Where Airflow does not say which it is, nothing is cancelled: rescue looks at the task (`pool.reconcile`).
        """
        if not self.instance_id:
            return
        later = f"sensorpool: rescue cancels instance {self.instance_id} if its task does not wait any more"
        work = asyncio.ensure_future(self._cancel())
        _cancelling.add(work)
        work.add_done_callback(_has_cancelled)
        try:
            # Airflow cancels a trigger again each second until it has ended, and its first answer may take longer
            await asyncio.shield(work)
        except Exception as error:
            self._warn(f"{later}: {one_line(error)}")
        except asyncio.CancelledError:
            self._warn(f"{later}: Airflow has not answered yet")
            raise

    async def _cancel(self) -> None:
        async with asyncio.timeout(_CANCELS_WITHIN):  # nothing else ends it where the pool's settings cannot be read
            notifier = await Notifier.ready(self._warn)
        if await notifier.task_states.waits(self.task_instance):
            self._say(f"sensorpool: this triggerer leaves instance {self.instance_id}: its task waits on elsewhere")
        else:
            why = "its task was marked or cleared in Airflow"
            await asyncio.to_thread(notifier.cancel, self.instance_id, why, ti_id_of(self.task_instance))

    async def _event(self) -> TriggerEvent:
        notifier = await Notifier.ready(self._warn)
        end = await self._end(notifier)
        self._say(f"sensorpool: instance {self.instance_id} ended: {end.ending}")
        # Airflow 3.3 writes the XComs of an end event as JSON within JSON: a task with a value resumes
        if self.direct and end.state is State.SUCCESS and end.value_of is None:
            self._say("Success criteria met. Exiting.")
            await asyncio.sleep(notifier.pace.delay(time.monotonic()))
            return TaskSuccessEvent()
        # A resume within seconds of the deferral can be marked failed: "state mismatch" (Airflow 3.3).
        hold = notifier.settings.resume_hold
        await asyncio.sleep(min(hold, max(0.0, self.registered_at + hold - time.time())))
        await notifier.api_server.available(self._warn)
        await asyncio.sleep(notifier.pace.delay(time.monotonic()))
        return TriggerEvent(end.as_payload(at_gate=self.at_gate))

    async def _end(self, notifier: Notifier) -> InstanceResult:
        if not self.instance_id:
            return InstanceResult.handed_back("its trigger names no instance of the pool")
        subscription = notifier.subscribe(self.instance_id, ti_id_of(self.task_instance))
        try:
            while (end := await subscription.next_end(self._say)) is None:
                pass
            return end
        finally:
            notifier.unsubscribe(subscription)

    def _say(self, line: str) -> None:
        self.log.info("%s", one_log_line(line))

    def _warn(self, line: str) -> None:
        self.log.warning("%s", one_log_line(line))


class PauseTrigger(BaseTrigger):
    """Waits until a sensor that pokes on workers has its next poke there, in the place of Airflow's own reschedule.

    :param due: seconds since 1970, by the worker's clock; an odd one is now.
    """

    supports_triggerer_queue = False

    def __init__(self, due: Any = 0.0, **_: Any) -> None:
        super().__init__()
        self.due = due if isinstance(due, float) and math.isfinite(due) else 0.0

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return class path and arguments."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {"due": self.due}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait; the event hands the task back, so that workers of any version poke."""
        while (left := self.due - time.time()) > 0:
            await asyncio.sleep(min(left, _LONGEST_SLEEP))
        with suppress(Exception):  # it pokes on a worker, whether the pool can be reached or not
            async with asyncio.timeout(NO_TURN):
                notifier = await Notifier.made()
            await notifier.api_server.available(lambda line: self.log.warning("%s", one_log_line(line)))
            await asyncio.sleep(notifier.pace.delay(time.monotonic()))
        yield TriggerEvent(InstanceResult.handed_back(NEXT_POKE).as_payload())
