"""The doctor's look at the classes that may be poked here: each listed one, and what each pattern stands for."""

from collections.abc import Iterable, Iterator

from sensorpool.client.pool import Pool
from sensorpool.config import allowlist
from sensorpool.config.allowlist import Allowlist
from sensorpool.config.catalogs import catalog_of
from sensorpool.errors import SensorpoolError
from sensorpool.model.finding import Finding
from sensorpool.model.patterns import is_pattern
from sensorpool.poke.patches import refuse_patches


def look(pool: Pool) -> Iterator[Finding]:
    """Report each class that may be poked, after an import of it; of the providers' tables, what is installed here."""
    refuse_patches()  # as in a worker
    listed = allowlist.of(pool.settings.sensors_enabled)
    yield from _import(pool, (entry for entry in pool.settings.sensors_enabled if not is_pattern(entry)))
    for pattern in listed.patterns:
        yield from _look_at_pattern(pool, listed, pattern)
    for said in listed.doubts():
        yield Finding("pattern", "warning", said)


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
    names = ", ".join(path.rpartition(".")[2] for path in classes)
    count = "1 class" if len(classes) == 1 else f"{len(classes)} classes"
    return Finding("pattern", "ok", f"{pattern} stands for {count}{of_what}: {names}", tuple(classes))


def _import(pool: Pool, classes: Iterable[str]) -> Iterator[Finding]:
    for op_classpath in classes:
        try:
            sensor_class = pool.classes.find(op_classpath)
        except SensorpoolError as error:
            yield Finding("sensor", "warning", str(error))
            continue
        yield Finding("sensor", "ok", f"{op_classpath}: {sensor_class.way.value}")
