"""Airflow's sensors as the pool pokes them: built from JSON, on the real thing."""

import contextlib
import copy
import datetime as dt
import importlib
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

pytest.importorskip("airflow.providers.amazon")

import redis
from airflow.providers.amazon.aws.sensors.s3 import S3KeySensor
from airflow.providers.apache.hive.sensors.hive_partition import HivePartitionSensor
from airflow.providers.apache.hive.sensors.metastore_partition import MetastorePartitionSensor
from airflow.providers.apache.hive.sensors.named_hive_partition import NamedHivePartitionSensor
from airflow.providers.common.sql.sensors.sql import SqlSensor
from airflow.providers.ftp.sensors.ftp import FTPSensor
from airflow.providers.http.sensors.http import HttpSensor
from airflow.providers.redis.sensors.redis_key import RedisKeySensor
from airflow.providers.standard.sensors.date_time import DateTimeSensor
from airflow.providers.standard.sensors.filesystem import FileSensor
from airflow.providers.standard.sensors.time import TimeSensor
from airflow.providers.standard.sensors.time_delta import TimeDeltaSensor
from airflow.sdk import DAG, timezone
from sqlalchemy import create_engine, make_url, text

from harness.endpoints.file_servers import PASSWORD, USER, FtpServer
from harness.endpoints.hive_metastore import MetastoreEndpoint
from harness.servers import fresh_database
from sensorpool import Settings
from sensorpool.airflow.compat.exceptions import (
    AirflowRescheduleException,
    AirflowTaskTerminated,
    DownstreamTasksSkipped,
)
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.result import Landing
from sensorpool.airflow.task.poolable import condition_of
from sensorpool.errors import HandBack
from sensorpool.poke.classes import Classes
from tests.airflow.metastore_schema import MetastoreSchema
from tests.airflow.running import Flag, context_of, in_dag
from tests.sensors.serving import Server, answer

SetConnection = Callable[[str, str], None]


def in_the_pool(sensor: Any, **context: Any) -> Any:
    """Return what the pool pokes for a sensor: through JSON, by the pool's own code."""
    path = f"{type(sensor).__module__}.{type(sensor).__qualname__}"
    settings = Settings.load(sensors_enabled=path)
    condition = condition_of(sensor, context_of(sensor, **context), settings, AirflowSettings())
    poke_context = json.loads(json.dumps(condition.poke_context))
    return Classes([path]).find(path).construct(poke_context)


def test_file(tmp_path: Path, set_airflow_connection: SetConnection) -> None:
    set_airflow_connection("fs_default", "fs://")
    pooled = in_the_pool(in_dag(FileSensor, filepath=str(tmp_path / "arrived")))
    assert not pooled.poke({})
    (tmp_path / "arrived").touch()
    assert pooled.poke({})


def test_sql(postgres_server: Any, set_airflow_connection: SetConnection) -> None:
    with fresh_database(postgres_server) as url:
        set_airflow_connection("warehouse", make_url(url).set(drivername="postgres").render_as_string(False))
        engine = create_engine(url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text("CREATE TABLE arrivals (day date)"))
        pooled = in_the_pool(
            in_dag(
                SqlSensor,
                conn_id="warehouse",
                sql="SELECT count(*) FROM arrivals WHERE day = %(day)s",
                parameters={"day": dt.date(2026, 11, 2)},
            )
        )
        assert not pooled.poke({})
        with engine.connect() as connection:
            connection.execute(text("INSERT INTO arrivals VALUES ('2026-11-02')"))
        engine.dispose()
        assert pooled.poke({})


def test_http(set_airflow_connection: SetConnection) -> None:
    server = Server()
    set_airflow_connection("http_default", server.url)
    pooled = in_the_pool(in_dag(HttpSensor, endpoint="done", request_params={"day": "1"}))
    assert not pooled.poke({})
    server.at["/done?day=1"] = answer(200)
    assert pooled.poke({})
    server.close()


def test_s3_key() -> None:
    pooled = in_the_pool(in_dag(S3KeySensor, bucket_key=["s3://lake/day=1/_SUCCESS"], aws_conn_id="lake"))
    assert pooled._operator.bucket_key == ["s3://lake/day=1/_SUCCESS"]
    assert pooled._operator.aws_conn_id == "lake"


def test_ftp(tmp_path: Path, set_airflow_connection: SetConnection) -> None:
    with FtpServer(tmp_path) as server:
        set_airflow_connection("ftp_default", server.url.replace("//", f"//{USER}:{PASSWORD}@"))
        pooled = in_the_pool(in_dag(FTPSensor, path="/arrived"))
        assert not pooled.poke({})
        (tmp_path / "arrived").touch()
        assert pooled.poke({})


def test_redis_key(redis_url: str, set_airflow_connection: SetConnection) -> None:
    server, _, number = redis_url.rpartition("/")
    set_airflow_connection("redis_default", f"{server}?db={number}")
    pooled = in_the_pool(in_dag(RedisKeySensor, key="arrived", redis_conn_id="redis_default"))
    assert not pooled.poke({})
    with redis.Redis.from_url(redis_url) as client:
        client.set("arrived", "1")
    assert pooled.poke({})


@pytest.fixture
def moments() -> tuple[dt.datetime, dt.datetime]:
    now = timezone.utcnow()
    return now - dt.timedelta(hours=1), now + dt.timedelta(hours=1)


def test_date_time(moments: tuple[dt.datetime, dt.datetime]) -> None:
    past, future = moments
    assert in_the_pool(in_dag(DateTimeSensor, target_time=past.isoformat())).poke({})
    assert not in_the_pool(in_dag(DateTimeSensor, target_time=future)).poke({})


def test_time_is_that_of_the_day_on_which_the_task_was_parsed() -> None:
    assert in_the_pool(in_dag(TimeSensor, target_time=dt.time(0, 0, 0, 1))).poke({})
    assert not in_the_pool(in_dag(TimeSensor, target_time=dt.time(23, 59, 59, 999_999))).poke({})
    start = dt.datetime(2026, 1, 1, tzinfo=ZoneInfo("Asia/Tokyo"))
    with DAG("tokyo", schedule=None, start_date=start):
        sensor = TimeSensor(task_id="wait", target_time=dt.time(12))
    settings = Settings.load(sensors_enabled="airflow.providers.standard.sensors.time.TimeSensor")
    condition = condition_of(sensor, context_of(sensor), settings, AirflowSettings())
    assert condition.poke_context["target_time"].endswith("T03:00:00+00:00")


def test_time_delta(moments: tuple[dt.datetime, dt.datetime]) -> None:
    past, future = moments
    sensor = in_dag(TimeDeltaSensor, delta=dt.timedelta(minutes=30))
    assert in_the_pool(sensor, data_interval_end=past).poke({})
    assert not in_the_pool(sensor, data_interval_end=future).poke({})


def test_named_hive_partitions(set_airflow_connection: SetConnection) -> None:
    with MetastoreEndpoint() as endpoint:
        set_airflow_connection("metastore_default", f"hive-metastore://{endpoint.host}:{endpoint.port}")
        names = ["sales.orders/ds=2026-01-01", "sales.orders/ds=2026-01-02"]
        pooled = in_the_pool(in_dag(NamedHivePartitionSensor, partition_names=names))
        assert not pooled.poke({})
        endpoint.add("sales", "orders", "ds=2026-01-01")
        assert not pooled.poke({})
        endpoint.add("sales", "orders", "ds=2026-01-02")
        assert pooled.poke({})


def test_hive_partition(set_airflow_connection: SetConnection) -> None:
    with MetastoreEndpoint() as endpoint:
        set_airflow_connection("metastore_default", f"hive-metastore://{endpoint.host}:{endpoint.port}")
        endpoint.add("sales", "orders", "ds=2026-01-01")
        pooled = in_the_pool(in_dag(HivePartitionSensor, table="sales.orders", partition="ds='2026-01-02'"))
        assert not pooled.poke({})
        endpoint.add("sales", "orders", "ds=2026-01-02")
        assert pooled.poke({})


def test_metastore_partition(postgres_server: Any, set_airflow_connection: SetConnection) -> None:
    with fresh_database(postgres_server) as url:
        set_airflow_connection("metastore_mysql", make_url(url).set(drivername="postgres").render_as_string(False))
        schema = MetastoreSchema(url)
        pooled = in_the_pool(
            in_dag(MetastorePartitionSensor, table="orders", schema="sales", partition_name="ds=2026-01-01")
        )
        assert not pooled.poke({})
        schema.add("sales", "orders", "ds=2026-01-01")
        assert pooled.poke({})


def test_a_poke_that_reads_the_template_context_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Flag,
        "answers",
        {
            "item": lambda _, context: context["ti"],
            "get": lambda _, context: context.get("ds"),
            "in": lambda _, context: "ds" in context,
            "all": lambda _, context: dict(**context),
            "whether": lambda _, context: bool(context),
            "copy": lambda _, context: context.copy(),
            "with": lambda _, context: context | {"x": 1},
            "pop": lambda _, context: context.pop("ds", None),
            "set": lambda _, context: context.update(x=1),
            "makes do without": lambda _, context: makes_do_without(context),
            "catches all": lambda _, context: catches_all(lambda: context["ti"]),
            "catches all in a thread": lambda _, context: in_a_thread(lambda: catches_all(lambda: context["ti"])),
            "raises another": lambda _, context: catches_all(lambda: context["ti"]) or {}["x"],
        },
    )
    for flag in Flag.answers:
        with pytest.raises(HandBack, match="template context"):
            in_the_pool(in_dag(Flag, flag=flag)).poke({})


class Frame:
    """A result of which it cannot be said whether it is true."""

    def __bool__(self) -> bool:
        raise ValueError("ambiguous")


def test_a_result_that_is_neither_true_nor_false_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flag, "answers", {"x": Frame(), "y": [0], "z": ""})
    with pytest.raises(HandBack, match="neither true nor false"):
        in_the_pool(in_dag(Flag, flag="x")).poke({})
    assert in_the_pool(in_dag(Flag, flag="y")).poke({}) == [0]
    assert in_the_pool(in_dag(Flag, flag="z")).poke({}) == ""


def makes_do_without(context: Any) -> bool:
    try:
        return bool(context["ti"])
    except Exception:
        return False


def sets_and_takes_back() -> bool:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROFILE_OF_POKE", "a")
    return False


@pytest.mark.parametrize(
    "change",
    [
        lambda: os.environ.update(PROFILE_OF_POKE="a"),
        lambda: os.putenv("PROFILE_OF_POKE", "a"),
        lambda: os.environ.pop("PATH"),
        lambda: os.chdir("/"),
        lambda: contextlib.chdir("/").__enter__(),
        sets_and_takes_back,
    ],
    ids=["environ", "putenv", "pop", "chdir", "contextlib", "taken back"],
)
@pytest.mark.parametrize("caught", [False, True])
def test_a_poke_that_changes_its_process_goes_back_before_it_does(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[], Any], caught: bool
) -> None:
    """Others share that process."""
    before = dict(os.environ), os.getcwd()
    poke = (lambda *_: catches_all(change)) if caught else lambda *_: change()
    monkeypatch.setattr(Flag, "answers", {"x": poke})
    with pytest.raises(HandBack, match="of its process, which only a worker has"):
        in_the_pool(in_dag(Flag, flag="x")).poke({})
    assert (dict(os.environ), os.getcwd()) == before


def test_a_poke_that_sets_what_is_set_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def sets(*_: Any) -> bool:
        os.environ["PATH"] = os.environ["PATH"]
        os.environ.pop("PROFILE_OF_POKE", None)
        return True

    monkeypatch.setattr(Flag, "answers", {"x": sets})
    assert in_the_pool(in_dag(Flag, flag="x")).poke({}) is True


def test_a_module_that_is_imported_in_a_poke_may_set_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sets_profile.py").write_text("import os\nos.environ['PROFILE_OF_POKE'] = 'a'\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PROFILE_OF_POKE", "b")
    monkeypatch.setattr(Flag, "answers", {"x": lambda *_: bool(importlib.import_module("sets_profile"))})
    assert in_the_pool(in_dag(Flag, flag="x")).poke({}) is True
    assert os.environ["PROFILE_OF_POKE"] == "a"


def catches_all(ask: Callable[[], Any]) -> bool:
    try:
        return bool(ask())
    except:  # noqa: E722
        return False


def in_a_thread(ask: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(ask).result()


@pytest.mark.parametrize(
    "ask",
    [
        lambda self: self.task_id,
        lambda self: copy.copy(self).task_id,
        lambda self: copy.deepcopy(self).task_id,
        lambda _: os.environ["AIRFLOW_CTX_DAG_ID"],
        lambda self: in_a_thread(lambda: catches_all(lambda: self.task_id)),
    ],
    ids=["name", "copy", "deepcopy", "environment", "thread"],
)
def test_a_poke_that_catches_a_refusal_goes_back(monkeypatch: pytest.MonkeyPatch, ask: Any) -> None:
    """And the next one, which asks for nothing, answers."""
    asks = [True]
    monkeypatch.setattr(Flag, "answers", {"x": lambda self, _: catches_all(lambda: asks and ask(self)) or not asks})
    pooled = in_the_pool(in_dag(Flag, flag="x"))
    with pytest.raises(HandBack, match=r"only (its task|a worker)"):
        pooled.poke({})
    asks.clear()
    assert pooled.poke({}) is True


@pytest.mark.parametrize(
    "asks",
    [AirflowRescheduleException(timezone.utcnow()), DownstreamTasksSkipped(tasks=["a"]), AirflowTaskTerminated()],
    ids=lambda asks: type(asks).__name__,
)
def test_a_poke_that_asks_its_task_runner_by_raising_goes_back(
    monkeypatch: pytest.MonkeyPatch, asks: BaseException
) -> None:
    monkeypatch.setattr(Flag, "answers", {"x": asks})
    with pytest.raises(HandBack, match=type(asks).__name__):
        in_the_pool(in_dag(Flag, flag="x")).poke({})


@pytest.mark.parametrize(
    "value", [{1: "a"}, float("nan"), "x" * 300_000, object()], ids=["key", "nan", "long", "object"]
)
def test_a_value_that_the_pool_cannot_carry_is_left_to_its_worker(monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    """Airflow's own way may take it; and nothing is said of it before the condition holds."""
    from airflow.sdk.bases.sensor import PokeReturnValue

    monkeypatch.setattr(
        Flag,
        "answers",
        {
            "now": PokeReturnValue(is_done=True, xcom_value=value),
            "later": PokeReturnValue(is_done=False, xcom_value=value),
        },
    )
    landing = Landing.read(in_the_pool(in_dag(Flag, flag="now")).poke({}).xcom_value)
    assert landing.value is None
    assert landing.lost.keys() == {""}
    assert not in_the_pool(in_dag(Flag, flag="later")).poke({})


def test_a_value_comes_back_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.bases.sensor import PokeReturnValue

    value = {"at": dt.datetime(2026, 11, 2, tzinfo=dt.UTC)}
    monkeypatch.setattr(Flag, "answers", {"x": PokeReturnValue(is_done=True, xcom_value=value)})
    found = in_the_pool(in_dag(Flag, flag="x")).poke({})
    assert found
    assert json.loads(json.dumps(found.xcom_value)) == {
        "at": {"__type__": "datetime", "value": "2026-11-02T00:00:00+00:00"}
    }
