"""When the next group of a range is due: asked where the answer may leave the range quiet."""

from types import SimpleNamespace
from typing import Any

import pytest

from sensorpool.config.settings import Settings
from sensorpool.model.values import shard_ranges
from sensorpool.store import loading
from sensorpool.worker import load
from sensorpool.worker.load import Loaded

NONE, FEW, MANY, SHARING, ONE_APART, NEW = shard_ranges(6, 10_000)
LATER = 1_030_000


def units(*groups: tuple[int, int]) -> list[Any]:
    """Units of groups with these intervals and phases."""
    return [SimpleNamespace(group=SimpleNamespace(poke_interval=every, phase=phase)) for every, phase in groups]


def test_it_is_asked_where_few_groups_are_due_or_where_they_share_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    questions: list[Any] = []

    def next_due(connection: Any, ranges: Any, now: int) -> list[int]:
        questions.extend(ranges)
        return [LATER] * len(ranges)

    monkeypatch.setattr(loading, "next_due", next_due)
    sharing = [(60_000, 20_000), (60_000, 0), (180_000, 210_000), (3_600_000, 120_000)] * 25
    found: dict[Any, list[Any]] = {
        NONE: [],
        FEW: units(*[(60_000, 17)] * 16),
        MANY: units(*[(60_000, 17)] * 17),
        SHARING: units(*sharing),
        ONE_APART: units(*sharing, (65_000, 5_000)),
        NEW: [],
    }
    loads = {each: Loaded(1_000_000, 995_000, some, []) for each, some in found.items()}
    loads[NEW].recent = list(range(101))
    connection: Any = None
    load._ask_when_next(connection, loads, 1_000_000, Settings.load(redis_url="redis://127.0.0.1:1/0"))
    assert questions == [NONE, FEW, SHARING]
    assert {each for each, loaded in loads.items() if loaded.next_due == LATER} == {NONE, FEW, SHARING}
