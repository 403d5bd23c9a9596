"""Threat: a pickle on the broker runs code when it is read."""

import base64
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kombu import Connection, Producer

from harness.scripted import land, pokes
from harness.service import Service
from harness.until import until
from sensorpool import Settings
from sensorpool.model.states import State
from sensorpool.publish import wire
from sensorpool.publish.broker import results_exchange
from sensorpool.publish.listener import listen
from tests.security.canary import Canary

SCRIPTED = "harness.scripted.ScriptedSensor"
PICKLES = ["application/x-python-serialize", "application/x-python-pickle", "application/x-yaml", "application/data"]


@contextmanager
def sender(settings: Settings) -> Iterator[Any]:
    """Sends bytes as they are, to whoever reads from there."""
    options = wire.transport_options(settings.broker)
    with Connection(wire.broker_url(settings.broker), transport_options=options) as connection:
        producer = Producer(connection)

        def send(body: bytes, content_type: str, **more: Any) -> None:
            producer.publish(body, content_type=content_type, content_encoding="binary", **more)

        yield send


def attack(settings: Settings, canary: Canary, **to: Any) -> None:
    """Send pickles in the message protocols that Celery knows, old and new."""
    new = {"task": wire.POKE_SHARD, "id": "x", "lang": "py", "root_id": "x", "parent_id": None, "group": None}
    with sender(settings) as send:
        for content_type in PICKLES:
            send(canary.pickled(), content_type, headers=new, **to)
            send(canary.pickled(), content_type, headers={}, **to)
            send(base64.b64encode(canary.pickled()), content_type, headers=new, **to)


def check_worker(service: Service, canary: Canary, folder: Path) -> None:
    ours = service.pool.register(SCRIPTED, {"folder": str(folder), "name": "ours"})
    service.start(**canary.environment)
    until("a poke", lambda: "ours" in pokes(folder))
    attack(service.settings, canary, routing_key=wire.QUEUE)
    before = len(pokes(folder)["ours"])
    until("pokes afterwards", lambda: len(pokes(folder)["ours"]) > before + 1)
    land(folder, "ours")
    assert service.pool.wait([ours.id], 30) == {ours.id: State.SUCCESS}
    assert service.processes[0].poll() is None
    assert canary.is_untouched


def check_listener(settings: Settings, canary: Canary) -> None:
    heard: list[dict[str, Any]] = []
    done, listening = threading.Event(), threading.Event()

    def work() -> None:
        with listen(settings, "theirs", until=done.is_set) as bodies:
            listening.set()
            heard.extend(bodies)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert listening.wait(30)
        attack(settings, canary, exchange=results_exchange(settings), routing_key=wire.routing_key("theirs"))
        with sender(settings) as send:
            for garbled in (b"garbage", b"[]", b"7", b'{"settled": 5}', b'{"settled": [7, {"id": "x"}, {}]}'):
                send(
                    garbled,
                    "application/json",
                    exchange=results_exchange(settings),
                    routing_key=wire.routing_key("theirs"),
                )
            good = b'{"settled": [{"id": 7, "dag_id": "theirs"}, {"id": 8, "dag_id": "others"}]}'
            send(
                good,
                "application/json",
                exchange=results_exchange(settings),
                routing_key=wire.routing_key("theirs"),
            )
        until("the message after the attack", lambda: heard or not thread.is_alive())
    finally:
        done.set()
        thread.join(30)
    assert heard == [{"settled": [{"id": 7, "dag_id": "theirs"}]}]
    assert canary.is_untouched


def test_the_canary_sings(canary: Canary) -> None:
    """The pickle does what it should if anybody reads it."""
    pickle.loads(canary.pickled()).close()
    assert not canary.is_untouched


def test_pickles_for_the_worker_on_redis(service: Service, canary: Canary, tmp_path: Path) -> None:
    """Threat `pickle on the broker`."""
    check_worker(service, canary, tmp_path)


def test_pickles_for_listeners_on_redis(redis_url: str, canary: Canary) -> None:
    """Threat `pickle on the broker`."""
    check_listener(Settings.load(redis_url=redis_url), canary)


def test_pickles_for_the_worker_on_rabbitmq(
    make_service: Callable[..., Service], amqp_url: str, canary: Canary, tmp_path: Path
) -> None:
    """Threat `pickle on the broker`."""
    check_worker(make_service(broker_url=amqp_url), canary, tmp_path)


def test_pickles_for_listeners_on_rabbitmq(redis_url: str, amqp_url: str, canary: Canary) -> None:
    """Threat `pickle on the broker`."""
    check_listener(Settings.load(redis_url=redis_url, broker_url=amqp_url), canary)


@pytest.mark.parametrize("name", ["accept_content", "task_serializer", "result_serializer", "event_serializer"])
def test_no_serializer_but_json_is_spoken(name: str) -> None:
    """Threat `pickle on the broker`: what is sent and taken."""
    from sensorpool.service.app import make_app

    value = make_app(Settings.load(redis_url="redis://127.0.0.1:1/0")).conf[name]
    assert value in ("json", ["json"])
