"""The template context for a sensor that calls a function among its arguments, as `PythonSensor` does.

Such a sensor adds names of its own (``op_kwargs``), and asks of each parameter of the function whether there is a value
for it. That says nothing of the task, as long as only added names are found. What Airflow's context has is another
matter, and is noted on the worker and denied in the pool by the context within.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool.airflow.compat import task_runtime
from sensorpool.airflow.proof import known_sensors


class CallableContext(dict[str, Any]):
    """Has the names that a poke adds; all other reads and changes go to the context within.

    :param within: notes or denies reads.
    :param native: on a worker, the template context, which gets the added names as well.
    """

    def __init__(self, within: Any, native: Any = None) -> None:
        super().__init__()
        self._within = within
        self._native = native
        self._added: dict[str, Any] = {}
        self._known = task_runtime.template_names() | frozenset(native or ())

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Add names."""
        added = dict(*args, **kwargs)
        self._added.update(added)
        if self._native is not None:
            self._native.update(added)

    def __getitem__(self, name: str) -> Any:
        if name in self._added:
            return self._added[name]
        if name in self._known:
            return self._within[name]
        raise KeyError(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a name."""
        if name in self._added:
            return self._added[name]
        return self._within.get(name, default) if name in self._known else default

    def __contains__(self, name: object) -> bool:
        return name in self._added or (name in self._known and name in self._within)

    def __bool__(self) -> bool:
        return True  # Airflow's context is never empty

    def __len__(self) -> int:
        return len(self._within)

    def __iter__(self) -> Iterator[str]:  # ** comes this way too
        return iter(self._within)

    def _whole(method: str) -> Callable[..., Any]:  # type: ignore[misc]  # it makes methods, and is no method
        def call(self: "CallableContext", *args: Any, **kwargs: Any) -> Any:
            return getattr(self._within, method)(*args, **kwargs)

        return call

    keys, values, items = map(_whole, ("keys", "values", "items"))
    __setitem__, __delitem__, __or__, __ror__ = map(_whole, ("__setitem__", "__delitem__", "__or__", "__ror__"))
    __ior__, copy, pop, popitem = map(_whole, ("__ior__", "copy", "pop", "popitem"))
    setdefault, clear = map(_whole, ("setdefault", "clear"))


def put_back(sensor: BaseSensorOperator, attributes: Mapping[str, Any]) -> None:
    """Put back the attributes that a poke has set anew from the arguments (`known_sensors.set_anew`).

    The next poke works them out again; what it is compared with is what the sensor was built with.

    :param attributes: those before the poke.
    """
    for name in known_sensors.set_anew(type(sensor)):
        if name in attributes:
            vars(sensor)[name] = attributes[name]


def merge_arguments(sensor: BaseSensorOperator, context: Any) -> None:
    """Merge into the template context of a resumed task what its pokes have merged into it natively.

    What runs after the last poke, a callback for example, may read it there.
    """
    merged = known_sensors.merged_into_context(type(sensor))
    if merged is not None:
        names, by_itself = merged
        context.update(getattr(sensor, names, None) or {}, **{by_itself: getattr(sensor, by_itself, None)})
