"""Everything in Redis is disposable: a garbled, lost or unreachable key costs time and nothing else."""

import socket
import time
from typing import Any

import fakeredis
import pytest

from sensorpool.errors import SettingsError, Unreachable
from sensorpool.leases.background_notes import InBackground
from sensorpool.leases.lease import Acquired, Lease, Leases
from sensorpool.leases.range_state import RangeState
from sensorpool.leases.redis_store import RedisStore, connect
from sensorpool.leases.redis_store import range_key as key
from sensorpool.model.values import ShardRange
from tests.support.builders import START

RANGE = ShardRange(0, 1_250)


GARBLED_STATES = [
    "nonsense",
    "null",
    "7",
    '"last"',
    "[]",
    '{"last": null}',
    '{"last": "x"}',
    '{"last": NaN}',
    '{"last": 1e999}',
    '{"left": 5}',
    '{"left": [[]]}',
    '{"recent": [1e999]}',
    "[" * 100_000,
    *('{"left": {"1": "x"}}', '{"lag_ms": "x"}', '{"groups": []}', '{"recent": [-1]}', '{"left": {"x": 1}}'),
]


def _begins_anew(leases: Leases) -> None:
    """Check that a job finds what is not ours, and that the next one finds nothing."""
    with pytest.raises(Unreachable, match="values of others for range 0-1250: they are deleted"):
        leases.acquire(RANGE, "one")
    held = leases.acquire(RANGE, "two")
    assert isinstance(held, Acquired)
    assert (held.state, held.struck, held.woken, held.background) == (RangeState(), [], [], InBackground())


@pytest.mark.parametrize("garbled", GARBLED_STATES, ids=lambda text: text[:20])
def test_a_garbled_state_is_dropped_with_its_range(client: Any, garbled: str) -> None:
    leases = Leases(RedisStore(client), lease_ttl=60)
    client.set(key(RANGE, "state"), garbled)
    client.set(key(RANGE, "note"), "[1]")
    client.hset(key(RANGE, "background"), "somebody", "1 [[2],[[3],0,0,0]]")
    client.sadd(key(RANGE, "woken"), "4")
    assert leases.look([RANGE]) == [(None, RangeState())]
    _begins_anew(leases)


def test_a_state_of_another_version_is_read_as_far_as_it_is_known(client: Any) -> None:
    client.set(key(RANGE, "state"), f'{{"last": {START}, "left": {{"1": 5}}, "tomorrow": {{}}}}')
    held = Leases(RedisStore(client), lease_ttl=60).acquire(RANGE, "one")
    assert isinstance(held, Acquired)
    assert held.state == RangeState(last=START, left={1: 5})


@pytest.mark.parametrize("name", ["lease", "state", "note", "background", "woken"])
def test_a_key_of_another_type_costs_its_range_a_job(client: Any, name: str) -> None:
    client.zadd(key(RANGE, name), {"foreign": 1})
    _begins_anew(Leases(RedisStore(client), lease_ttl=60))


@pytest.mark.parametrize(
    "garbled", ["nonsense", "7", "null", '["x"]', "[[]]", "[1e999]", "[" * 100_000], ids=lambda t: t[:20]
)
def test_a_garbled_note_blames_nobody(client: Any, garbled: str) -> None:
    client.set(key(RANGE, "note"), garbled)
    _begins_anew(Leases(RedisStore(client), lease_ttl=60))


@pytest.mark.parametrize("text", ["", "1", "x [[],[[],0,0,0]]", "1 {}", "1 [[], [], 0]", '1 [["a"],[[],0,0,0]]'])
def test_a_garbled_note_of_pokes_outside_of_jobs_is_dropped(client: Any, text: str) -> None:
    leases = Leases(RedisStore(client), lease_ttl=60)
    client.hset(key(RANGE, "background"), "somebody", text)
    _begins_anew(leases)
    client.hset(key(RANGE, "background"), "somebody", "1 {}")
    assert leases.isolated([RANGE]) == [[]]


def test_a_holder_without_redis_trusts_itself_until_its_deadline(server: fakeredis.FakeServer, client: Any) -> None:
    leases = Leases(RedisStore(client), lease_ttl=60)
    held = leases.acquire(RANGE, "one")
    assert isinstance(held, Acquired)
    server.connected = False
    assert held.lease.extend()
    assert held.lease.is_ours()
    past = Lease(leases, RANGE, "one", time.monotonic() - 0.001)
    assert not past.is_ours()
    assert not past.extend()
    held.lease.release()  # the lease expires by itself
    assert not held.lease.is_ours()


def test_a_flushed_redis_ends_a_lease_at_the_next_heartbeat(client: Any) -> None:
    held = Leases(RedisStore(client), lease_ttl=60).acquire(RANGE, "one")
    assert isinstance(held, Acquired)
    client.flushall()
    assert held.lease.is_ours()
    assert not held.lease.extend()
    assert not held.lease.is_ours()


@pytest.fixture
def closed_port() -> int:
    """A port on which no server listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_an_unreachable_redis_is_said_in_one_line(closed_port: int) -> None:
    url = f"redis://:hunter2@127.0.0.1:{closed_port}/0"
    leases = Leases(RedisStore(connect(url), url=url), lease_ttl=60)
    lease = Lease(leases, RANGE, "one", time.monotonic() + 60)
    for call in (
        lambda: leases.acquire(RANGE, "one"),
        lambda: leases.waking.raise_flags({RANGE: []}),
        lambda: leases.look([RANGE]),
        lambda: leases.store.probe(),
        lambda: leases.poke_log.records(RANGE),
        lambda: lease.put_in_flight([1]),
        lambda: lease.finish(RangeState()),
    ):
        with pytest.raises(Unreachable) as caught:
            call()
        message = str(caught.value)
        assert message.startswith(f"Redis redis://:***@127.0.0.1:{closed_port}/0 does not answer: ")
        assert len(message.splitlines()) == 1
        assert "hunter2" not in message
    assert lease.extend()
    assert leases.store.eviction_policy() is None


def test_a_malformed_redis_url_is_a_mistake_in_the_settings() -> None:
    with pytest.raises(SettingsError, match=r"^SENSORPOOL_REDIS_URL: [^\n]+$"):
        connect("redis://host:port/0")
