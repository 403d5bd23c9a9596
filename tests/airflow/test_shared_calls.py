"""Shared calls of Airflow's sensors, each against the native poke on a real or faithful backend.

A shared call may say perhaps to anything; what it says no to, the native poke must not find.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import boto3
import pytest
from airflow.providers.amazon.aws.sensors.s3 import S3KeySensor
from airflow.providers.common.sql.sensors.sql import SqlSensor
from airflow.providers.redis.hooks.redis import RedisHook
from airflow.providers.redis.sensors.redis_key import RedisKeySensor
from airflow.providers.standard.sensors.filesystem import FileSensor
from botocore.client import BaseClient
from sqlalchemy import create_engine, make_url, text

from harness.servers import fresh_database
from sensorpool.airflow.pool.adapters.sensor import adapt
from sensorpool.airflow.pool.shared_calls import files, redis_keys, s3, sql
from tests.airflow.running import in_dag
from tests.airflow.test_aws import amazon  # noqa: F401  # a fixture
from tests.airflow.test_pool_adapters import in_the_pool

SetConnection = Callable[[str, str], None]
CALLS: dict[Any, Callable[[Any, Any], Any]] = {
    FileSensor: files.shared_call,
    RedisKeySensor: redis_keys.shared_call,
    S3KeySensor: s3.shared_call,
    SqlSensor: sql.shared_call,
}


def context_of(cls: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a sensor's context as it is registered."""
    context: dict[str, Any] = in_the_pool(in_dag(cls, **arguments))._arguments
    return json.loads(json.dumps(context))  # type: ignore[no-any-return]


def asked(cls: Any, of_all: Sequence[Mapping[str, Any]]) -> list[bool | None]:
    """Return the shared call's answers; None: the sensor is poked by itself."""
    found = adapt(cls)
    call = CALLS[cls](cls, found)
    questions = [call.question(context_of(cls, arguments)) for arguments in of_all]
    answers: list[bool | None] = [None] * len(of_all)
    for kin in {question.kin for question in questions if question is not None}:
        places = [place for place, question in enumerate(questions) if question is not None and question.kin == kin]
        for place, answer in zip(places, call.ask(kin, [questions[place].asked for place in places]), strict=True):
            answers[place] = answer
    return answers


def natively(cls: Any, arguments: Mapping[str, Any]) -> bool:
    """Poke a sensor as a worker does."""
    return bool(in_dag(cls, **arguments).poke({}))


def agree(cls: Any, of_all: Sequence[Mapping[str, Any]], *, exact: bool = True) -> list[bool | None]:
    """Hold the shared call against the native poke of each sensor; return the answers."""
    answers = asked(cls, of_all)
    native = [natively(cls, arguments) for arguments in of_all]
    assert not [of_all[place] for place, there in enumerate(native) if there and answers[place] is False]
    if exact:
        assert [answer for answer in answers if answer is not None] == [
            there for there, answer in zip(native, answers, strict=True) if answer is not None
        ]
    return answers


def test_files(tmp_path: Path, set_airflow_connection: SetConnection) -> None:
    set_airflow_connection("fs_default", "fs://")
    set_airflow_connection("below", json.dumps({"conn_type": "fs", "extra": {"path": str(tmp_path)}}))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "folder").mkdir()
    for number in range(5):
        (tmp_path / "in" / f"file{number}").touch()
    names = [*(f"file{number}" for number in range(12)), "FILE1"]
    whole = [{"filepath": f"{tmp_path}/in/{name}"} for name in names]
    below = [{"filepath": f"in/{name}", "fs_conn_id": "below"} for name in names]
    for some in (whole, below):
        answers = agree(FileSensor, some, exact=False)
        assert answers == [name.lower() in {f"file{n}" for n in range(5)} for name in names]
    assert asked(FileSensor, [{"filepath": f"{tmp_path}/in/*"}, {"filepath": f"{tmp_path}/in/"}]) == [None, None]
    assert agree(FileSensor, [{"filepath": f"{tmp_path}/nowhere/{n}"} for n in range(9)]) == [False] * 9
    assert agree(FileSensor, [{"filepath": f"bare{n}", "fs_conn_id": "below"} for n in range(9)]) == [False] * 9


@pytest.fixture
def calls(amazon: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:  # noqa: F811
    """The calls to Amazon."""
    made: list[str] = []
    real = BaseClient._make_api_call

    def counted(self: Any, name: str, arguments: Any) -> Any:
        made.append(name)
        return real(self, name, arguments)

    monkeypatch.setattr(BaseClient, "_make_api_call", counted)
    return made


def fill(bucket: str, *keys: str) -> None:
    """Put keys into a new bucket."""
    client = boto3.client("s3")
    client.create_bucket(Bucket=bucket)
    for key in keys:
        client.put_object(Bucket=bucket, Key=key)


def test_keys_of_a_folder_are_one_listing(calls: list[str]) -> None:
    fill("raw", *(f"in/{n:04}" for n in range(0, 40, 3)), "in/zz", "other/x", "in/0007.more", "in/ü")
    some = [{"bucket_key": f"s3://raw/in/{n:04}"} for n in range(40)]
    some += [
        {"bucket_key": f"in/{name}", "bucket_name": "raw"} for name in ("zz", "zzz", "0007", "0007.more", "ü", "ö")
    ]
    del calls[:]
    answers = asked(S3KeySensor, some)
    assert calls == ["ListObjectsV2"]
    assert answers.count(False) == 26 + 3
    assert agree(S3KeySensor, some) == answers


def test_a_listing_goes_on_where_the_next_key_is(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """There are never more calls than keys, however much lies between them."""
    fill("raw", *(f"in/{n:04}" for n in range(200)))
    real = BaseClient._make_api_call

    def short(self: Any, name: str, arguments: Any) -> Any:
        return real(self, name, arguments | {"MaxKeys": 10} if name == "ListObjectsV2" else arguments)

    monkeypatch.setattr(BaseClient, "_make_api_call", short)
    some = [{"bucket_key": f"s3://raw/in/{n:04}"} for n in (3, 5, 55, 150, 151, 199)]
    some += [{"bucket_key": f"s3://raw/in/{n:04}.not"} for n in (4, 60, 198)]
    del calls[:]
    answers = asked(S3KeySensor, some)
    assert answers == [True] * 6 + [False] * 3
    assert len(calls) <= len(some)
    assert agree(S3KeySensor, some) == answers


def test_lists_of_keys_and_patterns(calls: list[str]) -> None:
    fill("raw", "in/a1", "in/a2", "in/b1", "deep/in/a1", "in/[x]")
    some: list[dict[str, Any]] = [
        {"bucket_key": ["s3://raw/in/a1", "s3://raw/in/a2"]},
        {"bucket_key": ["s3://raw/in/a1", "s3://raw/in/a3"]},
        {"bucket_key": ["s3://raw/in/a1", "s3://raw/deep/in/a1"]},
        {"bucket_key": "s3://raw/in/a*", "wildcard_match": True},
        {"bucket_key": "s3://raw/in/a[34]", "wildcard_match": True},
        {"bucket_key": "s3://raw/in/a?3", "wildcard_match": True},
        {"bucket_key": "s3://raw/in/[x]"},
        {"bucket_key": "s3://raw/in/", "wildcard_match": True},
    ]
    answers = agree(S3KeySensor, some)
    assert None not in answers
    assert answers[:6] == [True, False, True, True, False, False]


@pytest.mark.parametrize(
    "arguments",
    [
        {"bucket_key": ["s3://raw/a", "s3://cooked/a"]},
        {"bucket_key": ["s3://raw/a*", "s3://raw/b*"], "wildcard_match": True},
        {"bucket_key": "s3://raw/a", "metadata_keys": ["Size"]},
        {"bucket_key": "s3://raw/a.*", "use_regex": True},
        {"bucket_key": "s3://raw--use1-az4--x-s3/a"},
    ],
    ids=str,
)
def test_what_one_listing_cannot_answer_is_poked_by_itself(calls: list[str], arguments: dict[str, Any]) -> None:
    fill("raw")
    assert asked(S3KeySensor, [arguments, arguments]) == [None, None]


class Crowded:
    """A client of a bucket that holds more than a page before what is asked for."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names, self.calls = sorted(names), 0

    def list_objects_v2(self, **asked: str) -> dict[str, Any]:
        """Answer with a page, as Amazon does."""
        self.calls += 1
        after = asked.get("StartAfter", "")
        found = [name for name in self.names if name.startswith(asked["Prefix"]) and name > after]
        return {"Contents": [{"Key": name} for name in found[:1_000]], "IsTruncated": len(found) > 1_000}


def test_a_crowded_folder_before_the_keys_costs_no_more_calls_than_keys() -> None:
    client = Crowded([f"out/2026-01-01/{n:05}" for n in range(1_500)] + ["out/2026-01-03"])
    keys = ["out/2026-01-02", "out/2026-01-03"]
    assert "out/2026-01-03" in s3._there(client, "b", keys)
    assert client.calls <= len(keys)


def test_in_a_bucket_that_is_not_there_is_no_key(calls: list[str]) -> None:
    assert agree(S3KeySensor, [{"bucket_key": f"s3://gone/{n}"} for n in range(2)]) == [False, False]
    with pytest.raises(Exception, match="NoSuchBucket"):
        asked(S3KeySensor, [{"bucket_key": f"s3://gone/{n}*", "wildcard_match": True} for n in range(2)])


@pytest.fixture
def keys(redis_url: str, set_airflow_connection: SetConnection) -> Iterator[Any]:
    """A Redis, and its Connection `r`."""
    set_airflow_connection("r", redis_url.partition("/?")[0])
    client = RedisHook("r").get_conn()
    yield client
    client.flushdb()


def test_keys_of_a_redis(keys: Any) -> None:
    keys.set("there", 1)
    keys.hset("hash", "a", 1)
    some = [{"key": key, "redis_conn_id": "r"} for key in ("there", "hash", "not", "", "ü")]
    assert agree(RedisKeySensor, some) == [True, True, False, False, False]


def test_statements_of_a_database(postgres_server: Any, set_airflow_connection: SetConnection) -> None:
    with fresh_database(postgres_server) as url:
        set_airflow_connection("warehouse", make_url(url).set(drivername="postgres").render_as_string(False))
        engine = create_engine(url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(
                text("CREATE TABLE t (n int, s text); INSERT INTO t VALUES (1, 'x'), (2, '0'), (3, NULL)")
            )
            connection.execute(
                text("CREATE FUNCTION eat() RETURNS int LANGUAGE sql AS 'DELETE FROM t WHERE n = 1 RETURNING n'")
            )
        statements: list[tuple[str, Any]] = [
            ("SELECT count(*) FROM t WHERE n = %(n)s", {"n": 1}),
            ("SELECT count(*) FROM t WHERE n = %(n)s", {"n": 9}),
            ("SELECT s FROM t WHERE n = 2", None),
            ("SELECT s FROM t WHERE n = 3", None),
            ("SELECT n FROM t WHERE n > 5", None),
            ("  (select 1)", None),
            ("SELECT NULL::int", None),
            ("SELECT '0'", None),
            ("SELECT ''", None),
        ]
        some = [{"conn_id": "warehouse", "sql": sql, "parameters": given} for sql, given in statements]
        answers = agree(SqlSensor, some)
        assert None not in answers
        fails = {"conn_id": "warehouse", "sql": "SELECT no_such_column FROM t"}
        assert asked(SqlSensor, [fails, some[0], some[1]]) == [True, True, False]
        eats = {"conn_id": "warehouse", "sql": "SELECT eat()"}
        assert asked(SqlSensor, [eats, eats]) == [True, True]
        assert natively(SqlSensor, eats), "the shared call has eaten nothing"
        assert not natively(SqlSensor, eats)
        alone = [{"sql": "DELETE FROM t RETURNING 1"}, {"sql": "SELECT 1", "fail_on_empty": True}]
        assert asked(SqlSensor, [{"conn_id": "warehouse", **each} for each in alone]) == [None, None]
        engine.dispose()


def test_a_class_that_is_derived_from_one_has_no_shared_call() -> None:
    class Own(FileSensor):
        pass

    assert files.shared_call(Own, adapt(Own)) is None
