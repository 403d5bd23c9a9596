"""Hive's partition sensors: two calls for all partitions of a table, its keys, and which partitions are there.

Where a table has keys that are no strings, or a sensor does not name all of them, its own poke answers: the metastore
then compares in ways of its own.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.providers.apache.hive.hooks.hive import HiveMetastoreHook
from airflow.providers.apache.hive.sensors.hive_partition import HivePartitionSensor
from airflow.providers.apache.hive.sensors.metastore_partition import (
    _METASTORE_PARTITION_SQL,
    MetastorePartitionSensor,
)
from airflow.providers.apache.hive.sensors.named_hive_partition import NamedHivePartitionSensor
from hmsclient.genthrift.hive_metastore.ttypes import NoSuchObjectException

from sensorpool.airflow.pool.shared_calls import partitions, sql
from sensorpool.airflow.pool.shared_calls.by_operator import ByOperator, fits
from sensorpool.airflow.pool.shared_calls.partitions import Spec, Table

_AT_ONCE = 1_000  # names in one call


class Partitions(ByOperator):
    """Partitions by their table."""

    shared = ("metastore_conn_id",)

    def answers(self, operator: Any, kin: Table, asked: Sequence[tuple[Spec, ...]]) -> Sequence[bool]:
        """Ask for all partitions."""
        with HiveMetastoreHook(metastore_conn_id=operator.metastore_conn_id).metastore as client:
            try:
                columns = client.get_table(*kin).partitionKeys
            except NoSuchObjectException:
                return self.without_table(len(asked))
            if any(column.type.lower() != "string" for column in columns):
                return [True] * len(asked)
            keys = [column.name for column in columns]
            values = {spec: partitions.values_of(spec, keys) for specs in asked for spec in specs}
            names = {spec: _name(keys, found) for spec, found in values.items() if found is not None}
            there = _there(client, kin, sorted(set(names.values())))
        return [all(spec not in names or values[spec] in there for spec in specs) for specs in asked]

    def without_table(self, number: int) -> Sequence[bool]:
        """Answer for a table that is not there."""
        return [True] * number  # its poke's error tells


class Named(Partitions):
    """Of NamedHivePartitionSensor."""

    known = ("metastore_conn_id", "partition_names")

    def read(self, arguments: Mapping[str, Any]) -> tuple[Table, tuple[Spec, ...]] | None:
        """Return the table and the partitions, all of one table."""
        names = arguments.get("partition_names")
        if not isinstance(names, list) or not names:
            return None
        found = [NamedHivePartitionSensor.parse_partition_name(name) for name in names]
        specs = [partitions.of_name(name) for _, _, name in found]
        tables = {(schema, table) for schema, table, _ in found}
        if len(tables) > 1 or None in specs:
            return None
        return min(tables), tuple(spec for spec in specs if spec is not None)

    def without_table(self, number: int) -> Sequence[bool]:
        """Answer for a table that is not there: to the native sensor its partitions are not there either."""
        return [False] * number


class ByFilter(Partitions):
    """Of HivePartitionSensor."""

    known = ("metastore_conn_id", "partition", "schema", "table")

    def read(self, arguments: Mapping[str, Any]) -> tuple[Table, tuple[Spec, ...]] | None:
        """Return the table, and the partition that the expression is of."""
        found = partitions.by_expression(*(arguments.get(name) for name in ("schema", "table", "partition")))
        return None if found is None else (found[0], (found[1],))


class InItsDatabase(sql.Statements):
    """Of MetastorePartitionSensor: the statements on one connection."""

    shared = ("conn_id", "mysql_conn_id")
    known = (*shared, "partition_name", "schema", "sql", "table")
    structured = ()

    def read(self, arguments: Mapping[str, Any]) -> tuple[None, sql.Asked] | None:
        """Return the statement."""
        where = partitions.table_of(arguments.get("schema"), arguments.get("table"))
        if where is None or arguments.get("sql") != _METASTORE_PARTITION_SQL:
            return None
        named = {"table": where[1], "schema": where[0], "partition_name": arguments.get("partition_name")}
        return None, sql.as_asked(_METASTORE_PARTITION_SQL, named)


def _name(keys: Sequence[str], values: Sequence[str]) -> str:
    return "/".join(f"{key}={value}" for key, value in zip(keys, values, strict=True))


def _there(client: Any, table: Table, names: Sequence[str]) -> set[tuple[str, ...]]:
    """Return the values of those partitions that are there."""
    found: set[tuple[str, ...]] = set()
    for start in range(0, len(names), _AT_ONCE):
        some = client.get_partitions_by_names(*table, list(names[start : start + _AT_ONCE]))
        found.update(tuple(each.values) for each in some)
    return found


def of_named(cls: type, found: Any) -> Named | None:
    """Return the shared call of NamedHivePartitionSensor."""
    return Named(found) if fits(cls, found, NamedHivePartitionSensor) else None


def of_filter(cls: type, found: Any) -> ByFilter | None:
    """Return the shared call of HivePartitionSensor."""
    return ByFilter(found) if fits(cls, found, HivePartitionSensor) else None


def of_metastore(cls: type, found: Any) -> InItsDatabase | None:
    """Return the shared call of MetastorePartitionSensor."""
    return InItsDatabase(found) if fits(cls, found, MetastorePartitionSensor) else None
