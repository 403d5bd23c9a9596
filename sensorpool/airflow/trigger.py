"""The trigger that a task waits in: a letter box of the triggerer's one hub."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TaskSuccessEvent, TriggerEvent

from sensorpool.airflow.hub import Hub
from sensorpool.states import State


class PoolTrigger(BaseTrigger):
    """Waits for one instance of the pool.

    :param instance_id: the instance.
    :param direct: whether a success may be written without a worker (`poolable.ends_directly`).
    :param registered_at: seconds since 1970, by the worker's clock.
    """

    supports_triggerer_queue = False  # the task's queue is for workers; any triggerer has a hub

    def __init__(self, instance_id: int, direct: bool = False, registered_at: float = 0.0, **_: Any) -> None:
        # another version's worker may say more
        super().__init__()
        self.instance_id = instance_id
        self.direct = direct
        self.registered_at = registered_at

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return class path and arguments."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            "instance_id": self.instance_id,
            "direct": self.direct,
            "registered_at": self.registered_at,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait; what is heard of the instance meanwhile goes to the task's log."""
        hub = await Hub.come_by(self.log.warning)
        box = hub.join(self.instance_id)
        try:
            while (end := await box.next_end(self.log.info)) is None:
                pass
        finally:
            hub.leave(box)
        self.log.info("sensorpool: instance %s ended: %s", self.instance_id, end.ending)
        # Airflow 3.3 writes the XComs of an end event as JSON within JSON: with a value, the task resumes
        if self.direct and end.state is State.SUCCESS and end.xcom_value is None:
            self.log.info("Success criteria met. Exiting.")
            yield TaskSuccessEvent()
            return
        # A resume within seconds of the deferral can be marked failed: "state mismatch" (Airflow 3.3).
        hold = hub.settings.resume_hold
        await asyncio.sleep(min(hold, max(0.0, self.registered_at + hold - time.time())))
        await hub.api_server.comes(self.log.warning)
        yield TriggerEvent(end.as_payload())

    async def on_kill(self) -> None:
        """Cancel the instance: somebody marked or cleared the task."""
        hub = await Hub.come_by(self.log.warning)
        await asyncio.to_thread(hub.cancel, self.instance_id, "its task was marked or cleared in Airflow")
