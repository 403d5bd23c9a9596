"""Airflow's own Hive sensors, on a metastore's thrift endpoint and on a metastore's database."""

from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("airflow.providers.apache.hive")

from airflow.providers.apache.hive.hooks.hive import HiveMetastoreHook
from airflow.providers.apache.hive.sensors.hive_partition import HivePartitionSensor
from airflow.providers.apache.hive.sensors.metastore_partition import MetastorePartitionSensor
from airflow.providers.apache.hive.sensors.named_hive_partition import NamedHivePartitionSensor
from airflow.sdk import DAG
from hmsclient.genthrift.hive_metastore.ttypes import MetaException, NoSuchObjectException
from sqlalchemy import make_url
from thrift.Thrift import TApplicationException
from thrift.transport.TTransport import TTransportException

from harness.endpoints.hive_metastore import MetastoreEndpoint
from harness.servers import Elsewhere, PostgresServer, fresh_database

from .metastore_schema import MetastoreSchema

SetConnection = Callable[[str, str], None]


@pytest.fixture
def endpoint(set_airflow_connection: SetConnection) -> Iterator[MetastoreEndpoint]:
    with MetastoreEndpoint() as endpoint:
        set_airflow_connection("metastore_default", f"hive-metastore://{endpoint.host}:{endpoint.port}")
        yield endpoint


@pytest.fixture
def schema(
    postgres_server: PostgresServer | Elsewhere, set_airflow_connection: SetConnection
) -> Iterator[MetastoreSchema]:
    with fresh_database(postgres_server) as url:
        uri = make_url(url).set(drivername="postgres").render_as_string(hide_password=False)
        set_airflow_connection("metastore_mysql", uri)
        yield MetastoreSchema(url)


# NamedHivePartitionSensor


def test_a_named_partition_comes(endpoint: MetastoreEndpoint) -> None:
    with DAG("warehouse", schedule=None):
        sensor = NamedHivePartitionSensor(task_id="wait", partition_names=["sales.orders/ds=2026-01-01"])
    endpoint.add("sales", "orders", "ds=2025-12-31")
    assert sensor.poke({}) is False
    endpoint.add("sales", "orders", "ds=2026-01-01")
    assert sensor.poke({}) is True
    assert endpoint.calls == {"get_partition_by_name": 2}


def test_a_named_partition_of_a_table_that_is_not_there_yet_comes(endpoint: MetastoreEndpoint) -> None:
    with DAG("warehouse", schedule=None):
        sensor = NamedHivePartitionSensor(task_id="wait", partition_names=["orders/ds=2026-01-01/hour=7"])
    assert sensor.poke({}) is False
    endpoint.add("default", "Orders", "ds=2026-01-01/hour=7")
    assert sensor.poke({}) is True


def test_goes_on_with_the_partition_that_was_missing(endpoint: MetastoreEndpoint) -> None:
    names = [f"sales.orders/ds=2026-01-0{day}" for day in (1, 2, 3)]
    with DAG("warehouse", schedule=None):
        sensor = NamedHivePartitionSensor(task_id="wait", partition_names=names)
    endpoint.add("sales", "orders", "ds=2026-01-01")
    assert sensor.poke({}) is False
    assert sensor.next_index_to_poke == 1
    assert endpoint.calls["get_partition_by_name"] == 2
    endpoint.add("sales", "orders", "ds=2026-01-02")
    endpoint.add("sales", "orders", "ds=2026-01-03")
    assert sensor.poke({}) is True
    assert endpoint.calls["get_partition_by_name"] == 5


# HivePartitionSensor


@pytest.mark.parametrize(
    "partition",
    [
        "ds='2026-01-01'",
        "ds >= 2026-01-01",
        "'2026-01-01' <= DS",
        "ds > '2025-12-31' and (hour = '07' OR hour = \"08\")",
    ],
)
def test_a_partition_that_matches_comes(endpoint: MetastoreEndpoint, partition: str) -> None:
    with DAG("warehouse", schedule=None):
        sensor = HivePartitionSensor(task_id="wait", table="sales.orders", partition=partition)
    endpoint.create_table("sales", "orders", "ds", "hour")
    assert sensor.poke({}) is False
    endpoint.add("sales", "orders", "ds=2025-12-31/hour=07")
    assert sensor.poke({}) is False
    endpoint.add("sales", "orders", "ds=2026-01-01/hour=07")
    assert sensor.poke({}) is True
    assert endpoint.calls == {"get_partitions_by_filter": 3}


def test_a_filter_on_a_table_that_is_not_there_is_an_error(endpoint: MetastoreEndpoint) -> None:
    with DAG("warehouse", schedule=None):
        sensor = HivePartitionSensor(task_id="wait", table="sales.orders", partition="ds='2026-01-01'")
    with pytest.raises(NoSuchObjectException, match=r"sales\.orders table not found"):
        sensor.poke({})


@pytest.mark.parametrize(
    ("partition", "complaint"),
    [
        ("day='2026-01-01'", "<day> is not a partitioning key"),
        ("ds=", "Error parsing partition filter"),
        ("ds='a' AND", "Error parsing partition filter"),
        ("ds LIKE 'a'", "Error parsing partition filter"),
        ("(ds='a'", "Error parsing partition filter"),
        ("ds='a' ds='b'", "Error parsing partition filter"),
        ("ds=7", "Error parsing partition filter"),
        ("ds='a", "Error parsing partition filter"),
    ],
)
def test_a_filter_that_is_not_understood_is_an_error(
    endpoint: MetastoreEndpoint, partition: str, complaint: str
) -> None:
    endpoint.create_table("sales", "orders", "ds")
    with DAG("warehouse", schedule=None):
        sensor = HivePartitionSensor(task_id="wait", table="sales.orders", partition=partition)
    with pytest.raises(MetaException, match=complaint):
        sensor.poke({})


# The endpoint


def test_a_call_that_is_not_served_is_refused(endpoint: MetastoreEndpoint) -> None:
    with pytest.raises(TApplicationException, match="Unknown function get_databases"):
        HiveMetastoreHook().get_databases()
    assert not endpoint.calls


def test_names_may_be_escaped_and_in_another_order(endpoint: MetastoreEndpoint) -> None:
    endpoint.add("sales", "orders", "ds=2026-01-01/at=07%3A00")
    hook = HiveMetastoreHook()
    assert hook.check_for_named_partition("sales", "orders", "at=07%3A00/ds=2026-01-01")
    assert hook.check_for_partition("sales", "orders", "at='07:00'")
    assert not hook.check_for_named_partition("sales", "orders", "ds=2026-01-01")


def test_a_client_that_stays_does_not_keep_the_endpoint_open(set_airflow_connection: SetConnection) -> None:
    with MetastoreEndpoint() as endpoint:
        set_airflow_connection("metastore_default", f"hive-metastore://{endpoint.host}:{endpoint.port}")
        endpoint.add("sales", "orders", "ds=2026-01-01")
        client = HiveMetastoreHook().get_conn().open()
        assert client.check_for_named_partition("sales", "orders", "ds=2026-01-01")
    with pytest.raises(TTransportException):
        client.check_for_named_partition("sales", "orders", "ds=2026-01-01")
    client.close()


# MetastorePartitionSensor


@pytest.mark.parametrize("where", [{"table": "sales.orders"}, {"table": "orders", "schema": "sales"}])
def test_a_partition_in_the_metastores_database_comes(schema: MetastoreSchema, where: dict[str, str]) -> None:
    with DAG("warehouse", schedule=None):
        sensor = MetastorePartitionSensor(task_id="wait", partition_name="ds=2026-01-01/hour=7", **where)
    assert sensor.poke({}) is False
    schema.add("sales", "orders", "ds=2026-01-01/hour=8")
    schema.add("sales", "returns", "ds=2026-01-01/hour=7")
    schema.add("other", "orders", "ds=2026-01-01/hour=7")
    assert sensor.poke({}) is False
    schema.add("sales", "orders", "ds=2026-01-01/hour=7")
    assert sensor.poke({}) is True
