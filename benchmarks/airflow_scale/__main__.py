"""The command of this benchmark, in the environment of `make e2e`.

.venv-e2e/bin/python -m benchmarks.airflow_scale             # 10,000 sensors by the scheduler, 300 by each way
.venv-e2e/bin/python -m benchmarks.airflow_scale --quick     # a tenth of that
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import click

from benchmarks.airflow_scale.bench import Bench
from benchmarks.airflow_scale.dag_files import DEFERRABLE, POOLED, RESCHEDULE, SCHEDULER, WORKER
from benchmarks.airflow_scale.estimate import estimate
from benchmarks.airflow_scale.measure import at_once, measure
from benchmarks.report import Row, console, show, write

COMMAND = ".venv-e2e/bin/python -m benchmarks.airflow_scale"
PARTS = ("sizes", "at-once", "begin", "ways", "savings")


def _rows(bench: Bench, part: str, scale: float) -> Iterator[Row]:
    many = round(10_000 * scale)
    if part == "ways":
        # two cores start three tasks a second on workers, and each poke of a sensor that reschedules itself is such a
        # start: many more than 50 of these are not poked once in their 60 s
        for way, sensors in ((SCHEDULER, 300), (DEFERRABLE, 300), (WORKER, 300), (RESCHEDULE, 50)):
            beside = max(10, round(sensors * scale))  # one in each DAG
            yield measure(bench, way, "beside", beside, 10, beside)
    elif part == "savings":
        yield from estimate(bench, RESCHEDULE, POOLED, 50, 10)
    elif part == "sizes":
        for tasks in (61, 401, 1001):
            yield measure(bench, SCHEDULER, f"of_{tasks}", tasks, 1, tasks)
    elif part == "at-once":
        for run, sensors in enumerate((500, 500, 500, 1000), 1):
            yield at_once(bench, SCHEDULER, round(sensors * scale), run)
    else:
        yield measure(bench, SCHEDULER, "many", many, 50, max(1, many // 5))


@click.command()
@click.option("--quick", is_flag=True, help="A tenth of the sensors; nothing is written.")
@click.option("--only", type=click.Choice(PARTS), multiple=True, help="A part of it.")
def main(*, quick: bool, only: tuple[str, ...]) -> None:
    """Measure thousands of sensors on one real Airflow, by the ways in which a sensor can begin and wait."""
    with tempfile.TemporaryDirectory(prefix="sensorpool-bench-") as folder:
        options = {"start": "scheduler", "exclude": "reschedule_*"}
        with Bench(Path(folder), **options) as bench:
            at_once(bench, SCHEDULER, 10, 0)  # the first sensors of a triggerer have modules imported
            for part in only or PARTS:
                question, found = f"airflow_{part.replace('-', '_')}", []
                for row in _rows(bench, part, 0.1 if quick else 1.0):
                    show(question, [row])
                    found.append(row)
                if not quick:
                    console.print(f"written: {write(question, found, f'{COMMAND} --only {part}')}")


if __name__ == "__main__":
    main()
