"""A demo: the one-process service on an SQLite file, with sensors that land one after the other.

Two more do not land: the resource of one is withdrawn, and the file of the other never comes. Every settle is recorded
in a table of the demo's own, and its time is compared with the time when its condition came true.
"""

import os
import random
import secrets
import sqlite3
import sys
import tempfile
import threading
import time
import webbrowser
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from sensorpool import Pool, Settings
from sensorpool.admin.explain import explain
from sensorpool.cli.output import json_option, print_fields, print_json, say
from sensorpool.instrumentation import logs
from sensorpool.service.standalone import Standalone

_TOLD = ("reason", "condition", "waiting_since", "last_pokes")  # of what `sensorpool explain` says
_SHARED = 0.6  # conditions a sensor: AIP-17 found 40 % of Airbnb's sensors to be duplicates
_CONNECTION = "SENSORPOOL_DEMO"  # of the table's database
_TABLES = """
CREATE TABLE demo_arrived (name TEXT PRIMARY KEY);
CREATE TABLE demo_settled (instance_id INTEGER NOT NULL, state TEXT NOT NULL, at INTEGER);
CREATE TRIGGER demo_watch AFTER UPDATE OF state ON sensor_instance WHEN NEW.state <> 'sensing' BEGIN
    INSERT INTO demo_settled VALUES (NEW.id, NEW.state, NEW.settled_at);
END;
"""


@click.command()
@click.option("--sensors", type=click.IntRange(min=1), default=1_000, show_default=True, help="Number of sensors.")
@click.option(
    "--seconds", type=click.FloatRange(min=1), default=20, show_default=True, help="Time in which all conditions land."
)
@click.option("--web", "with_pages", is_flag=True, help="Open the pages of the pool, until you press Ctrl-C.")
@json_option
def demo(sensors: int, seconds: float, with_pages: bool, as_json: bool) -> None:
    """Run the pool on files, HTTP resources and SQL rows that land one by one; two sensors fail, and are explained.

    The exit code is 0 when each sensor settled exactly once.
    """
    logs.configure("text", "CRITICAL")  # a poke that fails is part of the story
    with tempfile.TemporaryDirectory(prefix="sensorpool-demo-") as folder, ExitStack() as stack:
        run = _Demo(Path(folder), sensors, seconds)
        pool = stack.enter_context(run.running())
        if with_pages:
            stack.enter_context(_open_pages(pool))
        if not as_json:
            kinds = "files, answers of an HTTP server, and rows of a table"
            say(f"{sensors:,} sensors wait for {len(run.conditions):,} conditions: {kinds}.")
            say(f"Each by itself, they would hold {sensors:,} worker slots. In the pool they hold 0.")
        run.land()
        summary = run.sum_up()
        is_clean = (summary["settled"], summary["failed"]) == (sensors, 2) and not summary["lost"] + summary["doubled"]
        if as_json:
            print_json(summary)
        else:
            _tell(run, pool, summary)
            say("every sensor was settled exactly once" if is_clean else "NOT every sensor was settled once")
        if with_pages:
            say("The pages stay until you press Ctrl-C.", err=True)
            with suppress(KeyboardInterrupt):
                threading.Event().wait()
    sys.exit(0 if is_clean else 1)


@contextmanager
def _open_pages(pool: Pool) -> Iterator[None]:
    """Serve the pages of the pool on loopback, and open them in a browser."""
    from sensorpool.web import alone

    token = secrets.token_urlsafe(24)
    with alone.listen("127.0.0.1", 0) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/?token={token}"
        server = alone.server(alone.pages(pool, alone.TokenAccess(token, may_act=False)))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="pages", daemon=True)
        thread.start()
        say(f"sensorpool: {address}", err=True)
        webbrowser.open(address)
        yield
        server.should_exit = server.force_exit = True
        thread.join(5)


def _tell(run: "_Demo", pool: Pool, summary: dict[str, Any]) -> None:
    without = summary["pokes"] + summary["pokes_saved"]
    saved = summary["pokes_saved"] / max(1, without)
    made = f"{summary['pokes']:,} pokes did the work of {without:,}"
    say(f"{summary['settled']:,} landed. {made}: sharing saved {saved:.0%}.")
    say(f"{summary['failed']} failed, as they had to. `sensorpool explain` says why:")
    for condition in run.failing:
        found = explain(pool, condition.instances[0])
        say()
        say(f"{found['who']}. {found['why']}")
        print_fields({name.replace("_", " "): found[name] for name in _TOLD if found.get(name)})
    say()
    print_fields({name.replace("_", " "): value for name, value in summary.items()})


@dataclass(eq=False)
class _Condition:
    """A condition, and the function that makes it true, which is called after ``lands_after`` seconds."""

    sensor: str
    poke_context: dict[str, Any]
    lands_after: float
    make_true: Callable[[], object]
    options: dict[str, Any] = field(default_factory=dict)
    true_at: float = 0.0
    instances: list[int] = field(default_factory=list)


class _Demo:
    """One run of the demo.

    :param folder: for the pool's database and the files.
    :param sensors: the number of sensors.
    :param seconds: the time in which the conditions come true.
    """

    def __init__(self, folder: Path, sensors: int, seconds: float) -> None:
        self._folder, self._seconds, self._started = folder, seconds, time.monotonic()
        self._database = folder / "pool.db"
        self._jobs: Counter[str] = Counter()
        self._statuses: dict[str, int] = {}  # what the HTTP server answers, by path; others: 404
        self._server = _serve(self._statuses)
        chance = random.Random(17)
        self.conditions = [
            self._condition(number, chance.uniform(0.5, seconds)) for number in range(max(1, round(sensors * _SHARED)))
        ]
        forgotten = {"path": f"file://{folder}/forgotten"}
        self.failing = [
            self._resource("withdrawn", seconds / 3, 410),
            _Condition("sensorpool.sensors.PathSensor", forgotten, 0.0, lambda: None, {"timeout": seconds / 2}),
        ]
        more = chance.choices(self.conditions, k=sensors - len(self.conditions))
        self._waiters = [*self.conditions, *more, *self.failing]

    @contextmanager
    def running(self) -> Iterator[Pool]:
        """Run the service, with all sensors waiting in its pool, until the context is left."""
        url = f"sqlite:///{self._database}"
        os.environ[f"SENSORPOOL_CONN_{_CONNECTION}"] = url
        settings = Settings.load(
            **{"database_url": url, "redis_url": "memory://", "broker_url": "memory://", "metrics_port": None},
            **{"shards": 4, "tick": 1.0, "poke_interval": 1.0, "poke_timeout": 10.0},
        )
        try:
            with Standalone(settings) as service, closing(Pool(settings)) as pool:
                self._count_jobs(service.worker.metrics)
                with closing(sqlite3.connect(self._database, timeout=30)) as connection:
                    connection.executescript(_TABLES)
                self._register(pool)
                yield pool
        finally:
            self._server.shutdown()
            self._server.server_close()

    def land(self) -> None:
        """Make the conditions true one after the other, and wait until all sensors have ended."""
        pending = sorted([*self.conditions, *self.failing], key=lambda condition: condition.lands_after)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        started, true, ended = time.monotonic(), 0, 0
        with Progress(*columns, console=Console(stderr=True)) as bars:
            landing = bars.add_task("conditions come true", total=len(pending))
            ending = bars.add_task("sensors end", total=len(self._waiters))
            poking = bars.add_task("pokes made", total=None)
            while (passed := time.monotonic() - started) < self._seconds + 60:
                while true < len(pending) and pending[true].lands_after <= passed:
                    pending[true].make_true()
                    pending[true].true_at = time.time()
                    true += 1
                ended = len(self._settled())
                for bar, done in ((landing, true), (ending, ended), (poking, self._jobs["pokes"])):
                    bars.update(bar, completed=done)
                if true == len(pending) and ended >= len(self._waiters):
                    return
                time.sleep(0.05)

    def sum_up(self) -> dict[str, Any]:
        """Return what came of it: the two more have failed, and nothing is ``lost`` or ``doubled``."""
        settled = self._settled()
        times = Counter(instance_id for instance_id, _, _ in settled)
        landed = {instance_id: at / 1000 for instance_id, state, at in settled if state == "success"}
        late = sorted(
            max(0.0, landed[each] - condition.true_at)
            for condition in self.conditions
            for each in condition.instances
            if each in landed
        ) or [0.0]
        return {
            "sensors": len(self._waiters) - len(self.failing),
            "groups": len(self.conditions) + len(self.failing),
            "settled": len(landed),
            "failed": len(times) - len(landed),
            "lost": len(self._waiters) - len(times),
            "doubled": sum(count > 1 for count in times.values()),
            "pokes": self._jobs["pokes"],
            "pokes_saved": self._jobs["saved"],
            "latency_p50_s": round(late[len(late) // 2], 3),
            "latency_p99_s": round(late[int(len(late) * 0.99)], 3),
            "seconds": round(time.monotonic() - self._started, 3),
        }

    def _condition(self, number: int, lands_after: float) -> _Condition:
        """Make a condition: a file, a resource or a row."""
        name = f"part-{number:05d}"
        if number % 3 == 0:
            path = self._folder / name
            return _Condition("sensorpool.sensors.PathSensor", {"path": f"file://{path}"}, lands_after, path.touch)
        if number % 3 == 1:
            return self._resource(name, lands_after, 200)
        sql = "SELECT 1 FROM demo_arrived WHERE name = :name"
        context = {"conn_id": _CONNECTION, "sql": sql, "parameters": {"name": name}}
        return _Condition("sensorpool.sensors.SqlSensor", context, lands_after, lambda: self._insert(name))

    def _resource(self, name: str, lands_after: float, status: int) -> _Condition:
        context = {"url": f"http://127.0.0.1:{self._server.server_port}/{name}"}
        made = {f"/{name}": status}
        return _Condition("sensorpool.sensors.HttpSensor", context, lands_after, lambda: self._statuses.update(made))

    def _register(self, pool: Pool) -> None:
        registrations = [
            {
                "sensor": condition.sensor,
                "poke_context": condition.poke_context,
                "dag_id": "demo_failing" if condition in self.failing else f"demo_{number % 10}",
                "task_id": f"wait_{number}",
                "run_id": "demo",
                **condition.options,
            }
            for number, condition in enumerate(self._waiters)
        ]
        for condition, instance in zip(self._waiters, pool.register_many(registrations), strict=True):
            condition.instances.append(instance.id)

    def _insert(self, name: str) -> None:
        with closing(sqlite3.connect(self._database, timeout=30)) as connection, connection:
            connection.execute("INSERT INTO demo_arrived VALUES (?)", (name,))

    def _settled(self) -> list[tuple[int, str, int]]:
        with closing(sqlite3.connect(self._database, timeout=30)) as connection:
            return connection.execute("SELECT instance_id, state, at FROM demo_settled").fetchall()

    def _count_jobs(self, metrics: Any) -> None:
        """Add up the results of the service's jobs, which Flower would show."""
        count, lock = metrics.job, threading.Lock()

        def add(result: Any) -> None:
            count(result)
            with lock:
                self._jobs.update(pokes=result.poked, saved=result.saved)

        metrics.job = add


class _Server(ThreadingHTTPServer):
    request_queue_size = 512  # a full queue costs a new connection a second
    daemon_threads = True


def _serve(statuses: dict[str, int]) -> _Server:
    """Serve on loopback what is in ``statuses``."""

    class Resource(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # keeps connections: hundreds of requests come at once

        def do_GET(self) -> None:
            self.send_response(statuses.get(self.path, 404))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = _Server(("127.0.0.1", 0), Resource)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


if __name__ == "__main__":
    demo()
