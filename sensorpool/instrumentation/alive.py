"""Signs of life: each worker and beat writes one into a small file while it gets on, and `health --self` reads them.

A process gets on when its main loop comes round, or waits for the broker (such waits have time limits of their own). So
a probe restarts a process that is stuck, but none in an outage. A thread writes the sign, because the main loop may
wait for a minute. Each process of this user on this host has a sign of its own, even with the same node name.

Times are by the monotonic clock, which all processes of a host share and which starts again with the host. The module
imports next to nothing.
"""

import contextlib
import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

from sensorpool.instrumentation.background import BackgroundThread

_EVERY = 5.0  # seconds between two signs: a cold process takes milliseconds of CPU to write one
SHORTEST = 10.0  # seconds without a sign that tell a process that is stuck from one that is between two signs
_ROUND = 30.0  # seconds that the main loop may take to come round
_BROKER = (
    "redis",
    "amqp",
    "kombu.transport",
    "kombu.connection",
    "kombu.utils.functional",
)
_AT_WORK = ("logging", "celery", "billiard", "sensorpool")  # called from a broker's module, these do not wait for it
_FORGOTTEN = 86_400.0  # seconds after which a starting process deletes the sign of a killed one
_SUFFIX = ".alive"
_FILE = re.compile(rf"(?P<name>.+)\.(?P<process>\d+){re.escape(_SUFFIX)}")

_ours: "Sign | None" = None


class FoundSign(NamedTuple):
    """The sign of a process, by the name of its file."""

    path: Path
    name: str
    process: int

    def __str__(self) -> str:
        return f"{self.name} (process {self.process})"

    @property
    def age(self) -> float:
        """How many seconds ago the sign was written; negative if the host has started since."""
        try:
            return time.monotonic() - float(self.path.read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return float("inf")


class Sign:
    """The sign of one process.

    :param name: the name of the process: ``celery@host``.
    """

    def __init__(self, name: str) -> None:
        self.name = re.sub("[^A-Za-z0-9@._-]", "_", name)[:200]
        self._process = os.getpid()
        self.path = folder() / f"{self.name}.{self._process}{_SUFFIX}"
        self._main = threading.main_thread().ident
        self.round = time.monotonic()  # when the main loop came round
        self.thread = BackgroundThread("alive", self._keep)

    def write(self) -> None:
        """Write the sign.

        :raises OSError: when the file cannot be written.
        """
        try:
            self._write()
        except FileNotFoundError:  # the folder was removed, as by what cleans /tmp
            _make(self.path.parent)
            self._write()

    def take_away(self) -> None:
        """Remove the sign: the process ends."""
        if os.getpid() == self._process:  # not in a fork
            self.thread.close(_EVERY)
            with contextlib.suppress(OSError):
                self.path.unlink()

    def gets_on(self) -> bool:
        """Whether the main loop came round lately, or waits for the broker."""
        return time.monotonic() - self.round < _ROUND or self._waits_for_broker()

    def _keep(self) -> None:
        while not self.thread.wait(_EVERY):
            if self.gets_on():
                with contextlib.suppress(OSError):  # a full disk; the probe reports it
                    self.write()

    def _write(self) -> None:
        part = self.path.with_suffix(".part")
        part.write_text(str(time.monotonic()))
        part.replace(self.path)

    def _waits_for_broker(self) -> bool:
        frame = sys._current_frames().get(self._main or 0)
        while frame is not None:
            name = str(frame.f_globals.get("__name__"))
            if name.startswith(_BROKER):
                return True
            if name.startswith(_AT_WORK):
                return False
            frame = frame.f_back
        return False


def folder() -> Path:
    """Return the folder of this user's signs: below ``TMPDIR``, or ``/tmp``.

    Python's `tempfile` tries to write first. On a full disk it would choose another folder than before.
    """
    return Path(os.path.abspath(os.environ.get("TMPDIR") or "/tmp")) / f"sensorpool-{os.getuid()}"  # noqa: S108


def _make(place: Path) -> None:
    """Make the folder of the signs, if it is not there.

    :raises OSError: when it cannot be made, or belongs to another user.
    """
    place.mkdir(mode=0o700, exist_ok=True)
    if place.stat().st_uid != os.getuid() or place.is_symlink():
        raise PermissionError(f"{place} belongs to another user")


def begin(name: str) -> None:
    """Write the first sign of this process; `keep` writes the next ones.

    :raises OSError: when it cannot be written. The process can run without.
    """
    global _ours
    _make(folder())
    sign = Sign(name)
    for found in _all():
        is_before = found.name == sign.name and not _lives(found.process)
        if is_before or not 0 <= found.age <= _FORGOTTEN:
            found.path.unlink(missing_ok=True)
    sign.write()
    _ours = sign


def keep() -> None:
    """Have a thread write this process's sign, if it has one. Call it after its forks."""
    if _ours is not None:
        _ours.thread.start()


def come_round(until: float = 0.0) -> None:
    """Note that the main loop has come round, and need not again for ``until`` more seconds. Costs next to nothing."""
    if _ours is not None:
        _ours.round = time.monotonic() + until


def gets_on() -> bool:
    """Whether this process gets on; true too where it shows no signs."""
    return _ours is None or _ours.gets_on()


def end() -> None:
    """Remove this process's sign."""
    global _ours
    ours, _ours = _ours, None  # first: a second signal comes here again, and would wait for a lock of the first
    if ours is not None:
        ours.take_away()


def problems(within: float, pidfile: Path | None = None) -> list[str]:
    """Return a line for each process of this user and host without a sign of life for ``within`` seconds.

    A killed process is among them until it starts again under its name.

    :param pidfile: the pidfile of the only process to look at; None: all processes.
    """
    signs, who = _all(), "no worker or beat shows"
    if pidfile is not None:
        try:
            process = int(pidfile.read_text())
        except OSError as error:
            return [f"{pidfile} cannot be read: {error.strerror}: does its worker or beat run, with that --pidfile?"]
        except ValueError:
            return [f"{pidfile} holds no process's number: is it the --pidfile of a worker or beat?"]
        signs = [each for each in signs if each.process == process]
        who = f"process {process} of {pidfile} does not show"
    if not signs:
        return [f"{who} signs of life in {folder()}"]
    found = []
    for each in signs:
        age = each.age
        if not 0 <= age <= within:  # a time in the future is from before the host started
            since = f"for {age:.0f} s" if 0 <= age < float("inf") else "since the host started"
            found.append(f"{each} has shown no sign of life {since}")
    return found


def _all() -> list[FoundSign]:
    """Return all signs of this user on this host."""
    found = []
    for path in sorted(folder().glob(f"*{_SUFFIX}")):
        if (match := _FILE.fullmatch(path.name)) is not None:
            found.append(FoundSign(path, match["name"], int(match["process"])))
    return found


def _lives(process: int) -> bool:
    """Whether there is a process of this number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # that of another user
    return True
