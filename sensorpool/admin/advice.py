"""The advice of `sensorpool doctor` on settings that work but are unwise. Pure."""

from collections.abc import Iterator

from sensorpool.config.settings import Settings

_HOUR = 3_600.0


def unwise(settings: Settings) -> list[str]:
    """Return a line for each unwise setting, with its mend."""
    return list(_unwise(settings))


def _unwise(s: Settings) -> Iterator[str]:
    if s.tick < 0.5:
        yield f"TICK is {s.tick:g} s: {s.shards / s.tick:,.0f} jobs a second are sent; 1 s and more is usual"
    if s.poke_timeout > s.poke_interval:
        yield (
            f"POKE_TIMEOUT ({s.poke_timeout:g} s) exceeds POKE_INTERVAL ({s.poke_interval:g} s): "
            "a poke that hangs misses turns; have it below the shortest interval"
        )
    if s.poke_timeout < 1:
        yield f"POKE_TIMEOUT is {s.poke_timeout:g} s: a poke that takes longer never lands; 10 s is usual"
    if s.timeout < s.poke_interval:
        yield f"TIMEOUT ({s.timeout:g} s) is below POKE_INTERVAL ({s.poke_interval:g} s): it ends with the second poke"
    if s.heartbeat < 0.5:
        yield f"HEARTBEAT is {s.heartbeat:g} s: Redis is asked so often by each worker; 5 s is usual"
    if s.lease_ttl > 600:
        yield f"LEASE_TTL is {s.lease_ttl:g} s: for so long a dead worker's groups are not poked; 30 s is usual"
    if s.rescue_interval > 600:
        yield f"RESCUE_INTERVAL is {s.rescue_interval:g} s: work that a dead process left half done waits so long"
    if s.rescue_interval < 1:
        yield f"RESCUE_INTERVAL is {s.rescue_interval:g} s: the database is searched so often; 15 s is usual"
    if s.retention < _HOUR:
        yield f"RETENTION is {s.retention:g} s: a waiter away for longer gets no result; an hour or more is usual"
    if s.infra_failure_window < (least := s.lease_ttl + 3 * s.tick):
        yield (
            f"INFRA_FAILURE_WINDOW ({s.infra_failure_window:g} s) is below LEASE_TTL and three ticks ({least:g} s), "
            "which count as work: an outage of ours fails sensors; have it well above"
        )
    if s.child_max_age < 60:
        yield f"CHILD_MAX_AGE is {s.child_max_age:g} s: processes are started all the time; 4 hours are usual"
    if s.job_time_limit > _HOUR:
        yield f"JOB_TIME_LIMIT is {s.job_time_limit:g} s: a job that hangs keeps its range for so long; 300 s is usual"
    if s.poke_memory < 256:
        yield f"POKE_MEMORY is {s.poke_memory} MB: a class's imports alone may take more; 2048 is usual"
    if s.shards > 1_024:
        yield f"SHARDS is {s.shards:,}: each is a job a tick, of 5 ms; one for each worker process will do"
    for name in ("poke_concurrency", "hanging_concurrency"):
        if (value := getattr(s, name)) > 4_096:
            yield f"{name.upper()} is {value:,}: so many threads in one process; have more workers instead"
