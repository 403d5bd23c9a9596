"""The circuit breaker of a backend: what is known of one that does not answer, and how that changes. Pure."""

import random
from enum import StrEnum
from typing import NamedTuple

HEALED_KEPT = 60.0  # seconds for which it is known that an outage is over
LONGEST_PAUSE = 30.0  # seconds between two pokes that ask a backend that is away
_QUIET_JITTER = 0.25  # of a quiet span, at most, is added to it
_PAUSE_JITTER = (0.8, 1.2)


class Kind(StrEnum):
    """What is known of a backend."""

    AWAY = "away"  # its pokes fail, or overran
    THROTTLED = "throttled"  # it wants to be asked less
    HEALED = "healed"  # it answers again


class Outage(NamedTuple):
    """A backend that is not asked, or that answers again since a short while. Times are seconds of one clock.

    :param backend: its name as it is; to be shown by `redaction.safe_line`.
    :param since: when it began.
    :param ask_at: when one poke asks it; of a healed one, when it is forgotten.
    :param pause: seconds from that poke to the next one.
    :param quiet_until: until when it wants to be left alone; 0: it has not said so.
    :param cause: what the poke said by which it began.
    """

    backend: str
    kind: Kind
    since: float
    ask_at: float
    pause: float
    quiet_until: float
    cause: str

    @property
    def is_open(self) -> bool:
        """Whether the backend is not asked."""
        return self.kind is not Kind.HEALED

    def asked(self, now: float) -> "Outage":
        """Return the outage once a poke asks the backend: the pause until the next one doubles."""
        ask_at = max(now + self.pause * random.uniform(*_PAUSE_JITTER), self.quiet_until)
        return self._replace(ask_at=ask_at, pause=min(2 * self.pause, LONGEST_PAUSE))

    def healed(self, now: float) -> "Outage":
        """Return the outage once a poke had an answer."""
        return self._replace(kind=Kind.HEALED, since=now, ask_at=now + HEALED_KEPT, quiet_until=0.0)

    def is_ended_by(self, began: float) -> bool:
        """Whether an answer ends it; pokes that were on their way when it began say nothing.

        :param began: when the poke with the answer began.
        """
        return self.is_open and began > max(self.since, self.quiet_until)


def away(before: Outage | None, backend: str, cause: str, now: float, wait: float) -> Outage:
    """Return the outage of a backend that does not answer.

    :param before: what is known of the backend.
    :param wait: seconds until the first poke asks it; longer where it went away again after a short while.
    """
    pause = min(max(wait, before.pause if before else 0.0), LONGEST_PAUSE)
    return Outage(backend, Kind.AWAY, now, now + pause, min(2 * pause, LONGEST_PAUSE), 0.0, cause)


def throttled(before: Outage | None, backend: str, cause: str, now: float, wait: float, quiet: float) -> Outage:
    """Return the outage of a backend that wants to be left alone for so many seconds, and a part at random."""
    if before is not None and now + quiet <= before.quiet_until:
        return before
    until = now + quiet * (1 + random.uniform(0, _QUIET_JITTER))
    if before is not None and before.is_open:
        return before._replace(ask_at=max(before.ask_at, until), quiet_until=until)
    return Outage(backend, Kind.THROTTLED, now, until, min(wait, LONGEST_PAUSE), until, cause)
