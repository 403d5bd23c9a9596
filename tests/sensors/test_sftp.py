"""PathSensor, on an SFTP server: names, links, and what is no file."""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paramiko
import pytest

from harness.endpoints.file_servers import PASSWORD, USER, SftpServer
from harness.until import until
from sensorpool.errors import InfraFailure, SettingsError
from sensorpool.sensors import PathSensor
from sensorpool.sensors.connections import PokeFailed

SetConnection = Callable[[str, str], None]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SftpServer]:
    (tmp_path / "in").mkdir()
    with SftpServer(tmp_path) as serving:
        yield serving


@pytest.fixture
def holds(server: SftpServer, set_connection: SetConnection) -> Callable[..., bool]:
    set_connection("sftp", json.dumps({"base_url": server.url, "username": USER, "password": PASSWORD}))
    return lambda path, **wanted: PathSensor(f"{server.url}{path}", conn_id="sftp", **wanted).poke({})


@pytest.mark.parametrize("name", ["a#b.csv", "a b.csv", "100%.csv", "%20.csv", "é.csv", "a;b@c:d.csv", "a::b.csv"])
def test_a_name_is_taken_as_it_is(tmp_path: Path, holds: Callable[..., bool], name: str) -> None:
    if "::" not in name:  # a chain of URLs
        assert holds(f"/in/{name}") is False
    (tmp_path / "in" / name).touch()
    if "::" not in name:
        assert holds(f"/in/{name}") is True
    assert holds("/in/*.csv") is True


def test_one_name_that_is_not_utf8_hides_no_other(tmp_path: Path, holds: Callable[..., bool]) -> None:
    with open(os.fsencode(tmp_path / "in") + b"/\xe9.csv", "wb"):
        pass
    assert holds("/in/a.csv") is False
    assert holds("/in/[a-z].csv") is False
    assert holds("/in/?.csv") is True
    (tmp_path / "in" / "a.csv").touch()
    assert holds("/in/[a-z].csv") is True


def test_what_is_no_file(tmp_path: Path, holds: Callable[..., bool]) -> None:
    folder = tmp_path / "in"
    (folder / "dangling").symlink_to("none")
    (folder / "itself").symlink_to("itself")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        os.chdir(folder)  # the path of a socket is short
        listening.bind("socket")
    for path in ("/in", "/in/*", "/**/p*", "/in/pipe", "/in/socket", "/in/dangling", "/in/i*"):
        assert holds(path) is False, path
    with pytest.raises(PokeFailed, match="Too many levels"):
        holds("/in/itself")
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file.csv").write_text("12345")
    (folder / "to_file").symlink_to("../real/file.csv")
    assert holds("/in/to_file", min_size=5) is True
    assert holds("/in/t*", min_size=5) is True
    assert holds("/in/*", min_size=6) is False


def test_a_connection_that_has_broken_is_made_anew(
    tmp_path: Path, server: SftpServer, holds: Callable[..., bool]
) -> None:
    (tmp_path / "in" / "a.csv").touch()
    assert all(holds("/in/a.csv") for _ in range(3))
    assert server.logins == 1
    server.hang_up()
    assert holds("/in/*.csv") is True
    assert server.logins == 2


def test_a_connection_that_has_gone_silent_is_made_anew(
    tmp_path: Path, server: SftpServer, holds: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sensorpool.sensors.shared._seconds", 2.0)
    (tmp_path / "in" / "a.csv").touch()
    assert holds("/in/a.csv") is True
    server.fall_silent()
    asked = time.monotonic()
    assert holds("/in/a.csv") is True
    assert server.logins == 2
    assert time.monotonic() - asked < 15


def test_a_large_folder_is_asked_for_in_advance(
    tmp_path: Path, holds: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1_500):
        (tmp_path / "in" / f"{number}.csv").touch()
    under_way: list[int] = []
    read = paramiko.SFTPClient._read_response

    def noting(client: Any, waitfor: Any = None) -> Any:
        under_way.append(len(client._expecting))
        return read(client, waitfor)

    monkeypatch.setattr(paramiko.SFTPClient, "_read_response", noting)
    assert holds("/in/1499.*") is True
    assert holds("/in/1500.*") is False
    assert 8 <= max(under_way) <= 32


def paramikos_threads() -> int:
    return sum(type(thread).__module__.startswith("paramiko.") for thread in threading.enumerate())


def test_connections_that_are_given_up_are_closed(
    tmp_path: Path, server: SftpServer, set_connection: SetConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in" / "a.csv").touch()
    options = {"base_url": server.url, "username": USER, "allow_agent": False, "look_for_keys": False}
    sensor = PathSensor(f"{server.url}/in/a.csv", conn_id="sftp")
    before = paramikos_threads()
    for password in ("swordfish", None):
        set_connection("sftp", json.dumps({**options, "password": password}))
        with pytest.raises(PokeFailed, match=r"AuthenticationException|No authentication methods"):
            sensor.poke({})
    set_connection("sftp", json.dumps({**options, "password": PASSWORD}))
    assert sensor.poke({}) is True
    until("the failed logins have ended", lambda: paramikos_threads() == before + 1)
    monkeypatch.setattr(PathSensor, "_holds", raising(PermissionError("closed folder")))
    for _ in range(3):
        with pytest.raises(PermissionError, match="closed folder"):
            sensor.poke({})
    until("the threads have ended", lambda: paramikos_threads() == before)


def raising(error: Exception) -> Callable[..., bool]:
    def fail(*_: object) -> bool:
        raise error

    return fail


def test_only_known_hosts_may_be_asked_for(
    tmp_path: Path, server: SftpServer, set_connection: SetConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in" / "a.csv").touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    known = tmp_path / ".ssh" / "known_hosts"
    known.parent.mkdir()
    options = {"base_url": server.url, "username": USER, "password": PASSWORD, "host_key_policy": "reject"}
    set_connection("sftp", json.dumps(options))
    sensor = PathSensor(f"{server.url}/in/a.csv", conn_id="sftp")
    with pytest.raises(PokeFailed, match="not found in known_hosts"):
        sensor.poke({})
    known.write_text(f"[127.0.0.1]:{server.url.rpartition(':')[2]} {server.host_key}\n")
    assert sensor.poke({}) is True


def test_a_key_with_a_passphrase(tmp_path: Path, server: SftpServer, set_connection: SetConnection) -> None:
    (tmp_path / "in" / "a.csv").touch()
    key = tmp_path / "key"
    key.write_bytes(server.user_key.export_private_key("openssh", "correct horse", rounds=50))
    options = {"base_url": server.url, "username": USER, "key_filename": str(key), "allow_agent": False}
    sensor = PathSensor(f"{server.url}/in/a.csv", conn_id="sftp")
    for passphrase, said in ((None, "is encrypted"), ("wrong", "AuthenticationException")):
        set_connection("sftp", json.dumps({**options, "passphrase": passphrase, "look_for_keys": False}))
        with pytest.raises(PokeFailed, match=said):
            sensor.poke({})
    set_connection("sftp", json.dumps({**options, "passphrase": "correct horse", "look_for_keys": False}))
    assert sensor.poke({}) is True


def test_a_server_that_hangs_up_at_once_is_an_infrastructure_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = listening.getsockname()
        hangs_up = threading.Thread(target=lambda: listening.accept()[0].close())
        hangs_up.start()
        with pytest.raises(InfraFailure, match=r"SSHException|EOFError|Connection"):
            PathSensor(f"sftp://{USER}@{address[0]}:{address[1]}/a").poke({})
        hangs_up.join()


def test_options_that_are_not_the_clients_are_named(server: SftpServer, set_connection: SetConnection) -> None:
    options: dict[str, Any] = {"base_url": server.url, "username": USER, "password": PASSWORD, "pasword": "x"}
    set_connection("sftp", json.dumps(options))
    with pytest.raises(Exception, match=r"SENSORPOOL_CONN_SFTP: sftp:// refuses its options: .*'pasword'"):
        PathSensor(f"{server.url}/a", conn_id="sftp").poke({})


def test_threads_that_take_turns_share_a_connection(
    tmp_path: Path, server: SftpServer, holds: Callable[..., bool]
) -> None:
    (tmp_path / "in" / "a.csv").touch()
    seen: list[bool] = []
    for _ in range(8):
        thread = threading.Thread(target=lambda: seen.append(holds("/in/a.csv")))
        thread.start()
        thread.join()
    assert seen == [True] * 8
    assert server.logins == 1


def test_a_server_by_its_ipv6_address(tmp_path: Path, set_connection: SetConnection) -> None:
    (tmp_path / "a.csv").touch()
    with SftpServer(tmp_path, host="::1") as server:
        set_connection("six", json.dumps({"base_url": server.url, "username": USER, "password": PASSWORD}))
        assert PathSensor(f"{server.url}/a.csv", conn_id="six").poke({}) is True
        assert PathSensor(f"{server.url}/*.csv", conn_id="six").poke({}) is True


def test_a_key_file_that_is_not_on_this_worker_is_a_wrong_setting(
    server: SftpServer, set_connection: SetConnection
) -> None:
    set_connection("sftp", json.dumps({"base_url": server.url, "username": USER, "key_filename": "/none/id_ed25519"}))
    with pytest.raises(SettingsError, match=r"SENSORPOOL_CONN_SFTP: .* a file, such as a key"):
        PathSensor(f"{server.url}/in/a.csv", conn_id="sftp").poke({})
