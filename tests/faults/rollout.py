"""A service of two versions: workers and beats of an older version, unpacked in a folder, run beside this version's."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from harness import audit
from harness.service import Service, children, kill_tree
from harness.until import until
from sensorpool import Instance
from sensorpool.leases.range_state import read_in_flight
from sensorpool.model.suspicion import Suspicion
from sensorpool.testing import pokes
from tests.faults.trial import SENSOR, Record

HANGS = "stubborn.Hangs"
STUBBORN = """
import os
import time

from sensorpool.testing import ScriptedSensor


class Hangs(ScriptedSensor):
    def poke(self, context):
        while os.path.exists(os.path.join(self.folder, self.name + ".hangs")):
            time.sleep(0.05)
        return super().poke(context)
"""


class Worker(NamedTuple):
    """A worker that can be stopped in the middle of a job."""

    process: "subprocess.Popen[bytes]"
    name: str
    log: Path
    sign: Path  # a child that does not find this file makes it, and stops with its groups in flight

    def has_poked(self, folder: Path) -> bool:
        """Whether the worker has poked in a job, not apart."""
        own = {child.pid for child in children(self.process)}
        return any(poke.pid in own for some in pokes(folder).values() for poke in some)

    def says(self, words: str) -> bool:
        """Whether the worker's log has these words."""
        return words in self.log.read_text(errors="replace")


class Rollout(Service):
    """A service whose processes run one version or the other: this version if no folder is named."""

    def worker_of(self, version: Path | None) -> Worker:
        """Start a worker of a version."""
        name = f"worker{len(self.processes)}"
        sign, log = self.folder / f"{name}-stopped", self.folder / f"worker-{len(self.processes)}.log"
        sign.touch()
        process = self.worker(SENSORPOOL_FAILPOINT=f"poke.after:stop:{sign}", **self.path_of(version))
        return Worker(process, name, log, sign)

    def beat_of(self, version: Path | None) -> "subprocess.Popen[bytes]":
        """Start a beat of a version."""
        return self.beat(**self.path_of(version))

    def path_of(self, version: Path | None) -> dict[str, str]:
        """Return the environment of a process of a version."""
        return {"PYTHONPATH": os.pathsep.join(str(each) for each in (version, self.folder) if each)}

    def register_by(self, version: Path, numbers: range) -> list[int]:
        """Register sensors by the code of a version; return the ids of the instances."""
        code = (
            "import sensorpool\n"
            f"for n in range({numbers.start}, {numbers.stop}):\n"
            f"    print(sensorpool.register({SENSOR!r}, {{'folder': {str(self.folder)!r}, 'name': f'g{{n}}'}}).id)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | self.environment | self.path_of(version),
            cwd=self.folder,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return [int(line) for line in done.stdout.split()]

    def register(self, numbers: range) -> list[int]:
        """Register sensors by the code of this version; return the ids of the instances."""
        contexts = ({"folder": str(self.folder), "name": f"g{number}"} for number in numbers)
        return [made.id for made in self.pool.register_many({"sensor": SENSOR, "poke_context": c} for c in contexts)]

    def hang(self, name: str) -> Instance:
        """Register a sensor that hangs until `let_go`, by the code of this version."""
        (self.folder / "stubborn.py").write_text(STUBBORN)
        (self.folder / f"{name}.hangs").touch()
        context = {"folder": str(self.folder), "name": name}
        [made] = self.pool.register_many([{"sensor": HANGS, "poke_context": context}], try_out=False)
        return made

    def let_go(self, name: str) -> None:
        """End the hang of a sensor."""
        (self.folder / f"{name}.hangs").unlink()

    def why(self, instance: Instance) -> Suspicion | None:
        """Return why the group of an instance is suspect, or None."""
        return self.pool.leases.suspects.why(self.pool.range_of(instance.shardcode), instance.group_id)

    def kill_in_flight(self, worker: Worker) -> list[int]:
        """Kill a worker in the middle of its jobs; return the groups that were in flight, as Redis has them."""
        worker.sign.unlink()
        until("a child that stops in its job", worker.sign.exists)
        found: list[int] = until("groups in flight", lambda: self._in_flight(worker))
        kill_tree(worker.process)
        return found

    def _in_flight(self, worker: Worker) -> list[int]:
        leases, found = self.pool.leases, []
        for shard_range, (holder, _, _) in zip(self.pool.ranges, leases.look(self.pool.ranges), strict=True):
            if holder and holder.startswith(f"{worker.name}@"):
                found += read_in_flight(leases.store.client.get(leases.store.key(shard_range, "note")) or "")
        return found


def assert_all_landed(service: Service, ids: list[int], record: Record) -> None:
    """Check that all have landed, each once, and add that to the record."""
    states = service.pool.wait(ids, 60)
    found = audit.read(service.pool.database)
    record.add(
        sensors=len(ids),
        lost=sum(state == "sensing" for state in states.values()),
        doubled=len(found.doubled) + len(found.changed),
        wrong=sum(state not in {"sensing", "success"} for state in states.values()),
        recovery=[],
    )
    assert set(states.values()) == {"success"}, service.logs()[-3000:]
    assert found.is_clean, found


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a process as a deployment does."""
    process.send_signal(signal.SIGTERM)
    process.wait(60)
