"""The first poke, on the worker: a condition that already holds ends the task at once.

It is a native poke, and watched. Its requests that only its task (`task_reads`) or its worker (`worker_only`) can
answer, and the changes that it makes, decide whether the pool can make the next poke.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool.airflow.compat import operators
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof import known_sensors
from sensorpool.airflow.proof.gates import Gate
from sensorpool.airflow.proof.state import sensor_state
from sensorpool.airflow.proof.state.judged_class import judged_class_of
from sensorpool.airflow.proof.state.sensor_state import Snapshot
from sensorpool.airflow.proof.state.shared_state import SharedState
from sensorpool.airflow.proof.watch import (
    callable_context,
    company_hooks,
    environment_reads,
    passing_changes,
    pushed_xcoms,
    supervisor_requests,
    task_reads,
    worker_only,
)
from sensorpool.airflow.proof.watch.company_hooks import CompanyHooks
from sensorpool.airflow.proof.watch.context_reads import PushingContext, WatchedContext
from sensorpool.airflow.task import deferral, own_deferral
from sensorpool.instrumentation.redaction import one_line


class _LeaveSlot(BaseException):
    """The poke found nothing, and the pool can make the next one.

    Not an Exception: a sensor that catches exceptions must not catch this one.
    """


class FirstPoke:
    """One poke by Airflow's own ``execute``, so that all of its rules for errors, skips and timeouts hold.

    After a poke that found nothing ``execute`` asks for the next interval. Here that raises `_LeaveSlot`, or returns
    the interval if the pool cannot make the next poke: then the sensor goes on as it would without sensorpool. A slow
    poke may have had imports to make on a crowded worker, so the next one is measured as well. Should Airflow give the
    method for the interval another name one day, the sensor just goes on natively.

    :param limit: the pool's time limit of a poke, in seconds; a poke that overruns it never lands in the pool. None
        where this poke is not watched: of a sensor with an adapter, which pokes in its place, its needs do not matter.
    :param register: called before the task leaves its slot; if it fails, the sensor goes on natively.
    :param given: names of the template context that the pool has as well.
    :param gate: at which the sensor waits in the pool; None if it needs none.
    """

    def __init__(
        self,
        sensor: BaseSensorOperator,
        native: Callable[[Any, Any], Any],
        limit: float | None,
        register: Callable[[], object],
        given: frozenset[str] = frozenset(),
        gate: Gate | None = None,
    ) -> None:
        self.ended = self.is_watched = False
        self.refused = False  # whether a deferrable sensor has to defer by itself
        self.waited = 0.0  # seconds; in reschedule mode since the first poke of the try
        self.began = time.time()  # start of the wait, in seconds since 1970
        self._sensor = sensor
        # the pool's poke at a gate has other arguments in the place of functions
        self._class = type(sensor) if gate is not None and gate.instead else judged_class_of(sensor)
        self._pushes = gate is not None and gate.pushes
        self._native = native
        self._limit = limit
        self._register = register
        self._given = given
        self._took = 0.0  # seconds
        self._is_slow = self._is_over = False
        self._patches: dict[str, Any] = {}
        self._theirs: dict[str, Any] = {}  # what the patches cover: a sensor that has waited already has some
        self._reasons: list[NotPoolable] = []
        self._before: Snapshot = {}
        self._shared: SharedState | None = None
        self._of_reviewed: list[NotPoolable] = []  # reasons against the code of a company in a reviewed sensor
        self._attributes: dict[str, Any] = {}
        self.hears_lookups = False  # whether its poke's lookups were noted
        self.missing: set[str] = set()  # Connections and Variables that no poke has found
        self.of_environment: set[str] = set()  # those that a poke found in the environment
        self.hooks = CompanyHooks(caches=True)

    def poke(self, context: Any) -> Any:
        """Poke once; if the task has ended with that (``ended``), return what ``execute`` returned.

        :raises BaseException: whatever ``execute`` raises.
        """
        self.is_watched = self._limit is not None
        if not known_sensors.is_stateless(self._class):
            self._before = sensor_state.snapshot(self._sensor)
        self._attributes = dict(vars(self._sensor))
        if self._limit is not None:
            self._shared = SharedState(self._class, caches=True)
        own_poke, attributes = self._sensor.poke, vars(self._sensor)

        def poke(context: Any) -> Any:
            self._unpatch()  # the sensor may send itself to another process, or keep a copy
            try:
                with self._watched(context) as watched:
                    began = time.monotonic()
                    try:
                        return own_poke(watched)
                    finally:
                        self._took = time.monotonic() - began
            finally:
                self._patch()

        self._patches = {operators.NEXT_INTERVAL: self._next_interval, "poke": poke}
        self._theirs = {name: attributes[name] for name in self._patches if name in attributes}
        self._patch()
        try:
            result = self._native(self._sensor, context)
            self.ended = True
            return result
        except _LeaveSlot:
            return None
        finally:
            self._unpatch()

    def _next_interval(self, started_at: Any, run_duration: Callable[[], float], poke_count: int) -> Any:
        callable_context.put_back(self._sensor, self._attributes)
        try:
            self._check()
            self.waited = run_duration()
            self.began = time.time() - self.waited
            self._register()
        except Exception as error:
            was_slow, self._is_slow = self._is_slow, getattr(error, "kind", None) == "slow"
            if not self._is_slow:
                self._is_over = True
            if not (was_slow and self._is_slow):
                deferral.report_native(self._sensor, error)
            if own_deferral.is_aside(self._sensor):
                self.refused = True
                raise _LeaveSlot from None
            self._unpatch()
            interval = getattr(self._sensor, operators.NEXT_INTERVAL)(started_at, run_duration, poke_count)
            self._patch()
            return interval
        raise _LeaveSlot

    def _unpatch(self) -> None:
        for name in self._patches:
            vars(self._sensor).pop(name, None)
        vars(self._sensor).update(self._theirs)

    def _patch(self) -> None:
        if not self._is_over:
            vars(self._sensor).update(self._patches)

    def _check(self) -> None:
        """Check that the poke needs no more than the sensor's arguments, and no longer than the pool allows.

        :raises NotPoolable: when it took longer, read the template context or the task, or changed something.
        """
        if self._limit is None:
            return
        if self._reasons:
            raise self._reasons[0]
        if self.hooks and self._of_reviewed:
            raise self._of_reviewed[0]
        if (why := environment_reads.reason_against(self._sensor, self.hooks)) is not None:
            raise NotPoolable(why, "needs_worker")  # the poke may have imported a library that reads more
        if (name := worker_only.bound_to_a_thread(self._new_values())) is not None:
            raise NotPoolable(f"its poke leaves in its attribute {name} what belongs to one thread", "needs_worker")
        if not known_sensors.is_stateless(self._class):
            name = sensor_state.changed_attribute(self._before, self._sensor)
            if name is not None:
                raise NotPoolable(f"its poke changes its attribute {name}: it is stateful", "stateful")
            if self._shared is not None and (name := self._shared.changed()) is not None:
                raise NotPoolable(f"its poke changes {name}", "stateful")
        if (name := self.hooks.changed()) is not None:
            raise NotPoolable(f"its poke changes {name}", "stateful")
        if self._took > self._limit:
            why = f"its poke took {self._took:.1f} s, and poke_timeout is {self._limit:g} s; the next is measured again"
            raise NotPoolable(why, "slow")

    def _new_values(self) -> dict[str, Any]:
        was = self._attributes
        return {name: value for name, value in vars(self._sensor).items() if was.get(name) is not value}

    @contextmanager
    def _watched(self, context: Any) -> Iterator[Any]:
        if self._limit is None:
            yield context
            return
        kind = PushingContext if self._pushes else WatchedContext
        watched: Any = kind(context, self._note("reads_context"), self._given)
        with ExitStack() as stack:
            try:
                self._watch(stack)
            except Exception as error:  # an odd class; the error is none of its poke
                self._note("needs_worker")(f"cannot be watched: {one_line(error)}")
            yield watched if self._class is type(self._sensor) else callable_context.CallableContext(watched, context)

    def _watch(self, stack: ExitStack) -> None:
        cls = self._class
        declares, is_reviewed = known_sensors.declares_fields(cls), known_sensors.is_reviewed(cls)
        note, note_shared = self._note("needs_worker"), self._note("stateful")
        programs = self._ignore if declares else self._note("needs_worker", self._of_reviewed) if is_reviewed else note
        stack.enter_context(worker_only.noting(note, programs, self.of_environment.add))
        requests, reads = (pushed_xcoms.MESSAGES, pushed_xcoms.READS) if self._pushes else (frozenset(), frozenset())
        self.hears_lookups = stack.enter_context(supervisor_requests.noting(note, self._looked_up, requests))
        if declares:
            return
        stack.enter_context(task_reads.noting(self._sensor, self._note("reads_task"), reads))
        follow = stack.enter_context(passing_changes.noting(note, note_shared))
        if self._shared is not None and not is_reviewed:
            follow(cls, self._shared.extend)
        stack.enter_context(company_hooks.noting(self._sensor, self.hooks, note, follow))

    def _looked_up(self, name: str, is_there: bool) -> None:
        (self.missing.discard if is_there else self.missing.add)(name)

    def _note(self, kind: str, reasons: list[NotPoolable] | None = None) -> Callable[[str], object]:
        noted = self._reasons if reasons is None else reasons
        return lambda what: noted.append(NotPoolable(f"its poke {what}", kind))

    def _ignore(self, _: str) -> None:
        """Note nothing."""
