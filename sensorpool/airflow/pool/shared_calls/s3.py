"""S3KeySensor: keys of one bucket by listing: a page answers for all keys that lie within it.

A listing begins where the first key is, and goes on where the next key is that no page has answered: so there are never
more calls than keys, and one for all of them where they lie close together.
"""

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from typing import Any

from airflow.providers.amazon.aws.hooks.s3 import S3Hook
from airflow.providers.amazon.aws.sensors.s3 import S3KeySensor

from sensorpool.airflow.pool.shared_calls.by_operator import ByOperator, fits

_UNSORTED = "--x-s3"  # the end of a directory bucket's name: its listings are in no order
_MOST_PAGES = 10  # of a listing for patterns

Asked = tuple[tuple[str, ...], bool]
"""The keys, and whether they are patterns."""


class Listings(ByOperator):
    """Keys by their bucket."""

    shared = ("aws_conn_id", "region_name", "verify")
    known = (*shared, "bucket_key", "bucket_name", "wildcard_match", "deferrable")

    def read(self, arguments: Mapping[str, Any]) -> tuple[tuple[str, str], Asked] | None:
        """Return the bucket and where in it, and the keys."""
        given, has_patterns = arguments.get("bucket_key"), bool(arguments.get("wildcard_match"))
        keys = [given] if isinstance(given, str) else given
        if not isinstance(keys, list) or not keys:
            return None
        found = [
            S3Hook.get_s3_bucket_key(arguments.get("bucket_name"), key, "bucket_name", "bucket_key") for key in keys
        ]
        buckets, names = {bucket for bucket, _ in found}, tuple(key for _, key in found)
        if len(buckets) > 1 or not all(names) or (bucket := min(buckets)).endswith(_UNSORTED):
            return None
        place = _prefix(names[0]) if has_patterns else names[0].rpartition("/")[0]
        if has_patterns and len(names) > 1:
            return None
        return (bucket, f"{'*' if has_patterns else ''}{place}"), (names, has_patterns)

    def answers(self, operator: Any, kin: tuple[str, str], asked: Sequence[Asked]) -> Sequence[bool]:
        """List the bucket."""
        client = operator.hook.get_conn()
        if asked[0][1]:
            return _matching(client, kin[0], kin[1].removeprefix("*"), [names[0] for names, _ in asked])
        try:
            there = _there(client, kin[0], sorted({name for names, _ in asked for name in names}))
        except client.exceptions.NoSuchBucket:
            there = set()  # to the native sensor no key is there then
        return [all(name in there for name in names) for names, _ in asked]


def _there(client: Any, bucket: str, keys: Sequence[str]) -> set[str]:
    """Return which of some sorted keys may be in a bucket."""
    there: set[str] = set()
    prefix, place = _common(keys[0], keys[-1]), 0
    while place < len(keys):
        after = keys[place][:-1]  # it comes before the key, with as little between them as can be said
        page = client.list_objects_v2(Bucket=bucket, Prefix=prefix, **({"StartAfter": after} if after else {}))
        names = [each["Key"] for each in page.get("Contents", ())]
        if names != sorted(names) or (after and names and names[0] <= after):
            return set(keys)  # a store with another order
        there.update(names)
        if not page.get("IsTruncated"):
            break
        if not names:
            return set(keys)  # more is there, and the store does not say where
        if keys[place] > names[-1]:  # so much lies before it that its own poke is cheaper
            there.add(keys[place])
            place += 1
        while place < len(keys) and keys[place] <= names[-1]:
            place += 1
    return there


def _common(one: str, other: str) -> str:
    """Return the beginning that two keys have in common."""
    length = next((place for place, pair in enumerate(zip(one, other, strict=False)) if len({*pair}) > 1), len(one))
    return one[: min(length, len(other))]


def _matching(client: Any, bucket: str, prefix: str, patterns: Sequence[str]) -> Sequence[bool]:
    """Return which patterns with one prefix may match a key."""
    waiting = set(patterns)
    options: dict[str, str] = {}
    for _ in range(_MOST_PAGES):
        page = client.list_objects_v2(Bucket=bucket, Prefix=prefix, **options)
        for each in page.get("Contents", ()):
            waiting -= {pattern for pattern in waiting if fnmatch(each["Key"], pattern)}
        if not waiting or not page.get("IsTruncated"):
            return [pattern not in waiting for pattern in patterns]
        options = {"ContinuationToken": page["NextContinuationToken"]}
    return [True] * len(patterns)


def _prefix(pattern: str) -> str:
    """Return what comes before the first letter of a pattern that is none of a key, as the native sensor does."""
    return re.split(r"[\[*?]", pattern, maxsplit=1)[0]


def shared_call(cls: type, found: Any) -> Listings | None:
    """Return the shared call of S3KeySensor."""
    return Listings(found) if fits(cls, found, S3KeySensor) else None
