"""The doctor's look at the classes that may be poked here: each listed one, and what is below each pattern."""

import importlib.util
from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

from sensorpool.admin.look import Finding
from sensorpool.config import extensions
from sensorpool.config.allowlist import Allowlist, catalog_of, classes_of
from sensorpool.config.settings import EXTENSIONS, Settings
from sensorpool.errors import ClassUnavailable, SensorpoolError
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.patterns import is_pattern, package_of
from sensorpool.model.words import counted
from sensorpool.poke.classes import Classes
from sensorpool.poke.patches import refuse_patches

_FEW = 3  # classes that are named


def look(settings: Settings) -> Iterator[Finding]:
    """Report each class that may be poked, after an import of it; of the providers' tables, what is installed here."""
    refuse_patches()  # as in a worker
    allowed = Classes(settings.sensors_enabled)
    exact = [entry for entry in settings.sensors_enabled if not is_pattern(entry)]
    yield from _import(allowed, exact, is_default=_is_default(settings))
    for pattern in Allowlist(settings.sensors_enabled).patterns:
        yield from _look_at_pattern(allowed, pattern)


def _is_default(settings: Settings) -> bool:
    """Whether the classes are those that an extension enables by default."""
    defaults = [getattr(each, "default_sensors", None) for each in extensions.load(EXTENSIONS).values()]
    return tuple(settings.sensors_enabled) in defaults


def _look_at_pattern(allowed: Classes, pattern: str) -> Iterator[Finding]:
    if (doubt := doubt_about(pattern)) is not None:
        yield Finding("pattern", "warning", doubt)
    elif (catalog := catalog_of(pattern)) is None:
        yield _look_at_package(pattern)
    elif catalog.versions:
        # a provider's modules take long to import: those that are in use are imported by their sensors
        for package, (here, proved, classes) in installed(pattern).items():
            shown = here if here == proved else f"{here} (proved with {proved})"
            yield _stands_for(pattern, classes, f" of {package} {shown}")
    else:
        classes = sorted(classes_of(pattern))
        yield _stands_for(pattern, classes)
        yield from _import(allowed, classes)


def _look_at_package(pattern: str) -> Finding:
    try:
        import_module(package_of(pattern))
    except (Exception, SystemExit) as error:
        return Finding("pattern", "warning", f"{pattern} enables no class: {one_line(error)}")
    return Finding("pattern", "ok", f"{pattern} enables the sensors that are defined in this package and below")


def _stands_for(pattern: str, classes: list[str], of_what: str = "") -> Finding:
    names = ", ".join([path.rpartition(".")[2] for path in classes[:_FEW]])
    more = f", and {len(classes) - _FEW} more (--json names them)" if len(classes) > _FEW else ""
    said = f"{pattern} stands for {counted(len(classes), 'class', 'es')}{of_what}: {names}{more}"
    return Finding("pattern", "ok", said, tuple(classes))


def _import(allowed: Classes, classes: Iterable[str], *, is_default: bool = False) -> Iterator[Finding]:
    """Report whether each class can be imported.

    :param is_default: whether they are a default's: then one may be missing that is of another package.
    """
    for op_classpath in classes:
        try:
            sensor_class = allowed.find(op_classpath)
        except SensorpoolError as error:
            module = op_classpath.rpartition(".")[0]
            is_optional = is_default and isinstance(error, ClassUnavailable) and not is_here(module)
            if is_optional:
                yield Finding("sensor", "ok", f"{op_classpath}: its package is not installed here")
            else:
                yield Finding("sensor", "warning", str(error))
            continue
        yield Finding("sensor", "ok", f"{op_classpath}: {sensor_class.way.value}")


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
