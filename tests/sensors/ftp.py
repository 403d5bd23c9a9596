"""An FTP server on the loopback interface: as much of RFC 959 and RFC 3659 as it takes to look around."""

import os
import socket
import socketserver
import stat
import threading
import time
from collections.abc import Callable, Container
from pathlib import Path

PASSWORD = "hunter2"


def changed(status: os.stat_result) -> str:
    """Return when a file was changed, as RFC 3659 says it."""
    return time.strftime("%Y%m%d%H%M%S", time.gmtime(status.st_mtime))


def facts(item: Path) -> str:
    """Return a line of MLSD as ProFTPD writes it."""
    status = item.lstat()
    kind = "OS.unix=symlink" if item.is_symlink() else "dir" if item.is_dir() else "file"
    return f"type={kind};size={status.st_size};modify={changed(status)}; {item.name}"


def long_line(item: Path) -> str:
    """Return a line of LIST as vsftpd writes it."""
    status = item.lstat()
    target = f" -> {item.readlink()}" if item.is_symlink() else ""
    return f"{stat.filemode(status.st_mode)} 1 0 0 {status.st_size:>8} Nov 23 02:43 {item.name}{target}"


class FtpServer:
    """Serves the listings of a real folder to ``me``.

    :param unknown: commands that the server does not know. One without MLSD, like vsftpd, lists as ``ls -l`` does.
    """

    def __init__(self, root: Path, unknown: Container[str] = ()) -> None:
        outer = self
        self.logins = 0
        self.greeting = "220 ready"

        class Session(socketserver.StreamRequestHandler):
            def say(self, line: str) -> None:
                self.wfile.write(f"{line}\r\n".encode())

            def handle(self) -> None:
                self.say(outer.greeting)
                for line in self.rfile:
                    command, _, argument = line.decode().strip().partition(" ")
                    if command in unknown:
                        self.say("500 Unknown command.")
                        if command == "MLSD":
                            self.waiting.close()
                    elif command == "USER":
                        self.say("331 password?")
                    elif command == "PASS":
                        outer.logins += argument == PASSWORD
                        self.say("230 welcome" if argument == PASSWORD else f"530 not with {argument}")
                    elif command == "TYPE":
                        self.say("200 fine")
                    elif command == "MDTM":
                        item = root / argument.strip("/")
                        self.say(f"213 {changed(item.stat())}" if item.exists() else "550 no such file")
                    elif command == "SIZE":
                        item = root / argument.strip("/")
                        self.say(f"213 {item.stat().st_size}" if item.is_file() else "550 no such file")
                    elif command == "PWD":
                        self.say('257 "/" is where you are')
                    elif command == "CWD":
                        self.say("250 fine" if (root / argument.strip("/")).is_dir() else "550 no such folder")
                    elif command == "QUIT":
                        self.say("221 bye")
                        return
                    elif command == "PASV":
                        self.waiting = socket.create_server(("127.0.0.1", 0))
                        port = self.waiting.getsockname()[1]
                        self.say(f"227 (127,0,0,1,{port // 256},{port % 256})")
                    elif command in ("MLSD", "LIST"):
                        self.list(root / argument.strip("/"), facts if command == "MLSD" else long_line)
                    else:
                        self.say("502 no")

            def list(self, folder: Path, line: Callable[[Path], str]) -> None:
                with self.waiting:
                    if not folder.is_dir():
                        self.say("550 no such folder")
                        return
                    self.say("150 here it comes")
                    connection, _ = self.waiting.accept()
                    with connection:
                        for item in folder.iterdir():
                            connection.sendall(f"{line(item)}\r\n".encode())
                    self.say("226 done")

        class Listener(socketserver.ThreadingTCPServer):
            daemon_threads = True

        self._listener = Listener(("127.0.0.1", 0), Session)
        self.port: int = self._listener.server_address[1]
        self.url = f"ftp://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown()
        self._listener.server_close()
        self._thread.join()
