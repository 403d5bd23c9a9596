"""Shared calls against native pokes over generated cases: some of all short names are there, and all are asked for."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.amazon.aws.sensors.s3 import S3KeySensor
from airflow.providers.common.sql.sensors.sql import SqlSensor
from airflow.providers.redis.sensors.redis_key import RedisKeySensor
from airflow.providers.standard.sensors.filesystem import FileSensor
from botocore.client import BaseClient
from sqlalchemy import make_url

from harness.servers import fresh_database
from tests.airflow.test_aws import amazon  # noqa: F401  # a fixture
from tests.airflow.test_shared_calls import SetConnection, agree, asked, calls, fill, keys  # noqa: F401  # fixtures

NAMES = ["".join(letters) for length in (1, 2, 3) for letters in product("a/ü", repeat=length)]
KEYS = [name for name in NAMES if not name.startswith("/")][::2]  # "//a" names a bucket


def test_keys_of_s3(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    fill("raw", *KEYS[::3])
    some = [{"bucket_key": key, "bucket_name": "raw"} for key in KEYS]
    there = agree(S3KeySensor, some)
    assert {*there} == {True, False}
    real = BaseClient._make_api_call
    for page in (1, 2, 5):

        def paged(self: Any, name: str, arguments: Any, page: int = page) -> Any:
            return real(self, name, arguments | ({"MaxKeys": page} if name == "ListObjectsV2" else {}))

        monkeypatch.setattr(BaseClient, "_make_api_call", paged)
        said = asked(S3KeySensor, some)  # a short page may leave a key to its own poke
        assert not [key for key, is_there, may_be in zip(KEYS, there, said, strict=True) if is_there and not may_be]


def test_patterns_of_s3(calls: list[str]) -> None:  # noqa: F811
    fill("raw", *KEYS[::3])
    patterns = ["".join(letters) for length in (1, 2, 3) for letters in product("a*?", repeat=length)]
    some = [
        {"bucket_key": each, "bucket_name": "raw", "wildcard_match": True} for each in [*patterns[::4], "ü/*", "b*"]
    ]
    assert {*agree(S3KeySensor, some)} == {True, False}


def test_keys_of_redis(keys: Any) -> None:  # noqa: F811
    keys.mset(dict.fromkeys(NAMES[::3], 1))
    assert {*agree(RedisKeySensor, [{"key": each, "redis_conn_id": "r"} for each in NAMES])} == {True, False}


def test_files(tmp_path: Path, set_airflow_connection: SetConnection) -> None:
    set_airflow_connection("fs_default", "fs://")
    names = ["".join(letters) for length in (1, 2, 3) for letters in product("aA.ü", repeat=length)]
    names = [name for name in names if name not in {".", ".."}]
    for number, name in enumerate(names[::3]):
        (tmp_path / name).mkdir() if number % 4 == 0 else (tmp_path / name).touch()
    assert {*agree(FileSensor, [{"filepath": f"{tmp_path}/{name}"} for name in names], exact=False)} == {True, False}


def test_statements(postgres_server: Any, set_airflow_connection: SetConnection) -> None:
    cells = [
        "0",
        "1",
        "-0.0",
        "'0'",
        "''",
        "' '",
        "'f'",
        "NULL",
        "false",
        "true",
        "now()",
        "ARRAY[]::int[]",
        "'{}'::json",
    ]
    forms: list[Callable[[str], str]] = [
        lambda cell: f"SELECT {cell}",
        lambda cell: f"SELECT {cell} WHERE false",
        lambda cell: f"SELECT 1, {cell}",
        lambda cell: f"SELECT {cell}, 1 UNION ALL SELECT NULL, 0",
        lambda cell: f"(SELECT max(v) FROM (SELECT {cell} AS v) AS t WHERE v IS NULL)",
    ]
    with fresh_database(postgres_server) as url:
        set_airflow_connection("warehouse", make_url(url).set(drivername="postgres").render_as_string(False))
        sensible = [form(cell) for form in forms for cell in cells if "max(" not in form("") or cell in cells[:3]]
        found = agree(SqlSensor, [{"conn_id": "warehouse", "sql": each} for each in sensible])
        assert {*found} == {True, False}
