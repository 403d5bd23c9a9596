"""What a worker says of its servers while one of them is silent."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from harness.until import until
from sensorpool.config.settings import Settings
from sensorpool.leases.lease import leases_of
from sensorpool.worker import observer as module
from sensorpool.worker.observer import Observer


@pytest.fixture
def gate() -> Any:
    """What a silent server waits for."""
    event = threading.Event()
    yield event
    event.set()


def made(**parts: Any) -> Observer:
    """Return an observer whose servers answer, but for these parts."""
    database: Any = SimpleNamespace(read=lambda question: 0, now=None)
    leases = leases_of(Settings.load())
    observer = Observer(Settings.load(), database, leases)
    for name, part in parts.items():
        setattr(observer, name, part)
    return observer


def test_a_database_that_falls_silent_while_figures_are_asked_for_is_told(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A half-open connection answers never, and the next look does not begin."""
    monkeypatch.setattr(module, "_SILENT", 0.05)
    observer = made(_figures=SimpleNamespace(ask=lambda: gate.wait(30) and [], workers=1))
    observer.start()
    try:
        until("it to be told", lambda: observer.servers().get("database"))
        assert "has not answered for" in str(observer.servers()["database"])
        gate.set()
        until("it to answer", lambda: observer.servers() == {"database": None, "Redis": None})
    finally:
        observer.close()
