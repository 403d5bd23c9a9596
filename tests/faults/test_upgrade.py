"""A rolling upgrade from the first release under load, in the order of `docs/upgrades.md`, and the way back (G12).

All the while conditions are registered and come true. `SENSORPOOL_TEST_FULL=1` runs it for minutes, at a hundred a
second.
"""

import os
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from harness import audit
from harness.until import until
from sensorpool.testing import land
from tests.faults.rollout import Rollout, Worker, assert_all_landed, end
from tests.faults.trial import FULL, SENSOR, Record, lasts
from tests.support import released

PACE = 100 if FULL else 10  # registrations a second
LAST = 60.0 if FULL else 3.0  # seconds of each step
WAIT = 2.0  # seconds from a registration until its condition comes true
REGISTRANT = """
import os, sys, time
import sensorpool
sensor, folder, stop, first, pace = sys.argv[1:]
number, began = int(first), time.monotonic()
while not os.path.exists(stop):
    made = sensorpool.register(sensor, {"folder": folder, "name": f"g{number}"})
    print(number, made.id, flush=True)
    number += 1
    time.sleep(max(0.0, began + (number - int(first)) / float(pace) - time.monotonic()))
"""


class Load:
    """Registrants that run one version or the other, one at a time, and conditions that come true a while later."""

    def __init__(self, rollout: Rollout) -> None:
        self.ids: dict[int, int] = {}  # by number
        self.landed: dict[int, tuple[str, float]] = {}  # by number: the step, and when, in seconds since 1970
        self.step = "before"
        self._rollout = rollout
        self._process: subprocess.Popen[str] | None = None
        self._stop = Path()
        self._threads: list[threading.Thread] = []

    def register_by(self, version: Path | None) -> None:
        """End the registrant that runs, and start one of a version."""
        self.end()
        first = max(self.ids, default=-1) + 1
        self._stop = self._rollout.folder / f"stop{first}"
        arguments = (SENSOR, str(self._rollout.folder), str(self._stop), str(first), str(PACE))
        self._process = subprocess.Popen(
            [sys.executable, "-c", REGISTRANT, *arguments],
            env=os.environ | self._rollout.environment | self._rollout.path_of(version),
            cwd=self._rollout.folder,
            stdout=subprocess.PIPE,
            text=True,
        )
        thread = threading.Thread(target=self._hear, args=(self._process,))
        thread.start()
        self._threads.append(thread)
        until("the first registration", lambda: len(self.ids) > first)

    def end(self) -> None:
        """End the registrant, and let all come true that it has registered."""
        if self._process is not None:
            self._stop.touch()
            assert self._process.wait(60) == 0
            self._process = None
        for thread in self._threads:
            thread.join(60)

    def _hear(self, process: "subprocess.Popen[str]") -> None:
        waiting: list[tuple[float, int]] = []

        def let_land(until_: float) -> None:
            while waiting and waiting[0][0] <= until_:
                number = waiting.pop(0)[1]
                land(self._rollout.folder, f"g{number}")
                self.landed[number] = (self.step, time.time())

        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                number, instance_id = map(int, line.split())
                self.ids[number] = instance_id
                waiting.append((time.monotonic() + WAIT, number))
                let_land(time.monotonic())
        let_land(float("inf"))


def test_a_rolling_upgrade_and_the_way_back(
    tmp_path_factory: pytest.TempPathFactory,
    empty_database: str,
    redis_url: str,
    tmp_path: Path,
    record: Callable[[str], Record],
) -> None:
    before = released.unpack(released.FIRST_RELEASE, tmp_path_factory.mktemp("version"))
    rollout = Rollout(tmp_path, empty_database, redis_url)
    load = Load(rollout)

    def step(name: str) -> None:
        load.step = name
        lasts(LAST)

    def replace(workers: list[Worker], version: Path | None) -> None:
        for place, worker in enumerate(workers):
            workers[place] = rollout.worker_of(version)
            until("pokes by it", lambda new=workers[place]: new.has_poked(tmp_path), every=1.0)  # type: ignore[misc]
            end(worker.process)
            lasts(LAST / 2)

    try:
        done = rollout.cli("db", "upgrade", **rollout.path_of(before))
        assert done.returncode == 0, done.stderr
        workers, beat = [rollout.worker_of(before) for _ in range(2)], rollout.beat_of(before)
        load.register_by(before)
        step("the version before")
        load.step = "sensorpool db upgrade"
        began = time.monotonic()
        done = rollout.cli("db", "upgrade")
        assert done.returncode == 0, done.stderr
        upgraded = time.monotonic() - began
        audit.install(rollout.pool.database)
        step("both, new tables")
        load.register_by(None)
        step("new registrants")
        load.step = "workers are replaced"
        replace(workers, None)
        end(beat)
        beat = rollout.beat_of(None)
        step("the new version")
        load.step = "back: beat and workers"
        end(beat)
        beat = rollout.beat_of(before)
        replace(workers, before)
        load.register_by(before)
        step("back: the version before")
        load.end()
        rollout.pool.wait(list(load.ids.values()), 60)
        _print(rollout, load, upgraded)
        assert_all_landed(rollout, list(load.ids.values()), record("54 rolling upgrade under load, and back"))
        assert len({name for name, _ in load.landed.values()}) >= 6, "no load in some steps"
    finally:
        load.end()
        rollout.stop()


def _print(rollout: Rollout, load: Load, upgraded: float) -> None:
    """Print how long it took in each step from a true condition to its settled row."""
    statement = text("SELECT id, settled_at FROM sensor_instance WHERE settled_at IS NOT NULL")
    settled = dict(rollout.pool.database.read(lambda connection: connection.execute(statement).all()))
    spans: dict[str, list[float]] = defaultdict(list)
    for number, (name, at) in load.landed.items():
        if load.ids[number] in settled:
            spans[name].append(settled[load.ids[number]] / 1000 - at)
    print(f"\n{len(load.ids)} instances; sensorpool db upgrade: {upgraded:.1f} s")
    for name, some in spans.items():
        some.sort()
        print(
            f"{name:<26} {len(some):>6}  p50 {statistics.median(some):5.2f}  p99 {some[int(len(some) * 0.99)]:5.2f} s"
        )
