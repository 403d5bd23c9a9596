"""State that a process has once: a poke that changes it stays on its worker, and the pool restores it."""

import contextlib
import csv
import decimal
import faulthandler
import gc
import io
import locale
import logging
import os
import random
import resource
import signal
import socket
import ssl
import sys
import threading
import time
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("airflow.providers.standard")

from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool.airflow.pool.adapters.sensor import adapt
from sensorpool.airflow.proof.arguments import rebuild
from sensorpool.airflow.proof.watch import process_state
from sensorpool.airflow.task import deferral, patch
from sensorpool.airflow.task.first_poke import FirstPoke
from sensorpool.errors import HandBack
from tests.airflow.running import context_of, in_dag


class Switches(BaseSensorOperator):
    """Does what the test says."""

    def __init__(self, *, path: str = "p", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.path = path

    def poke(self, context: Any) -> Any:
        """Do it."""
        return globals()["_act"](self.path)


class Another(Switches):
    """Another team's."""


class Proxied(socket.socket):
    """Goes another way."""


def limit_file_sizes(most: int) -> None:
    """Do not let this process write files of more bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


SWITCHES: dict[str, tuple[Callable[[], object], str]] = {
    "umask": (lambda: os.umask(0o027), "the umask"),
    "locale": (lambda: locale.setlocale(locale.LC_NUMERIC, "C.UTF-8"), "the locale"),
    "timeout": (lambda: socket.setdefaulttimeout(7.0), "the default timeout of sockets"),
    "path": (lambda: sys.path.insert(0, "/of/team"), "sys.path"),
    "warnings": (lambda: warnings.simplefilter("error"), "which warnings are errors"),
    "recursion": (lambda: sys.setrecursionlimit(800), "the recursion limit"),
    "opener": (
        lambda: urllib.request.install_opener(urllib.request.build_opener(urllib.request.HTTPCookieProcessor())),
        "the opener of urllib",
    ),
    "header": (
        lambda: urllib.request.install_opener(_with_header(urllib.request.build_opener())),
        "the opener of urllib",
    ),
    "TLS": (
        lambda: setattr(ssl, "_create_default_https_context", ssl._create_unverified_context),
        "ssl._create_default_https_context",
    ),
    "socket": (lambda: setattr(socket, "socket", Proxied), "socket.socket"),
    "names": (lambda: setattr(socket, "getaddrinfo", lambda *_: []), "socket.getaddrinfo"),
    "decimals": (lambda: setattr(decimal.getcontext(), "prec", 4), "the context of decimals"),
    "logging": (lambda: logging.disable(logging.INFO), "what logging has disabled"),
    "gc": (gc.disable, "the garbage collector"),
    "hook": (lambda: setattr(threading, "excepthook", print), "threading.excepthook"),
    "csv": (lambda: csv.field_size_limit(7), "the limit of csv"),
    "argv": (lambda: setattr(sys, "argv", ["tool"]), "sys.argv"),
    "stdout": (lambda: setattr(sys, "stdout", io.StringIO()), "sys.stdout"),
    "limits": (lambda: limit_file_sizes(1 << 40), "its limits of files, file sizes, CPU or processes"),
}
BY_ITSELF: dict[str, Callable[[], object]] = {
    "an opener made by urlopen": lambda: setattr(urllib.request, "_opener", urllib.request.build_opener()),
    "a warning that is ignored": lambda: warnings.simplefilter("ignore"),
    "deeper calls": lambda: sys.setrecursionlimit(5_000),
    "decimals in a block": lambda: _of_few_digits(),
}


FOR_A_WHILE: dict[str, tuple[Callable[[], object], str]] = {
    "what it prints": (lambda: _prints_elsewhere(), "changes sys.stdout of its process"),
    "errors": (lambda: _prints_elsewhere(contextlib.redirect_stderr), "changes sys.stderr of its process"),
    "warnings": (lambda: _in_a_block(), "changes which warnings are errors of its process"),
    "arguments": (lambda: _with_arguments(["tool"]), "changes sys.argv of its process"),
    "the umask": (lambda: _with_umask(0o027), "changes the umask of its process"),
    "a patch": (lambda: _patched(), "replaces code by unittest.mock"),
    "a decorator": (lambda: mock.patch("os.getlogin", return_value="me")(lambda _: os.getlogin())(), "replaces code"),
}


def _prints_elsewhere(redirect: Any = contextlib.redirect_stdout) -> None:
    with redirect(io.StringIO()):
        print("x")


def _with_arguments(arguments: list[str]) -> None:
    was, sys.argv = sys.argv, arguments
    try:
        os.getpid()
    finally:
        sys.argv = was


def _with_umask(umask: int) -> None:
    was = os.umask(umask)
    try:
        os.getpid()
    finally:
        os.umask(was)


def _patched() -> None:
    with mock.patch.object(socket, "gethostname", return_value="p"):
        socket.gethostname()


def _with_header(opener: Any) -> Any:
    opener.addheaders.append(("Authorization", "x"))
    return opener


def _in_a_block() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")


def _of_few_digits() -> None:
    with decimal.localcontext() as context:
        context.prec = 3


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(patch, "is_enabled", lambda: False)
    monkeypatch.setattr(urllib.request, "_opener", None)
    monkeypatch.setitem(globals(), "_act", lambda _: False)
    was, handler = {name: each.read() for name, each in process_state._ITEMS.items()}, faulthandler.is_enabled()
    with warnings.catch_warnings():
        warnings.resetwarnings()  # as in production
        yield
    for name, value in was.items():
        process_state._ITEMS[name].put(value)
    assert faulthandler.is_enabled() == handler


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    reasons: list[str] = []
    monkeypatch.setattr(deferral, "report_native", lambda _, error: reasons.append(str(error)))
    return reasons


def first_poke() -> None:
    def native(sensor: Any, context: Any) -> None:
        sensor.poke(context)
        sensor._get_next_poke_interval(None, lambda: 0.0, 1)

    sensor = in_dag(Switches)
    FirstPoke(sensor, native, 10.0, list).poke(context_of(sensor))


def pooled(cls: Any, path: str = "p") -> Any:
    return adapt(cls)(**rebuild.poke_context_of(in_dag(cls, path=path)))


@pytest.mark.parametrize("how", SWITCHES)
def test_a_poke_that_switches_it_stays_on_its_worker(
    monkeypatch: pytest.MonkeyPatch, kept: list[str], how: str
) -> None:
    switch, what = SWITCHES[how]
    monkeypatch.setitem(globals(), "_act", lambda _: switch() and False)
    first_poke()
    assert kept == [f"its poke changes {what} of its process, which others share in the pool"]


@pytest.mark.parametrize("how", FOR_A_WHILE)
def test_a_poke_that_switches_it_for_a_while_stays_on_its_worker(
    monkeypatch: pytest.MonkeyPatch, kept: list[str], how: str
) -> None:
    """In the pool the pokes of others run meanwhile, on other threads."""
    switch, what = FOR_A_WHILE[how]
    before = process_state.ProcessState()
    monkeypatch.setitem(globals(), "_act", lambda _: switch() and False)
    first_poke()
    (reason,) = kept
    assert reason.startswith(f"its poke {what}")
    assert before.changed() == []
    assert sys.getprofile() is None


def test_a_profiler_at_work_stays(monkeypatch: pytest.MonkeyPatch, kept: list[str]) -> None:
    seen: list[Any] = []
    monkeypatch.setitem(globals(), "_act", lambda _: seen.append(sys.getprofile()))

    def profiler(*_: Any) -> None:
        """Count nothing."""

    sys.setprofile(profiler)
    try:
        first_poke()
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(None)
    assert seen == [profiler]
    assert kept == []


def test_a_profiler_that_a_poke_starts_goes_on(monkeypatch: pytest.MonkeyPatch, kept: list[str]) -> None:
    def profiler(*_: Any) -> None:
        """Count nothing."""

    monkeypatch.setitem(globals(), "_act", lambda _: sys.setprofile(profiler))
    try:
        first_poke()
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(None)


def test_one_that_profiles_itself_stays_on_its_worker(monkeypatch: pytest.MonkeyPatch, kept: list[str]) -> None:
    def act(_: Any) -> bool:
        sys.setprofile(lambda *_: None)
        sys.setprofile(None)
        return False

    monkeypatch.setitem(globals(), "_act", act)
    first_poke()
    assert kept == ["its poke uses a profiler, beside which it cannot be watched"]


def test_a_time_limit_of_its_own_ends_a_poke(monkeypatch: pytest.MonkeyPatch, kept: list[str]) -> None:
    """The handler of its alarm raises wherever the poke is, also while it is watched."""

    class Over(Exception):
        pass

    def end(*_: Any) -> None:
        raise Over

    def act(_: Any) -> bool:
        deadline = time.monotonic() + 30
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.01, 0.03))
        while time.monotonic() < deadline:
            len("x")
        return False

    monkeypatch.setitem(globals(), "_act", act)
    was = signal.signal(signal.SIGALRM, end)
    try:
        for _ in range(20):
            with pytest.raises(Over):
                first_poke()
            assert sys.getprofile() is None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, was)


def test_a_fork_of_a_poke_ends(monkeypatch: pytest.MonkeyPatch, kept: list[str]) -> None:
    def act(_: Any) -> bool:
        child = os.fork()
        if not child:
            len("x")
            os._exit(len("abc"))
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 3

    monkeypatch.setitem(globals(), "_act", act)
    first_poke()
    assert len(kept) == 1
    assert kept[0].startswith("its poke forks")


@pytest.mark.parametrize("how", SWITCHES)
@pytest.mark.parametrize("when", ["at first", "as it lands", "as it fails"])
def test_in_the_pool_it_is_put_back_and_the_sensor_goes_back(
    monkeypatch: pytest.MonkeyPatch, how: str, when: str
) -> None:
    switch, what = SWITCHES[how]
    one = pooled(Switches)
    if when != "at first":
        assert not one.poke({})

    def act(_: Any) -> Any:
        switch()
        if when == "as it fails":
            raise ValueError("x")
        return when == "as it lands"

    before = process_state.pool_state()
    monkeypatch.setitem(globals(), "_act", act)
    with pytest.raises(HandBack, match=f"pokes in the pool have changed {what} of their process"):
        one.poke({})
    assert before.changed() == []
    monkeypatch.setitem(globals(), "_act", lambda _: True)
    assert pooled(Another).poke({})


@pytest.mark.parametrize("switch", BY_ITSELF.values(), ids=BY_ITSELF)
def test_what_is_no_switch_or_is_put_back_by_itself_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch, kept: list[str], switch: Callable[[], object]
) -> None:
    monkeypatch.setitem(globals(), "_act", lambda _: switch() and False)
    first_poke()
    assert kept == []
    assert not pooled(Switches).poke({})


def test_one_that_suffers_by_anothers_switch_does_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other, third = pooled(Switches), pooled(Another), pooled(Another, "q")
    assert not any(each.poke({}) for each in (one, other, third))
    monkeypatch.setitem(globals(), "_act", lambda _: warnings.simplefilter("error"))
    assert not one.poke({}), "between its first poke and its last the state is not compared"
    monkeypatch.setitem(globals(), "_act", lambda _: warnings.warn("old", DeprecationWarning, stacklevel=1))
    assert not other.poke({}), "it is built again, and what was switched is put back"
    assert not third.poke({})


def test_what_an_import_sets_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    one = pooled(Switches)
    assert not one.poke({})

    def act(_: Any) -> bool:
        monkeypatch.setitem(sys.modules, "sets_its_process", sys)
        csv.field_size_limit(9_999)
        return True

    monkeypatch.setitem(globals(), "_act", act)
    assert one.poke({})
    assert csv.field_size_limit() == 9_999


def test_what_a_load_has_changed_is_not_taken_for_a_change_by_a_poke(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pokes are the first ones after a load; one comes while the other one reads the state again."""
    now, reading, other_is_over = ["before"], threading.Event(), threading.Event()

    def read() -> tuple[str, ...]:
        if threading.current_thread().name == "first":
            reading.set()
            other_is_over.wait(0.5)
        return tuple(now)

    items = {name: item for name, item in vars(process_state)["_ITEMS"].items() if name.startswith("which warnings")}
    state = process_state.ProcessState(
        {"it": mock.Mock(read=read, put=lambda was: now.__setitem__(0, was[0])), **items}
    )
    found: list[list[str]] = []
    first = threading.Thread(target=lambda: found.append(state.restore()), name="first")
    monkeypatch.setitem(sys.modules, "loaded_by_a_dag_file", mock.Mock())
    now[0] = "after"
    first.start()
    assert reading.wait(10)
    found.append(state.restore())
    other_is_over.set()
    first.join(10)
    assert (found, now) == ([[], []], ["after"])
