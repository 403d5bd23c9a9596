"""What all sensors have in common."""

import json
import pickle
import subprocess
import sys
from typing import Any

import pytest

import sensorpool.sensors
from sensorpool.sensors import HttpSensor, PathSensor, SqlSensor, TimeSensor

EXAMPLES: list[tuple[type, dict[str, Any]]] = [
    (PathSensor, {"path": "/data/*.csv", "min_age": 5, "min_size": 1}),
    (PathSensor, {"path": "memory://data/file", "conn_id": "store"}),
    (HttpSensor, {"url": "https://example.org/", "json_pointer": "/a", "json_value": [1], "headers": {"A": "b"}}),
    (SqlSensor, {"sql": "SELECT :a", "conn_id": "warehouse", "parameters": {"a": 1}}),
    (TimeSensor, {"target_time": "2030-01-31T06:00:00Z"}),
]


def test_importing_the_package_imports_no_sensor() -> None:
    script = (
        "import sys, sensorpool.sensors;"
        "print(sorted({'fsspec', 'urllib3', 'httpx', 'sqlalchemy', 'json', 'asyncio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_local_path_needs_neither_fsspec_nor_urllib3() -> None:
    script = (
        "import sys; from sensorpool.sensors import PathSensor, HttpSensor;"
        "PathSensor('/etc').poke({}); HttpSensor('http://127.0.0.1/');"
        "print(sorted({'fsspec', 'urllib3', 'sqlalchemy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", sensorpool.sensors.__all__)
def test_has_one_class_path(name: str) -> None:
    cls = getattr(sensorpool.sensors, name)
    assert f"{cls.__module__}.{cls.__qualname__}" == f"sensorpool.sensors.{name}"
    assert pickle.loads(pickle.dumps(cls)) is cls
    assert name in dir(sensorpool.sensors)


def test_has_no_other_names() -> None:
    with pytest.raises(AttributeError, match="no attribute 'FileSensor'"):
        sensorpool.sensors.FileSensor  # noqa: B018


@pytest.mark.parametrize(("cls", "context"), EXAMPLES)
def test_the_context_can_be_rebuilt_from_the_object(cls: type, context: dict[str, Any]) -> None:
    sensor: Any = cls(**context)
    rebuilt = {name: getattr(sensor, name) for name in cls.poke_context_fields}  # type: ignore[attr-defined]
    assert rebuilt.items() >= context.items()
    again: Any = cls(**json.loads(json.dumps(rebuilt)))
    assert {name: getattr(again, name) for name in rebuilt} == rebuilt
