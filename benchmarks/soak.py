"""The soak: an hour at full size with a kill every minute. Which pokes are missed, and which resources grow?

    python -m benchmarks.soak                        20,000 sensors on 12,000 groups, 20 ms a poke, every 60 s
    python -m benchmarks.soak --minutes 5 --sensors 2000 --groups 1200 --interval 10

Every minute one process is killed (-9): a child, a whole worker, or beat, in turn; it is started again. Meanwhile one
condition a second comes true, and as many new ones are registered. PostgreSQL and Redis run on; `tests/faults` tests
their loss.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
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
WORKERS = 2
TICK = 5.0


class Soak:
    """One soak."""

    def __init__(self, service: Service, options: argparse.Namespace) -> None:
        self.service = service
        self.options = options
        self.registered_at: dict[str, float] = {}
        self.true_at: dict[str, float] = {}
        self.names: dict[int, str] = {}
        self.samples: list[dict[str, float]] = []
        self.kills: list[float] = []

    def register(self, groups: range, sensors: int) -> None:
        """Register so many sensors on these groups."""
        now, folder = time.time(), str(self.service.folder)
        chosen = [f"g{groups[n % len(groups)]}" for n in range(sensors)]
        made = self.service.pool.register_many(
            {
                "sensor": SENSOR,
                "poke_context": {"folder": folder, "name": name, "seconds": self.options.poke},
                "dag_id": f"d{n % 50}",
                "task_id": f"t{groups[0]}-{n}",
                "run_id": "r",
            }
            for n, name in enumerate(chosen)
        )
        self.names |= {instance.id: name for instance, name in zip(made, chosen, strict=True)}
        self.registered_at |= dict.fromkeys(chosen, now)

    def run(self) -> dict[str, Any]:
        """Run it, and return its figures."""
        options, service = self.options, self.service
        self.register(range(options.groups), options.sensors)
        workers = [service.worker(concurrency=1) for _ in range(WORKERS)]
        beat = service.beat()
        until("a poke of every group", lambda: len(pokes(service.folder)) >= options.groups, patience=180, every=2)
        began, due = time.time(), self._dues()
        new = options.groups
        for what, at in due:
            time.sleep(max(0.0, at - time.time()))
            if what == "land":
                self.true_at[f"g{len(self.true_at)}"] = land(service.folder, f"g{len(self.true_at)}")
                self.register(range(new, new + 1), 1)
                new += 1
            elif what == "sample":
                self.samples.append(self._sample(began))
                print(json.dumps(self.samples[-1]), file=sys.stderr, flush=True)
            else:
                self.kills.append(time.time())
                turn = len(self.kills) % 3
                if turn == 0:
                    kill_tree(beat)
                    beat = service.beat()
                elif turn == 1:
                    children(workers[0])[0].kill()
                else:
                    kill_tree(workers.pop(0))
                    workers.append(service.worker(concurrency=1))
        ended = time.time()
        time.sleep(3 * options.interval)
        return self._found(began, ended)

    def _dues(self) -> Iterator[tuple[str, float]]:
        began = time.time()
        for second in range(1, round(self.options.minutes * 60) + 1):
            yield "land", began + second
            if second % 60 == 30:
                yield "kill", began + second
            if second % 60 == 0:
                yield "sample", began + second

    def _sample(self, began: float) -> dict[str, float]:
        service = self.service
        alive = [psutil.Process(p.pid) for p in service.processes if p.poll() is None]
        family = [p for one in alive for p in (one, *one.children(recursive=True))]
        client = service.pool.leases.store.client
        query = text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        return {
            "minute": round((time.time() - began) / 60, 1),
            "MiB": round(sum(p.memory_info().rss for p in family) / 2**20, 1),
            "threads": sum(p.num_threads() for p in family),
            "files": sum(p.num_fds() for p in family),
            "connections": service.pool.database.read(lambda c: int(c.execute(query).scalar_one())),
            "Redis keys": client.dbsize(),
            "Redis MiB": round(client.info("memory")["used_memory"] / 2**20, 2),
            "Redis clients": client.info("clients")["connected_clients"],
        }

    def _found(self, began: float, ended: float) -> dict[str, Any]:
        service, interval = self.service, self.options.interval
        states = service.pool.wait(list(self.names), 0)
        gone = [i for i, name in self.names.items() if name in self.true_at]
        audited = audit.read(service.pool.database)
        gaps = [
            later - earlier
            for name, some in pokes(service.folder).items()
            for earlier, later in pairwise(
                poke.at for poke in some if began <= poke.at <= min(ended, self.true_at.get(name, ended))
            )
        ]
        query = text("SELECT id, settled_at FROM sensor_instance WHERE state = 'success'")
        rows = service.pool.database.read(lambda c: c.execute(query).all())
        late = sorted((row[1] / 1000 - self.true_at[self.names[row[0]]]) / interval for row in rows)
        return {
            "minutes": self.options.minutes,
            "sensors": self.options.sensors,
            "groups": self.options.groups,
            "interval": interval,
            "kills": len(self.kills),
            "pokes": len(gaps),
            "missed intervals": sum(round(gap / interval) - 1 for gap in gaps if gap > 1.5 * interval),
            "longest time between pokes, intervals": round(max(gaps) / interval, 2),
            "twice in an interval": sum(1 for gap in gaps if gap < interval - TICK - 1),
            "landed": len(gone),
            "lost": sum(1 for i in gone if states[i] is State.SENSING),
            "doubled": len(audited.doubled) + len(audited.changed),
            "wrongly failed": sum(1 for state in states.values() if state not in {State.SENSING, State.SUCCESS}),
            "true to settled, intervals, p50/p99/max": [
                round(v, 2) for v in (median(late), late[-len(late) // 100], late[-1])
            ],
            "samples": self.samples,
        }


def main() -> int:
    """Run it; return 0 if no sensor was lost, doubled or wrongly failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--sensors", type=int, default=20_000)
    parser.add_argument("--groups", type=int, default=12_000)
    parser.add_argument("--interval", type=float, default=60.0)
    parser.add_argument("--poke", type=float, default=0.02, help="seconds")
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "soak.json")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        PostgresServer({"log_min_messages": "fatal"}) as postgres,
        RedisServer() as redis,
    ):
        upgrade(postgres.url)
        service = Service(
            Path(folder),
            postgres.url,
            redis.url,
            shards=8,
            tick=TICK,
            poke_interval=options.interval,
            poke_timeout=5.0,
            lease_ttl=15.0,
            heartbeat=5.0,
            rescue_interval=15.0,
            log_level="WARNING",
        )
        audit.install(service.pool.database)
        try:
            found = Soak(service, options).run()
        finally:
            service.stop()
    options.json.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps({name: value for name, value in found.items() if name != "samples"}, indent=1))
    return 1 if found["lost"] or found["doubled"] or found["wrongly failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
