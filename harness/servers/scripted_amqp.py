"""A RabbitMQ of a hundred lines, on loopback: it takes, refuses, returns or ignores messages as a test tells it."""

import json
import socket
import struct
import threading
from dataclasses import dataclass, field
from typing import Any, Self

_METHOD, _HEADER, _BODY, _END = 1, 2, 3, b"\xce"


@dataclass
class ScriptedAmqp:
    """Listens until it is closed.

    :param does: what happens to a message, by its exchange or queue: ``take``, ``nack``, ``ignore`` or ``hang up``.
        Other queues do not exist. A declaration of one of these queues is answered with 406: it has another type.
    """

    does: dict[str, str]
    taken: list[tuple[str, Any]] = field(default_factory=list)  # queue and body
    struck: list[str] = field(default_factory=list)  # messages that were not taken: what happened, and the queue
    declared: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self._listening.getsockname()[1]}//"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)  # otherwise `accept` would go on waiting
        self._listening.close()
        for connection in self._open:
            with connection:
                connection.shutdown(socket.SHUT_RDWR) if connection.fileno() >= 0 else None
        for thread in self._threads:
            thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._open.append(connection)
            thread = threading.Thread(target=self._speak, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _speak(self, connection: socket.socket) -> None:
        try:
            _Conversation(self, connection).run()
        except (OSError, struct.error, EOFError):
            connection.close()


class _Conversation:
    def __init__(self, server: ScriptedAmqp, connection: socket.socket) -> None:
        self._server, self._socket = server, connection
        self._delivered = 0

    def run(self) -> None:
        self._read(8)
        capabilities = b"".join(
            bytes([len(name)]) + name + b"t\x01"
            for name in (b"publisher_confirms", b"basic.nack", b"connection.blocked")
        )
        table = b"\x0ccapabilitiesF" + _long(capabilities)
        self._say(0, 10, 10, b"\x00\x09" + _long(table) + _long(b"AMQPLAIN PLAIN") + _long(b"en_US"))
        while True:
            kind, channel, payload = self._frame()
            if kind != _METHOD:
                continue
            what = struct.unpack(">HH", payload[:4])
            match what:
                case (10, 11):
                    self._say(0, 10, 30, struct.pack(">HIH", 2047, 131072, 0))
                case (10, 40):
                    self._say(0, 10, 41, b"\x00")
                case (10, 50):
                    self._say(0, 10, 51, b"")
                case (20, 10):
                    self._delivered = 0
                    self._say(channel, 20, 11, _long(b""))
                case (20, 40):
                    self._say(channel, 20, 41, b"")
                case (85, 10):
                    self._say(channel, 85, 11, b"")
                case (40, 10):
                    self._say(channel, 40, 11, b"")
                case (50, 10):
                    self._declare(channel, _short(payload, 6)[0])
                case (60, 40):
                    self._publish(channel, payload)

    def _declare(self, channel: int, queue: str) -> None:
        self._server.declared.append(queue)
        if queue not in self._server.does:
            self._server.does[queue] = "take"
            name = bytes([len(queue)]) + queue.encode()
            self._say(channel, 50, 11, name + struct.pack(">II", 0, 0))
            return
        text = f"PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue '{queue}'".encode()
        self._say(channel, 20, 40, struct.pack(">H", 406) + bytes([len(text)]) + text + struct.pack(">HH", 50, 10))

    def _publish(self, channel: int, payload: bytes) -> None:
        exchange, place = _short(payload, 6)
        queue, place = _short(payload, place)
        mandatory = payload[place] & 1
        _, _, header = self._frame()
        size, body = struct.unpack(">Q", header[4:12])[0], b""
        while len(body) < size:
            body += self._frame()[2]
        self._delivered += 1
        tag = struct.pack(">QB", self._delivered, 0)
        does = self._server.does.get(exchange, "take") if exchange else self._server.does.get(queue, "missing")
        if does == "take":
            self._server.taken.append((queue, json.loads(body)))
            self._say(channel, 60, 80, tag)
            return
        self._server.struck.append(f"{does} {queue}")
        if does == "nack":
            self._say(channel, 60, 120, tag)
        elif does == "hang up":
            self._socket.shutdown(socket.SHUT_RDWR)
        elif does == "missing":
            if mandatory:
                names = bytes([len(exchange)]) + exchange.encode() + bytes([len(queue)]) + queue.encode()
                self._say(channel, 60, 50, struct.pack(">H", 312) + b"\x08NO_ROUTE" + names)
                self._send(_HEADER, channel, header)
                self._send(_BODY, channel, body)
            self._say(channel, 60, 80, tag)

    def _say(self, channel: int, of: int, method: int, arguments: bytes) -> None:
        self._send(_METHOD, channel, struct.pack(">HH", of, method) + arguments)

    def _send(self, kind: int, channel: int, payload: bytes) -> None:
        self._socket.sendall(struct.pack(">BHI", kind, channel, len(payload)) + payload + _END)

    def _frame(self) -> tuple[int, int, bytes]:
        kind, channel, size = struct.unpack(">BHI", self._read(7))
        payload = self._read(size)
        self._read(1)
        return kind, channel, payload

    def _read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            some = self._socket.recv(size - len(found))
            if not some:
                raise EOFError
            found += some
        return found


def _long(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text


def _short(payload: bytes, place: int) -> tuple[str, int]:
    size = payload[place]
    return payload[place + 1 : place + 1 + size].decode(), place + 1 + size
