"""A DAG file that replaces a method of an importable class: the pool imports the class without that."""

import sys
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("airflow")

from airflow.providers.standard.sensors.filesystem import FileSensor
from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool import Settings
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.task import poolable
from tests.airflow.running import in_dag

DAG_FILE = "unusual_prefix_0a1b_dags"
SOURCE = """
def poke(self, context):
    return True

def helper():
    return True
"""


def helper() -> bool:
    """Answer for a sensor."""
    return False


class Asks(BaseSensorOperator):
    """Asks a helper of its module, by methods of each kind."""

    def poke(self, context: Any) -> bool:
        """Ask."""
        return helper() or self.by_class() or self.by_static() or self.as_property

    @classmethod
    def by_class(cls) -> bool:
        """Answer."""
        return False

    @staticmethod
    def by_static() -> bool:
        """Answer."""
        return False

    @property
    def as_property(self) -> bool:
        """Answer."""
        return False


@pytest.fixture
def dag_file(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = ModuleType(DAG_FILE)
    module.__file__ = "/dags/dags.py"
    monkeypatch.setitem(sys.modules, DAG_FILE, module)
    exec(SOURCE, vars(module))  # as Airflow does
    return module


def check(cls: Any, **arguments: Any) -> str:
    settings = Settings.load(sensors_enabled=f"{__name__}.Asks,airflow.providers.*")
    return poolable.check(in_dag(cls, **arguments), {}, settings, AirflowSettings(enabled=True))


@pytest.mark.parametrize(
    ("name", "kind"),
    [("poke", None), ("by_class", classmethod), ("by_static", staticmethod), ("as_property", property)],
)
def test_a_method_that_a_dag_file_has_replaced_keeps_the_sensor_on_its_worker(
    monkeypatch: pytest.MonkeyPatch, dag_file: Any, name: str, kind: Any
) -> None:
    assert check(Asks) == f"{__name__}.Asks"
    monkeypatch.setattr(Asks, name, dag_file.poke if kind is None else kind(dag_file.poke))
    with pytest.raises(NotPoolable, match=f"its {name} is not that of its class: the DAG file has replaced it"):
        check(Asks)


def test_so_does_a_function_that_it_calls(monkeypatch: pytest.MonkeyPatch, dag_file: Any) -> None:
    monkeypatch.setattr(sys.modules[__name__], "helper", dag_file.helper)
    monkeypatch.setitem(sys.modules, "patched_code_has_been_imported_anew", ModuleType("x"))  # references are read anew
    with pytest.raises(NotPoolable, match="its class calls helper, which the DAG file has put there"):
        check(Asks)


@pytest.mark.parametrize("cls", [FileSensor, BaseSensorOperator])
def test_so_it_is_with_a_providers_class(monkeypatch: pytest.MonkeyPatch, dag_file: Any, cls: Any) -> None:
    check(FileSensor, filepath="/data")
    monkeypatch.setattr(cls, "poke", dag_file.poke)
    if cls is BaseSensorOperator:
        monkeypatch.delattr(FileSensor, "poke")
    with pytest.raises(NotPoolable, match="its poke is not that of its class"):
        check(FileSensor, filepath="/data")
