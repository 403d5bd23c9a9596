"""The arithmetic: what tries cost, how many of their pokes are duplicates, and what the pool makes of them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from enum import StrEnum

START_SECONDS = 0.6  # what a start of a task costs before its code runs, measured: docs/benchmarks.md
_SHORTEST_INTERVAL = 1.0  # seconds: a shorter one counts as this
_STARTS_IN_POOL = 2  # one to poke once and register, one to end


class Mode(StrEnum):
    """How a try waited."""

    POKE = "poke"
    RESCHEDULE = "reschedule"
    DEFERRED = "deferred"  # by a trigger of its own
    POOLED = "pooled"


@dataclass(frozen=True, slots=True)
class SensorTry:
    """One try of one sensor. Times are seconds since 1970, spans are seconds.

    :param starts: how often a worker started it.
    :param ended: its end; of a try that still waits the time of the survey.
    :param held: how long its processes ran, all starts together.
    :param interval: its poke_interval, or what stands for it.
    :param condition: a digest of what it waits for; None where that is not known.
    """

    dag_id: str
    op_classpath: str
    mode: Mode
    starts: int
    begun: float
    ended: float
    held: float
    interval: float
    condition: bytes | None = None

    @property
    def pokes(self) -> int:
        """How many pokes of Airflow's workers it made: in mode "poke" an estimate, in mode "reschedule" one a start.

        A trigger polls in its own way, which Airflow does not record, so a deferred try counts none.
        """
        if self.mode is Mode.POKE:
            return 1 + int(max(self.ended - self.begun, 0.0) / max(self.interval, _SHORTEST_INTERVAL))
        return self.starts if self.mode is Mode.RESCHEDULE else 0


@dataclass(slots=True)
class Costs:
    """What tries cost: now, and with the pool."""

    tries: int = 0
    slot_seconds: float = 0.0
    pokes: float = 0.0
    duplicates: float = 0.0
    starts: int = 0
    pool_slot_seconds: float = 0.0
    pool_pokes: float = 0.0
    pool_starts: int = 0

    def add(self, other: "Costs") -> None:
        """Add the costs of other tries."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


def costs_of(one: SensorTry, duplicates: float, *, is_taken: bool) -> Costs:
    """Return what a try costs.

    With the pool a try that waits holds its slot for two starts. In mode "reschedule" each of them runs as long as
    those that were made; in mode "poke" that is not known, and counts as nothing. What ends with its first poke, what
    defers by itself and what the pool does not take by default stays as it is.

    :param duplicates: how many of its pokes ask for what another try's pokes asked.
    """
    pokes, held = one.pokes, one.held + one.starts * START_SECONDS
    if not is_taken or pokes <= 1:
        return Costs(1, held, pokes, duplicates, one.starts, held, pokes, one.starts)
    runs = one.held / one.starts if one.mode is Mode.RESCHEDULE else 0.0
    pool_held = min(held, _STARTS_IN_POOL * (runs + START_SECONDS))
    return Costs(1, held, pokes, duplicates, one.starts, pool_held, pokes - duplicates, _STARTS_IN_POOL)


def with_duplicates(tries: Iterable[SensorTry]) -> Iterator[tuple[SensorTry, float]]:
    """Yield tries that wait for one condition, each with how many of its pokes an earlier one made in its place.

    While two wait, the pokes of the slower pace are duplicates. Where intervals differ this is a lower bound.
    """
    covered_until = covered_pace = 0.0
    for one in sorted(tries, key=lambda each: each.begun):
        waited, covered = one.ended - one.begun, min(covered_until, one.ended) - one.begun
        pace = max(one.pokes - 1, 0) / waited if waited else 0.0  # the first poke of each is needed
        yield one, max(covered, 0.0) * min(pace, covered_pace)
        if pace and one.ended > covered_until:
            covered_until, covered_pace = one.ended, pace
