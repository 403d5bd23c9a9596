"""Signs of life: each worker and beat writes one into a small file while it gets on, and `health --self` looks at them.

A process gets on when its main loop comes round, or waits for the broker (such waits have time limits of their own). So
a probe that looks here restarts what is stuck, and nothing in an outage. A thread writes the sign, for the main loop
may wait for a minute. A sign is that of one process: of one deployment, by its environment, and of one container.
Others of this user on this host have theirs beside it, those of the same node name too. Times are those of the
monotonic clock, which all processes of a host share; it starts again with the host. Imports next to nothing.
"""

import contextlib
import hashlib
import os
import re
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

from sensorpool.instrumentation.background import BackgroundThread
from sensorpool.instrumentation.redaction import hide_password

_EVERY = 1.0  # seconds between two signs
_ROUND = 30.0  # seconds that the main loop may take to come round
_BROKER = ("redis", "amqp", "kombu.transport", "kombu.connection", "kombu.utils.functional")
_FORGOTTEN = 86_400.0  # seconds after which the sign of one that was killed goes when another process starts
_SUFFIX = ".alive"
_TELLING = ("DATABASE_URL", "DATABASE_SCHEMA", "REDIS_URL", "BROKER_URL", "NAMESPACE")  # settings: of which pool one is
_PLACES = ("AIRFLOW_CONFIG", "AIRFLOW_HOME", "XDG_STATE_HOME", "HOME")  # where the database's URL stands otherwise

# the deployment is not in those of the version before last, nor the process in those of the version before
_FILE = re.compile(rf"(?P<name>.+?)(\.(?P<deployment>[0-9a-f]{{12}})(\.(?P<process>\d+))?)?{re.escape(_SUFFIX)}")

_ours: "Sign | None" = None


class Found(NamedTuple):
    """The sign of some process, as its file is named; what an older version does not say is None."""

    path: Path
    name: str
    deployment: str | None
    process: int | None

    def __str__(self) -> str:
        return self.name if self.process is None else f"{self.name} (process {self.process})"

    @property
    def age(self) -> float:
        """How many seconds ago it was written; negative, if that was before the host started."""
        try:
            return time.monotonic() - float(self._words[0])
        except (OSError, ValueError, IndexError):
            return float("inf")

    @property
    def is_of_the_living(self) -> bool:
        """Whether its process lives: the number may be another's by now, which started at another time."""
        if self.process is None:
            return False
        try:
            started = self._words[1]
        except (OSError, ValueError, IndexError):
            return False
        return _started(self.process) == started

    @property
    def _words(self) -> list[str]:
        return self.path.read_text().split()


class Sign:
    """The sign of one process.

    :param name: what the process is called: ``celery@host``.
    """

    def __init__(self, name: str) -> None:
        self.name = re.sub("[^A-Za-z0-9@._-]", "_", name)[:200]
        self._process = os.getpid()
        self._started = _started(self._process)
        self.path = folder() / f"{self.name}.{deployment()}.{self._process}{_SUFFIX}"
        self._main = threading.main_thread().ident
        self._round = time.monotonic()
        self._thread = BackgroundThread("alive", self._keep)

    def come_round(self, until: float = 0.0) -> None:
        """Note that the main loop comes round, or that it need not for so many seconds."""
        self._round = time.monotonic() + until

    def write(self) -> None:
        """Write the sign.

        :raises OSError: when it cannot be written.
        """
        part = self.path.with_suffix(".part")
        part.write_text(f"{time.monotonic()} {self._started}")
        part.replace(self.path)

    def keep(self) -> None:
        """Write it from now on, on a thread, while the process gets on."""
        self._thread.start()

    def take_away(self) -> None:
        """Remove it: the process ends."""
        if os.getpid() == self._process:  # and not in a fork
            self._thread.close(_EVERY)
            with contextlib.suppress(OSError):
                self.path.unlink()

    def gets_on(self) -> bool:
        """Whether the main loop came round lately, or waits for the broker."""
        return time.monotonic() - self._round < _ROUND or self._waits_for_broker()

    def _keep(self) -> None:
        while not self._thread.wait(_EVERY):
            if self.gets_on():
                with contextlib.suppress(OSError):  # a full disk; the probe will say so
                    self.write()

    def _waits_for_broker(self) -> bool:
        frame = sys._current_frames().get(self._main or 0)
        while frame is not None:
            if str(frame.f_globals.get("__name__")).startswith(_BROKER):
                return True
            frame = frame.f_back
        return False


def folder() -> Path:
    """Return where the signs of this user are: below ``TMPDIR``, or ``/tmp``."""
    return Path(tempfile.gettempdir()) / f"sensorpool-{os.getuid()}"


def begin(name: str) -> None:
    """Write a first sign of this process; `keep` writes the others.

    :raises OSError: when none can be written; the process can do without.
    """
    global _ours
    place = folder()
    place.mkdir(mode=0o700, exist_ok=True)
    if place.stat().st_uid != os.getuid() or place.is_symlink():
        raise PermissionError(f"{place} belongs to another user")
    sign = Sign(name)
    for found in _all():
        is_old = not 0 <= found.age <= _FORGOTTEN
        is_before = found.name == sign.name and found.deployment in {None, deployment()} and not found.is_of_the_living
        if is_old or is_before:
            found.path.unlink(missing_ok=True)
    sign.write()
    _ours = sign


def keep() -> None:
    """Have a thread write this process's sign, if it has one. Call it after its forks."""
    if _ours is not None:
        _ours.keep()


def come_round(until: float = 0.0) -> None:
    """Note that the main loop comes round, or that it need not for so many seconds. It costs next to nothing."""
    if _ours is not None:
        _ours.come_round(until)


def end() -> None:
    """Take this process's sign away."""
    global _ours
    if _ours is not None:
        _ours.take_away()
        _ours = None


def problems(within: float, pidfile: Path | None = None) -> list[str]:
    """Say, a line each, which processes of this deployment have shown no sign of life for so many seconds.

    They are those of this user, and in a container its own. One that was killed is among them until it starts again
    under its name.

    :param pidfile: of the one process to look at; all, if it is left out.
    """
    signs, who = _signs(), "no worker or beat of this deployment shows"
    if pidfile is not None:
        try:
            process = int(pidfile.read_text())
        except OSError as error:
            return [f"{pidfile} cannot be read: {error.strerror}: does its worker or beat run, with that --pidfile?"]
        except ValueError:
            return [f"{pidfile} holds no process's number: is it the --pidfile of a worker or beat?"]
        signs = [each for each in signs if each.process == process]
        who = f"process {process} of {pidfile}, as one of this deployment, does not show"
    if not signs:
        others = sum(each.deployment != deployment() for each in _all())
        why = f"; {others} of other deployments do: has the probe the environment of the worker?" if others else ""
        return [f"{who} signs of life in {folder()}{why}"]
    found = []
    for each in signs:
        age = each.age
        if not 0 <= age <= within:  # a time to come is one of before the host started
            since = f"for {age:.0f} s" if 0 <= age < float("inf") else "since the host started"
            found.append(f"{each} has shown no sign of life {since}")
    return found


def deployment() -> str:
    """Return what the signs of this deployment have in their names: one pool, and one container."""
    found = [_setting(name) for name in _TELLING]
    if not found[0]:
        found += [os.environ.get(name, "") for name in _PLACES]
    try:
        found.append(os.readlink("/proc/self/ns/pid"))  # a probe is started inside of its container
    except OSError:
        found.append("")  # no Linux
    return hashlib.sha256("\0".join(found).encode(errors="surrogateescape")).hexdigest()[:12]


def _setting(name: str) -> str:
    prefixes = ("SENSORPOOL_", "AIRFLOW__SENSORPOOL__")
    return hide_password(next((value for each in prefixes if (value := os.environ.get(f"{each}{name}"))), ""))


def _all() -> list[Found]:
    """Return all signs of this user on this host."""
    found = []
    for path in sorted(folder().glob(f"*{_SUFFIX}")):
        if (match := _FILE.fullmatch(path.name)) is not None:
            process = match["process"]
            found.append(Found(path, match["name"], match["deployment"], None if process is None else int(process)))
    return found


def _signs() -> list[Found]:
    """Return the signs of this deployment; where there is none, those that say of no deployment."""
    found = _all()
    return [each for each in found if each.deployment == deployment()] or [
        each for each in found if each.deployment is None
    ]


def _started(process: int) -> str:
    """Return when a process started, in the kernel's ticks; ``gone``, or ``there`` where the kernel does not say."""
    try:
        state, *fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return "gone" if state in "ZX" else fields[18]
    except (OSError, IndexError):
        if Path("/proc/self/stat").exists():
            return "gone"
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return "gone"
    except OSError:
        pass  # another user's
    return "there"
