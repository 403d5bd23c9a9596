"""Several DAG files in the process of their bundle: natively each has one of its own, so none may touch another."""

import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow.providers.standard")

from harness.until import until
from sensorpool import Settings
from sensorpool.airflow.pool import dag_files
from sensorpool.airflow.proof.arguments import dag_file
from sensorpool.model.states import Outcome
from sensorpool.model.values import Report
from tests.airflow.dag_file_world import Group, World

pytestmark = pytest.mark.processes

PLAIN = """
    if (HERE / "odd").exists() and ODD: DO
    @task.sensor
    def wait():
        return (HERE / "arrived").exists()
    wait()
"""
SLOW = """
    @task.sensor
    def wait():
        if (HERE / "odd").exists():
            (HERE / "begun").touch()
            time.sleep(2)
        return False
    wait()
"""


def group_of(world: World, name: str, body: str = PLAIN, do: str = "") -> Group:
    """Return a group of a DAG file that is odd once `odd` exists."""
    world.write(body.replace("ODD", str(bool(do))).replace("DO", do or "pass"), f"{name}.py")
    return Group(world.registered(world.sensor(f"{name}.py")))


CHANGES = {
    "the working directory": "os.chdir('/')",
    "the default timeout of sockets": "import socket; socket.setdefaulttimeout(0.001)",
    "the context of decimals": "import decimal; decimal.getcontext().prec = 3",
    "the umask": "os.umask(0o777)",
    "the limit of csv": "import csv; csv.field_size_limit(7)",
}
LEFT = """
    @task.sensor
    def wait():
        import csv, socket
        left = [os.getcwd() == "/", socket.getdefaulttimeout() == 0.001, csv.field_size_limit() == 7]
        return any([*left, "ACME" in os.environ, time.tzname[0] == "JST", "/acme" == sys.path[0]])
    wait()
"""


def test_what_a_load_changes_reaches_no_other_file(world: World, tmp_path: Path) -> None:
    groups = {name: group_of(world, f"a{n}", do=do) for n, (name, do) in enumerate(CHANGES.items())}
    environment = group_of(world, "b", do="os.environ.update(ACME='1', TZ='Asia/Tokyo'); time.tzset()")
    path = group_of(world, "c", do="sys.path.insert(0, '/acme')")
    other = group_of(world, "d", body=LEFT)
    (tmp_path / "odd").touch()
    for name, group in groups.items():
        report = group.poke()
        assert (report.outcome, f"its load changes {name} " in str(report.reason)) == (Outcome.HAND_BACK, True), report
    assert [environment.poke().outcome, path.poke().outcome] == [Outcome.NOT_LANDED] * 2
    assert other.poke().outcome is Outcome.NOT_LANDED
    assert len(dag_files.processes().running) == 1


@pytest.mark.parametrize("do", ["raise ValueError('not here')", "raise KeyboardInterrupt", "sys.exit(3)"])
def test_a_file_that_cannot_be_loaded_is_no_trouble_for_the_next(world: World, tmp_path: Path, do: str) -> None:
    """Nor is the process of the bundle replaced when it is time to load the file again."""
    (world.folder / "acme_helper.py").touch()
    world.age("acme_helper.py")
    bad, good = group_of(world, "bad", do=f"import acme_helper; {do}"), group_of(world, "good")
    (tmp_path / "odd").touch()
    report = bad.poke()
    assert (report.outcome, "cannot be loaded in the pool" in str(report.reason)) == (Outcome.HAND_BACK, True), report
    assert good.poke().outcome is Outcome.NOT_LANDED
    [process] = dag_files.processes().running
    if "ValueError" in do:
        (tmp_path / "odd").unlink()
        until("it is loaded again", lambda: bad.poke().outcome is Outcome.NOT_LANDED)
        assert good.poke().outcome is Outcome.NOT_LANDED
        assert [each.pid for each in dag_files.processes().running] == [process.pid]


@pytest.mark.parametrize("do", ["os._exit(3)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_load_that_ends_the_process_is_not_made_again(world: World, tmp_path: Path, do: str) -> None:
    bad, good = group_of(world, "bad", do=do), group_of(world, "good")
    (tmp_path / "odd").touch()
    until("the load is known", lambda: bad.poke().outcome is Outcome.HAND_BACK)
    assert good.poke().outcome is Outcome.NOT_LANDED
    [process] = dag_files.processes().running
    for _ in range(3):
        assert bad.poke().outcome is Outcome.HAND_BACK
        assert good.poke().outcome is Outcome.NOT_LANDED
    assert [each.pid for each in dag_files.processes().running] == [process.pid]


def test_a_long_load_makes_no_poke_of_another_file_late(world: World, tmp_path: Path) -> None:
    of_pool: Any = dag_files.processes()
    of_pool._settings = Settings.load(sensors_enabled=dag_file.SENSOR, poke_timeout=4.0)
    slow, other = group_of(world, "slow", do="time.sleep(10)"), group_of(world, "other", body=SLOW)
    assert other.poke().outcome is Outcome.NOT_LANDED
    (tmp_path / "odd").touch()
    reports: list[Report] = []
    thread = threading.Thread(target=lambda: reports.append(other.poke()))
    thread.start()
    until("its poke has begun", (tmp_path / "begun").exists)
    assert slow.poke().outcome is Outcome.NOT_LANDED
    thread.join(60)
    assert [report.outcome for report in reports] == [Outcome.NOT_LANDED]


def test_a_module_of_one_name_in_two_folders(world: World, tmp_path: Path) -> None:
    body = """
    sys.path.insert(0, os.path.dirname(__file__))
    from acme_helper import said
    @task.sensor
    def wait():
        return PokeReturnValue((HERE.parent / "arrived").exists(), said())
    wait()
    """
    groups = []
    for name in "ab":
        (world.folder / name).mkdir()
        (world.folder / name / "acme_helper.py").write_text(f"def said(): return '{name}'")
        groups.append(group_of(world, f"{name}/x", body))
    (tmp_path / "arrived").touch()
    assert groups[0].value() == "a"
    report = groups[1].poke()
    assert (report.outcome, "from elsewhere" in str(report.reason)) == (Outcome.HAND_BACK, True), report
