"""Extensions of the core by other packages, and by our own `sensorpool.airflow`: entry points, loaded at first use.

The core does not import airflow. Airflow's side extends it through these groups:

``sensorpool.settings``   functions that return settings by name (`settings`). Their attribute ``names`` has further
                          settings and ``own`` reads them (`origins`), ``place`` names their source,
                          ``written`` returns the names that are written there,
                          ``unknown`` returns names there that are no settings,
                          ``shared`` names those of ``own`` that all processes share (`shared`),
                          ``default_sensors`` the classes that are enabled where none are named,
                          ``catalog`` makes a catalog for patterns (`allowlist`)
``sensorpool.adapters``   by class path: functions that return the class that is poked in its place (`poke.classes`)
``sensorpool.shared_calls`` by class path: functions that return its shared call (`poke.shared_call`)
``sensorpool.rescuers``   functions that do a further chore of rescue (`rescue`)
``sensorpool.checks``     functions that check an installation (`doctor`)
"""

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any


@cache
def named(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, without loading any."""
    return {entry.name: entry for entry in _installed().select(group=group)}


@cache
def load(group: str) -> dict[str, Any]:
    """Load the entry points of a group, by name."""
    return {name: entry.load() for name, entry in named(group).items()}


@cache
def _installed() -> Any:  # Python 3.11 has another type than 3.12
    """Return the entry points of all packages: to find them means to read a file of each package."""
    return entry_points()
