"""A class whose import takes long: its waiting groups were not poked, so no report says that a poke began."""

import threading
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from harness.until import until
from sensorpool.config.settings import Settings
from sensorpool.model.not_landed import each_report
from sensorpool.model.states import Outcome
from sensorpool.model.values import Report
from sensorpool.poke import imports
from sensorpool.poke.poker import Poker
from tests.support.builders import due_group

PATH = "slow_to_import.Lands"


class Lands:
    """The imported class."""

    def poke(self, context: Any) -> bool:
        return True


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The gate for which the import waits."""
    event = threading.Event()

    def slow(name: str) -> ModuleType:
        assert event.wait(30)
        module = ModuleType(name)
        vars(module)["Lands"] = Lands
        return module

    monkeypatch.setattr("sensorpool.poke.classes.import_module", slow)
    yield event
    event.set()


def _begun(poke_timeout: float = 0.05) -> tuple[Poker, Any]:
    poker = Poker(Settings.load(sensors_enabled=[PATH], poke_timeout=poke_timeout, lease_ttl=1, heartbeat=0.2))
    poking = poker.begin()
    poking.put([poker.cache.keep(due_group(1), PATH, "{}")], [1])
    return poker, poking


def test_an_import_that_takes_longer_than_a_poke_may_is_waited_for(gate: threading.Event) -> None:
    _, poking = _begun()
    ends = time.monotonic() + 0.3
    while time.monotonic() < ends:
        assert poking.step() == []
        time.sleep(0.01)
    assert poking.is_held_up(0.1), "the job does not wait for it"
    gate.set()
    [report] = until("it is poked", poking.step)
    assert report.outcome is Outcome.LANDED
    poking.end()


def test_two_ranges_of_one_job_wait_for_it(gate: threading.Event) -> None:
    poker, poking = _begun()
    poking.put([poker.cache.keep(due_group(2), PATH, "{}")], [2])
    gate.set()
    seen: list[Report] = []

    def both() -> bool:
        seen.extend(each_report(poking.step()))
        return len(seen) == 2

    until("both are poked", both)
    assert {report.group.id: report.outcome for report in seen} == {1: Outcome.LANDED, 2: Outcome.LANDED}
    poking.end()


def test_what_waits_for_it_is_due_again_where_the_job_ends(gate: threading.Event) -> None:
    _, poking = _begun()
    assert [one.group.id for one in poking.withdraw()] == [1]
    assert poking.is_over
    poking.end()


def test_an_import_that_does_not_end_is_left_to_others(gate: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "LIMIT", 0.1)
    poker, poking = _begun()
    reports: list[Report] = until("it is given up", poking.step)
    [report] = reports
    assert report.outcome is Outcome.CANNOT_POKE
    assert f"{PATH} is being imported here for longer than 0.1 s" in str(report.reason)
    assert poker.classes.refusals == {}, "should it end, it can be poked here"
    poking.end()
