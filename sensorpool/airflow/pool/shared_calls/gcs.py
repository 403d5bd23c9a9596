"""Sensors of Cloud Storage: objects, or prefixes, of one bucket by listing.

As with S3, a listing begins where the first name is, and goes on at the next name that no page has decided. So there
are never more calls than names, and one for all of them where they lie close together.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from airflow.providers.google.cloud.hooks.gcs import GCSHook
from airflow.providers.google.cloud.sensors.gcs import (
    GCSObjectExistenceSensor,
    GCSObjectsWithPrefixExistenceSensor,
)

from sensorpool.airflow.pool.shared_calls.by_operator import ByOperator, fits

_PAGE = 1_000  # objects, as many as a page has


class _Listings(ByOperator):
    """Names by their bucket, and where in it."""

    shared = ("google_cloud_conn_id", "impersonation_chain")
    name = ""  # of the argument with the object's name, or the beginning of names
    are_prefixes = False

    def read(self, arguments: Mapping[str, Any]) -> tuple[tuple[str, str], str] | None:
        """Return the bucket and the folder, and the name."""
        bucket, name = arguments.get("bucket"), arguments.get(self.name)
        if not isinstance(bucket, str) or not isinstance(name, str) or not name or arguments.get("use_glob"):
            return None
        return (bucket, name.rpartition("/")[0]), name

    def answers(self, operator: Any, kin: tuple[str, str], asked: Sequence[str]) -> Sequence[bool]:
        """List the bucket."""
        hook = GCSHook(gcp_conn_id=operator.google_cloud_conn_id, impersonation_chain=operator.impersonation_chain)
        client, names = hook.get_conn(), sorted(set(asked), key=_order)
        may_be: set[str] = set()
        place = 0
        while place < len(names):
            found = [
                blob.name
                for blob in client.list_blobs(
                    kin[0],
                    prefix=f"{kin[1]}/" if kin[1] else None,
                    start_offset=names[place],
                    max_results=_PAGE,
                    fields="items(name),nextPageToken",
                )
            ]
            if found != sorted(found, key=_order):
                return [True] * len(asked)  # a store with another order
            is_whole = len(found) < _PAGE
            while place < len(names) and (is_whole or _order(names[place]) <= _order(found[-1])):
                if self._is_among(names[place], found):
                    may_be.add(names[place])
                place += 1
        return [name in may_be for name in asked]

    def _is_among(self, name: str, found: Sequence[str]) -> bool:
        """Whether a name, or one that begins so, is among sorted names."""
        place = bisect_left(found, _order(name), key=_order)
        return place < len(found) and (found[place].startswith(name) if self.are_prefixes else found[place] == name)


class Objects(_Listings):
    """Of GCSObjectExistenceSensor."""

    known = (*_Listings.shared, "bucket", "deferrable", "object", "use_glob")
    name = "object"


class Prefixes(_Listings):
    """Of GCSObjectsWithPrefixExistenceSensor."""

    known = (*_Listings.shared, "bucket", "deferrable", "prefix")
    name = "prefix"
    are_prefixes = True


def _order(name: str) -> bytes:
    return name.encode(errors="surrogatepass")


def of_objects(cls: type, found: Any) -> Objects | None:
    """Return the shared call of GCSObjectExistenceSensor."""
    return Objects(found) if fits(cls, found, GCSObjectExistenceSensor) else None


def of_prefixes(cls: type, found: Any) -> Prefixes | None:
    """Return the shared call of GCSObjectsWithPrefixExistenceSensor."""
    return Prefixes(found) if fits(cls, found, GCSObjectsWithPrefixExistenceSensor) else None
