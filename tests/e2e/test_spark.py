"""SparkSubmitOperator in cluster mode: submits on its worker, and waits in the pool."""

import http.server
import json
import threading
from collections.abc import Iterator

import pytest

from tests.e2e.cluster import Cluster


@pytest.fixture
def master(cluster: Cluster) -> Iterator[int]:
    """A Spark master's REST port, which says of every driver what the test has written down."""

    class Master(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state = (cluster.work / "spark_state").read_text()
            body = json.dumps({"success": True, "driverState": state}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Master)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with server:
        yield server.server_address[1]
        server.shutdown()


@pytest.mark.parametrize(("state", "becomes"), [("FINISHED", "success"), ("FAILED", "failed")])
def test_ends_as_its_job_does(cluster: Cluster, master: int, state: str, becomes: str) -> None:
    connection = {
        "connection_id": "spark_default",
        "conn_type": "spark",
        "host": "spark://127.0.0.1:7077,127.0.0.1:7078",
        "extra": json.dumps({"deploy-mode": "cluster", "rest-port": str(master)}),
    }
    cluster.put_connection(connection)
    (cluster.work / "spark_submitted").unlink(missing_ok=True)
    (cluster.work / "spark_state").write_text("RUNNING")
    cluster.trigger("spark", state)
    cluster.wait_for("the job to be waited for", lambda: _state(cluster, state) in {"deferred", "failed"})
    (cluster.work / "spark_state").write_text(state)
    cluster.wait_for("its end", lambda: _state(cluster, state) == becomes)
    assert [row.state for row in cluster.instances(dag_id="spark", run_id=state)] == ["success"]
    assert len((cluster.work / "spark_submitted").read_text().splitlines()) == 1
    assert "application_args" not in cluster.instances(dag_id="spark", run_id=state)[0].poke_context


def _state(cluster: Cluster, run_id: str) -> str | None:
    return cluster.states("spark", run_id).get(("submit", -1), (None, 0))[0]
