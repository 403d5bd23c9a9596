"""Rules for settings: for each URL, and for settings that contradict each other. Each rule has a one-line message."""

from collections.abc import Iterator

from sensorpool.config.defaults import MEMORY
from sensorpool.config.options import Options
from sensorpool.model import sentinel
from sensorpool.model.urls import (
    each_broker,
    has_no_number,
    has_odd_address,
    has_scheme,
    is_half_quoted,
    odd_option,
)

Rule = tuple[bool, str]
"""Whether the rule is broken, and its message, which begins with the setting's name."""

_REDIS_EXAMPLE = "redis://:password@host:6379/0"
_BROKER_EXAMPLE = f"{_REDIS_EXAMPLE} or amqp://user:password@host:5672//"
_EXAMPLES = {
    "database_url": "postgresql://user:password@host:5432/name",
    "redis_url": _REDIS_EXAMPLE,
    "broker_url": _BROKER_EXAMPLE,
    "on_settled_broker_url": _BROKER_EXAMPLE,
}
URLS = tuple(_EXAMPLES)
_OF_SERVERS = ("redis_url", "broker_url", "on_settled_broker_url")
SHORTEST_TOKEN = 16  # characters
_REDIS = ("redis", "rediss", "sentinel", "unix", "memory")
_BROKERS = (*_REDIS, "amqp", "amqps", "pyamqp")


def impossible(settings: Options) -> list[str]:
    """Return the messages of the broken rules; for each URL only the first."""
    messages: dict[str, str] = {}
    for rules in (_values(settings), _schemes(settings), _spellings(settings), _servers(settings)):
        for broken, message in rules:
            name = message.split()[0]
            if broken:
                messages.setdefault(name if name.endswith("_URL") else message, message)
    return list(messages.values())


def _values(s: Options) -> Iterator[Rule]:
    """Rules for times, counts and secrets; no message has a secret."""
    yield (
        s.heartbeat * 2 >= s.lease_ttl,
        f"HEARTBEAT ({s.heartbeat:g} s) must be less than half of LEASE_TTL ({s.lease_ttl:g} s), "
        "or one lost renewal loses the lease",
    )
    yield (
        s.shards > s.shard_code_upper_limit,
        f"SHARDS ({s.shards}) must not exceed SHARD_CODE_UPPER_LIMIT ({s.shard_code_upper_limit})",
    )
    yield (
        s.poke_timeout * 2 > s.job_time_limit,
        f"POKE_TIMEOUT ({s.poke_timeout:g} s) must be at most half of JOB_TIME_LIMIT ({s.job_time_limit:g} s), "
        "or a slow poke ends its whole job",
    )
    yield (
        s.tick > s.poke_interval,
        f"TICK ({s.tick:g} s) must not exceed POKE_INTERVAL ({s.poke_interval:g} s), "
        "or the default interval cannot be kept",
    )
    for name, token in (("WEB_TOKEN", s.web_token), ("WAKE_TOKEN", s.wake_token)):
        yield (
            bool(token) and (len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable()),
            f"{name} must have {SHORTEST_TOKEN} characters at least, all of them printable ASCII",
        )
    yield (
        bool(s.wake_token) and s.wake_token == s.web_token,
        "WAKE_TOKEN must be another one than WEB_TOKEN: who sends events may not see the pages",
    )


def _schemes(settings: Options) -> Iterator[Rule]:
    """Rules for the type of server that a URL may name."""
    yield (
        bool(settings.database_schema) and not settings.database_url.startswith("postgres"),
        "DATABASE_SCHEMA is for PostgreSQL only: leave it out, or name a PostgreSQL in DATABASE_URL",
    )
    yield (
        settings.database_schema == "information_schema" or settings.database_schema.startswith("pg_"),
        f"DATABASE_SCHEMA must not be {settings.database_schema}, which is PostgreSQL's own: name another one",
    )
    yield (
        "://" not in settings.database_url,
        "DATABASE_URL must be a SQLAlchemy URL like postgresql+psycopg://user:password@host/name",
    )
    yield (
        not has_scheme(settings.redis_url, *_REDIS),
        "REDIS_URL must begin with redis://, rediss://, sentinel://, unix:// or be memory://",
    )
    for name in ("broker_url", "on_settled_broker_url"):
        url = str(getattr(settings, name))
        yield (
            bool(url) and not has_scheme(url, *_BROKERS),
            f"{name.upper()} must begin with redis://, rediss://, sentinel://, amqp:// or amqps://, or be memory://",
        )


def _spellings(settings: Options) -> Iterator[Rule]:
    """Rules for how a URL is written."""
    for name, example in _EXAMPLES.items():
        given, shown = str(getattr(settings, name)), name.upper()
        urls = each_broker(given) if name.endswith("broker_url") else [given]
        yield (
            any(map(is_half_quoted, urls)),
            f"{shown} has an @ after its host: quote the password's (@ is %40, / is %2F, # is %23)",
        )
        if name in _OF_SERVERS:
            yield (
                any(map(has_no_number, urls)),
                f"{shown} must end in the number of a Redis database, like redis://localhost:6379/0",
            )
            unread = next(filter(None, map(sentinel.problem, urls)), "")
            yield bool(unread), f"{shown} has {unread}: write {sentinel.EXAMPLE}"
            odd = next(filter(None, map(odd_option, urls)), "")
            yield bool(odd), f"{shown} has {odd}"
        yield (
            any(map(has_odd_address, urls)),
            f"{shown} has no number from 1 to 65535 for a port, or half a bracket: write {example} "
            "(in a password @ is %40, / is %2F, # is %23)",
        )


def _servers(settings: Options) -> Iterator[Rule]:
    """Rules for a pool that lives in one process."""
    yield (
        settings.broker == MEMORY != settings.redis_url and bool(settings.broker_url),
        "BROKER_URL memory:// serves one process only, so REDIS_URL must be memory:// too",
    )
    yield (
        settings.redis_url == MEMORY and settings.broker != MEMORY,
        "REDIS_URL is memory://, which serves one process only, but BROKER_URL is shared: "
        "name the Redis that holds the leases",
    )
    yield (
        bool(settings.on_late_task) and settings.broker == MEMORY and not settings.on_settled_broker_url,
        "ON_LATE_TASK needs a broker that others can reach: name one in ON_SETTLED_BROKER_URL",
    )
