"""GlueCatalogPartitionSensor: BatchGetPartition for all partitions of a table, and GetTable for its keys.

Where the keys are no strings, or an expression says more than which partition it is, the sensor's own poke answers.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.providers.amazon.aws.sensors.glue_catalog_partition import GlueCatalogPartitionSensor

from sensorpool.airflow.pool.shared_calls import partitions
from sensorpool.airflow.pool.shared_calls.by_operator import ByOperator, fits
from sensorpool.airflow.pool.shared_calls.partitions import Spec, Table

_AT_ONCE = 1_000  # partitions in one call, as Glue takes them


class Partitions(ByOperator):
    """Partitions by their table."""

    shared = ("aws_conn_id", "region_name", "verify")
    known = (*shared, "database_name", "deferrable", "expression", "table_name")

    def read(self, arguments: Mapping[str, Any]) -> tuple[Table, Spec] | None:
        """Return the table, and the partition that the expression is of."""
        named = (arguments.get(name) for name in ("database_name", "table_name", "expression"))
        return partitions.by_expression(*named)

    def answers(self, operator: Any, kin: Table, asked: Sequence[Spec]) -> Sequence[bool]:
        """Ask for all partitions.

        :raises Exception: where there is no such table: each poke tells of it.
        """
        client, where = operator.hook.get_conn(), {"DatabaseName": kin[0], "TableName": kin[1]}
        columns = client.get_table(DatabaseName=kin[0], Name=kin[1])["Table"].get("PartitionKeys", [])
        if any(column.get("Type", "").lower() != "string" for column in columns):
            return [True] * len(asked)
        values = [partitions.values_of(spec, [column["Name"] for column in columns]) for spec in asked]
        wanted = sorted({each for each in values if each is not None})
        may_be = set[tuple[str, ...]]()
        for start in range(0, len(wanted), _AT_ONCE):
            some = [{"Values": list(each)} for each in wanted[start : start + _AT_ONCE]]
            answer = client.batch_get_partition(**where, PartitionsToGet=some)
            found = [*answer.get("Partitions", ()), *answer.get("UnprocessedKeys", ())]
            may_be.update(tuple(each["Values"]) for each in found)
        return [each is None or each in may_be for each in values]


def shared_call(cls: type, found: Any) -> Partitions | None:
    """Return the shared call of GlueCatalogPartitionSensor."""
    return Partitions(found) if fits(cls, found, GlueCatalogPartitionSensor) else None
