"""A poke that changes how its task waits: the pool goes by what was registered, so it goes back to its worker."""

import copy
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

pytest.importorskip("airflow")

from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool import Settings
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof.watch import task_reads
from sensorpool.airflow.task.poolable import condition_of
from sensorpool.errors import HandBack
from tests.airflow.running import PokesLog, context_of, in_dag
from tests.airflow.test_pool_adapters import in_the_pool


class Later(BaseSensorOperator):
    """Does something at its second poke in a process."""

    pokes_log: ClassVar[PokesLog] = PokesLog()
    does: ClassVar[Callable[[Any], object]] = staticmethod(lambda _: None)

    def __init__(self, *, flag: str = "x", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.flag = flag

    def poke(self, context: Any) -> bool:
        """Do it, and answer whatever came of that."""
        type(self).pokes_log.append("poke")
        if len(self.pokes_log) > 1:
            type(self).does(self)
        return len(self.pokes_log) > 1


class DerivedFromLater(Later):
    """Inherits what its base refuses once that was sealed."""


class Catches(Later):
    """Makes do without."""

    def poke(self, context: Any) -> bool:
        """Catch everything."""
        try:
            return super().poke(context)
        except BaseException:
            return True


class Client:
    """Is made when a sensor first needs it."""


def _delete(sensor: Any) -> None:
    del sensor.timeout


CHANGES = {
    "its timeout": lambda sensor: setattr(sensor, "timeout", 60),
    "its soft_fail": lambda sensor: setattr(sensor, "soft_fail", True),
    "its never_fail": lambda sensor: setattr(sensor, "never_fail", True),
    "its do_xcom_push": lambda sensor: setattr(sensor, "do_xcom_push", False),
    "a deleted timeout": _delete,
    "a copy's timeout": lambda sensor: setattr(copy.copy(sensor), "timeout", 60),
}


@pytest.mark.parametrize("cls", [Later, DerivedFromLater, Catches])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_later_poke_is_handed_back(monkeypatch: pytest.MonkeyPatch, cls: Any, change: Any) -> None:
    monkeypatch.setattr(Later, "pokes_log", PokesLog())
    monkeypatch.setattr(Later, "does", staticmethod(change))
    made = in_the_pool(in_dag(cls))
    assert made.poke({}) is False
    with pytest.raises(HandBack, match=r"its poke changes its \w+, by which its task waits"):
        made.poke({})


def test_what_is_its_own_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Later, "pokes_log", PokesLog())
    monkeypatch.setattr(Later, "does", staticmethod(lambda sensor: setattr(sensor, "client", Client())))
    made = in_the_pool(in_dag(Later))
    assert [made.poke({}), made.poke({})] == [False, True]


def test_a_sensor_that_is_not_sealed_is_as_ever() -> None:
    """Whose class was, in this process."""
    task_reads.seal(in_dag(Later))
    for cls in (Later, DerivedFromLater):
        sensor = in_dag(cls, timeout=7)
        sensor.timeout += 1
        assert (sensor.timeout, vars(sensor)["timeout"]) == (8, 8)
        del sensor.timeout
        with pytest.raises(AttributeError):
            del sensor.timeout
        with pytest.raises(AttributeError):
            _ = sensor.timeout


class DynamicSoft(Later):
    """Works out anew whether it may skip."""

    @property
    def soft_fail(self) -> bool:
        """Say so."""
        return bool(self.pokes_log)

    @soft_fail.setter
    def soft_fail(self, _: bool) -> None:
        """Take what the constructor gives."""


class DynamicTimeout(Later):
    """Works out anew how long it waits."""

    @property
    def timeout(self) -> float:
        """Say so."""
        return 10.0 * len(self.pokes_log)

    @timeout.setter
    def timeout(self, _: float) -> None:
        """Take what the constructor gives."""


@pytest.mark.parametrize(("cls", "name"), [(DynamicSoft, "soft_fail"), (DynamicTimeout, "timeout")])
def test_what_a_class_works_out_runs_natively(cls: Any, name: str) -> None:
    sensor = in_dag(cls)
    settings = Settings.load(sensors_enabled=f"{__name__}.{cls.__name__}")
    with pytest.raises(NotPoolable, match=f"its class computes its {name} each time"):
        condition_of(sensor, context_of(sensor), settings, AirflowSettings())
