"""Logs: one line for each event, with its figures as fields, and without secrets."""

import json
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sensorpool.instrumentation import logs
from sensorpool.instrumentation.log_filters import PokeLines
from sensorpool.instrumentation.logs import formatter, logger
from sensorpool.poke.classes import Classes

FORMATS = ["text", "json"]
URL = "postgresql://user:hunter2@host/name"

Say = Callable[..., str]


@pytest.fixture(params=FORMATS)
def say(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Say:
    """Log an event, and return the text that would be written."""

    def write(event: str, *, failing: BaseException | None = None, **fields: Any) -> str:
        with caplog.at_level(logging.DEBUG):
            if failing is None:
                logger("sensorpool.test").info(event, **fields)
            else:
                try:
                    raise failing
                except type(failing):
                    logger("sensorpool.test").exception(event, **fields)
        return formatter(request.param).format(caplog.records[-1])

    return write


def test_a_text_line_has_time_level_logger_event_and_fields(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        logger("sensorpool.test").warning("settled", groups=3, seconds=0.5, why="two words", empty="", quote='a"b=c')
    line = formatter("text").format(caplog.records[-1])
    time, rest = line.split(" ", 1)
    assert time.endswith("Z")
    assert "T" in time
    assert rest == r'''warning sensorpool.test: settled groups=3 seconds=0.5 why="two words" empty="" quote="a\"b=c"'''


def test_a_json_line_has_time_level_logger_event_and_fields(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        logger("sensorpool.test").info("settled", groups=3, seconds=0.5, why="two words", cls=int)
    entry = json.loads(formatter("json").format(caplog.records[-1]))
    assert entry.pop("time").endswith("Z")
    assert (entry.pop("host"), entry.pop("pid")) == (socket.gethostname(), os.getpid())
    assert "worker" not in entry, "this process is none"
    expected = {"level": "info", "logger": "sensorpool.test", "event": "settled", "groups": 3, "seconds": 0.5}
    assert entry == expected | {"why": "two words", "cls": "<class 'int'>"}


@pytest.mark.parametrize("breaks", ["a\nb", "a\r\nb", "a\rb", "\n"], ids=repr)
def test_an_event_is_one_line_whatever_is_in_it(say: Say, breaks: str) -> None:
    assert len(say("found", what=breaks).splitlines()) == 1
    assert len(say(f"found {breaks} there", n=1).splitlines()) == 1


def test_a_json_line_stays_one_line_with_an_exception(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError(f"cannot ask {URL}\nfor two reasons")
    except ValueError:
        logger("sensorpool.test").exception("failed", group_id=7)
    line = formatter("json").format(caplog.records[-1])
    assert len(line.splitlines()) == 1
    entry = json.loads(line)
    assert entry["group_id"] == 7
    assert "Traceback" in entry["exception"]
    assert "hunter2" not in line


def test_no_password_is_said_wherever_it_comes_from(say: Say) -> None:
    for line in (
        say(f"connecting to {URL}"),
        say("connecting", url=URL),
        say("connecting", failing=ConnectionError(f"no answer from {URL}")),
        say("asking", url="https://host/a?b=c&token=hunter2"),
    ):
        assert "hunter2" not in line
        assert "host" in line


def test_hiding_a_secret_leaves_the_rest_of_the_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        logger("sensorpool.test").info("asking", url="https://host/a?token=hunter2", group_id=7, outcome="landed")
    text, line = (formatter(name).format(caplog.records[-1]) for name in FORMATS)
    assert text.endswith("group_id=7 outcome=landed")
    entry = json.loads(line)
    assert (entry["group_id"], entry["outcome"]) == (7, "landed")
    assert entry["url"] == "https://host/a?token=***"


def test_words_that_hide_nothing_are_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    event = "what is due? the key of range 0-1250"
    with caplog.at_level(logging.INFO):
        logger("sensorpool.test").info(event, left=3)
    assert formatter("text").format(caplog.records[-1]).endswith("left=3")
    assert json.loads(formatter("json").format(caplog.records[-1]))["left"] == 3


def test_arguments_of_other_loggers_are_filled_in_and_hidden() -> None:
    record = logging.LogRecord("celery", logging.INFO, __file__, 1, "connected to %s", (URL,), None)
    for name in FORMATS:
        line = formatter(name).format(record)
        assert "connected to postgresql://user:***@host/name" in line


def test_an_event_below_the_level_costs_no_record(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        logger("sensorpool.test").info("not said")
        logger("sensorpool.test").debug("not said")
        logger("sensorpool.test").error("said")
    assert [record.getMessage() for record in caplog.records] == ["said"]
    assert sys.exc_info() == (None, None, None)


def record(level: int, name: str = "theirs", thread: str = "poke") -> logging.LogRecord:
    made = logging.LogRecord(name, level, "", 1, "said %s", ("so",), None)
    made.threadName = thread
    return made


def test_what_pokes_log_has_a_level_of_its_own() -> None:
    passes = PokeLines("WARNING").filter
    assert not passes(record(logging.INFO))
    assert not passes(record(logging.INFO, thread="poke-loop"))
    assert passes(record(logging.WARNING))
    assert passes(record(logging.INFO, thread="MainThread"))
    assert not passes(record(logging.INFO, name="paramiko.transport", thread="Thread-4")), "a thread of its client"
    assert passes(record(logging.WARNING, name="paramiko.transport", thread="Thread-4"))
    assert passes(record(logging.INFO, name="kombu.connection", thread="Thread-4"))
    assert passes(record(logging.DEBUG, name="sensorpool.poke.isolated_lane", thread="poke-apart"))


def test_pokes_log_no_more_than_so_many_lines_a_while() -> None:
    lines = PokeLines("INFO", most=3, span=60)
    seen = [each for each in (record(logging.ERROR) for _ in range(10)) if lines.filter(each)]
    assert [each.getMessage() for each in seen] == [
        "said so",
        "said so",
        "said so … (pokes log too much; the rest is dropped)",
    ]
    assert lines.filter(record(logging.ERROR, name="sensorpool.worker.job", thread="worker"))
    again = PokeLines("INFO", most=1, span=0.0)
    assert all(again.filter(record(logging.ERROR)) for _ in range(10)), "a new span begins"


@pytest.mark.parametrize("logger_name", ["celery.app.trace", "celery.worker.strategy"])
def test_a_job_is_no_line_of_celery_but_at_debug(
    own_logging: logging.Logger, capsys: pytest.CaptureFixture[str], logger_name: str
) -> None:
    celery = logging.getLogger(logger_name)
    for level in ("INFO", "DEBUG"):
        logs.configure("text", level)
        celery.info("at %s: received", level)
        celery.warning("at %s: failed", level)
    logged = capsys.readouterr().err
    assert "at INFO: received" not in logged
    assert "at DEBUG: received" in logged
    assert logged.count(" failed") == 2


@pytest.fixture
def own_logging(monkeypatch: pytest.MonkeyPatch) -> Iterator[logging.Logger]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    for name in ("handlers", "level", "poke_level"):
        monkeypatch.setattr(logs._Own, name, getattr(logs._Own, name))
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)


def test_an_import_that_takes_the_log_over_does_not_keep_it(
    own_logging: logging.Logger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "takes_over.py").write_text(
        "import logging.config\n"
        "logging.config.dictConfig({'version': 1, 'root': {'handlers': [], 'level': 'ERROR'}})\n"
        "class Sensor:\n    def poke(self, context): return False\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    log = logs.logger("sensorpool.test")
    assert logs.restore() is None, "this process's logging is not ours"
    logs.configure("text", "INFO", "ERROR")
    Classes(["takes_over.Sensor"]).find("takes_over.Sensor")
    log.info("still here")
    assert "info sensorpool.test: still here" in capsys.readouterr().err
    assert logs.restore() == logging.ERROR


class Hangs:
    """An object whose text never comes."""

    def __init__(self) -> None:
        self.asked, self.gate = threading.Event(), threading.Event()

    def __str__(self) -> str:
        self.asked.set()
        self.gate.wait(60)
        return "late"


class HangsToo(Exception):
    """An exception whose text never comes."""

    def __init__(self, text: Hangs) -> None:
        self.text = text

    def __str__(self) -> str:
        return str(self.text)


def _log_what_hangs(text: Hangs, how: str) -> None:
    theirs = logging.getLogger("my.hook")
    if how == "argument":
        theirs.warning("no rows yet for %s", text)
    elif how == "message":
        theirs.warning(text)
    else:
        try:
            raise HangsToo(text)
        except HangsToo:
            theirs.exception("failed")


def says(event: str) -> threading.Thread:
    """A thread of ours that logs."""
    thread = threading.Thread(target=logs.logger("sensorpool.test").warning, args=(event,), daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("how", ["argument", "message", "exception"])
@pytest.mark.parametrize("thread", ["poke", "its own"])
def test_a_text_that_never_comes_stops_nobody_elses_line(
    own_logging: logging.Logger, capsys: pytest.CaptureFixture[str], how: str, thread: str
) -> None:
    logs.configure("text", "INFO")
    text = Hangs()
    poke = threading.Thread(target=_log_what_hangs, args=(text, how), daemon=True, name=thread)
    poke.start()
    assert text.asked.wait(30)
    ours = says("still here")
    ours.join(30)
    stands = ours.is_alive()
    text.gate.set()
    poke.join(30)
    assert not stands
    said = capsys.readouterr().err
    assert said.index("still here") < said.index("late")


def test_a_line_that_cannot_be_spelt_says_so(own_logging: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    class Raises:
        def __str__(self) -> str:
            raise RuntimeError("as told")

    logs.configure("text", "INFO")
    logging.getLogger("my.hook").warning("no rows yet for %s", Raises())
    logging.getLogger("my.hook").warning("%d", "no number")
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[2] for line in lines] == [
        "(a line of my.hook cannot be spelt: RuntimeError)",
        "(a line of my.hook cannot be spelt: TypeError)",
    ]


class HangingHandler(logging.Handler):
    """A handler that hangs at each line."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.gate.wait(60)


@pytest.mark.parametrize("where", ["", "sensorpool", "sensorpool.test"])
def test_our_lines_go_to_our_own_handlers_only(
    own_logging: logging.Logger, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    logs.configure("text", "INFO")
    theirs, to = HangingHandler(), logging.getLogger(where)
    to.addHandler(theirs)
    ours = says("still here")
    ours.join(30)
    stands = ours.is_alive()
    theirs.gate.set()
    to.removeHandler(theirs)
    assert not stands
    assert "warning sensorpool.test: still here" in capsys.readouterr().err


def test_we_log_though_a_poke_holds_the_lock_of_all_logging(
    own_logging: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure("text", "INFO")
    logging.getLogger("sensorpool.test").isEnabledFor(logging.WARNING)  # it is cached
    with logging._lock:  # type: ignore[attr-defined]
        thread = says("still here")
        thread.join(30)
        stands = thread.is_alive()
    assert not stands
    assert "still here" in capsys.readouterr().err


def test_a_handler_that_a_poke_adds_goes(own_logging: logging.Logger) -> None:
    logs.configure("text", "INFO")
    before = list(own_logging.handlers)
    own_logging.addHandler(HangingHandler())
    logs.restore()
    assert own_logging.handlers == before
