"""Chains, groups and chords as callbacks: the messages that start them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery, chain, chord, group

from sensorpool.config.settings import Settings
from sensorpool.errors import Refused
from sensorpool.model import callback_messages
from sensorpool.publish import canvas


@pytest.fixture
def settings() -> Settings:
    return Settings.load(on_settled_tasks=("shop.*",))


@pytest.fixture
def shop() -> Iterator[Celery]:
    app = Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=False)
    app.conf.update(task_default_queue="shop", task_routes={"shop.b": {"queue": "routed"}})

    def run(*_: Any) -> None:
        """Do nothing."""

    for name in ("a", "b", "c", "d"):
        app.task(name=f"shop.{name}")(run)
    yield app
    app.close()


def sent(given: Any, settings: Settings, name: str = "on_success", state: str = "success") -> list[dict[str, Any]]:
    text = canvas.check({name: given}, settings)
    return callback_messages.messages(text, state)


def steps(message: dict[str, Any]) -> list[str]:
    """Return the tasks of a message in the order in which they run."""
    return [message["task"], *(each["task"] for each in reversed(message["options"].get("chain", [])))]


def test_a_chain_goes_as_its_first_task(shop: Celery, settings: Settings) -> None:
    t = shop.tasks
    given = chain(t["shop.a"].s(1), t["shop.b"].s(2), t["shop.c"].si())
    before = json.dumps(given)
    [message] = sent(given, settings)
    assert json.dumps(given) == before
    assert steps(message) == ["shop.a", "shop.b", "shop.c"]
    assert (message["args"], message["options"]["queue"]) == ([1], "shop")
    ids = [message["options"]["task_id"], *(each["options"]["task_id"] for each in message["options"]["chain"])]
    assert len(set(ids)) == 3
    assert not message.get("immutable")


def test_a_group_goes_as_its_tasks(shop: Celery, settings: Settings) -> None:
    t = shop.tasks
    messages = sent(group(t["shop.a"].s(1), t["shop.b"].si(2), chain(t["shop.c"].s(), t["shop.d"].s())), settings)
    assert [steps(each) for each in messages] == [["shop.a"], ["shop.b"], ["shop.c", "shop.d"]]
    assert [each["options"]["queue"] for each in messages] == ["shop", "routed", "shop"]
    assert messages[1]["immutable"]
    assert len({each["options"]["task_id"] for each in messages}) == 3


@pytest.mark.parametrize("by", ["chord", "chain"])
def test_a_chord_goes_to_the_task_that_each_worker_has_for_it(shop: Celery, settings: Settings, by: str) -> None:
    t = shop.tasks
    header, body = group(t["shop.a"].s(), t["shop.b"].s()), t["shop.c"].s()
    [message] = sent(chord(header, body) if by == "chord" else chain(header, body), settings)
    assert (message["task"], message["takes"], message["options"]["queue"]) == ("celery.chord", "partial_args", "shop")
    assert [each["task"] for each in message["kwargs"]["header"]] == ["shop.a", "shop.b"]
    assert message["kwargs"]["body"]["task"] == "shop.c"
    assert message["kwargs"]["body"]["options"]["task_id"]


def test_a_group_within_a_chain(shop: Celery, settings: Settings) -> None:
    t = shop.tasks
    [message] = sent(chain(t["shop.a"].s(), group(t["shop.b"].s(), t["shop.c"].s()), t["shop.d"].s()), settings)
    assert steps(message) == ["shop.a", "celery.chord"]
    [rest] = message["options"]["chain"]
    assert rest["kwargs"]["body"]["task"] == "shop.d"


@pytest.mark.parametrize("state", ["success", "failed", "skipped", "cancelled"])
def test_each_end_has_its_callbacks(shop: Celery, settings: Settings, state: str) -> None:
    t = shop.tasks
    text = canvas.check(
        {"on_settled": t["shop.a"].s(), "on_success": t["shop.b"].s(), "on_failure": t["shop.c"].s()}, settings
    )
    tasks = [message["task"] for message in callback_messages.messages(text, state)]
    assert tasks == ["shop.a", "shop.b" if state == "success" else "shop.c"]
    assert callback_messages.shown(text or "", "sensing") == "shop.a, shop.b, shop.c"


def test_there_may_be_none(settings: Settings) -> None:
    assert canvas.check({"on_settled": None, "on_success": None}, settings) is None
    assert callback_messages.messages(None, "success") == []


GARBLED = ("7", "null", "[7]", '[{"task": 7}]')


@pytest.mark.parametrize(
    "text", ["", "garbage", "7", "{}", '{"task": "a"}', *(f'{{"on_settled": {each}}}' for each in GARBLED)]
)
def test_what_was_written_over_has_no_messages(text: str) -> None:
    with pytest.raises(ValueError, match=r"signature|callbacks"):
        callback_messages.messages(text, "success")
    assert callback_messages.has_some(text, "success")
    assert callback_messages.shown(text, "success") == "?"


def test_all_steps_must_be_allowed(shop: Celery) -> None:
    t = shop.tasks
    few = Settings.load(on_settled_tasks=("shop.a", "shop.b"))
    for given in (
        chain(t["shop.a"].s(), t["shop.c"].s()),
        group(t["shop.a"].s(), t["shop.c"].s()),
        chord([t["shop.a"].s(), t["shop.c"].s()], t["shop.b"].s()),
        chord([t["shop.a"].s(), t["shop.b"].s()], t["shop.c"].s()),
        chain(t["shop.a"].s(), group(t["shop.b"].s(), t["shop.c"].s()), t["shop.a"].s()),
    ):
        with pytest.raises(Refused, match=r"on_success: shop\.c is not allowed"):
            canvas.check({"on_success": given}, few)
    assert canvas.check({"on_success": chain(t["shop.a"].s(), t["shop.b"].s())}, few)


def test_a_chord_needs_a_result_back_end(settings: Settings) -> None:
    app = Celery("bare", broker="memory://", set_as_current=False)

    def run(*_: Any) -> None:
        """Do nothing."""

    task = app.task(name="shop.a")(run)
    with pytest.raises(Refused, match="on_success: Celery cannot start this chord"):
        canvas.check({"on_success": chord([task.s()], task.s())}, settings)


def test_a_canvas_has_an_application(settings: Settings) -> None:
    with pytest.raises(Refused, match="has to be made with its application"):
        canvas.check(
            {"on_failure": {"task": "celery.chain", "subtask_type": "chain", "kwargs": {"tasks": []}}}, settings
        )


def test_empty_ones_are_refused(shop: Celery, settings: Settings) -> None:
    for given in (chain(app=shop), group(app=shop)):
        with pytest.raises(Refused, match="on_success"):
            canvas.check({"on_success": given}, settings)


def test_links_of_a_chain_are_where_celery_has_them(shop: Celery, settings: Settings) -> None:
    """Its `link_error` runs for each step that fails, and its `link` after the last one."""
    t = shop.tasks
    given = chain(t["shop.a"].s(), t["shop.b"].s(), t["shop.c"].s())
    given.on_error(t["shop.d"].si())
    given.link(t["shop.d"].s())
    [message] = sent(given, settings)
    last, second = message["options"]["chain"]
    for each in (message, second, last):
        assert [error["task"] for error in each["options"]["link_error"]] == ["shop.d"]
    assert [link["task"] for link in last["options"]["link"]] == ["shop.d"]
    assert not message["options"].get("link")
    assert not second["options"].get("link")


def test_an_option_of_a_chord_that_cannot_be_kept_is_refused(shop: Celery, settings: Settings) -> None:
    t = shop.tasks
    given = chord([t["shop.a"].s()], t["shop.b"].s())
    assert sent(given.set(queue="q"), settings)[0]["options"]["queue"] == "q"
    assert sent(chord([t["shop.a"].s()], t["shop.b"].s()).set(serializer="json"), settings)
    with pytest.raises(Refused, match="a chord's countdown cannot be kept: set it at its tasks, or at its body"):
        sent(given.set(countdown=60), settings)


def test_a_chord_within_a_chord_is_kept(shop: Celery, settings: Settings) -> None:
    t = shop.tasks
    inner = chord([t["shop.a"].s(), t["shop.b"].s()], t["shop.c"].s())
    [message] = sent(chord([inner, t["shop.a"].s()], t["shop.d"].s()), settings)
    assert message["task"] == "celery.chord"
    [message] = sent(chain(t["shop.a"].s(), inner, t["shop.d"].s()), settings)
    assert message["task"] == "shop.a"
