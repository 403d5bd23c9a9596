"""The parts of a Celery signature that `on_settled` keeps: what its application would send, or a one-line refusal."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from celery import Celery, signature
from celery.app.task import Context

from sensorpool.config.settings import Settings
from sensorpool.errors import Refused
from sensorpool.publish import canvas
from sensorpool.publish import signature as signatures
from sensorpool.publish.callbacks import not_allowed

GO_ON, OTHER = "theirs.go_on", "theirs.other"


@pytest.fixture
def settings() -> Settings:
    return Settings.load(on_settled_tasks=(GO_ON, OTHER))


@pytest.fixture
def theirs() -> Iterator[Celery]:
    """A user's application, with a default queue, a route, and a task with options."""
    app = Celery("theirs", broker="memory://", set_as_current=False)
    app.conf.update(task_default_queue="theirs-default", task_routes={OTHER: {"queue": "routed"}})

    def go_on(result: Any) -> None:
        """Do nothing."""

    app.task(name=GO_ON, ignore_result=True, priority=7)(go_on)
    app.task(name=OTHER, time_limit=30)(go_on)
    yield app
    app.close()


def check(given: Any, settings: Settings) -> str:
    text = canvas.check({"on_settled": given}, settings)
    assert text is not None
    return text


def kept(given: Any, settings: Settings) -> dict[str, Any]:
    """Return what a row keeps, without the id that each task is given."""
    [found] = json.loads(check(given, settings))["on_settled"]
    if "task_id" not in dict(given).get("options", {}):
        del found["options"]["task_id"]
    assert isinstance(found, dict)
    return found


def test_a_signature_goes_where_its_application_sends_it(theirs: Celery, settings: Settings) -> None:
    by_default = kept(theirs.tasks[GO_ON].s(1), settings)
    assert by_default["options"] == {"queue": "theirs-default", "ignore_result": True, "priority": 7}
    routed = kept(theirs.tasks[OTHER].s(), settings)["options"]
    assert (routed["queue"], routed["ignore_result"], routed["time_limit"]) == ("routed", False, 30)
    by_name = kept(signature(OTHER, app=theirs).set(queue="mine"), settings)
    assert by_name["options"]["queue"] == "mine"


def test_a_mapping_has_no_application(settings: Settings) -> None:
    assert kept({"task": GO_ON, "args": [1]}, settings) == {"task": GO_ON, "args": [1], "options": {}}


def test_options_are_kept(theirs: Celery, settings: Settings) -> None:
    at = datetime(2030, 1, 31, 12, tzinfo=UTC)
    given = theirs.tasks[GO_ON].s().set(task_id="mine", headers={"a": 1}, expires=at, countdown=3, serializer="json")
    given.link(theirs.tasks[OTHER].s(2))
    given.link_error(theirs.tasks[OTHER].si())
    options = kept(given, settings)["options"]
    assert (options["task_id"], options["headers"], options["countdown"]) == ("mine", {"a": 1}, 3)
    assert options["expires"] == "2030-01-31T12:00:00+00:00"
    assert [options[name][0]["task"] for name in ("link", "link_error")] == [OTHER, OTHER]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"chord": {"task": GO_ON}}, "chord"),
        ({"serializer": "pickle"}, "serializer"),
        ({"retry_policy": {}}, "retry_policy"),
        ({"stamped_headers": ["a"]}, "stamped_headers"),
        ({"link": {"task": "os.system"}}, "os.system is not allowed"),
        ({"link": [{"task": GO_ON, "options": {"link": {"task": "os.system"}}}]}, "os.system is not allowed"),
        ({"link": [{"task": GO_ON, "options": {"chain": [{"task": "os.system"}]}}]}, "single tasks"),
        ({"link": "os.system"}, "single tasks"),
        ({"headers": [1]}, "headers"),
        ({"headers": {"a": object}}, "JSON"),
        ({1: 2}, "'1'"),
    ],
    ids=str,
)
def test_what_cannot_be_kept_is_refused(options: dict[Any, Any], said: str, settings: Settings) -> None:
    with pytest.raises(Refused, match=said) as caught:
        check({"task": GO_ON, "options": options}, settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("theirs.go_on", "must be a Celery signature"),
        ({"task": 7}, "must be a Celery signature"),
        ({"task": GO_ON, "arguments": [1]}, "no 'arguments'"),
        ({"task": GO_ON, "args": 7}, "args must be a list"),
        ({"task": GO_ON, "kwargs": [7]}, "args must be a list"),
        ({"task": GO_ON, "args": [float("nan")]}, "JSON"),
        ({"task": GO_ON, "args": ["x" * 70_000]}, "64 KB"),
        ({"task": GO_ON, "subtask_type": "starmap"}, "one task, not a starmap"),
    ],
    ids=lambda part: str(part)[:60],
)
def test_what_is_no_signature_of_one_task_is_refused(given: Any, said: str, settings: Settings) -> None:
    with pytest.raises(Refused, match=said):
        check(given, settings)


@pytest.mark.parametrize(
    "given",
    [
        {"task": "x\x1b[31m\nnot.listed"},
        {"task": GO_ON, "subtask_type": "\x1b[2J\n"},
        {"task": GO_ON, "options": {"link": {"task": "x\x1b[31m\nnot.listed"}}},
        {"task": GO_ON, "\x1b[2J\n": 1},
        {"task": GO_ON, "options": {"\x1b[2J\n": 1}},
    ],
    ids=["task", "type", "link", "part", "option"],
)
def test_a_refusal_prints_no_control_characters(given: Any, settings: Settings) -> None:
    with pytest.raises(Refused) as caught:
        check(given, settings)
    assert str(caught.value).isprintable()


def test_why_a_worker_does_not_send_a_task_is_printable() -> None:
    assert not_allowed("x\x1b[31m\nnot.listed").isprintable()


def test_a_route_that_raises_is_one_line(theirs: Celery, settings: Settings) -> None:
    def route(*_: Any, **__: Any) -> None:
        raise LookupError("no\nroute")

    theirs.conf.task_routes = (route,)
    theirs.amqp.flush_routes()
    with pytest.raises(Refused, match="cannot say where it goes: LookupError: no route"):
        check(theirs.tasks[GO_ON].s(), settings)


EVIL: dict[str, Any] = {"task": "evil"}
GROUP_BY_KIND = {"task": GO_ON, "subtask_type": "group", "kwargs": {"tasks": [EVIL]}}


@pytest.mark.parametrize(
    "given",
    [
        {"task": "celery.chord", "args": [[EVIL], EVIL], "immutable": True},
        {"task": "celery.group", "args": [[EVIL]]},
        {"task": "celery.chord", "kwargs": {"header": [{"task": GO_ON}], "body": {"task": GO_ON}, "chain": [EVIL]}},
        {"task": "celery.chord", "kwargs": {"header": [], "body": {"task": GO_ON}, "kwargs": {"chain": [EVIL]}}},
        {"task": GO_ON, "options": {"link": [{"task": GO_ON, "options": {"link": [GROUP_BY_KIND]}}]}},
        {"task": "celery.chord", "kwargs": {"header": [GROUP_BY_KIND], "body": {"task": GO_ON}}},
        {"task": "celery.chain", "kwargs": [["tasks", [EVIL]]]},
    ],
    ids=["by position", "a group by position", "by an option", "by further arguments", "a link's link", "kind", "list"],
)
def test_no_task_is_hidden_in_a_structure(given: dict[str, Any], settings: Settings) -> None:
    """A message may be forged, and a row edited: what is sent is looked at by the same rules."""
    with pytest.raises(Refused):
        canvas.check({"on_settled": given}, settings)
    with pytest.raises(Refused):
        signatures.check_allowed(given, settings)


def test_the_reserved_headers_are_those_that_celery_reads() -> None:
    app = Celery(set_as_current=False)
    sent = app.amqp.as_task_v2("id", GO_ON).headers
    read = {name for name in vars(Context) if not name.startswith("_")}
    assert sent.keys() | read | {"compression"} == signatures.RESERVED_HEADERS
    assert Context({"team": "x"} | dict.fromkeys(signatures.RESERVED_HEADERS)).headers == {"team": "x"}


@pytest.mark.parametrize("task", ["theirs.\0", "theirs.\n", "theirs.\u202e"])
def test_a_name_that_no_task_has_is_refused(task: str) -> None:
    with pytest.raises(Refused, match="has a character that no name of a task has"):
        canvas.check({"on_settled": {"task": task}}, Settings.load(on_settled_tasks=("theirs.*",)))
