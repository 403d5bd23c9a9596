"""A quiet pool: no job is sent while nothing is due, and nothing that comes waits for longer than it should.

Each test first makes sure that beat leaves messages out: the range is looked at, though it was not loaded.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.service import Service, kill_tree
from harness.until import until
from sensorpool.leases.range_state import RangeState
from sensorpool.model.states import State
from sensorpool.model.values import ShardRange

SENSOR = "sensorpool.testing.ScriptedSensor"
TICK = 1_000  # milliseconds


class Quiet:
    """A service in which nothing is due."""

    def __init__(self, service: Service, folder: Path) -> None:
        self.service, self.pool, self.folder = service, service.pool, folder

    def states(self) -> dict[ShardRange, RangeState]:
        """What each range's last holder left."""
        return {each: state for each, (_, state, _) in zip(self.pool.ranges, self._look(), strict=True)}

    def _look(self) -> list[tuple[str | None, RangeState, int]]:
        return self.pool.leases.look(self.pool.ranges)

    def is_left_out(self, shard_range: ShardRange, ticks: int = 3) -> bool:
        """Whether beat has left out this many messages of a range since its last load."""
        state = self.states()[shard_range]
        return state.quiet_until - state.last >= ticks * TICK

    def wait(self) -> None:
        """Wait until beat leaves out the messages of all ranges, with half a minute to go."""
        ranges = self.pool.ranges
        until("beat leaves all ranges out", lambda: all(map(self.is_left_out, ranges)), 90)
        until("fresh marks", lambda: min(map(self.left, ranges)) > 30, 120)

    def left(self, shard_range: ShardRange) -> float:
        """The seconds for which a range is quiet still."""
        store = self.pool.leases.store
        return float(store.client.pttl(store.key(shard_range, "quiet"))) / 1000

    def end_of_mark(self, shard_range: ShardRange) -> None:
        """Let the time of a range's mark pass."""
        store = self.pool.leases.store
        store.client.delete(store.key(shard_range, "quiet"))

    def register(self, name: str, **more: Any) -> tuple[int, ShardRange]:
        """Register a sensor that lands; return its instance and its range."""
        (self.folder / f"{name}.landed").touch()
        made = self.pool.register(SENSOR, {"folder": str(self.folder), "name": name}, **more)
        return made.id, self.pool.range_of(made.shardcode)

    def has_landed(self, instance_id: int) -> Callable[[], bool]:
        return lambda: self.pool.wait([instance_id], timeout=0)[instance_id] is State.SUCCESS


@pytest.fixture
def quiet(make_service: Callable[..., Service], tmp_path: Path) -> Quiet:
    service = make_service(shards=2)
    service.start()
    made = Quiet(service, tmp_path)
    made.wait()
    return made


def test_a_quiet_pool_is_healthy(quiet: Quiet) -> None:
    loaded = {each: state.last for each, state in quiet.states().items()}
    for _ in range(5):
        done = quiet.service.cli("health")
        assert done.returncode == 0, done.stdout + done.stderr
    assert {each: state.last for each, state in quiet.states().items()} == loaded, "no range was loaded meanwhile"


def test_a_new_condition_is_poked_at_once(quiet: Quiet) -> None:
    before = quiet.states()
    instance, shard_range = quiet.register("new")
    until("it lands", quiet.has_landed(instance), 25)
    [other] = [each for each in quiet.pool.ranges if each != shard_range]
    assert quiet.states()[other].last == before[other].last, "beat has sent no message since"


def test_a_lost_nudge_costs_no_more_than_the_time_of_the_mark(quiet: Quiet, monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[object] = []
    monkeypatch.setattr(quiet.pool, "_nudge", lambda opened, **_: lost.append(opened))
    instance, shard_range = quiet.register("unheard")
    assert lost, "the fault struck"
    loaded = quiet.states()[shard_range].last
    looked_at = quiet.states()[shard_range].looked_at
    until("three ticks", lambda: quiet.states()[shard_range].looked_at >= looked_at + 3 * TICK)
    assert quiet.states()[shard_range].last == loaded
    assert not quiet.has_landed(instance)()
    quiet.end_of_mark(shard_range)
    until("it lands", quiet.has_landed(instance), 25)


def test_a_waiter_with_a_shorter_interval_wakes_the_range(quiet: Quiet) -> None:
    name = "hurried"
    context = {"folder": str(quiet.folder), "name": name}
    slow = quiet.pool.register(SENSOR, context, poke_interval=3_600.0)
    shard_range = quiet.pool.range_of(slow.shardcode)
    pokes = quiet.folder / "pokes.jsonl"
    until("its first poke", pokes.exists, 25)
    until("beat leaves its range out", lambda: quiet.is_left_out(shard_range), 120)
    instance, _ = quiet.register(name, poke_interval=1.0)
    assert quiet.left(shard_range) < 0, "the mark is gone"
    until("it lands", quiet.has_landed(instance), 25)


def test_quiet_hides_no_death_of_the_workers(quiet: Quiet) -> None:
    for process in quiet.service.processes[:1]:
        kill_tree(process)
    until("health is red", lambda: quiet.service.cli("health").returncode != 0, 90)
