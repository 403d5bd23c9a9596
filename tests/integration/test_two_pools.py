"""Two pools on one Redis: with a namespace they live side by side, without one the second does not start."""

from pathlib import Path

from harness.scripted import land
from harness.service import Service
from harness.until import until
from sensorpool.admin import findings
from sensorpool.publish import listen
from sensorpool.store.migrate import upgrade

SENSOR = "harness.scripted.ScriptedSensor"


def test_side_by_side(redis_url: str, tmp_path: Path) -> None:
    made: dict[str, Service] = {}
    try:
        for name, settings in {"first": {}, "second": {}, "apart": {"namespace": "apart", "shards": 2}}.items():
            folder = tmp_path / name
            folder.mkdir()
            database_url = f"sqlite:///{folder / 'pool.db'}"
            upgrade(database_url)
            made[name] = Service(folder, database_url, redis_url, **settings)
        first, second, apart = made.values()
        for service in (first, apart):
            service.worker(concurrency=1)
        until("the first worker", first.pool.workers)
        refused = second.worker(concurrency=1)
        until("the worker apart", apart.pool.workers)
        with listen(apart.settings) as bodies:
            for service in (first, apart):  # no beat: the registration brings the first poke
                land(service.folder, "x")
                key = {"dag_id": service.folder.name, "task_id": "t", "run_id": "r"}
                made_here = service.pool.register(SENSOR, {"folder": str(service.folder), "name": "x"}, **key)
                assert service.pool.wait([made_here.id], 30) == {made_here.id: "success"}
            assert [each["dag_id"] for each in next(bodies)["settled"]] == ["apart"]
        assert refused.wait(60) == 1
        assert "sensorpool: Redis serves the pool" in second.logs()
        assert "give one of the two pools a NAMESPACE" in second.logs()
        assert any("Redis serves the pool" in problem for problem in findings.health(second.pool))
        keys = list(first.pool.leases.store.client.scan_iter("*"))
        assert all(key.startswith("sensorpool:") for key in keys)
        assert "sensorpool:apart:{pool}:workers" in keys
    finally:
        for service in made.values():
            service.stop()
