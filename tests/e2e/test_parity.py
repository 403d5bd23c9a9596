"""Each case on the native sensor and on the pool, on the same Airflow: everything that can be seen must be the same."""

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.dags_of_parity import CASES
from tests.e2e.seen import Seen, look

RUN = "run1"
WAITS_SINCE = "waits in the pool since"
FLAGS = {  # what the condition does, once the sensors wait
    "xcom": 'xcom {"rows": 3}',
    "xcom_not_pushed": 'xcom {"rows": 3}',
    "error": "raise no such bucket",
    "error_soft_fail": "raise no such bucket",
    "error_never_fail": "raise no such bucket",
    "error_silent_fail": "raise no such bucket",
    "error_email": "raise no such bucket",
    "error_of_its_own": "throttle slowly",
    "error_asks_for_a_retry": "overrun too slow",
    "skip": "skip a holiday",
    "fail": "fail wrong account",
    "fail_soft_fail": "fail wrong account",
    "mapped_dependant": "xcom [1, 2, 3]",
}
FROM_THE_START = {"error_silent_fail"}  # its own timeout is short
NEVER = {"timeout", "timeout_soft_fail", "timeout_never_fail", "execution_timeout"}
SAID = {  # what the log of the native sensor says last, and that of the pooled one too
    "success": "Success criteria met. Exiting.",
    "timeout": "Sensor has timed out",
    "error": "no such bucket",
    "skip": "a holiday",
    "fail": "wrong account",
}


@pytest.fixture(scope="module")
def seen(cluster: Cluster, cases: frozenset[str]) -> dict[str, dict[str, Seen]]:
    """Both runs of the cases: they wait together, and then each condition does what its case says."""
    dag_ids = [f"{mode}_{case}" for mode in ("native", "pooled") for case in CASES if case in cases]
    for case in FROM_THE_START:
        for mode in ("native", "pooled"):
            _say(cluster, mode, case)
    for dag_id in dag_ids:
        cluster.trigger(dag_id, RUN)
    for case in cases - NEVER - FROM_THE_START:
        for mode in ("native", "pooled"):
            cluster.wait_for(f"{mode}_{case} to wait", lambda m=mode, c=case: _waits(cluster, m, c))
            if (mode, case) == ("pooled", "success"):  # a trigger that begins after the end has less to say
                cluster.wait_for("the line of its trigger", lambda: cluster.lines("pooled_success", RUN, WAITS_SINCE))
            _say(cluster, mode, case)
    for dag_id in dag_ids:
        cluster.wait_for(f"the end of {dag_id}", lambda d=dag_id: cluster.run_state(d, RUN) in {"success", "failed"})
    return {case: {mode: look(cluster, f"{mode}_{case}", RUN) for mode in ("native", "pooled")} for case in cases}


@pytest.mark.parametrize("case", CASES)
def test_ends_as_the_native_sensor_does(cluster: Cluster, seen: dict[str, dict[str, Seen]], case: str) -> None:
    pooled = cluster.instances(dag_id=f"pooled_{case}")
    assert pooled, "it was not pooled"
    assert all(row.state != "sensing" for row in pooled)
    assert not cluster.instances(dag_id=f"native_{case}")
    assert seen[case]["pooled"] == seen[case]["native"]
    if case in SAID:
        for mode in ("native", "pooled"):
            lines = cluster.log_of(f"{mode}_{case}", RUN, "wait")
            assert any(SAID[case] in line for line in lines), (mode, lines)


def test_the_log_says_what_happened(cluster: Cluster, seen: dict[str, dict[str, Seen]]) -> None:
    assert seen
    log = "\n".join(cluster.log_of("pooled_success", RUN, "wait"))
    for line in ("waits in the pool as instance", WAITS_SINCE, "ended: landed"):
        assert line in log
    assert "ended: timeout" in "\n".join(cluster.log_of("pooled_timeout", RUN, "wait"))
    assert "runs natively: the patterns" in "\n".join(cluster.log_of("native_success", RUN, "wait"))


def _say(cluster: Cluster, mode: str, case: str) -> None:
    for name in _flags(mode, case):
        path = cluster.work / name
        path.with_suffix(".new").write_text(FLAGS.get(case, "land"))
        path.with_suffix(".new").rename(path)


def _waits(cluster: Cluster, mode: str, case: str) -> bool:
    states = [state for (task, _), (state, _) in cluster.states(f"{mode}_{case}", RUN).items() if task == "wait"]
    waiting = {"deferred"} if mode == "pooled" else {"running", "up_for_reschedule"}
    if mode == "native" and not (cluster.work / "notes").exists():
        return False
    return len(states) == (2 if case == "mapped" else 1) and set(states) <= waiting


def _flags(mode: str, case: str) -> list[str]:
    match case:
        case "mapped":
            return [f"{mode}_mapped_a", f"{mode}_mapped_b"]
        case "mapped_dependant":
            return [f"{mode}_mapped_dependant"]
    return [f"{mode}_{case}_{RUN}"]
