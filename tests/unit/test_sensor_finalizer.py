"""The destruction of a sensor stops neither a job nor the poke of another group."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from harness.until import until
from sensorpool.poke.answer import Answers
from sensorpool.poke.cache import Cache
from sensorpool.poke.classes import Classes
from sensorpool.poke.imports import _Import
from sensorpool.poke.reusable_threads import ReusableThreads
from sensorpool.poke.sensor_finalizer import SensorFinalizer, finalize
from sensorpool.poke.tools import PokeTools
from sensorpool.poke.unit import PokeUnit
from tests.support.builders import classpath, due_group


class Ends:
    """Waits for its gate when it is destroyed."""

    gate = threading.Event()
    ended: list[threading.Thread] = []  # noqa: RUF012  # of the class
    gone: list[threading.Thread] = []  # noqa: RUF012

    def poke(self, context: Any) -> bool:
        return False

    def __del__(self) -> None:
        Ends.ended.append(threading.current_thread())
        Ends.gate.wait(60)
        Ends.gone.append(threading.current_thread())


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """The gate for which sensors wait when they are destroyed."""
    Ends.gate, Ends.ended, Ends.gone = threading.Event(), [], []
    yield Ends.gate
    Ends.gate.set()


def constructed(cache: Cache, group_id: int) -> PokeUnit:
    one = cache.keep(due_group(group_id), classpath(Ends), "{}")
    one.poke()
    return one


@pytest.fixture
def tools() -> PokeTools:
    return PokeTools(Classes([classpath(Ends)]), Answers([]), {})


@pytest.mark.parametrize("how", ["settled", "too many", "held by the job"])
def test_to_let_go_of_a_sensor_waits_for_nothing_at_its_end(gate: threading.Event, tools: PokeTools, how: str) -> None:
    cache = Cache(1 if how == "too many" else 10, tools)
    held = [constructed(cache, 1)]
    if how != "held by the job":
        held.clear()

    def let_go() -> None:
        cache.keep(due_group(2), classpath(Ends), "{}")
        cache.drop([1])
        held.clear()
        cache.look_up([(2, 1, 2)])

    job = threading.Thread(target=let_go, daemon=True)
    job.start()
    job.join(30)
    assert not job.is_alive()
    assert not Ends.ended
    finalizer = SensorFinalizer(ReusableThreads())
    finalizer.look_after()
    [thread] = until("its end", lambda: Ends.ended)
    assert thread.name == "poke"
    gate.set()
    until("it to be gone", lambda: Ends.gone == [thread])


def test_those_behind_one_that_hangs_at_its_end_go_all_the_same(gate: threading.Event) -> None:
    finalizer = SensorFinalizer(ReusableThreads())
    finalize(Ends())
    finalize(Ends())

    def both() -> bool:
        finalizer.look_after()
        return len(Ends.ended) == 2

    until("both ends", both)
    until("that they are counted", lambda: finalizer.hanging == 2)
    gate.set()
    until("that they are not, once they are done", lambda: not finalizer.hanging)


def test_what_an_import_left_behind_is_destroyed_on_its_own_thread(
    gate: threading.Event, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.set()
    (tmp_path / "leaves_much.py").write_text(
        "def fail():\n"
        f"    from {Ends.__module__} import Ends\n"
        "    sensor = Ends()\n"
        "    raise RuntimeError('as told')\n"
        "fail()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    task = _Import(Classes(["leaves_much.Sensor"]), "leaves_much.Sensor")
    task.start()
    task.join(30)
    assert "as told" in str(task.error)
    assert Ends.ended == [task]
