"""Celery's limits for a child's jobs and memory: they hold, and our code checks them."""

from types import SimpleNamespace
from typing import Any

import billiard.pool
import pytest

from sensorpool.errors import SettingsError
from sensorpool.service import child_limits
from sensorpool.service.child_limits import Limits


@pytest.mark.parametrize(
    ("limits", "jobs", "memory", "said"),
    [
        (Limits(), 10**9, 2**45, None),
        (Limits(jobs=3), 2, 2**45, None),
        (Limits(jobs=3), 3, 1, "it has done 3 jobs"),
        (Limits(jobs=3), 1_000, 1, "it has done 1,000 jobs"),
        (Limits(memory=2_000), 10**9, 2_000, None),
        (Limits(jobs=3, memory=2_000), 3, 2_001, "it has taken 2,001 KB of memory, of 2,000"),
    ],
)
def test_what_a_child_may_come_to(limits: Limits, jobs: int, memory: int, said: str | None) -> None:
    assert limits.reached(jobs, memory) == said


@pytest.mark.parametrize(
    ("jobs", "memory", "limits"),
    [(None, None, Limits()), (0, 0, Limits()), (-1, -1, Limits()), (10, 60_000, Limits(10, 60_000))],
)
def test_they_are_taken_from_celery(jobs: Any, memory: Any, limits: Limits) -> None:
    worker = SimpleNamespace(max_tasks_per_child=jobs, max_memory_per_child=memory)
    assert child_limits.take_over(worker) == limits
    assert worker.max_tasks_per_child is None
    assert worker.max_memory_per_child > 2**38, "billiard asks after each job, and never finds out by itself"


def test_one_that_is_no_number_is_named() -> None:
    worker = SimpleNamespace(max_tasks_per_child="many", max_memory_per_child=None)
    with pytest.raises(SettingsError, match="worker_max_tasks_per_child is no number: 'many'"):
        child_limits.take_over(worker)


def test_billiard_asks_after_each_job(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, asked, warned = [100, 0, 300, 2**41], list[str | None](), list[str]()
    monkeypatch.setattr(billiard.pool, "mem_rss", lambda: taken[len(asked)])
    monkeypatch.setattr(billiard.pool, "MAXMEM_USED_FMT", billiard.pool.MAXMEM_USED_FMT)
    monkeypatch.setattr(billiard.pool, "warning", lambda text, *_: warned.append(text))

    def is_worn(limit: str | None) -> bool:
        asked.append(limit)
        return len(asked) == 3

    worker = SimpleNamespace(max_tasks_per_child=4, max_memory_per_child=200)
    limits = child_limits.take_over(worker)
    child_limits.look_after(limits, is_worn)
    found = [billiard.pool.mem_rss() for _ in taken]
    assert [each > worker.max_memory_per_child for each in found] == [False, False, True, False]
    assert all(each > 0 for each in found), "or billiard says that it does not know"
    assert [limit is not None for limit in asked] == [False, False, True, True]
    billiard.pool.warning(billiard.pool.MAXMEM_USED_FMT.format(found[2], 1))
    billiard.pool.warning("something else")
    assert warned == ["something else"]


def test_a_limit_that_each_child_passes_at_once_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(billiard.pool, "mem_rss", lambda: 90_000)
    said = Limits(memory=60_000).too_low()
    assert said is not None
    assert "max_memory_per_child is 60,000 KB, and a child takes about 90,000 from its start" in said
    assert Limits(memory=500_000).too_low() is Limits().too_low() is None
