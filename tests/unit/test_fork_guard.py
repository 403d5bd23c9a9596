"""A poke that forks and returns twice: its copy ends at once, and pokes, settles and logs nothing."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.until import until
from sensorpool.admin.one_poke import poke_once
from sensorpool.config.settings import Settings
from sensorpool.model.states import Outcome
from sensorpool.poke.answer import Answers
from sensorpool.poke.classes import Classes
from sensorpool.poke.fork_guard import EXIT_CODE
from sensorpool.poke.loop_lane import LoopLane
from sensorpool.poke.slots import Slots
from sensorpool.poke.thread_lane import QuickBatch, ThreadLane
from sensorpool.poke.tools import PokeTools
from sensorpool.poke.unit import PokeUnit
from tests.support.builders import classpath, drive, one, outcomes
from tests.support.sensors import forking
from tests.unit.test_isolated_lane import CHILDREN, Lane

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks there"),
    # later versions of Python warn of a fork beside threads, which these pokes do
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]


def _ones(forks: type, others: type, folder: Path) -> list[PokeUnit]:
    tools = PokeTools(Classes([classpath(forks), classpath(others)]), Answers([]), {})
    pokes = [one(1, forks, tools, folder=str(folder))]
    return pokes + [one(number, others, tools, folder=str(folder)) for number in range(2, 6)]


def _processes(folder: Path, name: str) -> list[int]:
    return [int(path.name.rpartition(" ")[2]) for path in folder.iterdir() if path.name.startswith(f"{name} ")]


def _copy(folder: Path) -> int:
    """The one process that was forked."""
    [forked] = [path.name for path in folder.iterdir() if path.name.startswith("forked ")]
    return int(forked.split()[1])


LANES: list[tuple[str, type, type, Callable[[list[PokeUnit]], Any]]] = [
    ("one", forking.Returns, forking.Comes, lambda ones: _on_threads(ones)),
    ("raises", forking.ReturnsByRaising, forking.Comes, lambda ones: _on_threads(ones)),
    ("batch", forking.Returns, forking.Comes, lambda ones: _on_threads([_batch(ones)])),
    ("batch raises", forking.ReturnsByRaising, forking.Comes, lambda ones: _on_threads([_batch(ones)])),
    ("batch again", forking.Returns, forking.Comes, lambda ones: _on_threads([_constructed(ones)])),
    ("batch raises again", forking.ReturnsByRaising, forking.Comes, lambda ones: _on_threads([_constructed(ones)])),
    ("loop", forking.AsyncReturns, forking.AsyncComes, lambda ones: _on_loop(ones)),
    ("loop raises", forking.AsyncReturnsByRaising, forking.AsyncComes, lambda ones: _on_loop(ones)),
    ("loop's thread", forking.AsyncReturnsOnThread, forking.AsyncComes, lambda ones: _on_loop(ones)),
]


def _on_threads(works: list[Any]) -> ThreadLane:
    lane = ThreadLane(Slots(1), 30.0)
    lane.put(works)
    return lane


def _batch(ones: list[PokeUnit]) -> QuickBatch:
    return QuickBatch(ones)


def _constructed(ones: list[PokeUnit]) -> QuickBatch:
    """Return the unit after its first poke, when its sensor is constructed."""
    for each in ones:
        each._construct(ones[0]._tools.classes.find(each.op_classpath))
    return _batch(ones)


def _on_loop(ones: list[PokeUnit]) -> LoopLane:
    lane = LoopLane(Slots(1), 30.0)
    lane.put(ones)
    return lane


@pytest.mark.parametrize(("forks", "others", "poke"), [row[1:] for row in LANES], ids=[row[0] for row in LANES])
def test_the_copy_ends_and_pokes_nobody(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], forks: type, others: type, poke: Callable[[list[PokeUnit]], Any]
) -> None:
    lane = poke(_ones(forks, others, tmp_path))
    found = outcomes(drive(lane, lambda seen: len(seen) == 5, "all are poked here"))
    assert found == dict.fromkeys(range(1, 6), Outcome.NOT_LANDED)
    _, status = os.waitpid(_copy(tmp_path), 0)
    assert os.waitstatus_to_exitcode(status) == EXIT_CODE
    assert set(_processes(tmp_path, "poked")) == {os.getpid()}
    assert "a poke forked this process and returned in the copy too" in capfd.readouterr().err


class Raises:
    """Raises."""

    def poke(self, context: Any) -> bool:
        raise LookupError("as told")


def test_a_process_that_was_forked_may_poke_once() -> None:
    """As `pytest` does whose tests have a process each."""
    settings = Settings.load(sensors_enabled=[classpath(Raises)])
    if not (copy := os.fork()):
        code = 2
        try:
            code = 0 if poke_once(settings, classpath(Raises), {}).outcome is Outcome.POKE_ERROR else 3
        finally:
            os._exit(code)
    _, status = os.waitpid(copy, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_the_copy_of_a_child_of_the_lane_apart_ends_too(tmp_path: Path) -> None:
    lane = Lane(30.0)
    lane.offer(1, forking.Returns, folder=str(tmp_path))
    for number in range(2, 6):
        lane.offer(number, forking.Comes, folder=str(tmp_path))
    found = {(report.outcome, report.reason) for report in lane.reports(5).values()}
    assert found == {(Outcome.NOT_LANDED, None)}
    copy = _copy(tmp_path)
    until("the copy has ended", lambda: not _runs(copy), CHILDREN)
    assert copy not in _processes(tmp_path, "poked")


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_pokes_may_work_with_other_processes(tmp_path: Path) -> None:
    lane = ThreadLane(Slots(4), 30.0)
    lane.put([one(1, forking.UsesProcesses, folder=str(tmp_path))])
    [report] = drive(lane, lambda seen: seen, "it is poked")
    assert (report.outcome, report.reason) == (Outcome.LANDED, None)
    assert len(_processes(tmp_path, "worked")) == 1
