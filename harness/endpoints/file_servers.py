"""File servers on the loopback interface, each with the files of a real folder, for a user ``me``."""

import asyncio
import logging
import os
import threading
import warnings
from base64 import b64encode
from collections.abc import Collection
from pathlib import Path
from typing import Any, ClassVar, Self
from urllib.parse import parse_qs, unquote, urlsplit

from .json_server import JsonServer

USER, PASSWORD = "me", "hunter2"


class FileServer:
    """A server in threads of this process. Use it as a context manager."""

    url: str

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all connections, and take no more."""
        raise NotImplementedError


class SftpServer(FileServer):
    """An SFTP server (asyncssh's). It has the key ``host_key``, its user a password and ``user_key``."""

    host_key: str
    user_key: Any

    def __init__(self, root: Path, host: str = "127.0.0.1") -> None:
        self.logins = 0
        self._root, self._host = root, host
        self._connections: list[Any] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._acceptor = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(20)
        self.url = f"sftp://{f'[{host}]' if ':' in host else host}:{self._acceptor.get_port()}"

    def close(self) -> None:
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(20)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def hang_up(self) -> None:
        """End all connections."""
        for connection in self._connections:
            self._loop.call_soon_threadsafe(connection.abort)
        self._connections.clear()

    def fall_silent(self) -> None:
        """Answer on none of the present connections, as after a firewall has dropped them."""
        for connection in self._connections:
            self._loop.call_soon_threadsafe(connection._transport.pause_reading)

    async def _end(self) -> None:
        self._acceptor.close()
        for connection in self._connections:
            connection.abort()
        for _ in range(10):  # what has ended is closed in the next rounds of the loop
            await asyncio.sleep(0)

    async def _listen(self) -> Any:
        import asyncssh

        outer = self

        class Login(asyncssh.SSHServer):  # type: ignore[misc]
            def connection_made(self, conn: Any) -> None:
                outer._connections.append(conn)

            def password_auth_supported(self) -> bool:
                return True

            def public_key_auth_supported(self) -> bool:
                return True

            def validate_public_key(self, username: str, key: Any) -> bool:
                return username == USER and key == outer.user_key.convert_to_public()

            def validate_password(self, username: str, password: str) -> bool:
                outer.logins += 1
                return (username, password) == (USER, PASSWORD)

        host_key, self.user_key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
        self.host_key = host_key.export_public_key().decode().strip()
        return await asyncssh.listen(
            self._host,
            0,
            server_factory=Login,
            sftp_factory=lambda channel: asyncssh.SFTPServer(channel, chroot=os.fsencode(outer._root)),
            server_host_keys=[host_key],
        )


class FtpServer(FileServer):
    """An FTP server (pyftpdlib's).

    :param without: commands that the server does not know.
    :param full: take no more connections.
    """

    def __init__(self, root: Path, *, without: Collection[str] = (), full: bool = False) -> None:
        with warnings.catch_warnings(action="ignore"):  # asyncore is deprecated
            from pyftpdlib.authorizers import DummyAuthorizer
            from pyftpdlib.handlers import FTPHandler
            from pyftpdlib.ioloop import IOLoop
            from pyftpdlib.servers import FTPServer

        logging.getLogger("pyftpdlib").setLevel(logging.CRITICAL)
        users = DummyAuthorizer()
        users.add_user(USER, PASSWORD, str(root))
        users.add_anonymous(str(root))

        class Session(FTPHandler):  # type: ignore[misc]
            authorizer = users
            auth_failed_timeout = 0
            proto_cmds: ClassVar[dict[str, Any]] = {
                name: value for name, value in FTPHandler.proto_cmds.items() if name not in without
            }

            def handle_auth_failed(self, message: str, password: str) -> None:
                super().handle_auth_failed(f"not with {password}", password)  # as careless servers say

        self._loop = IOLoop()
        self._server = FTPServer(("127.0.0.1", 0), Session, ioloop=self._loop)
        self._server.max_cons = 1 if full else 512
        self.url = f"ftp://127.0.0.1:{self._server.socket.getsockname()[1]}"
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _serve(self) -> None:
        while not self._stopping.is_set():
            self._loop.loop(timeout=0.02, blocking=False)
        self._server.close_all()


class WebdavServer(FileServer):
    """A WebDAV server (wsgidav's)."""

    def __init__(self, root: Path) -> None:
        from cheroot.wsgi import Server
        from wsgidav.wsgidav_app import WsgiDAVApp

        logging.getLogger("wsgidav").setLevel(logging.CRITICAL)
        settings = {
            "provider_mapping": {"/dav": str(root)},
            "simple_dc": {"user_mapping": {"*": {USER: {"password": PASSWORD}}}},
            "http_authenticator": {"accept_basic": True, "accept_digest": False, "default_to_digest": False},
            "verbose": 0,
            "logging": {"enable": False},
        }
        self._server = Server(("127.0.0.1", 0), WsgiDAVApp(settings))
        self._server.prepare()
        self._thread = threading.Thread(target=self._server.serve, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.bind_addr[1]}/dav"

    def close(self) -> None:
        self._server.stop()
        self._thread.join()


class NameNode(FileServer):
    """WebHDFS: as much of its REST API as it takes to look around.

    ``refusal`` is a status, an exception of Java and its text: what it answers instead.
    """

    def __init__(self, root: Path) -> None:
        self.refusal: tuple[int, str, str] | None = None
        self._server = JsonServer(lambda path, headers: self._answer(root, path, headers["Authorization"]))
        self.url = f"webhdfs://127.0.0.1:{self._server.port}"

    def close(self) -> None:
        self._server.close()

    def _answer(self, root: Path, asked: str, authorization: str | None) -> tuple[int, dict[str, Any]]:
        parts = urlsplit(asked)
        path = root / unquote(parts.path).removeprefix("/webhdfs/v1").strip("/")
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if self.refusal:
            status, exception, message = self.refusal
            return status, {"RemoteException": {"exception": exception, "message": message}}
        if authorization != "Basic " + b64encode(f"{USER}:{PASSWORD}".encode()).decode():
            return 401, {"RemoteException": {"exception": "AuthenticationException", "message": "not you"}}
        if not path.exists():
            said = {"exception": "FileNotFoundException", "message": f"File does not exist: {path}"}
            return 404, {"RemoteException": said}
        if query["op"] == "GETFILESTATUS":
            return 200, {"FileStatus": self._status(path, "")}
        listed = (
            [self._status(item, item.name) for item in path.iterdir()] if path.is_dir() else [self._status(path, "")]
        )
        return 200, {"FileStatuses": {"FileStatus": listed}}

    def _status(self, path: Path, suffix: str) -> dict[str, Any]:
        status = path.stat()
        kind = "DIRECTORY" if path.is_dir() else "FILE"
        size, modified = 0 if path.is_dir() else status.st_size, int(status.st_mtime * 1000)
        return {"pathSuffix": suffix, "type": kind, "length": size, "modificationTime": modified}
