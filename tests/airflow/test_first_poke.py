"""The first poke, watched: what it asks for that only its task or its worker has, and how long it takes."""

import asyncio
import copy
import functools
import locale
import logging
import os
import pickle
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("airflow")

from airflow.providers.standard.sensors.filesystem import FileSensor
from airflow.sdk import get_current_context
from airflow.sdk.bases.sensor import BaseSensorOperator
from airflow.sdk.execution_time.context import set_current_context

from sensorpool.airflow.compat.exceptions import AirflowFailException, AirflowRescheduleException, AirflowSensorTimeout
from sensorpool.airflow.pool.adapters.sensor import adapt
from sensorpool.airflow.proof.watch import task_reads
from sensorpool.airflow.task import deferral, first_poke, patch
from sensorpool.airflow.task.first_poke import FirstPoke
from sensorpool.errors import HandBack, Unreachable
from tests.airflow.running import PokesLog, as_runner, context_of, in_dag


class Asks(BaseSensorOperator):
    """Asks what the test says; the condition holds at its third poke."""

    ask: ClassVar[Callable[[Any], Any]] = staticmethod(lambda _: None)
    pokes: ClassVar[PokesLog] = PokesLog()

    def __init__(self, *, path: str = "p", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.path = path
        self.helper = Helper(self)

    def poke(self, context: Any) -> bool:
        """Ask."""
        self.pokes.append(type(self).ask(self))
        return len(self.pokes) > 2

    @functools.cached_property
    def cached(self) -> str:
        """Is kept."""
        return self.path

    @functools.lru_cache  # noqa: B019
    def listed(self) -> str:
        """Is kept under the sensor."""
        return self.path


class Declares(Asks):
    """Says itself what makes it another one."""

    poke_context_fields = ("path",)


class Helper:
    """Knows its sensor."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner

    def name(self) -> str:
        """Return the name of its sensor's task."""
        return f"{self.owner.task_id}.done"


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Why slots were kept."""
    reasons: list[str] = []
    monkeypatch.setattr(deferral, "report_native", lambda _, error: reasons.append(str(error)))
    monkeypatch.setattr(patch, "is_enabled", lambda: False)
    monkeypatch.setattr(Asks, "pokes", PokesLog())
    monkeypatch.setattr(Asks, "ask", staticmethod(lambda _: None))  # and what a test sets is gone after it
    for name in [name for name in os.environ if name.startswith("AIRFLOW_CTX_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AIRFLOW_CTX_DAG_ID", "dag")
    yield reasons
    os.environ.__class__ = os._Environ  # the pool has its own
    assert not isinstance(vars(Asks).get("task_id"), task_reads._Noted)


def first_poke_of(
    ask: Callable[[Any], Any], cls: Any = Asks, limit: float | None = 10.0, register: Any = list, **arguments: Any
) -> tuple[FirstPoke, Any]:
    cls.ask = staticmethod(ask)
    sensor = in_dag(cls, **{"poke_interval": 0.01, "owner": "me", **arguments})
    # a task is copied before it runs, and what it holds knows the one that was copied
    sensor = copy.copy(sensor)
    first = FirstPoke(sensor, lambda one, context: as_runner(one, "execute", context), limit, register)
    context = context_of(sensor, task=sensor)
    with set_current_context(context):
        first.poke(context)
    return first, sensor


# what only its task has


@pytest.mark.parametrize(
    "ask",
    [
        lambda self: self.owner,
        lambda self: self.soft_fail,
        lambda self: self.start_date,
        lambda self: self.timeout,
        lambda self: self.poke_interval,
        lambda self: self.params,
        lambda self: self.dag,
        lambda self: self.dag_id,
        lambda self: self.get_dag(),
        lambda self: self.upstream_list,
        lambda self: self.reschedule,
        lambda self: getattr(self, "task" + "_id"),
        lambda self: self.helper.name(),
        lambda self: str(self),
        lambda self: [getattr(self, name) for name in self.template_fields or ("node_id",)],
        lambda self: BaseSensorOperator.__getattribute__(self, "task_id"),
        lambda self: threading_result(lambda: self.task_id),
        lambda self: vars(self)["task_id"],
        lambda self: "{task_id}/{path}".format(**vars(self)),
        lambda self: "{task_id}/{path}".format_map(self.__dict__),
    ],
    ids=[
        *("owner", "soft_fail", "start_date", "timeout", "poke_interval", "params", "dag", "dag_id", "get_dag"),
        *("upstream", "reschedule", "getattr", "helper", "str", "node_id", "getattribute", "thread", "vars", "format"),
        "format_map",
    ],
)
def test_what_a_poke_asks_of_its_task_keeps_it_on_its_worker(kept: list[str], ask: Any) -> None:
    """And it is told the truth, once a poke; the task ends by its own pokes."""
    first, sensor = first_poke_of(ask)
    assert first.ended
    assert len(kept) == 1
    assert "which only its task has" in kept[0]
    assert Asks.pokes == [ask(sensor)] * 3
    with pytest.raises(HandBack, match=r"which only its task has|what only a worker has"):
        adapt(Asks)(path="p").poke({})


def threading_result(ask: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(_caught(ask)))
    thread.start()
    thread.join()
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


def _caught(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except BaseException as error:
        return error


@pytest.mark.parametrize(
    "ask",
    [
        lambda self: self.path,
        lambda self: self.log.info("looking at %s", self.path),
        lambda self: self.cached,
        lambda self: self.listed(),
        lambda self: {self: 1}[self],
        lambda self: self.template_fields,
        lambda self: asyncio.run(asyncio.sleep(0)),
        lambda self: os.environ.get("PATH"),
        lambda self: dict(os.environ),
        lambda self: urllib.request.getproxies_environment(),
        lambda self: {**os.environ, **os.environ.copy()}.get("PATH"),
        lambda self: [name for name in os.environ if name.startswith("AIRFLOW__")],
        lambda self: logging.getLogger("x").info("x"),
        lambda self: Asks(task_id="another").task_id,
        lambda self: copy.copy(self).path,
        lambda self: copy.deepcopy(self).path,
        lambda self: pickle.loads(pickle.dumps(self)).path,
        lambda self: vars(self)["path"],
        lambda self: signal.getsignal(signal.SIGTERM),
    ],
    ids=[
        *("own", "log", "cached_property", "lru_cache", "hash", "class", "asyncio.run", "PATH", "environ", "proxies"),
        *("copies", "prefix", "logging"),
        *("another", "copy", "deepcopy", "pickle", "vars", "getsignal"),
    ],
)
def test_what_tells_no_task_from_another_keeps_nothing(kept: list[str], ask: Any) -> None:
    first, _ = first_poke_of(ask)
    assert not first.ended
    assert kept == []
    assert len(Asks.pokes) == 1
    assert adapt(Asks)(path="p").poke({}) is False


def test_a_class_that_says_what_makes_it_another_one_may_name_its_task(kept: list[str]) -> None:
    first, _ = first_poke_of(lambda self: self.task_id, Declares)
    assert not first.ended
    assert adapt(Declares)(path="p").poke({}) is False


def test_a_poke_that_sets_what_its_task_waits_by_keeps_it(kept: list[str]) -> None:
    first, _ = first_poke_of(lambda self: setattr(self, "poke_interval", 0.02))
    assert first.ended
    assert kept == ["its poke changes its poke_interval, by which its task waits"]


def test_what_a_method_keeps_by_its_sensor_is_not_anothers(kept: list[str]) -> None:
    """Operators are equal if their tasks' arguments are; in the pool all of them have none."""
    Asks.ask = staticmethod(lambda self: self.listed())
    pokes = [adapt(Asks)(path=path).poke for path in ("a", "b", "a")]
    for poke in pokes:
        poke({})
    assert Asks.pokes == ["a", "b", "a"]


class Keeps:
    """A descriptor that keeps a value for each sensor, and lets it go with the sensor."""

    def __init__(self) -> None:
        self.values: Any = weakref.WeakKeyDictionary()

    def __get__(self, sensor: Any, _: Any = None) -> Any:
        return self if sensor is None else self.values.get(sensor)

    def __set__(self, sensor: Any, value: Any) -> None:
        self.values[sensor] = value


class Described(BaseSensorOperator):
    path = Keeps()

    def __init__(self, *, path: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.path = path

    def poke(self, context: Any) -> bool:
        return bool(self.path == "p")


def test_what_a_constructor_keeps_by_its_sensor_is_found_by_its_poke() -> None:
    assert adapt(Described)(path="p").poke({}) is True


def test_a_sealed_sensor_has_its_hash_and_is_equal_to_itself_alone() -> None:
    one, other = in_dag(Described, path="p"), in_dag(Described, path="p")
    before = hash(one)
    sealed = [task_reads.seal(each) for each in (one, other)]
    assert [hash(each) for each in sealed] == [before, hash(other)]
    assert sealed[0] == sealed[0]
    assert sealed[0] != sealed[1]


# what only its worker has


def current() -> Any:
    with_context = get_current_context()
    return with_context["ti"].task_id


def swallows(ask: Callable[[], Any]) -> Callable[[Any], Any]:
    def asks(_: Any) -> Any:
        try:
            return ask()
        except Exception:
            return "nothing"

    return asks


def test_its_attributes_stay_in_one_place(kept: list[str]) -> None:
    """As of operators that share them."""
    seen: list[Any] = []
    first, sensor = first_poke_of(lambda self: seen.append(vars(self)) or setattr(self, "path", "q"))
    assert first.ended
    assert vars(sensor)["path"] == "q"
    assert type(vars(sensor)) is dict


@pytest.mark.parametrize(
    ("ask", "why"),
    [
        (current, "get_current_context"),
        (lambda: get_current_context() and None, "get_current_context"),
        (lambda: os.environ["AIRFLOW_CTX_DAG_ID"], "AIRFLOW_CTX_DAG_ID"),
        (lambda: os.environ.get("AIRFLOW_CTX_TRY_NUMBER", "1"), "AIRFLOW_CTX_TRY_NUMBER"),
        (lambda: os.getenv("AIRFLOW_CTX_DAG_ID"), "AIRFLOW_CTX_DAG_ID"),
        (lambda: "AIRFLOW_CTX_DAG_ID" in os.environ, "AIRFLOW_CTX_DAG_ID"),
        (lambda: [name for name in os.environ if name.startswith("AIRFLOW_CTX_")], "AIRFLOW_CTX_DAG_ID"),
        (lambda: {name: value for name, value in os.environ.items() if "CTX_DAG" in name}, "AIRFLOW_CTX_DAG_ID"),
        (lambda: [name for name in os.environ if name.lower()[:11] == "airflow_ctx"], "AIRFLOW_CTX_DAG_ID"),
        (lambda: dict(os.environ)["AIRFLOW_CTX_DAG_ID"], "AIRFLOW_CTX_DAG_ID"),
        (lambda: os.environ.copy().get("AIRFLOW_CTX_DAG_ID"), "AIRFLOW_CTX_DAG_ID"),
        (lambda: signal.signal(signal.SIGUSR2, signal.SIG_DFL) and None, "signal"),
        (lambda: policy_loop(), "event loop"),
    ],
    ids=[
        *("context", "a context", "environ", "get", "getenv", "in", "prefix", "part", "slice", "dict", "copy"),
        *("signal", "event loop"),
    ],
)
@pytest.mark.parametrize("swallowed", [False, True])
def test_what_a_poke_asks_of_its_worker_keeps_it_there(
    kept: list[str], ask: Callable[[], Any], why: str, swallowed: bool
) -> None:
    """It gets what it asks for, at each of its pokes; it is found out even if it would make do without."""
    first, _ = first_poke_of(swallows(ask) if swallowed else lambda _: ask())
    assert first.ended
    assert len(kept) == 1
    assert why in kept[0]
    assert len(Asks.pokes) == 3
    assert "nothing" not in Asks.pokes


def policy_loop() -> bool:
    loop = asyncio.get_event_loop_policy().new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        return asyncio.get_event_loop() is loop
    finally:
        asyncio.set_event_loop(None)
        loop.close()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda: os.environ.update(PROFILE_OF_POKE="a"), "sets PROFILE_OF_POKE in the environment"),
        (lambda: os.environ.pop("OF_WORKER"), "takes OF_WORKER from the environment"),
        (lambda: os.chdir("/"), "changes the working directory"),
        (lambda: os.umask(0o027), "changes the umask"),
        (lambda: socket.setdefaulttimeout(7.0), "changes the default timeout of sockets"),
        (lambda: sys.path.append("/of/worker"), "changes sys.path"),
        (lambda: locale.setlocale(locale.LC_NUMERIC, "C.UTF-8"), "changes the locale"),
    ],
    ids=["set", "taken", "chdir", "umask", "timeout", "path", "locale"],
)
def test_a_poke_that_changes_its_process_stays_in_it(
    kept: list[str], monkeypatch: pytest.MonkeyPatch, change: Callable[[], Any], why: str
) -> None:
    monkeypatch.setenv("PROFILE_OF_POKE", "")
    monkeypatch.setenv("OF_WORKER", "")
    monkeypatch.setattr(sys, "path", list(sys.path))
    was = os.getcwd(), os.umask(0o022), socket.getdefaulttimeout(), locale.setlocale(locale.LC_ALL)
    locale.setlocale(locale.LC_NUMERIC, "C")
    changes = [change]
    try:
        first, _ = first_poke_of(lambda _: changes.pop()() if changes else None)
    finally:
        os.chdir(was[0])
        os.umask(was[1])
        socket.setdefaulttimeout(was[2])
        locale.setlocale(locale.LC_ALL, was[3])
    assert first.ended
    assert len(kept) == 1
    assert why in kept[0]


@pytest.mark.parametrize("environment", [None, {"PATH": "/bin", "AIRFLOW_CTX_DAG_ID": "dag"}], ids=["own", "given"])
def test_a_program_that_is_told_its_task_keeps_it_on_its_worker(kept: list[str], environment: Any) -> None:
    first, _ = first_poke_of(lambda _: subprocess.run([sys.executable, "-c", ""], env=environment, check=True))
    assert first.ended
    assert "starts a program" in kept[0]


def test_a_program_that_is_not_told_its_task_keeps_nothing(kept: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(_: Any) -> Any:
        return subprocess.run(["/bin/true"], env={"PATH": "/bin"}, check=True).returncode

    first, _ = first_poke_of(ask)
    assert not first.ended
    Asks.pokes.clear()
    first, _ = first_poke_of(lambda _: subprocess.run(["/bin/true"], check=True).returncode, Declares)
    assert not first.ended


@pytest.mark.parametrize(
    "make", [lambda: sqlite3.connect(":memory:"), threading.local], ids=["sqlite3", "threading.local"]
)
def test_what_belongs_to_a_thread_and_is_kept_for_the_next_poke_stays_in_it(
    kept: list[str], make: Callable[[], Any]
) -> None:
    def ask(self: Any) -> None:
        if self.path == "p":
            self.connection = made[0]

    made = [make()]
    first, _ = first_poke_of(ask)
    assert first.ended
    assert "belongs to one thread" in kept[0]
    if isinstance(made[0], sqlite3.Connection):
        made[0].close()


class Closed(type(BaseSensorOperator)):  # type: ignore[misc]
    """Makes classes that nothing can be put into."""

    def __setattr__(cls, name: str, value: Any) -> None:
        if not name.startswith(("__", "_abc_")):
            raise TypeError("closed")
        super().__setattr__(name, value)


def test_a_class_that_cannot_be_watched_stays_on_its_worker(kept: list[str]) -> None:
    closed = Closed("Asks", (Asks,), {"__module__": __name__})
    sensor = in_dag(closed, poke_interval=0.01)
    first = FirstPoke(sensor, lambda one, context: as_runner(one, "execute", context), 10.0, list)
    first.poke(context_of(sensor))
    assert first.ended
    assert kept == ["its poke cannot be watched: TypeError: closed"]
    assert len(Asks.pokes) == 3
    with pytest.raises(HandBack, match="cannot be built in the pool"):
        adapt(closed)(path="p")


# in the pool


def _lock_by_thread() -> None:
    made: list[Any] = []
    thread = threading.Thread(target=lambda: made.append(sqlite3.connect(":memory:")))
    thread.start()
    thread.join()
    made[0].execute("SELECT 1")


def _chained() -> None:
    try:
        signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    except ValueError as error:
        raise AirflowFailException("cannot look") from error


@pytest.mark.parametrize(
    "ask",
    [
        asyncio.get_event_loop,
        lambda: asyncio.get_event_loop_policy().get_event_loop(),
        lambda: signal.signal(signal.SIGUSR2, signal.SIG_DFL),
        _chained,
        _lock_by_thread,
        lambda: threading.local().connection,
        lambda: get_current_context()["ti"],
        lambda: os.environ["AIRFLOW_CTX_DAG_ID"],
        lambda: os.environ.get("AIRFLOW_CTX_DAG_ID", "x"),
        lambda: swallows(lambda: os.environ["AIRFLOW_CTX_DAG_ID"])(None),
        lambda: __import__("airflow.sdk.execution_time.task_runner", fromlist=["x"]).SUPERVISOR_COMMS.socket,
    ],
    ids=[
        *("loop", "policy", "signal", "chained", "sqlite3", "local", "context", "environ", "get", "swallowed"),
        "comms",
    ],
)
@pytest.mark.filterwarnings("ignore:There is no current event loop:DeprecationWarning")
def test_what_fails_for_want_of_its_worker_goes_back_to_it(monkeypatch: pytest.MonkeyPatch, ask: Any) -> None:
    monkeypatch.setattr(Asks, "ask", staticmethod(lambda _: ask()))
    monkeypatch.setattr(Asks, "pokes", PokesLog())
    pooled = adapt(Asks)(path="p")
    with pytest.raises(HandBack, match=r"only (a|its) (worker|task)"):
        threading_result(lambda: pooled.poke({}))
    assert not Asks.pokes


def test_other_failures_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Asks, "ask", staticmethod(lambda _: {}["x"]))
    with pytest.raises(KeyError):
        adapt(Asks)(path="p").poke({})


# how long it takes


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that the next pokes take."""
    takes: list[float] = []
    now = [0.0]

    def monotonic() -> float:
        return now[0]

    def ask(_: Any) -> None:
        now[0] += takes.pop(0) if takes else 0.0

    monkeypatch.setattr(first_poke.time, "monotonic", monotonic)
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr(Asks, "ask", staticmethod(ask))
    return takes


@pytest.mark.parametrize(
    ("takes", "pokes", "ended", "waited"),
    [([1.0], 1, False, 1.0), ([13.0, 1.0], 2, False, 74.0), ([13.0, 12.0, 11.0], 3, True, 0.0)],
)
def test_a_slow_poke_is_measured_again_at_the_next_interval(
    kept: list[str], clock: list[float], takes: list[float], pokes: int, ended: bool, waited: float
) -> None:
    clock.extend(takes)
    first, _ = first_poke_of(Asks.ask, poke_interval=60)
    assert (len(Asks.pokes), first.ended) == (pokes, ended)
    assert len(kept) == (pokes > 1)
    if not ended:
        assert first.waited == waited
        assert abs(first.began - (time.time() - waited)) < 30.0


def test_a_slow_poke_times_out_as_natively(kept: list[str], clock: list[float]) -> None:
    clock.extend([13.0, 13.0])
    with pytest.raises(AirflowSensorTimeout):
        first_poke_of(Asks.ask, poke_interval=60, timeout=70)
    assert len(Asks.pokes) == 2


def test_a_slow_poke_that_is_rescheduled_is_measured_when_it_comes_again(kept: list[str], clock: list[float]) -> None:
    clock.append(13.0)
    with pytest.raises(AirflowRescheduleException):
        first_poke_of(Asks.ask, poke_interval=60, mode="reschedule")
    assert "13.0 s" in kept[0]


def test_what_cannot_be_registered_goes_on_at_its_next_interval(kept: list[str], clock: list[float]) -> None:
    """No poke comes sooner than natively, and its timeout counts from its beginning."""

    def register() -> None:
        raise Unreachable("the database does not answer")

    with pytest.raises(AirflowSensorTimeout):
        first_poke_of(Asks.ask, register=register, poke_interval=60, timeout=50)
    assert kept == ["the database does not answer"]
    assert len(Asks.pokes) == 2


def test_an_adapters_sensor_is_not_watched(kept: list[str]) -> None:
    first, _ = first_poke_of(lambda self: self.owner, limit=None)
    assert not first.ended
    assert kept == []


def test_a_file_sensor_is_poked_once(kept: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_FS_DEFAULT", "fs://")
    sensor = in_dag(FileSensor, filepath=str(tmp_path / "x"))
    first = FirstPoke(sensor, lambda one, context: as_runner(one, "execute", context), 10.0, list)
    first.poke(context_of(sensor))
    assert not first.ended
    assert kept == []
