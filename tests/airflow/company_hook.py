"""A company's installed provider, whose hook the sensors of Airflow's providers get by a Connection."""

import importlib
import json
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import airflow.providers
import pytest
from airflow.providers.common.sql.sensors.sql import SqlSensor

from sensorpool.airflow.proof.arguments import rebuild
from sensorpool.airflow.proof.watch import hooks_in_pool
from sensorpool.airflow.task import deferral, patch
from sensorpool.airflow.task.first_poke import FirstPoke
from tests.airflow.running import context_of, in_dag
from tests.airflow.versions import HookInfo, ProvidersOfTask

Company = Callable[..., Any]

_HOOK = """
import collections, functools, os, sys, threading
from airflow.providers.common.sql.hooks.sql import DbApiHook
{module}

class AcmeHook(DbApiHook):
    conn_name_attr = "acme_conn_id"
    conn_type = "acme"
    hook_name = "Acme"
    {fields}

    def __init__(self, *args, role=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.role = role
        {built}

    def get_records(self, sql, parameters=None, **kwargs):
        {asks}
        return [[{answer}]]
"""


@contextmanager
def installed(folder: Path, package: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Company]:
    """Yield what writes the modules of a provider, and returns what imports one of them. The pool's process is new."""
    monkeypatch.setattr(patch, "is_enabled", lambda: False)
    monkeypatch.setenv("AIRFLOW_CONN_ACME", "acme://")
    place = folder.joinpath(*package.split("."))
    place.mkdir(parents=True)
    (place / "__init__.py").touch()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(airflow.providers, "__path__", [*airflow.providers.__path__, str(folder / "airflow/providers")])

    def write(
        module: str = "", asks: str = "", *, fields: str = "", built: str = "", answer: str = "0", **others: str
    ) -> Any:
        hook = _HOOK.format(module=textwrap.dedent(module), fields=fields, built=built, asks=asks, answer=answer)
        for name, text in {**others, "hooks": hook}.items():
            (place / f"{name}.py").write_text(textwrap.dedent(text).replace("ACME", package))
        importlib.invalidate_caches()
        info = HookInfo(f"{package}.hooks.AcmeHook", "acme_conn_id", package, "Acme", "acme", False)
        monkeypatch.setitem(ProvidersOfTask().hooks, "acme", info)
        return lambda name="hooks": importlib.import_module(f"{package}.{name}")

    hooks_in_pool.forget()
    yield write
    hooks_in_pool.forget()
    for name in [name for name in sys.modules if f"{name}.".startswith(f"{package}.")]:
        del sys.modules[name]


def first_poke_of(
    sensor: Any, monkeypatch: pytest.MonkeyPatch, register: Callable[[], object] = list
) -> tuple[FirstPoke, list[str]]:
    """Poke a sensor on its worker; return the poke, and why the sensor keeps its slot."""
    reasons: list[str] = []
    monkeypatch.setattr(deferral, "report_native", lambda _, error: reasons.append(str(error)))

    def native(sensor: Any, context: Any) -> None:
        assert not sensor.poke(context)
        sensor._get_next_poke_interval(None, lambda: 0.0, 1)

    first = FirstPoke(sensor, native, 10.0, register)
    first.poke(context_of(sensor))
    return first, reasons


def reasons_of(sensor: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Poke a sensor on its worker; return why the sensor keeps its slot."""
    return first_poke_of(sensor, monkeypatch)[1]


def told_by(sensor: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Poke a sensor on its worker; return the condition that is registered."""
    poke_context = rebuild.poke_context_of(sensor)
    first, reasons = first_poke_of(sensor, monkeypatch)
    assert reasons == []
    told = rebuild.with_first_poke(type(sensor), poke_context, first.missing, first.of_environment, first.hooks)
    return dict(json.loads(json.dumps(told)))


def sql_sensor(**arguments: Any) -> Any:
    """Return a sensor of a provider that asks by the company's hook."""
    return in_dag(SqlSensor, **{"conn_id": "acme", "sql": "SELECT 1", **arguments})
