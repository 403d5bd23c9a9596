"""The files in which the processes of a worker count: one place in the pool each, whoever works there."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

from sensorpool.worker.metrics import OTHER
from tests.support.small_disk import FILL, on_a_small_disk

WORKS_ON = f"""
import os, sys
from sensorpool.model.values import JobResult
from sensorpool.worker import metrics
metrics.prepare()
counts = metrics.Metrics()
counts.start()
counts.job(JobResult(saved=1))
{FILL}
counts.count("jobs_refused")  # on blocks that this process has
child = os.fork()
if child == 0:
    counts.begin_child(0)
    for each in range(200):
        counts.not_here({{f"a.Class{{each}}"}}, False)
    counts.job(JobResult(saved=1))
    print("the child works on", flush=True)
    os._exit(0)
print("status", os.waitpid(child, 0)[1], flush=True)
print(len(list(metrics.collector().collect())) > 0, flush=True)
"""


def test_a_child_lives_on_a_full_disk(tmp_path: Path) -> None:
    done = on_a_small_disk(WORKS_ON, tmp_path)
    strike, works, status, collected = done.stdout.splitlines()
    said = [line for line in done.stderr.splitlines() if "metrics are not counted" in line]
    assert strike == os.strerror(errno.ENOSPC)
    assert (works, status, collected) == ("the child works on", "status 0", "True")
    assert len(said) == 1, said


PLACES = """
import json, os
from pathlib import Path
from sensorpool.worker import metrics
metrics.prepare()
counts = metrics.Metrics()
counts.start()
counts.count("jobs_refused")

def work_at(index, refused, not_here):
    if (child := os.fork()) == 0:
        counts.begin_child(index)
        for _ in range(refused):
            counts.count("jobs_refused")
        counts.not_here(not_here, False)
        for name in not_here:
            counts.count("shared_calls", 1, name)
        os._exit(0)
    os.waitpid(child, 0)

def told():
    samples = [each for metric in metrics.collector().collect() for each in metric.samples]
    return {
        "refused": sum(each.value for each in samples if each.name == "sensorpool_jobs_refused_total"),
        "not here": sorted(each.labels["op_classpath"] for each in samples
                           if each.name == "sensorpool_not_here" and each.value),
        "shared": {each.labels["op_classpath"]: each.value for each in samples
                   if each.name == "sensorpool_shared_calls_total"},
        "files": len(list(Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]).glob("*.db"))),
    }

work_at(0, 2, {"a.A"})
work_at(1, 3, {"a.B"})
print(json.dumps(told()))
work_at(0, 4, {"a.C"})
print(json.dumps(told()))
work_at(0, 0, {f"b.B{each}" for each in range(100)})
print(json.dumps(sorted(told()["shared"])))
"""


def test_a_child_counts_on_in_the_place_of_a_dead_one(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PLACES],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert not done.stderr
    first, again, names = map(json.loads, done.stdout.splitlines())
    shared = {"a.A": 1, "a.B": 1}
    assert first == {"refused": 6, "not here": ["a.A", "a.B"], "shared": shared, "files": 9}
    assert again == {"refused": 10, "not here": ["a.B", "a.C"], "shared": shared | {"a.C": 1}, "files": 9}
    assert len(names) == 3 + 51, "each process tells fifty by name"
    assert {"a.A", "a.B", "a.C", OTHER} <= set(names)
    assert not list(tmp_path.iterdir()), "the folder goes with the worker"
