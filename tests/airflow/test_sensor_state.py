"""Changes of a sensor by its poke, which the next poke finds, or the code after the last poke."""

import functools
import itertools
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

pytest.importorskip("airflow.providers.standard")

from airflow.providers.standard.sensors.filesystem import FileSensor
from airflow.sdk import BaseHook
from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool.airflow.pool.adapters import kept_operator
from sensorpool.airflow.pool.adapters.sensor import adapt
from sensorpool.airflow.proof.state import sensor_state
from sensorpool.airflow.result import Landing
from sensorpool.airflow.task import deferral, patch
from sensorpool.airflow.task.first_poke import FirstPoke
from sensorpool.errors import HandBack
from tests.airflow.running import context_of, in_dag


class Tracker:
    """Keeps what was seen."""

    def __init__(self) -> None:
        self.looks = 0
        self.client: Any = None


class Slotted:
    """Keeps it without a dict."""

    __slots__ = ("looks",)

    def __init__(self) -> None:
        self.looks = 0


class PartnerClient:
    """Asks a partner."""

    def __init__(self) -> None:
        self.asked = 0


class Leaves(BaseSensorOperator):
    """Does what the test says."""

    act: ClassVar[Callable[[Any], Any]] = staticmethod(lambda _: False)
    counter: ClassVar[Any] = itertools.count()

    def __init__(self, *, path: str = "p", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.path = path
        self.files: list[str] = []
        self.tracker = Tracker()
        self.slotted = Slotted()
        self.recent: deque[int] = deque(maxlen=2)
        self.pending = {"a", "b"}
        self.client = None

    def poke(self, context: Any) -> Any:
        """Do it."""
        return type(self).act(self)

    @functools.cached_property
    def baseline(self) -> int:
        """Is of the moment."""
        return next(Leaves.counter)

    @functools.cached_property
    def partner(self) -> Tracker:
        """Is made once."""
        return Tracker()

    @functools.cached_property
    def url(self) -> str:
        """Is made of the argument."""
        return f"https://partner/{self.path.strip()}"


class Declares(Leaves):
    """Says that its answers depend on its path alone; what its post_execute works with is another thing."""

    poke_context_fields = ("path",)

    def post_execute(self, context: Any, result: Any = None) -> None:
        """Work with the files."""
        self.log.info("%s", self.files)


class OurFile(FileSensor):
    """Keeps the path that its base makes of its Connection."""

    def poke(self, context: Any) -> bool:
        """Look."""
        return bool(self.path) and super().poke(context)


@pytest.fixture
def acts(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Any], Any]], None]:
    monkeypatch.setattr(patch, "is_enabled", lambda: False)
    return lambda act: monkeypatch.setattr(Leaves, "act", staticmethod(act))


CHANGES: dict[str, Callable[[Any], Any]] = {
    "added": lambda self: setattr(self, "_baseline", 3),
    "job": lambda self: setattr(self, "_job", Tracker()),
    "computed": lambda self: self.baseline and None,
    "in a set": lambda self: self.pending.discard("a"),
    "in a deque": lambda self: self.recent.append(1),
    "in a helper": lambda self: setattr(self.tracker, "looks", 1),
    "in a slot": lambda self: setattr(self.slotted, "looks", 1),
    "gone": lambda self: delattr(self, "files"),
}
KEEPS: dict[str, Callable[[Any], Any]] = {
    "client": lambda self: setattr(self, "client", PartnerClient()),
    "lazy client": lambda self: setattr(self, "_s3_client", type("S3", (), {})()),
    "client of a helper": lambda self: setattr(self.tracker, "client", PartnerClient()),
    "hook": lambda self: setattr(self, "anything", BaseHook()),
    "logger": lambda self: setattr(self, "anything", logging.getLogger("x")),
    "object that is made once": lambda self: self.partner and None,
    "made of arguments": lambda self: self.url and None,
    "equal": lambda self: setattr(self, "files", []),
}


def reasons_of(sensor: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    reasons: list[str] = []
    monkeypatch.setattr(deferral, "report_native", lambda _, error: reasons.append(str(error)))

    def native(sensor: Any, context: Any) -> None:
        assert not sensor.poke(context)
        sensor._get_next_poke_interval(None, lambda: 0.0, 1)

    FirstPoke(sensor, native, 10.0, list).poke(context_of(sensor))
    return reasons


@pytest.mark.parametrize("how", CHANGES)
def test_what_a_poke_leaves_for_the_next_keeps_it_on_its_worker(
    acts: Any, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    acts(CHANGES[how])
    assert [reason[:15] for reason in reasons_of(in_dag(Leaves), monkeypatch)] == ["its poke change"]
    with pytest.raises(HandBack, match="its poke changes its attribute"):
        adapt(Leaves)(path="p").poke({})


@pytest.mark.parametrize("how", KEEPS)
def test_what_is_made_once_keeps_nothing(acts: Any, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    acts(KEEPS[how])
    assert reasons_of(in_dag(Leaves), monkeypatch) == []
    pooled = adapt(Leaves)(path="p")
    assert not pooled.poke({})
    acts(lambda self: KEEPS[how](self) or True)
    assert pooled.poke({})


def test_a_class_derived_from_one_that_was_read_keeps_what_that_makes(
    acts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_FS_DEFAULT", "fs://")
    sensor = in_dag(OurFile, filepath="/nothing/is/here")
    assert reasons_of(sensor, monkeypatch) == []
    assert "path" in vars(sensor)


@pytest.mark.parametrize("cls", [Leaves, Declares])
def test_a_landing_takes_along_what_its_poke_leaves(acts: Any, cls: Any) -> None:
    """The post_execute or a callback of its task may work with that."""
    pooled = adapt(cls)(path="p")
    assert not pooled.poke({})
    acts(lambda self: self.files.append("x") or True)
    assert Landing.read(pooled.poke({}).xcom_value) == Landing(None, {"files": ["x"]}, {})


def test_what_declares_its_fields_and_does_nothing_afterwards_is_left_alone(
    acts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Declares, "post_execute")
    acts(lambda self: self.files.append("x") or True)
    assert adapt(Declares)(path="p").poke({})


@pytest.mark.parametrize("how", ["a poke that finds nothing", "error of one that was kept", "error"])
def test_what_its_pokes_have_changed_is_not_built_again(acts: Any, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    pooled = adapt(Leaves)(path="p")
    assert not pooled.poke({})
    if how == "a poke that finds nothing":
        acts(lambda self: self.pending.discard("a"))
    else:
        acts(lambda self: self.pending.discard("a") or 1 / 0)
        monkeypatch.setattr(kept_operator, "_QUICK", -1.0 if how == "error" else 100.0)
        if how == "error":
            with pytest.raises(ZeroDivisionError):
                pooled.poke({})
    for _ in range(2):
        with pytest.raises(HandBack, match="its attribute pending"):
            pooled.poke({})
        acts(lambda self: None)


def test_a_picture_of_what_knows_itself_ends() -> None:
    sensor = in_dag(Leaves)
    sensor.tracker.looks = sensor.tracker
    sensor.files.append(sensor.files)
    before = sensor_state.snapshot(sensor)
    assert sensor_state.changed_attribute(before, sensor) is None
    sensor.files.append("x")
    assert sensor_state.changed_attribute(before, sensor) == "files"
