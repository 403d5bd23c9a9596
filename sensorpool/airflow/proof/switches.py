"""Switches that a process has once: the umask, the default timeout of sockets, warnings that are errors.

Natively each task has a process of its own, and may leave them as it likes. In the pool all pokes of a process share
them: they are looked at where a sensor's poke may have left something, and put back for the others.
"""

import csv
import decimal
import faulthandler
import gc
import locale
import logging
import os
import socket
import ssl
import sys
import threading
import urllib.request
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

_ERRORS = "which warnings are errors"
_RECURSION = 1_000  # Python's
_OPENS = frozenset(
    {"ProxyHandler", "UnknownHandler", "HTTPHandler", "HTTPDefaultErrorHandler", "HTTPRedirectHandler", "FTPHandler"}
    | {"FileHandler", "HTTPErrorProcessor", "DataHandler", "HTTPSHandler"}
)


class _Switch(NamedTuple):
    read: Callable[[], Any]
    put: Callable[[Any], object]


def _of(owner: Any, name: str) -> _Switch:
    """Return what stands under a name of a module, which a poke may replace."""
    return _Switch(lambda: getattr(owner, name), lambda was: setattr(owner, name, was))


def _umask() -> int:
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


def _umask_among_threads() -> int | None:
    """Return it without changing it, for others make files meanwhile."""
    try:
        lines = Path("/proc/self/status").read_text("ascii", "replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1], 8) for line in lines if line.startswith("Umask:")), None)


def _put_path(was: tuple[str, ...]) -> None:
    sys.path[:] = was


def _errors() -> tuple[Any, ...]:
    """Return the filters that make warnings errors; libraries add others when they are imported."""
    return tuple(one for one in warnings.filters if one[0] == "error")


def _put_errors(was: tuple[Any, ...]) -> None:
    others = [one for one in warnings.filters if one[0] != "error" or one in was]
    warnings.filters[:] = [*others, *(one for one in was if one not in others)]  # type: ignore[index]
    warnings._filters_mutated()  # type: ignore[attr-defined]


def _opener() -> Any:
    """Return the one that was installed; none for that which `urlopen` makes when it is first called."""
    opener: Any = vars(urllib.request)["_opener"]
    handlers = getattr(opener, "handlers", None)
    if handlers is None or (len(opener.addheaders) == 1 and _OPENS.issuperset(type(one).__name__ for one in handlers)):
        return None
    return opener


def _put_decimals(was: tuple[int, str]) -> None:
    context = decimal.getcontext()
    context.prec, context.rounding = was


_SWITCHES = {
    "the umask": _Switch(_umask, os.umask),
    "the locale": _Switch(lambda: locale.setlocale(locale.LC_ALL), lambda was: locale.setlocale(locale.LC_ALL, was)),
    "the default timeout of sockets": _Switch(socket.getdefaulttimeout, socket.setdefaulttimeout),
    "sys.path": _Switch(lambda: tuple(sys.path), _put_path),
    _ERRORS: _Switch(_errors, _put_errors),
    # Airflow raises it, where an operator is copied
    "the recursion limit": _Switch(lambda: min(sys.getrecursionlimit(), _RECURSION), sys.setrecursionlimit),
    "the opener of urllib": _Switch(_opener, urllib.request.install_opener),
    "ssl._create_default_https_context": _of(ssl, "_create_default_https_context"),
    "socket.socket": _of(socket, "socket"),
    "socket.getaddrinfo": _of(socket, "getaddrinfo"),
    "socket.create_connection": _of(socket, "create_connection"),
    "the context of decimals": _Switch(
        lambda: (decimal.getcontext().prec, decimal.getcontext().rounding), _put_decimals
    ),
    "what logging has disabled": _Switch(lambda: logging.root.manager.disable, logging.disable),
    "the garbage collector": _Switch(gc.isenabled, lambda was: gc.enable() if was else gc.disable()),
    "the faulthandler": _Switch(
        faulthandler.is_enabled, lambda was: faulthandler.enable() if was else faulthandler.disable()
    ),
    "sys.excepthook": _of(sys, "excepthook"),
    "threading.excepthook": _of(threading, "excepthook"),
    "the limit of csv": _Switch(csv.field_size_limit, csv.field_size_limit),
    "the limit of digits": _Switch(sys.get_int_max_str_digits, sys.set_int_max_str_digits),
}


_COMPARED = (bool, int, float, str, tuple)


class Picture:
    """How the switches of this process stand.

    :param switches: those that are looked at.
    """

    def __init__(self, switches: Mapping[str, _Switch] = _SWITCHES) -> None:
        self._switches = switches
        self._modules = len(sys.modules)
        self._seen = {name: switch.read() for name, switch in switches.items()}

    def changed(self) -> list[str]:
        """Name those that stand otherwise now."""
        return [name for name, switch in self._switches.items() if _differ(self._seen[name], switch.read())]

    def put_back(self) -> list[str]:
        """Put those back that stand otherwise, and name them.

        What has been imported meanwhile may have set some: they stay. No import makes warnings errors.
        """
        if self._modules != len(sys.modules):
            self._modules = len(sys.modules)
            errors = self._seen[_ERRORS]
            self._seen = {name: switch.read() for name, switch in self._switches.items()} | {_ERRORS: errors}
        names = self.changed()
        for name in names:
            with suppress(Exception):
                self._switches[name].put(self._seen[name])
        return names


@cache
def of_pool() -> Picture:
    """Return how the switches of this process, which is the pool's, stood when it was first asked."""
    return Picture(_SWITCHES | {"the umask": _Switch(_umask_among_threads, os.umask)})


def _differ(one: Any, other: Any) -> bool:
    return one is not other and (type(one) is not type(other) or not isinstance(one, _COMPARED) or one != other)
