"""The base of all servers: a folder, a port, and methods that start, stop, kill and freeze the server."""

import os
import pwd
import random
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Self

import psutil

from . import guard

LOOPBACK = "127.0.0.1"
START_SECONDS = 60.0
STOP_SECONDS = 20.0
POLL_SECONDS = 0.02
# Servers get only this of the environment: a developer's PGPORT or ERL_FLAGS would change the tests.
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}


class Missing(Exception):
    """This machine does not have the server."""


class StartFailed(Exception):
    """The server did not start; the message has the end of its log."""


class Server(ABC):
    """A real server on a loopback port, with its data in a folder that is removed with it."""

    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    not_ready: ClassVar[tuple[type[Exception], ...]] = (OSError,)

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        """Find the binaries and make the folder; ``settings`` are the server's own, by their own names.

        :raises Missing: when there is no such server on this machine.
        """
        self.settings = dict(settings or {})
        self.account = _unprivileged_account()
        self.locate()
        self.folder = _new_folder(self.account)
        self.log = self.folder / "log"
        self.port = free_port()
        # Every user of this machine can reach loopback, and the server may run as the developer.
        self.password = os.urandom(16).hex()
        self._installed = False
        self._processes: list[subprocess.Popen[bytes]] = []
        self._frozen: list[psutil.Process] = []
        self._guard = subprocess.Popen(
            [sys.executable, "-P", guard.__file__, str(self.folder)],
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._guard.stdin is not None
        self._watched = self._guard.stdin
        # A forked child that outlives the test run must not keep the pipe open.
        os.register_at_fork(after_in_child=self._watched.close)

    # what each server defines

    @property
    @abstractmethod
    def url(self) -> str:
        """The server's URL for clients, with the name and password of an administrator."""

    @abstractmethod
    def locate(self) -> None:
        """Find the binaries.

        :raises Missing: with the way to get them.
        """

    def install(self) -> None:  # noqa: B027  # Redis has nothing to prepare
        """Prepare the folder, once."""

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command line that runs the server in the foreground."""

    @abstractmethod
    def check(self) -> None:
        """Ask the server a question, as a client with the password.

        :raises Exception: one of `not_ready`, while the server does not answer.
        """

    # what tests do with it

    @property
    def running(self) -> bool:
        """Whether the server's process lives, frozen or not."""
        return bool(self._processes) and self._processes[-1].poll() is None

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self._processes[-1].pid

    def processes(self) -> list[psutil.Process]:
        """Return all processes of the server, the ones that we started first."""
        started = guard.alive(process.pid for process in self._processes if process.poll() is None)
        return started + guard.descendants(started)

    def start(self) -> Self:
        """Start or thaw the server if needed, and return when it answers.

        :raises StartFailed: when the server does not start.
        """
        self.resume()
        if self.running:
            return self
        if not self._installed:
            self.install()
        deadline = time.monotonic() + START_SECONDS
        while not self._launch(deadline):
            # Before the first start no client knows the port, so another one will do.
            if self._installed or time.monotonic() > deadline:
                raise StartFailed(f"{self.command()[0]} did not start:\n{self._last_words()}")
            self.port = free_port()
        self._installed = True
        return self

    def stop(self) -> None:
        """Shut the server down in good order; its folder stays for the next `start`."""
        self.resume()
        if self.running:
            main = self._processes[-1]
            children = guard.descendants(guard.alive([main.pid]))
            main.send_signal(self.stop_signal)
            with suppress(subprocess.TimeoutExpired):
                main.wait(STOP_SECONDS)
            if main.returncode is not None:
                guard.wait(children, STOP_SECONDS)
            guard.kill(children)
        self.kill()

    def kill(self) -> None:
        """Kill the server and all its processes with SIGKILL, at one instant."""
        guard.kill(guard.alive(process.pid for process in self._processes if process.poll() is None))
        for process in self._processes:
            process.wait()
        self._processes.clear()
        self._frozen.clear()
        self._tell_guard()

    def restart(self) -> None:
        """Stop and start, on the same port."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze the server and all its processes with SIGSTOP: connections stay open and nothing answers."""
        if not self._frozen:
            self._frozen = guard.freeze(guard.alive(process.pid for process in self._processes))

    def resume(self) -> None:
        """Thaw the processes that `pause` froze."""
        guard.thaw(self._frozen)
        self._frozen.clear()

    def close(self) -> None:
        """Stop the server for good and remove its folder."""
        if not self._watched.closed:
            self.stop()
            self._watched.close()
            self._guard.wait()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    # what the subclasses use

    def environment(self) -> dict[str, str]:
        """Return the environment of the server's processes."""
        return {**ENVIRONMENT, "HOME": str(self.folder), "TMPDIR": str(self.folder)}

    def run(self, *command: str) -> None:
        """Run one of the server's tools to its end.

        :raises StartFailed: when the tool fails; with its output.
        """
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=START_SECONDS,
            check=False,
            **self._as_account(),
        )
        if done.returncode:
            raise StartFailed(f"{command[0]} failed:\n{done.stdout.decode(errors='replace')[-2000:]}")

    def spawn(self, *command: str) -> None:
        """Start a process of this server; the last one spawned is the server itself."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C in the terminal must reach pytest only, whose fixtures then stop the servers.
                start_new_session=True,
                **self._as_account(),
            )
        self._processes.append(process)
        self._tell_guard()

    def write(self, name: str, text: str) -> Path:
        """Write a file that only the server may read: it may hold a password."""
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(text)
        if self.account:
            os.chown(path, self.account.pw_uid, self.account.pw_gid)
        return path

    def _launch(self, deadline: float) -> bool:
        """Start the process and wait until it answers; return whether it did."""
        self.spawn(*self.command())
        while self.running and time.monotonic() < deadline:
            with suppress(*self.not_ready):
                self.check()
                return True
            time.sleep(POLL_SECONDS)
        self.kill()
        return False

    def _as_account(self) -> dict[str, object]:
        if self.account is None:
            return {}
        return {"user": self.account.pw_uid, "group": self.account.pw_gid, "extra_groups": []}

    def _tell_guard(self) -> None:
        pids = " ".join(str(process.pid) for process in self._processes)
        self._watched.write(f"{pids}\n".encode())
        self._watched.flush()

    def _last_words(self) -> str:
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else "(it said nothing)"


def free_port() -> int:
    """Return a loopback port that is free now, and that no outgoing connection will take while its server is down.

    A client that connects to a dead server on a port of the ephemeral range may get that port for its own end, and
    then it talks to itself. So the port is taken from below that range.
    """
    below = 32_768
    with suppress(OSError, ValueError):
        below = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    # Not `random.choice`: two test runs may have seeded it alike.
    draw = random.SystemRandom()
    while True:
        port = draw.randrange(min(10_000, below - 2_000), below)
        with socket.socket() as probe, suppress(OSError):
            probe.bind((LOOPBACK, port))
            return port


def _unprivileged_account() -> pwd.struct_passwd | None:
    """Return the account of the servers when the tests run as root: PostgreSQL and MariaDB refuse to run as root."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def _new_folder(account: pwd.struct_passwd | None) -> Path:
    """Make a folder that the account can reach: root's TMPDIR may be closed to other users."""
    bases = [Path(tempfile.gettempdir()).resolve(), Path("/tmp"), Path("/var/tmp")]
    reachable = (
        base
        for base in bases
        if account is None or all(step.stat().st_mode & stat.S_IXOTH for step in (base, *base.parents))
    )
    folder = Path(tempfile.mkdtemp(prefix="sensorpool-", dir=next(reachable)))
    if account:
        os.chown(folder, account.pw_uid, account.pw_gid)
    return folder
