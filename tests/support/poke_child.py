"""The child process that pokes apart, asked directly: without a worker that would refuse first."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def ends_of(
    asked: Sequence[tuple[str, str]], *, enabled: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> dict[int, dict[str, Any]]:
    """Have a child poke; return each end by its number, from 1 on.

    :param asked: class paths, each with its poke context as JSON.
    :param enabled: the allowlist of the child.
    :param folder: is first on the child's Python path.
    :param environment: variables of the child beside those of this process.
    """
    first = {
        "sys_path": [str(folder), *sys.path],
        "sensors_enabled": list(enabled),
        "infra_failures": [],
        "secrets": [],
        "poke_timeout": 30,
        "poke_memory": 1_000,
        "poke_log_level": "WARNING",
        "concurrency": 4,
        "alone": False,
    }
    lines = [first, *([number, path, context] for number, (path, context) in enumerate(asked, start=1))]
    done = subprocess.run(
        [sys.executable, "-m", "sensorpool.poke.child_main"],
        input="\n".join(map(json.dumps, lines)) + "\n",
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    ends = [json.loads(line) for line in done.stdout.splitlines() if '"end"' in line]
    return {end["end"]: end for end in ends}
