"""The template context of a watched poke: its reads and changes are noted."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sensorpool.airflow.proof.watch import pushed_xcoms


class WatchedContext(dict[str, Any]):
    """The template context; reads and changes of it are noted.

    :param given: names of which no read is noted.
    """

    def __init__(self, context: Mapping[str, Any], note: Callable[[str], object], given: frozenset[str]) -> None:
        super().__init__()
        self._context = context
        self._note = note
        self._given = given

    def _read(self, what: str) -> None:
        self._note(f"reads {what} from the template context")

    def _read_one(self, name: object) -> None:
        if name not in self._given:
            self._read(repr(name))

    def __getitem__(self, name: str) -> Any:
        self._read_one(name)
        return self._context[name]

    def get(self, name: str, default: Any = None) -> Any:
        self._read_one(name)
        return self._context.get(name, default)

    def __contains__(self, name: object) -> bool:
        self._read_one(name)
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

    def _whole(method: str) -> Callable[..., Any]:  # type: ignore[misc]  # it makes methods, and is no method
        def call(self: "WatchedContext", *args: Any, **kwargs: Any) -> Any:
            self._read("all of it")
            return getattr(self._context, method)(*args, **kwargs)

        return call

    __setitem__, __delitem__, __or__, __ror__ = map(_whole, ("__setitem__", "__delitem__", "__or__", "__ror__"))
    copy, pop, popitem, setdefault, update = map(_whole, ("copy", "pop", "popitem", "setdefault", "update"))


class PushingContext(WatchedContext):
    """The template context of a poke that pushes XComs."""

    def __getitem__(self, name: str) -> Any:
        if name == pushed_xcoms.TI:
            return pushed_xcoms.PushingTi(self._context[name], self._note)
        return super().__getitem__(name)
