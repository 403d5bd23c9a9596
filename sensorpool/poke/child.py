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
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sensorpool.config.settings import Settings
from sensorpool.instrumentation.redaction import sources
from sensorpool.model.exit_status import ending, is_from_outside
from sensorpool.model.states import Outcome
from sensorpool.model.values import DueGroup, Report, Trace
from sensorpool.poke import process_bounds
from sensorpool.poke.watchdog import FROZEN

START_LIMIT = 60.0  # seconds that a child may take to start, and to import a class
_MOMENT = 0.1  # seconds
_PIECE = 65_536  # bytes that are read at once: as many as a pipe holds


@dataclass(frozen=True, slots=True)
class Suspect:
    """A group to poke in a child process."""

    group: DueGroup
    op_classpath: str
    poke_context: str
    alone: bool  # whether the group is poked alone in a child


class Child:
    """One child. A thread of its own writes to it, so a child that freezes stops no other.

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
        self._import_began = 0.0
        self._kills = process_bounds.kills()
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._process = subprocess.Popen(  # noqa: S603  # a module of ours
            [sys.executable, "-m", module],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a poke that signals the group of its process reaches no other process of ours
        )
        assert self._process.stdout is not None
        self._out = self._process.stdout
        self._rest = b""  # of a message that has not come whole
        self._polled = select.poll()
        self._polled.register(self._out, select.POLLIN)
        first = {
            "sys_path": sys.path,
            "secrets": sources(),
            "sensors_enabled": settings.sensors_enabled,
            "infra_failures": settings.infra_failures,
            "poke_timeout": settings.poke_timeout,
            "poke_memory": settings.poke_memory,
            "poke_log_level": settings.poke_log_level,
            "concurrency": together,
            **(more or {}),
        }
        self._lines.put(json.dumps(first))
        writer = threading.Thread(target=_write, args=(self._process.stdin, self._lines), daemon=True)
        try:
            writer.start()
        except BaseException:  # no thread can be started
            self._process.kill()
            self._process.communicate()
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
        self._lines.put(json.dumps([suspect.group.id, suspect.op_classpath, suspect.poke_context]))

    def say(self, message: Mapping[str, Any]) -> None:
        """Send the child a message that is no group."""
        self._lines.put(json.dumps(message))

    def hear(self) -> list[tuple[Suspect, Report]]:
        """Wait a moment for messages; return the reports."""
        has_ended = self._process.poll() is not None  # before the look: what it wrote is in the pipe by now
        piece = os.read(self._out.fileno(), _PIECE) if self._polled.poll(_MOMENT * 1000) else None
        if piece is None:
            self.ended = has_ended  # a process that it forked may keep the pipe open
        elif not piece:
            self.ended = True
        *lines, self._rest = (self._rest + (piece or b"")).split(b"\n")
        return [report for line in lines if (report := self._take(line)) is not None]

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
            said = f"{doing} froze its process"
        elif self.was_killed:
            said = "its process was killed from outside"
        elif self.starved and self.returncode == -signal.SIGKILL:
            said = f"{doing} took all the memory there was"
        else:
            said = f"{doing} took its process down ({ending(self.returncode)})"
        seconds = self._poke_timeout if self.froze else 0.0
        own_doing = alone and not self.froze and not self.was_killed
        outcome = Outcome.POKE_TIMEOUT if alone and not own_doing else Outcome.CRASHED
        return Report(suspect.group, began, outcome, said, None, seconds, own_doing=own_doing)

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
        self._out.close()
        self.starved = process_bounds.kills() > self._kills

    def _take(self, line: bytes) -> tuple[Suspect, Report] | None:
        at = time.monotonic()
        try:
            message = json.loads(line)
        except ValueError:  # its watchdog writes plain text
            self.froze = self.froze or FROZEN in line
            return None
        match message:
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
                self.ran_out = self.ran_out or message.get("ran_out", False)
                trace = None if (parts := message.get("trace")) is None else Trace(*parts)
                quiet = message.get("quiet_for")
                return suspect, Report(suspect.group, began, outcome, reason, value, at - began, trace, quiet)
            case {"question": _}:
                self._on_question(message)
        return None


def _write(stdin: Any, lines: "queue.SimpleQueue[str | None]") -> None:
    with suppress(OSError), stdin:  # the child died before it had read everything; `end` finds out how
        while (line := lines.get()) is not None:
            stdin.write(f"{line}\n".encode())
            stdin.flush()
