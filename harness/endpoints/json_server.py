"""An HTTP server on the loopback interface that answers each GET with JSON."""

import json
import threading
from collections.abc import Callable
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Respond = Callable[[str, Message], tuple[int, dict[str, Any]]]
"""Takes a path and headers; returns a status and the body."""


class JsonServer:
    """Answers from its making on, until it is closed."""

    def __init__(self, respond: Respond) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, found = respond(self.path, self.headers)
                body = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.port: int = self._server.server_port

    def close(self) -> None:
        """End, once what is being answered is answered."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
