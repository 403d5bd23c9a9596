"""The classes that ``sensors_enabled`` enables: the path is judged before the import, the class after it.

A pattern (``mycompany.sensors.*``) covers all class paths below that package.
"""

import importlib.util
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version

from sensorpool.config.catalogs import Kind, catalog_of


def is_pattern(entry: str) -> bool:
    """Whether a canonical entry is a pattern."""
    return entry.endswith(".*")


def package_of(pattern: str) -> str:
    """Return the package (or module) that a canonical pattern names."""
    return pattern.removesuffix(".*")


def covers(pattern: str, op_classpath: str) -> bool:
    """Whether a class path is below the package of a canonical pattern. The pattern need not enable it."""
    return op_classpath.startswith(pattern[:-1])


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

    def doubts(self) -> Iterator[str]:
        """Yield a line for each pattern that enables nothing here. Nothing is imported."""
        yield from filter(None, map(doubt_about, self.patterns))


def classes_of(pattern: str) -> frozenset[str]:
    """Return the classes of a catalog that a pattern stands for; none where its package has no catalog."""
    catalog = catalog_of(pattern)
    return frozenset() if catalog is None else frozenset(path for path in catalog.classes if covers(pattern, path))


def installed(pattern: str) -> dict[str, tuple[str, str, list[str]]]:
    """Return what a pattern of a catalog stands for and is installed here.

    :returns: by package: the version installed here, the version that its classes were proved with, and those.
    """
    catalog = catalog_of(pattern)
    versions = {} if catalog is None else catalog.versions
    classes, found = sorted(classes_of(pattern)), {}
    for package, proved in versions.items():
        own = [path for path in classes if path.startswith(f"{package}.")]
        if own:
            try:
                found[package] = version(proved.distribution), proved.version, own
            except PackageNotFoundError:
                continue
    return found


def doubt_about(pattern: str) -> str | None:
    """Return why a pattern enables nothing here; None: it may enable something. Nothing is imported."""
    catalog = catalog_of(pattern)
    if catalog is None:
        top = pattern.partition(".")[0]
        return (
            None
            if is_here(top)
            else f"{pattern} enables no class: there is no {top} here; install it, or mend the name"
        )
    if not classes_of(pattern):
        why = f"{catalog.page} lists none below it as poolable"
        return f"{pattern} stands for no class: {why}; name its classes exactly, or mend the pattern"
    if catalog.versions and not installed(pattern):
        return f"{pattern} stands for classes of which none is installed here"
    return None


def is_here(module: str) -> bool:
    """Whether there is a module by a name. The packages around it are imported, and may raise anything."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ModuleNotFoundError, ValueError):  # ValueError: a module that has no spec, as __main__
        return False


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
            found = path if catalog.kind_of(path) is Kind.EXACT else None
        if found is not None:
            return found
    return None


def _path_of(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
