"""The main run at full size, on real servers: is every group poked once an interval, and every sensor settled once?

    python -m benchmarks.main_run                    20,000 sensors on 12,000 groups, 20 ms a poke, interval 10 s
    python -m benchmarks.main_run --faults           the same, with a worker killed, Redis flushed, PostgreSQL restarted

Starts PostgreSQL, Redis, one beat and two prefork workers on loopback, and prints their results and their costs.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import text

from harness import audit
from harness.scripted import land, pokes
from harness.servers import PostgresServer, RedisServer
from harness.service import Service, children, kill_tree
from harness.until import until
from sensorpool.model.states import State
from sensorpool.store.migrate import upgrade

SENSOR = "harness.scripted.ScriptedSensor"


def main() -> int:
    """Run it; return 0 if no sensor was lost or doubled, and no group was missed or poked twice in an interval."""
    options = _options()
    with (
        tempfile.TemporaryDirectory() as folder,
        PostgresServer({"log_statement": "all"}) as postgres,
        RedisServer() as redis,
    ):
        upgrade(postgres.url)
        service = Service(
            Path(folder),
            postgres.url,
            redis.url,
            shards=16,
            tick=1.0,
            poke_interval=options.interval,
            poke_timeout=5.0,
            lease_ttl=10.0,
            heartbeat=2.0,
            rescue_interval=10.0,
        )
        audit.install(service.pool.database)
        try:
            found = _run(service, postgres, options)
        finally:
            service.stop()
    for name, value in found.items():
        print(f"{name:>34}: {value}")
    print(json.dumps(found, default=str))
    return 0 if found["lost"] == found["doubled"] == 0 and found["not landed in time"] == 0 else 1


def _run(service: Service, postgres: PostgresServer, options: argparse.Namespace) -> dict[str, Any]:
    folder = service.folder
    began = time.monotonic()
    contexts = [{"folder": str(folder), "name": f"g{n}", "seconds": options.poke} for n in range(options.groups)]
    ids = [
        instance.id
        for instance in service.pool.register_many(
            {
                "sensor": SENSOR,
                "poke_context": contexts[n % options.groups],
                "dag_id": f"d{n % 50}",
                "task_id": f"t{n}",
                "run_id": "r",
            }
            for n in range(options.sensors)
        )
    ]
    registered = time.monotonic() - began
    workers = [service.worker(concurrency=1) for _ in range(2)]
    service.beat()
    until("a poke of every group", lambda: len(pokes(folder)) == options.groups, patience=60, every=1)
    time.sleep(options.interval)
    counted = _statements(postgres)
    usage, started = _cpu(service, postgres), time.time()
    landing = options.groups // 5
    true_at = {}
    spread = options.seconds - 2 * options.interval
    faults = {0.3: "kill", 0.5: "flush", 0.7: "restart"} if options.faults else {}
    for n in range(landing):
        while time.time() < started + spread * n / landing:
            time.sleep(0.005)
        true_at[f"g{n}"] = land(folder, f"g{n}")
        for share in [share for share in faults if n >= share * landing]:
            _fault(faults.pop(share), service, postgres, workers)
    waiting = [instance_id for n, instance_id in enumerate(ids) if n % options.groups < landing]
    in_time = service.pool.wait(waiting, 3 * options.interval)
    while time.time() < started + options.seconds:
        time.sleep(0.1)
    ended, took = time.time(), time.time() - started
    after = _cpu(service, postgres)
    statements = _statements(postgres) - counted
    found = audit.read(service.pool.database)
    states = Counter(service.pool.wait(ids, 0).values())
    intervals = _intervals(folder, started, ended, set(true_at))
    late = sorted(
        row[1] / 1000 - true_at[f"g{int(row[0].removeprefix('t')) % options.groups}"]
        for row in _settled(service)
        if row[1]
    )
    ticks = took / service.settings.tick * service.settings.shards
    expected_lost = options.sensors - len(waiting) - states[State.SENSING]
    return {
        "sensors": options.sensors,
        "groups": options.groups,
        "registered in s": round(registered, 2),
        "measured s": round(took, 1),
        "states": {str(state): count for state, count in states.items()},
        "not landed in time": sum(1 for state in in_time.values() if state is not State.SUCCESS),
        "lost": expected_lost,
        "doubled": len(found.doubled) + len(found.changed),
        "pokes": intervals.pop("pokes"),
        **intervals,
        "true to settled, p50/p99/max s": [round(late[int(len(late) * q)], 2) for q in (0.5, 0.99)]
        + [round(late[-1], 2)],
        "jobs": round(ticks),
        "statements per job": round(statements / ticks, 2),
        "CPU, share of one core": {name: round((after[name] - usage.get(name, 0)) / took, 3) for name in after},
    }


def _intervals(folder: Path, started: float, ended: float, landed: set[str]) -> dict[str, Any]:
    """Compare the times of pokes with the interval, for the groups that did not land."""
    gaps: list[float] = []
    total = 0
    for name, some in pokes(folder).items():
        times = [poke.at for poke in some if started <= poke.at <= ended]
        total += len(times)
        if name not in landed:
            gaps.extend(later - earlier for earlier, later in pairwise(times))
    interval, tick = OPTIONS["interval"], 1.0
    gaps.sort()
    return {
        "pokes": total,
        "time between pokes, min/p50/max s": [round(gaps[0], 2), round(gaps[len(gaps) // 2], 2), round(gaps[-1], 2)],
        "twice in an interval (less a tick)": sum(1 for gap in gaps if gap < interval - tick - 0.5),
        "missed (an interval and two ticks)": sum(1 for gap in gaps if gap > interval + 2 * tick),
    }


OPTIONS: dict[str, float] = {}


def _fault(what: str, service: Service, postgres: PostgresServer, workers: list[Any]) -> None:
    print(f"fault: {what}", file=sys.stderr)
    if what == "kill":
        kill_tree(workers[0])
        workers[0] = service.worker(concurrency=1)
    elif what == "flush":
        service.pool.leases.store.client.flushdb()
    else:
        postgres.kill()
        postgres.start()


def _settled(service: Service) -> list[Any]:
    query = text("SELECT task_id, settled_at FROM sensor_instance WHERE state = 'success'")
    return list(service.pool.database.read(lambda connection: connection.execute(query).all()))


def _statements(postgres: PostgresServer) -> int:
    lines = postgres.log.read_text(errors="replace").splitlines()
    ours = (line for line in lines if "LOG:  statement: " in line or "LOG:  execute " in line)
    return sum(1 for line in ours if not line.endswith(("BEGIN", "COMMIT", "ROLLBACK")))


def _cpu(service: Service, postgres: PostgresServer) -> dict[str, float]:
    """Return the CPU seconds of each process so far, including its ended children."""

    def seconds(process: psutil.Process) -> float:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            return 0.0
        return times.user + times.system + times.children_user + times.children_system

    used: dict[str, float] = {}
    for number, process in enumerate(service.processes):
        if process.poll() is None:
            name = "beat" if "beat" in str(process.args) else f"worker {number}"
            used[name] = seconds(psutil.Process(process.pid)) + sum(seconds(child) for child in children(process))
    used["PostgreSQL"] = sum(seconds(process) for process in postgres.processes())
    redis = next(p for p in psutil.process_iter(["name"]) if p.info["name"] == "redis-server" and p.is_running())
    used["Redis"] = seconds(redis)
    return used


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sensors", type=int, default=20_000)
    parser.add_argument("--groups", type=int, default=12_000)
    parser.add_argument("--interval", type=float, default=10.0)
    parser.add_argument("--poke", type=float, default=0.02, help="seconds")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--faults", action="store_true")
    options = parser.parse_args()
    OPTIONS["interval"] = options.interval
    return options


if __name__ == "__main__":
    sys.exit(main())
