"""A watched `os.environ`: each read of some names is noted, in every way that Python has to read them.

A list or copy of all names is no read of a name in it; to pick the name out of the list is one.
"""

import os
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

Ask = Callable[[str], object]
IsWatched = Callable[[str], bool]

_lock = threading.Lock()
_watches: list[Any] = []  # the class of the environment before any watch, and those of the watches; the last one hears


def put_in_place(is_watched: IsWatched, ask: Ask) -> None:
    """Watch the environment until this process ends; a second watch is ignored.

    :param is_watched: whether a name is watched.
    :param ask: called with each name that is read; its exceptions reach the reader.
    """
    if type(os.environ) is os._Environ:
        _set_class(_watched(is_watched, is_watched, (), ask))


@contextmanager
def watching(is_watched: IsWatched, is_listed: IsWatched, gone: Collection[str], ask: Ask) -> Iterator[None]:
    """Watch the environment.

    :param is_watched: whether a name is watched.
    :param is_listed: whether a watched name is also watched in lists of all names.
    :param gone: names that have been removed: a list of all names shows that.
    :param ask: called with each name that is read.
    """
    watched = _watched(is_watched, is_listed, gone, ask)
    with _lock:
        if not _watches:
            _watches.append(type(os.environ))
        _watches.append(watched)
        _set_class(watched)
    try:
        yield
    finally:
        with _lock:  # threads of a triggerer begin and end their watches in any order
            _watches.remove(watched)
            _set_class(_watches[-1])
            if len(_watches) == 1:
                _watches.clear()


def _set_class(cls: Any) -> None:
    os.environ.__class__ = cls
    if os.supports_bytes_environ:
        os.environb.__class__ = cls


def _watched(is_watched: IsWatched, is_listed: IsWatched, gone: Collection[str], ask: Ask) -> Any:
    class Environment(os._Environ):  # type: ignore[type-arg]
        """The environment; reads of watched names are noted."""

        def __getitem__(self, name: Any) -> Any:
            text = os.fsdecode(name) if isinstance(name, bytes) else name
            if isinstance(text, str) and not isinstance(text, _Listed) and is_watched(text):
                ask(text)
            return super().__getitem__(name)

        def __iter__(self) -> Iterator[Any]:  # a copy of all names reads none
            for name in gone:
                ask(name)
            for name in super().__iter__():
                if isinstance(name, bytes):
                    if is_listed(os.fsdecode(name)):
                        ask(os.fsdecode(name))
                    yield name
                else:
                    # a view of all values reads by the names that it gets here
                    yield _Listed(name, ask if is_listed(name) else _ignore) if is_watched(name) else name

    return Environment


def _ignore(_: str) -> None:
    """Note nothing."""


class _Listed(str):
    """A watched name in a list of all names: to pick it out of the list, or out of a copy, is a read.

    To compare it with other names, and find no match, is none.
    """

    _ask: Ask
    _whole: str

    def __new__(cls, name: str, ask: Ask, whole: str = "") -> "_Listed":
        listed = super().__new__(cls, name)
        listed._ask = ask
        listed._whole = whole or name
        return listed

    def _part(self, part: str) -> "_Listed":
        return _Listed(part, self._ask, self._whole)

    def _picked(self, is_it: bool) -> bool:
        if is_it and len(self) > 1:  # one letter of a name picks no name
            self._ask(self._whole)
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
