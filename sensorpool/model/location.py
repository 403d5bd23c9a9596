"""The location of what a condition waits for: a file, an object, or the folder that is looked into, as a URL.

A wake-up names a location, and so finds the conditions that it concerns without reading their contexts. A location is
no part of the identity: it finds more conditions than necessary where it is vague, and costs each of them one poke.
"""

import re
from collections.abc import Sequence

LONGEST = 700  # characters, as the column; and bytes, for PostgreSQL's index bounds these
JOINS = "sensorpool://joins/"
"""The location of all joins, which wait for other instances: by it they are found without reading all groups."""
_MOST_FOLDERS = 100  # spellings
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)(/.*)?", re.ASCII | re.DOTALL)
_SPELT = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}  # other names of the same
_PATTERN = re.compile(r"[*?\[]")
_UNFIT = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def location_named(value: object) -> str | None:
    """Return a location as it is kept; None: the value names none.

    A password is left out. A location that is too long stands for its folder.

    :param value: a URL with a scheme, like ``s3://bucket/folder/name``; one that ends with a slash is a folder.
    """
    if not isinstance(value, str) or _UNFIT.search(value) or (url := _URL.fullmatch(value)) is None:
        return None
    scheme = url[1].lower()
    where = f"{_SPELT.get(scheme, scheme)}://{url[2].rpartition('@')[2]}{url[3] or '/'}"
    return where if _fits(where) else folder_of(where.encode()[:LONGEST].decode(errors="ignore"))


def _fits(where: str) -> bool:
    return len(where) <= LONGEST and (where.isascii() or len(where.encode()) <= LONGEST)


def folder_of(location: str) -> str | None:
    """Return the folder that a location lies in; None: it lies in none."""
    folder = location[: location.rfind("/") + 1]
    return None if folder.endswith("://") or not folder else folder


def pattern_folder(url: str) -> str | None:
    """Return the location of a pattern: the folder before its first wildcard."""
    start = url.find("://") + 3
    if (found := _PATTERN.search(url, start)) is None:
        return location_named(url)
    folder = url[: url.rfind("/", start, found.start()) + 1]
    return location_named(folder) if folder else None  # its very host is a pattern


def common_folder(locations: Sequence[str]) -> str | None:
    """Return the deepest folder that all of these locations lie in; None: there is none.

    A single location is returned as it is.
    """
    if len(set(locations)) == 1:
        return locations[0]
    first, last = min(locations, default=""), max(locations, default="")
    same = next((n for n, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return folder_of(first[:same])


def concerned(location: str) -> list[str]:
    """Return the locations that a change of one concerns: itself and its folders, these in both spellings."""
    found, place = [location], location
    while len(found) < _MOST_FOLDERS and (folder := folder_of(place.removesuffix("/"))) is not None:
        found += [folder, folder.removesuffix("/")]
        place = folder
    return found
