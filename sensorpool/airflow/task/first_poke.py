"""The first poke, on the worker: a condition that already holds ends the task there and then.

It is a native poke, watched. What it asks for that only its task (`task_reads`) or its worker (`worker_only`) has, and
what it leaves behind, says whether the pool could make the next one.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool.airflow import compat
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof import environment, known_sensors, left, shared, supervisor, task_reads, worker_only
from sensorpool.airflow.task import deferral
from sensorpool.instrumentation.redaction import one_line


class _Leaves(BaseException):
    """The poke found nothing, and the pool may make the next. Not an Exception: a sensor that catches those must not
    catch this.
    """


class FirstPoke:
    """One poke by Airflow's own ``execute``, so that all of its rules for errors, skips and timeouts hold.

    It asks for the next interval after a poke that found nothing; here it gets `_Leaves` for an answer, or the interval
    if the pool cannot make the next poke: then it goes on as it would without sensorpool. A poke that took too long may
    have had to import what it needs on a crowded worker, so the next one is measured as well. Should Airflow ask under
    another name one day, the sensor just goes on natively.

    :param limit: the pool's time limit of a poke, in seconds: one that overruns it never lands there. None: an adapter
        pokes in the sensor's place, so it does not matter what this poke needs.
    :param register: called before it leaves: where that fails, it goes on as well.
    """

    def __init__(
        self,
        sensor: BaseSensorOperator,
        native: Callable[[Any, Any], Any],
        limit: float | None,
        register: Callable[[], object],
    ) -> None:
        self.ended = False
        self.waited = 0.0  # seconds; in reschedule mode those since its first poke
        self.began = time.time()  # when it began to wait, in seconds since 1970
        self._sensor = sensor
        self._native = native
        self._limit = limit
        self._register = register
        self._took = 0.0  # seconds
        self._is_slow = self._is_over = False
        self._ours: dict[str, Any] = {}
        self._found: list[NotPoolable] = []
        self._before: left.Picture = {}
        self._shared: shared.Picture | None = None
        self._attributes: dict[str, Any] = {}
        self.missing: set[str] = set()  # Connections and Variables that its pokes looked up and did not find
        self.of_environment: set[str] = set()  # those that they found in the environment

    def poke(self, context: Any) -> Any:
        """Poke once; return what ``execute`` returned if the task has ended with that (``ended``).

        :raises BaseException: whatever ``execute`` raises.
        """
        if not known_sensors.vouches_for_itself(type(self._sensor)):
            self._before = left.picture(self._sensor)
        self._attributes = dict(vars(self._sensor))
        if self._limit is not None:
            self._shared = shared.Picture(type(self._sensor), caches=True)
        own_poke = self._sensor.poke

        def poke(context: Any) -> Any:
            self._go_on()  # it may send itself to another process, or keep a copy
            try:
                with self._watched(context) as watched:
                    began = time.monotonic()
                    try:
                        return own_poke(watched)
                    finally:
                        self._took = time.monotonic() - began
            finally:
                self._come_back()

        self._ours = {compat.NEXT_INTERVAL: self._next_interval, "poke": poke}
        self._come_back()
        try:
            result = self._native(self._sensor, context)
            self.ended = True
            return result
        except _Leaves:
            return None
        finally:
            self._go_on()

    def _next_interval(self, started_at: Any, run_duration: Callable[[], float], poke_count: int) -> Any:
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
                deferral.keep(self._sensor, error)
            self._go_on()
            interval = getattr(self._sensor, compat.NEXT_INTERVAL)(started_at, run_duration, poke_count)
            self._come_back()
            return interval
        raise _Leaves

    def _go_on(self) -> None:
        """Let the sensor be what it is."""
        for name in self._ours:
            vars(self._sensor).pop(name, None)

    def _come_back(self) -> None:
        if not self._is_over:
            vars(self._sensor).update(self._ours)

    def _check(self) -> None:
        """Make sure that the poke needs no more than the sensor's arguments, and no longer than the pool allows.

        :raises NotPoolable: when it took longer, read the template context or the task, or changed the sensor.
        """
        if self._limit is None:
            return
        if self._found:
            raise self._found[0]
        if (why := environment.why_not(self._sensor)) is not None:
            raise NotPoolable(why, "needs_worker")  # it may have imported a library that reads more
        if (name := worker_only.bound_to_a_thread(self._left_behind())) is not None:
            raise NotPoolable(f"its poke leaves in its attribute {name} what belongs to one thread", "needs_worker")
        if not known_sensors.vouches_for_itself(type(self._sensor)):
            name = left.changed(self._before, self._sensor)
            if name is not None:
                raise NotPoolable(f"its poke changes its attribute {name}: it is stateful", "stateful")
            if self._shared is not None and (name := self._shared.changed()) is not None:
                raise NotPoolable(f"its poke changes {name}", "stateful")
        if self._took > self._limit:
            why = f"its poke took {self._took:.1f} s, and poke_timeout is {self._limit:g} s; the next is measured again"
            raise NotPoolable(why, "slow")

    def _left_behind(self) -> dict[str, Any]:
        was = self._attributes
        return {name: value for name, value in vars(self._sensor).items() if was.get(name) is not value}

    @contextmanager
    def _watched(self, context: Any) -> Iterator[Any]:
        if self._limit is None:
            yield context
            return
        watched: Any = _Watched(context, self._note("reads_context"))
        with ExitStack() as stack:
            try:
                self._watch(stack)
            except Exception as error:  # of an odd class: none of its poke
                self._note("needs_worker")(f"cannot be watched: {one_line(error)}")
            yield watched

    def _watch(self, stack: ExitStack) -> None:
        cls = type(self._sensor)
        programs = self._ignore if known_sensors.vouches_for_itself(cls) else self._note("needs_worker")
        stack.enter_context(worker_only.noting(self._note("needs_worker"), programs, self.of_environment.add))
        stack.enter_context(supervisor.noting(self._note("needs_worker"), self._looked_up))
        if not known_sensors.declares_fields(cls):
            stack.enter_context(task_reads.noting(self._sensor, self._note("reads_task")))

    def _looked_up(self, name: str, is_there: bool) -> None:
        (self.missing.discard if is_there else self.missing.add)(name)

    def _note(self, kind: str) -> Callable[[str], object]:
        return lambda what: self._found.append(NotPoolable(f"its poke {what}", kind))

    def _ignore(self, _: str) -> None:
        """Note nothing."""


class _Watched(dict[str, Any]):
    """The template context, noting what is read from it, or done to it."""

    def __init__(self, context: Mapping[str, Any], note: Callable[[str], object]) -> None:
        super().__init__()
        self._context = context
        self._note = note

    def _read(self, what: str) -> None:
        self._note(f"reads {what} from the template context")

    def __getitem__(self, name: str) -> Any:
        self._read(repr(name))
        return self._context[name]

    def get(self, name: str, default: Any = None) -> Any:
        self._read(repr(name))
        return self._context.get(name, default)

    def __contains__(self, name: object) -> bool:
        self._read(repr(name))
        return name in self._context

    def __iter__(self) -> Iterator[str]:  # ** comes this way too
        self._read("all names")
        return iter(self._context)

    def keys(self) -> Any:
        self._read("all names")
        return self._context.keys()

    def values(self) -> Any:
        self._read("all values")
        return self._context.values()

    def items(self) -> Any:
        self._read("all values")
        return self._context.items()

    def __len__(self) -> int:  # bool() comes this way too
        self._read("how much there is")
        return len(self._context)

    def _whole(method: str) -> Callable[..., Any]:  # type: ignore[misc]  # makes methods, and is none
        def call(self: "_Watched", *args: Any, **kwargs: Any) -> Any:
            self._read("all of it")
            return getattr(self._context, method)(*args, **kwargs)

        return call

    __setitem__, __delitem__, __or__, __ror__ = map(_whole, ("__setitem__", "__delitem__", "__or__", "__ror__"))
    copy, pop, popitem, setdefault, update = map(_whole, ("copy", "pop", "popitem", "setdefault", "update"))
