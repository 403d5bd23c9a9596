"""A Redis that answers and takes no writes is reported as such."""

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from harness.servers import Missing, RedisServer
from sensorpool import Pool
from sensorpool.admin import findings
from sensorpool.errors import Unreachable
from sensorpool.leases.lease import Acquired, Leases, leases_of
from sensorpool.leases.redis_store import RedisStore
from sensorpool.model.values import ShardRange
from tests.faults.proxy import Proxy


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A Redis that tests spoil."""
    try:
        made = RedisServer()
    except Missing as missing:
        pytest.skip(str(missing))
    with made:
        yield made


CASES = [
    (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0"), "maxmemory"),
    (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE"), "read only replica"),
    (
        ("CONFIG", "SET", "min-replicas-to-write", "1"),
        ("CONFIG", "SET", "min-replicas-to-write", "0"),
        "Not enough good replicas",
    ),
]


@pytest.mark.parametrize(("spoil", "mend", "words"), CASES, ids=["full", "replica", "lone"])
def test_what_takes_no_writes_is_named(
    server: RedisServer, make_pool: Callable[..., Pool], spoil: tuple[str, ...], mend: tuple[str, ...], words: str
) -> None:
    pool = make_pool(redis_url=server.url)
    with redis.Redis.from_url(server.url) as client:
        client.execute_command(*spoil)
        try:
            [problem] = findings.health(pool)
            found: dict[str, Any] = {each.subject: each for each in findings.doctor(pool.settings)}
        finally:
            client.execute_command(*mend)
        assert problem.startswith("Redis redis://:***@")
        assert "answers, and takes no writes: " in problem
        assert words in problem
        assert found["redis"].level == "wrong"
        assert words in found["redis"].said
        assert "takes no writes" not in "".join(findings.health(pool))
        assert client.ttl("sensorpool:{pool}:probe") <= 10


def test_one_that_does_not_answer_is_asked_once(
    make_pool: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question without an answer may take ten seconds: TLS to a server that has none."""
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and never answers
        pool = make_pool(redis_url=f"rediss://127.0.0.1:{silent.getsockname()[1]}/0")
        kept = pool.leases.store.client.connection_pool.connection_kwargs
        monkeypatch.setitem(kept, "socket_timeout", 0.5)
        started = time.monotonic()
        [problem] = findings.health(pool)
        assert time.monotonic() - started < 5
        assert "does not answer" in problem
        asked: list[str] = []
        real = RedisStore.probe
        monkeypatch.setattr(RedisStore, "probe", lambda store: asked.append("") or real(store))
        monkeypatch.setattr("sensorpool.client.pool.Pool", lambda settings: pool)
        monkeypatch.setattr(pool, "close", lambda: None)
        started = time.monotonic()
        found = list(findings.doctor(pool.settings))
        assert time.monotonic() - started < 10
    assert len(asked) == 1
    assert [each.said for each in found].count(problem) == 1


def test_a_broker_of_its_own_that_takes_no_writes_is_named(
    server: RedisServer, make_pool: Callable[..., Pool], redis_url: str
) -> None:
    pool = make_pool(redis_url=redis_url, broker_url=server.url)
    with redis.Redis.from_url(server.url) as client:
        client.config_set("min-replicas-to-write", "1")
        try:
            [problem] = findings.health(pool)
            found = {each.subject: each for each in findings.doctor(pool.settings)}
        finally:
            client.config_set("min-replicas-to-write", "0")
    assert problem.startswith("ticks have stopped: ")
    assert "answers, and takes no writes: " in problem
    assert found["broker"].level == "wrong"
    assert found["redis"].level != "wrong"


def ask_for_a_lease(leases: Leases) -> None:
    """Acquire a lease: a script."""
    held = leases.acquire(ShardRange(0, 10), "us")
    assert isinstance(held, Acquired)
    held.lease.release()


def nudge(leases: Leases) -> None:
    """Raise a flag: a pipeline."""
    leases.waking.raise_flags({ShardRange(0, 10): []})


def probe(leases: Leases) -> None:
    """Look whether it takes writes: a command."""
    leases.store.probe()


@pytest.mark.parametrize("ask", [ask_for_a_lease, nudge, probe])
def test_the_connections_to_a_primary_that_became_a_replica_are_dropped(
    server: RedisServer, make_pool: Callable[..., Pool], ask: Callable[[Leases], None]
) -> None:
    """The address leads to another server now, and the old one closes no connection."""
    with RedisServer() as other, Proxy(server.port) as proxy, redis.Redis.from_url(server.url) as client:
        with redis.Redis.from_url(other.url) as of_other:
            of_other.config_set("requirepass", server.password)
        leases = leases_of(make_pool(redis_url=proxy.url(server.url)).settings)
        ask(leases)
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        try:
            proxy.target = other.port
            with pytest.raises(Unreachable, match=r"(?i)read.?only"):
                ask(leases)
            ask(leases)
        finally:
            client.execute_command("REPLICAOF", "NO", "ONE")
            leases.store.client.close()
