"""Values of any kind, captured: as tuples of plain values, of bounded size, that a later look is compared with.

No ``__eq__``, ``__repr__`` or property of a value is called, for one may ask a backend. Code is captured as None, and
so are objects that are made once to ask a backend (`made_once`), unless sensors share them.
"""

import datetime as dt
import functools
import itertools
import random
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import cache
from itertools import islice
from pathlib import PurePath
from types import BuiltinMethodType, GeneratorType, MethodType
from typing import Any
from uuid import UUID

from sensorpool.airflow.proof.state import held_code, made_once, opaque_state
from sensorpool.airflow.proof.state.references import Cached, is_code, is_operator

_DEEPEST = 6
_MOST = 20_000  # parts of all values together
_MOST_OF_ONE = 500
_WIDEST = 200  # parts of one, at its beginning and at its end
_LONGEST = 4_096  # characters of a text, at its beginning and at its end
_WHOLE = 100_000  # each of these, for a value that a sensor has for itself
_SMALL = 2**64
_MOST_KEPT = 10_000  # parts of a container that is copied
_TEXTS: dict[Any, Callable[[Any], Any]] = {
    str: str.__str__,
    int: lambda value: f"{int.__int__(value):x}",
    float: float.__repr__,
    dt.datetime: dt.datetime.isoformat,
    dt.date: dt.date.isoformat,
    dt.time: dt.time.isoformat,
    dt.timedelta: dt.timedelta.__str__,
    PurePath: PurePath.__str__,
    complex: complex.__repr__,
    Decimal: Decimal.__str__,
    UUID: UUID.__str__,
    Fraction: Fraction.__str__,
    range: range.__repr__,
    re.Pattern: lambda value: f"{value.pattern!r} {value.flags}",
    itertools.count: itertools.count.__repr__,
    itertools.repeat: itertools.repeat.__repr__,
}
_CONTAINERS = (dict, list, tuple, deque, set, frozenset, bytes, bytearray)
_OPEN = ("collections.", "types.", "queue.", "weakref.", "threading.Event", "threading.Semaphore")
_OF_ITS_THREAD = frozenset({ContextVar, threading.local, type(threading.Lock())})
_OF_MEMBERS = frozenset({"_name_", "_sort_order_", "__objclass__"})
_MOVING = frozenset({"builtins", "itertools"})
_never = itertools.count()


class Capturer:
    """Captures the values of one look; their parts count together.

    :param is_ours: whether objects of a module are captured part by part; other objects are captured as their id.
    :param portable: capture only what is the same in all processes that have imported the same.
    :param caches: capture how often the caches of functions have missed.
    :param restorable: keep the parts of containers and objects, so that they can be restored.
    :param brief: leave out what a thread has for itself, and whether a lock is held: no other poke goes on by these.
    :param of_library: captures an object of a library, if what is captured is to be portable.
    :param whole: capture all of a value that a sensor has for itself: its functions, and the parts of any object.
    """

    def __init__(
        self,
        is_ours: Callable[[str], bool],
        *,
        portable: bool = False,
        caches: bool = False,
        restorable: bool = False,
        brief: bool = False,
        of_library: Callable[[Any], str] = lambda _: "",
        whole: bool = False,
    ) -> None:
        self._is_ours = is_ours
        self._is_portable = portable
        self._caches = caches
        self._brief, self._of_library = brief, of_library
        self._whole = whole
        self._shared = not (portable or whole)
        self.clients: list[Any] = []  # what was captured of objects that are made once
        self._left = _MOST * (_WHOLE if whole else 1)
        self._most_of_one, self._widest, self._longest = (_WHOLE,) * 3 if whole else (_MOST_OF_ONE, _WIDEST, _LONGEST)
        self._kept: list[tuple[Any, Any]] | None = [] if restorable else None

    def capture(self, name: str, value: Any) -> Any:
        """Capture a value that has a name; None for None, and for an object that is made once."""
        before = self._left
        self._left = self._most_of_one if self._is_portable else min(before, self._most_of_one)
        most = self._left
        try:
            return self._capture(name, value, _DEEPEST)
        finally:
            self._left += before - most

    def _capture(self, name: str, value: Any, depth: int) -> Any:
        if value is None or value is True or value is False:
            return value
        kind: Any = type(value)
        if (kind is str and len(value) < _LONGEST) or (kind is int and -1 < value < _SMALL):  # -1 and -2 have one hash
            self._left -= 1
            return kind.__name__, value
        if kind is made_once.Same:
            return value
        try:
            if is_code(value, self._is_ours):
                return ("code", id(value)) if self._whole else None
            is_client = made_once.is_made_once(name, kind)
            if is_client and (not self._shared or made_once.is_logger(name, kind, self._is_ours)):
                return None
            self._left -= 1
            if depth == 0 or self._left < 0:
                return _path(kind)
            if is_client:
                self.clients.append(self._of_client(value, kind, depth - 1))
                return self.clients[-1]
            return _path(kind), self._parts(value, kind, depth - 1)
        except Exception:  # an odd class, or a value that another thread changes
            return self._opaque("odd", value)

    def restore(self) -> None:
        """Restore the parts of all containers and objects that were captured."""
        for value, held in self._kept or ():
            if isinstance(held, dict):
                dict.clear(value)
                dict.update(value, held)
            elif isinstance(held, set):
                set.clear(value)
                set.update(value, held)
            elif isinstance(held, list):
                list.__setitem__(value, slice(None), held)
            else:
                deque.clear(value)
                deque.extend(value, held)

    def _parts(self, value: Any, kind: Any, depth: int) -> Any:
        if issubclass(kind, Enum):
            return self._of_member(value, kind, depth)
        base: Any = next((base for base in _CONTAINERS if issubclass(kind, base)), None)
        if base is None:
            text = _TEXTS.get(kind) or next((_TEXTS[plain] for plain in _TEXTS if issubclass(kind, plain)), None)
            if text is not None:
                return self._cut(text(value)), self._more(value, kind, depth)
            return self._of_object(value, kind, depth)
        length = base.__len__(value)
        if base in (bytes, bytearray):
            ends = [base.__getitem__(value, part) for part in (slice(self._longest), slice(-self._longest, None))]
            return length, *map(bytes, ends)
        if base not in (tuple, frozenset) and length <= _MOST_KEPT and self._kept is not None:
            self._kept.append((value, base.copy(value)))
        # the parts of a small one are counted without objects made once
        shown = length if length > 2 * self._widest else 0
        if base is dict:
            items = self._pairs(self._ends(dict.items(value), reversed(dict.items(value)), length), depth)
        elif base in (set, frozenset):
            items = self._of_set(base.__iter__(value), length, depth)
        else:
            last = tuple.__getitem__(value, slice(-self._widest, None)) if base is tuple else base.__reversed__(value)
            items = tuple(self._each(self._ends(base.__iter__(value), last, length), depth))
        return shown, items, self._more(value, kind, depth)

    def _more(self, value: Any, kind: Any, depth: int) -> Any:
        """Capture the attributes that a company's text or container has beside."""
        if kind.__module__ in ("builtins", "collections") or issubclass(kind, dt.date | dt.time | PurePath):
            return ()
        parts = self._attributes(value, kind) if self._is_ours(kind.__module__) else {}
        return self._pairs(parts.items(), depth, of_object=True) if parts else ()

    def _each(self, items: Iterable[Any], depth: int) -> Iterator[Any]:
        for item in items:
            captured = self._capture("", item, depth)
            if captured is not None or item is None:
                yield captured

    def _pairs(self, pairs: Iterable[tuple[Any, Any]], depth: int, *, of_object: bool = False) -> Any:
        captured = [
            (self._capture("", name, depth), self._capture(name if isinstance(name, str) else "", item, depth), item)
            for name, item in pairs
        ]
        pairs_kept = (
            (name, part) for name, part, item in captured if part is not None or (item is None and not of_object)
        )
        return tuple(pairs_kept)

    def _of_set(self, items: Iterable[Any], length: int, depth: int) -> Any:
        if not self._is_portable:
            return frozenset(self._each(islice(items, self._widest), depth))
        return sorted(self._each(items, depth), key=repr) if length <= _WIDEST else ()

    def _of_object(self, value: Any, kind: Any, depth: int) -> Any:
        if kind is Cached:
            return value.cache_info().misses if self._caches else None
        if self._brief and kind in _OF_ITS_THREAD:
            return None
        if kind is ContextVar:
            with suppress(LookupError):  # it has neither a value nor a default
                return self._capture("", value.get(), depth)
            return None
        if kind is BuiltinMethodType:
            return self._capture("", value.__self__, depth), value.__name__
        if kind is threading.local:
            return self._pairs(vars(value).items(), depth)
        if kind is MethodType:
            return self._capture("", value.__self__, depth), id(value.__func__) if self._whole else 0
        if kind is functools.partial or kind is functools.partialmethod:
            parts = {"func": value.func, "args": value.args, "keywords": value.keywords}
            return self._pairs((parts | vars(value)).items(), depth)
        if kind is GeneratorType:
            frame = value.gi_frame
            return frame and (frame.f_lasti, self._pairs(list(frame.f_locals.items()), depth))
        if _path(kind) == "_queue.SimpleQueue":
            return value.qsize()
        if "__next__" in vars(kind) and kind.__module__ in _MOVING:
            return self._of_iterator(value, kind, depth)
        is_open = self._is_ours(kind.__module__) or _path(kind).startswith(_OPEN)
        parts = self._attributes(value, kind) if is_open and not is_operator(kind) else {}
        held = self._held(value, kind, depth, is_open=is_open)
        if not parts and held is None:
            return self._capture("", made_once.inside(value), depth) if self._shared else self._opaque("", value)
        return self._pairs(islice(parts.items(), self._widest), depth, of_object=True), held

    def _of_client(self, value: Any, kind: Any, depth: int) -> Any:
        parts = made_once.parts_of(kind, self._attributes(value, kind), self._is_ours)
        return made_once.Same(value), self._pairs(parts.items(), depth)

    def _of_member(self, value: Any, kind: Any, depth: int) -> Any:
        """Capture a member of an Enum: its name; of a company's its value, and what its code has put into it."""
        parts = self._attributes(value, kind) if self._is_ours(kind.__module__) else {}
        kept = [each for each in parts.items() if each[0] not in _OF_MEMBERS]
        name = vars(value).get("_name_")
        return (name, self._pairs(kept, depth, of_object=True)) if kept else name

    def _of_iterator(self, value: Any, kind: Any, depth: int) -> Any:
        if "__length_hint__" in vars(kind):
            return value.__length_hint__()
        if self._is_portable:
            return None
        try:
            return self._capture("", opaque_state.read(value), depth)
        except opaque_state.Unreadable:
            return next(_never)  # its position cannot be read: it never counts as unchanged

    def _held(self, value: Any, kind: Any, depth: int, *, is_open: bool) -> Any:
        """Capture the state of an object in C; None if there is none, or if it cannot be read."""
        if not self._whole and (issubclass(kind, random.Random) or not (is_open or made_once.is_of_python(kind))):
            return None
        try:
            return self._capture("", opaque_state.read(value), depth)
        except opaque_state.Unreadable:
            return None

    def _ends(self, items: Any, backwards: Any, length: int) -> Iterable[Any]:
        """Return all items; of many, the first and the last ones."""
        if length <= 2 * self._widest:
            return list(items)
        return [*islice(iter(items), self._widest), *islice(iter(backwards), self._widest)]

    def _cut(self, text: str) -> Any:
        most = self._longest
        return text if len(text) <= 2 * most else (len(text), text[:most], text[-most:])

    def _attributes(self, value: Any, kind: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, member in _slots(kind):
            try:
                found[name] = member.__get__(value)
            except AttributeError:
                continue
        try:
            attributes: dict[str, Any] = object.__getattribute__(value, "__dict__")
        except AttributeError:
            return found
        if self._kept is not None:
            self._kept.append((attributes, dict.copy(attributes)))
        return found | attributes

    def _opaque(self, what: str, value: Any) -> Any:
        return (what or self._of_library(value)) if self._is_portable else (what, id(value))


@cache
def _slots(kind: Any) -> list[tuple[str, Any]]:
    return list(held_code.slots_of(kind))


@cache
def _path(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
