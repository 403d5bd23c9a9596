"""OpenTelemetry's spans of a running pool, as a collector gets them; and what a missing collector or package does."""

import gzip
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from harness.scripted import land
from harness.service import Service
from harness.until import until
from sensorpool.model.states import State
from tests.support.scrapes import free_port

SCRIPTED = "harness.scripted.ScriptedSensor"
JOB = ("sensorpool.load", "sensorpool.poke", "sensorpool.settle")


class Collector:
    """Takes spans by OTLP over HTTP."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.services: set[str] = set()
        collector = self

        class Takes(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.take(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Takes)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()

    def take(self, request: Any) -> None:
        for resource in request.resource_spans:
            self.services |= {
                each.value.string_value for each in resource.resource.attributes if each.key == "service.name"
            }
            for scope in resource.scope_spans:
                self.spans += scope.spans

    def trace_of_landing(self) -> dict[str, Any] | None:
        """Return the spans of the trace in which results were published, by name."""
        for published in self.spans:
            if published.name == "sensorpool.publish":
                found = {each.name: each for each in self.spans if each.trace_id == published.trace_id}
                if "sensorpool.job" in found:  # it ends last
                    return found
        return None

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def test_a_job_is_a_trace_to_its_publication(
    make_service: Callable[..., Service], collector: Collector, tmp_path: Path
) -> None:
    service = make_service()
    instance = service.pool.register(SCRIPTED, {"folder": str(tmp_path), "name": "x"})
    service.start(OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, OTEL_BSP_SCHEDULE_DELAY="100")
    land(tmp_path, "x")
    found = until("the trace of its landing", collector.trace_of_landing)
    job = found["sensorpool.job"]
    assert not job.parent_span_id
    for name in JOB:
        assert found[name].parent_span_id in {job.span_id, found["sensorpool.poke"].span_id}, name
        assert job.start_time_unix_nano <= found[name].start_time_unix_nano <= found[name].end_time_unix_nano, name
    assert found["sensorpool.publish"].parent_span_id == found["sensorpool.settle"].span_id
    told = {each.key: each.value.int_value or each.value.string_value for each in job.attributes}
    assert told["sensorpool.poked"] == 1
    assert "-" in told["sensorpool.range"]
    assert collector.services == {"sensorpool"}
    assert service.pool.wait(instance, 60) == {instance.id: State.SUCCESS}


def test_a_collector_that_is_away_holds_nothing_up(make_service: Callable[..., Service], tmp_path: Path) -> None:
    service = make_service()
    instance = service.pool.register(SCRIPTED, {"folder": str(tmp_path), "name": "x"})
    service.start(OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{free_port()}", OTEL_BSP_SCHEDULE_DELAY="100")
    land(tmp_path, "x")
    assert service.pool.wait(instance, 60) == {instance.id: State.SUCCESS}


@pytest.mark.parametrize(
    ("hidden", "variables", "said"),
    [
        ("opentelemetry.sdk", {"OTEL_EXPORTER_OTLP_ENDPOINT": "x"}, "install sensorpool with its extra `otel`"),
        ("opentelemetry", {"OTEL_TRACES_EXPORTER": "otlp"}, "install sensorpool with its extra `otel`"),
        ("", {"OTEL_TRACES_EXPORTER": "jaeger"}, "an exporter that is not known here"),
        ("", {"OTEL_TRACES_EXPORTER": "console", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "4096"}, "that begin with OTEL_"),
        ("", {"OTEL_TRACES_EXPORTER": "console", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "x"}, "that begin with OTEL_"),
    ],
)
def test_what_is_wrong_is_one_line_and_costs_the_traces_only(hidden: str, variables: dict[str, str], said: str) -> None:
    done = _python(
        f"""
        import sys
        if {hidden!r}: sys.modules[{hidden!r}] = None
        from sensorpool.instrumentation import logs, spans
        logs.configure("text", "INFO")
        spans.set_up()
        for _ in range(2):
            with spans.span("job") as span:
                span.set_attributes({{}})
                spans.following("publish", lambda: print("done"))()
        """,
        **variables,
    )
    assert done.stderr.count(said) == 1, done.stderr
    assert done.stdout.count("done") == 2
    assert "Traceback" not in done.stderr


def test_a_client_sets_no_provider() -> None:
    done = _python(
        """
        from opentelemetry import trace
        from sensorpool.instrumentation import spans
        with spans.span("settle"):
            print(type(trace.get_tracer_provider()).__name__)
        """,
        OTEL_TRACES_EXPORTER="console",
    )
    assert done.stdout.split() == ["ProxyTracerProvider"]


def test_without_a_wish_nothing_of_it_is_imported_and_an_error_passes() -> None:
    done = _python(
        """
        import sys
        from sensorpool.instrumentation import spans
        try:
            with spans.span("job"):
                spans.following("publish", lambda: print("done"))()
                raise KeyError("x")
        except KeyError:
            print("opentelemetry" in sys.modules)
        """
    )
    assert done.stdout.split() == ["done", "False"]


def test_an_error_is_told_without_its_text() -> None:
    done = _python(
        """
        from sensorpool.instrumentation import spans
        spans.set_up()
        try:
            with spans.span("job"):
                raise KeyError("a-secret")
        except KeyError:
            print("raised")
        """,
        OTEL_TRACES_EXPORTER="console",
    )
    assert "raised" in done.stdout
    assert "KeyError" in done.stderr
    assert "a-secret" not in done.stderr


def _python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
