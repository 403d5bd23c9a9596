"""Faults 31-34: sensors that hang, freeze, block, crash, leak, print. Each costs its own group; no other is late."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from harness import audit
from harness.scripted import land, pokes
from harness.service import Service
from harness.until import until
from sensorpool.errors import Refused
from sensorpool.model.states import State
from tests.faults.trial import RECORDING, Record

INTERVAL = 2.0
ASYNC, SYNC = "harness.scripted.AsyncScriptedSensor", "harness.scripted.ScriptedSensor"
INNOCENTS = 12
SLOW = 3.0  # seconds: longer than a job
CRASHES = {"segfault": "SIGSEGV", "exit": "exit code 3"}
CASES = {
    (SYNC, "hang", 0.0): "31 a poke hangs in Python",
    (ASYNC, "hang", 0.0): "31 a coroutine hangs",
    (ASYNC, "block", 0.0): "31 a coroutine blocks its event loop",
    (SYNC, "freeze", 0.0): "31 a poke hangs in C with the interpreter lock held",
    (SYNC, "exit", 0.0): "32 a poke calls os._exit",
    (SYNC, "exit", SLOW): "32 a poke calls os._exit after its job has ended",
    (SYNC, "segfault", 0.0): "33 a poke segfaults",
    (SYNC, "leak", 0.0): "33 a poke takes memory without end",
    (SYNC, "print", 0.0): "34 a poke prints 100 MB",
}


@pytest.mark.parametrize(
    ("sensor", "script", "seconds"),
    CASES,
    ids=[f"{'slow-' if seconds else ''}{sensor.rpartition('.')[2]}-{how}" for sensor, how, seconds in CASES],
)
def test_bad_sensor_costs_its_own_group(
    make_service: Callable[..., Service],
    tmp_path: Path,
    record: Callable[[str], Record],
    sensor: str,
    script: str,
    seconds: float,
) -> None:
    # a slow machine takes its time until memory is out: the poke must not have to end before
    limit = 10.0 if script == "leak" or seconds else 1.0
    service = make_service(poke_memory=400, retention=3600, poke_timeout=limit, infra_failure_window=10.0)
    names = [f"innocent{number}" for number in range(INNOCENTS)]
    made = service.pool.register_many(
        {"sensor": sensor, "poke_context": {"folder": str(tmp_path), "name": name}} for name in names
    )
    service.start(workers=1)
    until("a poke of every innocent", lambda: all(pokes(tmp_path).get(name) for name in names))
    bad = service.pool.register(sensor, {"folder": str(tmp_path), "name": "bad", "script": script, "seconds": seconds})
    first = until("a poke of the bad one", lambda: pokes(tmp_path).get("bad"))[0].at
    until("five more of it, or its end", lambda: len(pokes(tmp_path)["bad"]) > 4 or _ended(service, bad.id), 90)
    here = max(poke.at for some in pokes(tmp_path).values() for poke in some)
    late = lateness(tmp_path, names, first, here)
    for name in names:
        land(tmp_path, name)
    states = service.pool.wait([instance.id for instance in made], 30)
    record(f"{CASES[sensor, script, seconds]} (recovery: how late the others were)").add(
        sensors=INNOCENTS,
        lost=sum(state is State.SENSING for state in states.values()),
        doubled=0,
        wrong=sum(state not in {State.SENSING, State.SUCCESS} for state in states.values()),
        recovery=[max(0.0, late - 1)],
    )
    assert set(states.values()) == {State.SUCCESS}
    assert late < 6, "far beyond an interval, also on a busy machine: what was measured is in the table"
    if script in CRASHES:
        _see_the_quarantine(service, tmp_path, bad.id, sensor, CRASHES[script])
    elif script == "leak":
        assert service.pool.wait([bad.id], 60) == {bad.id: State.FAILED}
        assert "MemoryError" in service.json("show", str(bad.id))["reason"]
    else:
        assert service.pool.wait([bad.id], 0) == {bad.id: State.SENSING}
        service.pool.cancel(bad.id)
    if script == "print":
        assert sum(path.stat().st_size for path in tmp_path.glob("*.log")) < 5_000_000
    found = audit.read(service.pool.database)
    assert found.is_clean, found


def test_one_that_ends_its_process_after_its_poke_costs_nobody_an_answer(
    make_service: Callable[..., Service], tmp_path: Path
) -> None:
    """It is not found. Those that it takes down with it get strikes, and none of them the last one."""
    service = make_service(poke_interval=1.0)
    folder = str(tmp_path)
    others = [service.pool.register(SYNC, {"folder": folder, "name": f"innocent{number}"}) for number in range(6)]
    service.start(workers=1)
    bad = service.pool.register(f"{RECORDING}.EndsLater", {"folder": folder, "name": "bad"}, timeout=600)
    until("it to be told", lambda: "die again and again" in service.cli("health").stdout, 120)
    assert any(each.endswith(": exit code 7") for each in service.json("status")["deaths"])
    for number in range(6):
        land(tmp_path, f"innocent{number}")
    assert set(service.pool.wait([each.id for each in others], 60).values()) == {State.SUCCESS}
    assert service.pool.wait([bad.id], 0) == {bad.id: State.SENSING}
    assert service.json("quarantine") == []


def _see_the_quarantine(service: Service, folder: Path, instance_id: int, sensor: str, why: str) -> None:
    """Check that the group failed with the reason, its condition is refused, and a command releases it."""
    assert service.pool.wait([instance_id], 240) == {instance_id: State.FAILED}
    shown = service.json("show", str(instance_id))
    assert "quarantined: its poke took its process down 3 times" in shown["reason"]
    assert why in shown["reason"]
    [listed] = service.json("quarantine")
    assert f"`sensorpool release {listed['id']}` lets it out" in shown["quarantined"]
    assert (listed["op_classpath"], listed["crashes"]) == (sensor, 3)
    assert service.json("status")["quarantined"] == 1
    context = shown["poke_context"]
    with pytest.raises(Refused, match="in quarantine"):
        service.pool.register(sensor, context)
    assert service.json("release", listed["id"]) == {"released": 1}
    assert service.json("quarantine") == []
    assert service.json("show", str(instance_id))["quarantined"] is None
    land(folder, context["name"])  # the sensor was mended meanwhile
    again = service.pool.register(sensor, context)
    assert service.pool.wait([again.id], 60) == {again.id: State.SUCCESS}


def lateness(folder: Path, names: list[str], since: float, until_at: float) -> float:
    """Return the longest time between two pokes of one of these groups, in intervals."""
    record = pokes(folder)
    longest = 0.0
    for name in names:
        times = [since, *(poke.at for poke in record[name] if since < poke.at < until_at), until_at]
        longest = max(longest, *(later - earlier for earlier, later in pairwise(times)))
    return longest / INTERVAL


def _ended(service: Service, instance_id: int) -> bool:
    return service.pool.wait([instance_id], 0)[instance_id] is not State.SENSING
