"""An HTTP server on the loopback interface."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Respond = Callable[[BaseHTTPRequestHandler], None]


class Server:
    """An HTTP server whose answers a test writes: ``server.at["/path"] = function``; it keeps what it was asked."""

    def __init__(self) -> None:
        self.at: dict[str, Respond] = {}
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.connections = 0
        self.closing = threading.Event()
        outer = self

        class Responder(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                outer.connections += 1
                super().setup()

            def do_GET(self) -> None:
                outer.asked.append(
                    (self.command, self.path, {name.lower(): text for name, text in self.headers.items()})
                )
                outer.at.get(self.path, answer(404))(self)

            do_HEAD = do_GET

            def log_message(self, *_: Any) -> None:
                pass

        class Listener(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_: Any) -> None:
                pass  # a client that goes away is what some tests are about

        self._listener = Listener(("127.0.0.1", 0), Responder)
        self.url = f"http://127.0.0.1:{self._listener.server_port}"
        self.port = self._listener.server_port
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.closing.set()
        self._listener.shutdown()
        self._listener.server_close()
        self._thread.join()


def answer(status: int, body: bytes = b"", **headers: str) -> Respond:
    """Answer with this status, body and headers."""

    def respond(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, text in {"Content-Length": str(len(body)), **headers}.items():
            request.send_header(name.replace("_", "-"), text)
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)

    return respond
