"""The catalog of Airflow's providers: the sensors that ``airflow.providers.*`` stands for, and what bases are.

``proved_sensors.json`` is generated with docs/sensors.md (`tools/sensors_reference.py`), from the same proof: a class
is in it as poolable only if that page says so, for the version of its provider that is named there.
"""

import json
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from sensorpool.config.allowlist import Catalog, ClassKind, Version

PACKAGE = "airflow"
PROVED = "proved_sensors.json"
_PROVIDERS = "airflow.providers."
_BASE = "BaseSensorOperator"  # wherever Airflow, or a provider for an older Airflow, hands it on
_OF_CALLABLES = frozenset({"DecoratedOperator"})
# modules of sensors and operators: a class in one that is not in the table may run a command, or consume what it finds
_TASKS = frozenset({"contrib", "decorators", "operators", "sensors", "transfers"})


class Proved(NamedTuple):
    """What is proved of the providers' classes.

    :param poolable: the class paths of sensors that are poolable, those that wait at a gate included.
    :param bases: those of bases of sensors, which are no sensors by themselves.
    :param native: those of sensors that run natively, each in the version that was looked at.
    """

    versions: dict[str, Version]
    poolable: frozenset[str]
    bases: frozenset[str]
    native: frozenset[str]


@cache
def proved() -> Proved:
    """Read the table; once a process."""
    table = json.loads(files(__package__).joinpath(PROVED).read_text(encoding="utf-8"))

    def paths(kind: str) -> frozenset[str]:
        return frozenset(f"{package}.{name}" for package, one in table.items() for name in one[kind])

    versions = {package: Version(distribution(package), one["version"]) for package, one in table.items()}
    return Proved(versions, paths("poolable") | paths("gates"), paths("bases"), paths("native"))


def distribution(package: str) -> str:
    """Return the name of the distribution of a provider's package."""
    return f"apache-{package.replace('.', '-')}"


@cache
def catalog() -> Catalog:
    """Return the catalog of Airflow."""
    found = proved()
    native, poolable = (
        frozenset(path.rpartition(".")[2] for path in paths) for paths in (found.native, found.poolable)
    )

    def kind_of(path: str) -> ClassKind:
        *modules, name = path.split(".")
        if path in found.poolable or path in found.bases or name == _BASE:
            return ClassKind.SENSOR
        if name in native or name in _OF_CALLABLES:
            return ClassKind.EXACT
        if not _TASKS.isdisjoint(modules):
            # Airflow hands the classes of its standard provider on under the names that they had in Airflow 2
            is_old_name = not path.startswith(_PROVIDERS) and name in poolable
            return ClassKind.SENSOR if is_old_name else ClassKind.EXACT
        return ClassKind.PLAIN

    return Catalog(PACKAGE, found.poolable, kind_of, "docs/sensors.md", found.versions)
