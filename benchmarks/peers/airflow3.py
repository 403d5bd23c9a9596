"""Airflow 3 without a pool: sensors that reschedule themselves, and sensors that defer to the triggerer.

Needs the environment of ``make e2e``, or the interpreter that PEERS_AIRFLOW_PYTHON names.
"""

import json
import os
import subprocess
from functools import partial
from pathlib import Path

from benchmarks.peers.window import Result

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("PEERS_AIRFLOW_PYTHON", ROOT / ".venv-e2e" / "bin" / "python"))


def measure(kind: str, size: int, seconds: float) -> Result:
    """Measure sensors of one kind, in the environment with Airflow."""
    done = subprocess.run(
        [str(PYTHON), "-m", "benchmarks.peers.airflow3_run", kind, str(size), str(seconds)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: Result = json.loads(done.stdout.splitlines()[-1])
    return found


reschedule = partial(measure, "reschedule")
deferrable_file = partial(measure, "deferrable_file")
deferrable_external = partial(measure, "deferrable_external")
