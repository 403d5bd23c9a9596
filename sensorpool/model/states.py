"""The states of a sensor instance, and the outcomes of one poke of one group."""

from enum import StrEnum


class State(StrEnum):
    """The state of a sensor instance; every instance reaches exactly one terminal state."""

    SENSING = "sensing"  # it waits; the only state that is not terminal
    SUCCESS = "success"  # its condition landed
    FAILED = "failed"  # its poke raised, or its timeout passed and a last poke found nothing
    SKIPPED = "skipped"  # a timeout under soft_fail, an error under never_fail; or its poke asked to skip
    CANCELLED = "cancelled"  # it was cancelled, or superseded by a higher try


TERMINAL = frozenset(State) - {State.SENSING}


class Outcome(StrEnum):
    """What one poke of one group saw: a fact, not a command (see `settle`)."""

    LANDED = "landed"  # the poke returned a true value
    NOT_LANDED = "not_landed"  # the poke returned a false value
    POKE_ERROR = "poke_error"  # the poke raised
    POKE_TIMEOUT = "poke_timeout"  # the poke overran its time limit: its answer is not known
    INFRA_FAILURE = "infra_failure"  # the backend could not be asked; retried for the infrastructure window
    SKIP = "skip"  # the poke raised a skip exception
    FAIL = "fail"  # the poke raised a fail exception
    CRASHED = "crashed"  # the poke took its process down, as seen by that process's living parent
    HAND_BACK = "hand_back"  # the pool cannot answer: the waiter has to poke by itself
    CANNOT_POKE = "cannot_poke"  # this process cannot poke the class; another process may, so nothing is known
    UNPOKEABLE = "unpokeable"  # no process could poke the class for the infrastructure window
    # a new outcome comes last: `leases.poke_log` stores their places
    EXITED = "exited"  # the poke raised a BaseException that is no Exception (sys.exit): no flag forgives it


class Ending(StrEnum):
    """Why an instance took its terminal state, so that its waiter can end as it would have ended by itself."""

    LANDED = "landed"
    TIMEOUT = "timeout"  # the sensor's timeout: no retry in Airflow
    EXECUTION_TIMEOUT = "execution_timeout"  # the task's timeout: Airflow retries
    POKE_ERROR = "poke_error"  # its poke raised: Airflow retries
    SKIP = "skip"  # its poke asked to skip
    FAIL = "fail"  # its poke asked to fail, or it was quarantined: no retry
    CANCELLED = "cancelled"  # it was cancelled, or superseded by a higher try
    HANDED_BACK = "handed_back"  # it was cancelled so that the waiter pokes by itself


INCONCLUSIVE = frozenset(
    {Outcome.NOT_LANDED, Outcome.POKE_TIMEOUT, Outcome.INFRA_FAILURE, Outcome.CRASHED, Outcome.CANNOT_POKE}
)
