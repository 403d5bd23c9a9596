"""An FTP server on the loopback interface: as much of RFC 959 and RFC 3659 as it takes to look around."""

import os
import socket
import socketserver
import threading
import time
from pathlib import Path

PASSWORD = "hunter2"


def changed(status: os.stat_result) -> str:
    """Return when a file was changed, as RFC 3659 says it."""
    return time.strftime("%Y%m%d%H%M%S", time.gmtime(status.st_mtime))


class FtpServer:
    """Serves the listings of a real folder to ``me``."""

    def __init__(self, root: Path) -> None:
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
                    if command == "USER":
                        self.say("331 password?")
                    elif command == "PASS":
                        outer.logins += argument == PASSWORD
                        self.say("230 welcome" if argument == PASSWORD else f"530 not with {argument}")
                    elif command == "TYPE":
                        self.say("200 fine")
                    elif command == "MDTM":
                        item = root / argument.strip("/")
                        self.say(f"213 {changed(item.stat())}" if item.exists() else "550 no such file")
                    elif command == "QUIT":
                        self.say("221 bye")
                        return
                    elif command == "PASV":
                        self.waiting = socket.create_server(("127.0.0.1", 0))
                        port = self.waiting.getsockname()[1]
                        self.say(f"227 (127,0,0,1,{port // 256},{port % 256})")
                    elif command in ("MLSD", "LIST"):
                        self.list(root / argument.strip("/"))
                    else:
                        self.say("502 no")

            def list(self, folder: Path) -> None:
                with self.waiting:
                    if not folder.is_dir():
                        self.say("550 no such folder")
                        return
                    self.say("150 here it comes")
                    connection, _ = self.waiting.accept()
                    with connection, os.scandir(folder) as listing:
                        for item in listing:
                            status = item.stat()
                            kind = "dir" if item.is_dir() else "file"
                            facts = f"type={kind};size={status.st_size};modify={changed(status)}; {item.name}\r\n"
                            connection.sendall(facts.encode())
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
