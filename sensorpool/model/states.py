"""The states of a sensor instance, and the outcomes of one poke of one group."""

from enum import StrEnum


class State(StrEnum):
    """Where a sensor instance stands; every instance reaches exactly one terminal state."""

    SENSING = "sensing"  # waits; the only state that is not terminal
    SUCCESS = "success"  # its condition landed
    FAILED = "failed"  # its poke raised, or its timeout passed and a last poke found nothing
    SKIPPED = "skipped"  # as failed, under soft_fail or never_fail; or its poke asked to skip
    CANCELLED = "cancelled"  # called off, or superseded by a higher try


TERMINAL = frozenset(State) - {State.SENSING}


class Outcome(StrEnum):
    """What one poke of one group saw: a fact, not a command (see `settle`)."""

    LANDED = "landed"  # the poke was truthy
    NOT_LANDED = "not_landed"  # it was not
    POKE_ERROR = "poke_error"  # it raised
    POKE_TIMEOUT = "poke_timeout"  # it overran its time limit: not known
    INFRA_FAILURE = "infra_failure"  # it could not ask; retried for a window
    SKIP = "skip"  # it raised a skip exception
    FAIL = "fail"  # it raised a fail exception
    CRASHED = "crashed"  # it took its process down, as seen by that process's living parent
    HAND_BACK = "hand_back"  # it cannot be answered in the pool: the waiter shall poke by itself
    CANNOT_POKE = "cannot_poke"  # this process cannot poke the class; another one may, so nothing is known
    UNPOKEABLE = "unpokeable"  # no process could, for the infrastructure window
    # a new one comes last: records tell them by their place (`record`)
    EXITED = "exited"  # it raised what is no Exception (sys.exit, say): an error that no flag forgives


class Ending(StrEnum):
    """Why an instance took its terminal state: what a waiter needs to end as it would have ended by itself."""

    LANDED = "landed"
    TIMEOUT = "timeout"  # of the sensor: no retry in Airflow
    EXECUTION_TIMEOUT = "execution_timeout"  # of the task: Airflow retries
    POKE_ERROR = "poke_error"  # its poke raised: Airflow retries
    SKIP = "skip"  # its poke asked to skip
    FAIL = "fail"  # its poke asked to fail, or it was quarantined: no retry
    CANCELLED = "cancelled"  # called off, or superseded by a higher try
    HANDED_BACK = "handed_back"  # called off for the waiter to poke by itself


INCONCLUSIVE = frozenset(
    {Outcome.NOT_LANDED, Outcome.POKE_TIMEOUT, Outcome.INFRA_FAILURE, Outcome.CRASHED, Outcome.CANNOT_POKE}
)
