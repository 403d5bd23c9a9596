"""Calls and CPU of a condition: poked one by one, and by one call for many.

Run in the environment of `make e2e`::

    .venv-e2e/bin/python -m benchmarks.airflow_shared

A thousand conditions of one class that do not hold ask one backend: a real PostgreSQL, a real Redis, or a stand-in on
loopback. CPU is of the thread that asks, and of the servers that are processes of their own. Amazon's is a stand-in in
that very thread, so its CPU stands in for nothing. One by one, two hundred of them are poked, after a few to warm up.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import psutil

from benchmarks import report
from benchmarks.code_version import code_version
from benchmarks.report import Row, demand
from benchmarks.stage import tree_seconds
from harness.servers import PostgresServer, RedisServer, fresh_database

CONDITIONS, ONE_BY_ONE, WARM_UP = 1_000, 200, 5
PROVIDERS = "airflow.providers"


class Case(NamedTuple):
    """A sensor and its backend.

    :param arguments: returns those of a condition, by its number.
    :param calls: returns how often the backend was asked so far, and by what.
    :param servers: the processes whose CPU counts too.
    """

    class_path: str
    arguments: Callable[[int], Mapping[str, Any]]
    calls: Callable[[], int]
    what: str
    servers: Sequence[int] = ()
    has_cpu: bool = True


def main() -> None:
    """Measure, and write the figures."""
    rows = []
    with tempfile.TemporaryDirectory() as home, ExitStack() as stack:
        os.environ |= {"AIRFLOW_HOME": home, "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
        os.environ |= {"AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR", "AWS_DEFAULT_REGION": "us-east-1"}
        backends = (_postgres, _redis, _hive, _storage, _amazon)
        # what a process changes in its environment once Airflow is there is its own, and no sensor with it is pooled
        for case in [case for backend in backends for case in backend(stack)]:
            rows.append(_measure(case))
            report.console.print(f"  {rows[-1]['case']}: done")
    report.show("airflow_shared", rows)
    report.write("airflow_shared", rows, ".venv-e2e/bin/python -m benchmarks.airflow_shared", code=code_version())


def _measure(case: Case) -> Row:
    from sensorpool.poke.classes import Classes

    path = f"{PROVIDERS}.{case.class_path}"
    cls = Classes([path]).find(path)
    contexts = [_context(path, case.arguments(n)) for n in range(CONDITIONS)]
    sensors = [cls.construct(each) for each in contexts[: ONE_BY_ONE + WARM_UP]]
    single = _meter(case, sensors[:WARM_UP], sensors[WARM_UP:], lambda some: [one.poke({}) for one in some])
    demand(cls.shared is not None, f"{path} has no shared call")
    questions = [cls.shared.question(each) for each in contexts]
    kins = {question.kin for question in questions}
    demand(len(kins) == 1, f"{path}: {len(kins)} calls")
    asked = [question.asked for question in questions]
    shared = _meter(case, asked, asked, lambda some: cls.shared.ask(*kins, some))
    found: Row = {
        "case": path.rpartition(".")[2],
        "what is counted": case.what,
        "for 1,000 conditions, one by one": round(single[0] * CONDITIONS / ONE_BY_ONE),
        "for 1,000 conditions, one call for many": shared[0],
    }
    if case.has_cpu:
        found["CPU of a condition, one by one, µs"] = 1e6 * single[1] / ONE_BY_ONE
        found["CPU of a condition, one call for many, µs"] = 1e6 * shared[1] / CONDITIONS
    return found


def _meter(case: Case, first: Any, then: Any, ask: Callable[[Any], Sequence[Any]]) -> tuple[int, float]:
    """Return the calls and the CPU seconds of what is asked after the warm-up."""
    demand(not any(ask(first)), "no condition holds")
    servers = [psutil.Process(pid) for pid in case.servers]
    before, cpu, calls = sum(map(tree_seconds, servers)), time.thread_time(), case.calls()
    demand(not any(ask(then)), "no condition holds")
    used = time.thread_time() - cpu
    time.sleep(0.2)  # the servers have ended what they do
    return case.calls() - calls, used + sum(map(tree_seconds, servers)) - before


def _context(path: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the context with which a sensor of a DAG file is registered."""
    from airflow.sdk import DAG

    from sensorpool.airflow.configuration import AirflowSettings
    from sensorpool.airflow.task.poolable import condition_of
    from sensorpool.config.settings import Settings

    module, _, name = path.rpartition(".")
    with DAG("shared", schedule=None):
        sensor = getattr(import_module(module), name)(task_id="wait", **arguments)
    ti = SimpleNamespace(dag_id="shared", task_id="wait", run_id="run", map_index=-1, try_number=1)
    return condition_of(sensor, {"ti": ti}, Settings.load(sensors_enabled=path), AirflowSettings()).poke_context


def _postgres(stack: ExitStack) -> Iterator[Case]:
    from sqlalchemy import create_engine, make_url, text

    server = stack.enter_context(PostgresServer())
    url = stack.enter_context(fresh_database(server))
    os.environ["AIRFLOW_CONN_WAREHOUSE"] = make_url(url).set(drivername="postgres").render_as_string(False)
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("CREATE TABLE arrivals (n bigint PRIMARY KEY)"))

    def sessions() -> int:
        with engine.connect() as connection:
            time.sleep(1.2)  # a session is counted after it has ended
            connection.execute(text("SELECT pg_stat_clear_snapshot()"))
            found = connection.execute(text("SELECT sessions FROM pg_stat_database WHERE datname = current_database()"))
            return int(found.scalar_one())

    yield Case(
        "common.sql.sensors.sql.SqlSensor",
        lambda n: {"conn_id": "warehouse", "sql": f"SELECT count(*) FROM arrivals WHERE n = {n}"},
        sessions,
        "connections",
        [server.pid],
    )


def _redis(stack: ExitStack) -> Iterator[Case]:
    import redis

    server = stack.enter_context(RedisServer())
    os.environ["AIRFLOW_CONN_REDIS_DEFAULT"] = server.url
    client = redis.Redis.from_url(server.url)
    yield Case(
        "redis.sensors.redis_key.RedisKeySensor",
        lambda n: {"redis_conn_id": "redis_default", "key": f"key{n}"},
        lambda: int(client.info("stats")["total_connections_received"]),
        "connections",
        [server.pid],
    )


def _hive(stack: ExitStack) -> Iterator[Case]:
    from harness.endpoints.hive_metastore import MetastoreEndpoint

    endpoint = stack.enter_context(MetastoreEndpoint())
    os.environ["AIRFLOW_CONN_METASTORE_DEFAULT"] = f"hive-metastore://{endpoint.host}:{endpoint.port}"
    endpoint.create_table("sales", "orders", "ds")
    for n in range(100):
        endpoint.add("sales", "orders", f"ds=there{n}")
    calls: Callable[[], int] = lambda: sum(endpoint.calls.values())  # noqa: E731
    yield Case(
        "apache.hive.sensors.named_hive_partition.NamedHivePartitionSensor",
        lambda n: {"partition_names": [f"sales.orders/ds={n}"]},
        calls,
        "calls",
    )
    yield Case(
        "apache.hive.sensors.hive_partition.HivePartitionSensor",
        lambda n: {"table": "sales.orders", "partition": f"ds='{n}'"},
        calls,
        "calls",
    )


def _storage(stack: ExitStack) -> Iterator[Case]:
    from harness.endpoints.cloud_storage import StorageEndpoint

    endpoint = stack.enter_context(StorageEndpoint())
    os.environ["STORAGE_EMULATOR_HOST"] = endpoint.address
    os.environ["AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT"] = (
        '{"conn_type": "google_cloud_platform", "extra": {"is_anonymous": true, "project": "p"}}'
    )
    endpoint.objects["raw"] = {f"in/there{n}" for n in range(100)}
    for name, argument in (("GCSObjectExistenceSensor", "object"), ("GCSObjectsWithPrefixExistenceSensor", "prefix")):
        yield Case(
            f"google.cloud.sensors.gcs.{name}",
            lambda n, argument=argument: {"bucket": "raw", argument: f"in/{n:04}"},
            lambda: len(endpoint.calls),
            "calls",
        )


def _amazon(stack: ExitStack) -> Iterator[Case]:
    import boto3
    from botocore.client import BaseClient
    from moto import mock_aws

    stack.enter_context(mock_aws())
    os.environ["AIRFLOW_CONN_AWS_DEFAULT"] = "aws://"
    boto3.client("s3").create_bucket(Bucket="raw")
    for n in range(100):
        boto3.client("s3").put_object(Bucket="raw", Key=f"in/there{n}")
    glue, columns = boto3.client("glue"), [{"Name": "ds", "Type": "string"}]
    glue.create_database(DatabaseInput={"Name": "sales"})
    glue.create_table(DatabaseName="sales", TableInput={"Name": "orders", "PartitionKeys": columns})
    made: list[str] = []
    real = BaseClient._make_api_call

    def counted(self: Any, name: str, arguments: Any) -> Any:
        made.append(name)
        return real(self, name, arguments)

    stack.enter_context(patch.object(BaseClient, "_make_api_call", counted))
    yield Case(
        "amazon.aws.sensors.s3.S3KeySensor",
        lambda n: {"bucket_key": f"s3://raw/in/{n:04}"},
        lambda: len(made),
        "calls",
        has_cpu=False,
    )
    yield Case(
        "amazon.aws.sensors.glue_catalog_partition.GlueCatalogPartitionSensor",
        lambda n: {"table_name": "sales.orders", "expression": f"ds='{n}'"},
        lambda: len(made),
        "calls",
        has_cpu=False,
    )


if __name__ == "__main__":
    main()
