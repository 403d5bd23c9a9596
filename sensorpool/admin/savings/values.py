"""The values of the survey: what is known of a sensor's task, of one try of it, and of what tries cost together."""

from dataclasses import dataclass, fields
from enum import StrEnum


class Mode(StrEnum):
    """How a try waited."""

    POKE = "poke"
    RESCHEDULE = "reschedule"
    DEFERRED = "deferred"  # by a trigger of its own
    POOLED = "pooled"


class Taken(StrEnum):
    """Whether the pool takes a class, as far as that is known without the class."""

    BY_DEFAULT = "by default"
    NOT_BY_DEFAULT = "not by default"
    NOT_KNOWN = "not known"


@dataclass(frozen=True, slots=True)
class SensorTask:
    """A sensor as Airflow has serialized it.

    :param op_classpath: the module and the name of its class.
    :param reschedule: whether its mode is "reschedule".
    :param poke_interval: seconds; None where Airflow does not keep it.
    :param deferrable: None where Airflow does not keep it.
    :param has_trigger: whether its class can wait in a trigger.
    :param has_callable: whether its condition is a function.
    """

    task_id: str
    op_classpath: str
    reschedule: bool = False
    poke_interval: float | None = None
    deferrable: bool | None = None
    has_trigger: bool = False
    has_callable: bool = False


@dataclass(frozen=True, slots=True)
class SensorTry:
    """One try of one sensor. Times are seconds since 1970, spans are seconds.

    :param starts: how often a worker started it.
    :param begun: its first start.
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


@dataclass(frozen=True, slots=True)
class Span:
    """Pokes at an even pace, the one that begins it left out.

    :param owner: for whom they are made: a DAG and a class.
    :param start: seconds since 1970.
    :param seconds: how long it lasts; more than 0.
    :param pokes: how many are made in that time; more than 0.
    """

    owner: tuple[str, str]
    start: float
    seconds: float
    pokes: float


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


@dataclass(slots=True)
class Unknown:
    """For how many tries something is not known, and what was assumed counts in its place."""

    condition: int = 0  # counted as a condition of its own
    interval: int = 0  # the assumed interval counts
    starts: int = 0  # Airflow has no record of them: they are inferred
    deferral: int = 0  # no record of starts, and the class can defer by itself: counted as mode "poke"
    tasks: int = 0  # task instances that look like sensors and that no serialized DAG has: left out
