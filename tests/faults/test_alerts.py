"""Each fault that an operator has to mend alerts: Prometheus's own rules, on scrapes of a real pool in the fault.

The pool is scraped before the fault and in it. Prometheus's evaluation is told that either state lasted: what a test
waits for is seconds, and what an alert waits for is minutes.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from sqlalchemy import make_url, text

from harness.scripted import land, pokes
from harness.servers import Elsewhere, Server, fresh_database
from harness.service import children, kill_tree
from harness.until import until
from sensorpool.publish import wire
from sensorpool.service.app import make_app
from tests.faults.conftest import record_of
from tests.faults.stand import Stand, stand_on
from tests.faults.trial import OF_FAULTS, RECORDING
from tests.support.promtool import Phase, check, firing, promtool, series_of
from tests.support.scrapes import Sample, free_port, scrape, total, values

SENSOR = "harness.scripted.ScriptedSensor"
BACKEND = f"{RECORDING}.Backend"
GO_ON = "theirs.go_on"  # a task that on_settled may call
ROLE = f"watched_{os.urandom(6).hex()}"
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
            and values(told, "sensorpool_workers") == [2.0, 2.0]
            and values(told, "sensorpool_ranges_late") == [0.0, 0.0]
            and all(0 < each < 20 for each in values(told, "sensorpool_beat_seconds"))
        )

    def scraped(self) -> dict[str, list[Sample]]:
        """Return what each worker tells."""
        with ThreadPoolExecutor() as at_once:
            return {f"worker-{place}:9109": each for place, each in enumerate(at_once.map(scrape, self.ports))}

    def told(self, name: str, **labels: str) -> float:
        """Return the greatest value of a metric at a worker: each tells the figures of the pool."""
        return max(total(samples, name, **labels) for samples in self.scraped().values())

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

    def is_there(self, name: str) -> bool:
        """Whether a worker tells a metric."""
        return any(values(samples, name) for samples in self.scraped().values())

    def alerts(self, *names: str, seen: dict[str, list[Sample]] | None = None, lasting: int = FAULT) -> None:
        """Check that these alerts fire once a state has lasted, and that none fired before.

        :param seen: what the workers told in the fault; otherwise they are asked now.
        :param lasting: steps.
        """
        phases = [Phase(self._well, BEFORE), Phase(seen or self.scraped(), lasting)]
        expected = firing(dict.fromkeys(names, 1), at=BEFORE + lasting - 1, among="|".join(names))
        check(self._folder, series_of(phases), [firing({}, at=BEFORE - 1), expected])


SETTINGS = {
    "hanging_concurrency": 1,
    "poke_concurrency": 2,
    "on_settled_tasks": GO_ON,
    "on_settled_broker_url": f"redis://127.0.0.1:{free_port()}/0",  # which is not there
}


@contextmanager
def role_in(stand: Stand, database_url: str) -> Iterator[None]:
    """Have the workers connect as a role of their own, which has all rights that it needs, and is no superuser."""
    url = make_url(database_url)
    stand.sql(
        f"CREATE ROLE {ROLE} LOGIN PASSWORD '{url.password}'",
        f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {ROLE}",
        f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {ROLE}",
    )
    stand.service.environment["SENSORPOOL_DATABASE_URL"] = stand.postgres.url(
        url.set(username=ROLE).render_as_string(hide_password=False)
    )
    try:
        yield
    finally:
        stand.service.stop()
        stand.sql(f"DROP OWNED BY {ROLE}", f"DROP ROLE {ROLE}")


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
        stand_on(folder, database_url, redis_url, record_of, sensors=OF_FAULTS, **SETTINGS) as stand,
        role_in(stand, database_url),
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


def test_a_backend_that_is_away(watched: Watched, tmp_path: Path) -> None:
    """Fault 51."""
    (tmp_path / "down").touch()
    contexts = [{"folder": str(tmp_path), "name": f"b{n}"} for n in range(40)]
    each = [{"sensor": BACKEND, "poke_context": context, "timeout": 600} for context in contexts]
    made = [one.id for one in watched.service.pool.register_many(each)]
    watched.alerts("SensorpoolBackendAway", seen=watched.until_told("the outage", "sensorpool_backends_away"))
    for one in made:
        watched.service.pool.cancel(one)
    (tmp_path / "down").unlink()
    watched.service.pool.leases.store.client.delete(*watched.service.pool.leases.store.client.keys("*outages*"))
    until("no outage", lambda: watched.told("sensorpool_backends_away") == 0)


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
        "INSERT INTO sensorpool_outbox (created_at, instance_ids, tries, next_try_at)"
        " SELECT now - 360000, '[]', 9, now + 600000"
        " FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now) t"
    )
    until("its age", lambda: watched.told("sensorpool_outbox_seconds") > 300)
    watched.alerts("SensorpoolOutboxStuck")
    watched.stand.sql("DELETE FROM sensorpool_outbox")


def test_a_result_that_cannot_be_written(watched: Watched, tmp_path: Path) -> None:
    """A forgotten transaction holds the group's row, and so the deadline of a member passes without an end."""
    script = {"folder": str(tmp_path), "name": "held"}
    made = [watched.service.pool.register(SENSOR, script, timeout=seconds) for seconds in (600, 5)]
    until("a poke", lambda: "held" in pokes(tmp_path))
    with watched.service.pool.database.engine.begin() as connection:
        connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        connection.execute(text(f"SELECT id FROM poke_group WHERE id = {made[0].group_id} FOR UPDATE"))
        land(tmp_path, "held")
        seen = watched.until_told("the settle to fail", "sensorpool_unsettled_total")
        watched.alerts("SensorpoolResultsNotWritten", seen=seen, lasting=10)
        watched.alerts("SensorpoolPastDeadline", seen=watched.until_told("the deadline", "sensorpool_past_deadline"))
    assert set(watched.service.pool.wait([each.id for each in made], 60).values()) == {"success"}


def test_more_pokes_than_slots(watched: Watched, tmp_path: Path) -> None:
    """Fault 35: eight slots take more than ten seconds for the pokes of an interval of two."""
    script = {"folder": str(tmp_path), "seconds": 0.3}
    each = [{"sensor": SENSOR, "poke_context": script | {"name": f"s{n}"}, "timeout": 600} for n in range(300)]
    made = [one.id for one in watched.service.pool.register_many(each)]
    watched.alerts("SensorpoolCannotKeepUp", seen=watched.until_told("groups left over", "sensorpool_overdue"))
    for each in made:
        watched.service.pool.cancel(each)


def test_a_callback_whose_broker_is_away(watched: Watched, tmp_path: Path) -> None:
    """Its row is as old as it would be after six minutes."""
    script = {"folder": str(tmp_path), "name": "called"}
    made = watched.service.pool.register(SENSOR, script, timeout=600, on_settled={"task": GO_ON})
    land(tmp_path, "called")
    watched.until_told("the callback to wait", "sensorpool_callbacks")
    watched.stand.sql("UPDATE sensorpool_callback SET created_at = created_at - 360000")
    until("its age", lambda: watched.told("sensorpool_callbacks_seconds") > 300)
    watched.alerts("SensorpoolCallbacksStuck")
    assert watched.service.pool.wait([made.id], 60) == {made.id: "success"}, "no settle waits for a broker"
    watched.stand.sql("DELETE FROM sensorpool_callback")


def test_a_class_that_one_worker_lacks(watched: Watched, tmp_path: Path) -> None:
    """Fault 39: a worker with an old allowlist beside sound ones."""
    port = free_port()
    odd = watched.stand.add_worker(
        SENSORPOOL_METRICS_PORT=str(port), SENSORPOOL_SENSORS_ENABLED="sensorpool.sensors.TimeSensor"
    )
    watched.ports.append(port)
    script = {"folder": str(tmp_path)}
    made = [watched.service.pool.register(SENSOR, script | {"name": f"c{n}"}, timeout=600).id for n in range(20)]
    watched.alerts("SensorpoolClassNotHere", seen=watched.until_told("its complaint", "sensorpool_not_here"))
    watched.ports.remove(port)
    kill_tree(odd)
    for each in made:
        watched.service.pool.cancel(each)


@pytest.mark.parametrize(
    ("right", "alert"),
    [("DELETE ON poke_quarantine", "SensorpoolRescueFails"), ("SELECT ON poke_quarantine", "SensorpoolNotObserved")],
)
def test_a_missing_grant(watched: Watched, right: str, alert: str) -> None:
    """What a role may not do: a chore of rescue, or to ask for one of the pool's figures."""
    watched.stand.sql(f"REVOKE {right} FROM {ROLE}")
    if alert == "SensorpoolRescueFails":
        watched.alerts(alert, seen=watched.until_told("it to fail for three rounds", "sensorpool_failing_chores"))
    else:
        names = ("sensorpool_sensing", "sensorpool_server_up")
        until("no figures", lambda: [watched.is_there(name) for name in names] == [False, True])
        watched.alerts(alert)
    watched.stand.sql(f"GRANT {right} TO {ROLE}")


def test_a_job_of_another_pool(watched: Watched) -> None:
    """Two pools on one broker."""
    shard_range = watched.service.pool.ranges[0]
    message = wire.shard_message(shard_range) | {"kwargs": {"tick": 1}, "headers": {wire.POOL: "of-another-pool"}}
    make_app(watched.service.settings).send_task(wire.POKE_SHARD, **message)
    seen = watched.until_told("it to be refused", "sensorpool_jobs_refused_total")
    watched.alerts("SensorpoolJobsOfOthers", seen=seen, lasting=10)


def test_children_that_die(watched: Watched) -> None:
    """Fault 7, ten times. It is told for ten minutes, so it comes last."""
    killed: set[int] = set()
    while len(killed) < 10:
        for child in [each for worker in watched.workers for each in _alive(worker, killed)]:
            child.kill()
            killed.add(child.pid)
        until("others in their place", lambda: all(len(_alive(worker, killed)) == 2 for worker in watched.workers))
    until("their deaths to be told", lambda: watched.told("sensorpool_child_deaths", by="outside") >= 10)
    watched.alerts("SensorpoolChildrenDie")


def _alive(worker: subprocess.Popen[bytes], killed: set[int]) -> list[psutil.Process]:
    return [each for each in children(worker) if each.pid not in killed]
