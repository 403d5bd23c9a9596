"""Faults 12-17 and 24: Redis loses all keys, goes away, stops answering, is full, fails over. Only time is lost."""

import time
from typing import Any

import redis

from harness.scripted import land, pokes
from harness.servers import RedisServer
from harness.until import until
from sensorpool import Instance
from sensorpool.model.trouble import HEALTHY, Trouble
from sensorpool.store.troubles import of_range
from tests.faults.stand import Stand
from tests.faults.trial import RECORDING, SENSOR, Trial, lasts, outage


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


def test_flushed_with_groups_in_trouble(stand: Stand) -> None:
    """Pokes fail, hang in children, outlive their jobs and end processes meanwhile. The rows of the database decide."""
    service, folder = stand.service, stand.service.folder
    (folder / "down").touch()

    def register(sensor: str, name: str, **script: Any) -> Instance:
        return service.pool.register(sensor, {"folder": str(folder), "name": name, **script})

    refused = [register(f"{RECORDING}.Backend", f"refused{n}") for n in range(3)]  # too few: no backend is away
    slow, hanging = register(SENSOR, "slow", seconds=0.8), register(SENSOR, "hanging", script="hang")
    ending = register(SENSOR, "ending", script="exit")

    def in_trouble() -> dict[int, Trouble]:
        return {i: each for r in service.pool.ranges for i, each in service.pool.database.read(of_range, r).items()}

    def stays() -> bool:
        """Whether the groups that have not had a good poke are in trouble."""
        found = in_trouble()
        failing = [found.get(each.group_id, HEALTHY).failing_since for each in refused]
        return all(failing) and found.get(hanging.group_id, HEALTHY).overruns > 0

    trial = stand.trial("12 Redis FLUSHALL with groups in trouble")
    with trial.fault():
        until("the troubles", stays)
        for _ in range(5):
            assert stand.service.pool.leases.store.client.dbsize(), "there is nothing to lose"
            stand.service.pool.leases.store.client.flushall()
            flushed = time.time()

            def poked(since: float = flushed) -> bool:
                assert stays(), "Redis has lost a trouble"
                return trial.is_poked(since) and pokes(folder)["hanging"][-1].at > since

            until("pokes after it", poked)
    (folder / "down").unlink()
    assert service.pool.wait([ending.id], 120) == {ending.id: "failed"}
    assert "quarantined: its poke took its process down 3 times" in service.json("show", str(ending.id))["reason"]
    service.pool.cancel(hanging.id)
    until("the others to be well again", lambda: not in_trouble().keys() & {each.group_id for each in [*refused, slow]})
    well = [each.id for each in [*refused, slow]]
    assert set(service.pool.wait(well, 0).values()) == {"sensing"}
    for name in ("refused0", "refused1", "refused2", "slow"):
        land(folder, name)
    assert set(service.pool.wait(well, 60).values()) == {"success"}
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
