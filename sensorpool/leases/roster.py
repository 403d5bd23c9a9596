"""The roster: which workers live, which tables they serve and with which shard ranges. In Redis, and disposable.

A worker enters itself when it starts, again every ``heartbeat``, and strikes itself out when it ends. The first worker
sets the terms: a worker with other terms does not start beside it. So all workers on one Redis (and one ``namespace``)
serve one pool and cut it into the same ranges, and clients can look up which ranges. After a loss of Redis the roster
is complete again within a heartbeat.

Beat serves no tables and has no entry; it notes its tick beside the roster, for `health` to go by. So do triggerers of
Airflow, which take the ends of instances to their tasks.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sensorpool.leases.answers import milliseconds, pairs
from sensorpool.leases.lease import Leases
from sensorpool.model.json_text import read_json
from sensorpool.model.terms import LiveWorker, Terms, read_worker
from sensorpool.model.values import LONGEST_SPAN, ShardRange

FOREIGN_KEPT = 60_000  # milliseconds for which a job with a range of other terms is remembered
SETTINGS_KEPT = 180_000  # milliseconds for which a worker's settings are remembered
_NOTES_KEPT = 86_400_000  # milliseconds for which the last note of beat, and of a triggerer, is remembered


class Roster:
    """The roster, on the Redis of the given leases.

    :raises Unreachable: by every method, when Redis does not answer.
    """

    def __init__(self, leases: Leases) -> None:
        self._store = leases.store
        self._dirty_flags = leases.dirty_flags
        self._key = leases.store.pool_key("workers")
        self._settings = leases.store.pool_key("settings")
        self._foreign = leases.store.pool_key("foreign")
        self._beat_tick = leases.store.pool_key("beat_tick")
        self._beat_at = leases.store.pool_key("beat_at")
        self._triggerer_at = leases.store.pool_key("triggerer_at")
        self._fresh = leases.ttl_ms
        self._enroll = leases.store.script("enroll")

    def enroll(
        self,
        name: str,
        terms: Terms,
        *,
        tick: float,
        version: str,
        must_agree: bool,
        queues: Sequence[str] | None = None,
        no_metrics: str = "",
    ) -> tuple[bool, list[LiveWorker]]:
        """Enter a worker; return whether it was entered, and the other live workers.

        :param no_metrics: why it serves no metrics, where it should.
        :param queues: the queues from which the worker takes jobs; None: not known.
        :param must_agree: enter nothing if another live worker has other terms.
        """
        fields: dict[str, Any] = {"tick": tick, "version": version}
        fields |= {"no_metrics": no_metrics} if no_metrics else {}
        more = json.dumps(fields if queues is None else fields | {"queues": list(queues)})
        arguments = [name, str(terms), more, self._fresh, "1" if must_agree else "0"]
        written, others = self._store.run(self._enroll, [self._key], arguments)
        return bool(written), _read(dict(pairs(others)))

    def strike(self, name: str) -> None:
        """Strike a worker out."""
        self._store.call(self._store.client.hdel, self._key, name)

    def tell_settings(self, name: str, settings: Mapping[str, Any]) -> None:
        """Tell with which settings a worker has started, for `settings_of`; to be repeated within `SETTINGS_KEPT`."""
        self._store.call(self._store.client.set, f"{self._settings}:{name}", json.dumps(settings), px=SETTINGS_KEPT)

    def settings_of(self, name: str) -> dict[str, Any]:
        """Return the settings with which a worker has started; empty: it has not told them."""
        pipeline = self._store.pipeline()
        pipeline.get(f"{self._settings}:{name}")
        [found] = self._store.call(pipeline.execute, raise_on_error=False)
        settings = read_json(found) if isinstance(found, str) else None
        return settings if isinstance(settings, dict) else {}

    def workers(self) -> list[LiveWorker]:
        """Return the live workers, sorted by name."""
        return self._ask(self._store.pipeline())[1]

    def raise_dirty(self, late: Mapping[ShardRange, Sequence[int]]) -> tuple[list[ShardRange], list[LiveWorker]]:
        """Raise dirty flags; return the ranges whose flag was down, and the live workers, read in the same call.

        :param late: each range with its new groups whose registration took long; mostly none.
        """
        pipeline = self._store.pipeline()
        places, place = {}, 0
        for shard_range, group_ids in late.items():
            place += self._dirty_flags.add_to(pipeline, shard_range, group_ids)
            places[shard_range] = place - 1
        raised, workers = self._ask(pipeline)
        return [shard_range for shard_range, place in places.items() if raised[place] is True], workers

    def note_foreign(self, shard_range: ShardRange) -> None:
        """Note that a job named a range that no live worker has."""
        self._store.call(self._store.client.set, self._foreign, str(shard_range), px=FOREIGN_KEPT)

    def foreign(self) -> str | None:
        """Return the last range of `note_foreign` in the last `FOREIGN_KEPT` milliseconds, or None."""
        found = self._store.call(self._store.client.get, self._foreign)
        return None if found is None else str(found)[:40]

    def note_beat(self, tick: float, kept: float) -> None:
        """Note the tick of a beat that lives, and when; of two beats, the last note counts.

        :param tick: seconds.
        :param kept: seconds until the tick is forgotten.
        """
        self._store.call(self._store.client.set, self._beat_tick, str(tick), px=round(kept * 1000))
        self._note(self._beat_at)

    def beat_age(self) -> float | None:
        """Return the seconds since beat's last note; None: there was none in a day."""
        return self._age(self._beat_at)

    def note_triggerer(self) -> None:
        """Note that a triggerer of Airflow looks for the ends of instances."""
        self._note(self._triggerer_at)

    def triggerer_age(self) -> float | None:
        """Return the seconds since the last note of any triggerer; None: there was none in a day."""
        return self._age(self._triggerer_at)

    def _note(self, key: str) -> None:
        time = self._store.call(self._store.client.time)
        self._store.call(self._store.client.set, key, str(milliseconds(time)), px=_NOTES_KEPT)

    def _age(self, key: str) -> float | None:
        """Return the seconds since a note; None if there is none, or a key that is not ours."""
        pipeline = self._store.pipeline()
        pipeline.get(key)
        pipeline.time()
        found, time = self._store.call(pipeline.execute, raise_on_error=False)
        try:
            return max(0.0, (milliseconds(time) - int(found)) / 1000)
        except (TypeError, ValueError, OverflowError):
            return None

    def beat_tick(self) -> float | None:
        """Return the tick (seconds) of beat; None: no beat has noted it lately."""
        pipeline = self._store.pipeline()
        pipeline.get(self._beat_tick)
        [found] = self._store.call(pipeline.execute, raise_on_error=False)
        try:
            tick = float(found)
        except (TypeError, ValueError):  # no note, or a key that is not ours
            return None
        return tick if 0 < tick <= LONGEST_SPAN else None

    def _ask(self, pipeline: Any) -> tuple[list[Any], list[LiveWorker]]:
        """Send a pipeline, and the question for the live workers with it; return its answers, and the workers."""
        pipeline.hgetall(self._key)
        pipeline.time()
        *answers, found, time = self._store.call(pipeline.execute, raise_on_error=False)
        return answers, self._alive(found, time)

    def _alive(self, found: object, time: object) -> list[LiveWorker]:
        if not (isinstance(found, dict) and isinstance(time, tuple)):
            return []  # the key has a type that is not ours
        now = milliseconds(time)
        return [worker for worker in _read(found) if abs(now - worker.at) <= self._fresh]


def _read(found: dict[str, str]) -> list[LiveWorker]:
    read = (read_worker(str(name), str(value)) for name, value in found.items())
    return sorted((worker for worker in read if worker is not None), key=lambda worker: worker.name)
