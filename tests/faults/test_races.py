"""Faults 41-43: registered again, cleared or cancelled while a poke runs; and 20,000 registrations from 8 processes."""

import subprocess
import sys
import time
from pathlib import Path

from sqlalchemy import text

from harness.scripted import land, pokes
from harness.until import until
from sensorpool.model.states import State
from tests.faults.stand import Stand
from tests.faults.trial import SENSOR, runs

REGISTER = """
import sys
from sensorpool import Pool
number, folder = int(sys.argv[1]), sys.argv[2]
sensors = [
    {"sensor": "harness.scripted.ScriptedSensor", "poke_context": {"folder": folder, "name": f"many{n % 12_000}"},
     "dag_id": f"dag{n % 50}", "task_id": f"t{n}", "run_id": "many", "poke_interval": 600.0}
    for n in range(number * 2_500, (number + 1) * 2_500)
]
pool = Pool()
print(len(pool.register_many(sensors, try_out=False)))
pool.close()
"""


def test_registered_again_while_a_poke_runs(stand: Stand) -> None:
    """A poke that began before the second try does not settle it: the second try has a poke of its own."""
    service, folder = stand.service, stand.service.folder
    for number in range(runs(full=50)):
        name = f"again{number}"
        context = {"folder": str(folder), "name": name, "seconds": 0.9}
        key = {"dag_id": "races", "task_id": name, "run_id": "r"}
        first = service.pool.register(SENSOR, context, **key)  # type: ignore[arg-type]
        poked = until("a poke", lambda name=name: pokes(folder).get(name))[-1].at
        second = service.pool.register(SENSOR, context, try_number=2, **key)  # type: ignore[arg-type]
        assert service.pool.wait([first.id], 0) == {first.id: State.CANCELLED}
        until("a poke after it", lambda name=name, poked=poked: pokes(folder)[name][-1].at > poked)
        assert service.pool.wait([second.id], 0) == {second.id: State.SENSING}
        land(folder, name)
        assert service.pool.wait([second.id], 60) == {second.id: State.SUCCESS}
        assert service.pool.wait([first.id], 0) == {first.id: State.CANCELLED}


def test_cancelled_while_a_poke_that_lands_runs(stand: Stand) -> None:
    """The cancelled instance stays cancelled, and all others land."""
    service, folder = stand.service, stand.service.folder
    for number in range(runs(full=50)):
        name = f"cancelled{number}"
        context = {"folder": str(folder), "name": name, "seconds": 0.9}
        one, other = service.pool.register(SENSOR, context), service.pool.register(SENSOR, context)
        until("a poke", lambda name=name: pokes(folder).get(name))
        land(folder, name)  # seen at the end of the poke that runs
        assert service.pool.cancel(one.id) is State.CANCELLED
        assert service.pool.wait([other.id], 60) == {other.id: State.SUCCESS}
        assert service.pool.wait([one.id], 0) == {one.id: State.CANCELLED}
        assert until("its end", lambda i=one.id: service.json("show", str(i)))["next_poke_at"] is None


def test_20_000_registrations_from_8_processes(stand: Stand, tmp_path: Path) -> None:
    began = time.monotonic()
    registrants = [
        subprocess.Popen(
            [sys.executable, "-c", REGISTER, str(number), str(tmp_path)],
            env=stand.service.environment | {"PATH": "/usr/bin:/bin"},
            stdout=subprocess.PIPE,
        )
        for number in range(8)
    ]
    said = [int(process.communicate(timeout=120)[0]) for process in registrants]
    took = time.monotonic() - began
    assert said == [2_500] * 8

    def count(query: str) -> int:
        return int(stand.service.pool.database.read(lambda c: c.execute(text(query))).scalar_one())

    assert count("SELECT count(*) FROM sensor_instance WHERE run_id = 'many'") == 20_000
    groups = "SELECT count(DISTINCT group_id) FROM sensor_instance WHERE run_id = 'many'"
    assert count(groups) == count(f"SELECT count(*) FROM poke_group WHERE poke_context LIKE '%{tmp_path}%'") == 12_000
    print(f"20,000 registrations from 8 processes in {took:.1f} s")
    assert took < 60
    stand.sql("UPDATE sensor_instance SET state = 'cancelled' WHERE run_id = 'many'")  # the audit is not read again
    stand.sql(f"DELETE FROM poke_group WHERE poke_context LIKE '%{tmp_path}%'")
