"""A sensor out of a function: ``@sensorpool.sensor``."""

import copy
import inspect
from collections.abc import Callable
from typing import Any, ClassVar, ParamSpec, cast

Arguments = ParamSpec("Arguments")

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_OWN = ("arguments", "_holds_parts")  # attributes


class FunctionSensor:
    """The base of the classes that `sensor` makes. An object of one is the condition: its function with arguments.

    :raises TypeError: when the arguments are not those of the function.
    """

    poke_context_fields: ClassVar[tuple[str, ...]] = ()
    function: ClassVar[Callable[..., Any]]
    _signature: ClassVar[inspect.Signature]
    _holds_parts: bool  # whether an argument is one that the function may change

    def __init__(self, *args: Any, **named: Any) -> None:
        bound = self._signature.bind(*args, **named)
        bound.apply_defaults()
        self.arguments = dict(bound.arguments)
        self._holds_parts = any(isinstance(value, list | dict) for value in self.arguments.values())

    def __getattr__(self, name: str) -> Any:
        if name not in _OWN and name in self.arguments:
            return self.arguments[name]
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def poke(self, context: Any = None) -> Any:  # noqa: ARG002  # every sensor's poke takes one
        """Call the function."""
        return type(self).function(**self._given())

    def _given(self) -> dict[str, Any]:
        """Return the arguments for one call: what the function changes in them must not reach the next one."""
        return copy.deepcopy(self.arguments) if self._holds_parts else self.arguments


class AsyncFunctionSensor(FunctionSensor):
    """The same of a coroutine function, which is poked on an event loop."""

    async def poke(self, context: Any = None) -> Any:  # noqa: ARG002
        """Await the function."""
        return await type(self).function(**self._given())


def sensor(function: Callable[Arguments, Any]) -> Callable[Arguments, FunctionSensor]:
    """Make a sensor of a function that says whether something is there.

    Its arguments are the condition: two calls with equal ones share a poke. It returns what a ``poke`` returns: a
    boolean, or a `PokeReturnValue`. It may be ``async``. The workers import it by its name, as any sensor class::

        @sensorpool.sensor
        def arrived(partner: str, day: str) -> bool:
            return store.has(partner, day)

        sensorpool.register(arrived("acme", "2030-01-31"))

    ``arrived.function`` is the function itself.

    :raises TypeError: when it is no function of a module's top level, or takes arguments that have no names.
    """
    named = getattr(function, "__qualname__", "")
    if not inspect.isfunction(function) or "." in named or named == "<lambda>":
        raise TypeError(
            f"a sensor is a function of a module's top level, which the workers can import: not {function!r}"
        )
    signature = inspect.signature(function)
    for parameter in signature.parameters.values():
        if parameter.kind not in _NAMED:
            raise TypeError(f"{named}: each argument of a sensor has a name, not {parameter}")
        if hasattr(AsyncFunctionSensor, parameter.name) or parameter.name in _OWN:
            raise TypeError(
                f"{named}: call the argument {parameter.name!r} something else: sensors have one of that name"
            )
    base = AsyncFunctionSensor if inspect.iscoroutinefunction(function) else FunctionSensor
    made = type(
        function.__name__,
        (base,),
        {
            "__doc__": function.__doc__,
            "__module__": function.__module__,
            "__qualname__": function.__qualname__,
            "__signature__": signature,
            "_signature": signature,
            "function": staticmethod(function),
            "poke_context_fields": tuple(signature.parameters),
        },
    )
    return cast("Callable[Arguments, FunctionSensor]", made)
