"""APScheduler 3: an interval job for each sensor, in memory, on threads."""

import os
import subprocess
import tempfile
from pathlib import Path

from benchmarks.peers.environments import environment, version
from benchmarks.peers.window import INTERVAL, Result, cpu_of, paths, resident, result, watch, whole_intervals
from harness.service import kill_tree
from harness.until import until

SCRIPT = Path(__file__).with_name("apscheduler3_run.py")
NOTE = (
    "one process, in memory: nothing survives a restart, nothing is shared, and a second process pokes all of it again"
)


def measure(size: int, seconds: float) -> Result:
    """Measure the steady state: each job has run once."""
    python = environment("apscheduler3")
    with tempfile.TemporaryDirectory(prefix="sensorpool-peers-") as name:
        folder = Path(name)
        counted = folder / "pokes"
        counted.touch()
        (folder / "paths").write_text("\n".join(paths(folder, size)))
        variables = os.environ | {"PEER_POKES": str(counted)}
        process = subprocess.Popen(
            [str(python), str(SCRIPT), str(folder / "paths"), str(INTERVAL)], env=variables, cwd=folder
        )
        try:
            until("two rounds", lambda: counted.stat().st_size >= 2 * size, 600, 0.5)
            parts = {"scheduler": process.pid}
            seen = watch(whole_intervals(seconds), lambda: cpu_of(parts), lambda: counted.stat().st_size)
            memory = resident(process.pid)
        finally:
            kill_tree(process)
    return result(
        "APScheduler",
        f"apscheduler {version(python, 'apscheduler')}",
        size,
        seen,
        shares=False,
        memory=memory,
        asked=size,
        note=NOTE,
    )
