"""Groups that one process cannot poke: how long they are left to others, how they are passed on and tried again."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.until import until
from sensorpool.errors import ClassUnavailable
from sensorpool.leases.range_state import RangeState, read_state
from sensorpool.model.states import Ending, Outcome, State
from sensorpool.model.values import Failing, ShardRange
from sensorpool.poke.classes import Classes
from sensorpool.settle.decide import decide
from sensorpool.settle.infra_window import OutsideWindow, left_to_others, moved, outage, turn_of_others
from sensorpool.worker import passing_on
from sensorpool.worker.passing_on import PASSES, PassingOn
from tests.support.builders import START, TIMEOUT, fact, member

TICK, INTERVAL, WINDOW = 5_000, 60_000, 600.0
TURN = turn_of_others(INTERVAL, TICK)
DEADLINE = START + TIMEOUT


def _cannot(at: int) -> Any:
    return fact(Outcome.CANNOT_POKE, began_at=at, reason="why")


def test_it_is_the_turn_of_others_before_a_deadline_counts() -> None:
    assert left_to_others(_cannot(DEADLINE), DEADLINE - 1_000, WINDOW, TURN) is None
    early = left_to_others(_cannot(DEADLINE + TURN - 1), DEADLINE - TURN, WINDOW, TURN)
    late = left_to_others(_cannot(DEADLINE + TURN), DEADLINE - TURN, WINDOW, TURN)
    assert early is not None
    assert late is not None
    for takes_back, ending in ((False, Ending.TIMEOUT), (True, Ending.HANDED_BACK)):
        waits = member()._replace(takes_back=takes_back)
        assert decide({1: early}, [waits], tick_ms=TICK, timeouts=True).verdicts == []
        [verdict] = decide({1: late}, [waits], tick_ms=TICK, timeouts=True).verdicts
        assert verdict.ending is ending
        assert "why" in str(verdict.reason)


@pytest.mark.parametrize("ticks", [1, 2, 12])
def test_the_turn_of_others_leaves_room_for_the_promise(ticks: int) -> None:
    """The group is due once an interval, so it ends before the third interval after its deadline."""
    interval = ticks * TICK
    assert 0 < turn_of_others(interval, TICK) <= 2 * interval - TICK


def test_when_no_process_could_for_the_window_it_ends() -> None:
    at = START + round(WINDOW * 1000)
    held = left_to_others(_cannot(at - 1), START, WINDOW, TURN)
    assert held is not None
    assert held.outcome is Outcome.CANNOT_POKE
    over = left_to_others(_cannot(at), START, WINDOW, TURN)
    assert over is not None
    for takes_back, state in ((False, State.FAILED), (True, State.CANCELLED)):
        waits = member()._replace(takes_back=takes_back)
        [verdict] = decide({1: over}, [waits], tick_ms=TICK, timeouts=True).verdicts
        assert verdict.state is state
        assert verdict.reason == "no process could poke it for 600 s, the last one: why"


def test_one_who_came_late_times_out_only_after_the_turn_of_others() -> None:
    at = START + 2 * round(WINDOW * 1000)
    over = left_to_others(_cannot(at), START, WINDOW, TURN)
    assert over is not None
    assert over.outcome is Outcome.UNPOKEABLE
    for deadline, ends in ((at - TURN + 1, False), (at - TURN, True)):
        late = member()._replace(start_date=at - 1_000, timeout_at=deadline, next_deadline=deadline)
        assert bool(decide({1: over}, [late], tick_ms=TICK, timeouts=True).verdicts) is ends


def test_after_an_outage_others_have_their_turn_and_time_to_start_before_the_window_ends() -> None:
    at = START + round(WINDOW * 1000)
    for turn in (0, TURN):
        grace = max(60_000, turn)
        early = left_to_others(_cannot(at + grace - 1), START, WINDOW, turn, resumed=at)
        assert early is None or early.outcome is Outcome.CANNOT_POKE
        over = left_to_others(_cannot(at + grace), START, WINDOW, turn, resumed=at)
        assert over is not None
        assert over.outcome is Outcome.UNPOKEABLE
    assert left_to_others(_cannot(at + TURN - 1), START, WINDOW, TURN, resumed=at) is None


def test_an_outage_is_what_a_slow_pool_and_a_dead_holder_do_not_explain() -> None:
    assert outage(START, START + 45_000, lease_ttl=30.0, tick=5.0) == 0
    assert outage(START, START + 45_001, lease_ttl=30.0, tick=5.0) == 1
    assert outage(START, START - 5_000, lease_ttl=30.0, tick=5.0) == 0, "the clock went back"
    assert moved(START, 5_000, START + 1_000) == START + 1_000


def test_a_failure_outside_of_jobs_does_not_last_through_an_outage() -> None:
    hour, told = 3_600_000, dict[int, Failing]()

    def fails(at: int) -> Outcome:
        window = OutsideWindow(2.5 * 3_600, told)
        outcome = window.judge(fact(Outcome.INFRA_FAILURE, began_at=START + at), hour).outcome
        told.update(window.failing)
        return outcome

    assert fails(0) is fails(hour) is Outcome.INFRA_FAILURE
    assert fails(3 * hour) is Outcome.INFRA_FAILURE, "for one of these two hours no process poked it"
    assert fails(4 * hour) is Outcome.POKE_ERROR


def test_a_step_does_not_grow_where_nobody_poked() -> None:
    backs_off = member(next_deadline=START + 1, exponential_backoff=True)
    assert decide({1: _cannot(START + 10_000)}, [backs_off], tick_ms=TICK, timeouts=True).grown == []


def test_what_is_stranded_is_handed_over() -> None:
    state = RangeState(last=START, left=[5], stranded={5: START - 1}, passes=2)
    assert read_state(state.text()) == state
    assert read_state('{"last": 1, "left": [5]}').stranded == {}
    assert read_state(RangeState(resumed=START).text()).resumed == START
    assert read_state('{"last": 1, "stranded": {"x": 1}}') == RangeState()


def test_a_range_is_passed_on_within_a_tick_and_then_once_a_tick() -> None:
    state = RangeState(stranded={1: START})
    spans = [passing_on.span(state, 5.0)]
    while (span := passing_on.again(state, 5.0)) is not None:
        spans.append(span)
    assert len(spans) == PASSES
    assert spans[0] == 0
    assert spans[1:] == sorted(spans[1:])
    assert 2.5 <= sum(spans) <= 5.0
    assert passing_on.again(state, 5.0) is None, "no more until a job leaves something behind"
    assert 0 <= passing_on.span(state, 5.0) <= 5.0
    assert passing_on.span(RangeState(), 5.0) is None
    assert passing_on.again(RangeState(), 5.0) is None


def test_passing_on_waits_outside_of_jobs_and_ends_with_its_worker() -> None:
    sent: list[ShardRange] = []
    one, other = ShardRange(0, 5), ShardRange(5, 10)
    called = threading.Event()

    def nudge(shard_range: ShardRange) -> None:
        sent.append(shard_range)
        called.set()
        raise ConnectionError("the broker is away")

    passing = PassingOn(nudge)
    passing.pass_on(one, 0.0)
    until("the job is sent", called.is_set)
    others = set(threading.enumerate())
    passing.pass_on(one, 3_600)
    passing.pass_on(one, 0.0)
    passing.pass_on(other, 3_600)
    timers = set(threading.enumerate()) - others
    assert len(timers) == 2
    passing.close()
    for timer in timers:
        timer.join(10)
        assert not timer.is_alive()
    assert sent == [one]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of a company, with modules that need each other."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    folder = tmp_path / "company_unit"
    (folder / "deep").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "deep" / "__init__.py").write_text("import company_unit.deep.base\nfrom company_unit.deep import late\n")
    (folder / "deep" / "base.py").write_text("class Base:\n    pass\n")
    (folder / "deep" / "late.py").write_text("import company_unit.settings\n")
    (folder / "sound.py").write_text("import json\n")
    (folder / "sensors.py").write_text(
        "from company_unit import sound\nfrom company_unit import circular\nimport company_unit.deep\n"
        "class Waits(company_unit.deep.base.Base):\n    def poke(self, context):\n"
        "        return circular.ask()\n"
    )
    (folder / "circular.py").write_text(
        "from company_unit import sensors\ndef ask():\n    return sensors.Waits is not None\n"
    )
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "company_unit"]:
        del sys.modules[name]


def test_an_import_that_failed_half_way_can_be_tried_again(package: Path) -> None:
    path = "company_unit.sensors.Waits"
    classes = Classes([path])
    for _ in range(2):
        with pytest.raises(ClassUnavailable, match=r"company_unit.settings"):
            classes.find(path)
    sound = sys.modules["company_unit.sound"]
    (package / "settings.py").write_text("")
    found = classes.find(path)
    assert found.cls().poke({}) is True
    assert sys.modules["company_unit.circular"].sensors is sys.modules["company_unit.sensors"]
    assert sys.modules["company_unit.deep"].base.Base in found.cls.__mro__
    assert sys.modules["company_unit.sound"] is sound, "what was imported whole stays"


def test_a_class_that_is_refused_is_not_tried_again_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("sensorpool.poke.classes.time", SimpleNamespace(monotonic=lambda: now))
    classes = Classes(["no_such_module.Class"], retry_after=10)
    waits = []
    for _ in range(8):
        with pytest.raises(ClassUnavailable):
            classes.find("no_such_module.Class")
        began = now
        while classes.refusal("no_such_module.Class") is not None:
            now += 1
        waits.append(now - began)
    assert waits == [10, 20, 40, 80, 160, 300, 300, 300]
    assert Classes(["no_such_module.Class"]).refusal("no_such_module.Class") is None, "it was not tried"
    assert "is not enabled" in str(Classes([]).refusal("no_such_module.Class"))


def test_no_more_is_remembered_than_so_much() -> None:
    classes = Classes([], retry_after=10)
    for number in range(1_100):
        with pytest.raises(ClassUnavailable):
            classes.find(f"planted.by.Somebody{number}")
    assert len(classes.refusals) == 1_000
