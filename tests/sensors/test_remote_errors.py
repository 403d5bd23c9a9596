"""PathSensor: what the errors of each kind of server mean, and to which server a connection goes."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import moto.settings
import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ServiceRequestError
from moto.server import ThreadedMotoServer

from harness.endpoints.file_servers import NameNode
from sensorpool.errors import InfraFailure, SettingsError
from sensorpool.sensors import PathSensor, filesystems
from sensorpool.sensors.connections import PokeFailed
from sensorpool.sensors.failures import as_infra_failure

from .serving import Server

# requests and paramiko leave their sockets to the garbage collector
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

SetConnection = Callable[[str, str], None]


def test_a_name_node_that_stands_by_or_is_busy_is_an_infrastructure_failure(
    tmp_path: Path, set_connection: SetConnection
) -> None:
    standby = "Operation category READ is not supported in state standby. Visit https://s.apache.org/sbnn-error"
    with NameNode(tmp_path) as node:
        set_connection("hdfs", json.dumps({"base_url": node.url, "user": "me", "password": "x"}))
        for refusal in (
            (403, "StandbyException", standby),
            (403, "RetriableException", "NameNode still not started"),
            (503, "IOException", "too many requests"),
        ):
            node.refusal = refusal
            for path in ("/a", "/a/*"):
                with pytest.raises(InfraFailure):
                    PathSensor(f"{node.url}{path}", conn_id="hdfs").poke({})
        node.refusal = (403, "AccessControlException", "Permission denied: user=me, access=EXECUTE")
        with pytest.raises(PermissionError, match=r"webhdfs://127\.0\.0\.1:\d+/a: Permission denied: user=me"):
            PathSensor(f"{node.url}/a", conn_id="hdfs").poke({})


def test_the_errors_of_azures_client() -> None:
    def answered(status: int) -> HttpResponseError:
        return HttpResponseError(
            response=SimpleNamespace(status_code=status, reason="why", headers={}, content_type="")
        )

    for error in (ServiceRequestError("cannot connect"), answered(500), answered(503), answered(429)):
        assert as_infra_failure(error, "why") is not None
    for error in (ClientAuthenticationError("no"), answered(403), answered(400)):
        assert as_infra_failure(error, "why") is None


@pytest.fixture
def s3() -> Iterator[Any]:
    """A client of an S3 (moto's), which has a bucket ``lake``."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    address = "http://{}:{}".format(*server.get_host_and_port())
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=address, **keys)
    client.create_bucket(Bucket="lake")
    yield client
    server.stop()


def put(s3: Any, *keys: str) -> None:
    for key in keys:
        s3.put_object(Bucket="lake", Key=key, Body=b"x")


def options(s3: Any, **more: str) -> str:
    client = {"endpoint_url": s3.meta.endpoint_url, "region_name": "us-east-1"}
    return json.dumps({"client_kwargs": client, **more})


def test_keys_with_double_slashes(s3: Any, set_connection: SetConnection) -> None:
    set_connection("lake", options(s3, key="x", secret="x"))

    def holds(path: str) -> bool:
        return PathSensor(f"s3://lake/{path}", conn_id="lake").poke({})

    put(s3, "a/b/x.csv", "top/x.csv")
    for path in ("/top/x.csv", "a//b/x.csv", "a//b/*.csv", "a//b"):
        assert holds(path) is False, path
    put(s3, "/top/x.csv", "a//b/x.csv")
    for path in ("/top/x.csv", "a//b/x.csv", "a//b/*.csv", "a//b"):
        assert holds(path) is True, path
    for path in ("/top/*.csv", "a//*/x.csv", "a/*//x.csv", "/*.csv"):
        with pytest.raises(ValueError, match="path has // at its pattern"):
            holds(path)


def test_rotated_credentials_are_taken_up(s3: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put(s3, "x.csv")
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
    iam = boto3.client("iam", endpoint_url=s3.meta.endpoint_url, **keys)
    iam.create_user(UserName="pool")
    everything = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    iam.put_user_policy(UserName="pool", PolicyName="all", PolicyDocument=json.dumps(everything))
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SENSORPOOL_CONN_LAKE", options(s3))

    def rotate(*, valid: bool) -> None:
        monkeypatch.setattr(moto.settings, "INITIAL_NO_AUTH_ACTION_COUNT", float("inf"))
        for old in iam.list_access_keys(UserName="pool")["AccessKeyMetadata"]:
            iam.delete_access_key(UserName="pool", AccessKeyId=old["AccessKeyId"])
        key = iam.create_access_key(UserName="pool")["AccessKey"]
        secret = key["SecretAccessKey"] if valid else "hunter2"
        names = {"aws_access_key_id": key["AccessKeyId"], "aws_secret_access_key": secret}
        file.write_text("[default]\n" + "".join(f"{name} = {value}\n" for name, value in names.items()))
        monkeypatch.setattr(moto.settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0)

    sensors = [PathSensor(f"s3://lake/{path}", conn_id="lake") for path in ("x.csv", "*.csv")]
    for _ in range(3):
        rotate(valid=True)
        assert all(sensor.poke({}) for sensor in sensors)
    rotate(valid=False)
    for sensor in sensors:
        with pytest.raises(PermissionError, match=r"s3://lake(/x\.csv)?: "):
            sensor.poke({})


@pytest.mark.parametrize(
    ("url", "own"),
    [
        ("ftp://127.0.0.1:{port}/data/x.csv", {"base_url": "ftp://127.0.0.1:1/"}),
        ("ftp://127.0.0.1:{port}/data/x.csv", {"base_url": "ftp://localhost:{port}/"}),
        ("sftp://127.0.0.1:{port}/data/x.csv", {"base_url": "ssh://127.0.0.1:{port}/"}),
        ("ftp://127.0.0.1:{port}/database/x.csv", {"base_url": "ftp://127.0.0.1:{port}/data"}),
        ("ftp://127.0.0.1:{port}/x.csv", {"base_url": "ftp://127.0.0.1:{port}/data"}),
        ("sftp://me@127.0.0.1:{port}/x.csv", {"base_url": "sftp://me@elsewhere.example"}),
        ("ftp://127.0.0.1:{port}/x.csv", {"host": "elsewhere.example"}),
        ("ftp://127.0.0.1:{port}/x.csv", {"host": "127.0.0.1"}),
        ("sftp://127.0.0.1:{port}/x.csv", {"base_url": "sftp://elsewhere.example"}),
        ("webhdfs://127.0.0.1:{port}/x.csv", {"base_url": "webhdfs://127.0.0.1:1"}),
    ],
)
def test_a_connection_goes_to_no_other_server(
    server: Server, set_connection: SetConnection, url: str, own: dict[str, str]
) -> None:
    own = {name: value.format(port=server.port) for name, value in own.items()}
    set_connection("files", json.dumps({**own, "username": "me", "password": "hunter2"}))
    with pytest.raises(PokeFailed, match=r"is not below .* which SENSORPOOL_CONN_FILES is for"):
        PathSensor(url.format(port=server.port), conn_id="files").poke({})
    set_connection("files", json.dumps({"username": "me", "password": "hunter2"}))
    with pytest.raises(SettingsError, match='SENSORPOOL_CONN_FILES names no server: add a "base_url" like "'):
        PathSensor(url.format(port=server.port), conn_id="files").poke({})
    assert not server.connections


@pytest.mark.parametrize(
    "path",
    [
        *("sftp://h/data/../x", "webhdfs://h/data/%2e%2e/x", "webdav:///../x", "s3://b/../x"),
        *("sftp://h/public/..;/x", "ftp://h/public/%252e%252e/x", "webdav:///public/..%5Cx"),
    ],
)
def test_a_path_does_not_leave_its_base(path: str) -> None:
    with pytest.raises(ValueError, match=r"path has a \.\. in it"):
        PathSensor(path, conn_id="files")


@pytest.mark.parametrize("url", ["ftp://h/x", "ftp://h:2222/x"])
def test_the_port_of_a_connection_is_that_of_a_url_without_one(url: str) -> None:
    filesystems._check_server(url, {"host": "h", "port": 2222}, "SENSORPOOL_CONN_FILES")
    with pytest.raises(PokeFailed, match="is not below"):
        filesystems._check_server("ftp://h:21/x", {"host": "h", "port": 2222}, "SENSORPOOL_CONN_FILES")
