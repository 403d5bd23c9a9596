"""`on_settled` tasks: sent at least once, kept until their broker has them, and nothing waits for that broker."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from typing import Any

import pytest
import redis
from kombu import compression
from sqlalchemy import insert, text, update

from harness.servers.scripted_amqp import ScriptedAmqp
from harness.until import until
from sensorpool import Pool, Settings
from sensorpool.admin import findings, instances, status
from sensorpool.model.states import Outcome, State
from sensorpool.model.values import Fact
from sensorpool.publish import wire
from sensorpool.publish.outbox import Outbox
from sensorpool.store import callback_rows, inspecting
from sensorpool.store.schema import callback, outbox
from sensorpool.worker.chores.round import Place
from sensorpool.worker.context import Worker
from sensorpool.worker.rescue import rescue

Make = Callable[..., tuple[Pool, Worker]]
SCRIPTED = "harness.scripted.ScriptedSensor"
GO_ON = "theirs.go_on"


@pytest.fixture
def make(make_pool: Callable[..., Pool], make_worker: Callable[[Settings], Worker]) -> Make:
    """Makes a pool and a worker of it, whose callbacks go to a broker."""

    def made(broker: str, **settings: Any) -> tuple[Pool, Worker]:
        settings = {"on_settled_tasks": GO_ON, "sensors_enabled": SCRIPTED} | settings
        pool = make_pool(on_settled_broker_url=broker, **settings)
        return pool, make_worker(pool.settings)

    return made


@pytest.fixture
def broker() -> Iterator[ScriptedAmqp]:
    with ScriptedAmqp({"celery": "take", "quorum": "take", "full": "nack", "half-open": "ignore"}) as made:
        yield made


@contextmanager
def impatient() -> Iterator[None]:
    """Wait only a moment for a confirmation: for one that never comes. On a busy machine a real one comes later."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "CONFIRM", 0.3)
        yield


@contextmanager
def black_hole() -> Iterator[tuple[str, list[socket.socket]]]:
    """A broker that accepts connections and never answers; and the connections."""
    came: list[socket.socket] = []
    with ExitStack() as stack, socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(20)

        def accept() -> None:
            while True:
                try:
                    came.append(stack.enter_context(listening.accept()[0]))
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        yield f"amqp://guest:guest@127.0.0.1:{listening.getsockname()[1]}//", came
        listening.shutdown(socket.SHUT_RDWR)


def register(pool: Pool, name: str, queue: str | None = None, **signature: Any) -> Any:
    options = {} if queue is None else {"queue": queue}
    on_settled = {"task": GO_ON, "args": [name], "options": options} | signature
    return pool.register(SCRIPTED, {"folder": "/nowhere", "name": name}, on_settled=on_settled)


def land(worker: Worker, *instances: Any) -> None:
    began = worker.database.read(worker.database.now) + 1
    assert worker.settler.settle([Fact(each.group_id, 1, began, Outcome.LANDED) for each in instances]) == len(
        instances
    )


def make_due(pool: Pool) -> None:
    """Have waiting callbacks tried again now."""
    with pool.database.engine.begin() as connection:
        connection.execute(update(callback).values(next_try_at=0))
        connection.execute(update(outbox).values(created_at=0, next_try_at=None))


def waiting(pool: Pool, instance: Any) -> Any:
    return pool.database.read(callback_rows.find, instance.id)


def test_nothing_settled_waits_for_the_brokers_of_callbacks(make: Make) -> None:
    """Instances with and without callbacks settle, and are cancelled, as if that broker were well."""
    with black_hole() as (url, came):
        pool, worker = make(url)
        ones = [register(pool, f"n{number}") for number in range(5)]
        plain = pool.register(SCRIPTED, {"folder": "/nowhere", "name": "plain"})
        for one in [*ones[:4], plain]:
            began = time.monotonic()
            land(worker, one)
            assert time.monotonic() - began < 2.5
        until("the fault to strike", lambda: came)
        began = time.monotonic()
        assert pool.cancel(ones[4].id) is State.CANCELLED
        assert time.monotonic() - began < 2.5
        until("results", lambda: pool.database.read(inspecting.oldest_unpublished) is None)
        assert waiting(pool, ones[0]) is not None
        began = time.monotonic()
        worker.outbox.close(0.2)
        pool.outbox.close(0.2)
        assert time.monotonic() - began < 2.5


def test_cancel_returns_though_our_own_broker_is_a_black_hole(make_pool: Callable[..., Pool]) -> None:
    with black_hole() as (url, came):
        pool = make_pool(sensors_enabled=SCRIPTED, redis_url="redis://127.0.0.1:1", broker_url=url)
        pool.nudger.nudge = lambda *_, **__: None  # type: ignore[method-assign]
        one = pool.register(SCRIPTED, {"folder": "/nowhere", "name": "x"})
        began = time.monotonic()
        assert pool.cancel(one.id) is State.CANCELLED
        assert time.monotonic() - began < 2.5
        until("the fault to strike", lambda: came)
        assert pool.database.read(inspecting.oldest_unpublished) is not None, "rescue sends it"
        began = time.monotonic()
        pool.outbox.close(0.2)
        assert time.monotonic() - began < 2.5


def test_a_queue_of_another_kind_is_not_declared(make: Make, broker: ScriptedAmqp) -> None:
    pool, worker = make(broker.url)
    one = register(pool, "x", "quorum")
    land(worker, one)
    until("the message", lambda: broker.taken)
    queue, (args, _, _) = broker.taken[0]
    assert (queue, args[0]["id"], args[0]["state"], args[1]) == ("quorum", one.id, "success", "x")
    assert broker.declared == []
    until("the row to go", lambda: waiting(pool, one) is None)
    assert instances.show(pool, one.id)["on_settled"] == "theirs.go_on was sent"


@pytest.mark.parametrize("queue", ["full", "half-open", "missing"])
def test_what_is_not_taken_is_kept_and_shown_and_sent_again(make: Make, broker: ScriptedAmqp, queue: str) -> None:
    """A full queue, a half-open connection, a missing queue: each callback has its cause."""
    pool, worker = make(broker.url)
    one = register(pool, "x", queue)
    with impatient() if queue == "half-open" else nullcontext():
        land(worker, one)
        row = until("the cause", lambda: (waiting(pool, one) or {}).get("cause") and waiting(pool, one))
    assert broker.struck
    assert not broker.taken
    cause = {"full": "MessageNacked", "half-open": "does not answer", "missing": "NO_ROUTE"}[queue]
    assert cause in row["cause"]
    assert cause in instances.show(pool, one.id)["on_settled"]
    assert status.status(pool)["callbacks"][0]["waiting"] == 1
    broker.does[queue] = "take"
    make_due(pool)
    until("the broker to be tried again", lambda: rescue(worker, Place()) and broker.taken)
    until("the row to go", lambda: waiting(pool, one) is None)


def test_one_that_is_refused_stops_no_other(make: Make, broker: ScriptedAmqp) -> None:
    broker.does["poison"] = "hang up"
    pool, worker = make(broker.url)
    queues = ["missing", "poison", "full", "celery", "missing", "celery"]
    ones = [register(pool, f"n{place}", queue) for place, queue in enumerate(queues)]
    worker.outbox.close()  # a process that dies before it has sent any
    land(worker, *ones)

    def sent() -> bool:
        make_due(pool) if not broker.struck else None
        rescue(other, Place())
        return len(broker.taken) >= 2

    other = Worker(pool.settings)
    try:
        until("those that are well", sent)
        refused = {each.id for each, queue in zip(ones, queues, strict=True) if queue != "celery"}
        until("their rows to go", lambda: {each.id for each in ones if waiting(pool, each)} == refused)
    finally:
        other.close()


def test_one_that_is_refused_stops_no_other_of_its_instance(make: Make, broker: ScriptedAmqp) -> None:
    """Those that the broker has are not sent again with each try of the one that it has not."""
    pool, worker = make(broker.url)
    given = {
        f"on_{end}": {"task": GO_ON, "args": [end], "options": {"queue": queue}}
        for end, queue in (("settled", "missing"), ("success", "celery"))
    }
    one = pool.register(SCRIPTED, {"folder": "/nowhere", "name": "x"}, **given)
    land(worker, one)
    until("the cause", lambda: (waiting(pool, one) or {}).get("cause"))
    tries = waiting(pool, one)["tries"]
    assert [queue for queue, _ in broker.taken] == ["celery"]
    make_due(pool)
    until("another try", lambda: rescue(worker, Place()) and waiting(pool, one)["tries"] > tries)
    assert [queue for queue, _ in broker.taken] == ["celery"]
    broker.does["missing"] = "take"
    make_due(pool)
    until("the row to go", lambda: rescue(worker, Place()) and waiting(pool, one) is None)
    assert [queue for queue, _ in broker.taken] == ["celery", "missing"]


def test_a_chord_that_was_not_taken_is_sent_again(make: Make, broker: ScriptedAmqp) -> None:
    """Its row names `celery.chord`, which stands in no allowlist: what it runs does."""
    pool, worker = make(broker.url)
    inner = {"task": GO_ON, "args": [], "kwargs": {}, "options": {}}
    one = pool.register(
        SCRIPTED,
        {"folder": "/nowhere", "name": "x"},
        on_settled={
            "task": "celery.chord",
            "kwargs": {"header": [inner], "body": inner},
            "options": {"queue": "missing"},
            "immutable": True,
        },
    )
    land(worker, one)
    until("the cause", lambda: (waiting(pool, one) or {}).get("cause"))
    broker.does["missing"] = "take"
    make_due(pool)
    until("the row to go", lambda: rescue(worker, Place()) and waiting(pool, one) is None)
    assert [queue for queue, _ in broker.taken] == ["missing"]


def test_a_row_whose_task_no_database_can_name_holds_up_no_settle(make: Make, broker: ScriptedAmqp) -> None:
    """It was edited by hand: a registration refuses it."""
    pool, worker = make(broker.url)
    one, other = register(pool, "x"), register(pool, "y")
    with pool.database.engine.begin() as connection:
        spoilt = {"id": one.id, "text": json.dumps({"on_settled": [{"task": "theirs.\0go_on"}]})}
        connection.execute(text("UPDATE sensor_instance SET on_settled = :text WHERE id = :id"), spoilt)
    land(worker, one, other)
    assert pool.wait([one, other], 0) == {one.id: State.SUCCESS, other.id: State.SUCCESS}
    assert waiting(pool, one)["task"] == "theirs.go_on"


def test_a_task_that_this_worker_may_not_send_waits_for_one_that_may(make: Make, broker: ScriptedAmqp) -> None:
    pool, _ = make(broker.url)
    old = Worker(pool.settings.model_copy(update={"on_settled_tasks": ()}))
    try:
        one = register(pool, "x")
        land(old, one)
        make_due(pool)
        rescue(old, Place())
        until("the cause", lambda: "SENSORPOOL_ON_SETTLED_TASKS" in instances.show(pool, one.id)["on_settled"])
        with pool.database.engine.begin() as connection:
            connection.execute(update(callback).values(created_at=1))
        assert any(found.subject == "on_settled" for found in findings.doctor(pool.settings))
        assert not broker.taken
    finally:
        old.close()
    mended = Worker(pool.settings)
    try:
        rescue(mended, Place())
        until("the message", lambda: broker.taken)
    finally:
        mended.close()


def test_an_instance_whose_callback_waits_is_not_pruned(make: Make, broker: ScriptedAmqp) -> None:
    pool, worker = make(broker.url, retention=1)
    kept, gone = register(pool, "x", "missing"), register(pool, "y", "celery")
    land(worker, kept, gone)
    until("one to be sent, the other tried", lambda: waiting(pool, gone) is None and waiting(pool, kept)["cause"])
    until("the results", lambda: pool.database.read(inspecting.oldest_unpublished) is None)
    with pool.database.engine.begin() as connection:
        connection.execute(text("UPDATE sensor_instance SET settled_at = 1"))
    assert rescue(worker, Place()).pruned == 1
    assert instances.show(pool, kept.id)["state"] == "success"
    broker.does["missing"] = "take"
    make_due(pool)
    # in several rounds: one that finds the callbacks of the last one still being sent leaves them to the next
    assert until("its end", lambda: rescue(worker, Place()).pruned) == 1
    assert "missing" in [queue for queue, _ in broker.taken]
    assert waiting(pool, kept) is None


def test_an_instance_whose_result_is_not_published_is_not_pruned(
    make_pool: Callable[..., Pool], make_worker: Callable[[Settings], Worker]
) -> None:
    pool = make_pool(sensors_enabled=SCRIPTED, retention=1)
    worker = make_worker(pool.settings)
    one = pool.register(SCRIPTED, {"folder": "/nowhere", "name": "x"})
    pool.outbox = Outbox(pool.settings, pool.database, pool.publisher)
    pool.outbox.close()
    pool.settler.deliver = pool.outbox.deliver
    pool.cancel(one.id)
    with pool.database.engine.begin() as connection:
        for table in ("sensor_instance SET settled_at", "sensorpool_outbox SET created_at"):
            connection.execute(text(f"UPDATE {table} = 1"))
    done = rescue(worker, Place())
    assert (done.pruned, done.published) == (0, 1)
    assert rescue(worker, Place()).pruned == 1


def test_options_arrive_as_celery_sends_them(make: Make, broker: ScriptedAmqp) -> None:
    pool, worker = make(broker.url)
    link = {"task": GO_ON, "args": [1], "kwargs": {}, "options": {}, "subtask_type": None, "immutable": False}
    one = register(pool, "x", immutable=True, options={"task_id": "mine", "link": [link], "priority": 3})
    land(worker, one)
    until("the message", lambda: broker.taken)
    args, kwargs, embedded = broker.taken[0][1]
    assert (args, kwargs, embedded["callbacks"]) == (["x"], {}, [link])


def test_what_waits_when_a_process_ends_is_sent_within_a_bound(make: Make, broker: ScriptedAmqp) -> None:
    pool, worker = make(broker.url)
    ones = [register(pool, f"n{number}") for number in range(20)]
    land(worker, *ones)
    worker.outbox.close()
    assert len(broker.taken) == 20
    assert pool.database.read(inspecting.oldest_unpublished) is None
    assert pool.database.read(callback_rows.backlog) == []


def test_on_redis_a_message_that_no_queue_would_get_waits(make: Make, redis_url: str) -> None:
    """Redis silently drops a message to an exchange without a queue."""
    pool, worker = make(redis_url)
    lost = register(pool, "x", options={"exchange": "nowhere", "routing_key": "x"})
    sent = register(pool, "y", "theirs")
    land(worker, lost, sent)
    until("one to go, the other to wait", lambda: waiting(pool, sent) is None and waiting(pool, lost)["cause"])
    assert "no queue is bound" in waiting(pool, lost)["cause"]
    with redis.Redis.from_url(redis_url) as client:
        assert client.llen("theirs") == 1


def test_on_redis_a_message_that_cannot_be_encoded_stops_no_other(
    make: Make, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The registrant has a compression that the worker has not."""
    pool, worker = make(redis_url)
    monkeypatch.setitem(compression._encoders, "theirs", (bytes, "application/x-theirs"))
    monkeypatch.setitem(compression._aliases, "theirs", "theirs")
    bad = [register(pool, f"b{n}", options={"queue": "theirs", "compression": "theirs"}) for n in range(5)]
    good = [register(pool, f"g{n}", "theirs") for n in range(2)]
    monkeypatch.undo()
    worker.outbox.close()  # a process that dies before it has sent any
    land(worker, *bad, *good)
    other = Worker(pool.settings)
    try:
        make_due(pool)
        rescue(other, Place())
        until("those that are well", lambda: not any(waiting(pool, each) for each in good))
        causes = {waiting(pool, each)["cause"] for each in bad}
    finally:
        other.close()
    assert {cause.rpartition(": ")[0] for cause in causes} == {"the broker does not take it: KeyError"}
    with redis.Redis.from_url(redis_url) as client:
        assert client.llen("theirs") == 2


def test_a_broker_that_there_is_not_says_so(make: Make) -> None:
    pool, worker = make("redis://127.0.0.1:1/0")
    one = register(pool, "x")
    land(worker, one)
    until("the cause", lambda: (waiting(pool, one)["cause"] or "").startswith("cannot send a callback"))


@pytest.mark.parametrize("fault", ["ignore", "nack", "hang up"])
def test_results_that_rabbitmq_has_not_confirmed_are_sent_again(
    make_pool: Callable[..., Pool],
    make_worker: Callable[[Settings], Worker],
    broker: ScriptedAmqp,
    redis_url: str,
    fault: str,
) -> None:
    broker.does["sensorpool.results"] = fault
    pool = make_pool(sensors_enabled=SCRIPTED, redis_url=redis_url, broker_url=broker.url)
    worker = make_worker(pool.settings)
    one = pool.register(SCRIPTED, {"folder": "/nowhere", "name": "x"})
    with impatient() if fault == "ignore" else nullcontext():
        land(worker, one)
        until("the fault to strike", lambda: any(struck.startswith(fault) for struck in broker.struck))
    assert pool.database.read(inspecting.oldest_unpublished) is not None
    broker.does["sensorpool.results"] = "take"
    make_due(pool)
    until("the results", lambda: rescue(worker, Place()) and pool.database.read(inspecting.oldest_unpublished) is None)
    assert {body["settled"][0]["id"] for key, body in broker.taken if key == "-"} == {one.id}, "once, or twice"


def test_all_are_tried_again_at_an_operators_wish(each_database: str) -> None:
    with closing(Pool(Settings.load(database_url=each_database, redis_url="memory://"))) as pool:
        with pool.database.engine.begin() as connection:
            row = {"task": GO_ON, "created_at": 1, "next_try_at": 2, "tries": 3}
            connection.execute(insert(callback), [row | {"instance_id": number} for number in (1, 2)])
        assert pool.database.run(callback_rows.hurry, pool.database.read(pool.database.now)) == 2
        assert [each["tries"] for each in pool.database.read(callback_rows.waiting, 10)] == [0, 0]
