"""Shared calls of Hive's, Glue's, Cloud Storage's and BigQuery's sensors, each against the native poke."""

import json
from collections.abc import Callable, Iterator
from itertools import permutations, product
from typing import Any

import boto3
import pytest

pytest.importorskip("airflow.providers.apache.hive")
pytest.importorskip("airflow.providers.google")

from airflow.providers.amazon.aws.sensors.glue_catalog_partition import GlueCatalogPartitionSensor
from airflow.providers.apache.hive.sensors.hive_partition import HivePartitionSensor
from airflow.providers.apache.hive.sensors.metastore_partition import MetastorePartitionSensor
from airflow.providers.apache.hive.sensors.named_hive_partition import NamedHivePartitionSensor
from airflow.providers.google.cloud.hooks.bigquery import BigQueryHook
from airflow.providers.google.cloud.sensors.bigquery import BigQueryTablePartitionExistenceSensor
from airflow.providers.google.cloud.sensors.gcs import (
    GCSObjectExistenceSensor,
    GCSObjectsWithPrefixExistenceSensor,
)
from google.api_core.exceptions import NotFound
from hypothesis import given
from hypothesis import strategies as st

from harness.endpoints.cloud_storage import StorageEndpoint
from harness.endpoints.hive_metastore import MetastoreEndpoint
from sensorpool.airflow.pool.shared_calls import bigquery, gcs, glue, hive, partitions
from tests.airflow import test_shared_calls
from tests.airflow.metastore_schema import MetastoreSchema
from tests.airflow.test_aws import amazon  # noqa: F401  # a fixture
from tests.airflow.test_hive import endpoint, schema  # noqa: F401  # fixtures
from tests.airflow.test_shared_calls import agree, asked, calls  # noqa: F401  # a fixture

SetConnection = Callable[[str, str], None]
DAYS = [f"2026-01-{day:02}" for day in range(1, 29)]


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `asked` know these calls."""
    more = {
        NamedHivePartitionSensor: hive.of_named,
        HivePartitionSensor: hive.of_filter,
        MetastorePartitionSensor: hive.of_metastore,
        GlueCatalogPartitionSensor: glue.shared_call,
        GCSObjectExistenceSensor: gcs.of_objects,
        GCSObjectsWithPrefixExistenceSensor: gcs.of_prefixes,
        BigQueryTablePartitionExistenceSensor: bigquery.shared_call,
    }
    monkeypatch.setattr(test_shared_calls, "CALLS", test_shared_calls.CALLS | more)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("ds='2026-01-01'", (("ds", "2026-01-01"),)),
        (" DS = \"x\" and hour='7' ", (("ds", "x"), ("hour", "7"))),
        ("ds='a' AND ds='b'", None),
        ("ds>='2026-01-01'", None),
        ("ds='a' OR hour='7'", None),
        ("ds='a' AND", None),
        ("ds='a' ANDhour='7'", None),
        ("(ds='a')", None),
        ("ds=2026-01-01", None),
        ("ds='a b'", None),
        ("ds='it''s'", None),
        ("", None),
    ],
)
def test_an_expression_is_a_partition_or_is_left_to_the_poke(text: str, spec: Any) -> None:
    assert partitions.of_expression(text) == spec


@given(st.text(max_size=40))
def test_any_expression_is_read_or_left(text: str) -> None:
    partitions.of_expression(text)
    partitions.of_name(text)


def test_named_partitions_of_a_table_are_two_calls(endpoint: MetastoreEndpoint) -> None:  # noqa: F811
    endpoint.create_table("sales", "orders", "ds")
    for day in DAYS[::3]:
        endpoint.add("sales", "orders", f"ds={day}")
    some = [{"partition_names": [f"sales.orders/ds={day}"]} for day in DAYS]
    some += [{"partition_names": [f"Sales.Orders/DS={day}" for day in DAYS[:4:3]]}]
    some += [{"partition_names": [f"sales.orders/ds={day}" for day in DAYS[:2]]}]
    endpoint.calls.clear()
    answers = asked(NamedHivePartitionSensor, some[:-2])
    assert endpoint.calls == {"get_table": 1, "get_partitions_by_names": 1}
    assert answers.count(False) == len(DAYS) - len(DAYS[::3])
    assert agree(NamedHivePartitionSensor, some)[-2:] == [True, False]


def test_odd_names_of_partitions(endpoint: MetastoreEndpoint) -> None:  # noqa: F811
    endpoint.add("default", "parts", "ds=2026-01-01/hour=7")
    endpoint.create_table("default", "numbered", "hour", key_type="int")
    whole = [
        {"partition_names": [f"parts/{name}"]}
        for name in ("ds=2026-01-01/hour=7", "hour=7/ds=2026-01-01", "ds=2026-01-01/hour=07", "ds=2026-01-01")
    ]
    assert agree(NamedHivePartitionSensor, whole, exact=False) == [True, True, False, True]
    others = [
        {"partition_names": ["parts/ds=2026%2D01-01/hour=7"]},
        {"partition_names": ["parts/ds=a b/hour=7"]},
        {"partition_names": ["parts/ds=x/hour=7", "numbered/hour=7"]},
    ]
    assert asked(NamedHivePartitionSensor, others) == [None] * 3
    assert agree(NamedHivePartitionSensor, [{"partition_names": ["numbered/hour=7"]}], exact=False) == [True]
    assert agree(NamedHivePartitionSensor, [{"partition_names": ["no.such/ds=x"]}] * 3) == [False] * 3


def test_partitions_by_an_expression(endpoint: MetastoreEndpoint) -> None:  # noqa: F811
    endpoint.create_table("sales", "orders", "ds", "hour")
    for day in DAYS[::3]:
        endpoint.add("sales", "orders", f"ds={day}/hour=7")
    some = [{"table": "sales.orders", "partition": f"ds='{day}' AND hour='7'"} for day in DAYS]
    some += [{"table": "orders", "schema": "sales", "partition": f"hour='7' and DS=\"{day}\""} for day in DAYS[:3]]
    endpoint.calls.clear()
    asked(HivePartitionSensor, some)
    assert endpoint.calls == {"get_table": 1, "get_partitions_by_names": 1}
    assert agree(HivePartitionSensor, some).count(True) == len(DAYS[::3]) + 1
    parts = [{"table": "sales.orders", "partition": f"ds='{day}'"} for day in DAYS[:2]]
    assert agree(HivePartitionSensor, parts, exact=False) == [True, True], "it does not name all keys"
    assert asked(HivePartitionSensor, [{"table": "sales.orders", "partition": "ds>='2026-01-02'"}]) == [None]


def test_generated_partitions(endpoint: MetastoreEndpoint) -> None:  # noqa: F811
    values = ["7", "07", "a", "A", "a.b-c", "+1", "a b"]
    endpoint.create_table("sales", "orders", "ds", "hour")
    for ds, hour in [*product(values[:5], values[:5])][::2]:
        endpoint.add("sales", "orders", f"ds={ds}/hour={hour}")
    pairs = [*product(values, values)]
    names = [f"{one}/{other}" for ds, hour in pairs for one, other in permutations((f"ds={ds}", f"HOUR={hour}"))]
    agree(NamedHivePartitionSensor, [{"partition_names": [f"sales.orders/{name}"]} for name in names], exact=False)
    texts = [f"ds='{ds}' {word} hour=\"{hour}\"" for ds, hour in pairs for word in ("AND", "or")]
    found = agree(HivePartitionSensor, [{"table": "sales.orders", "partition": each} for each in texts])
    assert {*found} == {True, False, None}


def test_partitions_in_the_metastores_database(schema: MetastoreSchema) -> None:  # noqa: F811
    for day in DAYS[::3]:
        schema.add("sales", "orders", f"ds={day}")
    some = [{"table": "sales.orders", "partition_name": f"ds={day}"} for day in DAYS]
    some += [{"table": "orders", "schema": "sales", "partition_name": f"ds={day}"} for day in DAYS[:2]]
    assert agree(MetastorePartitionSensor, some).count(True) == len(DAYS[::3]) + 1


def test_partitions_of_glue_are_two_calls(calls: list[str]) -> None:  # noqa: F811
    client = boto3.client("glue")
    client.create_database(DatabaseInput={"Name": "sales"})
    keys = {"orders": [("ds", "string"), ("hour", "string")], "numbered": [("n", "int")]}
    for table, columns in keys.items():
        described = [{"Name": name, "Type": type_} for name, type_ in columns]
        client.create_table(DatabaseName="sales", TableInput={"Name": table, "PartitionKeys": described})
    for day in DAYS[::3]:
        client.create_partition(DatabaseName="sales", TableName="orders", PartitionInput={"Values": [day, "7"]})
    some = [{"table_name": "sales.orders", "expression": f"ds='{day}' AND hour='7'"} for day in DAYS]
    some += [{"table_name": "orders", "database_name": "sales", "expression": f"hour='7' AND ds='{DAYS[0]}'"}]
    del calls[:]
    answers = asked(GlueCatalogPartitionSensor, some)
    assert calls == ["GetTable", "BatchGetPartition"]
    assert answers.count(False) == len(DAYS) - len(DAYS[::3])
    assert agree(GlueCatalogPartitionSensor, some) == answers
    part = {"table_name": "sales.orders", "expression": f"ds='{DAYS[1]}'"}
    assert agree(GlueCatalogPartitionSensor, [part], exact=False) == [True], "it does not name all keys"
    assert asked(GlueCatalogPartitionSensor, [{"table_name": "sales.numbered", "expression": "n='7'"}]) == [True]


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch, set_airflow_connection: SetConnection) -> Iterator[StorageEndpoint]:
    extra = {"is_anonymous": True, "project": "p"}
    set_airflow_connection("google_cloud_default", json.dumps({"conn_type": "google_cloud_platform", "extra": extra}))
    with StorageEndpoint() as found:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", found.address)
        yield found


def test_objects_of_a_folder_are_one_listing(storage: StorageEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.objects["raw"] = {*(f"in/{n:04}" for n in range(0, 300, 3)), "in/0007.more", "in/ü", "other"}
    names = [*(f"in/{n:04}" for n in range(100)), "in/0007.more", "in/ü", "in/ö", "in/", "other", "another"]
    some = [{"bucket": "raw", "object": name} for name in names]
    asked(GCSObjectExistenceSensor, some[:100])
    assert storage.calls.count("list") == 1
    answers = agree(GCSObjectExistenceSensor, some)
    assert answers.count(True) == 34 + 3
    monkeypatch.setattr(gcs, "_PAGE", 7)
    storage.calls.clear()
    assert asked(GCSObjectExistenceSensor, some) == answers
    assert storage.calls.count("list") <= len(some)
    assert asked(GCSObjectExistenceSensor, [{"bucket": "raw", "object": "in/*", "use_glob": True}]) == [None]


def test_prefixes_are_one_listing(storage: StorageEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.objects["raw"] = {*(f"in/day={n:02}/part" for n in range(0, 28, 3)), "in/day", "in/e"}
    names = [*(f"in/day={n:02}" for n in range(28)), "in/day=", "in/day=3", "in/da", "in/d", "in/f", "in/e", "x"]
    some = [{"bucket": "raw", "prefix": name} for name in names]
    answers = agree(GCSObjectsWithPrefixExistenceSensor, some)
    for page in (1, 2, 5):
        monkeypatch.setattr(gcs, "_PAGE", page)
        assert asked(GCSObjectsWithPrefixExistenceSensor, some) == answers
    storage.calls.clear()
    monkeypatch.setattr(gcs, "_PAGE", 1_000)
    asked(GCSObjectsWithPrefixExistenceSensor, some)
    assert storage.calls.count("list") == 2, "one for each folder"


def test_generated_names_of_objects(storage: StorageEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["".join(letters) for length in (1, 2, 3) for letters in product("a/ü", repeat=length)]
    storage.objects["raw"] = {*names[::3]}
    for cls, argument in ((GCSObjectExistenceSensor, "object"), (GCSObjectsWithPrefixExistenceSensor, "prefix")):
        some = [{"bucket": "raw", argument: name} for name in names]
        answers = agree(cls, some)
        assert {*answers} == {True, False}
        for page in (1, 2, 5, 1_000):
            monkeypatch.setattr(gcs, "_PAGE", page)
            assert asked(cls, some) == answers


def test_a_bucket_that_is_not_there_is_told_by_each_poke(storage: StorageEndpoint) -> None:
    with pytest.raises(NotFound):
        asked(GCSObjectExistenceSensor, [{"bucket": "nowhere", "object": "x"}])


@pytest.mark.filterwarnings("ignore:The default value of `use_legacy_sql`")
def test_partitions_of_bigquery_are_one_list(
    monkeypatch: pytest.MonkeyPatch, set_airflow_connection: SetConnection
) -> None:
    set_airflow_connection("google_cloud_default", "google-cloud-platform://")
    listed: list[str] = []

    class Client:
        @staticmethod
        def list_partitions(table: Any) -> list[str]:
            listed.append(str(table))
            if table.table_id == "nowhere":
                raise NotFound("no such table")
            return [day.replace("-", "") for day in DAYS[::3]]

    monkeypatch.setattr(BigQueryHook, "get_client", lambda *_, **__: Client())
    table = {"project_id": "p", "dataset_id": "sales", "table_id": "orders"}
    some = [{**table, "partition_id": day.replace("-", "")} for day in DAYS]
    assert asked(BigQueryTablePartitionExistenceSensor, some).count(True) == len(DAYS[::3])
    assert listed == ["p.sales.orders"]
    agree(BigQueryTablePartitionExistenceSensor, some)
    missing = {**table, "table_id": "nowhere", "partition_id": "x"}
    assert agree(BigQueryTablePartitionExistenceSensor, [missing]) == [False]
