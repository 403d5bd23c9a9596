"""A child process that pokes suspects (`child_main`), as its parent sees it: the groups in hand, and how it ends."""

import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sensorpool.config import allowlist
from sensorpool.config.settings import Settings
from sensorpool.instrumentation.redaction import sources
from sensorpool.model.exit_status import ending, is_from_outside
from sensorpool.model.states import Outcome
from sensorpool.model.values import DueGroup, Report, Trace
from sensorpool.poke import memory_limit

START_LIMIT = 60.0  # seconds that a child may take to start, and to import a class
_MOMENT = 0.1  # seconds
_LOOK = 0.2  # seconds that a look for messages counts for at most: this process, too, may have stood still meanwhile
_PIECE = 65_536  # bytes that are read at once: as many as a pipe holds
_GRACE = 1.5  # seconds that a child may be silent beyond a poke's limit: a cancelled coroutine has one second to end
_Message = tuple[float, dict[str, Any] | None]  # when the message was read, and the message; None: the end


@dataclass(frozen=True, slots=True)
class Suspect:
    """A group to poke apart."""

    group: DueGroup
    op_classpath: str
    poke_context: str
    alone: bool  # whether the group is poked alone in a child


class Child:
    """One child. Threads of its own write to it and read from it, so a child that freezes stops no other.

    :param together: pokes at once.
    :param module: the module that the child runs: `child_main`, or one that calls its `serve`.
    :param environment: the child's environment variables; None for those of this process.
    :param more: further settings for the child, as JSON.
    :param on_question: called with each message that is none of `child_main`'s own, on the thread that hears.
    :raises OSError: when no process can be started.
    :raises RuntimeError: when no thread can be started.
    """

    def __init__(
        self,
        settings: Settings,
        together: int,
        *,
        module: str = "sensorpool.poke.child_main",
        environment: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
        on_question: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> None:
        self.in_hand: dict[int, Suspect] = {}  # groups that were given and are not reported
        self.began: dict[int, float] = {}  # the begun groups in hand, in order, each with its monotonic time
        self.importing: str | None = None
        self.hung = 0  # pokes that did not return
        self.ran_out = False  # memory, files or threads ran out there
        self.ready = self.froze = self.ended = False
        self.returncode = 0
        self.starved = False  # the kernel killed a process because memory ran out
        self._poke_timeout = settings.poke_timeout
        self._on_question = on_question
        self.frozen_for = 0.0  # seconds
        self._looked = self._import_began = time.monotonic()
        self._silent = self._importing_for = 0.0  # seconds
        self._kills = memory_limit.kills()
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._messages: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self._process = subprocess.Popen(  # noqa: S603  # a module of ours
            [sys.executable, "-m", module],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a poke that signals the group of its process reaches no other process of ours
        )
        first = {
            "sys_path": sys.path,
            "secrets": sources(),
            "sensors_enabled": sorted(allowlist.of(settings.sensors_enabled).resolved()),
            "infra_failures": settings.infra_failures,
            "poke_timeout": settings.poke_timeout,
            "poke_memory": settings.poke_memory,
            "poke_log_level": settings.poke_log_level,
            "concurrency": together,
            **(more or {}),
        }
        self._lines.put(json.dumps(first))
        writer = threading.Thread(target=_write, args=(self._process.stdin, self._lines), daemon=True)
        self._reader = threading.Thread(target=_read, args=(self._process, self._messages), daemon=True)
        try:
            writer.start()
            self._reader.start()
        except BaseException:  # no thread can be started
            self._lines.put(None)
            self._process.kill()
            self._process.wait()
            raise

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    @property
    def is_over(self) -> bool:
        """Whether no more messages will come."""
        return self.ended or self.froze

    def give(self, suspect: Suspect) -> None:
        """Have the child poke a suspect."""
        self.in_hand[suspect.group.id] = suspect
        self._silent = 0.0
        self._lines.put(json.dumps([suspect.group.id, suspect.op_classpath, suspect.poke_context]))

    def say(self, message: Mapping[str, Any]) -> None:
        """Send the child a message that is no group."""
        self._lines.put(json.dumps(message))

    def hear(self) -> list[tuple[Suspect, Report]]:
        """Wait a moment for messages; return the reports. A child that is silent for too long counts as frozen.

        The time of looks counts, not clock time: where the machine stood still or was busy, no poke froze a child.
        """
        messages: list[_Message] = []
        with suppress(queue.Empty):
            messages.append(self._messages.get(timeout=_MOMENT))
            while True:
                messages.append(self._messages.get_nowait())
        reported = [report for at, message in messages if (report := self._take(at, message)) is not None]
        now = time.monotonic()
        passed, self._looked = min(now - self._looked, _LOOK), now
        self._silent = 0.0 if messages else self._silent + passed
        self._importing_for = 0.0 if self.importing is None else self._importing_for + passed
        silence = self._poke_timeout + _GRACE if self.ready else START_LIMIT
        if self._silent > silence:
            self.frozen_for = silence
        elif self._importing_for > START_LIMIT:
            self.frozen_for = START_LIMIT
        self.froze = not self.ended and self.frozen_for > 0
        return reported

    @property
    def was_killed(self) -> bool:
        """Whether the child was killed from outside, which says nothing of the groups in hand."""
        starved = self.starved and self.returncode == -signal.SIGKILL
        return not self.froze and not starved and is_from_outside(self.returncode)

    def blame(self, suspect: Suspect, *, alone: bool) -> Report | None:
        """Report what the child's end means for a group in hand; None: nothing, because its poke had not begun.

        :param alone: whether the child was given this group only.
        """
        began, doing = self.began.get(suspect.group.id), "the poke"
        if began is None and self.importing == suspect.op_classpath:
            began, doing = self._import_began, "importing its class"
        if began is None:
            return None
        if self.froze:
            said = f"{doing} froze its process for {self.frozen_for:g} s"
        elif self.was_killed:
            said = "its process was killed from outside"
        elif self.starved and self.returncode == -signal.SIGKILL:
            said = f"{doing} took all the memory there was"
        else:
            said = f"{doing} took its process down ({ending(self.returncode)})"
        own_doing = alone and not self.froze and not self.was_killed
        outcome = Outcome.POKE_TIMEOUT if alone and not own_doing else Outcome.CRASHED
        return Report(suspect.group, began, outcome, said, None, self.frozen_for, own_doing=own_doing)

    def kill(self) -> None:
        """Kill the child; no group in hand is to blame."""
        self._process.kill()

    def end(self) -> None:
        """End the child, by force if it does not end within two seconds, and find out how it ended."""
        self._lines.put(None)
        if not self.froze:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(2.0)
        if self._process.poll() is None:
            self._process.kill()
        self.returncode = self._process.wait()
        self.starved = memory_limit.kills() > self._kills
        self._reader.join(5)

    def _take(self, at: float, message: dict[str, Any] | None) -> tuple[Suspect, Report] | None:
        match message:
            case None:
                self.ended = True
            case {"ready": _}:
                self.ready = True
            case {"import": op_classpath}:
                self.importing, self._import_began, self._importing_for = op_classpath, at, 0.0
            case {"imported": _}:
                self.importing = None
            case {"begin": group_id} if group_id in self.in_hand:
                self.began[group_id] = at
            case {"end": group_id, "outcome": said, "reason": reason, "xcom_value": value} if group_id in self.in_hand:
                suspect, began, outcome = self.in_hand.pop(group_id), self.began.pop(group_id, at), Outcome(said)
                self.hung += outcome is Outcome.POKE_TIMEOUT
                self.ran_out = self.ran_out or message.get("ran_out", False)
                trace = message.get("trace")
                told = None if trace is None else Trace(*trace)
                quiet = message.get("quiet_for")
                return suspect, Report(suspect.group, began, outcome, reason, value, at - began, told, quiet)
            case {"question": _}:
                self._on_question(message)
        return None


def _write(stdin: Any, lines: "queue.SimpleQueue[str | None]") -> None:
    with suppress(OSError), stdin:  # the child died before it had read everything; `end` finds out how
        while (line := lines.get()) is not None:
            stdin.write(f"{line}\n".encode())
            stdin.flush()


def _read(process: "subprocess.Popen[bytes]", messages: "queue.SimpleQueue[_Message]") -> None:
    """Put each message of the child, and the end after the last one: what it said before its end is heard first."""
    with process.stdout as stdout:  # type: ignore[union-attr]
        for line in _lines(stdout.fileno(), process):
            with suppress(ValueError):  # not ours
                messages.put((time.monotonic(), json.loads(line)))
    messages.put((time.monotonic(), None))


def _lines(pipe: int, process: "subprocess.Popen[bytes]") -> Iterator[bytes]:
    """Yield the whole lines until the pipe ends, or the process has ended and the pipe is empty.

    A process that the child forked may keep the pipe open after the child's end.
    """
    polled, rest = select.poll(), b""
    polled.register(pipe, select.POLLIN)
    while True:
        has_ended = process.poll() is not None  # before the look: what it wrote is in the pipe by now
        if not polled.poll(_MOMENT * 1000):
            if has_ended:
                return
        elif piece := os.read(pipe, _PIECE):
            *lines, rest = (rest + piece).split(b"\n")
            yield from lines
        else:
            return
