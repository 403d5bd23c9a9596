"""The real service for tests: prefork workers and beats as processes, started and ended by the test."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from harness.forked_cli import CLI
from harness.until import until
from sensorpool.client.pool import Pool
from sensorpool.config.settings import Settings

SCRIPTED = ("ScriptedSensor", "AsyncScriptedSensor", "ManyScriptedSensor")


class Service:
    """A pool's processes on given servers. The fast profile: interval 2 s, tick 1 s, time limit 1 s, lease 6 s.

    :param sensors: class paths that are enabled beside the scripted ones, unless ``settings`` has sensors_enabled.
    """

    def __init__(
        self, folder: Path, database_url: str, redis_url: str, *, sensors: Sequence[str] = (), **settings: Any
    ) -> None:
        self.folder = folder
        values = {
            "database_url": database_url,
            "redis_url": redis_url,
            "shards": 4,
            "tick": 1.0,
            "poke_interval": 2.0,
            "poke_timeout": 1.0,
            "lease_ttl": 6.0,
            "heartbeat": 1.0,
            "rescue_interval": 2.0,
            "log_level": "INFO",
            "sensors_enabled": ",".join((*(f"harness.scripted.{name}" for name in SCRIPTED), *sensors)),
        } | settings
        self.environment = {f"SENSORPOOL_{name.upper()}": str(value) for name, value in values.items()}
        self.environment["TMPDIR"] = str(folder)  # signs of life of killed processes stay within the test
        self.settings = Settings.load(**values)
        self.pool = Pool(self.settings)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.apart = False  # whether each process has a session of its own, as in a container

    def worker(self, *options: str, concurrency: int = 2, **environment: str) -> subprocess.Popen[bytes]:
        """Start a worker."""
        name = f"--hostname=worker{len(self.processes)}@%h"
        return self.process("worker", f"--concurrency={concurrency}", name, "--loglevel=INFO", *options, **environment)

    def beat(self, *options: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start a beat."""
        return self.process("beat", *options, **environment)

    def is_ready(self) -> bool:
        """Whether every range has been looked at."""
        return all(state.last for _, state in self.pool.leases.look(self.pool.ranges))

    def start(self, workers: int = 1, **environment: str) -> None:
        """Start workers and one beat, and wait until every range has been looked at."""
        for _ in range(workers):
            self.worker(**environment)
        self.beat()
        until("the first tick of every range", self.is_ready)

    def cli(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the command line."""
        return CLI.run(arguments, os.environ | self.environment | environment, self.folder, limit=60)

    def json(self, *arguments: str) -> Any:
        """Run the command line, and return what it printed as JSON."""
        done = self.cli(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def logs(self) -> str:
        """Return the logs of all processes."""
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("*.log")))

    def stop(self) -> None:
        """Kill all processes, and close the pool."""
        for process in self.processes:
            kill_tree(process)
        self.pool.close()

    def process(self, kind: str, *options: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start a process of Celery: `worker`, `beat`, `flower`."""
        return self.process_of("sensorpool", kind, *options, **environment)

    def process_of(self, app: str, kind: str, *options: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start a process of an application, which may be a user's, in a module of the folder."""
        log = (self.folder / f"{kind}-{len(self.processes)}.log").open("wb")
        process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", app, kind, *options],
            env=os.environ | self.environment | environment,
            cwd=self.folder,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=self.apart,
        )
        log.close()
        self.processes.append(process)
        return process


def kill_tree(process: subprocess.Popen[bytes], sign: int = signal.SIGKILL) -> None:
    """Kill a process and all its children."""
    if process.poll() is not None:
        return  # it has ended, and another process may have its number by now
    try:
        parent = psutil.Process(process.pid)
        family = [*parent.children(recursive=True), parent]
    except psutil.NoSuchProcess:
        family = []
    for member in reversed(family):
        try:
            member.send_signal(sign)
            member.resume()  # afterwards: one that stands still in its job must not go on with it
        except psutil.NoSuchProcess:
            continue
    process.wait(30)


def children(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Return the prefork children of a worker."""
    return psutil.Process(process.pid).children()


@contextmanager
def running(folder: Path, database_url: str, redis_url: str, **settings: Any) -> Iterator[Service]:
    """Yield a service for as long as the context lasts."""
    service = Service(folder, database_url, redis_url, **settings)
    try:
        yield service
    finally:
        service.stop()
