"""The outages of backends, in Redis, shared by all workers: which backend is away, and who asks it next. Disposable."""

import random
import re
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from sensorpool.instrumentation.redaction import safe_line
from sensorpool.leases.answers import milliseconds
from sensorpool.leases.redis_store import RedisStore

HEALED_KEPT = 60.0  # seconds for which it is known that an outage is over
STALE = 300.0  # seconds after which an outage of which no poke has told is none any more: no group waits for it
MOST = 200  # outages at once
_LONGEST_CAUSE = 300  # characters
_JITTER = (0.8, 1.2)
_ENTRY = re.compile(r"(\d{1,15}) (\d{1,15}) (\d{1,15}) (away|throttled|healed) (.*)", re.DOTALL)


class Kind(StrEnum):
    """What is known of a backend."""

    AWAY = "away"  # its pokes fail, or overran
    THROTTLED = "throttled"  # it wants to be asked less
    HEALED = "healed"  # it answers again


class Outage(NamedTuple):
    """A backend that is not asked, or that answers again since a short while.

    :param backend: its name as it is; to be shown by `redaction.safe_line`.
    :param lasted: seconds since it began.
    :param left: seconds until one poke asks it; of a healed one, until it is forgotten. May be below 0.
    :param cause: what the poke said by which it began.
    """

    backend: str
    kind: Kind
    lasted: float
    left: float
    cause: str


class Begun(NamedTuple):
    """The answer of `Outages.begin`.

    :param is_new: whether this call has begun the outage.
    :param left: seconds until one poke asks the backend.
    """

    is_new: bool
    left: float


class Outages:
    """The outages that a pool knows of.

    :raises Unreachable: by every method, when Redis does not answer.
    """

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._keys = [store.pool_key("outages"), store.pool_key("probes")]
        self._begin = store.script("begin_outage")
        self._probe = store.script("probe")
        self._end_probe = store.script("end_probe")

    def look(self) -> list[Outage]:
        """Return the known outages, those too that are over since a short while."""
        pipeline = self._store.pipeline()
        pipeline.hgetall(self._keys[0])
        pipeline.time()
        found, time = self._store.call(pipeline.execute, raise_on_error=False)
        if not isinstance(found, dict) or not isinstance(time, tuple):
            return []  # the key has a type that is not ours
        return sorted(_read(found, milliseconds(time)))

    def away(self) -> list[Outage]:
        """Return the backends that are not asked now."""
        return [each for each in self.look() if each.kind is not Kind.HEALED]

    def begin(self, backend: str, kind: Kind, cause: str, *, wait: float, quiet: float = 0.0) -> Begun:
        """Note that a backend is away.

        :param wait: seconds until one poke asks it, which double with each poke that fails.
        :param quiet: seconds for which the backend wants to be left alone.
        """
        spans = [round(each * 1000) for each in (quiet, wait, STALE)]
        arguments = [backend, kind.value, *spans, MOST, safe_line(cause, _LONGEST_CAUSE)]
        answer, left = self._store.run(self._begin, self._keys[:1], arguments)
        return Begun(int(answer) == 1, int(left) / 1000)

    def take_turn(self, backend: str, token: str, kept: float) -> float | None:
        """Take the turn to ask a backend that is away.

        :param kept: seconds after which the turn goes to another poke.
        :returns: 0: the caller asks it; else in how many seconds to try again; None: the outage is over.
        """
        answer, left = self._store.run(self._probe, self._keys, [backend, token, round(kept * 1000)])
        if int(answer) < 0:
            return None
        return 0.0 if int(answer) else max(0.001, int(left) / 1000)

    def failed(self, backend: str, longest: float) -> float:
        """Say that a poke that asked has failed too; return in how many seconds the next one asks.

        :param longest: seconds that the pause between two pokes may grow to.
        """
        return self._end(backend, "0", longest)[1]

    def answered(self, backend: str) -> float | None:
        """Say that a backend answers again; return for how many seconds it was away, None: that was known already."""
        is_over, lasted = self._end(backend, "1", 0.0)
        return lasted if is_over else None

    def _end(self, backend: str, answered: str, longest: float) -> tuple[bool, float]:
        factor = f"{random.uniform(*_JITTER):.3f}"
        arguments = [backend, answered, factor, round(longest * 1000), round(HEALED_KEPT * 1000)]
        said, span = self._store.run(self._end_probe, self._keys, arguments)
        return bool(int(said)), int(span) / 1000


def _read(found: dict[str, str], now: int) -> Iterator[Outage]:
    """Yield the outages of a hash; an entry that is not ours is skipped."""
    for backend, text in found.items():
        if (entry := _ENTRY.fullmatch(str(text))) is None:
            continue
        since, until, kind = int(entry[1]), int(entry[2]), Kind(entry[4])
        left = (until - now) / 1000
        if since > now:
            continue  # the clock was put back: what the entry says of times is wrong
        if left <= (0.0 if kind is Kind.HEALED else -STALE):
            continue
        yield Outage(str(backend), kind, (now - since) / 1000, left, safe_line(entry[5], _LONGEST_CAUSE))
