"""One case: sensors begin, wait and end; what that costs above an Airflow that does nothing."""

import time
from collections.abc import Callable

from benchmarks.airflow_scale.bench import Bench
from benchmarks.airflow_scale.dag_files import RESCHEDULE, Way, conditions, write
from benchmarks.report import Row, console, demand
from harness.until import until

RUN = "run1"
HOURS = 3 * 3600.0
IDLE = 30.0  # seconds that are measured while nothing waits
STILL = 60.0  # seconds that are measured while all only wait
LANDINGS = 20  # a second, over all DAGs


class Meter:
    """What is used from here on, less what an idle Airflow uses in the same time.

    :param idle: seconds of CPU a second, by component.
    """

    def __init__(self, bench: Bench, idle: dict[str, float]) -> None:
        self._bench, self._idle = bench, idle
        self._began, self._cpu = time.monotonic(), bench.cpu()

    def read(self) -> tuple[float, dict[str, float]]:
        """Return the seconds since the begin, and the CPU of each component in seconds."""
        took, now = time.monotonic() - self._began, self._bench.cpu()
        return took, {name: now[name] - used - self._idle.get(name, 0.0) * took for name, used in self._cpu.items()}


def idle_of(bench: Bench) -> dict[str, float]:
    """Measure Airflow and the pool while nothing waits: seconds of CPU a second, by component."""
    meter = Meter(bench, {})
    time.sleep(IDLE)
    took, used = meter.read()
    return {name: seconds / took for name, seconds in used.items()}


def known(bench: Bench, dag_ids: list[str]) -> Callable[[], bool]:
    """Return a question: whether Airflow has parsed all DAGs."""
    statement = "SELECT count(*) FROM serialized_dag WHERE dag_id = ANY(:dag_ids)"
    return lambda: bool(bench.rows(statement, dag_ids=dag_ids)[0][0] == len(dag_ids))


def measure(bench: Bench, way: Way, case: str, sensors: int, dags: int, land: int) -> Row:
    """Run a case.

    :param land: how many sensors end one after the other, 20 a second; the others end at once afterwards.
    """
    dag_ids = write(bench.dags, way, case, sensors, dags)
    pooled = way.name in {"scheduler", "worker", "pooled"}
    until(f"{len(dag_ids)} DAGs", known(bench, dag_ids), HOURS, 1.0)
    bench.sleep_until(time.monotonic() + 5)  # what the dag processor does after its last file
    idle = idle_of(bench)
    memory, files = bench.triggerer()

    def waiting() -> int:
        rows = bench.count(dag_ids, RUN, way.waiting)
        return min(rows, bench.sensing(dag_ids, RUN)[0]) if pooled else rows

    begins = Meter(bench, idle)
    for dag_id in dag_ids:
        bench.trigger(dag_id, RUN)
    # natively a sensor that reschedules itself is poked while others begin: nine of ten are seen to wait at once
    enough = sensors * 0.9 if way is RESCHEDULE else sensors
    _progress(f"{way.name}, {sensors} sensors: waiting", waiting, enough)
    took, begun = begins.read()

    still, transactions = Meter(bench, idle), bench.transactions()
    time.sleep(STILL)
    span, waited = still.read()
    transactions = bench.transactions() - transactions
    grown, opened = bench.triggerer()
    waits, distinct = bench.sensing(dag_ids, RUN) if pooled else (sensors, sensors)

    names = conditions(dag_ids, sensors)
    ends = Meter(bench, idle)
    true_at = _land(bench, names, land / sensors)
    landed = len(true_at)
    _progress("success", lambda: bench.count(dag_ids, RUN, "success"), _sensors_of(true_at, dag_ids, sensors))
    ending, ended = ends.read()
    after = _delays(bench, dag_ids, sensors, true_at)
    for name in names[landed:]:
        _touch(bench, name)
    _progress("success", lambda: bench.count(dag_ids, RUN, "success"), sensors)

    # those that wait meanwhile: at the begin half of them on average; at the end all but half of those that end
    rate = {name: used / span for name, used in waited.items()}
    others = took / 2, ending * (1 - len(after) / sensors / 2)
    life = {
        name: 1e3 * ((begun[name] - others[0] * each) / sensors + (ended[name] - others[1] * each) / len(after))
        for name, each in rate.items()
    }
    return {
        "case": f"{way.name}, {sensors:,} in {dags}",
        "sensors": sensors,
        "all wait after, s": round(took, 1),
        "sensors a second that begin to wait": round(sensors / took, 1),
        "CPU of a life, ms": round(sum(life.values()), 1),
        "of that": _by_size(life),
        "CPU of a sensor that waits, µs a second": round(1e6 * sum(rate.values()) / sensors, 1),
        "of that, µs": _by_size({name: 1e6 * each / sensors for name, each in rate.items()}),
        "Airflow's transactions, a sensor and minute": round(60 * transactions / span / sensors, 3),
        "triggerer, KB a waiting sensor": round((grown - memory) / sensors, 1),
        "triggerer, open files a waiting sensor": round((opened - files) / sensors, 2),
        "pokes saved, %": round(100 * (1 - distinct / waits)) if waits else 0,
        "true to success p50, s": round(after[len(after) // 2], 2),
        "true to success p99, s": round(after[int(len(after) * 0.99)], 2),
    }


def at_once(bench: Bench, way: Way, sensors: int, run: int) -> Row:
    """Run sensors whose conditions hold before they begin."""
    dag_ids = write(bench.dags, way, f"at_once_{sensors}_{run}", sensors, 10)
    until(f"{len(dag_ids)} DAGs", known(bench, dag_ids), HOURS, 1.0)
    for name in conditions(dag_ids, sensors):
        _touch(bench, name)
    idle = idle_of(bench)
    meter = Meter(bench, idle)
    for dag_id in dag_ids:
        bench.trigger(dag_id, RUN)

    def over() -> int:
        return sum(bench.count(dag_ids, RUN, state) for state in ("success", "failed", "upstream_failed"))

    _progress(f"{sensors} at once", over, sensors)
    took, used = meter.read()
    succeeded = bench.count(dag_ids, RUN, "success")
    demand(succeeded == sensors, f"{sensors - succeeded} of {sensors} did not succeed")
    return {
        "case": f"{sensors:,} true at once, run {run}",
        "sensors": sensors,
        "all over after, s": round(took, 1),
        "CPU of a life, ms": round(1e3 * sum(used.values()) / sensors, 1),
    }


def _progress(what: str, done: Callable[[], int], wanted: float) -> None:
    """Wait until ``done`` reaches a number, and say how far it is, every ten seconds."""
    said = time.monotonic()
    deadline = said + HOURS
    while (have := done()) < wanted:
        demand(time.monotonic() < deadline, f"{what}: {have} of {wanted:.0f} after hours")
        if time.monotonic() - said > 10:
            said = time.monotonic()
            console.print(f"{what}: {have:,} of {wanted:,.0f}")
        time.sleep(0.25)


def _land(bench: Bench, names: list[str], share: float) -> dict[str, float]:
    """Let a share of the conditions hold, one after the other; return when each did, in seconds since 1970."""
    true_at = {}
    chosen = names[: max(1, round(len(names) * min(1.0, share)))]
    pause = 1 / 0.6 / LANDINGS  # a condition ends 1 / 0.6 sensors
    following = time.monotonic()
    for name in chosen:
        _touch(bench, name)
        true_at[name] = time.time()
        following += pause
        bench.sleep_until(following)
    return true_at


def _touch(bench: Bench, name: str) -> None:
    folder = bench.work / RUN
    folder.mkdir(exist_ok=True)
    (folder / name).touch()


def _name(dag_id: str, task_id: str, sensors: int, dags: int) -> str:
    distinct = max(1, round(sensors // dags * 0.6))
    return f"{int(task_id.removeprefix('wait')) % distinct}_{dag_id}"


def _sensors_of(true_at: dict[str, float], dag_ids: list[str], sensors: int) -> int:
    """Return how many sensors wait for conditions."""
    tasks = sensors // len(dag_ids)
    return sum(
        _name(dag_id, f"wait{number}", sensors, len(dag_ids)) in true_at
        for dag_id in dag_ids
        for number in range(tasks)
    )


def _delays(bench: Bench, dag_ids: list[str], sensors: int, true_at: dict[str, float]) -> list[float]:
    """Return the seconds from true to the task's success, sorted."""
    rows = bench.rows(
        "SELECT dag_id, task_id, extract(epoch FROM end_date) FROM task_instance"
        " WHERE dag_id = ANY(:dag_ids) AND run_id = :run_id AND state = 'success'",
        dag_ids=dag_ids,
        run_id=RUN,
    )
    names = ((_name(row[0], row[1], sensors, len(dag_ids)), float(row[2])) for row in rows)
    return sorted(end - true_at[name] for name, end in names if name in true_at)


def _by_size(figures: dict[str, float]) -> dict[str, float]:
    """Return the figures that are not zero, the largest first."""
    ordered = sorted(figures.items(), key=lambda item: -item[1])
    return {name: rounded for name, each in ordered if (rounded := round(each, 1)) > 0}
