"""Callbacks: tasks go to the user's own queues, at least once.

A task is sent as its application would send it (`signature`, `canvas`). The queue is the user's, so it is not declared:
it may have other properties than we would give it. Where RabbitMQ does not have the queue, the callback waits.
"""

import json
import threading
from collections import OrderedDict
from typing import Any

from kombu import Connection, Producer
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from sensorpool.config.defaults import MEMORY
from sensorpool.config.settings import Settings
from sensorpool.errors import Refused, Unreachable
from sensorpool.instrumentation import forks
from sensorpool.instrumentation.redaction import hide_password, one_line, printable
from sensorpool.model import callback_messages
from sensorpool.model.values import Settled
from sensorpool.publish import broker, wire
from sensorpool.publish import signature as signatures
from sensorpool.publish.application import Application, celery_settings
from sensorpool.publish.messages import result_of


class NotAllowed(Refused):
    """The settings of this process do not allow the task; the settings of another worker may."""


_MEMORY_BROKER = (
    "the pool's broker is memory://, which no other process reads: "
    "set SENSORPOOL_ON_SETTLED_BROKER_URL to the broker of your application"
)


_MOST_TAKEN = 10_000  # messages that are remembered


class Callbacks:
    """Sends callbacks. Safe to share between threads; the connection is made when it is first needed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._url = settings.on_settled_broker_url or settings.broker
        self._sender: tuple[Application, Connection, Producer] | None = None
        self._lock = threading.Lock()
        self._taken: OrderedDict[tuple[int, str], None] = OrderedDict()  # by instance and task id
        forks.note(self)

    def begin_anew(self) -> None:
        """Leave the connection to the parent process."""
        self._lock = threading.Lock()
        self._of_parents, self._sender = self._sender, None

    def send(self, settled: Settled) -> None:
        """Send the callbacks of an instance, each with the result as its first argument unless it is immutable.

        :raises Unreachable: when the broker does not answer.
        :raises Refused: when it may never be sent, or the broker does not take this message; with the reason.
        :raises NotAllowed: when this process may not send it.
        :raises ValueError: when the text in the row has no signature.
        """
        messages = callback_messages.messages(settled.on_settled or "", settled.state)
        for message in messages:
            for task in signatures.tasks_of(message):
                if not signatures.is_allowed(task, self._settings.on_settled_tasks):
                    raise NotAllowed(not_allowed(task))
        if messages and self._url == MEMORY and not self._settings.on_settled_broker_url:
            raise Refused(_MEMORY_BROKER)
        refused: Refused | None = None
        with self._lock:
            for message in messages:
                options = self._options(message)
                taken = (settled.id, str(options.get("task_id")))  # a step that waits is sent twice under one task id
                if taken in self._taken:
                    continue
                arguments, named = arguments_of(message, result_of(settled))
                try:
                    self._send(message["task"], arguments, named, options)
                except Refused as error:
                    refused = refused or error  # it stops no other
                else:
                    if len(messages) > 1:
                        self._note_taken(taken)
        if refused is not None:
            raise refused

    def _note_taken(self, taken: tuple[int, str]) -> None:
        """Note that the broker has one of several messages: a later try of the others does not send it again."""
        self._taken[taken] = None
        if len(self._taken) > _MOST_TAKEN:
            self._taken.popitem(last=False)

    def send_late(self, task: str, argument: str) -> None:
        """Send an `on_late` task.

        :param argument: JSON.
        :raises Unreachable: when the broker does not answer.
        :raises Refused: when the broker does not take this message, with the reason.
        :raises ValueError: when the argument is no JSON.
        """
        with self._lock:
            self._send(task, [json.loads(argument)], {}, self._options({}))

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._forget()

    def _options(self, signature: dict[str, Any]) -> dict[str, Any]:
        given = _mapping(signature.get("options"))
        options = {
            name: value for name, value in given.items() if name in signatures.OPTIONS_SENT and value is not None
        }
        options.setdefault("queue", self._settings.on_settled_queue)
        options.setdefault("ignore_result", None)  # the user's task says whether its result is kept
        if wire.is_amqp(self._url):
            options["mandatory"] = True  # otherwise a message that no queue takes counts as sent
        return options | wire.publish_options(self._url)

    def _send(self, task: str, arguments: list[Any], named: dict[str, Any], options: dict[str, Any]) -> None:
        try:
            sender, producer = self._made()
            if (exchange := options.get("exchange")) and not _has_queue(producer, exchange, options):
                raise Refused(f"no queue is bound to the exchange {printable(str(exchange)[:200])} for it")
            sender.send_task(task, args=arguments, kwargs=named, producer=producer, declare=[], **options)
        except Refused:
            raise
        except (OperationalError, OSError, RedisError) as error:
            refused = None if self._sender is None else broker.refusal(self._sender[1], error)
            self._forget()
            if refused is not None:
                raise Refused(f"the broker does not take it: {one_line(refused)}") from error
            where = hide_password(self._url)
            raise Unreachable(
                f"cannot send a callback: the broker {where} does not answer: {one_line(error)}"
            ) from error
        except Exception as error:
            self._forget()  # a channel that raised may still hold the answer to the refused message
            raise Refused(f"the broker does not take it: {one_line(error)}") from error

    def _made(self) -> tuple[Application, Any]:
        """Return an application that only sends, without our key prefix, and its producer."""
        if self._sender is None:
            sender = Application("sensorpool-callbacks", celery_settings(self._settings))
            connection = broker.connection(self._url, prefixed=False)
            self._sender = sender, connection, Producer(connection, auto_declare=False)
        return self._sender[0], self._sender[2]

    def _forget(self) -> None:
        if self._sender is not None:
            sender, connection, _ = self._sender
            self._sender = None
            broker.drop(connection)
            sender.close()


def not_allowed(task: str) -> str:
    """Return the reason why a process does not send a task."""
    return f"{printable(task[:200])} is not allowed: add it to SENSORPOOL_ON_SETTLED_TASKS of the workers"


def _has_queue(producer: Any, exchange: str, options: dict[str, Any]) -> bool:
    """Whether a message to an exchange reaches a queue. Redis would drop it silently if it does not."""
    channel = producer.channel
    if not hasattr(channel, "get_table"):
        return True  # RabbitMQ reports it by itself
    return bool(channel._lookup(exchange, options.get("routing_key") or ""))


def arguments_of(message: callback_messages.Message, result: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a message's task, with the result where it is wanted."""
    given, named = message.get("args"), _mapping(message.get("kwargs"))
    arguments = list(given) if isinstance(given, list | tuple) else []
    if message.get("immutable"):
        return arguments, named
    if takes := message.get("takes"):
        return arguments, named | {str(takes): [result, *(named.get(takes) or ())]}
    return [result, *arguments], named


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
