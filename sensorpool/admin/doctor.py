"""Doctor: checks an installation, and names the mend for each finding."""

import resource
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from sensorpool.admin import advice, allowed_classes, health, problems
from sensorpool.admin.broker import probe_broker
from sensorpool.client.pool import Pool
from sensorpool.config import extensions, infra_classes
from sensorpool.config.defaults import PREFIX
from sensorpool.config.settings import Settings
from sensorpool.config.shared import differences, shared
from sensorpool.config.variables import unknown_settings
from sensorpool.config.version import __version__
from sensorpool.errors import SensorpoolError, SettingsError, Unreachable
from sensorpool.instrumentation.redaction import hide_password, one_line, printable
from sensorpool.model.finding import Finding, Level
from sensorpool.model.terms import LiveWorker
from sensorpool.model.words import counted
from sensorpool.publish import application, overlay, wire
from sensorpool.publish.broker import Connection
from sensorpool.store import migrate

CHECKS = "sensorpool.checks"  # entry points: functions that take a pool, and yield findings
_FEW_FILES = 4_096
_FEW_WORKERS = 5
_LONGEST = 400  # characters of a line that another process has a part in
_PATIENCE = 5.0  # seconds for the broker
_TOGETHER = (
    {"database_url", "database_schema"},
    {"redis_url", "broker_url", "on_settled_broker_url"},
    {"heartbeat", "lease_ttl"},
    {"poke_timeout", "job_time_limit"},
    {"tick", "poke_interval"},
    {"shards", "shard_code_upper_limit"},
)  # settings that contradict each other: an error of one may come from another of its set
_NOWHERE = "sqlite://"  # replaces a database URL that is wrong


def load() -> tuple[Settings | None, list[Finding], frozenset[str]]:
    """Read the settings; replace wrong ones by their defaults, so that all else can be checked.

    :returns: the settings (None: they cannot be read at all), the findings, and the names of the replaced settings.
    """
    wrong: list[str] = []
    names: set[str] = set()
    while True:
        given = {name: Settings.model_fields[name].get_default() for name in names}
        if "database_url" in names:
            given["database_url"] = _NOWHERE
        try:
            return Settings.load(**given), [Finding("settings", "wrong", line) for line in wrong], frozenset(names)
        except SettingsError as error:
            lines = str(error).splitlines()
        wrong += lines
        more = {line.removeprefix(PREFIX).split()[0].strip(":").lower() for line in lines if line.startswith(PREFIX)}
        for together in _TOGETHER:
            if more & together:
                more |= together
        more = more & Settings.model_fields.keys() - names
        if not more:
            return None, [Finding("settings", "wrong", line) for line in wrong], frozenset(names)
        names |= more


def examine(settings: Settings, without: Collection[str] = frozenset()) -> Iterator[Finding]:
    """Run all checks; a failure of one does not end the others.

    :param without: names of wrong settings, which `load` has reported: checks that need them are left out.
    """
    try:
        pool = Pool(settings)
    except SensorpoolError as error:
        yield Finding("database", "wrong", str(error))
        settings = settings.model_copy(update={"database_url": _NOWHERE, "database_schema": ""})
        pool, without = Pool(settings), {*without, "database_url"}
    yield from _look_at_servers(pool, without)
    yield from allowed_classes.look(pool)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    level: Level = "ok" if files >= _FEW_FILES else "warning"
    yield Finding("open files", level, f"ulimit -n is {files} here; {_FEW_FILES} and more for a triggerer or worker")
    for name in unknown_settings():
        yield Finding("settings", "warning", f"there is no such setting: {name}")
    for said in advice.unwise(settings):
        yield Finding("settings", "warning", said)
    for said in application.ignored_variables(settings):
        yield Finding("celery", "warning", said)
    for doubt in infra_classes.doubts(infra_classes.named_by_users(settings)):
        yield Finding("settings", "wrong" if doubt.is_typo else "warning", doubt.said)
    yield from _look_at_overlay(None if {"redis_url", "broker_url"} & set(without) else settings)
    checks = extensions.load(CHECKS) if "database_url" not in without else {}
    for name, check in checks.items():
        try:
            yield from check(pool)
        except Exception as error:
            yield Finding(name, "wrong", f"could not be looked over: {one_line(error)}")
    pool.close()


def _compare_settings(pool: Pool, workers: Collection[LiveWorker], without: Collection[str]) -> Iterator[Finding]:
    """Report which settings live workers have read otherwise than they are here, each with the first worker."""
    said: set[str] = set()
    try:
        here = {name: value for name, value in shared(pool.settings).items() if name not in without}
        for worker in workers:
            for line in differences(here, pool.roster.settings_of(worker.name)):
                if (name := line.partition(" ")[0]) not in said:
                    said.add(name)
                    mend = (
                        "a worker reads its settings when it starts: restart it, or have it and this command read one"
                    )
                    yield Finding(
                        "settings",
                        "warning",
                        printable(f"{worker} has read other settings: {line}"[:_LONGEST]) + f"; {mend}",
                    )
    except SensorpoolError:
        return  # the checks of Redis and of Airflow report it


def _look_at_overlay(settings: Settings | None) -> Iterator[Finding]:
    """Report which Celery settings a worker has that is started in this folder.

    :param settings: None if its broker is not known.
    """
    try:
        found = overlay.read()
        if settings is not None:
            found.over(wire.celery_settings(settings))
        found.refuse()
    except SettingsError as error:
        yield Finding("celery", "wrong", str(error))
        return
    yield Finding("celery", "ok", f"{found} (for what starts in {Path.cwd()})")
    for said in found.unknown():
        yield Finding("settings", "warning", said)


def _look_at_servers(pool: Pool, without: Collection[str]) -> Iterator[Finding]:
    if "database_url" not in without:
        yield from _look_at_database(pool)
    away = None
    if "redis_url" not in without:
        away = health.no_redis(pool)
        yield _look_at_redis(pool, away)
        yield _look_at_broker(pool, away)
    if {"database_url", "redis_url"} & set(without):
        return  # the other checks need both
    yield from (Finding("on_settled", "wrong", said) for said in problems.untold(pool))
    if away is None:
        yield from _look_at_workers(pool, without)
    wrong = health.ticks(pool, away)
    yield from (Finding("ticks", "wrong", problem) for problem in wrong)
    with suppress(SensorpoolError):
        if away is None:
            yield from (Finding("worker", "wrong", each) for each in health.unpokeable(pool))
    if not wrong:
        yield Finding("ticks", "ok", f"all {len(pool.ranges)} shard ranges are looked at")


def _look_at_database(pool: Pool) -> Iterator[Finding]:
    where = hide_password(pool.settings.database_url)
    try:
        migrate.check(pool.database, __version__)
        yield Finding("database", "ok", f"{where}: the schema is {migrate.head()}")
        encoding = pool.database.encoding()
        if encoding not in {None, "UTF8"}:
            said = f"its encoding is {encoding}: texts that it has no letters for are refused; make it a UTF8 database"
            yield Finding("database", "warning", said)
    except SensorpoolError as error:
        yield Finding("database", "wrong", str(error))


def _look_at_redis(pool: Pool, away: Unreachable | None) -> Finding:
    if away is not None:
        return Finding("redis", "wrong", str(away))
    policy = pool.leases.store.eviction_policy()
    if policy in {None, "noeviction"}:
        return Finding("redis", "ok", hide_password(pool.settings.redis_url))
    return Finding("redis", "warning", f"it may evict leases and jobs ({policy}): maxmemory-policy noeviction")


def _look_at_broker(pool: Pool, away: Unreachable | None) -> Finding:
    settings = pool.settings
    if away is not None and settings.broker == settings.redis_url:
        return Finding("broker", "wrong", str(away))
    where, url = hide_password(settings.broker), wire.broker_url(settings.broker)
    bounded = dict.fromkeys(("socket_timeout", "socket_connect_timeout"), _PATIENCE)
    try:
        probe_broker(pool.settings)
        if not wire.is_amqp(settings.broker):
            options = bounded if wire.is_redis(settings.broker) else {}
            with Connection(url, connect_timeout=_PATIENCE, transport_options=options) as connection:
                connection.ensure_connection(max_retries=1, timeout=_PATIENCE)
    except Unreachable as error:
        return Finding("broker", "wrong", str(error))
    except Exception as error:
        return Finding("broker", "wrong", f"{where} does not answer: {one_line(error)}")
    return Finding("broker", "ok", where)


def _look_at_workers(pool: Pool, without: Collection[str]) -> Iterator[Finding]:
    """Report the live workers; `health` reports differences to the settings here that matter."""
    try:
        workers = pool.workers()
    except SensorpoolError:
        return  # the checks of Redis and the database have reported it
    names = ", ".join(str(worker) for worker in workers[:_FEW_WORKERS])
    if not workers:
        start = "sensorpool standalone" if pool.settings.embedded else "celery -A sensorpool worker"
        yield Finding("pool", "warning", f"{pool.pool_id.get() or 'it'} has no worker: start `{start}`")
        return
    more = f" and {len(workers) - _FEW_WORKERS} more" if len(workers) > _FEW_WORKERS else ""
    yield Finding("pool", "ok", f"{pool.pool_id.get()}: {counted(len(workers), 'worker')}: {names}{more}")
    if len(workers) > (shards := pool.settings.shards):
        yield Finding(
            "settings",
            "warning",
            f"{len(workers)} workers share {counted(shards, 'shard range')}, and one job works on a range: "
            f"SENSORPOOL_SHARDS={len(workers)} gives each worker one",
        )
    for worker in workers:
        if worker.no_metrics:
            yield Finding("metrics", "warning", printable(f"{worker} serves none at {worker.no_metrics}")[:_LONGEST])
    yield from _compare_settings(pool, workers, without)
    own, ticks = pool.settings.tick, [(worker.tick, str(worker)) for worker in workers]
    with suppress(SensorpoolError):
        if (noted := pool.roster.beat_tick()) is not None:
            ticks.append((noted, "beat"))
    for tick, where in ticks:
        if tick != own:
            said = f"TICK is {own:g} here and {tick:g} at {where}: pokes come at the longer one"
            yield Finding("settings", "warning", said)
            return
