"""State that a process has once: the umask, the default timeout of sockets, the warnings that are errors.

Natively each task has a process of its own, and may change this state. In the pool all pokes of a process share it: it
is compared after a poke that may have changed something, and restored for the others.
"""

import csv
import decimal
import faulthandler
import gc
import locale
import logging
import os
import resource
import socket
import ssl
import sys
import threading
import urllib.request
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

_ERRORS = "which warnings are errors"
# not of memory: the pool sets that itself
_LIMITS = (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_CPU, resource.RLIMIT_NPROC)
_RECURSION = 1_000  # Python's
_OPENS = frozenset(
    {"ProxyHandler", "UnknownHandler", "HTTPHandler", "HTTPDefaultErrorHandler", "HTTPRedirectHandler", "FTPHandler"}
    | {"FileHandler", "HTTPErrorProcessor", "DataHandler", "HTTPSHandler"}
)


class _Item(NamedTuple):
    read: Callable[[], Any]
    put: Callable[[Any], object]


def _of(owner: Any, name: str) -> _Item:
    """Return an attribute of a module, which a poke may replace."""
    return _Item(lambda: getattr(owner, name), lambda was: setattr(owner, name, was))


def _umask() -> int:
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


def _umask_among_threads() -> int | None:
    """Return the umask without changing it, for other threads create files meanwhile."""
    try:
        lines = Path("/proc/self/status").read_text("ascii", "replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1], 8) for line in lines if line.startswith("Umask:")), None)


def _put_path(was: tuple[str, ...]) -> None:
    sys.path[:] = was


def _errors() -> tuple[Any, ...]:
    """Return the filters that make warnings errors; imports of libraries add other filters."""
    return tuple(item for item in warnings.filters if item[0] == "error")


def _put_errors(was: tuple[Any, ...]) -> None:
    others = [item for item in warnings.filters if item[0] != "error" or item in was]
    warnings.filters[:] = [*others, *(item for item in was if item not in others)]  # type: ignore[index]
    warnings._filters_mutated()  # type: ignore[attr-defined]


def _opener() -> Any:
    """Return the installed opener; None for the one that `urlopen` creates at its first call."""
    opener: Any = vars(urllib.request)["_opener"]
    handlers = getattr(opener, "handlers", None)
    if handlers is None or (
        len(opener.addheaders) == 1 and _OPENS.issuperset(type(handler).__name__ for handler in handlers)
    ):
        return None
    return opener


def _limits() -> tuple[tuple[int, int], ...]:
    return tuple(resource.getrlimit(limit) for limit in _LIMITS)


def _put_limits(was: tuple[tuple[int, int], ...]) -> None:
    for limit, (soft, _) in zip(_LIMITS, was, strict=True):
        hard = resource.getrlimit(limit)[1]  # it cannot be raised again
        resource.setrlimit(limit, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _put_decimals(was: tuple[int, str]) -> None:
    context = decimal.getcontext()
    context.prec, context.rounding = was


_ITEMS = {
    "the umask": _Item(_umask, os.umask),
    "the locale": _Item(lambda: locale.setlocale(locale.LC_ALL), lambda was: locale.setlocale(locale.LC_ALL, was)),
    "the default timeout of sockets": _Item(socket.getdefaulttimeout, socket.setdefaulttimeout),
    "sys.path": _Item(lambda: tuple(sys.path), _put_path),
    _ERRORS: _Item(_errors, _put_errors),
    # Airflow raises the limit when it copies an operator
    "the recursion limit": _Item(lambda: min(sys.getrecursionlimit(), _RECURSION), sys.setrecursionlimit),
    "the opener of urllib": _Item(_opener, urllib.request.install_opener),
    "ssl._create_default_https_context": _of(ssl, "_create_default_https_context"),
    "socket.socket": _of(socket, "socket"),
    "socket.getaddrinfo": _of(socket, "getaddrinfo"),
    "socket.create_connection": _of(socket, "create_connection"),
    "sys.stdout": _of(sys, "stdout"),
    "sys.stderr": _of(sys, "stderr"),
    "sys.argv": _Item(lambda: tuple(sys.argv), lambda was: setattr(sys, "argv", [*was])),
    "its limits of files, file sizes, CPU or processes": _Item(_limits, _put_limits),
    "the context of decimals": _Item(lambda: (decimal.getcontext().prec, decimal.getcontext().rounding), _put_decimals),
    "what logging has disabled": _Item(lambda: logging.root.manager.disable, logging.disable),
    "the garbage collector": _Item(gc.isenabled, lambda was: gc.enable() if was else gc.disable()),
    "the faulthandler": _Item(
        faulthandler.is_enabled, lambda was: faulthandler.enable() if was else faulthandler.disable()
    ),
    "sys.excepthook": _of(sys, "excepthook"),
    "threading.excepthook": _of(threading, "excepthook"),
    "the limit of csv": _Item(csv.field_size_limit, csv.field_size_limit),
    "the limit of digits": _Item(sys.get_int_max_str_digits, sys.set_int_max_str_digits),
}


_UMASK = {"the umask": _Item(_umask_among_threads, os.umask)}  # in place of the one that changes it to read it
# of its thread; and what changes no answer for a while
_NOT_OF_OTHERS = frozenset({"the context of decimals", "the garbage collector", "the faulthandler"})
_OF_NO_ANSWER = frozenset(
    {"the garbage collector", "the faulthandler", "sys.excepthook", "threading.excepthook", "sys.stdout", "sys.stderr"}
    | {"sys.argv", "what logging has disabled"}
)
_COMPARED = (bool, int, float, str, tuple)


class ProcessState:
    """The state of this process at one moment. Threads share it for `restore` alone.

    :param items: the parts of the state that are compared.
    """

    def __init__(self, items: Mapping[str, _Item] = _ITEMS) -> None:
        self._items = items
        self._lock = threading.Lock()  # no thread compares with what another one is about to read again
        self._modules = len(sys.modules)
        self._seen = {name: item.read() for name, item in items.items()}

    def changed(self) -> list[str]:
        """Return the names of the parts that have changed since."""
        return [name for name, item in self._items.items() if _differ(self._seen[name], item.read())]

    def restore(self) -> list[str]:
        """Restore the parts that have changed, and return their names.

        Changes by an import stay, except warnings that have become errors: no import may do that.
        """
        with self._lock:
            if self._modules != len(sys.modules):
                self._modules = len(sys.modules)
                errors = self._seen[_ERRORS]
                self._seen = {name: item.read() for name, item in self._items.items()} | {_ERRORS: errors}
            names = self.changed()
            self.put_back(names)
            return names

    def put_back(self, names: Iterable[str]) -> None:
        """Restore these parts."""
        for name in names:
            with suppress(Exception):
                self._items[name].put(self._seen[name])


def before_load() -> ProcessState:
    """Return the state of this process before it loads a DAG file, which may change the import path."""
    return ProcessState({name: item for name, item in (_ITEMS | _UMASK).items() if name != "sys.path"})


def may_change_answers(name: str) -> bool:
    """Whether the answers of pokes may depend on a part of the state."""
    return name not in _OF_NO_ANSWER


def of_other_threads() -> dict[str, _Item]:
    """Return the parts of the state by which a change for a while reaches the pokes of other threads."""
    return {name: item for name, item in (_ITEMS | _UMASK).items() if name not in _NOT_OF_OTHERS}


@cache
def pool_state() -> ProcessState:
    """Return the state of this process of the pool at the first call."""
    return ProcessState(_ITEMS | _UMASK)


def _differ(before: Any, now: Any) -> bool:
    return before is not now and (type(before) is not type(now) or not isinstance(before, _COMPARED) or before != now)
