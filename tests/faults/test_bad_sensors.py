"""Sensors that hang, freeze, block and crash: each costs its own group, and the others are on time."""

from itertools import pairwise
from pathlib import Path

import pytest

from sensorpool.states import State
from sensorpool.testing import land, pokes
from tests import audit
from tests.service import Service, until

INTERVAL = 2.0
ASYNC, SYNC = "sensorpool.testing.AsyncScriptedSensor", "sensorpool.testing.ScriptedSensor"
INNOCENTS = 12


def lateness(folder: Path, names: list[str], since: float, until_at: float) -> float:
    """Return the longest time between two pokes of one of these, in intervals."""
    record = pokes(folder)
    longest = 0.0
    for name in names:
        times = [since, *(poke.at for poke in record[name] if since < poke.at < until_at), until_at]
        longest = max(longest, *(later - earlier for earlier, later in pairwise(times)))
    return longest / INTERVAL


def innocents(service: Service, folder: Path, sensor: str) -> tuple[list[int], list[str]]:
    names = [f"innocent{number}" for number in range(INNOCENTS)]
    made = service.pool.register_many(
        {"sensor": sensor, "poke_context": {"folder": str(folder), "name": name}} for name in names
    )
    return [instance.id for instance in made], names


@pytest.mark.parametrize(
    ("sensor", "script"),
    [(SYNC, "hang"), (ASYNC, "hang"), (ASYNC, "block"), (SYNC, "freeze"), (SYNC, "segfault"), (SYNC, "exit")],
)
def test_a_bad_sensor_costs_its_own_group(service: Service, tmp_path: Path, sensor: str, script: str) -> None:
    ids, names = innocents(service, tmp_path, sensor)
    service.start(workers=1)
    until("a poke of every innocent", lambda: all(pokes(tmp_path).get(name) for name in names))
    bad = service.pool.register(sensor, {"folder": str(tmp_path), "name": "bad", "script": script})
    first = until("a poke of the bad one", lambda: pokes(tmp_path).get("bad"))[0].at
    until(
        "five more of it, or its end", lambda: len(pokes(tmp_path)["bad"]) > 4 or _ended(service, bad.id), patience=90
    )
    here = max(poke.at for some in pokes(tmp_path).values() for poke in some)
    late = lateness(tmp_path, names, first, here)
    print(f"{script}: the others were late by {late - 1:.2f} intervals at most")
    # generous, for a busy machine: what is measured is printed
    assert late < (6 if script in {"freeze", "segfault", "exit"} else 4)
    for name in names:
        land(tmp_path, name)
    assert set(service.pool.wait(ids, 30).values()) == {State.SUCCESS}
    if script in {"segfault", "exit"}:
        assert service.pool.wait([bad.id], 60) == {bad.id: State.FAILED}
        shown = service.json("show", str(bad.id))
        assert "quarantined" in shown["reason"]
        assert "3 times" in shown["reason"]
    else:
        assert service.pool.wait([bad.id], 0) == {bad.id: State.SENSING}
        service.pool.cancel(bad.id)
    found = audit.read(service.pool.database)
    assert found.is_clean, found


def _ended(service: Service, instance_id: int) -> bool:
    return service.pool.wait([instance_id], 0)[instance_id] is not State.SENSING
