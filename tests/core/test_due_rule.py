"""The due rule, and that the load's SQL says the same."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import insert

from sensorpool.due import is_due, next_slot_at, step_at
from sensorpool.migrate import upgrade
from sensorpool.model import ShardRange
from sensorpool.schema import poke_group
from sensorpool.store.database import Database
from sensorpool.store.loading import due_groups

NOW = 1_700_000_000_000
PLAIN: dict[str, Any] = {"registered_at": 0, "next_deadline": None, "commit_overlap": 0}
intervals = st.sampled_from([1_000, 2_000, 5_000, 7_000, 60_000, 180_000])
phases = st.integers(0, 2**31 - 1)


@given(intervals, phases, st.lists(st.integers(1, 9_000), min_size=2, max_size=40))
def test_a_group_is_due_once_a_slot_whatever_the_ticks_do(interval: int, phase: int, gaps: list[int]) -> None:
    times = [NOW]
    for gap in gaps:
        times.append(times[-1] + gap)
    due = [
        is_due(poke_interval=interval, phase=phase, last=earlier, now=later, **PLAIN)
        for earlier, later in pairwise(times)
    ]
    slots = [(at + phase) // interval for at in times]
    assert due == [later > earlier for earlier, later in pairwise(slots)]


@given(intervals, phases, st.integers(0, 10**6))
def test_the_second_of_the_boundary_belongs_to_the_new_slot(interval: int, phase: int, after: int) -> None:
    boundary = next_slot_at(NOW + after, interval, phase)

    def due(last: int, now: int) -> bool:
        return is_due(
            poke_interval=interval,
            phase=phase,
            registered_at=0,
            next_deadline=None,
            last=last,
            now=now,
            commit_overlap=0,
        )

    assert due(boundary - 1, boundary)
    assert not due(boundary, boundary + interval - 1)
    assert due(0, boundary)  # the last load is not known: all are due


@given(st.integers(1, 100_000), st.integers(0, 10**8), st.none() | st.integers(1, 10**7))
def test_steps_double_up_to_their_cap(base: int, waited: int, most: int | None) -> None:
    step, grows_at = step_at(waited, base, most)
    assert step >= base
    assert most is None or step <= max(most, base)
    assert grows_at is None or grows_at > waited
    later, _ = step_at(waited + step, base, most)
    assert later >= step


@pytest.fixture(params=["sqlite", "postgres", pytest.param("mariadb", marks=pytest.mark.mariadb)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'pool.db'}"
        upgrade(url)
    else:
        url = request.getfixturevalue(f"{request.param}_database")
    made = Database(url)
    yield made
    made.dispose()


def test_the_statement_and_the_rule_agree(database: Database) -> None:
    groups = st.lists(
        st.tuples(intervals, phases, st.integers(-20_000, 1_000), st.none() | st.integers(-20_000, 20_000)),
        min_size=1,
        max_size=30,
    )

    @settings(max_examples=40, deadline=None)
    @given(groups, st.sampled_from([0, 1, 999, 1_000, 5_000, 60_000, NOW]), st.sampled_from([0, 1_000, 10_000]))
    def agree(rows: list[tuple[int, int, int, int | None]], ago: int, overlap: int) -> None:
        last = NOW - ago
        wanted = {
            number
            for number, (interval, phase, registered, deadline) in enumerate(rows, start=1)
            if is_due(
                poke_interval=interval,
                phase=phase,
                registered_at=NOW + registered,
                next_deadline=None if deadline is None else NOW + deadline,
                last=last,
                now=NOW,
                commit_overlap=overlap,
            )
        }
        with database.engine.begin() as connection:
            connection.execute(poke_group.delete())
            connection.execute(insert(poke_group), [_row(number, *row) for number, row in enumerate(rows, start=1)])
            found = due_groups(connection, ShardRange(0, 10), last=last, now=NOW, commit_overlap=overlap)
        assert {group.id for group in found} == wanted

    agree()


def _row(number: int, interval: int, phase: int, registered: int, deadline: int | None) -> dict[str, object]:
    return {
        "id": number,
        "digest": number.to_bytes(32, "big"),
        "hashcode": number,
        "shardcode": number % 10,
        "version": 1,
        "members": 1,
        "op_classpath": "a.B",
        "poke_context": "{}",
        "poke_interval": interval,
        "phase": phase,
        "registered_at": NOW + registered,
        "next_deadline": None if deadline is None else NOW + deadline,
        "crashes": 0,
    }
