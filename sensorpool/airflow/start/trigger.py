"""The trigger of a sensor that starts without a worker: it renders, registers, and waits as `PoolTrigger` does.

At any doubt it sends the task to a worker, where the task starts as it would without a blueprint (`task.sensor_task`).
Airflow's triggerer ends, with all tasks that wait there, at an error from a trigger's constructor, and fails the task
at an error from its `run`: so neither raises.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from airflow.triggers.base import BaseTrigger, TaskSuccessEvent, TriggerEvent

from sensorpool.airflow.compat import task_runtime
from sensorpool.airflow.errors import NotPoolable, reason_for, reason_to_begin
from sensorpool.airflow.result import START_ON_WORKER, START_ON_WORKER_KIND, STARTED
from sensorpool.airflow.start.blueprint import Blueprint
from sensorpool.airflow.start.registrar import Registrar, Waiting
from sensorpool.airflow.task.deferral import airflow_settings, key_of
from sensorpool.airflow.trigger import NO_TURN, PoolTrigger, one_log_line
from sensorpool.airflow.triggerer.notifier import Notifier
from sensorpool.errors import Unreachable
from sensorpool.instrumentation.redaction import error_text

LIMIT = 60.0  # seconds from its start until it waits in the pool; after that its task goes to a worker
RETRY_AFTER = 3.0  # seconds between two attempts to reach the pool


class StartTrigger(BaseTrigger):
    """Starts a sensor in the pool, and waits for its end.

    :param blueprint: the text of a `Blueprint`; with an odd one the task starts on a worker.
    """

    supports_triggerer_queue = False

    def __init__(self, blueprint: Any = None, **_: Any) -> None:
        super().__init__()
        self.blueprint = blueprint if isinstance(blueprint, str) else ""
        self._context: Any = None  # the template context, if the triggerer has made one
        self._pool_trigger: PoolTrigger | None = None
        self._away = ""  # why the pool cannot be reached, if so

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return class path and arguments."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {"blueprint": self.blueprint}

    def render_template_fields(self, context: Any, jinja_env: Any = None) -> None:  # noqa: ARG002  # Airflow's signature
        """Keep the context: Airflow's own rendering here takes unknown names for empty texts."""
        self._context = context

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait for the end of the sensor; the task's log gets a line for each change."""
        try:
            event = await self._event()
        except Exception as error:
            event = self._to_worker(reason_for(error), error)
        if START_ON_WORKER in (event.payload if isinstance(event.payload, dict) else ()):
            await self._turn()
        yield event

    async def _turn(self) -> None:
        """Wait for the turn of an event (`triggerer.pace`): without the pool thousands go to workers at once."""
        with suppress(Exception):
            async with asyncio.timeout(NO_TURN):
                notifier = await Notifier.made()
            await asyncio.sleep(notifier.pace.delay(time.monotonic()))

    async def on_kill(self) -> None:
        """Cancel the instance if its task was marked or cleared, as `PoolTrigger` does.

        One whose registration is still under way is cancelled by rescue.
        """
        try:
            waiting = self._pool_trigger or await self._registered()
        except Exception as error:
            self._warn(f"sensorpool: rescue cancels what its task waits for: {error_text(error)}")
            return
        if waiting is not None:
            await waiting.on_kill()

    async def _registered(self) -> PoolTrigger | None:
        """Return a trigger for the instance that the registrar has just made; None if there is none."""
        notifier = await Notifier.ready(self._warn)
        ti: Any = self.task_instance
        instance_id = await Registrar.of(notifier).instance_of(key_of(ti), str(ti.id))
        return None if instance_id is None else self._waits_for(instance_id)

    def _waits_for(self, instance_id: int, direct: bool = False, registered_at: float = 0.0) -> PoolTrigger:
        waits = PoolTrigger(instance_id, direct, registered_at)
        waits.task_instance = self.task_instance
        return waits

    async def _event(self) -> TriggerEvent:
        began = time.time()
        try:
            async with asyncio.timeout(LIMIT):
                waiting = await self._begin()
        except TimeoutError:
            return self._to_worker(self._away or f"it could not be registered in {LIMIT:g} s")
        except Exception as error:
            return self._to_worker(reason_for(error), error)
        # one that has ended may have been on a worker in this try, a moment ago: see `resume_hold`
        registered_at = began if waiting.has_ended else 0.0
        self._pool_trigger = self._waits_for(waiting.instance_id, waiting.direct, registered_at)
        self._let_go()
        async for event in self._pool_trigger.run():
            if not isinstance(event, TaskSuccessEvent) and isinstance(event.payload, dict):
                event.payload = {**event.payload, STARTED: waiting.started or began, **waiting.resume_arguments}
            return event
        return self._to_worker("its trigger ended without an event")

    def _let_go(self) -> None:
        """Free the template context and the DAG, which Airflow holds until the end: thousands of triggers wait."""
        context, self._context = self._context, None
        if isinstance(context, dict):
            context.clear()
        with suppress(Exception):  # a triggerer that has made no context gives a task instance without a task
            self.task_instance.task = None

    async def _begin(self) -> Waiting:
        notifier = await Notifier.ready(self._warn)
        blueprint = Blueprint.read(self.blueprint)
        ti: Any = self.task_instance
        if task_runtime.is_in_loop(ti):
            raise NotPoolable("it is in a loop, and the pool would take its rounds for one task", "loop")
        ignores_listeners = airflow_settings().listeners == "ignore"
        direct = blueprint.direct and (ignores_listeners or not await asyncio.to_thread(task_runtime.has_listeners))
        waiting = await self._register(Registrar.of(notifier), blueprint)
        self.log.info(
            "sensorpool: waits in the pool as instance %s%s; it has taken no worker slot.",
            waiting.instance_id,
            ", where others wait for the same" if waiting.joined_others else "",
        )
        return waiting._replace(direct=direct)

    async def _register(self, registrar: Registrar, blueprint: Blueprint) -> Waiting:
        """Register; a pool that cannot be reached may come back: all would go to workers when its database restarts."""
        ti: Any = self.task_instance
        while True:
            try:
                return await registrar.begin(blueprint, key_of(ti), str(ti.id), self._context)
            except Unreachable as error:
                if not self._away:
                    self._warn(f"sensorpool: the triggerer cannot reach the pool, and tries again: {error}")
                self._away = error_text(error)
            await asyncio.sleep(RETRY_AFTER)

    def _to_worker(self, why: str, error: Exception | None = None) -> TriggerEvent:
        self._warn(f"sensorpool: starts on a worker: {why}")
        kind = reason_to_begin(error.kind) if isinstance(error, NotPoolable) else "pool"
        return TriggerEvent({START_ON_WORKER: one_log_line(why), START_ON_WORKER_KIND: kind})

    def _warn(self, line: str) -> None:
        self.log.warning("%s", one_log_line(line))
