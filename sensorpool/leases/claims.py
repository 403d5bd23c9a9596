"""Claims: which process has a suspect in hand, and since when. A claim keeps two processes from poking it at once.

Each suspect has a key of its own, ``alone:N`` (all versions use this name). The key expires when its process stops
renewing it.
"""

from collections.abc import Iterable, Sequence

from sensorpool.leases.answers import pairs, read_times
from sensorpool.leases.redis_store import RedisStore
from sensorpool.model.values import Milliseconds, ShardRange

_PREFIX = "alone:"
_A_TIME = 10**9  # milliseconds: a smaller number is not a time that we wrote


class Claims:
    """The claims on a pool's suspects.

    :raises Unreachable: by every method, when Redis does not answer.
    """

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._claims = store.script("claims")

    def take(self, shard_range: ShardRange, group_ids: Sequence[int], seconds: float, now: Milliseconds) -> list[int]:
        """Claim groups that are poked outside of a job; return the groups that no other process has claimed.

        :param seconds: how long the claim lives unless it is renewed.
        :param now: the time by the database's clock; `since` returns it.
        """
        span = max(1, int(seconds * 1000))
        pipeline = self._store.pipeline()
        for group_id in group_ids:
            pipeline.set(self._key(shard_range, group_id), str(now), nx=True, px=span)
            pipeline.pttl(self._key(shard_range, group_id))
        answers = self._store.call(pipeline.execute) if group_ids else []
        endless = [g for g, left in zip(group_ids, answers[1::2], strict=True) if not -1 < left <= span]
        if endless:  # such a key is not ours: every claim of ours expires
            self.renew([(shard_range, group_id) for group_id in endless], seconds)
        return [group_id for group_id, answer in zip(group_ids, answers[::2], strict=True) if answer]

    def renew(self, claims: Iterable[tuple[ShardRange, int]], seconds: float) -> None:
        """Let claims live for so many seconds from now."""
        pipeline = self._store.pipeline()
        for shard_range, group_id in claims:
            pipeline.pexpire(self._key(shard_range, group_id), max(1, int(seconds * 1000)))
        self._store.call(pipeline.execute)

    def drop(self, shard_range: ShardRange, group_ids: Iterable[int]) -> None:
        """Drop the claims on these groups."""
        if names := [self._key(shard_range, group_id) for group_id in group_ids]:
            self._store.call(self._store.client.delete, *names)

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
