"""The page of all sensor classes is fresh, and those listed by default can be pooled."""

import importlib

import pytest

pytest.importorskip("airflow.providers.google")

from sensorpool.airflow.configuration import AIRFLOW_SENSORS
from tools import sensors_reference

AIP_17 = ("NamedHivePartitionSensor", "MetastorePartitionSensor")


def test_the_page_is_fresh() -> None:
    assert sensors_reference.page() == sensors_reference.PAGE.read_text(), "run `python tools/sensors_reference.py`"


@pytest.mark.parametrize("op_classpath", AIRFLOW_SENSORS)
def test_what_is_listed_by_default_can_be_pooled(op_classpath: str) -> None:
    module, _, name = op_classpath.rpartition(".")
    cls = getattr(importlib.import_module(module), name)
    if "operators" in module:  # they wait for what they have started
        assert hasattr(cls, "execute")
    else:
        assert sensors_reference.judge(cls).verdict in {"poolable", "poolable if"}
    assert (cls.__module__, cls.__qualname__) == (module, name)  # its one spelling


@pytest.mark.parametrize("name", AIP_17)
def test_the_two_of_aip_17_are_in_the_first_group(name: str) -> None:
    row = next(line for line in sensors_reference.PAGE.read_text().splitlines() if line.startswith(f"| `{name}`"))
    assert row.split("|")[2:4] in ([" ✓ ", " poolable "], [" ✓ ", " poolable if "])
