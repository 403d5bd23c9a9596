"""Identity is the same in every process, on every machine, in every Python; a golden file pins it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorpool.errors import Refused
from sensorpool.identity import canonical_classpath, canonical_context, identify, parse_context, shardcode
from sensorpool.model import shard_ranges

GOLDEN = Path(__file__).with_name("identities.json")
LIMIT = 10_000
CODE = """
import json, sys
from sensorpool.identity import identify
for row in json.load(sys.stdin):
    one = identify(row["op_classpath"], row["poke_context"])
    print(json.dumps([one.digest.hex(), one.hashcode, one.phase]))
"""

names = st.text(st.characters(codec="ascii", exclude_characters="\x00"), max_size=8)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
contexts = st.dictionaries(names, values, max_size=5)
DEEP = '{"a":' + "[" * 2000 + "]" * 2000 + "}"


def test_the_golden_identities_hold() -> None:
    for row in json.loads(GOLDEN.read_text()):
        one = identify(row["op_classpath"], row["poke_context"])
        assert (one.digest.hex(), one.hashcode, shardcode(one.hashcode, LIMIT)) == (
            row["digest"],
            row["hashcode"],
            row["shardcode"],
        )


def test_five_interpreters_with_different_hash_seeds_agree() -> None:
    rows = GOLDEN.read_text()
    said = {
        subprocess.run(
            [sys.executable, "-c", CODE],
            input=rows,
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "2", "3", "random")
    }
    assert len(said) == 1
    first = json.loads(said.pop().splitlines()[0])
    assert first[0] == json.loads(rows)[0]["digest"]


@given(contexts)
def test_canonical_survives_the_round_trip_and_the_order_of_keys(context: dict[str, object]) -> None:
    text = canonical_context(context)
    assert canonical_context(json.loads(text)) == text
    assert canonical_context(dict(reversed(list(context.items())))) == text


@given(st.text(max_size=30), st.integers(1, 100_000))
def test_shardcodes_are_never_negative(name: str, limit: int) -> None:
    try:
        hashcode = identify("pkg.mod.Class", {"name": name}).hashcode
    except Refused:
        return  # a NUL or a lone surrogate
    assert -(2**63) <= hashcode < 2**63
    assert 0 <= shardcode(hashcode, limit) < limit


@given(st.integers(1, 400), st.integers(1, 10_000))
def test_ranges_cover_every_shardcode_once_and_evenly(shards: int, limit: int) -> None:
    shards = min(shards, limit)
    ranges = shard_ranges(shards, limit)
    assert len(ranges) == shards
    assert [r.shard_min for r in ranges[1:]] == [r.shard_max for r in ranges[:-1]]
    assert (ranges[0].shard_min, ranges[-1].shard_max) == (0, limit)
    lengths = {r.shard_max - r.shard_min for r in ranges}
    assert max(lengths) - min(lengths) <= 1


def test_a_class_path_has_one_spelling() -> None:
    assert canonical_classpath(" pkg.mod:Class ") == canonical_classpath("pkg.mod.Class") == "pkg.mod.Class"
    for bad in ("Class", "pkg..Class", "pkg.mod.Class()", "pkg mod.Class", "", "os;x.Y", "a." + "b" * 600, 7, None):
        with pytest.raises(Refused):
            canonical_classpath(bad)


def _itself() -> list[object]:
    ring: list[object] = []
    ring.extend([ring, ring])
    return ring


@pytest.mark.parametrize(
    "bad",
    [
        None, 1, "text", [1],
        {"a": float("nan")}, {"a": float("inf")}, {"a": "x\x00"}, {"\x00": 1}, {"a": "\ud800"}, {1: 2},
        {"a": 10**5000}, {"a": {1, 2}}, {"a": object()}, {"a": b"bytes"}, {"a": "x" * 1_000_000}, {"a": _itself()},
    ],
)  # fmt: skip
def test_what_json_cannot_carry_is_refused_in_one_line(bad: object) -> None:
    with pytest.raises(Refused) as refused:
        canonical_context(bad)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"a": 1, "a": 2}', '{"a": NaN}', '{"a": -Infinity}', DEEP, '{"a": {"b": 1, "b": 1}}']
)
def test_json_text_that_is_no_context_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        canonical_context(parse_context(text))
