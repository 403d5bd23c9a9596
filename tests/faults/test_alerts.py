"""Each fault that an operator has to mend alerts: Prometheus's own rules, on scrapes of a real pool in the fault.

The pool is scraped before the fault and in it. Prometheus's evaluation is told that either state lasted: what a test
waits for is seconds, and what an alert waits for is minutes.
"""

import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from sqlalchemy import text

from harness.servers import Elsewhere, Server, fresh_database
from harness.service import kill_tree
from harness.until import until
from sensorpool.testing import land, pokes
from tests.faults.conftest import record_of
from tests.faults.stand import Stand, stand_on
from tests.support.promtool import Phase, check, firing, promtool, series_of
from tests.support.scrapes import Sample, free_port, scrape, total, values

SENSOR = "sensorpool.testing.ScriptedSensor"
BEFORE, FAULT = 40, 60  # steps


class Watched:
    """A pool of two workers, each with a metrics port, and what Prometheus would keep of them."""

    def __init__(self, stand: Stand, folder: Path) -> None:
        self.stand = stand
        self.service = stand.service
        self._folder = folder
        self.ports = [free_port(), free_port()]
        self.workers = [self.start(port) for port in self.ports]
        self.beat = stand.service.beat()
        until("a pool that is well", self.is_well)
        self._well = self.scraped()

    def start(self, port: int) -> subprocess.Popen[bytes]:
        """Start a worker."""
        return self.stand.add_worker(SENSORPOOL_METRICS_PORT=str(port))

    def is_well(self) -> bool:
        """Whether both workers tell that they and their servers are there, and that ranges are looked at."""
        told = [sample for samples in self.scraped().values() for sample in samples]
        return (
            total(told, "sensorpool_server_up") == 4
            and total(told, "sensorpool_workers") == 2
            and values(told, "sensorpool_ranges_late") == [0.0]
            and 0 < total(told, "sensorpool_beat_seconds") < 20
        )

    def scraped(self) -> dict[str, list[Sample]]:
        """Return what each worker tells."""
        with ThreadPoolExecutor() as at_once:
            return {f"worker-{place}:9109": each for place, each in enumerate(at_once.map(scrape, self.ports))}

    def told(self, name: str, **labels: str) -> float:
        """Return the sum of a metric over the workers."""
        return sum(total(samples, name, **labels) for samples in self.scraped().values())

    def until_told(self, what: str, *names: str) -> dict[str, list[Sample]]:
        """Wait until the workers tell more than 0 of each of these metrics, and return what they told then."""
        found: dict[str, list[Sample]] = {}

        def is_told() -> bool:
            found.clear()
            found.update(self.scraped())
            told = [sample for samples in found.values() for sample in samples]
            return all(total(told, name) > 0 for name in names)

        until(what, is_told)
        return found

    def alerts(self, *names: str, seen: dict[str, list[Sample]] | None = None) -> None:
        """Check that these alerts fire in this state (otherwise the present one), and that none fired before."""
        phases = [Phase(self._well, BEFORE), Phase(seen or self.scraped(), FAULT)]
        expected = firing(dict.fromkeys(names, 1), at=BEFORE + FAULT - 1, among="|".join(names))
        check(self._folder, series_of(phases), [firing({}, at=BEFORE - 1), expected])


@pytest.fixture(scope="module")
def running_watched(
    tmp_path_factory: pytest.TempPathFactory,
    postgres_server: Server | Elsewhere,
    postgres_template: str,
    redis_server: Server | Elsewhere,
    redis_numbers: Iterator[int],
) -> Iterator[Watched]:
    promtool()
    folder = tmp_path_factory.mktemp("watched")
    redis_url = f"{redis_server.start().url.rpartition('/')[0]}/{next(redis_numbers)}"
    with (
        fresh_database(postgres_server, template=postgres_template) as database_url,
        stand_on(folder, database_url, redis_url, record_of, hanging_concurrency=1) as stand,
    ):
        yield Watched(stand, folder)


@pytest.fixture
def watched(running_watched: Watched) -> Iterator[Watched]:
    """The pool, without a fault; what a fault leaves in the tables stays."""
    until("a pool that is well", running_watched.is_well)
    yield running_watched
    running_watched.stand.heal()


@pytest.mark.parametrize("fault", ["refuse", "swallow"])
@pytest.mark.parametrize("server", ["Redis", "database"])
def test_a_server_that_is_gone(watched: Watched, server: str, fault: str) -> None:
    """Faults 14, 15 and 19: connections are refused, or nothing answers."""
    proxy = watched.stand.redis if server == "Redis" else watched.stand.postgres
    getattr(proxy, fault)()
    until("it to be seen", lambda: watched.told("sensorpool_server_up", server=server) == 0)
    watched.alerts("SensorpoolServerAway")


@pytest.mark.parametrize("is_frozen", [False, True], ids=["killed", "frozen"])
def test_a_worker_that_is_dead(watched: Watched, is_frozen: bool) -> None:
    """Faults 7 and 8. Its range goes on elsewhere."""
    worker = watched.workers[0]
    if is_frozen:
        worker.send_signal(signal.SIGSTOP)
    else:
        kill_tree(worker)
    until("it not to answer", lambda: not scrape(watched.ports[0]))
    watched.alerts("SensorpoolWorkerDown")
    if is_frozen:
        worker.send_signal(signal.SIGCONT)
    else:
        watched.workers[0] = watched.start(watched.ports[0])


def test_all_workers_dead(watched: Watched) -> None:
    for worker in watched.workers:
        psutil.Process(worker.pid).suspend()
    until("none to answer", lambda: not any(watched.scraped().values()))
    watched.alerts("SensorpoolNoWorker")
    for worker in watched.workers:
        psutil.Process(worker.pid).resume()


def test_beat_dead(watched: Watched) -> None:
    """Fault 10."""
    kill_tree(watched.beat)
    until("it to be missed", lambda: watched.told("sensorpool_beat_seconds") > 20 + 3)
    assert watched.told("sensorpool_ranges_late") == watched.told("sensorpool_ranges") == 4
    watched.alerts("SensorpoolBeatDead", "SensorpoolRangesLate")
    watched.beat = watched.service.beat()


def test_a_lane_that_hangs(watched: Watched, tmp_path: Path) -> None:
    """Faults 31 and 32: more pokes hang than are poked apart at once.

    Four children poke one hanging group each, for a second: the last of the groups waits its turn for 10 s, and is late
    after 7 s.
    """
    script = {"folder": str(tmp_path), "script": "hang"}
    made = [watched.service.pool.register(SENSOR, script | {"name": f"h{n}"}, timeout=600).id for n in range(40)]
    seen = watched.until_told("groups to be late", "sensorpool_overdue_apart", "sensorpool_overrunning")
    watched.alerts("SensorpoolPokesHang", "SensorpoolPokesOverrun", seen=seen)
    for each in made:
        watched.service.pool.cancel(each)


def test_a_condition_in_quarantine(watched: Watched, tmp_path: Path) -> None:
    """Fault 33: its poke takes its process down."""
    watched.service.pool.register(SENSOR, {"folder": str(tmp_path), "name": "x", "script": "segfault"}, timeout=600)
    until("the quarantine", lambda: watched.told("sensorpool_quarantined") == 1, patience=120)
    watched.alerts("SensorpoolQuarantine")


def test_an_outbox_that_is_stuck(watched: Watched) -> None:
    """A result that its broker has refused for six minutes: its row is written as it would be by then."""
    watched.stand.sql(
        "INSERT INTO sensorpool_outbox (created_at, instance_ids, format, tries, next_try_at)"
        " SELECT now - 360000, '[]', 2, 9, now + 600000"
        " FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now) t"
    )
    until("its age", lambda: watched.told("sensorpool_outbox_seconds") > 300)
    watched.alerts("SensorpoolOutboxStuck")
    watched.stand.sql("DELETE FROM sensorpool_outbox")


def test_a_result_that_cannot_be_written(watched: Watched, tmp_path: Path) -> None:
    """A forgotten transaction holds the group's row."""
    made = watched.service.pool.register(SENSOR, {"folder": str(tmp_path), "name": "held"}, timeout=600)
    until("a poke", lambda: "held" in pokes(tmp_path))
    with watched.service.pool.database.engine.begin() as connection:
        connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        connection.execute(text(f"SELECT id FROM poke_group WHERE id = {made.group_id} FOR UPDATE"))
        land(tmp_path, "held")
        until("the settle to fail", lambda: watched.told("sensorpool_unsettled_groups") == 1)
        watched.alerts("SensorpoolResultsNotWritten")
    assert watched.service.pool.wait([made.id], 60)[made.id] == "success"
