"""A watched `os.environ`: each read of some names is noted, in every way that Python has to read them.

A list or copy of all names is no read of a name in it; to pick the name out of the list is one.
"""

import os
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

Ask = Callable[[str], object]
IsWatched = Callable[[str], bool]


class _Watch(NamedTuple):
    is_watched: IsWatched
    is_listed: IsWatched
    gone: Collection[str]
    ask: Ask
    thread: int | None = None


_lock = threading.Lock()
_watches: tuple[_Watch, ...] = ()
_before: Any = os._Environ  # the class of the environment before any watch


def put_in_place(is_watched: IsWatched, ask: Ask) -> None:
    """Watch the environment until this process ends; a second watch is ignored.

    :param is_watched: whether a name is watched.
    :param ask: called with each name that is read; its exceptions reach the reader.
    """
    if type(os.environ) is os._Environ:
        _begin(_Watch(is_watched, is_watched, (), ask))


@contextmanager
def watching(
    is_watched: IsWatched, is_listed: IsWatched, gone: Collection[str], ask: Ask, thread: int | None = None
) -> Iterator[None]:
    """Watch the environment.

    :param is_watched: whether a name is watched.
    :param is_listed: whether a watched name is also watched in lists of all names.
    :param gone: names that have been removed: a list of all names shows that.
    :param ask: called with each name that is read.
    :param thread: the identifier of the only thread that is heard; None: all are.
    """
    watch = _Watch(is_watched, is_listed, gone, ask, thread)
    _begin(watch)
    try:
        yield
    finally:
        _end(watch)


def _begin(watch: _Watch) -> None:
    global _watches, _before
    with _lock:
        if type(os.environ) is not _Environment:
            _before = type(os.environ)
            _set_class(_Environment)
        _watches = (*_watches, watch)


def _end(watch: _Watch) -> None:
    global _watches
    with _lock:  # threads end their watches in any order
        _watches = tuple(other for other in _watches if other is not watch)
        if not _watches:
            _set_class(_before)


def _set_class(cls: Any) -> None:
    os.environ.__class__ = cls
    if os.supports_bytes_environ:
        os.environb.__class__ = cls


def _here() -> list[_Watch]:
    return [watch for watch in _watches if watch.thread in (None, threading.get_ident())]


class _Environment(os._Environ):  # type: ignore[type-arg]
    """The environment; reads of watched names are noted.

    No super(): the class may change back while another thread is in one of these methods.
    """

    def __getitem__(self, name: Any) -> Any:
        text = os.fsdecode(name) if isinstance(name, bytes) else name
        if isinstance(text, str) and not isinstance(text, _Listed):
            for watch in _here():
                if watch.is_watched(text):
                    watch.ask(text)
        return os._Environ.__getitem__(self, name)

    def __iter__(self) -> Iterator[Any]:  # a copy of all names reads none
        watches = _here()
        for watch in watches:
            for name in watch.gone:
                watch.ask(name)
        for name in os._Environ.__iter__(self):
            text = os.fsdecode(name) if isinstance(name, bytes) else name
            watching = [watch for watch in watches if watch.is_watched(text)]
            asks = [watch.ask for watch in watching if watch.is_listed(text)]
            if isinstance(name, bytes):
                for ask in asks:
                    ask(text)
            # a view of all values reads by the names that it gets here
            yield _Listed(name, asks) if watching and isinstance(name, str) else name


class _Listed(str):
    """A watched name in a list of all names: to pick it out of the list, or out of a copy, is a read.

    To compare it with other names, and find no match, is none.
    """

    _asks: Collection[Ask]
    _whole: str

    def __new__(cls, name: str, asks: Collection[Ask], whole: str = "") -> "_Listed":
        listed = super().__new__(cls, name)
        listed._asks = asks
        listed._whole = whole or name
        return listed

    def _part(self, part: str) -> "_Listed":
        return _Listed(part, self._asks, self._whole)

    def _picked(self, is_it: bool) -> bool:
        if is_it and len(self) > 1:  # one letter of a name picks no name
            for ask in self._asks:
                ask(self._whole)
        return is_it

    def __eq__(self, other: object) -> bool:
        is_it = str.__eq__(self, other) is True
        return is_it if isinstance(other, _Listed) else self._picked(is_it)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __contains__(self, part: str) -> bool:  # type: ignore[override]
        return self._picked(super().__contains__(part) and part != "")

    def startswith(self, *arguments: Any) -> bool:
        return self._picked(super().startswith(*arguments))

    def endswith(self, *arguments: Any) -> bool:
        return self._picked(super().endswith(*arguments))

    def __reduce__(self) -> Any:
        return str, (str(self),)

    def __getitem__(self, part: Any) -> str:
        return self._part(super().__getitem__(part))

    def lower(self) -> str:
        return self._part(super().lower())

    def upper(self) -> str:
        return self._part(super().upper())

    def removeprefix(self, prefix: str) -> str:
        self._picked(super().startswith(prefix) and prefix != "")
        return super().removeprefix(prefix)

    def partition(self, separator: str) -> tuple[str, str, str]:
        head, found, tail = super().partition(separator)
        return self._part(head), found, self._part(tail)

    def split(self, *arguments: Any, **named: Any) -> list[str]:
        return [self._part(part) for part in super().split(*arguments, **named)]
