"""Problems of a pool as a whole, for several commands: each is one line, with its mend."""

from collections.abc import Sequence

from sensorpool.client.pool_view import PoolView
from sensorpool.errors import SensorpoolError
from sensorpool.instrumentation.redaction import hide_password, printable
from sensorpool.leases.child_deaths import LATELY, ChildDeath
from sensorpool.model.terms import LiveWorker, unequal_budgets, untaken
from sensorpool.model.times import spell_time
from sensorpool.model.unsettled import LOCKED
from sensorpool.model.values import LONGEST_SPAN, Unsettled
from sensorpool.publish.wire import queue_of
from sensorpool.store import blocking, callbacks, inspecting, loading
from sensorpool.store.schema import poke_group, sensor_instance

UNTOLD = 300.0  # seconds
TRIGGERER_AWAY = 90.0  # seconds: a triggerer looks every 15 s, and a restart of it takes a while
REPEATED = 3  # deaths of processes in `LATELY` after which `health` reports them
KILLED = 10  # the same for kills from outside, of which a few are an operator's


def disagreements(pool: PoolView, workers: list[LiveWorker]) -> list[str]:
    """Return a line for each difference of live workers from each other and from the settings here.

    :raises Unreachable: when Redis does not answer.
    """
    problems = pool.disagreements(workers) + [
        printable(line)[:400] for line in untaken(queue_of(pool.settings), workers) + unequal_budgets(workers)
    ]
    foreign = pool.roster.foreign()
    if foreign is not None:
        problems.append(
            f"jobs come for the range {foreign}, which no worker has: a beat or a registrant has other SHARDS or "
            "another SHARD_CODE_UPPER_LIMIT"
        )
    return problems


def longest_tick(pool: PoolView, workers: Sequence[LiveWorker]) -> float:
    """Return the longest tick (seconds) that is known: of this process, live workers and beat. Pokes come at that one.

    :raises Unreachable: when Redis does not answer.
    """
    known = [pool.roster.beat_tick() or 0.0, *(worker.tick for worker in workers if worker.tick <= LONGEST_SPAN)]
    return max(pool.settings.tick, *known)


def no_triggerer(pool: PoolView) -> list[str]:
    """Return a line if tasks of Airflow wait, and the triggerers that took up their ends are gone.

    One that was never there is not missed here: `doctor` asks Airflow.

    :raises Unreachable: when Redis or the database does not answer.
    """
    age = pool.roster.triggerer_age()
    if age is None or age < TRIGGERER_AWAY:
        return []
    before = pool.database.read(pool.database.now) - round(1_000 * TRIGGERER_AWAY)  # what is newer may be on its way
    if not pool.database.read(inspecting.has_external, before):
        return []
    return [
        f"no triggerer of Airflow has looked at the pool for {age:.0f} s, and tasks that wait do not end without one: "
        "start `airflow triggerer`"
    ]


def untold(pool: PoolView) -> list[str]:
    """Return a line for results and callbacks that have waited to be sent for more than `UNTOLD` seconds."""
    try:
        now = pool.database.read(pool.database.now)
        backlog = pool.database.read(callbacks.backlog)
        oldest = pool.database.read(inspecting.oldest_unpublished)
    except SensorpoolError as error:
        return [str(error)]
    problems = [
        f"on_settled tasks wait to be sent: {each.waiting} of {printable(each.task)}, for {waited:.0f} s: "
        f"{each.cause or 'no worker has tried to send them'}"
        for each in backlog
        if (waited := (now - each.oldest) / 1000) > UNTOLD
    ]
    if oldest is not None and (waited := (now - oldest) / 1000) > UNTOLD:
        problems.append(f"results wait to be published, for {waited:.0f} s: does the broker answer?")
    return problems


def died_again_and_again(deaths: Sequence[ChildDeath]) -> list[str]:
    """Return a line if processes die again and again, with the mend."""
    own, killed = [each for each in deaths if not each.outside], [each for each in deaths if each.outside]
    problems: list[str] = []
    if len(own) >= REPEATED:
        last = own[-1]
        problems.append(
            f"processes of the workers die again and again: {len(own)} in {LATELY / 60:g} minutes, the last one of "
            f"{last.worker} ({last.cause}): a poke ends them, and is quarantined after three "
            "(`sensorpool quarantine`); or a thread that a poke left behind, which the pool does not find: mend the "
            "sensor, or the library that it uses"
        )
    if len(killed) >= KILLED:
        last = killed[-1]
        problems.append(
            f"processes of the workers are killed again and again: {len(killed)} in {LATELY / 60:g} minutes, the last "
            f"one of {last.worker} ({last.cause}): by a poke that signals its own process, by the kernel for want of "
            "memory, or by hand"
        )
    return problems


def unsettled_groups(pool: PoolView) -> dict[int, Unsettled]:
    """Return the groups whose result cannot be written, the longest unsettled first."""
    unsettled = pool.leases.unsettled.of(pool.ranges)
    if not unsettled:
        return {}
    existing = pool.database.read(loading.there, list(unsettled))
    return dict(sorted(((i, each) for i, each in unsettled.items() if i in existing), key=lambda item: item[1].since))


def unsettled_problems(pool: PoolView) -> list[str]:
    unsettled = unsettled_groups(pool)
    if not unsettled:
        return []
    group_id, first = next(iter(unsettled.items()))
    groups = f"group {group_id}" if len(unsettled) == 1 else f"{len(unsettled)} groups (group {group_id} and others)"
    cause, window = first.cause, pool.settings.infra_failure_window
    if cause == LOCKED:
        schema = pool.settings.database_schema or ""
        tables = [poke_group.name, sensor_instance.name]
        cause += f" ({printable(hide_password(pool.database.read(blocking.holder, schema, tables)))})"
    return [
        f"the result of {groups} cannot be written, since {spell_time(first.since)}: {cause}; "
        f"what is not mended within {window:g} s fails"
    ]
