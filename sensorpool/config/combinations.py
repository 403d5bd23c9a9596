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

_EXAMPLES = {
    "database_url": "postgresql://user:password@host:5432/name",
    "redis_url": "redis://:password@host:6379/0",
    "broker_url": "redis://:password@host:6379/0 or amqp://user:password@host:5672//",
    "on_settled_broker_url": "redis://:password@host:6379/0 or amqp://user:password@host:5672//",
}
URLS = tuple(_EXAMPLES)
_OF_SERVERS = ("redis_url", "broker_url", "on_settled_broker_url")
SHORTEST_TOKEN = 16  # characters
_REDIS = ("redis", "rediss", "sentinel", "unix", "memory")
_BROKERS = (*_REDIS, "amqp", "amqps", "pyamqp")


def impossible(settings: Options) -> list[str]:
    """Return the messages of the broken rules; for each URL only the first."""
    messages: dict[str, str] = {}
    for rules in (
        _names(settings),
        _secrets(settings),
        _late_task(settings),
        _spans(settings),
        _schemes(settings),
        _spellings(settings),
        _servers(settings),
    ):
        for broken, message in rules:
            name = message.split()[0]
            if broken:
                messages.setdefault(name if name.endswith("_URL") else message, message)
    return list(messages.values())


def _names(settings: Options) -> Iterator[Rule]:
    """Rules for names."""
    yield (
        settings.namespace == "results",
        "NAMESPACE must not be results: in RabbitMQ the jobs of that pool would have the name of the results of a pool "
        "without one",
    )


def _secrets(settings: Options) -> Iterator[Rule]:
    """Rules for secrets; no message has one."""
    for name, token in (("WEB_TOKEN", settings.web_token), ("WAKE_TOKEN", settings.wake_token)):
        yield (
            bool(token) and (len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable()),
            f"{name} must have {SHORTEST_TOKEN} characters at least, all of them printable ASCII",
        )
    yield (
        bool(settings.wake_token) and settings.wake_token == settings.web_token,
        "WAKE_TOKEN must be another one than WEB_TOKEN: who sends events may not see the pages",
    )


def _late_task(settings: Options) -> Iterator[Rule]:
    """Rules for the task that is sent for late conditions."""
    yield (
        bool(settings.on_late_task) and settings.broker == MEMORY and not settings.on_settled_broker_url,
        "ON_LATE_TASK needs a broker that others can reach: name one in ON_SETTLED_BROKER_URL",
    )


def _spans(settings: Options) -> Iterator[Rule]:
    """Rules for times and counts."""
    yield (
        settings.heartbeat * 2 >= settings.lease_ttl,
        f"HEARTBEAT ({settings.heartbeat:g} s) must be less than half of LEASE_TTL ({settings.lease_ttl:g} s), "
        "or one lost renewal loses the lease",
    )
    yield (
        settings.shards > settings.shard_code_upper_limit,
        f"SHARDS ({settings.shards}) must not exceed SHARD_CODE_UPPER_LIMIT ({settings.shard_code_upper_limit})",
    )
    yield (
        settings.poke_timeout * 2 > settings.job_time_limit,
        f"POKE_TIMEOUT ({settings.poke_timeout:g} s) must be at most half of JOB_TIME_LIMIT "
        f"({settings.job_time_limit:g} s), or a slow poke ends its whole job",
    )
    yield (
        settings.tick > settings.poke_interval,
        f"TICK ({settings.tick:g} s) must not exceed POKE_INTERVAL ({settings.poke_interval:g} s), "
        "or the default interval cannot be kept",
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
    given = {name: str(getattr(settings, name)) for name in URLS}
    urls = {name: each_broker(url) if name.endswith("broker_url") else [url] for name, url in given.items()}
    for name, each in urls.items():
        yield (
            any(map(is_half_quoted, each)),
            f"{name.upper()} has an @ after its host: quote the password's (@ is %40, / is %2F, # is %23)",
        )
    for name in _OF_SERVERS:
        yield (
            any(map(has_no_number, urls[name])),
            f"{name.upper()} must end in the number of a Redis database, like redis://localhost:6379/0",
        )
    for name in _OF_SERVERS:
        unread = next(filter(None, map(sentinel.problem, urls[name])), "")
        yield bool(unread), f"{name.upper()} has {unread}: write {sentinel.EXAMPLE}"
        odd = next(filter(None, map(odd_option, urls[name])), "")
        yield bool(odd), f"{name.upper()} has {odd}"
    for name, example in _EXAMPLES.items():
        yield (
            any(map(has_odd_address, urls[name])),
            f"{name.upper()} has no number from 1 to 65535 for a port, or half a bracket: write {example} "
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
