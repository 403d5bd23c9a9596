"""A pool for tests: no server, a clock that the test moves, pokes and ends at its command, callbacks in a list.

`pool` makes one, with any runner of tests; `sensorpool.pytest_plugin` has pytest's fixture.
"""

import atexit
import json
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

from kombu.utils.json import dumps, loads

from sensorpool.admin.one_poke import poke_once
from sensorpool.client import default
from sensorpool.client.instance import Instance
from sensorpool.client.nudger import Nudger
from sensorpool.client.pool import Pool
from sensorpool.client.validate import CheckedRegistration
from sensorpool.client.wait import Named, Wait, named, seconds_of, states
from sensorpool.config.allowlist import Allowlist
from sensorpool.config.settings import Settings
from sensorpool.errors import Refused
from sensorpool.model import callback_messages
from sensorpool.model.json_text import read_json
from sensorpool.model.states import Outcome, State
from sensorpool.model.values import Fact, Flushed, Milliseconds, Registered
from sensorpool.poke.answer import spell_xcom
from sensorpool.poke.classes import Classes
from sensorpool.publish.callbacks import arguments_of
from sensorpool.publish.messages import result_of
from sensorpool.settle.settler import Settler
from sensorpool.store import callback_rows, inspecting
from sensorpool.store.conditions import Woken
from sensorpool.store.migrate import upgrade

_FILE = "pool.db"


class Clock:
    """A clock that the test moves, in the place of the database's clock."""

    def __init__(self, now: Milliseconds = 1_700_000_000_000) -> None:
        self.now = now

    def __call__(self) -> Milliseconds:
        return self.now

    def advance(self, seconds: float) -> None:
        """Move the clock on (or back)."""
        self.now += round(seconds * 1000)


class _Anything(Allowlist):
    """An allowlist of all classes."""

    def __init__(self) -> None:
        super().__init__(())

    def __contains__(self, op_classpath: object) -> bool:
        return True

    def reason_against(self, op_classpath: str, cls: type) -> None:  # every class is enabled
        """Return None."""


@dataclass(frozen=True)
class Sent:
    """A callback that the pool has sent.

    ``args`` and ``kwargs`` are those that its task gets, the result among them unless its signature is immutable;
    ``instance_id`` is of the instance that ended; ``options`` are those of Celery: its task id, its queue, the rest of
    its chain.
    """

    instance_id: int
    task: str
    args: Sequence[Any]
    kwargs: dict[str, Any]
    options: dict[str, Any]
    result: dict[str, Any]


class TestPool(Pool):
    """A pool of a test, on an SQLite file of its own. Nothing happens in it by itself.

    :ivar clock: the pool's clock.
    :ivar registered: the instances that were registered, in order.
    :ivar sent: the callbacks that were sent, in order.
    """

    __test__ = False  # pytest takes classes of this name for tests

    def __init__(self, settings: Settings, clock: Clock, *, any_class: bool) -> None:
        super().__init__(settings, clock=clock)
        self.clock = clock
        self.registered: list[Instance] = []
        self.sent: list[Sent] = []
        if any_class:
            self.classes = Classes(_Anything())
        self.settler = Settler(self.database, self._deliver, tick_ms=settings.tick_ms)
        self.nudger = _NoNudger(self, self.outbox)

    def register_checked(self, checked: Sequence[CheckedRegistration]) -> list[Registered]:
        """Register, and note what was registered."""
        found = super().register_checked(checked)
        self.registered += [Instance.of(self, each) for each in found if each.created]
        return found

    def poke(self, *instances: Named) -> dict[int, State]:
        """Make one poke of each condition, here and now, and settle what came of it.

        :param instances: whose conditions are poked; default: all that wait.
        :returns: the state of each of these instances afterwards, by its id.
        """
        waiting = self._groups(instances)
        for group_id, version in waiting.items():
            group = self.database.read(inspecting.group, group_id)
            if group is None:
                continue  # an earlier poke has ended it
            seen = poke_once(
                self.settings, group["op_classpath"], read_json(group["poke_context"]), classes=self.classes
            )
            value = None if seen.xcom_value is None else json.dumps(seen.xcom_value)
            self.settler.settle([Fact(group_id, version, self.clock(), seen.outcome, seen.reason, value)])
        return self._states(instances)

    def waiting(self, instance_ids: Named | Iterable[Named], timeout: float | timedelta | None) -> Wait:
        """Return a wait that is over after one look, because in a test nothing happens meanwhile.

        Without a ``timeout``, as in a chain that Celery runs eagerly, what still waits is poked once.

        :raises Refused: when that poke does not end it, or the timeout is no number.
        """
        asked = named(instance_ids)
        if seconds_of(timeout) is None:
            waiting = [each for each, state in states(self.database, asked).items() if state == State.SENSING]
            for each, state in (self.poke(*waiting) if waiting else {}).items():
                if state == State.SENSING:
                    raise Refused(
                        f"instance {each} waits on after a poke: a test cannot wait without a timeout; land it first"
                    )
        return super().waiting([instance or each for each, instance in asked.items()], 0)

    def land(self, *instances: Named, xcom_value: Any = None) -> dict[int, State]:
        """Have conditions land, as if their pokes had returned true.

        :param instances: whose conditions land; default: all that wait.
        :param xcom_value: the value that the pokes return.
        :returns: the state of each of these instances afterwards, by its id.
        :raises Refused: when a pool takes a poke that returns this value for an error; nothing lands.
        """
        try:
            value = None if xcom_value is None else spell_xcom(xcom_value)
        except ValueError as error:
            raise Refused(f"a poke cannot land so: {error}") from None
        return self._end(instances, Outcome.LANDED, None, value)

    def fail(self, *instances: Named, reason: str = "the test has it fail") -> dict[int, State]:
        """Have conditions fail, as if their pokes had raised `FailSensor`: see `land`."""
        return self._end(instances, Outcome.FAIL, reason, None)

    def skip(self, *instances: Named, reason: str = "the test has it skip") -> dict[int, State]:
        """Have conditions end as skipped, as if their pokes had raised `SkipSensor`: see `land`."""
        return self._end(instances, Outcome.SKIP, reason, None)

    def time_out(self, *instances: Named) -> dict[int, State]:
        """Move the clock beyond the timeouts of instances, and poke them in vain: see `land`."""
        rows = [self.database.read(inspecting.instance, each) for each in self._ids(instances)]
        latest = max((row["timeout_at"] for row in rows if row is not None), default=self.clock.now)
        self.clock.now = max(self.clock.now, latest)
        return self._end(instances, Outcome.NOT_LANDED, None, None)

    def _end(
        self, instances: Sequence[Named], outcome: Outcome, reason: str | None, value: str | None
    ) -> dict[int, State]:
        for group_id, version in self._groups(instances).items():
            self.settler.settle([Fact(group_id, version, self.clock(), outcome, reason, value)])
        return self._states(instances)

    def _ids(self, instances: Sequence[Named]) -> list[int]:
        return list(named(instances)) if instances else [each.id for each in self.registered]

    def _groups(self, instances: Sequence[Named]) -> dict[int, int]:
        """Return the version of each group that one of these instances waits for, by the group's id."""
        found: dict[int, int] = {}
        for instance_id in self._ids(instances):
            instance = self.database.read(inspecting.instance, instance_id)
            if instance is None:
                raise Refused(f"there is no instance {instance_id} in this pool")
            group = self.database.read(inspecting.group, instance["group_id"])
            if group is not None and instance["state"] == State.SENSING:
                found[group["id"]] = group["version"]
        return found

    def _states(self, instances: Sequence[Named]) -> dict[int, State]:
        return self.wait(self._ids(instances), timeout=0)

    def _deliver(self, flushed: Flushed) -> None:
        """Note the callbacks of a flush as sent."""
        for each in flushed.settled:
            if each.on_settled is None:
                continue
            for message in callback_messages.messages(each.on_settled, each.state):
                result = result_of(each)
                args, kwargs = loads(dumps(arguments_of(message, result)))  # as its task gets them
                options = dict(message.get("options") or {})
                self.sent.append(Sent(each.id, message["task"], tuple(args), kwargs, options, result))
            self.database.run(callback_rows.sent, [each.id])


class _NoNudger(Nudger):
    """Nudges nobody, because there is no worker."""

    def nudge(self, opened: Sequence[Registered], *, is_late: bool) -> str | None:
        """Send no job."""

    def poke_soon(self, groups: Collection[Woken]) -> int:  # noqa: ARG002
        """Poke nothing."""
        return 0


@contextmanager
def pool(
    *, clock: Clock | None = None, sensors_enabled: Iterable[str] | None = None, **settings: Any
) -> Iterator[TestPool]:
    """Return a pool for a test, as a context manager; meanwhile the functions of `sensorpool` use it.

    It needs no server. Nothing happens in it by itself: ``land``, ``fail``, ``time_out`` and ``poke`` say what happens
    to a condition, ``registered`` and ``sent`` what the code under test has done::

        @pytest.fixture
        def pool():
            with sensorpool.testing.pool() as pool:
                yield pool

    :param clock: the pool's clock; default: one that stands still.
    :param sensors_enabled: class paths, to test the allowlist; default: any class.
    :param settings: others, by name.
    """
    listed = {} if sensors_enabled is None else {"sensors_enabled": ",".join(sensors_enabled)}
    given = {"redis_url": "memory://", "on_settled_tasks": "*", "database_schema": "", **listed, **settings}
    with TemporaryDirectory(prefix="sensorpool-test-") as folder:
        file = Path(folder, _FILE)
        shutil.copyfile(_template(), file)
        loaded = Settings.load(database_url=f"sqlite:///{file}", **given)
        made = TestPool(loaded, clock or Clock(), any_class=sensors_enabled is None)
        before = default.use(made)
        try:
            yield made
        finally:
            default.use(before)
            made.close()


@cache
def _template() -> Path:
    """Return a file with the tables, made once for a process."""
    folder = mkdtemp(prefix="sensorpool-tables-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = Path(folder, _FILE)
    upgrade(f"sqlite:///{file}")
    return file
