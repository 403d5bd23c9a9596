"""Amazon's sensors with Amazon's own client, which names the DAG to its service: on a worker, and in the pool.

The store is in this process (moto). What the provider puts into the user agent of a request is no part of a condition.
"""

import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import boto3
import pytest
from airflow.providers.amazon.aws.hooks.s3 import S3Hook
from airflow.providers.amazon.aws.sensors.dynamodb import DynamoDBValueSensor
from airflow.providers.amazon.aws.sensors.glue_catalog_partition import GlueCatalogPartitionSensor
from airflow.providers.amazon.aws.sensors.s3 import S3KeySensor
from airflow.sdk import BaseSensorOperator
from moto import mock_aws

from tests.airflow.company_hook import reasons_of
from tests.airflow.running import in_dag
from tests.airflow.test_pool_adapters import in_the_pool


class Case(NamedTuple):
    """A sensor, how its condition comes true, and what has to be there before."""

    cls: type
    arguments: dict[str, Any]
    before: Callable[[], object]
    land: Callable[[], object]


def _glue_table() -> None:
    glue = boto3.client("glue")
    glue.create_database(DatabaseInput={"Name": "db"})
    columns = [{"Name": "ds", "Type": "string"}]
    glue.create_table(DatabaseName="db", TableInput={"Name": "t", "PartitionKeys": columns})


def _dynamo_table() -> None:
    boto3.client("dynamodb").create_table(
        TableName="t",
        KeySchema=[{"AttributeName": "k", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "k", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )


CASES = {
    "key": Case(
        S3KeySensor,
        {"bucket_key": "s3://raw/in/a"},
        lambda: boto3.client("s3").create_bucket(Bucket="raw"),
        lambda: boto3.client("s3").put_object(Bucket="raw", Key="in/a"),
    ),
    "wildcard": Case(
        S3KeySensor,
        {"bucket_key": "s3://raw/in/*", "wildcard_match": True},
        lambda: boto3.client("s3").create_bucket(Bucket="raw"),
        lambda: boto3.client("s3").put_object(Bucket="raw", Key="in/a"),
    ),
    "partition": Case(
        GlueCatalogPartitionSensor,
        {"table_name": "t", "database_name": "db", "expression": "ds='2026-01-01'"},
        _glue_table,
        lambda: boto3.client("glue").create_partition(
            DatabaseName="db", TableName="t", PartitionInput={"Values": ["2026-01-01"]}
        ),
    ),
    "value": Case(
        DynamoDBValueSensor,
        {
            "table_name": "t",
            "partition_key_name": "k",
            "partition_key_value": "a",
            "attribute_name": "v",
            "attribute_value": "done",
        },
        _dynamo_table,
        lambda: boto3.client("dynamodb").put_item(TableName="t", Item={"k": {"S": "a"}, "v": {"S": "done"}}),
    ),
}


@pytest.fixture
def amazon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AIRFLOW_CONN_AWS_DEFAULT": "aws://",
        "AIRFLOW_CTX_DAG_ID": "dag",  # as in a task's process
        "AIRFLOW_CTX_TEAM_NAME": "",
    }.items():
        monkeypatch.setenv(name, value)
    with mock_aws():
        yield


@pytest.mark.usefixtures("amazon")
@pytest.mark.parametrize("name", CASES)
def test_it_waits_in_the_pool_and_lands_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    case.before()
    assert reasons_of(in_dag(case.cls, **case.arguments), monkeypatch) == []
    pooled = in_the_pool(in_dag(case.cls, **case.arguments))
    for name in [name for name in os.environ if name.startswith("AIRFLOW_CTX_")]:  # the pool's process has none
        monkeypatch.delenv(name)
    assert not pooled.poke({})
    case.land()
    assert pooled.poke({})


class AsksOfTask(BaseSensorOperator):
    """Has Amazon's client, and asks for its task itself."""

    def poke(self, context: Any) -> bool:
        S3Hook("aws_default").get_conn()
        return os.environ.get("AIRFLOW_CTX_DAG_ID") == "other"


@pytest.mark.usefixtures("amazon")
def test_a_poke_that_asks_for_its_task_itself_keeps_its_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    [reason] = reasons_of(in_dag(AsksOfTask), monkeypatch)
    assert "reads AIRFLOW_CTX_DAG_ID from the environment of its worker" in reason
