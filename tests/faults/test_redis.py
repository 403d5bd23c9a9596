"""Faults 12-17 and 24: Redis loses all keys, goes away, stops answering, is full, fails over. Only time is lost."""

import time

import redis

from harness.servers import RedisServer
from harness.until import until
from tests.faults.stand import Stand
from tests.faults.trial import Trial, lasts, outage


def pokes_since(trial: Trial, since: float) -> int:
    """Return how many pokes of this trial began since a time."""
    return sum(1 for some in trial.pokes().values() for poke in some if poke.at > since)


def test_flushed_in_mid_run(stand: Stand) -> None:
    for trial in stand.trials("12 Redis FLUSHALL", full=50):
        with trial.fault():
            for _ in range(3):
                assert stand.service.pool.leases.store.client.dbsize(), "there is nothing to lose"
                stand.service.pool.leases.store.client.flushall()
                flushed = time.time()
                until("pokes after it", lambda trial=trial, flushed=flushed: trial.is_poked(flushed))
        trial.end()


def test_restarted(stand: Stand, redis_server: RedisServer) -> None:
    for trial in stand.trials("13 Redis killed and started", full=20):
        with trial.fault():
            broken = stand.redis.broken_off
            redis_server.kill()
            redis_server.start()
            until("the service to notice", lambda before=broken: stand.redis.broken_off > before)
        trial.end()


def test_down(stand: Stand) -> None:
    """Row 24 as well: the database can be reached, but no group is poked, settled or timed out without a lease."""
    for trial in stand.trials("14 Redis down (24: the database is not)", full=3):
        with trial.fault():
            broken = stand.redis.broken
            stand.redis.refuse()
            assert stand.redis.broken > broken, "no connection was there to be broken"
            lasts(outage(8.0))
            down = time.time()
            lasts(2.0)
            assert pokes_since(trial, down) == 0, "no lease, no poke"
            stand.redis.heal()
        trial.end()


def test_half_open(stand: Stand) -> None:
    for trial in stand.trials("15 Redis a black hole (half-open connections)", full=3):
        with trial.fault():
            kept_back = stand.redis.kept_back
            stand.redis.swallow()
            lasts(outage(5.0))
            assert stand.redis.kept_back > kept_back, "nobody asked it anything"
            stand.redis.reset()
            stand.redis.heal()
        trial.end()


def test_out_of_memory(stand: Stand) -> None:
    for trial in stand.trials("16 Redis out of memory", full=5):
        client = stand.service.pool.leases.store.client
        with trial.fault():
            refused = _refused_for_want_of_memory(client)
            client.config_set("maxmemory", "1")
            lasts(outage(4.0))
            assert _refused_for_want_of_memory(client) > refused, "nobody wanted to write"
            client.config_set("maxmemory", "0")
        trial.end()


def test_failover_to_a_replica_without_the_lease(stand: Stand) -> None:
    """The replica is empty: it has no lease, no state, no queue."""
    for trial in stand.trials("17 Redis fails over to one that knows nothing", full=10):
        direct = stand.service.pool.leases.store.client
        with RedisServer() as replica, trial.fault():
            before = stand.redis.target
            password = direct.connection_pool.connection_kwargs["password"]
            with redis.Redis.from_url(replica.url) as client:
                client.config_set("requirepass", password)
            stand.redis.target = replica.port
            stand.redis.reset()
            switched = time.time()
            until("pokes by the other one", lambda trial=trial, switched=switched: trial.is_poked(switched))
            with redis.Redis(port=replica.port, password=password) as client:
                assert client.info("keyspace"), "it was not asked for a lease"
            stand.redis.target = before
            stand.redis.reset()
        trial.end()


def _refused_for_want_of_memory(client: redis.Redis) -> int:
    found = client.info("errorstats").get("errorstat_OOM", {"count": 0})
    return int(found["count"])


def test_evicting_policy_is_warned_of(stand: Stand) -> None:
    client = stand.service.pool.leases.store.client
    client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        stand.add_worker()
        log = stand.service.folder / f"worker-{len(stand.service.processes) - 1}.log"
        until("the warning", lambda: "set maxmemory-policy to noeviction" in log.read_text())
    finally:
        client.config_set("maxmemory-policy", "noeviction")
