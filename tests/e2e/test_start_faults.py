"""kill -9 of each component while 200 sensors wait that have begun without a worker: nothing fails, nothing is lost."""

import pytest

from tests.e2e.outage import watch_tasks
from tests.e2e.starting import Starting

LETTERS = "abcd"
DAGS = [f"many_{letter}" for letter in LETTERS]
SENSORS = 200


@pytest.fixture(scope="module", autouse=True)
def watched(starting: Starting) -> None:
    """The database notes each change of a task's state."""
    watch_tasks(starting)


@pytest.mark.parametrize("component", ["scheduler", "triggerer", "pool", "dag-processor"])
def test_a_component_is_killed_while_200_wait(starting: Starting, component: str) -> None:
    run = f"{component}_killed"
    begin(starting, run)
    starting.wait_for("all to wait", lambda: states(starting, run) == ["sensing"] * SENSORS)
    waiting = keys(starting, run)
    kill(starting, component)
    land(starting, run, range(1, 50, 4))
    if component != "pool":  # the others go on meanwhile
        starting.wait_for("those to land", lambda: states(starting, run).count("success") == 4 * 13)
    starting.start_component(component)
    land(starting, run, range(3, 50, 4))
    starting.say(f"{run}/all", "")
    all_succeed(starting, run)
    assert keys(starting, run) == waiting, "nothing registers again"


def test_the_triggerer_is_killed_while_200_register(starting: Starting) -> None:
    run = "killed_registering"
    begin(starting, run)
    starting.wait_for("one to wait", lambda: states(starting, run), every=0.01)
    kill(starting, "triggerer")
    before = keys(starting, run)
    assert len(before) > 0, "the fault has struck in the midst"
    starting.start_component("triggerer")
    starting.wait_for("all to wait", lambda: states(starting, run) == ["sensing"] * SENSORS)
    assert before <= keys(starting, run), "nothing registers again"
    land(starting, run, range(1, 50, 2))
    starting.say(f"{run}/all", "")
    all_succeed(starting, run)


def begin(starting: Starting, run: str) -> None:
    """Start all sensors."""
    for dag_id in DAGS:
        starting.trigger(dag_id, run)


def kill(starting: Starting, component: str) -> None:
    """Kill a component, and see that it is dead."""
    process = starting.processes[component]
    starting.stop_component(component)
    assert process.returncode == -9, "the fault has struck"


def land(starting: Starting, run: str, numbers: range) -> None:
    """Let conditions hold that only one sensor waits for."""
    for letter in LETTERS:
        for number in numbers:
            starting.say(f"{run}/{letter}{number}", "")


def states(starting: Starting, run: str) -> list[str]:
    """Return the states of the pool's instances."""
    return [row.state for row in starting.instances(run_id=run)]


def keys(starting: Starting, run: str) -> set[tuple[str, str, int]]:
    """Return which instance each task has."""
    return {(row.dag_id, row.task_id, row.id) for row in starting.instances(run_id=run)}


def all_succeed(starting: Starting, run: str) -> None:
    """See every task succeed, once, at its first try and without a worker."""
    for dag_id in DAGS:
        starting.wait_for(f"the end of {dag_id}", lambda d=dag_id: starting.run_state(d, run) in {"success", "failed"})
    assert states(starting, run) == ["success"] * SENSORS
    for dag_id in DAGS:
        assert starting.begun_on_workers(dag_id, run) == set(), starting.reasons_to_begin(dag_id, run)
    became = starting.rows("SELECT became, count(*) FROM public.witness WHERE run_id = :run GROUP BY became", run=run)
    assert {row[0]: row[1] for row in became} == {"deferred": SENSORS, "success": SENSORS}
    for dag_id in DAGS:
        assert {number for _, number in starting.states(dag_id, run).values()} == {1}
