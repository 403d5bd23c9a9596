"""A server on the loopback interface that answers the first request with bytes of a test, and all others alike."""

import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path

STALE = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstale"
OWN = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nown"


class ScriptedServer:
    """Answers the first request with ``first``, any other with OWN.

    :param late: is sent on the connection of the first request when the second one has come, before its answer; a
        connection that the client has closed may refuse it.
    :param certificate: a file with a certificate and its key, for TLS.
    """

    def __init__(self, first: bytes, *, late: bytes = b"", certificate: Path | None = None) -> None:
        self.asked: list[int] = []  # for each request, the number of its connection
        self.late_sent = threading.Event()
        self._first, self._late = first, late
        self._connections: list[socket.socket] = []
        self._ended: set[int] = set()
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if certificate else None
        if self._tls and certificate:
            self._tls.load_cert_chain(certificate)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"{'https' if certificate else 'http'}://localhost:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def has_ended(self, connection: int) -> bool:
        """Whether the client has closed the connection of this number."""
        return connection in self._ended

    def send(self, content: bytes) -> None:
        """Send on the connection of the first request."""
        self._connections[0].sendall(content)

    def close(self) -> None:
        self._listening.close()
        for connection in self._connections:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                accepted = self._listening.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._serve, args=(accepted,), daemon=True).start()

    def _serve(self, accepted: socket.socket) -> None:
        connection = self._tls.wrap_socket(accepted, server_side=True) if self._tls else accepted
        self._connections.append(connection)
        number = len(self._connections) - 1
        try:
            while connection.recv(65536):
                self.asked.append(number)
                if len(self.asked) == 1:
                    connection.sendall(self._first)
                    continue
                if self._late and not self.late_sent.is_set():
                    self.late_sent.set()
                    with suppress(OSError):
                        self.send(self._late)
                connection.sendall(OWN)
        except OSError:
            pass  # the client has gone
        self._ended.add(number)
