"""The location of what a condition waits for: one spelling, its folders, and what a change concerns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorpool.model.location import (
    LONGEST,
    common_folder,
    concerned,
    folder_of,
    location_named,
    pattern_folder,
)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("s3://bucket/a/b.csv", "s3://bucket/a/b.csv"),
        ("S3A://bucket/a", "s3://bucket/a"),
        ("gcs://bucket", "gs://bucket/"),
        ("https://user:secret@host:8080/x", "https://host:8080/x"),
        ("file:///data/in/", "file:///data/in/"),
        ("/data/in", None),
        ("s3://b/a\nb", None),
        ("s3://b/\ud800", None),
        ("", None),
        (7, None),
    ],
)
def test_one_spelling(given: object, kept: str | None) -> None:
    assert location_named(given) == kept


def test_a_long_location_stands_for_its_folder() -> None:
    assert location_named(f"s3://b/in/{'x' * LONGEST}") == "s3://b/in/"
    assert location_named(f"s3://{'b' * LONGEST}") is None
    assert location_named(f"s3://b/in/{'𝄞' * (LONGEST // 2)}") == "s3://b/in/"


@pytest.mark.parametrize(
    ("pattern", "folder"),
    [
        ("s3://b/day=1/part-*", "s3://b/day=1/"),
        ("s3://b/*/x", "s3://b/"),
        ("s3://b/a/b", "s3://b/a/b"),
        ("file:///in/[ab]/*", "file:///in/"),
        ("s3://b*/x", None),
    ],
)
def test_a_pattern_waits_in_the_folder_before_its_wildcard(pattern: str, folder: str | None) -> None:
    assert pattern_folder(pattern) == folder


def test_several_locations_have_a_folder_in_common() -> None:
    assert common_folder(["s3://b/in/x", "s3://b/in/y"]) == "s3://b/in/"
    assert common_folder(["s3://b/in/x", "s3://c/in/x"]) is None
    assert common_folder(["s3://b/in/x", "s3://b/in/x"]) == "s3://b/in/x"
    assert common_folder(["s3://b/in", "s3://b/in/x"]) == "s3://b/"
    assert common_folder([]) is None


def test_a_change_concerns_an_object_and_its_folders() -> None:
    found = concerned("s3://b/in/day=1/x")
    assert found == [
        "s3://b/in/day=1/x",
        *("s3://b/in/day=1/", "s3://b/in/day=1", "s3://b/in/", "s3://b/in", "s3://b/", "s3://b"),
    ]
    assert concerned("s3://b/in/") == ["s3://b/in/", "s3://b/", "s3://b"]
    assert folder_of("s3://b/") == "s3://b/"


_PARTS = st.text(st.characters(exclude_characters="/?#*[", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6)


@given(
    bucket=st.text("ab-", min_size=1, max_size=4), parts=st.lists(_PARTS, min_size=1, max_size=6), cut=st.integers(0, 5)
)
def test_what_waits_for_an_object_or_a_folder_above_it_is_found(bucket: str, parts: list[str], cut: int) -> None:
    whole = location_named(f"s3://{bucket}/{'/'.join(parts)}")
    assert whole is not None
    folder = location_named(f"s3://{bucket}/{''.join(f'{part}/' for part in parts[:-1][:cut])}")
    assert {whole, folder} <= set(concerned(whole))
    assert pattern_folder(f"{folder}*") == folder
