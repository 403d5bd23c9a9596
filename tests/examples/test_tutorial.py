"""The tutorial for Celery, run as it is written, save for the installation and the addresses of Redis."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.support.pages import ROOT

PAGE = ROOT / "docs" / "tutorial-celery.md"
_BLOCK = re.compile(r"```(python|sh)\n(.*?)```", re.DOTALL)
_FILE = re.compile(r"`([\w/]+\.py)`")
_LEFT_OUT = re.compile(r"python3 -m venv|\. venv/|pip install")


def test_the_tutorial_for_celery(tmp_path: Path, own_redis: str) -> None:
    text = PAGE.read_text().replace("redis://127.0.0.1:6379", own_redis)
    project = tmp_path / "shop-project"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SENSORPOOL_")}
    environment |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    script, at = [], 0
    for block in _BLOCK.finditer(text):
        if block[1] == "python":
            name = _FILE.findall(text[at : block.start()])[-1]
            script.append(f"cat > {name} <<'END_OF_FILE'\n{block[2]}END_OF_FILE")
        else:
            script += [line for line in block[2].splitlines() if not _LEFT_OUT.search(line)]
        at = block.end()
    try:
        done = subprocess.run(
            ["bash", "-e"],
            input="\n".join(script),
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        assert "1 passed" in done.stdout
        assert "1 success" in done.stdout
        assert "rows: 2" in done.stdout
    finally:
        for file in project.glob("*.pid"):
            with suppress(ProcessLookupError, ValueError):
                os.kill(int(file.read_text()), signal.SIGTERM)
