"""PathSensor, on FTP servers: what their listings tell of a link or a pipe, and what they have to be asked."""

import errno
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sensorpool.sensors import PathSensor
from sensorpool.sensors.connections import PokeFailed
from sensorpool.sensors.filesystems import RemoteTree
from sensorpool.sensors.tree import Entry

from .ftp import PASSWORD, FtpServer

SetConnection = Callable[[str, str], None]


@pytest.fixture
def items(tmp_path: Path, set_connection: SetConnection) -> Path:
    """A file of 100 bytes, two hours old; a pipe; links."""
    set_connection("ftp", json.dumps({"username": "me", "password": PASSWORD}))
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


@pytest.fixture(params=["LIST", "MLSD"])
def server(request: pytest.FixtureRequest, items: Path) -> Iterator[FtpServer]:
    serving = FtpServer(items, unknown=("MLSD",) if request.param == "LIST" else ())
    yield serving
    serving.close()


def holds(server: FtpServer, path: str, **wanted: Any) -> bool:
    return PathSensor(f"{server.url}/{path}", conn_id="ftp", **wanted).poke({})


def test_a_link_is_what_it_leads_to(server: FtpServer) -> None:
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


def test_a_pipe_is_no_file(items: Path) -> None:
    with_list = FtpServer(items, unknown=("MLSD",))  # the facts of MLSD name no pipes
    try:
        assert holds(with_list, "pipe") is False
        assert holds(with_list, "p*") is False
    finally:
        with_list.close()


def test_the_age_of_a_file_is_asked_for(server: FtpServer) -> None:
    assert holds(server, "real.csv", min_age=60) is True
    assert holds(server, "link.csv", min_age=60) is True
    assert holds(server, "real.csv", min_age=10_000) is False


@pytest.mark.parametrize(
    ("unknown", "wanted", "said"),
    [
        ("SIZE", {"path": "link.csv"}, "does not tell where a link leads: give the path of the file itself"),
        ("MDTM", {"path": "real.csv", "min_age": 60}, "does not tell when a file was modified: leave out min_age"),
    ],
)
def test_what_a_server_does_not_tell_is_an_error(items: Path, unknown: str, wanted: dict[str, Any], said: str) -> None:
    serving = FtpServer(items, unknown=("MLSD", unknown))
    try:
        with pytest.raises(PokeFailed, match=said):
            holds(serving, **wanted)
        assert holds(serving, "real.csv", min_size=100) is True
    finally:
        serving.close()


class _Sftp:
    """Lists links as fsspec's SFTP does: by themselves in a folder, followed where one is asked for."""

    def __init__(self, **found: Mapping[str, Any] | Exception) -> None:
        self._found = found

    def ls(self, folder: str, detail: bool) -> list[dict[str, Any]]:
        assert detail
        return [{"name": f"{folder}/{name}", "type": "link", "size": 5, "mtime": 9.0} for name in self._found]

    def info(self, path: str) -> Mapping[str, Any]:
        found = self._found[path.rpartition("/")[2]]
        if isinstance(found, Exception):
            raise found
        return {"name": path, **found}


def test_a_link_in_a_folder_of_sftp_is_what_it_leads_to() -> None:
    closed = PermissionError(errno.EACCES, "no")
    sftp = _Sftp(
        file={"type": "file", "size": 100},
        folder={"type": "directory"},
        nowhere=FileNotFoundError(),
        to_itself=OSError("Failure"),
        closed=closed,
    )
    tree = RemoteTree(sftp)
    entries = {entry.path: entry for entry in tree.scan("/d", lambda _: True)}
    assert entries == {
        "/d/file": Entry("/d/file", is_file=True, is_folder=False, is_link=True, size=100, modified=None),
        "/d/folder": Entry("/d/folder", is_file=False, is_folder=True, is_link=True, size=None, modified=None),
    }
    assert tree.refused == [closed]


@pytest.mark.parametrize("error", [TimeoutError("timed out"), ConnectionResetError(errno.ECONNRESET, "reset")])
def test_a_server_that_goes_away_while_a_link_is_followed_is_no_dangling_link(error: OSError) -> None:
    with pytest.raises(type(error)):
        list(RemoteTree(_Sftp(link=error)).scan("/d", lambda _: True))
