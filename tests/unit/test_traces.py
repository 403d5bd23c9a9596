"""Tracebacks of failing pokes: made, told once a change, kept, and never with a secret."""

import json
from typing import Any

import pytest

from sensorpool.errors import FailSensor, InfraFailure, Unreachable
from sensorpool.instrumentation import redaction
from sensorpool.leases import tracebacks as module
from sensorpool.leases.redis_store import RedisStore
from sensorpool.leases.tracebacks import Tracebacks
from sensorpool.model.states import Outcome
from sensorpool.model.values import Report, Trace
from sensorpool.poke import traces
from sensorpool.poke.answer import Answers, Reported
from sensorpool.poke.traces import Traces
from sensorpool.worker import failing_pokes
from sensorpool.worker.failing_pokes import FailingPokes
from tests.support.builders import START, due_group


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def elsewhere(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


class Odd(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, *modules: Any) -> None:
        self.now = 1_000.0
        for each in modules:
            monkeypatch.setattr(each.time, "monotonic", lambda: self.now)


# the trace of an error


def test_an_error_has_its_traceback_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, of = Clock(monkeypatch, traces), Traces().of
    first, again, other = of(raised(KeyError("a"))), of(raised(KeyError("b"))), of(elsewhere(KeyError("a")))
    assert first is not None
    assert again is not None
    assert other is not None
    assert first.signature == again.signature != other.signature
    assert first.text is not None
    assert first.text.startswith("Traceback")
    assert "KeyError: 'a'" in first.text
    assert again.text is None
    assert "in elsewhere" in (other.text or "")
    clock.now += traces.AGAIN
    later = of(raised(KeyError("c")))
    assert later is not None
    assert "KeyError: 'c'" in (later.text or "")


def test_a_traceback_is_bounded_and_has_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    redaction.learn("postgresql://user:thesecretword@host/db")
    trace = Traces().of(raised(ValueError(f"{'x' * 100_000} thesecretword \0 \ud800")))
    assert trace is not None
    text = trace.text or ""
    assert len(text) <= traces.LONGEST
    assert "thesecretword" not in text
    assert "\0" not in text
    assert text.encode()


def test_a_deep_recursion_has_a_short_traceback() -> None:
    def deeper(n: int) -> int:
        return deeper(n + 1)

    try:
        deeper(0)
    except RecursionError as error:
        trace = Traces().of(error)
    assert trace is not None
    assert "deeper" in (trace.text or "")
    assert len(trace.text or "") <= traces.LONGEST


def test_an_error_with_a_long_chain_of_causes_has_a_short_traceback() -> None:
    error: BaseException = ValueError("the first")
    for n in range(20_000):
        error, cause = ValueError(str(n)), error
        error.__cause__ = cause
    trace = Traces().of(raised(error))
    assert trace is not None
    assert "ValueError: 19999" in (trace.text or "")
    assert "the first" not in (trace.text or "")


def test_an_error_that_cannot_be_read_has_none_and_the_poke_is_reported() -> None:
    report = Answers(()).of_exception(due_group(1), 0.0, raised(Odd()))
    assert report.outcome is Outcome.POKE_ERROR
    assert report.reason is not None


@pytest.mark.parametrize(
    ("error", "traced"),
    [(ValueError("x"), True), (InfraFailure("x"), True), (SystemExit(1), True), (FailSensor("x"), False)],
)
def test_what_is_raised_on_purpose_has_none(error: BaseException, traced: bool) -> None:
    report = Answers(()).of_exception(due_group(1), 0.0, raised(error))
    assert (report.trace is not None) is traced


def test_the_trace_of_another_process_is_told_as_it_is() -> None:
    trace = Trace("12345678", "Traceback …")
    error = Reported(Outcome.POKE_ERROR, "ValueError: x", trace)
    assert Answers(()).of_exception(due_group(1), 0.0, raised(error)).trace == trace


# the lines of log


class Seen:
    """What `FailingPokes` logs of reports."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, client: Any) -> None:
        self.lines: list[dict[str, Any]] = []
        self.clock = Clock(monkeypatch, failing_pokes)
        self.tracebacks = Tracebacks(RedisStore(client))
        self.failing = FailingPokes(self.tracebacks, lambda ids: [(f"a.Sensor{each // 100}", "") for each in ids])
        for level in ("warning", "error"):
            said = lambda event, level=level, **fields: self.lines.append({"level": level, **fields})  # noqa: E731
            monkeypatch.setattr(failing_pokes.log, level, said)

    def take(self, *reports: Report) -> list[dict[str, Any]]:
        self.lines = []
        self.failing.take(reports, START)
        return self.lines


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, client: Any) -> Seen:
    return Seen(monkeypatch, client)


def failed(group_id: int, signature: str | None = "aaaa", outcome: Outcome = Outcome.POKE_ERROR) -> Report:
    trace = None if signature is None else Trace(signature, f"Traceback of {signature}")
    return Report(due_group(group_id), 0.0, outcome, "ValueError: x", None, 0.0, trace)


def fine(group_id: int) -> Report:
    return Report(due_group(group_id), 0.0, Outcome.NOT_LANDED)


def test_a_change_is_a_line_with_class_and_traceback(seen: Seen) -> None:
    [line] = seen.take(fine(2), failed(1))
    assert line == {
        "level": "error",
        "op_classpath": "a.Sensor0",
        "group_id": 1,
        "outcome": "poke_error",
        "reason": "ValueError: x",
        "traceback": "Traceback of aaaa",
    }
    seen.clock.now += 1_000
    assert seen.take(failed(1)) == [], "it fails as before"
    [line] = seen.take(failed(1, "bbbb"))
    assert line["traceback"] == "Traceback of bbbb"
    assert seen.take(fine(1)) == []
    seen.clock.now += 1_000
    assert len(seen.take(failed(1, "bbbb"))) == 1, "it answered meanwhile"


def test_many_groups_that_fail_alike_are_a_line_a_minute(seen: Seen) -> None:
    assert len(seen.take(*(failed(n, outcome=Outcome.INFRA_FAILURE) for n in range(100)))) == 1
    assert seen.lines[0]["level"] == "warning"
    seen.clock.now += failing_pokes.EVERY
    assert seen.take(*(failed(n) for n in range(100))) == [], "they fail as before"
    assert len(seen.take(failed(100))) == 1, "another class"
    seen.take(*(fine(n) for n in range(100)))
    [line] = seen.take(*(failed(n) for n in range(100)))
    assert line["others"] == 99


def test_what_is_remembered_is_bounded(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failing_pokes, "_GROUPS", 10)
    monkeypatch.setattr(failing_pokes, "_KINDS", 5)
    for n in range(100):
        seen.take(failed(n, f"{n:04}"))
    assert len(seen.take(failed(0, "0000"))) == 1, "the oldest was forgotten"
    assert seen.take(failed(99, "0099")) == []


# in Redis


def test_tracebacks_are_kept_and_found(seen: Seen) -> None:
    seen.take(failed(1), failed(2, "bbbb"))
    assert seen.tracebacks.find("aaaa") == "Traceback of aaaa"
    assert seen.tracebacks.find("cccc") is None


def test_the_oldest_of_too_many_tracebacks_goes(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    tracebacks = Tracebacks(RedisStore(client))
    for n in (5, 2, 9, 7):
        tracebacks.keep(f"{n}", f"text {n}", START + n)
    assert [n for n in range(10) if tracebacks.find(f"{n}")] == [5, 7, 9]
    name = "sensorpool:{pool}:tracebacks"
    assert client.hlen(name) == 3
    assert client.pttl(name) > 0


@pytest.mark.parametrize("garbled", ["", "null", "[1]", "[1, 2]", "[" * 5_000, json.dumps({"a": 1})])
def test_a_garbled_traceback_is_none(client: Any, garbled: str) -> None:
    tracebacks = Tracebacks(RedisStore(client))
    tracebacks.keep("aaaa", "text", START)
    client.hset("sensorpool:{pool}:tracebacks", "aaaa", garbled)
    assert tracebacks.find("aaaa") is None
    client.set("sensorpool:{pool}:tracebacks", "of another type")
    assert tracebacks.find("aaaa") is None
    tracebacks.keep("aaaa", "text", START)
    assert tracebacks.find("aaaa") == "text"


def test_a_redis_that_does_not_answer_loses_a_traceback_and_nothing_else(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise Unreachable("Redis does not answer")

    monkeypatch.setattr(seen.tracebacks, "keep", away)
    assert [line["level"] for line in seen.take(failed(1))] == ["error", "warning"]
