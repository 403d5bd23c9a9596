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
from contextlib import suppress
from typing import Any

from sensorpool.leases.lease import Leases
from sensorpool.leases.redis_store import milliseconds
from sensorpool.model.terms import LiveWorker, Terms, read_worker
from sensorpool.model.values import Milliseconds, ShardRange

FOREIGN_KEPT = 60_000  # milliseconds for which a job with a range of other terms is remembered
SETTINGS_KEPT = 180_000  # milliseconds for which a worker's settings are remembered
_NOTES_KEPT = 86_400_000  # milliseconds for which the last note of beat, and of a triggerer, is remembered


class Roster:
    """The roster, on the Redis of the given leases.

    :raises Unreachable: by every method, when Redis does not answer.
    """

    def __init__(self, leases: Leases) -> None:
        self._store = leases.store
        self._key = leases.store.pool_key
        self._fresh = leases.ttl_ms

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
        written, others = self._store.run("enroll", [self._key("workers")], arguments)
        return bool(written), _read(dict(zip(others[::2], others[1::2], strict=True)))

    def strike(self, name: str) -> None:
        """Strike a worker out."""
        self._store.call(self._store.client.hdel, self._key("workers"), name)

    def tell_settings(self, name: str, settings: Mapping[str, Any]) -> None:
        """Tell with which settings a worker has started, for `settings_of`; to be repeated within `SETTINGS_KEPT`."""
        self._set(f"settings:{name}", json.dumps(settings), SETTINGS_KEPT)

    def settings_of(self, name: str) -> dict[str, Any]:
        """Return the settings with which a worker has started; empty: it has not told them."""
        found = self._get(f"settings:{name}")
        return {} if found is None else dict(json.loads(found))

    def workers(self) -> list[LiveWorker]:
        """Return the live workers, sorted by name."""
        pipeline = self._store.pipeline()
        pipeline.hgetall(self._key("workers"))
        pipeline.time()
        found, time = self._store.call(pipeline.execute)
        now = milliseconds(time)
        return [worker for worker in _read(found) if abs(now - worker.at) <= self._fresh]

    def note_foreign(self, shard_range: ShardRange) -> None:
        """Note that a job named a range that no live worker has."""
        self._set("foreign", str(shard_range), FOREIGN_KEPT)

    def foreign(self) -> str | None:
        """Return the last range of `note_foreign` in the last `FOREIGN_KEPT` milliseconds, or None."""
        return self._get("foreign")

    def note_beat(self, tick: float, kept: float) -> None:
        """Note the tick of a beat that lives, and when; of two beats, the last note counts.

        :param tick: seconds.
        :param kept: seconds until the tick is forgotten.
        """
        self._set("beat_tick", str(tick), round(kept * 1000))
        self._note_now("beat_at")

    def beat_tick(self) -> float | None:
        """Return the tick (seconds) of beat; None: no beat has noted it lately."""
        return self._number("beat_tick")

    def beat_age(self) -> float | None:
        """Return the seconds since beat's last note; None: there was none in a day."""
        return self._age("beat_at")

    def note_triggerer(self) -> None:
        """Note that a triggerer of Airflow looks for the ends of instances."""
        self._note_now("triggerer_at")

    def triggerer_age(self) -> float | None:
        """Return the seconds since the last note of any triggerer; None: there was none in a day."""
        return self._age("triggerer_at")

    def _note_now(self, name: str) -> None:
        self._set(name, str(self._store.now()), _NOTES_KEPT)

    def _age(self, name: str) -> float | None:
        found = self._number(name)
        return None if found is None else max(0.0, (self._store.now() - found) / 1000)

    def _number(self, name: str) -> float | None:
        """Return a number that was noted; None: it was not, or another program has written there."""
        with suppress(ValueError):
            return float(self._get(name) or "")
        return None

    def _get(self, name: str) -> str | None:
        found: str | None = self._store.call(self._store.client.get, self._key(name))
        return found

    def _set(self, name: str, value: str, kept: Milliseconds) -> None:
        self._store.call(self._store.client.set, self._key(name), value, px=kept)


def _read(found: dict[str, str]) -> list[LiveWorker]:
    read = (read_worker(str(name), str(value)) for name, value in found.items())
    return sorted((worker for worker in read if worker is not None), key=lambda worker: worker.name)
