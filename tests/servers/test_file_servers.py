"""PathSensor on file servers that people run: OpenSSH, vsftpd, and Microsoft's emulator of Azure's blobs."""

import base64
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from azure.storage.blob import BlobServiceClient

from harness.servers import Missing
from harness.servers.files import AzuriteServer, OpenSshServer, VsftpdServer
from sensorpool.errors import InfraFailure
from sensorpool.sensors import PathSensor
from sensorpool.sensors.connections import PokeFailed
from tests.servers.conftest import lacking

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


@pytest.fixture
def running() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_files_by_openssh(running: ExitStack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    try:
        server = running.enter_context(OpenSshServer())
    except Missing as missing:
        lacking(missing)
    monkeypatch.setenv("SENSORPOOL_CONN_FILES", json.dumps(server.options))

    def holds(path: str, **wanted: float) -> bool:
        return PathSensor(f"{server.url}{server.files}{path}", conn_id="files", **wanted).poke({})

    for path in ("", "/a#b.csv", "/*.csv", "/**/*.csv"):
        assert holds(path) is False, path
    os.mkfifo(server.files / "pipe.csv")
    (server.files / "itself.csv").symlink_to("itself.csv")
    with open(os.fsencode(server.files) + b"/latin \xe9.txt", "wb"):
        pass
    assert holds("/*.csv") is False
    (server.files / "a#b.csv").write_text("12345")
    for path in ("", "/a#b.csv", "/*.csv", "/**/*.csv"):
        assert holds(path) is True, path
    assert holds("/*.csv", min_size=5, min_age=0.001, unchanged_for=0.001) is True
    assert holds("", unchanged_for=600) is False
    other = {
        **server.options,
        "key_filename": None,
        "password": "hunter2",
        "allow_agent": False,
        "look_for_keys": False,
    }
    monkeypatch.setenv("SENSORPOOL_CONN_FILES", json.dumps(other))
    with pytest.raises(PokeFailed, match="BadAuthenticationType"):
        holds("/a#b.csv")
    monkeypatch.setenv("SENSORPOOL_CONN_FILES", json.dumps(server.options))
    assert holds("/a#b.csv") is True
    server.kill()
    with pytest.raises(InfraFailure):
        holds("/a#b.csv")


@pytest.mark.parametrize(
    ("settings", "options"),
    [({}, {}), ({"tls": True}, {"tls": True}), ({"tls": True, "implicit": True}, {"tls": "tls"})],
    ids=["plain", "explicit TLS", "implicit TLS"],
)
def test_files_by_vsftpd(
    running: ExitStack, monkeypatch: pytest.MonkeyPatch, settings: dict[str, bool], options: dict[str, object]
) -> None:
    try:
        server = running.enter_context(VsftpdServer(**settings))
    except Missing as missing:
        lacking(missing)
    monkeypatch.setenv("SENSORPOOL_CONN_FILES", json.dumps({"base_url": server.url, **options}))

    def holds(path: str, **wanted: float) -> bool:
        return PathSensor(f"{server.url}{server.files}{path}", conn_id="files", **wanted).poke({})

    with open(os.fsencode(server.files) + b"/latin \xe9.txt", "wb"):
        pass
    for path in ("/é.csv", "/*.csv", "/**/*.csv"):
        assert holds(path) is False, path
    (server.files / "é.csv").write_text("12345")
    for path in ("", "/é.csv", "/*.csv", "/**/*.csv", "/*.txt"):
        assert holds(path) is True, path
    assert holds("/*.csv", min_size=5, min_age=0.001) is True
    assert holds("", unchanged_for=600) is False
    server.kill()
    with pytest.raises(InfraFailure):
        holds("/é.csv")


def test_blobs_by_azurite(running: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        server = running.enter_context(AzuriteServer())
    except Missing as missing:
        lacking(missing)
    with BlobServiceClient.from_connection_string(server.url) as client:
        client.create_container("lake")
        container = client.get_container_client("lake")
        for name in ("top.csv", "in/a#b é.csv", "a//b/x.csv"):
            container.upload_blob(name, b"12345")
        container.close()

    def holds(path: str, **wanted: float) -> bool:
        return PathSensor(f"abfs://lake/{path}", conn_id="azure", **wanted).poke({})

    monkeypatch.setenv("SENSORPOOL_CONN_AZURE", json.dumps({"connection_string": server.url}))
    for path in ("top.csv", "in/a#b é.csv", "in", "*.csv", "in/*.csv", "**/*é.csv", "a//b/x.csv", "a//b/*.csv", ""):
        assert holds(path) is True, path
    for path in ("none", "in/*.zip", "a/b/x.csv", "a/*/x.csv"):
        assert holds(path) is False, path
    assert holds("*.csv", min_size=5, min_age=0.001) is True
    assert holds("in", unchanged_for=600) is False
    wrong = server.connection_string(base64.b64encode(b"hunter2" * 8).decode())
    monkeypatch.setenv("SENSORPOOL_CONN_AZURE", json.dumps({"connection_string": wrong}))
    for path in ("top.csv", "*.csv"):
        with pytest.raises((PokeFailed, PermissionError), match="authenticate"):
            holds(path)
