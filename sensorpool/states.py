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


INCONCLUSIVE = frozenset({Outcome.NOT_LANDED, Outcome.POKE_TIMEOUT, Outcome.INFRA_FAILURE, Outcome.CRASHED})
