"""A Celery task that looks, and calls ``self.retry(countdown=…)``: a worker of two children, Redis."""

import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from redis import Redis

from benchmarks.peers.celery_retry_app import app, wait_for
from benchmarks.peers.window import INTERVAL, Result, cpu_of, paths, resident, result, watch, whole_intervals
from harness.servers import RedisServer
from harness.service import kill_tree
from harness.until import until

ROOT = Path(__file__).parents[2]
MOST = 1000  # 10,000 would poke 1,000 times a second, which is too much for two cores
NOTE = (
    "result backend off, visibility timeout of a day, no gossip, no events, no rate limits, nothing logged. "
    "A sensor is a message in Redis and in the worker's memory: no query says what waits, and nothing is shared."
)


def measure(size: int, seconds: float) -> Result:
    """Measure the steady state: each task has looked once and is waiting for its countdown."""
    sensors = min(size, MOST)
    with tempfile.TemporaryDirectory(prefix="sensorpool-peers-") as name, RedisServer() as redis:
        folder = Path(name)
        counted = folder / "pokes"
        counted.touch()
        variables = {"PEER_POKES": str(counted), "PEER_BROKER": redis.url, "PYTHONPATH": str(ROOT)}
        command = ["-m", "celery", "-A", "benchmarks.peers.celery_retry_app", "worker", "--concurrency=2"]
        command += ["--loglevel=WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat"]
        log = (folder / "log").open("wb")
        worker = subprocess.Popen(
            [sys.executable, *command], env=os.environ | variables, cwd=folder, stdout=log, stderr=subprocess.STDOUT
        )
        log.close()
        try:
            with app.connection_for_write(redis.url) as connection, connection.Producer() as producer:
                for n, path in enumerate(paths(folder, sensors)):
                    # a random phase, as if the sensors had begun to wait at different times
                    wait_for.apply_async(
                        (path, INTERVAL), countdown=INTERVAL * n / sensors, producer=producer, retry=False
                    )
            until("three rounds", lambda: counted.stat().st_size >= 3 * sensors, 600, 0.5)
            parts = {"worker": worker.pid, "Redis": redis.pid}
            seen = watch(whole_intervals(seconds), lambda: cpu_of(parts), lambda: counted.stat().st_size)
            memory = resident(worker.pid)
            with Redis.from_url(redis.url) as client:
                kept = int(client.info("memory")["used_memory"])
        finally:
            kill_tree(worker)
    found = result(
        "Celery retry",
        f"celery {version('celery')}",
        sensors,
        seen,
        shares=False,
        memory=memory,
        asked=size,
        note=NOTE,
    )
    return found | {"redis_memory_bytes": kept}
