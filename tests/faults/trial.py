"""One trial of a fault: sensors wait, the fault comes and goes, and every sensor must end as it should, once.

Half of the conditions come true during the fault, the other half after it has healed. The deadline of one sensor passes
during the fault although its condition has come true. One more sensor may neither land nor time out.
"""

import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from sqlalchemy import text

from harness import audit
from harness.scripted import Poke, land, pokes
from harness.service import Service
from harness.until import until
from sensorpool.model.states import State

FULL = os.environ.get("SENSORPOOL_TEST_FULL") == "1"
SENSOR = "harness.scripted.ScriptedSensor"
RECORDING = "tests.support.sensors.recording"
OF_FAULTS = tuple(f"{RECORDING}.{name}" for name in ("Backend", "Slow", "Ends", "EndsLater", "Says"))
GROUPS, SENSORS = 12, 20


def outage(seconds: float, *, full: float = 60.0) -> float:
    """Return how long an outage lasts: the real length in the full profile."""
    return full if FULL else seconds


def lasts(seconds: float) -> None:
    """Let an outage last."""
    ends = time.monotonic() + seconds
    until("the outage's end", lambda: time.monotonic() > ends, patience=seconds + 60)


def runs(*, full: int) -> int:
    """Return how often a fault is tried: once, or so often in the full profile."""
    return full if FULL else 1


@dataclass
class Record:
    """The result of the trials of one fault: a row of the table in docs/guarantees.md."""

    fault: str
    runs: int = 0
    sensors: int = 0
    lost: int = 0  # did not reach a terminal state
    doubled: int = 0  # reached two, or changed it
    wrong: int = 0  # failed, or ended otherwise than it should have
    recovery: list[float] = field(default_factory=list)  # intervals from the heal, or the true condition, to the settle

    def merge(self, other: "Record") -> None:
        """Add the trials of another record of the same fault."""
        for name, value in vars(other).items():
            if name != "fault":
                setattr(self, name, getattr(self, name) + value)

    def add(self, *, sensors: int, lost: int, doubled: int, wrong: int, recovery: list[float]) -> None:
        """Add one trial."""
        self.runs += 1
        self.sensors += sensors
        self.lost += lost
        self.doubled += doubled
        self.wrong += wrong
        self.recovery += recovery


class Trial:
    """Sensors on a running service, for one fault."""

    _number = 0

    def __init__(
        self,
        service: Service,
        record: Record,
        *,
        groups: int = GROUPS,
        sensors: int = SENSORS,
        tight: bool = True,
        measures: bool = True,
    ) -> None:
        Trial._number += 1
        self.service = service
        self.record = record
        self.folder = service.folder
        self.names = [f"t{Trial._number}g{n}" for n in range(groups)]
        self.true_at: dict[str, float] = {}
        self.healed_at = 0.0
        self._measures = measures
        of = {f"t{n}": self.names[n % groups] for n in range(sensors)}
        self.waiting = self._register(of, timeout=3600.0)
        # true before its deadline, but no poke sees it: after an outage a poke comes before a timeout
        patience = service.settings.poke_interval * 2 if tight else 3600.0
        self.tight = self._register({"tight": f"t{Trial._number}tight"}, timeout=patience)
        self.patient = self._register({"patient": f"t{Trial._number}patient"}, timeout=3600.0)
        until("pokes of all", self.is_poked)

    def _register(self, of: dict[str, str], **options: Any) -> dict[int, str]:
        """Register tasks, each with the name of its condition; return the names by instance id."""
        instances = self.service.pool.register_many(
            {
                "sensor": SENSOR,
                "poke_context": {"folder": str(self.folder), "name": name},
                "dag_id": f"dag{Trial._number % 3}",
                "task_id": task_id,
                "run_id": f"trial{Trial._number}",
                **options,
            }
            for task_id, name in of.items()
        )
        return {instance.id: name for instance, name in zip(instances, of.values(), strict=True)}

    @property
    def ids(self) -> list[int]:
        """The instances whose conditions come true."""
        return [*self.waiting, *self.tight]

    def pokes(self) -> dict[str, list[Poke]]:
        """The pokes of this trial's conditions."""
        own = {*self.waiting.values(), *self.tight.values(), *self.patient.values()}
        return {name: some for name, some in pokes(self.folder).items() if name in own}

    def is_poked(self, since: float = 0.0) -> bool:
        """Whether every condition that is not true yet was poked since a time."""
        own, found = {*self.waiting.values(), *self.patient.values()} - self.true_at.keys(), self.pokes()
        return all(any(poke.at > since for poke in found.get(name, ())) for name in own)

    @property
    def patient_pokes(self) -> list[Poke]:
        """The pokes of the condition that never lands."""
        [name] = self.patient.values()
        return self.pokes().get(name, [])

    def wait_for_pokes(self, number: int, patience: float = 60.0) -> float:
        """Wait for so many more pokes of the condition that never lands; return the time of the first of them."""
        before = len(self.patient_pokes)  # not by their times: the clock may be at fault
        until(f"{number} more pokes", lambda: len(self.patient_pokes) >= before + number, patience)
        return self.patient_pokes[before].at

    def lateness(self, since: float) -> float:
        """Return the greatest lateness since a time of the condition that never lands, in intervals."""
        gaps = _gaps([poke for poke in self.patient_pokes if poke.at >= since])
        return max(gaps) / self.service.settings.poke_interval - 1

    def shortest_gap(self) -> float:
        """Return the shortest time between two pokes of one condition, in seconds."""
        return min((gap for some in self._by_interval() for gap in _gaps(some)), default=math.inf)

    def extra_pokes(self) -> int:
        """Return how many pokes of one condition, at most, were beyond one an interval."""
        interval = self.service.settings.poke_interval
        return max((extra([poke.at for poke in some], interval) for some in self._by_interval()), default=0)

    def _by_interval(self) -> list[list[Poke]]:
        """Return the pokes of each condition that come once an interval.

        The first poke may come at any time, and the deadline of the tight sensor brings a poke of its own.
        """
        tight = self.tight.values()
        return [some[1:] for name, some in self.pokes().items() if name not in tight]

    def land(self, names: list[str]) -> None:
        """Make conditions true."""
        for name in names:
            self.true_at[name] = land(self.folder, name)

    @contextmanager
    def fault(self) -> Iterator[None]:
        """Yield while the test makes the fault; at the end of the context it has healed."""
        self.land([*self.names[::2], *self.tight.values()])
        if self._is_too_late_for_the_tight_one():
            self.tight = {}  # this machine was slow: the tight sensor may rightly have timed out
        yield
        self.healed_at = time.time()

    def _is_too_late_for_the_tight_one(self) -> bool:
        """Whether the tight sensor's deadline came before its condition came true."""
        query = text("SELECT timeout_at, state FROM sensor_instance WHERE id = :id")
        database, [instance_id] = self.service.pool.database, self.tight
        timeout_at, state = database.read(lambda connection: connection.execute(query, {"id": instance_id}).one())
        return (state == "sensing" and database.read(database.now) > timeout_at) or state == "failed"

    def end(self, *, patience: float = 60.0) -> None:
        """Check that every sensor ends as it should, and record the result."""
        self.healed_at = self.healed_at or time.time()
        self.land(self.names[1::2])
        states = self.service.pool.wait(self.ids, patience)
        still = self.service.pool.wait(self.patient, 0)
        audited = audit.read(self.service.pool.database)
        lost = [i for i, state in states.items() if state is State.SENSING]
        wrong = [i for i, state in states.items() if state not in {State.SENSING, State.SUCCESS}]
        wrong += [i for i, state in still.items() if state is not State.SENSING]
        doubled = [*audited.doubled, *audited.changed]
        self.record.add(
            sensors=len(self.ids) + len(self.patient),
            lost=len(lost),
            doubled=len(doubled),
            wrong=len(wrong),
            recovery=self._recovery() if self._measures else [],
        )
        for instance_id in self.patient:
            self.service.pool.cancel(instance_id)
        found = {"lost": lost, "wrong": wrong, "doubled": doubled}
        assert not any(found.values()), f"{found}\n{self.service.logs()[-4000:]}"
        until("an empty outbox", lambda: _outbox(self.service) == 0)

    def _recovery(self) -> list[float]:
        """Return the intervals from when a condition was true and the fault healed to the settled row."""
        query = text("SELECT id, settled_at FROM sensor_instance WHERE settled_at IS NOT NULL")
        rows = self.service.pool.database.read(lambda connection: connection.execute(query).all())
        names = self.waiting | self.tight
        return [
            max(0.0, row[1] / 1000 - max(self.true_at[names[row[0]]], self.healed_at))
            / self.service.settings.poke_interval
            for row in rows
            if row[0] in names
        ]


def extra(times: Sequence[float], interval: float) -> int:
    """Return how many of some moments, at most, are beyond one an interval; both in seconds.

    A poke that a busy machine makes late is followed by one that is in time: their gap says nothing. But pokes in a
    row, one in each interval, always span more than the intervals between the first and the last but one.
    """
    return max(
        (
            last - first - math.ceil((times[last] - times[first]) / interval)
            for first in range(len(times))
            for last in range(first + 1, len(times))
        ),
        default=0,
    )


def _gaps(some: list[Poke]) -> list[float]:
    return [later.at - earlier.at for earlier, later in pairwise(some)]


def _outbox(service: Service) -> int:
    query = text("SELECT count(*) FROM sensorpool_outbox")
    return int(service.pool.database.read(lambda connection: connection.execute(query)).scalar_one())
