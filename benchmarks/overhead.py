"""The cost of a poke above the bare call, by type of poke and by number of groups.

A bare call that sleeps finds cold caches each time, so alone in a process it may cost more than in a pool that is busy.
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import psutil

from benchmarks import sensors
from benchmarks.report import Row, demand
from benchmarks.stage import Stage, less, tree_seconds
from harness.until import until
from sensorpool.sensors import HttpSensor, PathSensor, SqlSensor

WINDOW = 20.0
AT_ONCE = 128  # pokes of 100 ms


def run(full: bool) -> Iterator[Row]:
    """Measure no-op pokes at saturation, by number of groups; then each type of poke."""
    for groups in (1_000, 10_000, 100_000, *((300_000,) if full else ())):
        yield measure(f"no-op, {groups:,} groups every second", "NoOp", groups, interval=1.0)
    yield measure("no-op async, 20,000 groups every 5 s", "AsyncNoOp", 20_000)
    yield measure("no-op poke_many, 20,000 groups every 5 s", "ManyNoOp", 20_000)
    yield measure("100 ms, 4,000 groups every 5 s", "Slow", 4_000, seconds=0.1, poke_concurrency=AT_ONCE)
    yield measure("100 ms async, 4,000 groups every 5 s", "AsyncSlow", 4_000, seconds=0.1, poke_concurrency=AT_ONCE)
    yield measure("file, 20,000 groups every 5 s", PathSensor, 20_000)
    yield measure("SQL, 2,000 groups every 5 s", SqlSensor, 2_000)
    with serving() as url:
        yield measure("HTTP, 2,000 groups every 5 s", HttpSensor, 2_000, url=url)


def measure(
    case: str, kind: Any, groups: int, *, interval: float = 5.0, poke_concurrency: int = 64, **context: Any
) -> Row:
    """Measure a window of about 20 s, from the end of a job to the end of another."""
    with Stage(
        tick=interval, poke_interval=interval, groups_cached=1_000_000, poke_concurrency=poke_concurrency, workers=1
    ) as stage:
        path = f"benchmarks.sensors.{kind}" if isinstance(kind, str) else f"sensorpool.sensors.{kind.__name__}"
        database = stage.postgres.url
        contexts = [_context(kind, n, context) for n in range(groups)]
        stage.service.environment["SENSORPOOL_CONN_BENCH"] = database
        stage.pool.register_many(
            {"sensor": path, "poke_context": each, "dag_id": "dag", "task_id": f"task{n}", "run_id": "run"}
            for n, each in enumerate(contexts)
        )
        stage.vacuum()
        stage.start()
        until("a poke of each", lambda: stage.counters()["poked"] >= groups, 120, 0.5)
        time.sleep(2 * interval)
        _until_job_ends(stage)
        before, counted, began = stage.cpu(), stage.counters(), time.monotonic()
        time.sleep(WINDOW - interval / 2)
        _until_job_ends(stage)
        used, seconds = less(stage.cpu(), before), time.monotonic() - began
        now = stage.counters()
        pokes = now["poked"] - counted["poked"]
        demand(now["errors"] == 0, "pokes failed")
        # a saturated worker pokes fewer than are due
        demand(pokes > 0.25 * groups * seconds / interval, f"only {pokes} pokes in {seconds:.0f} s")
        used.pop("client" if "HTTP" not in case else "", 0.0)
        total = 1e6 * sum(used.values()) / pokes
        stage.stop()
        bare = _bare(kind, contexts[:500], stage)
        return {
            "case": case,
            "groups": groups,
            "pokes a second": pokes / seconds,
            "CPU of a poke, µs": total,
            "bare call, µs": bare,
            "above the bare call, µs": total - bare,
            "by part, µs": {name: round(1e6 * value / pokes, 2) for name, value in used.items()},
            "one core, %": 100 * sum(used.values()) / seconds,
        }


def _until_job_ends(stage: Stage) -> None:
    """Wait for the end of a job: a job's CPU counts as it goes on, and its pokes when it ends."""
    jobs = stage.counters()["jobs"]
    until("the end of a job", lambda: stage.counters()["jobs"] > jobs, 60, 0.02)


def _context(kind: Any, n: int, context: dict[str, Any]) -> dict[str, Any]:
    if kind is PathSensor:
        return {"path": f"/nowhere/{n}"}
    if kind is SqlSensor:
        return {"conn_id": "bench", "sql": f"SELECT count(*) FROM poke_group WHERE id = -{n}"}
    if kind is HttpSensor:
        return {"url": f"{context['url']}/{n}"}
    return {"n": n, **context}


ROUNDS = 5  # of bare calls; the cheapest counts, because other work of the machine adds to the rest


def _bare(kind: Any, contexts: list[dict[str, Any]], stage: Stage) -> float:
    """Return the CPU of a bare poke in µs, including the CPU of the database that it asks.

    The pool is stopped, because its own queries would count; and every call was made once before.
    """
    os.environ["SENSORPOOL_CONN_BENCH"] = stage.postgres.url
    cls = getattr(sensors, kind) if isinstance(kind, str) else kind
    if hasattr(cls, "poke_many"):
        return _least(lambda: cls.poke_many(contexts), len(contexts))
    made = [cls(**context) for context in contexts]
    if kind in {"AsyncNoOp", "AsyncSlow"}:
        with asyncio.Runner() as runner:
            return _least(lambda: runner.run(_all(made)), len(made))
    made = made[:20] if kind == "Slow" else made
    servers = [psutil.Process(stage.postgres.pid)] if kind is SqlSensor else []
    # the HTTP server has threads of this process: as in the pool, its CPU counts
    clock = time.process_time if kind is HttpSensor else time.thread_time
    return _least(lambda: [one.poke({}) for one in made], len(made), servers, clock)


def _least(
    call: Callable[[], Any],
    pokes: int,
    servers: Sequence[psutil.Process] = (),
    clock: Callable[[], float] = time.thread_time,
) -> float:
    """Return the CPU of a poke in µs in the cheapest of several rounds, after one round to warm up."""
    call()
    found = []
    for _ in range(ROUNDS):
        idle, began = sum(map(tree_seconds, servers)), clock()
        call()
        found.append(clock() - began + sum(map(tree_seconds, servers)) - idle)
    return 1e6 * min(found) / pokes


async def _all(made: list[Any]) -> None:
    """Poke all, as many at once as the pool does."""
    waiting = iter(made)

    async def in_turn() -> None:
        for one in waiting:
            await one.poke({})

    await asyncio.gather(*(in_turn() for _ in range(AT_ONCE)))


class serving:
    """Serve HTTP on loopback, with 404 for every path; the server's CPU counts as the client's."""

    def __enter__(self) -> str:
        class Nothing(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_HEAD = do_GET

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                """Say nothing: workers that end break their connections."""

        self._server = Quiet(("127.0.0.1", 0), Nothing)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
