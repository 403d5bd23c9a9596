"""A poke that ends the one-process service: the next start knows of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.service import kill_tree
from harness.until import until
from sensorpool import Pool, Settings
from sensorpool.model.states import State
from sensorpool.store.migrate import upgrade

pytestmark = pytest.mark.processes

SENSORS = """
import os
import time

class Exits:
    def poke(self, context):
        os._exit(3)


class ExitsAfterItsJob:
    # the job has just ended, and no state file is written since

    def poke(self, context):
        time.sleep(0.6)
        os._exit(3)


class ExitsLate:
    # takes longer than its job

    def poke(self, context):
        time.sleep(1.5)
        os._exit(3)
"""


@pytest.mark.parametrize("sensor", ["Exits", "ExitsAfterItsJob", "ExitsLate"])
@pytest.mark.parametrize("leases", ["Redis", "memory"])
def test_the_next_start_pokes_it_apart_until_it_is_in_quarantine(
    tmp_path: Path, request: pytest.FixtureRequest, leases: str, sensor: str
) -> None:
    (tmp_path / "ends_it.py").write_text(SENSORS)
    (tmp_path / "there").touch()
    given = {
        "database_url": f"sqlite:///{tmp_path / 'pool.db'}",
        "redis_url": request.getfixturevalue("redis_url") if leases == "Redis" else "memory://",
        "sensors_enabled": f"ends_it.{sensor},sensorpool.sensors.PathSensor",
        "tick": "0.5",
        "heartbeat": "0.4",
        "lease_ttl": "2",
    }
    environment = os.environ | {f"SENSORPOOL_{name.upper()}": value for name, value in given.items()}
    environment |= {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]), "TMPDIR": str(tmp_path)}
    upgrade(given["database_url"])
    pool = Pool(Settings.load(**given))
    exits = {"sensor": f"ends_it.{sensor}", "poke_context": {}, "poke_interval": 1.0}
    lands = {"sensor": "sensorpool.sensors.PathSensor", "poke_context": {"path": str(tmp_path / "there")}}
    ended, landed = (each.id for each in pool.register_many([exits, lands], try_out=False))
    runs: list[subprocess.Popen[bytes]] = []

    def has_come_to_its_end() -> bool:
        if not runs or runs[-1].poll() is not None:
            runs.append(
                subprocess.Popen([sys.executable, "-m", "sensorpool", "standalone"], env=environment, cwd=tmp_path)
            )
        return pool.wait([ended, landed], 0) == {ended: State.FAILED, landed: State.SUCCESS}

    try:
        until("the crashes are counted", has_come_to_its_end, patience=120)
        assert [run.poll() for run in runs] == [*[3] * (len(runs) - 1), None]
        assert 2 <= len(runs) <= 4
        reason = pool.get(ended).reason or ""
        assert "quarantined: its poke took its process down 3 times" in reason
        assert "exit code 3" in reason
    finally:
        for run in runs:
            kill_tree(run)
        pool.close()
