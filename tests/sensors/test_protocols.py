"""PathSensor on a server of each protocol that the docs name: real servers, or the best emulators there are."""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import fsspec
import pytest
from fsspec.registry import _registry as implementations
from gcsfs.core import GCSFileSystem
from moto.server import ThreadedMotoServer

from harness.endpoints.cloud_storage import StorageEndpoint
from harness.endpoints.file_servers import PASSWORD, USER, FileServer, FtpServer, NameNode, SftpServer, WebdavServer
from sensorpool.errors import InfraFailure
from sensorpool.sensors import PathSensor
from sensorpool.sensors.connections import PokeFailed

# requests and paramiko leave their sockets to the garbage collector
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

SetConnection = Callable[[str, str], None]
FILES = {"top.csv": 7200, "in/data 1.csv": 7200, "in/deep/é.csv": 60}  # seconds since the last change
WRONG = "swordfish"
S3_KEYS = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}


@dataclass
class Place:
    """Where the files are, and the options of a connection. ``stop`` ends the server."""

    url: str
    options: Mapping[str, Any]
    stop: Callable[[], None] = lambda: None


class Makers:
    """Make a place for each protocol."""

    def __init__(self, folder: Path, running: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.running, self.monkeypatch = folder, running, monkeypatch

    def file(self) -> Place:
        return Place(f"file://{self.folder}", {})

    def local(self) -> Place:
        return Place(f"local://{self.folder}", {})

    def memory(self) -> Place:
        files = fsspec.filesystem("memory")
        self.running.callback(files.store.clear)
        for name, age in FILES.items():
            files.pipe(f"/files/{name}", b"x" * 10)
            files.store[f"/files/{name}"].modified = datetime.fromtimestamp(time.time() - age, UTC)
        return Place("memory://files", {})

    def sftp(self, protocol: str = "sftp") -> Place:
        server = self.running.enter_context(SftpServer(self.folder))
        server.url = server.url.replace("sftp:", f"{protocol}:")
        return self._with_password(server)

    def ssh(self) -> Place:
        return self.sftp("ssh")

    def ftp(self) -> Place:
        return self._with_password(self.running.enter_context(FtpServer(self.folder)))

    def webdav(self) -> Place:
        server = self.running.enter_context(WebdavServer(self.folder))
        return Place("webdav://", {"base_url": server.url, "auth": [USER, PASSWORD]}, server.close)

    def webhdfs(self) -> Place:
        server = self.running.enter_context(NameNode(self.folder))
        return Place(server.url, {"base_url": server.url, "user": USER, "password": PASSWORD}, server.close)

    def s3(self) -> Place:
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        self.running.callback(server.stop)
        address = "http://{}:{}".format(*server.get_host_and_port())
        client = {"endpoint_url": address, "region_name": "us-east-1"}
        boto = boto3.client("s3", **S3_KEYS, **client)
        boto.create_bucket(Bucket="bucket")
        for name in FILES:
            boto.put_object(Bucket="bucket", Key=name, Body=b"x" * 10)
        options = {
            "key": "x",
            "secret": "x",
            "client_kwargs": client,
            "config_kwargs": {"retries": {"max_attempts": 1}},
        }
        return Place("s3://bucket", options, server.stop)

    def gs(self) -> Place:
        # the class that gcsfs exports asks Google about the bucket by gRPC, which the emulator does not speak
        self.monkeypatch.setitem(implementations, "gs", GCSFileSystem)
        endpoint = self.running.enter_context(StorageEndpoint())
        endpoint.objects["bucket"] = set(FILES)
        return Place("gs://bucket", {"endpoint_url": endpoint.address, "token": "anon"})

    def _with_password(self, server: FileServer) -> Place:
        return Place(server.url, {"base_url": server.url, "username": USER, "password": PASSWORD}, server.close)


@pytest.fixture
def running() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


WITH_PASSWORD = ["sftp", "ssh", "ftp", "webdav", "webhdfs"]
WITH_SERVER = [*WITH_PASSWORD, "s3"]
WITH_AGES = ["file", "local", "memory", "sftp", "ssh", "ftp", "webdav", "webhdfs"]


@pytest.fixture(params=["file", "local", "memory", *WITH_SERVER, "gs"])
def place(request: pytest.FixtureRequest, tmp_path: Path, running: ExitStack, monkeypatch: pytest.MonkeyPatch) -> Place:
    folder = tmp_path / "files"
    for name, age in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x" * 10)
        os.utime(folder / name, (time.time() - age,) * 2)
    made: Place = getattr(Makers(folder, running, monkeypatch), request.param)()
    return made


@pytest.fixture
def holds(place: Place, set_connection: SetConnection) -> Callable[..., bool]:
    conn_id = "files" if place.options else None
    set_connection("files", json.dumps(place.options))
    return lambda path, **wanted: PathSensor(f"{place.url}{path}", conn_id=conn_id, **wanted).poke({})


def test_files_folders_and_patterns(place: Place, holds: Callable[..., bool]) -> None:
    names = ["/in/data%201.csv"] if place.url.startswith("file:") else ["/in/data 1.csv"]
    for path in (*names, "/top.csv", "/in", "/in/", "/*.csv", "/in/*.csv", "/*/deep/*.csv", "/**/*1.csv"):
        assert holds(path), path
    for path in ("/none.csv", "/none/x.csv", "/top.csv/x", "/*.zip", "/in/*.zip", "/none/*", "/top.csv/*"):
        assert not holds(path), path
    for path in ("", "/"):  # of a bucket or server
        if not place.url.startswith("webdav:"):
            assert holds(path), path


@pytest.mark.parametrize("place", ["sftp", "ftp", "webdav", "webhdfs", "s3"], indirect=True)
def test_names_are_written_as_they_are(
    place: Place, holds: Callable[..., bool], tmp_path: Path, set_connection: SetConnection
) -> None:
    for name in ("a#b+c=d é%20.csv", "e\u0301.csv"):
        path = f"/Shared Documents/{name}"
        assert not holds(path)
        assert not holds("/Shared Documents/[ae]*.csv")
        if place.url.startswith("s3:"):
            client = boto3.client("s3", **S3_KEYS, **place.options["client_kwargs"])
            client.put_object(Bucket="bucket", Key=path[1:], Body=b"x")
        else:
            (tmp_path / "files" / path[1:]).parent.mkdir(exist_ok=True)
            (tmp_path / "files" / path[1:]).touch()
        for there in (path, "/Shared Documents/[ae]*.csv", "/Shared Documents", "/*/[ae]*.csv"):
            assert holds(there), there
        if place.url.startswith("s3:"):
            client.delete_object(Bucket="bucket", Key=path[1:])
        else:
            (tmp_path / "files" / path[1:]).unlink()


@pytest.mark.parametrize("place", WITH_AGES, indirect=True)
def test_age_and_size(holds: Callable[..., bool]) -> None:
    for path in ("/top.csv", "/*.csv", "/in"):
        assert holds(path, min_size=10, min_age=3600)
        assert not holds(path, min_size=11)
        assert not holds(path, min_age=10_000)
    assert holds("/in", unchanged_for=30)
    assert not holds("/in", unchanged_for=3600)
    assert not holds("/none", unchanged_for=30)


@pytest.mark.parametrize("place", WITH_PASSWORD, indirect=True)
def test_a_wrong_password_is_an_error_at_once(place: Place, set_connection: SetConnection) -> None:
    set_connection("files", json.dumps(place.options).replace(PASSWORD, WRONG))
    for path in ("/top.csv", "/in/*.csv"):
        with pytest.raises((PokeFailed, PermissionError)) as caught:
            PathSensor(f"{place.url}{path}", conn_id="files").poke({})
        assert WRONG not in str(caught.value)


@pytest.mark.parametrize("place", WITH_SERVER, indirect=True)
def test_a_server_that_is_gone_is_an_infrastructure_failure(place: Place, holds: Callable[..., bool]) -> None:
    assert holds("/top.csv")
    place.stop()
    for path in ("/top.csv", "/in/*.csv"):
        with pytest.raises(InfraFailure):
            holds(path)
