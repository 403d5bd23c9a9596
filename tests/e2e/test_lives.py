"""The lives of a sensor on each version of Airflow: register, land, resume, time out, retry, be marked, go back.

`make e2e-versions` runs this file on the versions that `make e2e` does not run on.
"""

import json
from collections import Counter

import pytest

from tests.e2e.cluster import Cluster

DAG_ID = "lives"
RUN = "lives1"
WAITS_FOR = {  # what each condition does, once all wait
    "lands": "land",
    "lands_in_reschedule_mode": "land",
    "resumes": "land",
    "brings_a_value": 'xcom {"rows": 3}',
    "retries": "raise no such bucket",
    "is_skipped": "skip a holiday",
}
ENDS = {
    "lands": ("success", 1),
    "lands_in_reschedule_mode": ("success", 1),
    "resumes": ("success", 1),
    "brings_a_value": ("success", 1),
    "times_out": ("failed", 1),  # and no retry
    "retries": ("success", 2),
    "is_skipped": ("skipped", 1),
    "is_marked": ("success", 1),
    "is_cleared": ("success", 2),
    "goes_back": ("success", 1),
    "goes_back_in_reschedule_mode": ("success", 1),
}
ENDINGS = {  # of the instances, by task and try
    "lands": {1: "landed"},
    "lands_in_reschedule_mode": {1: "landed"},
    "resumes": {1: "landed"},
    "brings_a_value": {1: "landed"},
    "times_out": {1: "timeout"},
    "retries": {1: "poke_error", 2: "landed"},
    "is_skipped": {1: "skip"},
    "is_marked": {1: None},  # cancelled by its trigger or by rescue: each says it in its own way
    "is_cleared": {1: None, 2: "landed"},
    "goes_back": {1: "handed_back"},
    "goes_back_in_reschedule_mode": {1: "handed_back"},
}


def test_every_life_of_a_sensor(cluster: Cluster) -> None:
    def states() -> dict[str, tuple[str | None, int]]:
        return {task_id: found for (task_id, _), found in cluster.states(DAG_ID, RUN).items() if task_id in ENDS}

    def say(task_id: str, word: str) -> None:
        path = cluster.work / f"{RUN}_{task_id}"
        path.with_suffix(".new").write_text(word)
        path.with_suffix(".new").rename(path)

    cluster.trigger(DAG_ID, RUN)
    cluster.wait_for("a timeout", lambda: states().get("times_out") == ENDS["times_out"])
    waiting = set(ENDS) - {"times_out"}
    cluster.wait_for("the others to wait", lambda: {states()[one] for one in waiting} == {("deferred", 1)})

    cluster.api("PATCH", f"/dags/{DAG_ID}/dagRuns/{RUN}/taskInstances/is_marked", {"new_state": "success"})
    cleared = {"dry_run": False, "only_failed": False, "dag_run_id": RUN, "task_ids": ["is_cleared"]}
    cluster.api("POST", f"/dags/{DAG_ID}/clearTaskInstances", cleared)
    cluster.wait_for("its next try", lambda: states()["is_cleared"] == ("deferred", 2))
    for task_id in ("is_marked", "is_cleared"):
        cluster.wait_for(
            f"the first try of {task_id} to be cancelled",
            lambda one=task_id: (
                [row.state for row in cluster.instances(dag_id=DAG_ID, run_id=RUN, task_id=one, try_number=1)]
                == ["cancelled"]
            ),
        )
    for task_id, word in WAITS_FOR.items():
        say(task_id, word)
    # Airflow 3.4 counts the next try from here on
    cluster.wait_for("the error", lambda: states()["retries"][0] == "up_for_retry")
    say("retries", "wait")
    cluster.wait_for("its next try", lambda: states()["retries"] == ("deferred", 2))
    for task_id in ("retries", "is_cleared"):
        say(task_id, "land")
    ended = set(ENDS) - {"goes_back", "goes_back_in_reschedule_mode"}
    cluster.wait_for("their ends", lambda: {one: states()[one] for one in ended} == {one: ENDS[one] for one in ended})

    cluster.run("sensorpool", "drain")
    cluster.wait_for("it to run natively", lambda: states()["goes_back"] == ("running", 1))
    natively = "goes_back_in_reschedule_mode"
    cluster.wait_for(f"{natively} to do so", lambda: states()[natively][0] == "up_for_reschedule")
    for task_id in ("goes_back", natively):
        say(task_id, "land")
    cluster.wait_for("the end of the run", lambda: cluster.run_state(DAG_ID, RUN) == "failed")  # one timed out

    assert states() == ENDS
    found: dict[str, dict[int, str | None]] = {task_id: {} for task_id in ENDS}
    for row in cluster.instances(dag_id=DAG_ID, run_id=RUN):
        known = ENDINGS[row.task_id].get(row.try_number)
        found[row.task_id][row.try_number] = None if known is None else row.ending
    assert found == ENDINGS
    assert not cluster.instances(dag_id=DAG_ID, run_id=RUN, state="sensing")
    called = Counter(
        (note["task_id"], note["callback"], note["try_number"])
        for note in cluster.notes()
        if note["kind"] == "callback" and note["dag_id"] == DAG_ID
    )
    assert called == {
        ("resumes", "success", 1): 1,
        ("times_out", "failure", 1): 1,
        ("retries", "retry", 1): 1,
        ("retries", "success", 2): 1,
    }
    kept = f"/dags/{DAG_ID}/dagRuns/{RUN}/taskInstances/brings_a_value/xcomEntries/return_value"
    value = cluster.api("GET", kept)["value"]
    assert (json.loads(value) if isinstance(value, str) else value) == {"rows": 3}
    log = "\n".join(cluster.log_of(DAG_ID, RUN, "resumes"))
    for line in ("waits in the pool as instance", "ended: landed", "Success criteria met. Exiting."):
        assert line in log


def test_the_doctor_finds_nothing_wrong(cluster: Cluster) -> None:
    for _ in range(5):  # on a busy machine a triggerer may note late that it lives
        said = cluster.run("sensorpool", "doctor", check=False)
        if said.returncode == 0:
            break
    assert said.returncode == 0, said.stdout
    assert "Connections and Variables can be read from here" in said.stdout


@pytest.mark.parametrize("path", ["lives.py", "parity.py", "fleet.py"])
def test_the_dag_files_are_parsed(cluster: Cluster, path: str) -> None:
    """Also with what only some versions have."""
    errors = cluster.api("GET", "/importErrors")["import_errors"]
    assert not [error for error in errors if error["filename"].endswith(path)]
