"""Checks of an installation, which only `doctor` makes: its settings, its servers, and the workers' settings."""

import resource
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path

from sensorpool.admin.look import Finding, Look
from sensorpool.client.pool import Pool
from sensorpool.config import extensions, infra_classes
from sensorpool.config.allowlist import Allowlist, classes_of, doubt_about, installed, is_here, is_pattern, package_of
from sensorpool.config.catalogs import catalog_of
from sensorpool.config.settings import EXTENSIONS, Settings
from sensorpool.config.shared import differences, shared
from sensorpool.config.variables import unknown_settings
from sensorpool.errors import ClassUnavailable, SensorpoolError
from sensorpool.instrumentation.redaction import hide_password, one_line, printable
from sensorpool.leases.redis_store import RedisStore, connect
from sensorpool.model.words import counted
from sensorpool.poke.classes import Classes
from sensorpool.poke.patches import refuse_patches
from sensorpool.publish import application, overlay, rabbitmq_probe, wire

_OTHERS = "sensorpool.checks"  # entry points: functions that take a pool, and yield findings
_FEW_FILES = 4_096
_FEW_WORKERS = 5
_FEW = 3  # classes that are named
_LONGEST = 400  # characters of a line that another process has a part in


def probe_broker(settings: Settings) -> None:
    """Check that a broker that is not the Redis of the leases takes messages, and makes the queues of the pool.

    :raises Unreachable: when it does not.
    """
    if wire.is_amqp(settings.broker):
        rabbitmq_probe.probe(settings)
    elif settings.broker != settings.redis_url and wire.is_redis(settings.broker):
        RedisStore(connect(settings.broker), url=settings.broker, namespace=settings.namespace).probe()


def unwise(settings: Settings) -> Iterator[Finding]:
    """Yield the settings that work and are unwise, each with its mend."""
    s = settings
    if s.poke_timeout > s.poke_interval:
        said = f"POKE_TIMEOUT ({s.poke_timeout:g} s) exceeds POKE_INTERVAL ({s.poke_interval:g} s): a poke that hangs "
        yield Finding("settings", "warning", f"{said}misses turns; have it below the shortest interval")
    if s.timeout < s.poke_interval:
        said = f"TIMEOUT ({s.timeout:g} s) is below POKE_INTERVAL ({s.poke_interval:g} s): it ends with the second poke"
        yield Finding("settings", "warning", said)
    if s.infra_failure_window < (least := s.lease_ttl + 3 * s.tick):
        said = f"INFRA_FAILURE_WINDOW ({s.infra_failure_window:g} s) is below LEASE_TTL and three ticks ({least:g} s), "
        said += "which count as work: an outage of ours fails sensors; have it well above"
        yield Finding("settings", "warning", said)


def of_other_packages(pool: Pool) -> Iterator[Finding]:
    """Make the checks that other packages add."""
    for name, check in extensions.load(_OTHERS).items():
        try:
            yield from check(pool)
        except Exception as error:
            yield Finding(name, "wrong", f"could not be looked over: {one_line(error)}")


def _files(_: Settings) -> Iterator[Finding]:
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    said = f"ulimit -n is {files} here; {_FEW_FILES} and more for a triggerer or worker"
    yield Finding("open files", "ok" if files >= _FEW_FILES else "warning", said)


def _names(settings: Settings) -> Iterator[Finding]:
    for name in unknown_settings():
        yield Finding("settings", "warning", f"there is no such setting: {name}")
    for said in application.ignored_variables(settings):
        yield Finding("celery", "warning", said)
    for doubt in infra_classes.doubts(infra_classes.named_by_users(settings)):
        yield Finding("settings", "wrong" if doubt.is_typo else "warning", doubt.said)


def _overlay(settings: Settings) -> Iterator[Finding]:
    """The Celery settings that a worker has which is started in this folder."""
    found = overlay.read()
    found.over(application.celery_settings(settings))
    yield Finding("celery", "ok", f"{found} (for what starts in {Path.cwd()})")
    for said in found.unknown():
        yield Finding("settings", "warning", said)


def _encoding(look: Look) -> Iterator[Finding]:
    encoding = look.database.encoding()
    if encoding not in {None, "UTF8"}:
        said = f"its encoding is {encoding}: texts that it has no letters for are refused; make it a UTF8 database"
        yield Finding("database", "warning", said)


def _eviction(look: Look) -> Iterator[Finding]:
    policy = look.leases.store.eviction_policy()
    if policy not in {None, "noeviction"}:
        said = f"it may evict leases and jobs ({policy}): maxmemory-policy noeviction"
        yield Finding("redis", "warning", said)


def _broker(look: Look) -> Iterator[Finding]:
    settings = look.settings
    if settings.broker == settings.redis_url:
        _ = look.leases
    probe_broker(settings)
    yield Finding("broker", "ok", hide_password(settings.broker))


def _workers(look: Look) -> Iterator[Finding]:
    settings, workers, pool_id = look.settings, look.workers, look.pool.pool_id.get()
    if not workers:
        start = "sensorpool standalone" if settings.embedded else "celery -A sensorpool worker"
        yield Finding("pool", "warning", f"{pool_id or 'it'} has no worker: start `{start}`")
        return
    names = ", ".join(str(worker) for worker in workers[:_FEW_WORKERS])
    more = f" and {len(workers) - _FEW_WORKERS} more" if len(workers) > _FEW_WORKERS else ""
    yield Finding("pool", "ok", f"{pool_id}: {counted(len(workers), 'worker')}: {names}{more}")
    if len(workers) > settings.shards:
        said = f"{len(workers)} workers share {counted(settings.shards, 'shard range')}, and one job works on a range: "
        yield Finding("settings", "warning", f"{said}SENSORPOOL_SHARDS={len(workers)} gives each worker one")
    for worker in workers:
        if worker.no_metrics:
            yield Finding("metrics", "warning", printable(f"{worker} serves none at {worker.no_metrics}")[:_LONGEST])


def _unequal_settings(look: Look) -> Iterator[Finding]:
    """Live workers have read other settings than these here: each of them with the first worker."""
    here, said = shared(look.settings), set[str]()
    mend = "a worker reads its settings when it starts: restart it, or have it and this command read one"
    for worker in look.workers:
        for line in differences(here, look.pool.roster.settings_of(worker.name)):
            if (name := line.partition(" ")[0]) not in said:
                said.add(name)
                told = printable(f"{worker} has read other settings: {line}"[:_LONGEST])
                yield Finding("settings", "warning", f"{told}; {mend}")
    own, ticks = look.settings.tick, [(worker.tick, str(worker)) for worker in look.workers]
    if (noted := look.pool.roster.beat_tick()) is not None:
        ticks.append((noted, "beat"))
    for tick, where in ticks:
        if tick != own:
            told = f"TICK is {own:g} here and {tick:g} at {where}: pokes come at the longer one"
            yield Finding("settings", "warning", told)
            return


def classes(settings: Settings) -> Iterator[Finding]:
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
        for package, (here, proved, found) in installed(pattern).items():
            version = here if here == proved else f"{here} (proved with {proved})"
            yield _stands_for(pattern, found, f" of {package} {version}")
    else:
        found = sorted(classes_of(pattern))
        yield _stands_for(pattern, found)
        yield from _import(allowed, found)


def _look_at_package(pattern: str) -> Finding:
    try:
        import_module(package_of(pattern))
    except (Exception, SystemExit) as error:
        return Finding("pattern", "warning", f"{pattern} enables no class: {one_line(error)}")
    return Finding("pattern", "ok", f"{pattern} enables the sensors that are defined in this package and below")


def _stands_for(pattern: str, paths: list[str], of_what: str = "") -> Finding:
    names = ", ".join([path.rpartition(".")[2] for path in paths[:_FEW]])
    more = f", and {len(paths) - _FEW} more (--json names them)" if len(paths) > _FEW else ""
    said = f"{pattern} stands for {counted(len(paths), 'class', 'es')}{of_what}: {names}{more}"
    return Finding("pattern", "ok", said, tuple(paths))


def _import(allowed: Classes, paths: Iterable[str], *, is_default: bool = False) -> Iterator[Finding]:
    """Report whether each class can be imported.

    :param is_default: whether they are a default's: then one may be missing that is of another package.
    """
    for op_classpath in paths:
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


OF_SERVERS = (
    ("database", _encoding),
    ("redis", _eviction),
    ("broker", _broker),
    ("pool", _workers),
    ("settings", _unequal_settings),
)
OF_SETTINGS = (
    ("sensor", classes),
    ("open files", _files),
    ("settings", _names),
    ("settings", unwise),
    ("celery", _overlay),
)
"""Each with the subject under which its error is told."""
