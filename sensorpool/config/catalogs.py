"""Catalogs: what the patterns of the allowlist stand for below one package, and how its classes count as bases.

Below a package with a catalog a pattern stands for the classes that the catalog lists, and for no other: so it is with
our own sensors, and with Airflow's providers (`sensorpool.airflow.catalog`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from sensorpool.config import extensions
from sensorpool.config.defaults import BUILT_IN_SENSORS

EXTENSIONS = "sensorpool.settings"  # entry points: a function's attribute ``catalog`` is one that makes a catalog


class Kind(Enum):
    """What a class means to a pattern: itself, or a class that is derived from it."""

    SENSOR = "a sensor"
    PLAIN = "no sensor"
    EXACT = "a class that needs its exact name on the allowlist, and so does each class derived from it"


@dataclass(frozen=True)
class Catalog:
    """The catalog of one package.

    :param package: the package, without a dot.
    :param classes: the class paths that patterns stand for.
    :param kind_of: returns what a class path below the package means as a base.
    :param page: where the list stands, for people.
    :param versions: distributions by package, each with the version that its classes were proved with.
    """

    package: str
    classes: frozenset[str]
    kind_of: Callable[[str], Kind]
    page: str
    versions: Mapping[str, "Version"] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class Version:
    """The version of a distribution that the classes of a package were proved with."""

    distribution: str
    version: str


def catalog_of(dotted: str) -> Catalog | None:
    """Return the catalog of the package that a class path, module or pattern begins with, if it has one."""
    package = dotted.partition(".")[0]
    if package == _OURS.package:
        return _OURS
    made = (make() for one in extensions.load(EXTENSIONS).values() if (make := getattr(one, "catalog", None)))
    return next((catalog for catalog in made if catalog.package == package), None)


def _kind_of_ours(path: str) -> Kind:
    return Kind.SENSOR if path.rpartition(".")[2] in _OUR_NAMES else Kind.PLAIN


_OUR_NAMES = frozenset(path.rpartition(".")[2] for path in BUILT_IN_SENSORS)
_OURS = Catalog("sensorpool", frozenset(BUILT_IN_SENSORS), _kind_of_ours, "docs/reference.md")
