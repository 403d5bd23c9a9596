"""Tracebacks of failing pokes: each its own, logged once a change, bounded, and never with a secret."""

from typing import Any

import pytest

from sensorpool.errors import FailSensor, InfraFailure
from sensorpool.instrumentation import redaction
from sensorpool.leases import poke_log
from sensorpool.leases.poke_log import Record, latest_pokes
from sensorpool.model.states import Outcome
from sensorpool.model.values import Report, Trace
from sensorpool.poke import answer
from sensorpool.poke.answer import LONGEST_TRACE, MOST_TEXTS, Answers, Reported, Traces
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


def test_errors_of_the_same_lines_have_one_signature_and_each_its_own_text(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch, answer)
    of = Traces().of
    first, again, other = of(raised(KeyError("a"))), of(raised(KeyError("b"))), of(elsewhere(KeyError("a")))
    assert first is not None
    assert again is not None
    assert other is not None
    assert first.signature == again.signature != other.signature
    assert (first.text or "").startswith("Traceback")
    assert "KeyError: 'a'" in (first.text or "")
    assert "KeyError: 'b'" in (again.text or "")
    assert "in elsewhere" in (other.text or "")


def test_so_many_texts_are_made_in_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, of = Clock(monkeypatch, answer), Traces().of
    made = [of(raised(KeyError("a"))) for _ in range(MOST_TEXTS + 5)]
    assert [trace is not None and trace.text is not None for trace in made] == [True] * MOST_TEXTS + [False] * 5
    clock.now += 1
    later = of(raised(KeyError("c")))
    assert later is not None
    assert "KeyError: 'c'" in (later.text or "")


def test_a_traceback_is_bounded_and_has_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    redaction.learn("postgresql://user:thesecretword@host/db")
    trace = Traces().of(raised(ValueError(f"{'x' * 100_000} thesecretword \0 \ud800")))
    assert trace is not None
    text = trace.text or ""
    assert len(text) <= LONGEST_TRACE
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
    assert len(trace.text or "") <= LONGEST_TRACE


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

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines: list[dict[str, Any]] = []
        self.clock = Clock(monkeypatch, failing_pokes)
        self.failing = FailingPokes(lambda ids: [(f"a.Sensor{each // 100}", "") for each in ids])
        for level in ("warning", "error"):
            said = lambda event, level=level, **fields: self.lines.append({"level": level, **fields})  # noqa: E731
            monkeypatch.setattr(failing_pokes.log, level, said)

    def take(self, *reports: Report) -> list[dict[str, Any]]:
        self.lines = []
        self.failing.take(reports)
        return self.lines


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    return Seen(monkeypatch)


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
    assert seen.take(failed(1)) == [], "it fails as before"
    [line] = seen.take(failed(1, "bbbb"))
    assert line["traceback"] == "Traceback of bbbb"
    seen.clock.now += failing_pokes.EVERY
    [line] = seen.take(failed(1, "bbbb"))
    assert "others" not in line


def test_pokes_that_fail_alike_are_a_line_in_ten_minutes(seen: Seen) -> None:
    assert len(seen.take(*(failed(n, outcome=Outcome.INFRA_FAILURE) for n in range(100)))) == 1
    assert seen.lines[0]["level"] == "warning"
    seen.clock.now += failing_pokes.EVERY - 1
    assert seen.take(*(failed(n) for n in range(100))) == []
    assert len(seen.take(failed(100))) == 1, "another class"
    seen.clock.now += 1
    [line] = seen.take(*(failed(n) for n in range(100)))
    assert line["others"] == 199


def test_a_backend_that_is_away_has_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(monkeypatch)
    seen.failing = FailingPokes(lambda ids: [("a.Sensor", "hive") for _ in ids], lambda backend: backend == "hive")
    assert seen.take(failed(1, outcome=Outcome.INFRA_FAILURE)) == []
    [line] = seen.take(failed(1))
    assert line["backend"] == "hive"


def test_what_is_remembered_is_bounded(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failing_pokes, "_KINDS", 5)
    for n in range(100):
        seen.take(failed(n, f"{n:04}"))
    assert len(seen.take(failed(0, "0000"))) == 1, "the oldest was forgotten"
    assert seen.take(failed(99, "0099")) == []


def test_a_record_has_the_traceback_of_each_poke_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poke_log, "TRACEBACKS", 40)
    record = Record(START)
    record.add([failed(1), fine(2), failed(3, "bbbb"), failed(4, "cccc")], [0] * 4)
    found = latest_pokes(record.texts().values(), range(5))
    assert {group_id: poked.traceback for group_id, poked in found.items()} == {
        1: "Traceback of aaaa",
        2: None,
        3: "Traceback of bbbb",
        4: None,
    }
    assert found[4].reason == "ValueError: x"
