"""The arithmetic of one try: its slot, its starts, its pokes, and what the pool makes of them (docs/savings.md)."""

from dataclasses import replace

from sensorpool.admin.savings.values import Costs, Mode, SensorTry, Span, Taken

START_SECONDS = 0.6  # what a start of a task costs before its code runs, measured: docs/benchmarks.md
POKE_INTERVAL = 60.0  # seconds: BaseSensorOperator's default
SHORTEST_INTERVAL = 1.0  # seconds: a shorter one counts as this
STARTS_IN_POOL = 2  # one to poke once and register, one to end


def pokes_in(waited: float, interval: float) -> int:
    """Return how many pokes a sensor makes that pokes at once and then once an interval (seconds)."""
    return 1 + int(max(waited, 0.0) / max(interval, SHORTEST_INTERVAL))


def pokes_of(one: SensorTry) -> int:
    """Return how many pokes of Airflow's workers a try made.

    In mode "poke" that is an estimate. In mode "reschedule" each start is a poke. A trigger polls in its own way, which
    Airflow does not record, so a deferred try counts none.
    """
    if one.mode is Mode.POKE:
        return pokes_in(one.ended - one.begun, one.interval)
    return one.starts if one.mode is Mode.RESCHEDULE else 0


def slot_seconds(held: float, starts: int, start_seconds: float) -> float:
    """Return for how long worker slots were held: while its processes ran, and while each of them started."""
    return held + starts * start_seconds


def costs_of(one: SensorTry, taken: Taken, start_seconds: float = START_SECONDS) -> Costs:
    """Return what a try costs, as if no other waited for the same.

    With the pool a try that waits holds its slot for two starts. In mode "reschedule" each of them runs as long as
    those that were made; in mode "poke" that is not known, and counts as nothing. What ends with its first poke, what
    defers by itself and what the pool does not take by default stays as it is.
    """
    pokes = pokes_of(one)
    now = Costs(1, slot_seconds(one.held, one.starts, start_seconds), pokes, 0.0, one.starts)
    if taken is not Taken.BY_DEFAULT or pokes <= 1:
        return replace(now, pool_slot_seconds=now.slot_seconds, pool_pokes=pokes, pool_starts=one.starts)
    runs = one.held / one.starts * STARTS_IN_POOL if one.mode is Mode.RESCHEDULE else 0.0
    return replace(
        now,
        pool_slot_seconds=min(now.slot_seconds, slot_seconds(runs, STARTS_IN_POOL, start_seconds)),
        pool_pokes=pokes,
        pool_starts=STARTS_IN_POOL,
    )


def span_of(one: SensorTry) -> Span | None:
    """Return the pokes of a try after its first one, or None if it made no other."""
    more = pokes_of(one) - 1
    if more < 1:
        return None
    interval = max(one.interval, SHORTEST_INTERVAL)
    seconds = more * interval if one.mode is Mode.POKE else max(one.ended - one.begun, SHORTEST_INTERVAL)
    return Span((one.dag_id, one.op_classpath), one.begun, seconds, more)


def after_duplicates(costs: Costs, duplicates: float, taken: Taken) -> Costs:
    """Return costs with their duplicate pokes: the pool does not make those of a class that it takes."""
    spared = duplicates if taken is Taken.BY_DEFAULT else 0.0
    return replace(costs, duplicates=duplicates, pool_pokes=max(costs.pool_pokes - spared, 0.0))
