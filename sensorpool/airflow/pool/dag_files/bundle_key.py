"""What has a process of its own, among the DAG files."""

from typing import NamedTuple


class BundleKey(NamedTuple):
    """What has a process of its own: a version of a bundle, for the tasks of a team."""

    name: str
    version: str | None
    team: str | None
