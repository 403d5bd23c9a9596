"""The classes that ``sensors_enabled`` enables: the path is judged before the import, the class after it.

Below a package with a catalog a pattern stands for the classes that the catalog lists, and for no other: so it is with
our own sensors, and with Airflow's providers (`sensorpool.airflow.catalog`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from sensorpool.config import extensions
from sensorpool.config.defaults import BUILT_IN_SENSORS
from sensorpool.model.patterns import covers, is_pattern

_EXTENSIONS = "sensorpool.settings"  # entry points: a function's attribute ``catalog`` makes a catalog


class ClassKind(Enum):
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
    kind_of: Callable[[str], ClassKind]
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
    made = (make() for one in extensions.load(_EXTENSIONS).values() if (make := getattr(one, "catalog", None)))
    return next((catalog for catalog in made if catalog.package == package), None)


def _kind_of_ours(path: str) -> ClassKind:
    return ClassKind.SENSOR if path.rpartition(".")[2] in _OUR_NAMES else ClassKind.PLAIN


_OUR_NAMES = frozenset(path.rpartition(".")[2] for path in BUILT_IN_SENSORS)
_OURS = Catalog("sensorpool", frozenset(BUILT_IN_SENSORS), _kind_of_ours, "docs/reference.md")


class Allowlist:
    """The entries of ``sensors_enabled``. It has no other state, so threads may share it.

    :param entries: canonical class paths and patterns.
    """

    def __init__(self, entries: Iterable[str]) -> None:
        listed = tuple(dict.fromkeys(entries))
        self.patterns = tuple(entry for entry in listed if is_pattern(entry))
        self.exact = frozenset(entry for entry in listed if not is_pattern(entry))

    def __contains__(self, op_classpath: object) -> bool:
        """Whether a canonical class path may be imported. `reason_against` judges the class that is found."""
        if op_classpath in self.exact:
            return True
        return isinstance(op_classpath, str) and any(
            covers(pattern, op_classpath) and _why_not(pattern, op_classpath) is None for pattern in self.patterns
        )

    def reason_against(self, op_classpath: str, cls: type) -> str | None:
        """Return why the class found under an allowed class path is not enabled; None: it is.

        A pattern of a package enables the classes that are defined below it, whatever its modules import from
        elsewhere, and none that is derived from a provider's class that needs its exact name.
        """
        if op_classpath in self.exact or catalog_of(op_classpath) is not None:
            return None
        own = _path_of(cls)
        if own not in self.exact and not any(covers(each, own) for each in self.patterns if catalog_of(each) is None):
            return f"it is {own}, which needs an entry of its own"
        if (base := _base_by_exact_name(cls)) is not None:
            return f"it is derived from {base}, so it needs its exact name"
        return None

    def why_not(self, op_classpath: str) -> str:
        """Return why the patterns that cover a class path do not enable it; empty: none covers it."""
        return "; ".join(
            f"{pattern} does not enable it: {why}"
            for pattern in self.patterns
            if covers(pattern, op_classpath) and (why := _why_not(pattern, op_classpath)) is not None
        )

    def named(self) -> frozenset[str]:
        """Return the class paths that are listed exactly, or by a catalog that a pattern stands for."""
        return self.exact.union(*(classes_of(pattern) for pattern in self.patterns))


def classes_of(pattern: str) -> frozenset[str]:
    """Return the classes of a catalog that a pattern stands for; none where its package has no catalog."""
    catalog = catalog_of(pattern)
    return frozenset() if catalog is None else frozenset(path for path in catalog.classes if covers(pattern, path))


def _why_not(pattern: str, op_classpath: str) -> str | None:
    """Return why a pattern does not enable a class path that it covers."""
    if (catalog := catalog_of(pattern)) is not None:
        is_listed = op_classpath in catalog.classes
        return None if is_listed else f"{catalog.page} does not list it as poolable, so it needs its exact name"
    below = op_classpath.removeprefix(pattern[:-1])
    is_public = not any(name.startswith("_") for name in below.split("."))
    return None if is_public else "a name that begins with an underscore is not public"


def _base_by_exact_name(cls: type) -> str | None:
    """Return the base of a catalog by which a class needs its exact name. Bases of those are not looked at."""
    for base in cls.__bases__:
        path = _path_of(base)
        if (catalog := catalog_of(path)) is None:
            found = _base_by_exact_name(base)
        else:
            found = path if catalog.kind_of(path) is ClassKind.EXACT else None
        if found is not None:
            return found
    return None


def _path_of(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
