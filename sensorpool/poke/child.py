"""A child process that pokes suspects (`alone_child`), as its parent sees it: what it has in hand, and how it ends."""

import json
import queue
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sensorpool.model import DueGroup, Report
from sensorpool.poke import memory
from sensorpool.settings import Settings
from sensorpool.states import Outcome

START_LIMIT = 60.0  # seconds that it may take to start, and to import a class
_MOMENT = 0.1  # seconds
_GRACE = 1.5  # seconds that it may be silent beyond a poke's limit: cancelled coroutines have one to end
_Message = tuple[float, dict[str, Any] | None]  # when it was read, and what; None: the end


@dataclass(frozen=True, slots=True)
class Suspect:
    """A group to poke apart."""

    group: DueGroup
    op_classpath: str
    poke_context: str
    alone: bool  # seen to take its process down before


class Child:
    """One child. It is written to and read from by threads of its own: one that freezes stops nobody.

    :param together: pokes at once.
    """

    def __init__(self, settings: Settings, together: int) -> None:
        self.in_hand: dict[int, Suspect] = {}  # given, and not reported
        self.began: dict[int, float] = {}  # those of them that it has begun, in order, by the monotonic clock
        self.importing: str | None = None
        self.hung = 0  # pokes that did not come back
        self.ready = self.froze = self.ended = False
        self.returncode = 0
        self.starved = False  # the kernel killed somebody because memory ran out
        self._poke_timeout = settings.poke_timeout
        self.frozen_for = 0.0  # seconds
        self._heard = self._import_began = time.monotonic()
        self._kills = memory.kills()
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._messages: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sensorpool.poke.alone_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        first = {
            "sys_path": sys.path,
            "sensors_enabled": settings.sensors_enabled,
            "infra_failures": settings.infra_failures,
            "poke_timeout": settings.poke_timeout,
            "poke_memory": settings.poke_memory,
            "concurrency": together,
        }
        self._lines.put(json.dumps(first))
        writer = threading.Thread(target=_write, args=(self._process.stdin, self._lines), daemon=True)
        self._reader = threading.Thread(target=_read, args=(self._process.stdout, self._messages), daemon=True)
        try:
            writer.start()
            self._reader.start()
        except BaseException:  # no more threads can be started
            self._lines.put(None)
            self._process.kill()
            self._process.wait()
            raise

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be heard."""
        return self.ended or self.froze

    def give(self, suspect: Suspect) -> None:
        """Have it poke a suspect."""
        self.in_hand[suspect.group.id] = suspect
        self._heard = time.monotonic()
        self._lines.put(json.dumps([suspect.group.id, suspect.op_classpath, suspect.poke_context]))

    def hear(self) -> list[tuple[Suspect, Report]]:
        """Wait a moment for what it says; return what was reported. One that says nothing for too long is frozen."""
        told: list[_Message] = []
        with suppress(queue.Empty):
            told.append(self._messages.get(timeout=_MOMENT))
            while True:
                told.append(self._messages.get_nowait())
        reported = [each for at, message in told if (each := self._take(at, message)) is not None]
        now = time.monotonic()
        if told:
            self._heard = now
        else:  # what it has forked may keep the pipe open after its end
            self.ended = self._process.poll() is not None
        silence = self._poke_timeout + _GRACE if self.ready else START_LIMIT
        if now - self._heard > silence:
            self.frozen_for = silence
        elif self.importing is not None and now - self._import_began > START_LIMIT:
            self.frozen_for = START_LIMIT
        self.froze = not self.ended and self.frozen_for > 0
        return reported

    def end(self) -> None:
        """End it, if need be by force, and find out how it ended."""
        self._lines.put(None)
        if not self.froze:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(2.0)
        if self._process.poll() is None:
            self._process.kill()
        self.returncode = self._process.wait()
        self.starved = memory.kills() > self._kills
        self._reader.join(5)

    def _take(self, at: float, message: dict[str, Any] | None) -> tuple[Suspect, Report] | None:
        match message:
            case None:
                self.ended = True
            case {"ready": _}:
                self.ready = True
            case {"import": op_classpath}:
                self.importing, self._import_began = op_classpath, at
            case {"imported": _}:
                self.importing = None
            case {"begin": group_id} if group_id in self.in_hand:
                self.began[group_id] = at
            case {"end": group_id, "outcome": said, "reason": reason, "xcom_value": value} if group_id in self.in_hand:
                suspect, began, outcome = self.in_hand.pop(group_id), self.began.pop(group_id, at), Outcome(said)
                self.hung += outcome is Outcome.POKE_TIMEOUT
                return suspect, Report(suspect.group, began, outcome, reason, value, at - began)
        return None


def _write(stdin: Any, lines: "queue.SimpleQueue[str | None]") -> None:
    with suppress(OSError), stdin:  # it died before it had read everything: its end says how
        while (line := lines.get()) is not None:
            stdin.write(line + "\n")
            stdin.flush()


def _read(stdout: Any, messages: "queue.SimpleQueue[_Message]") -> None:
    with stdout:
        for line in stdout:
            with suppress(ValueError):  # cut short by its death
                messages.put((time.monotonic(), json.loads(line)))
    messages.put((time.monotonic(), None))
