"""When the next group of a range is due: asked where the answer may leave the range quiet, and costs little."""

from typing import Any

import pytest

from sensorpool.config.settings import Settings
from sensorpool.model.values import shard_ranges
from sensorpool.store import loading
from sensorpool.worker import load
from sensorpool.worker.load import Loaded

NONE, FEW, MANY = shard_ranges(3, 10_000)
LATER = 1_030_000


@pytest.mark.parametrize(("is_large", "asked"), [(False, [NONE, FEW]), (True, [NONE])])
def test_of_a_large_table_it_is_asked_where_nothing_is_due(
    monkeypatch: pytest.MonkeyPatch, is_large: bool, asked: list[Any]
) -> None:
    """The question reads all groups of a range: among a million with long intervals a few are due at each tick."""
    questions: list[Any] = []

    def next_due(connection: Any, ranges: Any, now: int) -> list[int]:
        questions.extend(ranges)
        return [LATER] * len(ranges)

    monkeypatch.setattr(loading, "is_large", lambda connection: is_large)
    monkeypatch.setattr(loading, "next_due", next_due)
    units: dict[Any, list[Any]] = {NONE: [], FEW: [object()] * 3, MANY: [object()] * 100}
    loads = {each: Loaded(1_000_000, 995_000, some, []) for each, some in units.items()}
    connection: Any = None
    load._ask_when_next(connection, loads, 1_000_000, Settings.load(redis_url="redis://127.0.0.1:1/0"))
    assert questions == asked
    assert {each for each, loaded in loads.items() if loaded.next_due == LATER} == set(asked)
