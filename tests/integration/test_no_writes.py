"""A Redis that answers and takes no writes is reported as such."""

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from harness.servers import Missing, RedisServer
from sensorpool import Pool
from sensorpool.admin import doctor, health
from sensorpool.leases.redis_store import RedisStore


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
            [problem] = health.health(pool)
            found: dict[str, Any] = {each.subject: each for each in doctor.examine(pool.settings)}
        finally:
            client.execute_command(*mend)
        assert problem.startswith("Redis redis://:***@")
        assert "answers, and takes no writes: " in problem
        assert words in problem
        assert found["redis"].level == "wrong"
        assert words in found["redis"].said
        assert "takes no writes" not in "".join(health.health(pool))
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
        [problem] = health.health(pool)
        assert time.monotonic() - started < 5
        assert "does not answer" in problem
        asked: list[str] = []
        real = RedisStore.probe
        monkeypatch.setattr(RedisStore, "probe", lambda store: asked.append("") or real(store))
        monkeypatch.setattr(doctor, "Pool", lambda settings: pool)
        monkeypatch.setattr(pool, "close", lambda: None)
        started = time.monotonic()
        found = {each.subject: each for each in doctor.examine(pool.settings)}
        assert time.monotonic() - started < 10
    assert len(asked) == 1
    assert {found[name].said for name in ("redis", "broker", "ticks")} == {problem}


def test_a_broker_of_its_own_that_takes_no_writes_is_named(
    server: RedisServer, make_pool: Callable[..., Pool], redis_url: str
) -> None:
    pool = make_pool(redis_url=redis_url, broker_url=server.url)
    with redis.Redis.from_url(server.url) as client:
        client.config_set("min-replicas-to-write", "1")
        try:
            [problem] = health.health(pool)
            found = {each.subject: each for each in doctor.examine(pool.settings)}
        finally:
            client.config_set("min-replicas-to-write", "0")
    assert problem.startswith("ticks have stopped: ")
    assert "answers, and takes no writes: " in problem
    assert found["broker"].level == "wrong"
    assert found["redis"].level != "wrong"
