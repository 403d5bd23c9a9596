"""Each case natively, begun on a worker and begun by the scheduler: everything that can be seen must be the same."""

from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from harness.servers.server import LOOPBACK
from tests.e2e.seen import Seen, look
from tests.e2e.start_cases import CASES
from tests.e2e.starting import Starting

RUN, MOMENT = "run1", "2026-01-01T00:00:00Z"
WAYS = ("native", "worker", "scheduler")
DATED = "2026-01-01/20260101T000000/2026-01-04/LATE/2026"
DECIDED = {"error_retried", "external", "external_skips", "external_fails"}  # when they begin: a first poke ends them
WITHOUT_A_WORKER = {"success", "templates", "reschedule"}  # to the end; the others end on one


@pytest.fixture(scope="module")
def backend(starting: Starting) -> Iterator[None]:
    """A server that knows a thing once its file is there, and breaks if that says so."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Answer, for a condition and a try."""
            name, number = self.path.strip("/").split("/")
            said = starting.work / name
            if "error_retried" in name:
                broken, there = number == "1", True
            else:
                there = said.exists()
                broken = there and said.read_text() == "raise"
            self.send_response(
                HTTPStatus.INTERNAL_SERVER_ERROR if broken else HTTPStatus.OK if there else HTTPStatus.NOT_FOUND
            )
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer((LOOPBACK, 0), Answers) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        starting.put_connection(
            {"connection_id": "backend", "conn_type": "http", "host": LOOPBACK, "port": server.server_port}
        )
        yield
        server.shutdown()


@pytest.fixture(scope="module")
def seen(
    starting: Starting,
    backend: None,
    cases: frozenset[str],  # `backend` answers the sensors
) -> dict[str, dict[str, Seen]]:
    """All runs of the cases: they wait together, and then each condition does what its case says."""
    starting.trigger("upstream", RUN, MOMENT)
    starting.wait_for("upstream", lambda: starting.run_state("upstream", RUN) == "success")
    dag_ids = [f"{way}_{case}" for way in WAYS for case in CASES if case in cases]
    for dag_id in dag_ids:
        starting.trigger(dag_id, RUN, MOMENT)
    for case, what in CASES.items():
        for way in WAYS if what and case in cases else ():
            waiting = {"running", "up_for_reschedule"} if way == "native" else {"deferred"}
            name = f"{way}_{case}"
            starting.wait_for(f"{name} to wait", lambda n=name, w=waiting: starting.by_task(n, RUN).get("wait") in w)
            starting.say(f"{name}_{RUN}" + (f"/{DATED}" if case == "templates" else ""), what)
    for dag_id in dag_ids:
        starting.wait_for(f"the end of {dag_id}", lambda d=dag_id: starting.run_state(d, RUN) in {"success", "failed"})
    return {case: {way: look(starting, f"{way}_{case}", RUN) for way in WAYS} for case in cases}


@pytest.mark.parametrize("case", CASES)
def test_ends_alike_all_three_ways(starting: Starting, seen: dict[str, dict[str, Seen]], case: str) -> None:
    assert not starting.instances(dag_id=f"native_{case}")
    for way in ("worker", "scheduler"):
        instances = starting.instances(dag_id=f"{way}_{case}")
        ended_on_its_worker = way == "worker" and case in DECIDED
        assert bool(instances) != ended_on_its_worker, way
        assert all(row.state != "sensing" for row in instances)
        assert seen[case][way] == seen[case]["native"], way
    assert "wait" in starting.begun_on_workers(f"worker_{case}")
    assert ("wait" not in starting.begun_on_workers(f"scheduler_{case}")) == (case in WITHOUT_A_WORKER)


def test_the_log_says_why_a_sensor_begins_on_a_worker(starting: Starting, seen: dict[str, dict[str, Seen]]) -> None:
    assert seen
    log = "\n".join(starting.log_of("worker_success", RUN, "wait"))
    assert "max_active_tis_per_dag" in log
