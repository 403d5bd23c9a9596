"""Runs the command line often: each time in a process of its own, forked from one that has imported it.

To import what a command needs takes a second of CPU, and a test may ask for the status until it changes. The forked
process has its own environment, folder, arguments and streams, as a command in a shell has.
"""

import atexit
import gc
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

_OF_PYTHON = "PYTHON"  # variables that a process reads as it starts


class ForkedCli:
    """The process that forks. Safe to share between threads."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, *, stdin: str = "", limit: float
    ) -> subprocess.CompletedProcess[str]:
        """Run ``sensorpool`` with these arguments.

        :param environment: all variables of the command.
        :param limit: seconds.
        :raises subprocess.TimeoutExpired: when it takes longer.
        """
        command = [sys.executable, "-m", "sensorpool", *arguments]
        if any(environment.get(name) != os.environ.get(name) for name in environment if name.startswith(_OF_PYTHON)):
            return subprocess.run(
                command, env=environment, cwd=folder, input=stdin, capture_output=True, text=True, timeout=limit
            )
        with tempfile.TemporaryDirectory() as streams:
            names = [str(Path(streams, name)) for name in ("in", "out", "err")]
            Path(names[0]).write_text(stdin, errors="surrogateescape")
            asked = {"arguments": list(arguments), "environment": dict(environment), "folder": str(folder)}
            code = self._ask(asked | {"streams": names, "limit": limit})
            out, err = (Path(name).read_text(errors="surrogateescape") for name in names[1:])
        if code is None:
            raise subprocess.TimeoutExpired(command, limit, out, err)
        return subprocess.CompletedProcess(command, code, out, err)

    def close(self) -> None:
        """End the process."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            process.wait(30)

    def _ask(self, asked: Mapping[str, Any]) -> int | None:
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "harness.forked_cli"],
                    cwd=Path(__file__).parents[1],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            stdin, stdout = self._process.stdin, self._process.stdout
            assert stdin is not None
            assert stdout is not None
            stdin.write(json.dumps(asked) + "\n")
            stdin.flush()
            code: int | None = json.loads(stdout.readline())
            return code


CLI = ForkedCli()
atexit.register(CLI.close)


def serve() -> None:
    """Fork for each line of standard input; answer with the exit code, or null if the command took too long."""
    cli = import_module("sensorpool.cli")
    for module in pkgutil.iter_modules(cli.__path__):
        import_module(f"sensorpool.cli.{module.name}")
    for name in ("psycopg", "redis", "fakeredis", "kombu.transport.redis", "sqlalchemy.dialects.postgresql.psycopg"):
        import_module(name)
    gc.freeze()
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(asked)
        print(json.dumps(_wait(child, asked["limit"])), flush=True)


def _become(asked: Mapping[str, Any]) -> None:
    """Be the command. Does not return."""
    given, *others = asked["streams"]
    os.dup2(os.open(given, os.O_RDONLY), 0)
    for number, name in enumerate(others, 1):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    sys.path[0] = asked["folder"]
    sys.argv = ["sensorpool", *asked["arguments"]]
    from sensorpool.cli.main import main

    code: Any = 1
    try:
        main(prog_name="sensorpool")
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # closed by the command
            stream.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))  # an ordinary end takes most of a second


def _wait(child: int, limit: float) -> int | None:
    timer = threading.Timer(limit, os.kill, (child, 9))
    timer.start()
    _, status = os.waitpid(child, 0)
    is_over = timer.finished.is_set()
    timer.cancel()
    return None if is_over else os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    serve()
