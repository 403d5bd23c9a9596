"""The survey: goes through an Airflow's database, DAG by DAG, and adds up what its sensors cost."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from sensorpool.admin.savings import airflow_database
from sensorpool.admin.savings.airflow_database import Part, ReadOnlyDatabase
from sensorpool.admin.savings.estimate import START_SECONDS, Costs, Mode, SensorTry, costs_of, with_duplicates
from sensorpool.admin.savings.records import Taken, TryReader, condition_of, logged, sensors_in, taken_of

POKE_INTERVAL = 60.0  # seconds: BaseSensorOperator's default
UNKNOWN = ("condition", "interval", "starts")
"""What may not be known of a try, so that an assumption counts in its place."""
_HOUR = 3600


@dataclass
class Found:
    """What a survey has found.

    :param entries: the costs by DAG and class of sensors that do not wait in a pool.
    :param task_instances: how many task instances of any kind ended in that time, or go on.
    :param unknown: for how many tries something is not known, by `UNKNOWN`.
    """

    since: datetime
    until: datetime
    poke_interval: float
    entries: defaultdict[tuple[str, str], Costs] = field(default_factory=lambda: defaultdict(Costs))
    modes: Counter[Mode] = field(default_factory=Counter)
    task_instances: int = 0
    unknown: Counter[str] = field(default_factory=Counter)


def survey(airflow: ReadOnlyDatabase, days: float, poke_interval: float = POKE_INTERVAL) -> Found:
    """Survey the tries that ended in the last days, and those that go on.

    :param poke_interval: seconds, where Airflow does not keep it.
    :raises SchemaMismatch: when the database is not that of an Airflow 3.
    :raises Unreachable: when the database does not answer.
    """
    until = datetime.now(UTC)
    found = Found(until - timedelta(days=days), until, poke_interval)
    alike: defaultdict[bytes | None, list[SensorTry]] = defaultdict(list)
    for one in _tries(airflow, found):
        found.modes[one.mode] += 1
        if one.mode is not Mode.POOLED:
            alike[one.condition].append(one)
    unknown = alike.pop(None, [])
    found.unknown["condition"] = sum(one.mode is not Mode.DEFERRED for one in unknown)
    known = (each for tries in alike.values() for each in with_duplicates(tries))
    for one, duplicates in [*((one, 0.0) for one in unknown), *known]:
        is_taken = taken_of(one.op_classpath) is Taken.BY_DEFAULT
        found.entries[one.dag_id, one.op_classpath].add(costs_of(one, duplicates, is_taken=is_taken))
    return found


def _tries(airflow: ReadOnlyDatabase, found: Found) -> Iterator[SensorTry]:
    """Yield the tries of all sensors, and note what is not known."""
    reader = TryReader(found.until.timestamp(), found.poke_interval, found.unknown)
    for dag_id, counts in airflow.read(airflow_database.count_by_task, found.since).items():
        sensors = sensors_in(*airflow.read(airflow_database.serialized, dag_id))
        found.task_instances += sum(counts.values())
        part = Part(dag_id, tuple(counts.keys() & sensors.keys()), found.since)
        if not part.task_ids:
            continue
        seen = logged(airflow.read(airflow_database.events, part))
        dates = airflow.read(airflow_database.logical_dates, dag_id)
        conditions = {
            key: condition_of(dag_id, sensors[key[0]], rendered, dates.get(key[1]))
            for key, rendered in airflow.read(airflow_database.rendered_fields, part)
        }
        for row in airflow.read(airflow_database.tries, part):
            condition = conditions.get(row.key[:3])
            if (one := reader.read(dag_id, sensors[row.key[0]], row, seen.get(row.key), condition)) is not None:
                yield one


def report(found: Found) -> dict[str, Any]:
    """Return a survey in the form of ``sensorpool savings --json``."""
    by_taken = dict.fromkeys(Taken, _shown(Costs())) | _sums(found, lambda _, path: taken_of(path))
    by_class = _sums(found, lambda _, path: path)
    return {
        "since": found.since.isoformat(timespec="seconds"),
        "until": found.until.isoformat(timespec="seconds"),
        "task_instances": found.task_instances,
        "assumptions": {"start_seconds": START_SECONDS, "poke_interval": found.poke_interval},
        "total": _sums(found, lambda *_: "").get("", _shown(Costs())),
        "by_taken": by_taken,
        "by_dag": [{"dag_id": name, **costs} for name, costs in _sums(found, lambda dag_id, _: dag_id).items()],
        "by_class": [{"class": path, **costs, "taken": taken_of(path)} for path, costs in by_class.items()],
        "modes": {mode: found.modes[mode] for mode in Mode},
        "unknown": {name: found.unknown[name] for name in UNKNOWN},
    }


def _sums(found: Found, name_of: Callable[[str, str], str]) -> dict[str, dict[str, Any]]:
    """Return the costs by a name, those with the most slot-hours first."""
    sums: defaultdict[str, Costs] = defaultdict(Costs)
    for owner, costs in found.entries.items():
        sums[name_of(*owner)].add(costs)
    return {name: _shown(sums[name]) for name in sorted(sums, key=lambda name: (-sums[name].slot_seconds, name))}


def _shown(costs: Costs) -> dict[str, Any]:
    """Return costs with hours of slots, and whole pokes."""
    return {
        "tries": costs.tries,
        "slot_hours": round(costs.slot_seconds / _HOUR, 3),
        "pokes": round(costs.pokes),
        "duplicate_pokes": round(costs.duplicates),
        "starts": costs.starts,
        "with_pool": {
            "slot_hours": round(costs.pool_slot_seconds / _HOUR, 3),
            "pokes": round(costs.pool_pokes),
            "starts": costs.pool_starts,
        },
    }
