"""How long each page of `sensorpool web` takes while many wait.

    python -m benchmarks.pages                       100,000 sensors on 60,000 conditions, each page five times
    python -m benchmarks.pages --sensors 10000

PostgreSQL, Redis, a worker and beat run, every condition has been poked, and the pages are a process of their own. The
seconds are of the whole answer, by one reader, while the pool pokes.
"""

import argparse
import json
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from harness.servers import PostgresServer, RedisServer
from harness.servers.databases import fresh_database
from harness.service import Service, running
from harness.until import until
from sensorpool.admin.conditions import list_conditions
from sensorpool.model.states import Outcome
from sensorpool.store.conditions import Order, Wanted
from sensorpool.store.migrate import upgrade

SENSOR = "harness.scripted.ScriptedSensor"
TOKEN = "a-token-of-this-benchmark"
SHARE = 0.6  # conditions for each sensor
DAGS = 500
TIMES = 5
PAGES = (
    "/",
    *(f"/conditions?sort={order}" for order in Order),
    "/conditions?dag=dag_7",
    "/conditions?class=no.such.Class",
    "/conditions?outcome=not_landed",
    "/conditions?outcome=poke_error",
    "/conditions?first=50000",
    "/conditions/1",
    "/instances/1",
    "/task?dag_id=dag_1&run_id=r&task_id=t1",
    "/run?dag_id=dag_1&run_id=r",
    "/quarantine",
    "/actions",
)


def measure(service: Service, folder: Path, sensors: int) -> dict[str, list[float]]:
    """Return the seconds of each page, several times."""
    service.pool.register_many(_registrations(folder, sensors), try_out=False)
    service.start()
    outcome = Outcome.NOT_LANDED
    groups = round(sensors * SHARE)

    def poked() -> bool:
        found = list_conditions(service.pool, Wanted(), Order.AGE, 0, 1, outcome=outcome, seen=None)
        return bool(found["count"] == groups)

    until("a poke of each condition", poked, patience=600, every=2)
    service.process("sensorpool", "web", "--port=0")
    found = until("the pages", lambda: re.search(r"http://127\.0\.0\.1:\d+/", service.logs()))
    seconds: dict[str, list[float]] = {page: [] for page in PAGES}
    with httpx.Client(base_url=found[0], auth=("reader", TOKEN), timeout=60) as client:
        for _ in range(TIMES):
            for page in PAGES:
                began = time.perf_counter()
                client.get(page).raise_for_status()
                seconds[page].append(time.perf_counter() - began)
    return seconds


def _registrations(folder: Path, sensors: int) -> Iterator[dict[str, Any]]:
    groups = round(sensors * SHARE)
    for number in range(sensors):
        yield {
            "sensor": SENSOR,
            "poke_context": {"folder": str(folder), "name": f"g{number % groups}"},
            "dag_id": f"dag_{number % DAGS}",
            "task_id": f"t{number}",
            "run_id": "r",
            "poke_interval": 60.0,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sensors", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    settings = {"shards": 8, "tick": 5.0, "poke_interval": 60.0, "lease_ttl": 30.0, "heartbeat": 5.0}
    with (
        tempfile.TemporaryDirectory() as folder,
        PostgresServer() as postgres,
        RedisServer() as redis,
        fresh_database(postgres) as url,
    ):
        upgrade(url)
        with running(Path(folder), url, redis.url, web_token=TOKEN, **settings) as service:
            seconds = measure(service, Path(folder), options.sensors)
    if options.json:
        print(json.dumps(seconds))
        return
    print(f"{options.sensors:,} sensors wait for {round(options.sensors * SHARE):,} conditions")
    print(f"{'median':>8} {'most':>8}  seconds of a page")
    for page, each in seconds.items():
        print(f"{median(each):8.3f} {max(each):8.3f}  {page}")


if __name__ == "__main__":
    main()
