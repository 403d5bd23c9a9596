"""A backend that can bear 50 calls a second, for many more groups; what a budget costs; and an outage.

Twenty thousand groups of one class every minute, of 300 DAGs, want 333 calls a second. Without ``--full`` a tenth of
the groups are asked for ten times as often, so the same calls a second, and the outage is a tenth as long.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.report import Row, demand, quantiles
from benchmarks.sensors import DOWN, RECORD
from benchmarks.stage import Stage, less
from harness.until import until

GROUPS, INTERVAL, DAGS = 20_000, 60.0, 300
RATE = 50  # calls a second
OUTAGE = 300.0  # seconds
CLASSES = ("Metered", "ManyMetered", "NoOp")


def run(full: bool) -> Iterator[Row]:
    """Run the cases."""
    scale = 1 if full else 10
    yield _budget("Metered", "50/s, one call for each", scale)
    yield _budget("ManyMetered", "50/s, one call for many", scale)
    yield from _overhead(full)
    yield _outage(scale)


class _Scene:
    """A stage with groups of one backend, which record their calls and pokes."""

    def __init__(self, stage: Stage, cls: str, groups: int) -> None:
        self.stage = stage
        self.record = stage.folder / "pokes"
        for path in (self.record, self.calls_file):
            path.touch()
        self.made = stage.pool.register_many(
            {
                "sensor": f"benchmarks.sensors.{cls}",
                "poke_context": {"n": n, "record": str(self.record), "conn_id": "warehouse"},
                "dag_id": f"dag{_dag(n)}",
                "task_id": f"task{n}",
                "run_id": "run",
            }
            for n in range(groups)
        )

    @property
    def calls_file(self) -> Path:
        return self.record.with_suffix(".calls")

    def pokes(self, since: float) -> dict[int, list[float]]:
        """Return when each group was poked."""
        found: dict[int, list[float]] = defaultdict(list)
        for n, at in RECORD.iter_unpack(self.record.read_bytes()):
            if at >= since:
                found[n].append(at)
        return found

    def calls(self, since: float, until_then: float) -> list[float]:
        """Return the moments of the calls."""
        return [at for _, at in RECORD.iter_unpack(self.calls_file.read_bytes()) if since <= at < until_then]


def _budget(cls: str, case: str, scale: int) -> Row:
    groups, interval, tick = GROUPS // scale, INTERVAL / scale, 5.0 if scale == 1 else 1.0
    with _stage(interval, tick, budgets=f'{{"warehouse": "{RATE}/s"}}') as stage:
        scene = _Scene(stage, cls, groups)
        stage.start()
        until("calls", lambda: scene.calls_file.stat().st_size, 120)
        stretched = max(interval, groups / RATE) if cls == "Metered" else interval
        time.sleep(stretched)  # until each has had its turn
        cpu, began = stage.cpu(), time.time()
        time.sleep(1.5 * stretched)
        used, ended = less(stage.cpu(), cpu), time.time()
        found, calls = scene.pokes(began), scene.calls(began, ended)
        pokes = sum(map(len, found.values()))
        gaps = [later - earlier for moments in found.values() for earlier, later in pairwise(moments)]
        demand(len(found) > 0.98 * groups, f"only {len(found)} of {groups} groups were poked")
        return {
            "case": case,
            "groups": groups,
            "interval, s": interval,
            "calls a second": len(calls) / (ended - began),
            "calls in a second, most": _most_in_a_second(calls),
            "pokes a second": pokes / (ended - began),
            "between two pokes of a group, intervals": quantiles([gap / interval for gap in gaps]),
            "fairness between DAGs, Jain's index": _jain(_of_dags(found)),
            "fairness between groups, Jain's index": _jain([len(found.get(n, ())) for n in range(groups)]),
            "CPU of a poke, µs": 1e6 * sum(used.values()) / pokes,
            "states": stage.states(),
        }


def _overhead(full: bool) -> Iterator[Row]:
    """Pokes that cost nothing, without a budget and with one that is never used up."""
    groups, interval = (20_000, 10.0) if full else (5_000, 5.0)
    for case, budgets in (("no-op pokes, no budget", "{}"), ("no-op pokes, a budget", '{"*": "1000000/s"}')):
        with _stage(interval, 1.0, budgets=budgets) as stage:
            stage.pool.register_many(
                {"sensor": "benchmarks.sensors.NoOp", "poke_context": {"n": n}, "dag_id": f"dag{_dag(n)}",
                 "task_id": f"task{n}", "run_id": "run"} for n in range(groups)
            )  # fmt: skip
            stage.start()
            until("a poke of each", lambda stage=stage: stage.counters()["poked"] >= groups, 300, 0.5)
            time.sleep(interval)
            cpu, counted = stage.cpu(), stage.counters()["poked"]
            time.sleep(4 * interval)
            used, pokes = less(stage.cpu(), cpu), stage.counters()["poked"] - counted
            demand(pokes > 3.8 * groups, f"only {pokes} pokes")
            yield {"case": case, "groups": groups, "CPU of a poke, µs": 1e6 * sum(used.values()) / pokes}


def _outage(scale: int) -> Row:
    """The backend refuses for a while: what is asked of it then, and how it comes back."""
    groups, interval, tick = GROUPS // scale, INTERVAL / scale, 5.0 if scale == 1 else 1.0
    with _stage(interval, tick) as stage:
        scene = _Scene(stage, "Metered", groups)
        stage.start()
        until("a poke of each", lambda: len(scene.pokes(0)) == groups, 600, 1.0)
        time.sleep(interval)
        down, began = scene.record.with_suffix(DOWN), time.time()
        before = Counter(int(at) for at in scene.calls(began - interval, began))
        down.touch()
        time.sleep(OUTAGE / scale)
        failed = stage.states()
        down.unlink()
        healed = time.time()
        during = scene.calls(began, healed)
        until("a poke of each", lambda: len(scene.pokes(healed)) == groups, 10 * interval + 120, 0.5)
        all_poked = time.time() - healed
        time.sleep(2 * interval)
        full_rate = groups / interval
        after = Counter(int(at - healed) for at in scene.calls(healed, time.time() - 1))
        demand(set(failed) == {"sensing"}, f"no sensor ends: {failed}")
        said = sum("a backend is away" in line for line in stage.service.logs().splitlines())
        window = max(5, round(interval / 2))  # seconds
        rates = [mean(after[second + n] for n in range(window)) for second in range(max(after) - window)]
        return {
            "case": f"an outage of {OUTAGE / scale:g} s",
            "groups": groups,
            "interval, s": interval,
            "calls during the outage": len(during),
            "calls that it would have had": round(full_rate * OUTAGE / scale),
            "lines of log": said,
            "failed": sum(number for state, number in stage.states().items() if state != "sensing"),
            "seconds to 90 % of the full rate": next(s for s, rate in enumerate(rates) if rate >= 0.9 * full_rate),
            "seconds until each was poked": all_poked,
            "calls in a second, most over the mean: before": max(before.values()) / full_rate,
            "calls in a second, most over the mean: afterwards": max(after.values()) / full_rate,
        }


def _stage(interval: float, tick: float, **settings: Any) -> Stage:
    enabled = ",".join(f"benchmarks.sensors.{name}" for name in CLASSES)
    return Stage(tick=tick, poke_interval=interval, timeout=86_400, sensors_enabled=enabled, **settings)


def _dag(n: int) -> int:
    """Return the DAG of a group: a third of the groups are of one large DAG."""
    return 0 if n % 3 == 0 else n % DAGS


def _of_dags(found: dict[int, list[float]]) -> list[float]:
    """Return how often the groups of each DAG were poked, a group."""
    pokes, groups = Counter[int](), Counter[int]()
    for n, moments in found.items():
        pokes[_dag(n)] += len(moments)
        groups[_dag(n)] += 1
    return [pokes[dag] / groups[dag] for dag in groups]


def _jain(values: list[Any]) -> float:
    return round(float(sum(values)) ** 2 / (len(values) * sum(value * value for value in values)), 4)


def _most_in_a_second(calls: list[float]) -> int:
    most = first = 0
    moments = sorted(calls)
    for place, at in enumerate(moments):
        while moments[first] <= at - 1:
            first += 1
        most = max(most, place - first + 1)
    return most
