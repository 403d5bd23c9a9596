"""Checks of an installation, which only `doctor` makes: its settings, its servers, and the workers' settings."""

import resource
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from sensorpool.admin import allowed_classes
from sensorpool.admin.look import Finding, Look
from sensorpool.client.pool import Pool
from sensorpool.config import extensions
from sensorpool.config.defaults import INFRA_FAILURES
from sensorpool.config.origins import unknown_settings
from sensorpool.config.settings import Settings
from sensorpool.config.shared import differences, shared
from sensorpool.instrumentation.redaction import hide_password, one_line, printable
from sensorpool.leases.redis_store import RedisStore, connect
from sensorpool.model.words import counted, nearest
from sensorpool.publish import application, overlay, rabbitmq_probe, wire

_OTHERS = "sensorpool.checks"  # entry points: functions that take a pool, and yield findings
_FEW_FILES = 4_096
_FEW_WORKERS = 5
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
    for name in settings.infra_failures:
        if name not in INFRA_FAILURES:  # a process may lack a default
            yield from doubt_about_exception(name)


def doubt_about_exception(name: str) -> Iterator[Finding]:
    """Yield why nothing counts as an exception of ``infra_failures``. Its module is imported."""
    module, _, last = name.rpartition(".")
    cls = None
    try:
        found = _module_or_class(module)
        cls = getattr(found, last, None)
    except Exception as error:
        said, is_wrong = f"{name} cannot be imported here, so nothing counts as it: {one_line(error)}", False
    else:
        if cls is None:
            said, is_wrong = f"{module} has no {last}{nearest(last, dir(found))}: write it as 'pkg.mod.Class'", True
        elif not (isinstance(cls, type) and issubclass(cls, BaseException)):
            said, is_wrong = f"{name} is no exception class", True
        elif (own := f"{cls.__module__}.{cls.__qualname__}") != name:
            said, is_wrong = f"nothing counts as {name}: its own name is {own}, write that", False
        else:
            return
    yield Finding("settings", "wrong" if is_wrong else "warning", f"INFRA_FAILURES: {said}")


def _module_or_class(path: str) -> Any:
    try:
        return import_module(path)
    except ModuleNotFoundError as error:
        module, _, last = path.rpartition(".")
        if not module or not path.startswith(f"{error.name}"):
            raise
        try:
            return getattr(_module_or_class(module), last)
        except AttributeError:
            raise error from None


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


OF_SERVERS = (
    ("database", _encoding),
    ("redis", _eviction),
    ("broker", _broker),
    ("pool", _workers),
    ("settings", _unequal_settings),
)
OF_SETTINGS = (
    ("sensor", allowed_classes.look),
    ("open files", _files),
    ("settings", _names),
    ("settings", unwise),
    ("celery", _overlay),
)
"""Each with the subject under which its error is told."""
