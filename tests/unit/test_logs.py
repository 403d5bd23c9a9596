"""What is said: one line an event, its figures as fields, and no secret in it."""

import json
import logging
import sys
from collections.abc import Callable
from typing import Any

import pytest

from sensorpool.logs import formatter, logger

FORMATS = ["text", "json"]
URL = "postgresql://user:hunter2@host/name"

Say = Callable[..., str]


@pytest.fixture(params=FORMATS)
def say(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Say:
    """Logs an event, and returns what would be written."""

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
