"""Doctor: look an installation over, line by line, and say what mends it."""

import resource
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from sensorpool import __version__, extensions, look, migrate, wire
from sensorpool.broker import Connection
from sensorpool.errors import SensorpoolError
from sensorpool.poke.classes import Classes
from sensorpool.pool import Pool
from sensorpool.redaction import hide_password, one_line
from sensorpool.settings import Settings, unknown_variables

CHECKS = "sensorpool.checks"  # entry points: functions that take a pool, and yield findings
_FEW_FILES = 4_096

Verdict = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of what the doctor says."""

    subject: str
    verdict: Verdict
    said: str


def examine(settings: Settings) -> Iterator[Finding]:
    """Look everything over; nothing that is wrong ends it early."""
    pool = Pool(settings)
    yield from _look_at_servers(pool)
    yield from _look_at_classes(settings)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    verdict: Verdict = "ok" if files >= _FEW_FILES else "warning"
    yield Finding("open files", verdict, f"ulimit -n is {files} here; {_FEW_FILES} and more for a triggerer or worker")
    for name in unknown_variables():
        yield Finding("settings", "warning", f"there is no such setting: {name}")
    for name, check in extensions.load(CHECKS).items():
        try:
            yield from check(pool)
        except Exception as error:
            yield Finding(name, "wrong", f"could not be looked over: {one_line(error)}")
    pool.close()


def _look_at_servers(pool: Pool) -> Iterator[Finding]:
    where = hide_password(pool.settings.database_url)
    try:
        migrate.check(pool.database, __version__)
        yield Finding("database", "ok", f"{where}: the schema is {migrate.head()}")
    except SensorpoolError as error:
        yield Finding("database", "wrong", str(error))
    try:
        policy = pool.leases.eviction_policy()
        pool.leases.ping()
        if policy in {None, "noeviction"}:
            yield Finding("redis", "ok", hide_password(pool.settings.redis_url))
        else:
            yield Finding("redis", "warning", f"it may evict leases and jobs ({policy}): maxmemory-policy noeviction")
    except SensorpoolError as error:
        yield Finding("redis", "wrong", str(error))
    broker = pool.settings.broker
    try:
        with Connection(wire.broker_url(broker), connect_timeout=5) as connection:
            connection.ensure_connection(max_retries=1, timeout=5)
        yield Finding("broker", "ok", hide_password(broker))
    except Exception as error:
        yield Finding("broker", "wrong", f"{hide_password(broker)} does not answer: {one_line(error)}")
    problems = look.health(pool)
    yield from (Finding("ticks", "wrong", problem) for problem in problems)
    if not problems:
        yield Finding("ticks", "ok", f"all {len(pool.ranges)} shard ranges are looked at")


def _look_at_classes(settings: Settings) -> Iterator[Finding]:
    classes = Classes(settings.sensors_enabled)
    for op_classpath in settings.sensors_enabled:
        try:
            found = classes.find(op_classpath)
        except SensorpoolError as error:
            yield Finding("sensor", "warning", str(error))
            continue
        yield Finding("sensor", "ok", f"{op_classpath}: {found.way.value}")
