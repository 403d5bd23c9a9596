"""The tasks of task groups, as the latest version of a DAG has them.

The execution API reads that version from the database for every request. Here only the hashes are read each time, for
all DAGs in one statement, and a DAG itself when its hash is new.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from threading import Lock
from typing import Any

from airflow.models.dag_version import DagVersion
from airflow.models.serialized_dag import SerializedDagModel
from sqlalchemy import func, select, tuple_

from sensorpool.airflow.pool.adapters.queries import rows_of

KEPT = 500  # DAGs
STREAMED = 10  # serialized DAGs in memory: they may have megabytes each

Group = tuple[str, str]  # DAG and group
Version = tuple[Any, str]  # of a DAG: the id of its row and its hash, for Airflow may rewrite the row
Tasks = Mapping[str, tuple[str, ...]]  # of each group

_kept: OrderedDict[Version, Tasks] = OrderedDict()
_lock = Lock()


def tasks_of_groups(groups: Collection[Group], session: Any) -> dict[Group, tuple[str, ...] | Exception]:
    """Return the tasks of each group and of the groups in it; a LookupError where there is no such group.

    Rules and texts are those of ``_get_group_tasks`` in the execution API's ``routes/task_instances.py``.

    :raises Exception: when the database does not answer.
    """
    latest = _latest({dag_id for dag_id, _ in groups}, session)
    with _lock:
        known: dict[Version, Tasks | Exception] = {
            version: _kept[version] for version in latest.values() if version in _kept
        }
    known |= _load([version for version in latest.values() if version not in known], session)
    return {(dag_id, group_id): _in(known, latest.get(dag_id), dag_id, group_id) for dag_id, group_id in groups}


def _in(
    known: Mapping[Version, Tasks | Exception], version: Version | None, dag_id: str, group_id: str
) -> tuple[str, ...] | Exception:
    tasks = None if version is None else known.get(version)
    if tasks is None:
        return LookupError(f"The Dag with ID: `{dag_id}` was not found")
    if isinstance(tasks, Exception):
        return tasks
    if group_id not in tasks:
        return LookupError(f"Task group {group_id} not found in DAG {dag_id}")
    return tasks[group_id]


def _latest(dag_ids: Iterable[str], session: Any) -> dict[str, Version]:
    """Return the latest version of each DAG, the one with the highest number, as ``SerializedDagModel.get`` does."""
    of_version = SerializedDagModel.dag_version_id == DagVersion.id
    highest = (
        select(SerializedDagModel.dag_id, func.max(DagVersion.version_number))
        .join(DagVersion, of_version)
        .group_by(SerializedDagModel.dag_id)
    )
    numbers = [tuple(row) for row in rows_of(highest, SerializedDagModel.dag_id, dag_ids, session)]
    versions = select(SerializedDagModel.dag_id, SerializedDagModel.id, SerializedDagModel.dag_hash).join(
        DagVersion, of_version
    )
    key = tuple_(SerializedDagModel.dag_id, DagVersion.version_number)
    return {dag_id: (row_id, dag_hash) for dag_id, row_id, dag_hash in rows_of(versions, key, numbers, session)}


def _load(versions: Collection[Version], session: Any) -> dict[Version, Tasks | Exception]:
    """Read DAGs, and keep the tasks of their groups. An unreadable DAG fails only the sensors that wait for it."""
    hashes = dict(versions)
    query = select(SerializedDagModel).execution_options(yield_per=STREAMED)
    found: dict[Version, Tasks | Exception] = {}
    for (row,) in rows_of(query, SerializedDagModel.id, hashes, session):
        version = (row.id, hashes[row.id])
        try:
            row.load_op_links = False  # the links need the plugins of the DAG's author
            groups = row.dag.task_group_dict.items()
            tasks = {group_id: tuple(task.task_id for task in group.iter_tasks()) for group_id, group in groups}
        except Exception as error:
            found[version] = error
            continue
        found[version] = tasks
        if row.dag_hash == version[1]:  # else Airflow has rewritten the row since: it is read again
            _keep(version, tasks)
    return found


def _keep(version: Version, tasks: Tasks) -> None:
    with _lock:
        _kept[version] = tasks
        while len(_kept) > KEPT:
            _kept.popitem(last=False)
