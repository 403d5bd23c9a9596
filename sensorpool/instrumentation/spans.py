"""OpenTelemetry's spans of a job: `job`, and in it `load`, `poke`, `settle`. `publish` follows a settle.

A worker makes them where OpenTelemetry's variables ask for them, and each process where another package in it has set a
tracer provider. Elsewhere its packages are not even imported. No span has the text of an error, where a secret may be.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line

_ASK = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_EXPORTER")
_PREFIX = "sensorpool."

log = logger(__name__)


class _Nothing:
    """A span that nothing asks for."""

    def set_attributes(self, _: dict[str, Any]) -> None:
        """Note nothing."""


_NOTHING = nullcontext(_Nothing())


def span(name: str, **attributes: object) -> AbstractContextManager[Any]:
    """Return a span of this thread's trace; inside, it takes ``set_attributes``."""
    tracer = _tracer()
    return _NOTHING if tracer is None else _begun(tracer, name, attributes, None)


def following(name: str, act: Callable[[], object], **attributes: object) -> Callable[[], object]:
    """Return a function that does something in a span of the trace that this thread is in now, in whatever thread."""
    tracer = _tracer()
    if tracer is None:
        return act
    from opentelemetry import context

    here = context.get_current()

    def act_in_span() -> object:
        with _begun(tracer, name, attributes, here):
            return act()

    return act_in_span


@contextmanager
def _begun(tracer: Any, name: str, attributes: dict[str, object], context: Any) -> Iterator[Any]:
    from opentelemetry.trace import Status, StatusCode

    named = {f"{_PREFIX}{key}": value for key, value in attributes.items()}
    with tracer.start_as_current_span(
        f"{_PREFIX}{name}", context, attributes=named, record_exception=False, set_status_on_exception=False
    ) as begun:
        try:
            yield begun
        except BaseException as error:
            begun.set_status(Status(StatusCode.ERROR, type(error).__name__))
            raise


def set_up() -> None:
    """Set a tracer provider for this process, one of the pool's own, if a variable asks for one and none is set.

    Whatever is wrong with the variables or the packages is logged: it costs the traces, and no poke.
    """
    asked = [name for name in _ASK if os.environ.get(name)]
    if not asked:
        return
    try:
        from opentelemetry import trace

        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            trace.set_tracer_provider(_provider())
    except Exception as error:
        mend = "mend the variables that begin with OTEL_"  # the SDK does not understand one
        if isinstance(error, ImportError):
            mend = f"{asked[0]} asks for traces: install sensorpool with its extra `otel`"
        log.warning("no traces are made", error=one_line(error), mend=mend)


@cache
def _tracer() -> Any:
    """Return what makes spans; None: this process has no provider."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    from opentelemetry import trace

    is_set = not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    return trace.get_tracer("sensorpool") if is_set else None


def _provider() -> Any:
    """Return a provider as the variables want it; sampling and the service's name are read by the SDK itself."""
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

    service = os.environ.get("OTEL_SERVICE_NAME") or "sensorpool"
    provider = TracerProvider(resource=Resource.create({SERVICE_NAME: service}))
    for kind in os.environ.get("OTEL_TRACES_EXPORTER", "otlp").split(","):
        if kind.strip() == "otlp":
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        elif kind.strip() == "console":
            provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter(out=sys.stderr)))
        elif kind.strip() != "none":
            log.warning("OTEL_TRACES_EXPORTER names an exporter that is not known here", name=kind)
    return provider
