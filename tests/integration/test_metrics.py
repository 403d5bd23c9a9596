"""The metrics port of real workers: counts by class and backend, figures of the pool, probes."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from socket import gethostname

import pytest

from harness.scripted import land, pokes
from harness.servers import RedisServer
from harness.service import Service, children, kill_tree
from harness.until import until
from sensorpool.store.migrate import upgrade
from tests.support.scrapes import ask, free_port, scrape, timed, total, values

pytestmark = pytest.mark.processes

SENSOR = "harness.scripted.ScriptedSensor"
PLACES = "main", "child0", "child1"  # of the processes of a worker


def register(service: Service, folder: Path, *names: str, conn_id: str = "") -> list[int]:
    more = {"conn_id": conn_id} if conn_id else {}
    return [service.pool.register(SENSOR, {"folder": str(folder), "name": name, **more}).id for name in names]


def test_counts_by_class_ending_and_build(make_service: Callable[..., Service], tmp_path: Path) -> None:
    port = free_port()
    service = make_service(metrics_port=port)
    ids = register(service, tmp_path, "a", "b", "c")
    service.start()
    until("pokes", lambda: len(pokes(tmp_path)) == 3)
    land(tmp_path, "a")
    service.pool.wait(ids[:1], 30)
    service.pool.cancel(ids[1])
    told = until(
        "the metrics",
        lambda: (
            values(found := scrape(port), "sensorpool_settled_total", ending="landed", state="success") == [1.0]
            and total(found, "sensorpool_sensing") == 1.0
            and found
        ),
    )
    assert values(told, "sensorpool_outcomes_total", op_classpath=SENSOR, outcome="landed") == [1.0]
    assert total(told, "sensorpool_outcomes_total") == total(told, "sensorpool_pokes_total")
    assert total(told, "sensorpool_backend_outcomes_total", backend=SENSOR) == total(told, "sensorpool_pokes_total")
    assert total(told, "sensorpool_class_seconds_total", op_classpath=SENSOR) > 0
    assert [each.labels.keys() for each in told if each.name == "sensorpool_build_info"] == [{"version", "python"}]
    assert values(told, "sensorpool_server_up") == [1.0, 1.0]
    assert 0 <= total(told, "sensorpool_beat_seconds") < 60
    assert 0 <= total(told, "sensorpool_last_tick_seconds") < 60
    assert timed(port) < 3


def test_each_worker_tells_the_figures_of_the_pool(make_service: Callable[..., Service], tmp_path: Path) -> None:
    ports = [free_port(), free_port()]
    service = make_service()
    register(service, tmp_path, "a", "b", "c")
    workers = [service.worker(concurrency=1, SENSORPOOL_METRICS_PORT=str(port)) for port in ports]
    service.beat()

    def told(name: str) -> list[list[float]]:
        return [values(scrape(port), name) for port in ports]

    until("both workers", lambda: told("sensorpool_workers") == [[2.0], [2.0]])
    assert told("sensorpool_sensing") == [[3.0], [3.0]]
    assert told("sensorpool_build_info") == [[1.0], [1.0]]
    kill_tree(workers[0])
    register(service, tmp_path, "d")
    until("the other one to see it", lambda: values(scrape(ports[1]), "sensorpool_sensing") == [4.0])


def test_what_a_dead_child_counted_counts_on(make_service: Callable[..., Service], tmp_path: Path) -> None:
    port = free_port()
    service = make_service(metrics_port=port)
    register(service, tmp_path, "a", "b")
    service.start()
    counted = until("pokes", lambda: total(scrape(port), "sensorpool_pokes_total"))
    [folder] = tmp_path.glob("sensorpool-metrics-*")
    files = {path.name for path in folder.glob("*.db")}
    assert files == {f"{kind}_{place}.db" for kind in ("counter", "gauge_max", "histogram") for place in PLACES}
    dead = children(service.processes[0])
    for child in dead:
        child.send_signal(signal.SIGKILL)
    until("others", lambda: len([each for each in children(service.processes[0]) if each not in dead]) == len(dead))
    assert total(scrape(port), "sensorpool_pokes_total") >= counted
    until("more pokes", lambda: total(scrape(port), "sensorpool_pokes_total") > counted + 2)
    assert {path.name for path in folder.glob("*.db")} == files
    service.processes[0].terminate()
    service.processes[0].wait(30)
    assert not folder.exists()


@pytest.fixture
def alone(tmp_path: Path, redis_server: RedisServer, redis_url: str) -> Iterator[Service]:
    """A service on an SQLite file and a Redis that may be stopped."""
    url = f"sqlite:///{tmp_path / 'pool.db'}"
    upgrade(url)
    service = Service(tmp_path, url, redis_url, metrics_port=free_port())
    yield service
    service.stop()
    redis_server.resume()


def test_probes_in_an_outage_and_at_the_end(alone: Service, redis_server: RedisServer) -> None:
    port = alone.settings.metrics_port
    assert port is not None
    worker = alone.worker(concurrency=1)
    until("the worker to be ready", lambda: ask(port, "/readyz") == (200, {"ok": True, "reasons": []}))
    redis_server.pause()  # the worst outage: connections are open and nothing answers
    until("the outage to be seen", lambda: "Redis" in str((found := ask(port, "/readyz"))[1]) and found[0] == 503)
    assert timed(port) < 3, "a scrape asks no server"
    assert values(scrape(port), "sensorpool_server_up", server="Redis") == [0.0]
    assert ask(port, "/healthz") == (200, {"ok": True, "reasons": []})
    redis_server.resume()
    until("the worker to be ready again", lambda: ask(port, "/readyz")[0] == 200)
    assert values(scrape(port), "sensorpool_server_up", server="Redis") == [1.0]
    os.kill(worker.pid, signal.SIGTERM)
    worker.wait(30)
    assert ask(port, "/healthz") == (0, None)


def test_the_port_is_free_once_a_killed_worker_has_gone(alone: Service) -> None:
    """Its children, which it forked while it served, do not hold it."""
    port = alone.settings.metrics_port
    assert port is not None
    first = alone.worker(concurrency=1)
    until("the metrics", lambda: scrape(port))
    [child] = children(first)
    child.send_signal(signal.SIGKILL)
    [later] = until("another child", lambda: [each for each in children(first) if each.pid != child.pid])
    until("the child to work", lambda: not [c for c in later.net_connections("tcp") if c.status == "LISTEN"])
    first.kill()
    first.wait(30)
    alone.worker(concurrency=1)
    until("the metrics of the next one", lambda: scrape(port))


def test_a_worker_whose_port_is_taken_works_without_and_is_told(alone: Service) -> None:
    port = alone.settings.metrics_port
    alone.worker(concurrency=1)
    until("the metrics", lambda: scrape(port))
    alone.worker(concurrency=1)
    told = f"metrics: worker1@{gethostname()} serves none at 127.0.0.1:{port}: "
    until("the doctor's line", lambda: told in alone.cli("doctor", "--short").stdout)
    assert (alone.folder / "worker-1.log").read_text().count("no metrics: their address cannot be used") == 1
