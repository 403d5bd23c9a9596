"""The doctor's look at the classes that may be poked here: each listed one, and what each pattern stands for."""

from collections.abc import Iterable, Iterator

from sensorpool.client.pool import Pool
from sensorpool.config import allowlist, extensions
from sensorpool.config.allowlist import Allowlist
from sensorpool.config.catalogs import catalog_of
from sensorpool.config.settings import EXTENSIONS, Settings
from sensorpool.config.sources.module_files import ModuleFiles
from sensorpool.errors import ClassUnavailable, SensorpoolError
from sensorpool.model.finding import Finding
from sensorpool.model.patterns import is_pattern
from sensorpool.model.words import counted
from sensorpool.poke.patches import refuse_patches

_FEW = 3  # classes that are named


def look(pool: Pool) -> Iterator[Finding]:
    """Report each class that may be poked, after an import of it; of the providers' tables, what is installed here."""
    refuse_patches()  # as in a worker
    listed = allowlist.of(pool.settings.sensors_enabled)
    exact = [entry for entry in pool.settings.sensors_enabled if not is_pattern(entry)]
    yield from _import(pool, exact, is_default=_is_default(pool.settings))
    for pattern in listed.patterns:
        yield from _look_at_pattern(pool, listed, pattern)
    for said in listed.doubts():
        yield Finding("pattern", "warning", said)


def _is_default(settings: Settings) -> bool:
    """Whether the classes are those that an extension enables by default."""
    defaults = [getattr(each, "default_sensors", None) for each in extensions.load(EXTENSIONS).values()]
    return tuple(settings.sensors_enabled) in defaults


def _look_at_pattern(pool: Pool, listed: Allowlist, pattern: str) -> Iterator[Finding]:
    catalog, found = catalog_of(pattern), listed.found(pattern)
    if catalog is not None and catalog.versions:
        # a provider's modules take long to import: those that are in use are imported by their sensors
        for package, (here, proved, classes) in listed.installed(pattern).items():
            version = here if here == proved else f"{here} (proved with {proved})"
            yield _stands_for(pattern, classes, f" of {package} {version}")
        return
    if found.classes:
        classes = sorted(found.classes)
        yield _stands_for(pattern, classes)
        yield from _import(pool, (path for path in classes if path not in listed.exact))
    for path, why in sorted(found.left_out.items()):
        if path not in listed.exact:
            yield Finding("pattern", "ok", f"{pattern} leaves out {path}, which needs its exact name: {why}")


def _stands_for(pattern: str, classes: list[str], of_what: str = "") -> Finding:
    names = ", ".join([path.rpartition(".")[2] for path in classes[:_FEW]])
    more = f", and {len(classes) - _FEW} more (--json names them)" if len(classes) > _FEW else ""
    said = f"{pattern} stands for {counted(len(classes), 'class', 'es')}{of_what}: {names}{more}"
    return Finding("pattern", "ok", said, tuple(classes))


def _import(pool: Pool, classes: Iterable[str], *, is_default: bool = False) -> Iterator[Finding]:
    """Report whether each class can be imported.

    :param is_default: whether they are a default's: then one may be missing that is of another package.
    """
    for op_classpath in classes:
        try:
            sensor_class = pool.classes.find(op_classpath)
        except SensorpoolError as error:
            module = op_classpath.rpartition(".")[0]
            is_optional = is_default and isinstance(error, ClassUnavailable) and ModuleFiles().locate(module) is None
            if is_optional:
                yield Finding("sensor", "ok", f"{op_classpath}: its package is not installed here")
            else:
                yield Finding("sensor", "warning", str(error))
            continue
        yield Finding("sensor", "ok", f"{op_classpath}: {sensor_class.way.value}")
