"""Shard ranges cover every shardcode exactly once, whatever their number."""

from hypothesis import example, given
from hypothesis import strategies as st

from sensorpool.model.values import ShardRange, shard_ranges


@st.composite
def _cuts(draw: st.DrawFn) -> tuple[int, int]:
    limit = draw(st.integers(1, 20_000))
    return draw(st.integers(1, min(limit, 2_000))), limit


@given(_cuts())
@example((1, 1))
@example((7, 10_000))
@example((10_000, 10_000))
@example((64, 10_000))
def test_every_shardcode_is_in_exactly_one_range(cut: tuple[int, int]) -> None:
    shards, limit = cut
    ranges = shard_ranges(shards, limit)
    assert [code for part in ranges for code in range(part.shard_min, part.shard_max)] == list(range(limit))


@given(_cuts())
def test_the_ranges_are_balanced(cut: tuple[int, int]) -> None:
    shards, limit = cut
    lengths = [part.shard_max - part.shard_min for part in shard_ranges(shards, limit)]
    assert len(lengths) == shards
    assert min(lengths) >= 1
    assert max(lengths) - min(lengths) <= 1


def test_a_range_says_where_it_begins_and_ends() -> None:
    assert [str(part) for part in shard_ranges(3, 10)] == ["0-3", "3-6", "6-10"]
    assert shard_ranges(1, 10_000) == [ShardRange(0, 10_000)]
