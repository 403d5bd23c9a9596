"""Claims: which process has a suspect in hand, and since when. A claim keeps two processes from poking it at once.

Each suspect has a key of its own, ``alone:N``. The key expires when its process stops renewing it. Its value names the
process, which renews and drops no other claims.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar
from uuid import uuid4

from sensorpool.leases.answers import pairs, read_times
from sensorpool.leases.redis_store import RedisStore
from sensorpool.model.values import Milliseconds, ShardRange

_PREFIX = "alone:"
_A_TIME = 10**9  # milliseconds: a smaller number is not a time that we wrote
_Each = TypeVar("_Each")
_AT_ONCE = 1_000  # claims in one script


class Claims:
    """The claims on a pool's suspects. Each object of this class owns the claims that it takes.

    :raises Unreachable: by every method, when Redis does not answer.
    """

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._owner = uuid4().hex
        self._claims = store.script("claims")
        self._renew = store.script("renew_claims")
        self._drop = store.script("drop_claims")

    def take(self, shard_range: ShardRange, group_ids: Sequence[int], seconds: float, now: Milliseconds) -> list[int]:
        """Claim groups that are poked outside of a job; return the groups that no other process has claimed.

        :param seconds: how long the claim lives unless it is renewed.
        :param now: the time by the database's clock; `since` returns it.
        """
        span = _milliseconds(seconds)
        pipeline = self._store.pipeline()
        for group_id in group_ids:
            pipeline.set(self._key(shard_range, group_id), f"{now} {self._owner}", nx=True, px=span)
            pipeline.pttl(self._key(shard_range, group_id))
        answers = self._store.call(pipeline.execute) if group_ids else []
        endless = [g for g, left in zip(group_ids, answers[1::2], strict=True) if not -1 < left <= span]
        if endless:  # such a key is not ours: every claim of ours expires
            pipeline = self._store.pipeline()
            for group_id in endless:
                pipeline.pexpire(self._key(shard_range, group_id), span)
            self._store.call(pipeline.execute)
        return [group_id for group_id, answer in zip(group_ids, answers[::2], strict=True) if answer]

    def renew(
        self, claims: Mapping[ShardRange, Mapping[int, Milliseconds]], seconds: float
    ) -> dict[ShardRange, list[int]]:
        """Let our claims live for so many seconds from now; make those again that have ended, and return their groups.

        :param claims: the groups of each range, each with the time of its claim.
        """
        shares = [(each, share) for each, groups in claims.items() for share in _shares(groups.items())]
        answers = self._store.run_each(
            [
                (
                    self._renew,
                    [self._key(shard_range, group_id) for group_id, _ in share],
                    [self._owner, _milliseconds(seconds), *(at for _, at in share)],
                )
                for shard_range, share in shares
            ]
        )
        again: dict[ShardRange, list[int]] = {}
        for (shard_range, share), places in zip(shares, answers, strict=True):
            if places:
                again.setdefault(shard_range, []).extend(share[place - 1][0] for place in places)
        return again

    def drop(self, shard_range: ShardRange, group_ids: Iterable[int]) -> None:
        """Drop our claims on these groups."""
        names = [self._key(shard_range, group_id) for group_id in group_ids]
        if names:
            self._store.run_each([(self._drop, share, [self._owner]) for share in _shares(names)])

    def since(self, ranges: Sequence[ShardRange]) -> dict[int, Milliseconds]:
        """Return since when each claimed suspect of these ranges has been claimed."""
        pipeline = self._store.pipeline()
        for shard_range in ranges:
            keys, prefix = [self._store.key(shard_range, "suspects")], self._store.key(shard_range, _PREFIX)
            self._claims(keys=keys, args=[prefix], client=pipeline)
        found: dict[int, Milliseconds] = {}
        for text in self._store.call(pipeline.execute):
            found |= read_times(pairs(text.split()))
        return {group_id: at for group_id, at in found.items() if at >= _A_TIME}

    def _key(self, shard_range: ShardRange, group_id: int) -> str:
        return self._store.key(shard_range, f"{_PREFIX}{group_id}")


def _milliseconds(seconds: float) -> Milliseconds:
    return max(1, int(seconds * 1000))


def _shares(every: Iterable[_Each]) -> list[list[_Each]]:
    """Part what is too much for one script."""
    each = list(every)
    return [each[start : start + _AT_ONCE] for start in range(0, len(each), _AT_ONCE)]
