"""The records of a range in Redis are bounded in size and number, whatever the intervals are."""

import json
import random
from collections.abc import Iterable
from typing import Any

import pytest

from sensorpool.leases import poke_log
from sensorpool.leases.lease import Leases
from sensorpool.leases.poke_log import HISTORY, Poked, Record, latest_pokes, pokes_of
from sensorpool.leases.redis_store import RedisStore
from sensorpool.model.states import Outcome
from sensorpool.model.values import Report, ShardRange, Trace
from tests.support.builders import START, due_group

RANGE = ShardRange(0, 1_250)
TICK, MINUTE, HOUR = 5_000, 60_000, 3_600_000


def last_poke(records: Iterable[str], group_id: int) -> Poked | None:
    return latest_pokes(records, {group_id}).get(group_id)


@pytest.fixture
def leases(client: Any) -> Leases:
    return Leases(RedisStore(client), lease_ttl=60)


def record(at: int, *polled: tuple[int, int], outcome: Outcome = Outcome.NOT_LANDED) -> Record:
    """A record of groups, each with its interval."""
    made = Record(at)
    made.add([Report(due_group(n, poke_interval=i), 0.0, outcome, f"why {n}") for n, i in polled], [0] * len(polled))
    return made


def size(leases: Leases) -> tuple[int, int]:
    kept = leases.poke_log.records(RANGE)
    return len(kept), sum(map(len, kept))


def test_one_group_of_a_long_interval_does_not_have_the_others_kept_as_long(leases: Leases) -> None:
    """Two hundred groups every minute, one every three hours: of an hour of ticks two minutes are kept, and the one."""
    for at in range(START, START + HOUR, TICK):
        due = [(n, MINUTE) for n in range(200) if (at - START) // TICK % 12 == n % 12]
        leases.poke_log.keep(RANGE, record(at, *due, *([(999, 3 * HOUR)] if at == START else [])).texts(), at)
    number, total = size(leases)
    assert number <= 2 * MINUTE // TICK + 2
    assert total < 60_000
    assert last_poke(leases.poke_log.records(RANGE), 999) == Poked(START, Outcome.NOT_LANDED, "why 999", 0.0)
    for group_id in range(200):
        poked = last_poke(leases.poke_log.records(RANGE), group_id)
        assert poked is not None
        assert poked.at > START + HOUR - MINUTE - TICK


def test_a_record_of_mixed_intervals_is_read_as_any() -> None:
    intervals = [TICK, MINUTE, MINUTE + 1, 5 * MINUTE, HOUR, 24 * HOUR, 24 * HOUR * 30]
    made = Record(START)
    for n, i in enumerate(intervals):
        group, trace = due_group(n, poke_interval=i), Trace("aaaa", f"trace {n}")
        made.add([Report(group, 0.0, Outcome.NOT_LANDED, f"why {n}", None, 1.5, trace)], [0])
    made.add([Report(due_group(70, poke_interval=HOUR), 0.0, Outcome.LANDED, None, None, 0.25)], [7])
    texts = made.texts()
    assert len(texts) == 6
    for group_id in range(len(intervals)):
        found = last_poke([text for text, _ in texts], group_id)
        assert found == Poked(START, Outcome.NOT_LANDED, f"why {group_id}", 1.5, f"trace {group_id}")
    assert last_poke([text for text, _ in texts], 70) == Poked(START + 7, Outcome.LANDED, None, 0.25)
    spans = [expires - START for _, expires in texts]
    assert spans == [2 * MINUTE, 2 * (MINUTE + 1), 10 * MINUTE, 2 * HOUR, 48 * HOUR, 48 * HOUR]


def test_the_size_is_bounded(leases: Leases, monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    monkeypatch.setattr(poke_log, "RECORDS_BYTES", 5_000)
    for step in range(300):
        at = START + step * TICK
        polled = [(rng.randrange(10**6), 6 * HOUR) for _ in range(rng.randrange(1, 30))]
        leases.poke_log.keep(RANGE, record(at, *polled).texts(), at)
        assert size(leases)[1] <= 5_000
    assert size(leases)[1] > 3_000
    newest = last_poke(leases.poke_log.records(RANGE), polled[0][0])
    assert newest is not None
    assert newest.at == at
    leases.poke_log.keep(RANGE, [("x" * 5_001, at + HOUR)], at)
    assert "x" * 5_001 not in leases.poke_log.records(RANGE), "larger than all may be"


def test_the_number_is_bounded_and_short_intervals_are_not_what_goes(
    leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poke_log, "RECORDS", 50)
    for step in range(200):
        at = START + step * TICK
        leases.poke_log.keep(RANGE, record(at, (step + 1_000, 24 * HOUR), (step % 12, MINUTE)).texts(), at)
        assert size(leases)[0] <= 50
    for group_id in range(12):
        assert last_poke(leases.poke_log.records(RANGE), group_id), "every minute, so in the last twelve ticks"
    assert last_poke(leases.poke_log.records(RANGE), 1_199)
    assert last_poke(leases.poke_log.records(RANGE), 1_000) is None


@pytest.mark.parametrize("written", [None, "", "x", "0 0 0", "-1 5 5", "9" * 400 + " 1 1", "7 " + "9" * 14 + " 1"])
def test_a_size_that_was_lost_or_written_over_is_counted_afresh(
    leases: Leases, client: Any, monkeypatch: pytest.MonkeyPatch, written: str | None
) -> None:
    monkeypatch.setattr(poke_log, "RECORDS", 20)
    name = leases.store.key(RANGE, "pokes_size")
    for step in range(300):
        leases.poke_log.keep(RANGE, record(START + step, (step, HOUR)).texts(), START + step)
        if step == 50 and written is None:
            client.delete(name)
            client.rpush(name, "foreign")
        elif step == 50:
            client.set(name, written)
    number, total = size(leases)
    assert number == 20
    assert client.get(name).split()[:2] == [str(number), str(total)]
    assert 0 < client.pttl(leases.store.key(RANGE, "pokes")) <= 2 * HOUR + MINUTE


def test_what_another_program_left_is_dropped_and_counted(leases: Leases, client: Any) -> None:
    name = leases.store.key(RANGE, "pokes")
    client.zadd(name, {json.dumps([START, "b", [0], [7]]): START + HOUR, "gone": START - 1})
    leases.poke_log.keep(RANGE, record(START, (8, MINUTE)).texts(), START)
    kept = leases.poke_log.records(RANGE)
    assert len(kept) == 2
    assert last_poke(kept, 7) is None
    assert client.get(leases.store.key(RANGE, "pokes_size")).split()[0] == "2"
    client.zadd(name, {"a foreign record": float("inf")})
    leases.poke_log.keep(RANGE, record(START + 1, (8, MINUTE)).texts(), START + 1)
    assert client.pttl(name) > 0


def test_a_code_of_a_newer_version_hides_its_own_group_only() -> None:
    text = json.dumps([START, "z" + "b", [0, 0], [5, 6], {}, [], {}])
    assert last_poke([text], 5) is None
    assert last_poke([text], 6) == Poked(START, Outcome.NOT_LANDED)


# history


def poke_every(leases: Leases, interval: int, times: int, group_id: int = 5) -> list[int]:
    """Keep a record of each poke of a group; return the times."""
    times_of = [START + n * interval for n in range(times)]
    for at in times_of:
        leases.poke_log.keep(RANGE, record(at, (group_id, interval)).texts(), at)
    return times_of


@pytest.mark.parametrize("interval", [TICK, MINUTE, 5 * MINUTE, HOUR, 24 * HOUR])
def test_the_last_pokes_of_a_group_are_history(leases: Leases, interval: int) -> None:
    made = poke_every(leases, interval, 40)
    found = [poked.at for poked in pokes_of(leases.poke_log.history(RANGE), 5, 100)]
    assert found == made[-len(found) :]
    assert len(found) >= 10
    assert len(found) <= 2 * (HISTORY + 1) + 2 if interval >= MINUTE else True
    assert [poked.at for poked in pokes_of(leases.poke_log.history(RANGE), 5, 3)] == made[-3:]


def test_history_is_bounded_and_the_last_pokes_are_not_what_goes(
    leases: Leases, monkeypatch: pytest.MonkeyPatch, client: Any
) -> None:
    monkeypatch.setattr(poke_log, "HISTORY_BYTES", 2_000)
    made = poke_every(leases, MINUTE, 100)
    kept = leases.poke_log.history(RANGE)
    recent = leases.poke_log.records(RANGE)
    assert sum(map(len, kept)) - sum(map(len, recent)) <= 2_000
    assert pokes_of(kept, 5, 1)[0].at == made[-1]
    size_name = leases.store.key(RANGE, "history_size")
    assert client.get(size_name).split()[:2] == [
        str(len(kept) - len(recent)),
        str(sum(map(len, kept)) - sum(map(len, recent))),
    ]
    assert client.pttl(leases.store.key(RANGE, "history")) > 0


@pytest.mark.parametrize("odd", ["foreign", "[", '[1e999,"b",[0],[5]]', '["x"]', "[-5,"])
def test_odd_records_do_not_stay_for_ever(leases: Leases, client: Any, odd: str) -> None:
    client.zadd(leases.store.key(RANGE, "pokes"), {odd: START - 1})
    client.set(leases.store.key(RANGE, "history"), "of another type")
    poke_every(leases, MINUTE, 3)
    assert len(pokes_of(leases.poke_log.history(RANGE), 5, 9)) == 3
    poke_every(leases, HOUR, 300)
    assert odd not in leases.poke_log.history(RANGE)
