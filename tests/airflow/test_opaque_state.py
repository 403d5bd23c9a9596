"""State that no attribute shows: it distinguishes sensors, and a poke that changes it is found."""

import array
import collections
import ctypes
import hashlib
import io
import itertools
import queue
import random
import ssl
import threading
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

import pytest

pytest.importorskip("airflow.providers.standard")

import jinja2
import requests
from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.pool.adapters.sensor import adapt
from sensorpool.airflow.proof.arguments import rebuild
from sensorpool.airflow.proof.state import opaque_state, sensor_state, value_digest
from sensorpool.airflow.proof.state.opaque_state import Unreadable
from sensorpool.airflow.result import Landing
from sensorpool.airflow.task import deferral, patch, saved_attributes
from sensorpool.airflow.task.first_poke import FirstPoke
from sensorpool.errors import HandBack
from tests.airflow.running import context_of, in_dag


class Numbers(array.array):  # type: ignore[type-arg]
    """A company's."""


class Text(str):
    """Has more than its text."""


class Seen(dict[str, Any]):
    """Has more than its items."""

    looks = 0


class Makes(BaseSensorOperator):
    """Keeps what the test says, and does with it what the test says."""

    def __init__(self, *, path: str = "p", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.path = path
        self.state = globals()["_made"](self.task_id)

    def poke(self, context: Any) -> Any:
        """Do it."""
        return globals()["_act"](self.state)


class Slotted(BaseSensorOperator):
    """Keeps it in a slot of its own."""

    __slots__ = ("marker",)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.marker = globals()["_made"](self.task_id)

    def poke(self, context: Any) -> Any:
        """Look."""
        if isinstance(self.marker, int):
            self.marker += 1
        return False


class Field:
    """A checked field; its values are kept by operator."""

    def __init__(self) -> None:
        self.values: dict[int, tuple[Any, str]] = {}

    def __get__(self, one: Any, owner: Any = None) -> Any:
        return self if one is None else self.values[id(one)][1]

    def __set__(self, one: Any, value: str) -> None:
        self.values[id(one)] = one, value


class Checked(BaseSensorOperator):
    """Keeps its marker in a field."""

    marker = Field()

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.marker = f"{self.task_id}.done"

    def poke(self, context: Any) -> Any:
        """Look."""
        return bool(self.marker) and False


@pytest.fixture(autouse=True)
def patched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patch, "is_enabled", lambda: False)
    makes(monkeypatch, lambda _: None)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    reasons: list[str] = []
    monkeypatch.setattr(deferral, "report_native", lambda _, error: reasons.append(str(error)))
    return reasons


def first_poke_of(sensor: Any) -> None:
    def native(sensor: Any, context: Any) -> None:
        assert not sensor.poke(context)
        sensor._get_next_poke_interval(None, lambda: 0.0, 1)

    FirstPoke(sensor, native, 10.0, list).poke(context_of(sensor))


def makes(monkeypatch: pytest.MonkeyPatch, made: Callable[[str], Any], act: Any = None) -> None:
    monkeypatch.setitem(globals(), "_made", made)  # not by name: that would be seen as shared
    monkeypatch.setitem(globals(), "_act", lambda state: act and act(state) and None)


MOVES: dict[str, tuple[Callable[[str], Any], Callable[[Any], Any]]] = {
    "array": (lambda _: array.array("q", [0]), lambda state: state.append(1)),
    "item": (lambda _: array.array("q", [0]), lambda state: state.__setitem__(0, 1)),
    "of a class": (lambda _: Numbers("q", [0]), lambda state: state.__setitem__(0, 1)),
    "in a dict": (lambda _: {"a": [array.array("q", [0])]}, lambda state: state["a"][0].__setitem__(0, 1)),
    "buffer": (lambda _: io.StringIO(), lambda state: state.write("x")),
    "bytes": (lambda _: io.BytesIO(b"abc"), lambda state: state.read(1)),
    "bytearray": (lambda _: bytearray(3), lambda state: state.__setitem__(1, 1)),
    "view": (lambda _: memoryview(bytearray(3)), lambda state: state.__setitem__(1, 1)),
    "structure": (lambda _: (ctypes.c_int * 2)(), lambda state: state.__setitem__(1, 1)),
    "count": (lambda _: itertools.count(), next),
    "iterator": (lambda _: iter([False, False, True]), next),
    "of pairs": (lambda _: enumerate("abc"), next),
    "zip": (lambda _: zip("abc", "abc", strict=True), next),
    "deque": (lambda _: collections.deque([0], 1), lambda state: state.append(1)),
    "random": (lambda _: random.Random(7), lambda state: state.random()),
    "hash": (lambda _: hashlib.sha256(), lambda state: state.update(b"x")),
    "lock": (lambda _: threading.Lock(), lambda state: state.acquire()),
    "minus one": (lambda _: [-1], lambda state: state.__setitem__(0, -2)),
    "a text's": (lambda _: Text("a"), lambda state: setattr(state, "looks", 1)),
    "a dict's": (lambda _: Seen(), lambda state: setattr(state, "looks", 1)),
    "in the midst": (lambda _: [0] * 2_000, lambda state: state.__setitem__(1_000, 1)),
    "which function": (lambda _: [len], lambda state: state.__setitem__(0, max)),
}


@pytest.mark.parametrize("how", MOVES)
def test_a_poke_that_moves_it_is_found(monkeypatch: pytest.MonkeyPatch, kept: list[str], how: str) -> None:
    made, act = MOVES[how]
    makes(monkeypatch, made)
    first_poke_of(in_dag(Makes))
    assert kept == []
    context = rebuild.poke_context_of(in_dag(Makes))
    pooled = adapt(Makes)(**context)
    assert not pooled.poke({})
    assert not pooled.poke({})
    makes(monkeypatch, made, act)
    first_poke_of(in_dag(Makes))
    assert kept == ["its poke changes its attribute state: it is stateful"]
    late = adapt(Makes)(**context)
    with pytest.raises(HandBack, match="its attribute state"):
        late.poke({})
    monkeypatch.setitem(globals(), "_act", lambda state: (act(state), True)[1])
    landing = Landing.read(pooled.poke({}).xcom_value)
    assert {*landing.attributes, *landing.lost} == {"state"}  # a landing takes it along, or names it as lost


TELLS: dict[str, Callable[[str], Any]] = {
    "array": lambda name: array.array("b", name.encode()),
    "buffer": lambda name: io.StringIO(name),
    "random": lambda name: random.Random(name),
    "in an object": lambda name: [random.Random(name)],
    "iterator": lambda name: iter([name]),
    "hash": lambda name: hashlib.sha256(name.encode()),
}


@pytest.mark.parametrize("made", TELLS.values(), ids=TELLS)
def test_it_tells_sensors_apart(monkeypatch: pytest.MonkeyPatch, made: Callable[[str], Any]) -> None:
    makes(monkeypatch, made)
    with pytest.raises(NotPoolable, match="its attribute state is another one"):
        rebuild.poke_context_of(in_dag(Makes))
    contexts = []
    for name in ("a", "b", "a"):
        makes(monkeypatch, lambda _, name=name: made(name))  # type: ignore[misc]
        contexts.append(rebuild.poke_context_of(in_dag(Makes)))
    assert contexts[0] == contexts[2] != contexts[1]
    with pytest.raises(HandBack, match="its attribute state is another one"):
        adapt(Makes)(**contexts[1])
    assert not adapt(Makes)(**contexts[0]).poke({})


UNTOLD: dict[str, Callable[[str], Any]] = {
    "generator": lambda _: (n for n in range(3)),
    "cycle": lambda _: itertools.cycle("ab"),
    "file": lambda _: io.TextIOWrapper(io.BytesIO(b"a\nb\n")),
    "too much": lambda _: array.array("b", bytes(2**21)),
}


@pytest.mark.parametrize("made", UNTOLD.values(), ids=UNTOLD)
def test_what_nobody_can_see_keeps_it_on_its_worker(
    monkeypatch: pytest.MonkeyPatch, made: Callable[[str], Any]
) -> None:
    makes(monkeypatch, made)
    with pytest.raises(NotPoolable, match="its attribute state holds state that cannot be read"):
        rebuild.poke_context_of(in_dag(Makes))


HARMLESS: dict[str, Callable[[str], Any]] = {
    "pattern": lambda _: __import__("re").compile("a"),
    "zone": lambda _: ZoneInfo("Europe/Berlin"),
    "lock": lambda _: threading.Lock(),
    "lock by thread": lambda _: threading.RLock(),
    "TLS": lambda _: ssl.create_default_context(),
    "error": lambda _: ValueError("x"),
    "session": lambda _: requests.Session(),
    "templates": lambda _: jinja2.Environment(autoescape=True),
    "queue": lambda _: queue.Queue(),
}


@pytest.mark.parametrize("made", HARMLESS.values(), ids=HARMLESS)
def test_what_holds_no_answers_is_pooled(
    monkeypatch: pytest.MonkeyPatch, kept: list[str], made: Callable[[str], Any]
) -> None:
    makes(monkeypatch, made)
    first_poke_of(in_dag(Makes))
    assert kept == []
    pooled = adapt(Makes)(**rebuild.poke_context_of(in_dag(Makes)))
    monkeypatch.setitem(globals(), "_act", lambda _: True)
    assert pooled.poke({})


def test_numpy(monkeypatch: pytest.MonkeyPatch, kept: list[str]) -> None:
    numpy = pytest.importorskip("numpy")
    makes(monkeypatch, lambda name: numpy.frombuffer(name.encode(), "b"))
    with pytest.raises(NotPoolable, match="its attribute state"):
        rebuild.poke_context_of(in_dag(Makes))
    makes(monkeypatch, lambda _: numpy.zeros(3), lambda state: state.__setitem__(1, 1))
    rebuild.poke_context_of(in_dag(Makes))
    first_poke_of(in_dag(Makes))
    assert kept == ["its poke changes its attribute state: it is stateful"]


def test_a_slot_of_the_sensor_itself(monkeypatch: pytest.MonkeyPatch, kept: list[str]) -> None:
    makes(monkeypatch, lambda name: name)
    with pytest.raises(NotPoolable, match="its attribute marker is another one"):
        rebuild.poke_context_of(in_dag(Slotted))
    makes(monkeypatch, lambda _: "a")
    told = saved_attributes.save(in_dag(Slotted))["as_started"]
    one = rebuild.poke_context_of(in_dag(Slotted))
    makes(monkeypatch, lambda _: "b")
    assert rebuild.poke_context_of(in_dag(Slotted)) != one
    resumed = in_dag(Slotted)
    assert saved_attributes.restore(resumed, told) is None
    assert resumed.marker == "a"
    makes(monkeypatch, lambda _: 0)
    first_poke_of(in_dag(Slotted))
    assert kept == ["its poke changes its attribute marker: it is stateful"]


def test_a_field_that_keeps_values_by_their_sensor() -> None:
    sensor = in_dag(Checked)
    with pytest.raises(NotPoolable, match=r"its constructor changes .*Checked\.marker"):
        rebuild.poke_context_of(sensor)
    assert sensor.marker == "wait.done"


def test_nothing_is_asked_of_an_odd_one() -> None:
    class Odd(Exception):
        def __reduce_ex__(self, _: Any) -> Any:
            raise RuntimeError("I/O")

    with pytest.raises(Unreadable):
        opaque_state.read(Odd())
    assert value_digest.canonical_json(Odd())
    sensor = in_dag(Makes)
    vars(sensor)["odd"] = Odd()
    assert sensor_state.changed_attribute(sensor_state.snapshot(sensor), sensor) is None
