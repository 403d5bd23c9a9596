"""The files of a DAG bundle's folder that this process has loaded as modules, and their digest: the version of a DAG
file in a bundle that has no versions of its own."""

import hashlib
import os
import sys
from collections.abc import Iterable, Mapping
from functools import cache

from sensorpool.airflow.compat import dag_bundles
from sensorpool.airflow.proof.state import references

MOST = 200  # files
_COARSE = 0.1  # seconds by which the times of a file system may lie behind the clock; ten milliseconds are common


def loaded_from(folder: str) -> set[str]:
    """Return the files of a folder that this process has loaded as modules, by their paths relative to the folder.

    :param folder: a path without links.
    """
    found: set[str] = set()
    for module in list(sys.modules.values()):
        file = getattr(module, "__dict__", {}).get("__file__")
        if isinstance(file, str) and not references.is_installed(file):
            path = os.path.join(_without_links(os.path.dirname(file)), os.path.basename(file))
            if path.startswith(f"{folder}{os.sep}"):
                found.add(path[len(folder) + 1 :])
    return found


# where modules were loaded from stays, though a link now leads elsewhere
_without_links = cache(os.path.realpath)


def contents_of(folder: str, paths: Iterable[str]) -> dict[str, str]:
    """Return a digest of the content of each file.

    :raises OSError: when one cannot be read, or a path is not within the folder.
    """
    found: dict[str, str] = {}
    for path in paths:
        if not dag_bundles.is_within(path):
            raise PermissionError(f"{path} leads out of its bundle")
        with open(os.path.join(folder, path), "rb") as file:
            found[path] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def digest_of(contents: Mapping[str, str]) -> str:
    """Return one digest of the digests of files."""
    text = "".join(f"{path}\0{contents[path]}\0" for path in sorted(contents))
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]


def changed_since(place: str, folder: str, paths: Iterable[str], moment: float) -> str | None:
    """Return a file that may have changed since a moment, in seconds since 1970; None if none has.

    :param place: the folder, as its bundle names it: a link in that may lead elsewhere since.
    :param folder: the same without links.
    :raises OSError: when one cannot be looked at.
    """
    moment -= _COARSE
    if os.path.realpath(place) != folder:
        return place
    while place != (above := os.path.dirname(place)):
        if os.path.islink(place) and os.lstat(place).st_ctime >= moment:
            return place
        place = above
    for path in paths:
        seen = os.stat(os.path.join(folder, path))
        if max(seen.st_ctime, seen.st_mtime) >= moment:
            return path
    return None
