"""The first poke, on the worker: a condition that already holds ends the task there and then."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool.airflow import compat, known, own_names, rebuild
from sensorpool.airflow.refusal import NotPoolable


class _NotLanded(BaseException):
    """The poke found nothing. Not an Exception: a sensor that catches those must not catch this."""


class FirstPoke:
    """One poke by Airflow's own ``execute``, so that all of its rules for errors, skips and timeouts hold.

    It asks for the next interval after a poke that found nothing; here it gets `_NotLanded` for an answer. Should
    Airflow ask under another name one day, the sensor just goes on natively.
    """

    def __init__(self, sensor: BaseSensorOperator, native: Callable[[Any, Any], Any]) -> None:
        self.landed = False
        self.waited = 0.0  # seconds; in reschedule mode those since its first poke
        self._sensor = sensor
        self._native = native
        self._took = 0.0  # seconds
        self._read: list[str] = []
        self._changed: list[str] = []

    def poke(self, context: Any) -> Any:
        """Poke once; return what ``execute`` returned if it landed.

        :raises BaseException: whatever ``execute`` raises.
        """
        before = rebuild.state_of(self._sensor)
        with self._shadowed():
            try:
                result = self._native(self._sensor, context)
                self.landed = True
                return result
            except _NotLanded:
                pass
        after = rebuild.state_of(self._sensor)
        self._changed = [name for name in before if name in after and before[name] != after[name]]
        return None

    def check(self, limit: float) -> None:
        """Make sure that the poke needs no more than the sensor's arguments, and no longer than the pool allows.

        :param limit: the pool's time limit of a poke, in seconds: one that overruns it never lands there.
        :raises NotPoolable: when it took longer, read the template context or the task, or changed the sensor.
        """
        if self._took > limit:
            raise NotPoolable(f"its poke took {self._took:.1f} s, and poke_timeout is {limit:g} s", "slow")
        if self._read:
            raise NotPoolable(f"its poke reads {self._read[0]} from the template context", "reads_context")
        if known.vouches_for_itself(type(self._sensor)):
            return
        if self._changed:
            raise NotPoolable(f"its poke changes its attribute {self._changed[0]}: it is stateful", "stateful")
        if asked := own_names.read_by(type(self._sensor)):
            raise NotPoolable(f"its poke asks for its {asked}, which only its task has", "reads_task")

    @contextmanager
    def _shadowed(self) -> Iterator[None]:
        attributes, own_poke = vars(self._sensor), self._sensor.poke

        def next_interval(_: Any, run_duration: Callable[[], float], *__: Any) -> float:
            self.waited = run_duration()
            raise _NotLanded

        def poke(context: Any) -> Any:
            began = time.monotonic()
            try:
                return own_poke(_Watched(context, self._read))
            finally:
                self._took = time.monotonic() - began

        attributes[compat.NEXT_INTERVAL] = next_interval
        attributes["poke"] = poke
        try:
            yield
        finally:
            del attributes[compat.NEXT_INTERVAL], attributes["poke"]


class _Watched(dict[str, Any]):
    """The template context, noting what is read from it, or done to it."""

    def __init__(self, context: Mapping[str, Any], read: list[str]) -> None:
        super().__init__()
        self._context = context
        self._read = read

    def __getitem__(self, name: str) -> Any:
        self._read.append(repr(name))
        return self._context[name]

    def get(self, name: str, default: Any = None) -> Any:
        self._read.append(repr(name))
        return self._context.get(name, default)

    def __contains__(self, name: object) -> bool:
        self._read.append(repr(name))
        return name in self._context

    def __iter__(self) -> Iterator[str]:  # ** comes this way too
        self._read.append("all names")
        return iter(self._context)

    def keys(self) -> Any:
        self._read.append("all names")
        return self._context.keys()

    def values(self) -> Any:
        self._read.append("all values")
        return self._context.values()

    def items(self) -> Any:
        self._read.append("all values")
        return self._context.items()

    def __len__(self) -> int:  # bool() comes this way too
        self._read.append("how much there is")
        return len(self._context)

    def _whole(method: str) -> Callable[..., Any]:  # type: ignore[misc]  # makes methods, and is none
        def call(self: "_Watched", *args: Any, **kwargs: Any) -> Any:
            self._read.append("all of it")
            return getattr(self._context, method)(*args, **kwargs)

        return call

    __setitem__, __delitem__, __or__, __ror__ = map(_whole, ("__setitem__", "__delitem__", "__or__", "__ror__"))
    copy, pop, popitem, setdefault, update = map(_whole, ("copy", "pop", "popitem", "setdefault", "update"))
