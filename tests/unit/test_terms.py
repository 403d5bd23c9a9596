"""The terms on which all processes of a pool must agree: compared, read, and reported in one line."""

import pytest

from sensorpool.model.terms import LiveWorker, Terms, covering, disagreements, read_worker, untaken
from sensorpool.model.values import ShardRange, shard_ranges

OURS = Terms("a" * 32, 8, 10_000)


def live(name: str, terms: Terms) -> LiveWorker:
    return LiveWorker(f"{name}/1", terms, 0, 5.0, "0.1.0")


def test_those_who_agree_have_nothing_to_say() -> None:
    assert disagreements(OURS, [live("celery@a", OURS), live("celery@b", OURS)]) == []


def test_another_pool_is_named_with_its_worker_and_the_mend() -> None:
    [line] = disagreements(OURS, [live("celery@a", Terms("b" * 32, 4, 10_000))])
    assert "b" * 32 in line
    assert "a" * 32 in line
    assert "celery@a" in line
    assert "NAMESPACE" in line


def test_other_ranges_are_named_with_both_values_and_the_hosts() -> None:
    others = [live(f"celery@{n}", Terms(OURS.pool_id, 4, 20_000)) for n in range(7)]
    shards, limit = disagreements(OURS, others)
    assert shards.startswith("SHARDS is 8 here and 4 at celery@0, celery@1, celery@2, celery@3, celery@4 and 2 more")
    assert limit.startswith("SHARD_CODE_UPPER_LIMIT is 10000 here and 20000 at")


def test_an_entry_is_read_as_it_was_written() -> None:
    entry = f'1234 {OURS} {{"tick": 2.5, "version": "0.1.0"}}'
    assert read_worker("celery@a/1", entry) == LiveWorker("celery@a/1", OURS, 1234, 2.5, "0.1.0")


def test_queues_are_read_and_a_worker_that_starts_has_none() -> None:
    entry = f'1234 {OURS} {{"tick": 2.5, "version": "0.1.0", "queues": ["celery", "mine"]}}'
    read = read_worker("celery@a/1", entry)
    assert read is not None
    assert read.queues == ("celery", "mine")
    before = live("celery@b", OURS)
    assert untaken("sensorpool", []) == []
    assert untaken("sensorpool", [read, before]) == [], "it does not say, so it may"
    assert untaken("mine", [read]) == []
    assert untaken("sensorpool", [read]) == [
        "no worker takes jobs from the queue sensorpool: celery@a from celery, mine: "
        "leave -Q and task_default_queue out, or name sensorpool among the queues"
    ]


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "x",
        "1 a:b:c {}",
        "1 a:8:10000 []",
        "1 a:8:10000 {}",
        '1 a:0:10000 {"tick": 1, "version": ""}',
        '1 a:9:8 {"tick": 1, "version": ""}',
        '1 a:999999999:999999999 {"tick": 1, "version": ""}',
        "1 a:8:10000 " + "[" * 100_000,
    ],
)
def test_what_is_no_entry_is_nobody(entry: str) -> None:
    assert read_worker("x", entry) is None


@pytest.mark.parametrize(
    ("foreign", "cover"),
    [
        (ShardRange(0, 2500), [(0, 1250), (1250, 2500)]),
        (ShardRange(100, 101), [(0, 1250)]),
        (ShardRange(1249, 1251), [(0, 1250), (1250, 2500)]),
        (ShardRange(1250, 2500), [(1250, 2500)]),
    ],
)
def test_the_ranges_that_cover_another(foreign: ShardRange, cover: list[tuple[int, int]]) -> None:
    assert covering(foreign, shard_ranges(8, 10_000)) == [ShardRange(*each) for each in cover]
