"""The death of a child counts for all groups that it poked; groups with many deaths are watched and reported."""

import signal
from typing import Any

import pytest

from sensorpool.admin.problems import died_again_and_again
from sensorpool.leases import late_crashes
from sensorpool.leases.child_deaths import ChildDeaths
from sensorpool.leases.late_crashes import AGAIN, LateCrashes
from sensorpool.leases.lease import Acquired, Leases
from sensorpool.leases.poke_log import Record, process_name
from sensorpool.leases.redis_store import RedisStore
from sensorpool.model.states import Outcome
from sensorpool.model.suspicion import Suspicion
from sensorpool.model.values import Report, ShardRange
from tests.support.builders import START, due_group

RANGE, OTHER = ShardRange(0, 1_250), ShardRange(1_250, 2_500)
SEGFAULT = -11


@pytest.fixture
def leases(client: Any) -> Leases:
    return Leases(RedisStore(client), lease_ttl=60)


def poke(leases: Leases, shard_range: ShardRange, process: str, *group_ids: int, at: int = START) -> None:
    """Keep the record of a job that poked these groups."""
    record = Record(at, process)
    record.add([Report(due_group(each), 0.0, Outcome.NOT_LANDED) for each in group_ids], [0] * len(group_ids))
    leases.poke_log.keep(shard_range, record.texts(), START)


def test_those_are_watched_whose_process_died_again_and_again(leases: Leases) -> None:
    """Although the process died with no group in hand; groups that another process poked are not watched."""
    found = LateCrashes(leases)
    for pid in range(AGAIN):
        poke(leases, RANGE, process_name("w", pid), 1, 10 + pid)
        poke(leases, OTHER, process_name("w", pid), 2)
        poke(leases, OTHER, process_name("w", 99), 3)
        assert leases.suspects.of(RANGE) == []
        noted = found.blame([RANGE, OTHER], "w", pid, SEGFAULT)
    assert noted == {RANGE: [1], OTHER: [2]}
    assert leases.suspects.why(RANGE, 1) == Suspicion.LATE_CRASHES
    assert (leases.suspects.of(RANGE), leases.suspects.of(OTHER)) == ([1], [2])
    found.forget(RANGE, [1])
    assert found.count(RANGE, [1, 10]) == {1: 1, 10: 2}


def test_those_that_it_had_in_hand_count_too(leases: Leases) -> None:
    held = leases.acquire(RANGE, "w/job")
    assert isinstance(held, Acquired)
    held.lease.put_in_flight([7])
    found = LateCrashes(leases)
    for _ in range(AGAIN):
        noted = found.blame([RANGE, OTHER], "w", 1, SEGFAULT, ["w/job", "w/another"])
    assert noted == {RANGE: [7]}


def test_those_of_long_before_its_last_poke_do_not(leases: Leases) -> None:
    poke(leases, RANGE, process_name("w", 1), 1, at=START - 20_000)
    poke(leases, RANGE, process_name("w", 1), 2)
    found = LateCrashes(leases)
    for _ in range(AGAIN):
        noted = found.blame([RANGE], "w", 1, SEGFAULT)
    assert noted == {RANGE: [2]}


def test_a_kill_from_outside_counts_for_no_group_and_is_told(leases: Leases) -> None:
    poke(leases, RANGE, process_name("w", 1), 1)
    found, deaths = LateCrashes(leases), ChildDeaths(leases)
    for killed in (signal.SIGKILL, signal.SIGTERM, signal.SIGQUIT):
        for _ in range(AGAIN + 1):
            assert found.blame([RANGE], "w", 1, -killed) == {}
    assert found.count(RANGE, [1]) == {1: 1}
    deaths.add("w", 1, -signal.SIGKILL)
    assert {each.cause for each in deaths.lately()} == {"SIGKILL"}
    assert died_again_and_again(deaths.lately()) == []
    for pid in range(2, 11):
        deaths.add("w", pid, -signal.SIGTERM)
    [said] = died_again_and_again(deaths.lately())
    assert "are killed again and again: 10 in 10 minutes, the last one of w (SIGTERM)" in said


def test_deaths_again_and_again_are_told_with_their_cause(leases: Leases) -> None:
    deaths = ChildDeaths(leases)
    deaths.add("w", 1, SEGFAULT)
    deaths.add("w", 2, SEGFAULT)
    assert died_again_and_again(deaths.lately()) == []
    deaths.add("w", 3, 7)
    [said] = died_again_and_again(deaths.lately())
    assert "3 in 10 minutes, the last one of w (exit code 7)" in said


def test_the_more_deaths_the_fewer_share_a_child(leases: Leases) -> None:
    found = LateCrashes(leases)
    shares = []
    for _ in range(AGAIN + 3):
        found.count(RANGE, [1])
        shares.append(found.shares(RANGE, [1, 2])[1])
    assert shares == [16, 16, 16, 4, 1, 1]
    assert found.shares(RANGE, [2]) == {2: 16}


def test_how_many_are_counted_and_watched_is_bounded(leases: Leases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_crashes, "_COUNTED", 100)
    found = LateCrashes(leases)
    assert len(found.count(RANGE, range(1, 200))) == 100
    assert len(found.count(RANGE, range(1_000, 1_200))) == 100
    assert leases.store.client.hlen(leases.store.key(RANGE, "deaths")) == 100
    for _ in range(AGAIN):
        poke(leases, RANGE, process_name("w", 1), *range(1, 100))
        noted = found.blame([RANGE], "w", 1, SEGFAULT)
    assert len(noted[RANGE]) == late_crashes._WATCHED


def test_keys_that_somebody_wrote_over_count_as_lost(leases: Leases, client: Any) -> None:
    poke(leases, RANGE, process_name("w", 1), 1)
    client.set(leases.store.key(RANGE, "deaths"), "x")
    client.set(leases.store.pool_key("deaths"), "x")
    client.zadd(leases.store.key(RANGE, "pokes"), {"[1, w 1": START, '[1, "a", [0], ["x"], {}, "w 1"]': START})
    found, deaths = LateCrashes(leases), ChildDeaths(leases)
    assert deaths.lately() == []
    assert found.count(RANGE, [1]) == {1: 1}
    client.hset(leases.store.key(RANGE, "deaths"), mapping={"1": "x", "y": "1"})
    assert found.blame([RANGE], "w", 1, SEGFAULT) == {}
    assert found.blame([RANGE], "w", 1, SEGFAULT) == {}
    deaths.add("w", 1, SEGFAULT)
    assert deaths.lately() == []
    deaths.add("w", 1, SEGFAULT)
    assert len(deaths.lately()) == 1
    assert found.shares(RANGE, [1]) == {1: 16}
