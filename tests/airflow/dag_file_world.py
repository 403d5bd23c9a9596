"""A bundle, the worker that parses its files, and the pool: what tests of sensors of DAG files have in common."""

import json
import os
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pendulum
import pytest
from airflow.sdk.execution_time.context import set_current_context

from harness.until import until
from sensorpool import Settings
from sensorpool.airflow.compat import dag_bundles
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.pool import dag_files
from sensorpool.airflow.pool.dag_files.processes import Processes
from sensorpool.airflow.proof.arguments import dag_file
from sensorpool.airflow.proof.watch import process_start
from sensorpool.airflow.result import Landing
from sensorpool.airflow.task import deferral, poolable
from sensorpool.airflow.task.first_poke import FirstPoke
from sensorpool.model.states import Outcome
from sensorpool.model.values import DueGroup, Report
from sensorpool.poke.poker import Poker
from tests.airflow.running import Ti

_HEAD = """
import datetime as dt, functools, os, pathlib, signal, sys, time
from airflow.sdk import DAG, BaseHook, BaseSensorOperator, Variable, get_current_context, task
from airflow.sdk.bases.sensor import PokeReturnValue
from airflow.providers.standard.sensors.python import PythonSensor
HERE = pathlib.Path(__file__).parent.parent
with DAG("dag", schedule=None):
"""
_NOT_READY = ("is still loading", "is being started", "is replaced by", "was changed while it was loaded")
MOMENT = pendulum.datetime(2026, 1, 2, 3, tz="UTC")


class World:
    """A bundle, the worker that parses its files, and the pool."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "dags"
        self.folder.mkdir(parents=True)
        self.name = "ours"

    def write(self, body: str, path: str = "x.py") -> None:
        """Write a DAG file, whose body is indented into its DAG."""
        (self.folder / path).write_text(_HEAD + textwrap.indent(textwrap.dedent(body), "    "))
        self.age(path)

    def age(self, *paths: str) -> None:
        """Wait until no clock of a file system takes files for just written."""
        until(
            "the file's time", lambda: all(os.stat(self.folder / each).st_ctime < time.time() - 0.2 for each in paths)
        )

    def sensor(self, path: str = "x.py", *, version: str | None = None, **rendered: Any) -> Any:
        """Return the task as its worker has it."""
        self.forget_modules()
        self.bundle = dag_bundles.Bundle(self.name, version)
        process_start.remember()
        [dag] = self.bundle.load(path).values()
        self.bundle.close()
        [sensor] = dag.tasks
        for name, value in rendered.items():
            setattr(sensor, name, value)
        return sensor

    def forget_modules(self) -> None:
        """Forget what this process, which stands for one of many workers, has loaded of the bundle."""
        for name, module in list(sys.modules.items()):
            if name.startswith("acme_") or str(getattr(module, "__file__", None)).startswith(str(self.folder)):
                del sys.modules[name]

    def context(self, sensor: Any, **more: Any) -> dict[str, Any]:
        """Return a template context."""
        ti = Ti(sensor.dag_id, sensor.task_id)
        ti.bundle_instance = self.bundle._bundle  # type: ignore[attr-defined]
        return {"ti": ti, "ds": "2026-01-02", "params": {"n": 1}, "logical_date": MOMENT, "run_id": "run1", **more}

    def condition(self, sensor: Any, **more: Any) -> poolable.Condition:
        """Return the condition of a sensor, as JSON carries it."""
        found = poolable.condition_of(sensor, self.context(sensor, **more), settings(), AirflowSettings.load())
        return poolable.Condition(
            found.op_classpath, json.loads(json.dumps(found.poke_context)), found.adapted, found.of_dag_file
        )

    def pooled(self, sensor: Any, **more: Any) -> "Group":
        """Return a group that waits for a sensor's condition in the pool, after its first poke on its worker."""
        return Group(self.registered(sensor, **more))

    def registered(self, sensor: Any, **more: Any) -> dict[str, Any]:
        """Return the poke_context of a sensor that pokes once on its worker.

        :raises NotPoolable: when it keeps its slot.
        """
        context = self.context(sensor, **more)
        condition, registered = self.condition(sensor, **more), []

        def register() -> None:
            found = (first.missing, first.of_environment, first.hooks)
            registered.append(dag_file.with_first_poke(sensor, context, condition.poke_context, *found))

        def native(sensor: Any, context: Any) -> None:
            assert not sensor.poke(context)
            sensor._get_next_poke_interval(None, lambda: 0.0, 1)

        first = FirstPoke(sensor, native, 60.0, register, dag_file.names_given(condition.poke_context))
        reasons: list[NotPoolable] = []
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(deferral, "report_native", lambda _, error: reasons.append(error))
            with set_current_context(context):  # type: ignore[arg-type]
                first.poke(context)
        if reasons:
            raise reasons[0]
        return dict(json.loads(json.dumps(registered[0])))


class Group:
    """A group of the pool's engine, which is poked as a job pokes it."""

    def __init__(self, poke_context: dict[str, Any]) -> None:
        cache = Poker(settings()).cache
        self._unit = cache.keep(DueGroup(1, 1, 1, 1, 30_000, 0, 0, None), dag_file.SENSOR, json.dumps(poke_context))

    def poke(self) -> Report:
        """Poke once; wait until the process of the bundle has loaded its file, which takes long on a busy machine."""
        reports: list[Report] = []

        def is_loaded() -> bool:
            reports[:] = self._unit.poke()
            return not any(each in str(reports[0].reason) for each in _NOT_READY)

        until("the file is loaded", is_loaded, patience=240)
        return reports[0]

    def value(self) -> Any:
        """Poke once, and return the value for XCom of a landing."""
        report = self.poke()
        assert report.outcome is Outcome.LANDED, report
        return None if report.xcom_value is None else Landing.read(json.loads(report.xcom_value)).value


def settings() -> Settings:
    return Settings.load(sensors_enabled=dag_file.SENSOR, poke_timeout=20.0)


@contextmanager
def local_world(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A world whose bundle is a folder."""
    made = World(folder)
    bundle = {"name": "ours", "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle"}
    bundle["kwargs"] = {"path": str(made.folder)}  # type: ignore[assignment]
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", json.dumps([bundle]))
    of_pool = Processes(settings(), 2)
    monkeypatch.setattr(dag_files, "processes", lambda: of_pool)
    path = [*sys.path]
    yield made
    for process in of_pool.running:
        process.retire()
    sys.path[:] = path
    made.forget_modules()
