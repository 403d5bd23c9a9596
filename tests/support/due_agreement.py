"""The core of a property test: on any database, the load's queries and the pure rules find the same groups due.

Call it with a `Database` that has the tables; existing groups are deleted::

    @given(look=due_agreement.looks())
    def test_it(database, look):
        due_agreement.assert_agreement(database, look)
"""

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from sqlalchemy import Connection, delete, insert

from sensorpool.model.due import SPREAD, is_due
from sensorpool.model.identity import identify
from sensorpool.model.values import DueGroup, ShardRange
from sensorpool.store.database import Database
from sensorpool.store.loading import DueRow, due_groups, groups
from sensorpool.store.schema import poke_group
from tests.support.builders import START

RANGE = ShardRange(100, 200)
_LONGEST = 10 * 365 * 86_400_000


@dataclass(frozen=True)
class Look:
    """One load of a range: its groups, and the times of the query."""

    last: int
    now: int
    commit_overlap: int
    groups: tuple[dict[str, Any], ...]


@st.composite
def looks(draw: st.DrawFn) -> Look:
    """Return a strategy of looks whose groups lie near every boundary of the rule, and some far from it."""
    now = START + draw(st.integers(0, 10**9))
    last = draw(st.just(0) | st.integers(0, 30_000).map(lambda ago: now - ago))
    overlap = draw(st.integers(0, 20_000))
    groups = draw(st.lists(_groups(last, now, overlap), min_size=1, max_size=25))
    return Look(last, now, overlap, tuple(groups))


@st.composite
def _groups(draw: st.DrawFn, last: int, now: int, overlap: int) -> dict[str, Any]:
    near = st.integers(-2, 2)
    interval = draw(st.integers(1, 120_000) | st.integers(1, _LONGEST))
    boundary = draw(st.sampled_from((last, now))) + draw(near)
    # a phase with which a period begins at the boundary, or any phase
    phase = draw(st.just(-boundary % interval % SPREAD) | st.integers(0, SPREAD - 1))
    around = st.sampled_from((last, now)).flatmap(lambda time: near.map(lambda shift: max(0, time + shift)))
    registered_at = draw(near.map(lambda shift: max(0, last - overlap + shift)) | around | st.just(0))
    deadline = draw(st.none() | around | st.integers(0, 2 * START))
    edges = (RANGE.shard_min - 1, RANGE.shard_min, RANGE.shard_max - 1, RANGE.shard_max)
    return {
        "shardcode": draw(st.sampled_from(edges) | st.integers(RANGE.shard_min, RANGE.shard_max - 1)),
        "poke_interval": interval,
        "phase": phase,
        "registered_at": registered_at,
        "next_deadline": deadline,
    }


def assert_agreement(database: Database, look: Look) -> None:
    """Insert the groups, run the load's query, and compare its result with the rule."""
    rows = [_row(number, columns) for number, columns in enumerate(look.groups, 1)]

    def ask(connection: Connection) -> tuple[list[DueRow], list[tuple[DueGroup, str, str, str | None]]]:
        connection.execute(delete(poke_group))
        connection.execute(insert(poke_group), rows)
        asked = {"last": look.last, "now": look.now, "commit_overlap": look.commit_overlap}
        due = list(due_groups(connection, RANGE, **asked))
        return due, groups(connection, [row[0] for row in due])

    found, whole = database.run(ask)
    expected = [row for row in rows if _is_due(row, look)]
    assert sorted(hashcode for _, _, hashcode in found) == [row["hashcode"] for row in expected]
    assert all(version == rows[hashcode - 1]["version"] for _, version, hashcode in found)
    assert {group.id for group, *_ in whole} == {row[0] for row in found}
    for group, op_classpath, poke_context, _ in whole:
        row = rows[group.hashcode - 1]
        assert (group.version, group.members) == (row["version"], row["members"])
        assert (group.poke_interval, group.phase) == (row["poke_interval"], row["phase"])
        assert (group.registered_at, group.next_deadline) == (row["registered_at"], row["next_deadline"])
        assert (op_classpath, poke_context) == (row["op_classpath"], row["poke_context"])


def _is_due(row: dict[str, Any], look: Look) -> bool:
    return RANGE.shard_min <= row["shardcode"] < RANGE.shard_max and is_due(
        poke_interval=row["poke_interval"],
        phase=row["phase"],
        registered_at=row["registered_at"],
        next_deadline=row["next_deadline"],
        last=look.last,
        now=look.now,
        commit_overlap=look.commit_overlap,
    )


def _row(number: int, columns: dict[str, Any]) -> dict[str, Any]:
    identity = identify("pkg.mod.Class", {"number": number})
    return {
        "digest": identity.digest,
        "hashcode": number,  # identifies the rows, because the database chooses the ids
        "version": number + 10,
        "members": number + 20,
        "op_classpath": identity.op_classpath,
        "poke_context": identity.poke_context,
    } | columns
