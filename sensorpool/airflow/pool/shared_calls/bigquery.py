"""BigQueryTablePartitionExistenceSensor: the list of a table's partitions, which each poke asks for, once for all."""

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.providers.google.cloud.hooks.bigquery import BigQueryHook
from airflow.providers.google.cloud.sensors.bigquery import BigQueryTablePartitionExistenceSensor
from google.api_core.exceptions import NotFound
from google.cloud.bigquery import DatasetReference, TableReference

from sensorpool.airflow.pool.shared_calls.by_operator import ByOperator, fits

_TABLE = ("project_id", "dataset_id", "table_id")


class Partitions(ByOperator):
    """Partitions by their table."""

    shared = ("gcp_conn_id", "impersonation_chain")
    known = (*shared, *_TABLE, "deferrable", "partition_id")

    def read(self, arguments: Mapping[str, Any]) -> tuple[tuple[str, ...], str] | None:
        """Return the table and the partition."""
        table, partition = [arguments.get(name) for name in _TABLE], arguments.get("partition_id")
        if not isinstance(partition, str):
            return None
        named = tuple(each for each in table if isinstance(each, str))
        return (named, partition) if len(named) == len(table) else None

    def answers(self, operator: Any, kin: tuple[str, str, str], asked: Sequence[str]) -> Sequence[bool]:
        """List the partitions."""
        project, dataset, table = kin
        hook = BigQueryHook(gcp_conn_id=operator.gcp_conn_id, impersonation_chain=operator.impersonation_chain)
        reference = TableReference(DatasetReference(project, dataset), table)
        try:
            found = set(hook.get_client(project_id=project).list_partitions(reference))
        except NotFound:
            found = set()  # to the native sensor no partition is there then
        return [partition in found for partition in asked]


def shared_call(cls: type, found: Any) -> Partitions | None:
    """Return the shared call of BigQueryTablePartitionExistenceSensor."""
    return Partitions(found) if fits(cls, found, BigQueryTablePartitionExistenceSensor) else None
