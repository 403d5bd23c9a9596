"""The registrar of a triggerer process: it renders and registers the sensors that start without a worker.

A scheduler defers hundreds of tasks at once. Their templates are rendered on threads of our own, because a template may
ask the API server for a Variable, and the loop of all triggers must not wait. Sensors whose templates ask for nothing
have threads for themselves: a secrets backend that hangs does not hold them up. So have a company's classes, for their
constructors may do anything. One more thread registers: all that are rendered by then go into one transaction.
"""

import asyncio
import os
import queue
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, ClassVar, NamedTuple

from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.start import templates
from sensorpool.airflow.start.blueprint import Blueprint
from sensorpool.airflow.start.registration import Prepared, prepare, resume_arguments_of
from sensorpool.airflow.start.renderers import Renderers
from sensorpool.airflow.task.deferral import sensing
from sensorpool.airflow.triggerer.notifier import Notifier
from sensorpool.client.pool import Pool
from sensorpool.errors import Unreachable
from sensorpool.model.states import State
from sensorpool.model.values import Key, Registered
from sensorpool.store import inspecting, pruning

_LOOKUPS = ("var", "conn", "macros")  # names by which a template may ask a server
_AT_ONCE = 1_000


class Waiting(NamedTuple):
    """A sensor that waits in the pool.

    :param started: when it began to wait, in seconds since 1970; None for one that was registered just now.
    :param resume_arguments: for the resume method of its task.
    :param has_ended: whether it had ended before its trigger began.
    """

    instance_id: int
    started: float | None
    joined_others: bool
    resume_arguments: Mapping[str, Any]
    direct: bool = False
    has_ended: bool = False


class Registrar:
    """The registrar of a process."""

    _of_processes: ClassVar[dict[int, "Registrar"]] = {}
    _making = threading.Lock()

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._plain, self._asking, self._companys = map(Renderers, ("plain", "asking", "companys"))
        self._prepared: queue.SimpleQueue[tuple[Prepared, Future[Registered]]] = queue.SimpleQueue()
        threading.Thread(target=self._register, name="sensorpool-start-register", daemon=True).start()

    @classmethod
    def of(cls, notifier: Notifier) -> "Registrar":
        """Return this process's registrar."""
        with cls._making:
            found = cls._of_processes.get(os.getpid())
            if found is None:
                found = cls._of_processes[os.getpid()] = cls(notifier.pool)
            return found

    async def begin(self, blueprint: Blueprint, key: Key, external_id: str, context: Any) -> Waiting:
        """Register a sensor, or join it if an earlier trigger of this try has registered it.

        :param external_id: the id of the try of its task instance.
        :param context: the template context; None where Airflow has made none.
        :raises NotPoolable: when it has to start on a worker.
        :raises SensorpoolError: when it cannot be registered.
        :raises Exception: whatever its templates and its constructor raise.
        """
        renderers = self._companys if blueprint.dag_file else self._asking if _asks(blueprint) else self._plain
        prepared = await renderers.run(partial(self._prepare, blueprint, key, external_id, context))
        if isinstance(prepared, Waiting):
            return prepared
        future: Future[Registered] = Future()
        self._prepared.put((prepared, future))
        instance = sensing(await asyncio.wrap_future(future))
        return Waiting(instance.id, None, not instance.opened, prepared.resume_arguments)

    async def instance_of(self, key: Key, external_id: str) -> int | None:
        """Return the id of the instance of a try; None if there is none.

        :raises Unreachable: when the database does not answer.
        """
        known = await asyncio.to_thread(self._pool.database.read, inspecting.of_key, key)
        return known.id if known is not None and known.external_id == external_id else None

    def _prepare(self, blueprint: Blueprint, key: Key, external_id: str, context: Any) -> Prepared | Waiting:
        known = self._pool.database.read(inspecting.of_key, key)
        if known is not None and known.external_id != external_id:
            self._pool.database.run(pruning.forget_earlier_lives, key, external_id)
            known = self._pool.database.read(inspecting.of_key, key)
        if known is not None:
            if known.external_id != external_id:
                raise NotPoolable(f"the pool knows a task of the same name and run as instance {known.id}", "pool")
            arguments = resume_arguments_of(blueprint, known)
            return Waiting(known.id, known.start_date / 1000, False, arguments, has_ended=known.state != State.SENSING)
        if context is None:
            why = "its triggerer has no template context: its DAG has changed since it was deferred"
            raise NotPoolable(why, "context")
        return prepare(self._pool, blueprint, key, external_id, context)

    def _register(self) -> None:
        while True:
            some = [self._prepared.get()]
            while len(some) < _AT_ONCE and not self._prepared.empty():
                some.append(self._prepared.get())
            self._register_some([each for each in some if each[1].set_running_or_notify_cancel()])

    def _register_some(self, some: list[tuple[Prepared, Future[Registered]]]) -> None:
        if not some:
            return
        try:
            instances = self._pool.register_checked([prepared.checked for prepared, _ in some])
        except Exception as error:
            if len(some) == 1 or isinstance(error, Unreachable):
                for _, future in some:
                    future.set_exception(error)
            else:  # one of them is refused: the others go on
                middle = len(some) // 2
                self._register_some(some[:middle])
                self._register_some(some[middle:])
            return
        for (_, future), instance in zip(some, instances, strict=True):
            future.set_result(instance)


def _asks(blueprint: Blueprint) -> bool:
    """Whether a template may ask a server for something."""
    fields = [blueprint.arguments.get(name) for name in blueprint.templated]
    return any(templates.may_name(value, name) for value in fields for name in _LOOKUPS)
