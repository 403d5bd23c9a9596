"""What other packages, and our own `sensorpool.airflow`, add to the core: entry points, loaded when they are needed.

The core imports no airflow. What it needs to know of it comes through these groups:

``sensorpool.settings``   functions that return settings by name (`settings`)
``sensorpool.adapters``   by class path: functions that return what is poked in the place of a class (`poke.classes`)
``sensorpool.rescuers``   functions that do a chore of rescue beside ours (`rescue`)
``sensorpool.checks``     functions that check an installation (`doctor`)
"""

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any


@cache
def named(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, without loading any."""
    return {entry.name: entry for entry in entry_points(group=group)}


@cache
def load(group: str) -> dict[str, Any]:
    """Load the entry points of a group, by name."""
    return {name: entry.load() for name, entry in named(group).items()}
