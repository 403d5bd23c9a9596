"""PathSensor, on FTP servers: what their listings tell of a link or a pipe, and what they have to be asked."""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from ftplib import error_perm, error_temp
from pathlib import Path
from typing import Any

import pytest

from harness.endpoints.file_servers import PASSWORD, USER, FtpServer
from sensorpool.errors import InfraFailure
from sensorpool.sensors import PathSensor
from sensorpool.sensors.connections import PokeFailed
from sensorpool.sensors.ftp_tree import FtpTree

SetConnection = Callable[[str, str], None]
Holds = Callable[..., bool]


@pytest.fixture
def items(tmp_path: Path) -> Path:
    """A file of 100 bytes, two hours old; a pipe; links."""
    (tmp_path / "real.csv").write_text("x" * 100)
    os.utime(tmp_path / "real.csv", (time.time() - 7200,) * 2)
    (tmp_path / "folder").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    for name, target in {
        "dangling.csv": "gone.csv",
        "link.csv": "real.csv",
        "to_folder": "folder",
        "to_full": "full",
        "to_pipe": "pipe",
    }.items():
        (tmp_path / name).symlink_to(target)
    return tmp_path


@pytest.fixture(params=["NLST", "MLSD"])
def server(request: pytest.FixtureRequest, items: Path) -> Iterator[FtpServer]:
    with FtpServer(items, without=("MLSD",) if request.param == "NLST" else ()) as serving:
        yield serving


@pytest.fixture
def holds(set_connection: SetConnection) -> Callable[..., bool]:
    def ask(server: FtpServer, path: str, **wanted: Any) -> bool:
        set_connection("ftp", json.dumps({"base_url": server.url, "username": USER, "password": PASSWORD}))
        return PathSensor(f"{server.url}/{path}", conn_id="ftp", **wanted).poke({})

    return ask


def test_a_link_is_what_it_leads_to(server: FtpServer, holds: Holds) -> None:
    assert holds(server, "real.csv") is True
    assert holds(server, "link.csv") is True
    assert holds(server, "link.csv", min_size=100) is True
    assert holds(server, "link.csv", min_size=101) is False
    assert holds(server, "dangling.csv") is False
    assert holds(server, "to_folder") is False
    assert holds(server, "to_full") is True
    assert holds(server, "to_pipe") is False
    assert holds(server, "l*.csv", min_size=100) is True
    assert holds(server, "d*.csv") is False


def test_a_pipe_is_no_file(items: Path, holds: Holds) -> None:
    with FtpServer(items, without=("MLSD",)) as with_names:  # the facts of MLSD name no pipes
        assert holds(with_names, "pipe") is False
        assert holds(with_names, "p*") is False


def test_the_age_of_a_file_is_asked_for(server: FtpServer, holds: Holds) -> None:
    assert holds(server, "real.csv", min_age=60) is True
    assert holds(server, "link.csv", min_age=60) is True
    assert holds(server, "real.csv", min_age=10_000) is False


@pytest.mark.parametrize(
    ("unknown", "wanted", "said"),
    [
        ("SIZE", {"min_size": 100}, "does not tell the size of a file: leave out min_size"),
        ("MDTM", {"min_age": 60}, "does not tell when a file was modified: leave out min_age"),
    ],
)
def test_what_a_server_does_not_tell_is_an_error(
    items: Path, holds: Holds, unknown: str, wanted: dict[str, Any], said: str
) -> None:
    with FtpServer(items, without=("MLSD", unknown)) as server:
        for path in ("real.csv", "r*.csv"):
            with pytest.raises(PokeFailed, match=said):
                holds(server, path, **wanted)
            assert holds(server, path) is True
        for path in ("none.csv", "n*.csv", "folder", "none/real.csv"):
            assert holds(server, path) is False, path


class Scripted:
    """A client of a server with the folder ``/in``, which answers NLST in a way of its own."""

    encoding = "utf-8"

    def __init__(self, lines: list[str], said: str = "226 Transfer complete") -> None:
        self.lines, self.said = lines, said

    def voidcmd(self, _: str) -> str:
        return "200 OK"

    def cwd(self, path: str) -> None:
        if path != "/in":
            raise error_perm("550 Not a directory")

    def size(self, path: str) -> int:
        if path == "/in/a.csv":
            return 5
        raise error_perm("550 Could not get file size.")

    def retrlines(self, command: str, callback: Callable[[str], None]) -> str:
        if command == "MLSD":
            raise error_perm("500 Unknown command.")
        if self.said[0] in "45":
            raise (error_temp if self.said[0] == "4" else error_perm)(self.said)
        for line in self.lines:
            callback(line)
        return self.said


@pytest.mark.parametrize(
    ("lines", "said", "found"),
    [
        (["a.csv"], "226 Done", ["/in/a.csv"]),
        (["/in/a.csv", ".", "..", "gone.csv"], "226 Done", ["/in/a.csv"]),
        ([], "226 Done", []),
        ([], "450 No files found", []),
        ([], "550 No files found", []),
    ],
)
def test_names_are_listed_in_many_ways(lines: list[str], said: str, found: list[str]) -> None:
    tree = FtpTree(Scripted(lines, said))  # type: ignore[arg-type]
    assert [entry.path for entry in tree.scan("/in", lambda name: name.endswith(".csv"))] == found
    assert not tree.refused


def test_a_folder_that_may_not_be_read_is_no_empty_one() -> None:
    tree = FtpTree(Scripted([], "226 Transfer done (but failed to open directory)."))  # type: ignore[arg-type]
    assert not list(tree.scan("/in", str.isprintable))
    assert [type(error) for error in tree.refused] == [PermissionError]


def test_a_tls_server_that_hangs_up_is_an_infrastructure_failure(set_connection: SetConnection) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def hang_up() -> None:
            with listening.accept()[0] as session:
                session.recv(10_000)
                session.shutdown(socket.SHUT_WR)
                session.recv(10_000)

        thread = threading.Thread(target=hang_up)
        thread.start()
        url = f"ftp://127.0.0.1:{listening.getsockname()[1]}"
        set_connection("ftp", json.dumps({"base_url": url, "tls": "tls"}))
        with pytest.raises(InfraFailure, match="EOF"):
            PathSensor(f"{url}/a", conn_id="ftp").poke({})
        thread.join()


def test_a_wrong_password_is_not_told(tmp_path: Path, set_connection: SetConnection) -> None:
    with FtpServer(tmp_path) as server:
        set_connection("ftp", json.dumps({"base_url": server.url, "username": USER, "password": "swordfish"}))
        with pytest.raises(PokeFailed, match=r"ftp://127\.0\.0\.1:\d+/a: error_perm: 530 Not with \*\*\*"):
            PathSensor(f"{server.url}/a", conn_id="ftp").poke({})


def test_a_server_that_is_full_is_an_infrastructure_failure(tmp_path: Path, holds: Holds) -> None:
    with FtpServer(tmp_path, full=True) as server, pytest.raises(InfraFailure, match="421 Too many connections"):
        holds(server, "a")
