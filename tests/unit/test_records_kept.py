"""The records of a range in Redis are bounded in age, size and number, whatever the intervals are."""

import json
import random
from collections.abc import Iterable
from typing import Any

import pytest

from sensorpool.leases import poke_log
from sensorpool.leases.poke_log import KEPT, SHORT, Poked, PokeLog, Record, latest_pokes, pokes_of
from sensorpool.leases.redis_store import RedisStore
from sensorpool.model.not_landed import not_landed
from sensorpool.model.states import Outcome
from sensorpool.model.values import Report, ShardRange
from tests.support.builders import START, due_group

RANGE = ShardRange(0, 1_250)
TICK, MINUTE, HOUR = 5_000, 60_000, 3_600_000


def last_poke(records: Iterable[str], group_id: int) -> Poked | None:
    return latest_pokes(records, {group_id}).get(group_id)


@pytest.fixture
def log(client: Any) -> PokeLog:
    return PokeLog(RedisStore(client))


def record(at: int, *polled: tuple[int, int]) -> Record:
    """A record of groups, each with its interval."""
    made = Record(at)
    reports = [Report(due_group(n, poke_interval=i), 0.0, Outcome.NOT_LANDED, f"why {n}") for n, i in polled]
    made.add(reports, [0] * len(polled))
    return made


def size(log: PokeLog) -> tuple[int, int]:
    kept = log.records(RANGE)
    return len(kept), sum(map(len, kept))


@pytest.mark.parametrize(
    ("interval", "kept"), [(TICK, 720), (MINUTE, 60), (SHORT, 6), (SHORT + 1, 40), (24 * HOUR, 12)]
)
def test_the_last_pokes_of_a_group_are_kept(log: PokeLog, interval: int, kept: int) -> None:
    made = [START + n * interval for n in range(max(40, kept + 10))]
    for at in made:
        log.keep(RANGE, record(at, (5, interval)), at)
    found = [poked.at for poked in pokes_of(log.records(RANGE), 5, 10_000)]
    assert found == made[-len(found) :]
    assert kept <= len(found) <= max(kept + 1, 50)
    assert [poked.at for poked in pokes_of(log.records(RANGE), 5, 3)] == made[-3:]


def test_many_pokes_of_short_intervals_push_out_none_of_long_ones(
    log: PokeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poke_log, "RECORDS_BYTES", 5_000)
    log.keep(RANGE, record(START, (1, 24 * HOUR), (2, MINUTE)), START)
    for at in range(START + TICK, START + 2 * HOUR, TICK):
        log.keep(RANGE, record(at, *((n, MINUTE) for n in range(100, 120))), at)
    kept = log.records(RANGE)
    assert last_poke(kept, 1) == Poked(START, Outcome.NOT_LANDED, "why 1", 0.0)
    assert last_poke(kept, 2) is None
    assert last_poke(kept, 100) == Poked(at, Outcome.NOT_LANDED, "why 100", 0.0)


def test_the_size_is_bounded(log: PokeLog, monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    monkeypatch.setattr(poke_log, "RECORDS_BYTES", 5_000)
    for step in range(300):
        at = START + step * TICK
        polled = [(rng.randrange(10**6), MINUTE) for _ in range(rng.randrange(10, 30))]
        log.keep(RANGE, record(at, *polled), at)
        assert size(log)[1] <= 3 * 5_000, "as many as there is room for, were all as long as the newest"
    newest = last_poke(log.records(RANGE), polled[0][0])
    assert newest is not None
    assert newest.at == at


def test_the_number_is_bounded(log: PokeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poke_log, "RECORDS", 20)
    for step in range(60):
        log.keep(RANGE, record(START + step, (step, HOUR)), START + step)
    assert size(log)[0] == 20
    assert last_poke(log.records(RANGE), 59)


def test_a_range_that_nobody_pokes_any_more_leaves_nothing(log: PokeLog, client: Any) -> None:
    log.keep(RANGE, record(START, (1, MINUTE), (2, HOUR)), START)
    for name, kept in KEPT.items():
        assert 0 < client.pttl(f"sensorpool:{{{RANGE}}}:{name}") <= kept


def test_pokes_that_found_nothing_are_kept_by_their_intervals(log: PokeLog) -> None:
    groups = [due_group(n, poke_interval=i) for n, i in ((1, MINUTE), (2, HOUR), (3, MINUTE))]
    made = Record(START)
    made.add_not_landed(not_landed(groups, [0.0] * 3, 0.5), [0, 1, 2])
    log.keep(RANGE, made, START)
    assert len(made) == 3
    for place in range(3):
        assert last_poke(log.records(RANGE), place + 1) == Poked(START + place, Outcome.NOT_LANDED, None, 0.5)


def test_a_record_without_pokes_is_not_kept(log: PokeLog) -> None:
    log.keep(RANGE, Record(START), START)
    assert log.records(RANGE) == []


def test_a_code_of_a_newer_version_hides_its_own_group_only() -> None:
    text = json.dumps([START, "z" + "b", [0, 0], [5, 6], {}, [], {}])
    assert last_poke([text], 5) is None
    assert last_poke([text], 6) == Poked(START, Outcome.NOT_LANDED)
