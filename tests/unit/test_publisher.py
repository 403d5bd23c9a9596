"""A publisher: its messages, and its errors when a broker refuses one message, goes away, and comes back."""

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from amqp.exceptions import ContentTooLarge, MessageNacked, NotFound, PreconditionFailed
from kombu.transport import memory, pyamqp, virtual

from sensorpool import Settings
from sensorpool.errors import Refused, Unreachable
from sensorpool.model.states import Ending, State
from sensorpool.model.values import Key, Settled, ShardRange
from sensorpool.publish import broker, messages, wire
from sensorpool.publish.publisher import Publisher

URL = "amqp://guest:hidden-word@127.0.0.1:1//"
POOL = "a" * 32
RANGE = ShardRange(10, 20)
SETTINGS = Settings.load(
    broker_url=URL, redis_url="redis://127.0.0.1:1/0", database_url="postgresql://127.0.0.1:1/pool"
)


class Scripted:
    """A broker that follows a script, and the messages that it has taken."""

    def __init__(self) -> None:
        self.is_away = False
        self.breaks_next = False
        self.raises: Callable[[Any], Exception | None] = lambda _: None
        self.connections = 0
        self.taken: list[tuple[Any, str, str, dict[str, Any]]] = []  # body, exchange, routing key, headers

    def connect(self) -> None:
        """Accept a client."""
        if self.is_away:
            raise ConnectionRefusedError("nothing listens here")
        self.connections += 1

    def publish(self, message: dict[str, Any], exchange: str, routing_key: str) -> None:
        """Take a message, or refuse it."""
        if self.is_away or self.breaks_next:
            self.breaks_next = False
            raise ConnectionResetError("the other side went away")
        text = message["body"]
        is_base64 = message["properties"].get("body_encoding") == "base64"
        body = json.loads(base64.b64decode(text) if is_base64 else text)
        if (error := self.raises(body)) is not None:
            raise error
        self.taken.append((body, exchange, routing_key, message["headers"]))

    @property
    def ids(self) -> list[list[int]]:
        """The instances of each taken message."""
        return [[each["id"] for each in body["settled"]] for body, *_ in self.taken]


def transport_of(scripted: Scripted) -> type:
    """Make a transport of kombu to the broker, like RabbitMQ's."""

    class Channel(memory.Channel):  # type: ignore[misc]
        def basic_publish(self, message: Any, exchange: str, routing_key: str, **_: Any) -> None:
            scripted.publish(message, exchange, routing_key)

    class Transport(memory.Transport):  # type: ignore[misc]
        driver_type = "amqp"
        connection_errors = pyamqp.Transport.connection_errors
        channel_errors = pyamqp.Transport.channel_errors
        recoverable_connection_errors = pyamqp.Transport.recoverable_connection_errors
        recoverable_channel_errors = pyamqp.Transport.recoverable_channel_errors
        global_state = virtual.BrokerState()

        def establish_connection(self) -> Any:
            scripted.connect()
            return super().establish_connection()

    Transport.Channel = Channel
    return Transport


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    made = Scripted()
    transport, real = transport_of(made), broker.Connection
    monkeypatch.setattr(broker, "Connection", lambda _, **named: real(transport=transport, **named))
    return made


@pytest.fixture
def publisher(scripted: Scripted) -> Iterator[Publisher]:
    made = Publisher(SETTINGS, lambda: POOL)
    yield made
    made.close()


def settled(number: int, dag_id: str = "d", value: str | None = None) -> Settled:
    return Settled(number, Key(dag_id, "t", "r"), State.SUCCESS, Ending.LANDED, None, value, 1, None)


def test_nothing_connects_before_there_is_something_to_say(scripted: Scripted, publisher: Publisher) -> None:
    publisher.publish([])
    assert (scripted.connections, scripted.taken) == (0, [])


def test_a_flush_is_one_message_and_the_connection_stays(scripted: Scripted, publisher: Publisher) -> None:
    publisher.publish([settled(1), settled(2)])
    publisher.publish([settled(3)])
    assert scripted.ids == [[1, 2], [3]]
    assert scripted.connections == 1
    body, exchange, _, headers = scripted.taken[0]
    assert body["settled"][0] == {
        **{"id": 1, "dag_id": "d", "task_id": "t", "run_id": "r", "map_index": -1, "try_number": 1},
        **{"state": "success", "ending": "landed", "reason": None, "xcom_value": None},
    }
    assert (exchange, headers[wire.POOL]) == ("sensorpool.results", POOL)


@pytest.mark.parametrize(
    ("dag_ids", "key"), [(["d", "d"], "d"), (["a.b"], "a%2Eb"), (["d", "e"], wire.MIXED)], ids=["one", "dotted", "two"]
)
def test_a_message_is_routed_by_its_dag(scripted: Scripted, publisher: Publisher, dag_ids: list[str], key: str) -> None:
    publisher.publish([settled(number, dag_id) for number, dag_id in enumerate(dag_ids)])
    assert [routing_key for _, _, routing_key, _ in scripted.taken] == [key]


def test_a_large_flush_is_several_messages(
    scripted: Scripted, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "MESSAGE", 1_000)
    publisher.publish([settled(number) for number in range(20)])
    assert len(scripted.taken) > 1
    assert [each for message in scripted.ids for each in message] == list(range(20))


@pytest.mark.parametrize(
    "error",
    [MessageNacked("nacked"), PreconditionFailed("message too large"), ContentTooLarge("too large"), NotFound("none")],
    ids=lambda error: type(error).__name__,
)
def test_one_message_that_is_refused_stops_no_other(scripted: Scripted, publisher: Publisher, error: Exception) -> None:
    scripted.raises = lambda body: error if body["settled"][0]["id"] == 2 else None
    publisher.publish([settled(1)])
    with pytest.raises(Refused, match="cannot publish results: the broker does not take it: ") as caught:
        publisher.publish([settled(2)])
    publisher.publish([settled(3)])
    assert scripted.ids == [[1], [3]]
    assert "\n" not in str(caught.value)
    assert scripted.connections > 1, "a channel that has refused something is not used again"


def test_a_broker_that_is_away_is_named_without_its_password(scripted: Scripted, publisher: Publisher) -> None:
    scripted.is_away = True
    with pytest.raises(Unreachable) as caught:
        publisher.publish([settled(1)])
    said = str(caught.value)
    assert said.startswith("cannot publish results: the broker amqp://guest:***@127.0.0.1:1// does not answer")
    assert "\n" not in said
    scripted.is_away = False
    publisher.publish([settled(2)])
    assert scripted.ids == [[2]], "what was not taken is for rescue to send"


def test_a_connection_that_lay_idle_and_is_gone_is_made_anew_at_once(scripted: Scripted, publisher: Publisher) -> None:
    publisher.publish([settled(1)])
    scripted.breaks_next = True
    publisher.publish([settled(2)])
    assert scripted.ids == [[1], [2]]
    assert scripted.connections == 2


def test_an_error_of_another_kind_is_raised_as_it_is(scripted: Scripted, publisher: Publisher) -> None:
    publisher.publish([settled(1)])
    scripted.raises = lambda _: MemoryError("as told")
    with pytest.raises(MemoryError, match="as told"):
        publisher.publish([settled(2)])
    scripted.raises = lambda _: None
    publisher.publish([settled(3)])
    assert scripted.ids == [[1], [3]]
    assert scripted.connections == 2


@pytest.mark.parametrize("again", [False, True])
def test_a_nudge_is_a_job_of_its_range(scripted: Scripted, publisher: Publisher, again: bool) -> None:
    publisher.nudge(RANGE, again=again)
    [(body, _, routing_key, headers)] = scripted.taken
    assert body[0] == [10, 20]
    assert (routing_key, headers["task"], headers[wire.POOL]) == (wire.QUEUE, wire.POKE_SHARD, POOL)
    assert headers.get(wire.AGAIN, False) is again


def test_a_nudge_to_a_broker_that_is_away_says_what_it_was(scripted: Scripted, publisher: Publisher) -> None:
    scripted.is_away = True
    with pytest.raises(Unreachable, match="cannot send a job: the broker"):
        publisher.nudge(RANGE)


def test_a_pool_that_is_not_known_yet_is_not_named(scripted: Scripted) -> None:
    publisher = Publisher(SETTINGS)
    publisher.publish([settled(1)])
    publisher.close()
    assert wire.POOL not in scripted.taken[0][3]


def test_a_publisher_that_was_closed_connects_again(scripted: Scripted, publisher: Publisher) -> None:
    publisher.publish([settled(1)])
    publisher.nudge(RANGE)
    publisher.close()
    publisher.publish([settled(2)])
    publisher.nudge(RANGE)
    assert (scripted.connections, len(scripted.taken)) == (2, 4)


def test_a_child_after_a_fork_leaves_the_connection_to_its_parent(scripted: Scripted, publisher: Publisher) -> None:
    publisher.publish([settled(1)])
    publisher.begin_anew()
    publisher.publish([settled(2)])
    assert scripted.connections == 2
