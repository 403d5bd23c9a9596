"""Which code of a DAG file a sensor has: a file may define it in two ways, by its environment or the date."""

from pathlib import Path

import pytest

pytest.importorskip("airflow.providers.standard")

from sensorpool.airflow.pool import dag_files
from sensorpool.model.states import Outcome
from tests.airflow.dag_file_world import Group, World

pytestmark = pytest.mark.processes

BODIES = {
    "lambdas": "PythonSensor(task_id='wait', python_callable={'worker': lambda: 1 > 2, 'pool': lambda: 2 > 1}[CELL])",
    "constants": "PythonSensor(task_id='wait', python_callable={'worker': lambda: False, 'pool': lambda: 0}[CELL])",
    "sets": """
        chosen = {"worker": lambda: "x" in {"a", "b"}, "pool": lambda: "x" in {"a", "x"}}[CELL]
        PythonSensor(task_id="wait", python_callable=chosen)
    """,
    "nested": """
        chosen = {"worker": lambda: [x for x in () if x == 1], "pool": lambda: [x for x in () if x == 2]}[CELL]
        PythonSensor(task_id="wait", python_callable=chosen)
    """,
    "function": """
        if CELL == "pool":
            def helper(): return True
        else:
            def helper(): return False
        @task.sensor
        def wait(): return helper()
        wait()
    """,
    "itself": """
        if CELL == "pool":
            @task.sensor
            def wait(): return True
        else:
            @task.sensor
            def wait(): return False
        wait()
    """,
    "class": """
        if CELL == "pool":
            class Waits(BaseSensorOperator):
                def poke(self, _): return True
        else:
            class Waits(BaseSensorOperator):
                def poke(self, _): return False
        Waits(task_id="wait")
    """,
    "method": """
        class Waits(BaseSensorOperator):
            if CELL == "pool":
                def look(self): return True
            else:
                def look(self): return False
            def poke(self, _): return self.look()
        Waits(task_id="wait")
    """,
    "base": """
        class One:
            def look(self): return True
        class Other:
            def look(self): return False
        class Waits({"pool": One, "worker": Other}[CELL], BaseSensorOperator):
            def poke(self, _): return self.look()
        Waits(task_id="wait")
    """,
    "decorated": """
        def always(f):
            @functools.wraps(f)
            def wrapped(*a): return True
            return wrapped
        def never(f):
            @functools.wraps(f)
            def wrapped(*a): return False
            return wrapped
        @task.sensor
        @{"pool": always, "worker": never}[CELL]
        def wait(): return f()
        wait()
    """,
    "helper_class": """
        class One:
            @staticmethod
            def look(): return True
        class Other:
            @staticmethod
            def look(): return False
        Chosen = One if CELL == "pool" else Other
        @task.sensor
        def wait(): return Chosen.look()
        wait()
    """,
    "helper_object": """
        class One:
            def look(self): return True
        class Other:
            def look(self): return False
        chosen = (One if CELL == "pool" else Other)()
        @task.sensor
        def wait(): return chosen.look()
        wait()
    """,
    "alias": """
        def yes(): return True
        def no(): return False
        chosen = yes if CELL == "pool" else no
        @task.sensor
        def wait(): return chosen()
        wait()
    """,
    "partial": """
        def look(what): return what
        chosen = functools.partial(look, CELL == "pool")
        @task.sensor
        def wait(): return chosen()
        wait()
    """,
    "partial_of_another": """
        def yes(): return True
        def no(): return False
        chosen = functools.partial(yes if CELL == "pool" else no)
        @task.sensor
        def wait(): return chosen()
        wait()
    """,
    "closure_of_a_function": """
        def made(f):
            @task.sensor
            def wait(): return f()
            return wait
        def yes(): return True
        def no(): return False
        made(yes if CELL == "pool" else no)()
    """,
    "closure_of_a_lambda": """
        def made(f):
            @task.sensor
            def wait(): return f()
            return wait
        made({"pool": lambda: True, "worker": lambda: False}[CELL])()
    """,
    "registry": """
        found = {"look": {"pool": lambda: True, "worker": lambda: False}[CELL]}
        @task.sensor
        def wait(): return found["look"]()
        wait()
    """,
    "default": """
        @task.sensor
        def wait(look={"pool": lambda: True, "worker": lambda: False}[CELL]): return look()
        wait()
    """,
    "module": """
        if CELL == "pool":
            import acme_yes as chosen
        else:
            import acme_no as chosen
        @task.sensor
        def wait(): return chosen.look()
        wait()
    """,
    "from_module": """
        if CELL == "pool":
            from acme_yes import look
        else:
            from acme_no import look
        @task.sensor
        def wait(): return look()
        wait()
    """,
    "both_modules": """
        import acme_yes, acme_no
        chosen = acme_yes if CELL == "pool" else acme_no
        @task.sensor
        def wait(): return chosen.look()
        wait()
    """,
}

# what a closure holds, beside plain values
HELD = {
    "numbers": "__import__('numpy').array([len(CELL)])",
    "frame": "__import__('pandas').DataFrame({'a': [len(CELL)]})",
    "address": "__import__('ipaddress').ip_address('10.0.0.%d' % len(CELL))",
    "zone": "__import__('zoneinfo').ZoneInfo({'worker': 'Europe/Berlin', 'pool': 'Asia/Tokyo'}[CELL])",
    "offset": "dt.timezone(dt.timedelta(hours=len(CELL)))",
    "text": "__import__('string').Template(CELL)",
    "query": "__import__('sqlalchemy').text(CELL)",
    "pattern": "__import__('re').compile(CELL)",
    "path": "pathlib.Path(CELL)",
    "partial": "functools.partial(print, CELL)",
    "session": "[CELL, __import__('requests').Session()]",
}
CLOSURE = """
    def made(held):
        @task.sensor
        def wait(): return held is None
        return wait
    made(HELD)()
"""
BODIES |= {f"closure_{kind}": CLOSURE.replace("HELD", value) for kind, value in HELD.items()}


def test_code_that_another_world_chooses_is_handed_back(world: World, tmp_path: Path) -> None:
    for name, answer in (("yes", True), ("no", False)):
        (world.folder / f"acme_{name}.py").write_text(f"def look(): return {answer}")
    world.age("acme_yes.py", "acme_no.py")
    (tmp_path / "cell").write_text("worker")
    groups = {}
    for kind, body in BODIES.items():
        world.write(body.replace("CELL", "(HERE / 'cell').read_text()"), f"{kind}.py")
        groups[kind] = Group(world.registered(world.sensor(f"{kind}.py")))
    same = {kind: group.poke().outcome for kind, group in groups.items()}
    assert same == dict.fromkeys(BODIES, Outcome.NOT_LANDED), "the same code is poked"
    for process in dag_files.processes().running:
        process.retire()
    (tmp_path / "cell").write_text("pool")
    found = {kind: group.poke().outcome for kind, group in groups.items()}
    assert found == dict.fromkeys(BODIES, Outcome.HAND_BACK)
