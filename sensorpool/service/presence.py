"""A worker's entry in the roster: made before the worker starts, kept while it lives, struck out when it ends."""

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from sensorpool.config.settings import Settings
from sensorpool.config.shared import shared
from sensorpool.errors import SettingsError, Unreachable
from sensorpool.instrumentation.background import BackgroundThread
from sensorpool.instrumentation.logs import logger
from sensorpool.leases.roster import SETTINGS_KEPT, Roster
from sensorpool.model.terms import LiveWorker, Terms, disagreements
from sensorpool.store import pool_id
from sensorpool.store.database import Database

_LOOK_EVERY = 0.25  # seconds between two looks while a worker waits for the entry of a dead one to expire

_TELL_EVERY = SETTINGS_KEPT / 3_000  # seconds

log = logger(__name__)


class Presence:
    """The entry of one worker.

    :param name: its node name and process, ``node/pid``. A random part is added, because every container's first
        process is number 1.
    :param version: the version of its code, for people.
    """

    def __init__(self, settings: Settings, roster: Roster, name: str, terms: Terms, version: str) -> None:
        self._settings = settings
        self._roster = roster
        self.queues: Callable[[], Sequence[str]] | None = None  # returns its queues; None before it takes jobs
        self.no_metrics = ""  # why it serves no metrics, where it should
        self._name = f"{name}-{secrets.token_hex(4)}"
        self._terms = terms
        self._version = version
        self._shared = shared(settings)
        self._told_at = float("-inf")  # when the settings were told last
        self._kept_at = float("-inf")  # when the entry was written, by the monotonic clock
        self._thread = BackgroundThread("presence", self._keep)
        self._said: list[str] = []

    @property
    def name(self) -> str:
        """The name of the entry, which no other process has."""
        return self._name

    @property
    def is_kept(self) -> bool:
        """Whether the worker is in the roster, as far as it knows: an entry expires as a lease does."""
        return time.monotonic() - self._kept_at < self._settings.lease_ttl

    def enter(self) -> None:
        """Enter the worker, or refuse: a live worker with other terms would poke the same groups or miss jobs.

        An entry with other terms may belong to a worker that was just killed. So this waits until the entry expires,
        or until it is renewed, as a live worker does within a heartbeat.

        :raises SettingsError: when a live worker has other terms; the text names them and the mend.
        :raises Unreachable: when Redis does not answer.
        """
        seen: dict[str, int] = {}
        while True:
            written, others = self._write(must_agree=True)
            if written:
                self._tell_settings()
                return
            foreign = [worker for worker in others if worker.terms != self._terms]
            if any(seen.get(worker.name, worker.at) != worker.at for worker in foreign):
                raise SettingsError(" ".join(disagreements(self._terms, foreign)))
            seen = {worker.name: worker.at for worker in foreign}
            if self._thread.wait(_LOOK_EVERY):
                return

    def keep(self) -> None:
        """Have a thread keep the entry from now on. Call it after all forks."""
        self._thread.start()

    def leave(self) -> None:
        """Strike the worker out."""
        self._thread.close(self._settings.heartbeat)
        with suppress(Unreachable):  # then the entry expires
            self._roster.strike(self._name)

    def _keep(self) -> None:
        while not self._thread.is_stopping:
            started = time.monotonic()
            try:
                self._tell_settings()
                self._say(disagreements(self._terms, self._write(must_agree=False)[1]))
            except Unreachable as error:
                log.debug("the roster waits for Redis", error=str(error))
            except Exception:
                log.exception("the roster was not kept")
            self._thread.wait(max(0.1, self._settings.heartbeat - (time.monotonic() - started)))

    def _tell_settings(self) -> None:
        """Tell the settings of this process now and then: `sensorpool doctor` names those that are others elsewhere."""
        if time.monotonic() - self._told_at >= _TELL_EVERY:
            self._roster.tell_settings(self._name, self._shared)
            self._told_at = time.monotonic()

    def _write(self, *, must_agree: bool) -> tuple[bool, list[LiveWorker]]:
        began = time.monotonic()
        written, others = self._roster.enroll(
            self._name,
            self._terms,
            tick=self._settings.tick,
            version=self._version,
            queues=None if self.queues is None else self.queues(),
            no_metrics=self.no_metrics,
            must_agree=must_agree,
        )
        if written:
            self._kept_at = began
        return written, others

    def _say(self, problems: list[str]) -> None:
        """Log each new disagreement (two workers may enter at once after a loss of Redis)."""
        for problem in problems:
            if problem not in self._said:
                log.error(problem)
        self._said = problems


def terms_of(settings: Settings, database: Database) -> Terms:
    """Return the terms of a worker with these settings.

    :raises SchemaMismatch: when the database has no pool id.
    :raises Unreachable: when the database does not answer.
    """
    return Terms(pool_id.read(database), settings.shards, settings.shard_code_upper_limit)
