"""A disk that is full: a script runs on one of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FILL = """
import os
with open(os.path.join(os.environ["TMPDIR"], "filler"), "wb", buffering=0) as file:
    try:
        while True:
            file.write(bytes(4096))
    except OSError as error:
        print(error.strerror, flush=True)
"""
"""A part of a script: it fills the disk, and prints the error."""


def on_a_small_disk(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script whose TMPDIR is a disk of 1 MB; return what it printed.

    Where users may mount, it needs no root.
    """
    mount = 'mount -t tmpfs -o size=1m tmpfs "$TMPDIR"'
    alone = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    environment = os.environ | {"TMPDIR": str(folder)}
    try:
        subprocess.run([*alone, mount], env=environment, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no disk can be mounted here without root")
    run = f'{mount} && exec "{sys.executable}" -c "$0"'
    done = subprocess.run([*alone, run, script], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    return done
