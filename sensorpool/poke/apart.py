"""The lane apart: suspects are poked in a child process, so that one that hangs or crashes costs its own group.

Suspects are groups whose poke overran, and those that a dead process had in its hands. They are poked together first.
If the child dies with several in its hands, these come again, the last to begin by himself: only a crash that we, the
living parent, saw with one group in the child's hands counts against that group; a kill from outside never does.
"""

import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sensorpool.logs import logger
from sensorpool.model import DueGroup, Report
from sensorpool.poke import memory
from sensorpool.settings import Settings
from sensorpool.states import Outcome

TOGETHER = 16  # pokes at once in a child
START_LIMIT = 60.0  # seconds that a child may take to import the classes
_OUTSIDE = {-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP}

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class Suspect:
    """A group to poke apart."""

    group: DueGroup
    op_classpath: str
    poke_context: str
    alone: bool  # seen to take its process down before


@dataclass(slots=True)
class _Death:
    """How a child ended, and what it left."""

    reports: list[Report]
    in_hand: list[int] = field(default_factory=list)  # begun and not ended
    froze: bool = False
    ready: bool = False  # it got as far as poking
    returncode: int = 0
    starved: bool = False  # the kernel killed somebody because memory ran out


class LaneApart:
    """Pokes suspects on a thread of its own, one child at a time, so that nobody waits for them.

    :param report: is called with the reports, on that thread.
    :param keep: is called with the ids of the groups in hand every few seconds, on that thread.
    """

    def __init__(
        self,
        settings: Settings,
        report: Callable[[Sequence[Report]], None],
        keep: Callable[[Sequence[int]], None],
    ) -> None:
        self._settings = settings
        self._report = report
        self._keep_in_hand = keep
        self._kept = 0.0
        self._queue: queue.SimpleQueue[list[Suspect]] = queue.SimpleQueue()
        self._inside: set[int] = set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def offer(self, suspects: Iterable[Suspect]) -> int:
        """Take these on, save those that are here already; return how many were taken."""
        with self._lock:
            taken = [suspect for suspect in suspects if suspect.group.id not in self._inside]
            self._inside.update(suspect.group.id for suspect in taken)
            if taken and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(target=self._work, daemon=True, name="poke-apart")
                self._thread.start()
        if taken:
            self._queue.put(taken)
        return len(taken)

    def has(self, group_id: int) -> bool:
        """Whether a group is here."""
        with self._lock:
            return group_id in self._inside

    def _work(self) -> None:
        while True:
            suspects = self._queue.get()
            try:
                self._poke([s for s in suspects if not s.alone], TOGETHER)
                for suspect in suspects:
                    if suspect.alone:
                        self._poke([suspect], 1)
            except Exception:
                log.exception("the lane apart failed; its groups are due again")
            finally:
                with self._lock:
                    self._inside.difference_update(suspect.group.id for suspect in suspects)

    def _keep(self) -> None:
        if (now := time.monotonic()) - self._kept >= self._settings.heartbeat:
            self._kept = now
            with self._lock:
                in_hand = list(self._inside)
            self._keep_in_hand(in_hand)

    def _poke(self, suspects: Sequence[Suspect], together: int) -> None:
        """Poke suspects; after a death, those that the child had in hand come one by one, then the rest goes on."""
        waiting = {suspect.group.id: suspect for suspect in suspects}
        while waiting:
            death = self._run_child(list(waiting.values()), together)
            for report in death.reports:
                waiting.pop(report.group.id, None)
            self._report(death.reports)
            if not death.ready and death.returncode == 1:
                # Python could not even start there: no group's fault
                log.error("no child of the lane apart can be started; its groups are due again", groups=len(waiting))
                return
            bad_end = death.froze or death.returncode != 0
            # a child that dies before its first poke died of importing a class
            held = [group_id for group_id in death.in_hand or (list(waiting) if bad_end else []) if group_id in waiting]
            in_hand = [waiting.pop(group_id) for group_id in held]
            if len(in_hand) == 1:
                self._report([self._blame(in_hand[0], death)])
            elif in_hand:
                # most likely it was the last to begin: so the others go on together, and he by himself
                self._poke(in_hand[:-1], together)
                self._poke(in_hand[-1:], 1)
            elif waiting:
                log.warning("a child of the lane apart ended early", returncode=death.returncode)
                return

    def _blame(self, suspect: Suspect, death: _Death) -> Report:
        began = time.monotonic()
        if death.froze:
            limit = self._settings.poke_timeout
            return Report(suspect.group, began, Outcome.POKE_TIMEOUT, f"the poke froze its process for {limit:g} s")
        if death.starved and death.returncode == -signal.SIGKILL:
            return Report(suspect.group, began, Outcome.CRASHED, "the poke took all the memory there was")
        if death.returncode in _OUTSIDE:
            return Report(suspect.group, began, Outcome.POKE_TIMEOUT, "its process was killed from outside")
        return Report(
            suspect.group,
            began,
            Outcome.CRASHED,
            f"the poke took its process down ({_ending(death.returncode)})",
        )

    def _run_child(self, suspects: Sequence[Suspect], together: int) -> _Death:
        groups = {suspect.group.id: suspect.group for suspect in suspects}
        child = subprocess.Popen(
            [sys.executable, "-m", "sensorpool.poke.alone_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        messages: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        reader = threading.Thread(target=_read, args=(child.stdout, messages), daemon=True)
        reader.start()
        began: dict[int, float] = {}
        death, starved = _Death([]), memory.kills()
        try:
            _write_input(child.stdin, self._settings, suspects, together)
            self._listen(messages, groups, began, death)
        finally:
            if death.froze or child.poll() is None:
                try:
                    child.wait(0.0 if death.froze else 2.0)
                except subprocess.TimeoutExpired:
                    child.kill()
            death.returncode = child.wait()
            death.starved = memory.kills() > starved
            reader.join(5)
            child.stdout.close()
        death.in_hand = list(began)
        return death

    def _listen(
        self,
        messages: "queue.SimpleQueue[dict[str, Any] | None]",
        groups: dict[int, DueGroup],
        began: dict[int, float],
        death: _Death,
    ) -> None:
        """Read what the child says until it ends, or says nothing for longer than a poke may take."""
        patience, heard = START_LIMIT, time.monotonic()
        while True:
            self._keep()
            try:
                message = messages.get(timeout=0.2)
            except queue.Empty:
                if time.monotonic() - heard > patience:
                    death.froze = True
                    return
                continue
            patience, heard = self._settings.poke_timeout + 0.5, time.monotonic()
            if message is None:
                return
            if "ready" in message:
                death.ready = True
            elif "begin" in message:
                began[message["begin"]] = time.monotonic()
            elif "end" in message and message["end"] in groups:
                since = began.pop(message["end"], time.monotonic())
                outcome = Outcome(message["outcome"])
                took = time.monotonic() - since
                death.reports.append(
                    Report(groups[message["end"]], since, outcome, message["reason"], message["xcom_value"], took)
                )


def _write_input(stdin: Any, settings: Settings, suspects: Sequence[Suspect], together: int) -> None:
    first = {
        "sys_path": sys.path,
        "sensors_enabled": settings.sensors_enabled,
        "infra_failures": settings.infra_failures,
        "poke_timeout": settings.poke_timeout,
        "poke_memory": settings.poke_memory,
        "concurrency": together,
    }
    try:
        stdin.write(json.dumps(first) + "\n")
        for suspect in suspects:
            stdin.write(json.dumps([suspect.group.id, suspect.op_classpath, suspect.poke_context]) + "\n")
        stdin.close()
    except BrokenPipeError:
        pass  # it died before it had read everything: its end says how


def _read(stdout: Any, messages: "queue.SimpleQueue[dict[str, Any] | None]") -> None:
    for line in stdout:
        try:
            messages.put(json.loads(line))
        except ValueError:
            continue  # cut short by its death
    messages.put(None)


def _ending(returncode: int) -> str:
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"
