"""Sensors that block the log, its locks, or the threads of a worker themselves.

No other group waits for them; if a thread of the worker does, the time limit of the job ends its process.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from harness import audit
from harness.scripted import land, pokes
from harness.service import Service, children
from harness.until import until
from sensorpool.model.states import State
from tests.faults.test_crashes import lateness
from tests.faults.trial import OF_FAULTS, RECORDING

ODD = ("LogsLazily", "HangsAtItsEnd", "AddsHandlers")
SYNC, ASYNC = "harness.scripted.ScriptedSensor", "harness.scripted.AsyncScriptedSensor"
INNOCENTS = 12


@pytest.fixture
def service(make_service: Callable[..., Service]) -> Service:
    odd = [f"{RECORDING}.{name}" for name in ODD]
    return make_service(sensors_enabled=",".join([SYNC, ASYNC, *OF_FAULTS, *odd]), retention=3600)


def begin(service: Service, folder: Path) -> dict[str, int]:
    """Start a worker, and wait until healthy sensors are poked; return their instances."""
    service.start(workers=1)
    made = {
        f"innocent{number}": service.pool.register(
            (SYNC, ASYNC)[number % 2], {"folder": str(folder), "name": f"innocent{number}"}
        ).id
        for number in range(INNOCENTS)
    }
    until("a poke of every innocent", lambda: made.keys() <= pokes(folder).keys())
    return made


def poke_odd(service: Service, folder: Path, *kinds: str) -> list[int]:
    """Register odd sensors, and wait until their fault has struck; return their instances."""
    made = [service.pool.register(f"{RECORDING}.{kind}", {"folder": str(folder), "name": kind}).id for kind in kinds]
    until("the faults to strike", lambda: {f"{kind} struck" for kind in kinds} <= pokes(folder).keys())
    return made


def poked_again(folder: Path, names: dict[str, int], times: int) -> None:
    before = pokes(folder)
    until("further pokes of all", lambda: all(len(pokes(folder)[n]) >= len(before[n]) + times for n in names))


def end(service: Service, folder: Path, made: dict[str, int], odd: list[int]) -> None:
    """Let the healthy sensors land, and check that each lands once. The odd ones are cancelled."""
    for name in made:
        land(folder, name)
    assert set(service.pool.wait(list(made.values()), 30).values()) == {State.SUCCESS}
    for instance_id in odd:
        service.pool.cancel(instance_id)
    found = audit.read(service.pool.database)
    assert found.is_clean, found


def test_what_hangs_in_the_log_or_at_its_end_stops_nobody_else(service: Service, tmp_path: Path) -> None:
    made = begin(service, tmp_path)
    family = {child.pid for child in children(service.processes[0])}
    odd = poke_odd(service, tmp_path, *ODD)
    since = min(pokes(tmp_path)[kind][0].at for kind in ODD)
    poked_again(tmp_path, made, 5)
    here = max(poke.at for name in made for poke in pokes(tmp_path)[name])
    assert lateness(tmp_path, list(made), since, here) < 4, "far beyond an interval, also on a busy machine"
    assert {poke.pid for name in made for poke in pokes(tmp_path)[name]} <= family, "no process had to be ended"
    end(service, tmp_path, made, odd)


def test_a_job_whose_thread_cannot_go_on_is_ended_by_its_time_limit(
    make_service: Callable[..., Service], tmp_path: Path
) -> None:
    """The poke stops no second process: its group, which was in flight, is poked in a child from then on."""
    kind = f"{RECORDING}.HoldsTheLog"
    service = make_service(sensors_enabled=",".join([SYNC, ASYNC, kind]), retention=3600, job_time_limit=8)
    made = begin(service, tmp_path)
    odd = poke_odd(service, tmp_path, "HoldsTheLog")
    until("the end of its job", lambda: "Hard time limit (8.0s) exceeded" in service.logs(), 60)
    poked_again(tmp_path, made, 3)
    struck = len(pokes(tmp_path)["HoldsTheLog struck"])
    until("it to be poked in a child", lambda: len(pokes(tmp_path)["HoldsTheLog struck"]) > struck, 60)
    ended = service.logs().count("Hard time limit (8.0s) exceeded")
    poked_again(tmp_path, made, 5)
    assert service.logs().count("Hard time limit (8.0s) exceeded") == ended, "no further process is stopped"
    end(service, tmp_path, made, odd)
