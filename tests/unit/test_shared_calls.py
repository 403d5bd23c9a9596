"""Shared calls: what they say no to is not poked, what perhaps holds is, and a failing one is paused."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import pytest

from harness.until import until
from sensorpool.config.settings import Settings
from sensorpool.model.not_landed import each_report
from sensorpool.model.states import Outcome
from sensorpool.model.values import Report
from sensorpool.poke import classes as module
from sensorpool.poke.poker import Poker
from sensorpool.poke.shared_call import Question
from sensorpool.poke.shared_files import FEWEST, Folders, in_folder
from sensorpool.poke.unit import PokeUnit
from tests.support.builders import classpath, due_group


class Waits:
    """Is poked by itself: for long enough not to be quick."""

    there: ClassVar[set[str]] = set()
    is_away: ClassVar[bool] = False
    poked: ClassVar[list[str]] = []

    def __init__(self, kin: str, name: str) -> None:
        self.name = name

    def poke(self, context: Any) -> bool:
        self.poked.append(self.name)
        if self.is_away:
            raise ConnectionRefusedError(111, "refused")
        time.sleep(0.001)
        return self.name in self.there


class Call:
    """A shared call that does as the test says."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[str]]] = []
        self.answer: Callable[[str], Any] = lambda name: name in Waits.there
        self.before: Callable[[], object] = lambda: None

    def question(self, poke_context: Mapping[str, Any]) -> Question | None:
        if poke_context["kin"] == "raises":
            raise LookupError("no such kin")
        return None if poke_context["kin"] == "none" else Question(poke_context["kin"], poke_context["name"])

    def ask(self, kin: Any, asked: Sequence[Any]) -> Sequence[bool]:
        self.asked.append((kin, list(asked)))
        self.before()
        return [self.answer(name) for name in asked]


class Entry:
    """An entry point."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def load(self) -> Any:
        return lambda cls, found: self._call


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Call:
    """The shared call of `Waits`."""
    Waits.there.clear()
    Waits.poked.clear()
    made = Call()
    found = {classpath(Waits): Entry(made)}
    monkeypatch.setattr(module.extensions, "named", lambda group: found if group == module.SHARED_CALLS else {})
    return made


@pytest.fixture
def poker(call: Call) -> Any:
    """A process that pokes `Waits`."""
    made = Poker(Settings.load(sensors_enabled=[classpath(Waits)], poke_timeout=1.0, poke_concurrency=8))
    yield made
    made.close()


def units(poker: Poker, names: Sequence[str], kin: str = "a", first: int = 1) -> list[PokeUnit]:
    """Make groups."""
    texts = [f'{{"kin": "{kin}", "name": "{name}"}}' for name in names]
    return [PokeUnit(due_group(first + place), classpath(Waits), text, poker.tools) for place, text in enumerate(texts)]


def poke(poker: Poker, some: Sequence[PokeUnit], now: Callable[[float], int] | None = None) -> dict[int, Report]:
    """Poke groups as a job does; return the report of each."""
    poking, seen = poker.begin(now), list[Report]()
    poking.put(some, [unit.group.id for unit in some])

    def all_reported() -> bool:
        seen.extend(each_report(poking.step()))
        if undecided := poking.take_undecided():
            poking.put(undecided, [unit.group.id for unit in undecided])
        return not poking.outstanding

    until("a report of each", all_reported, every=0.005)
    poking.end()
    found = {report.group.id: report for report in seen}
    assert len(found) == len(seen), "reported twice"
    return found


def test_what_is_not_there_is_not_poked_and_what_perhaps_is_there_is(poker: Poker, call: Call) -> None:
    Waits.there.update({"n3", "n7"})
    call.answer = lambda name: name in {"n3", "n7", "n9"}
    found = poke(poker, units(poker, [f"n{n}" for n in range(1, 101)]))
    assert call.asked == [("a", [f"n{n}" for n in range(1, 101)])]
    assert sorted(Waits.poked) == ["n3", "n7", "n9"]
    assert {key for key, report in found.items() if report.outcome is Outcome.LANDED} == {3, 7}
    assert len(found) == 100


def test_what_a_call_leaves_undecided_is_handed_back_and_its_next_poke_is_its_own(poker: Poker, call: Call) -> None:
    call.answer = lambda name: name != "no"
    some = units(poker, ["a", "b", "c", "no"])
    poking, seen, undecided = poker.begin(), list[Report](), list[PokeUnit]()

    def all_came_back() -> bool:
        seen.extend(each_report(poking.step()))
        undecided.extend(poking.take_undecided())
        return not poking.outstanding

    poking.put(some, [unit.group.id for unit in some])
    until("what the call leaves to pokes", all_came_back)
    assert [unit.group.id for unit in undecided] == [1, 2, 3]
    assert [report.group.id for report in seen] == [4]
    assert Waits.poked == []
    poking.put(undecided, [1, 2, 3])
    until("their own pokes", all_came_back)
    assert sorted(Waits.poked) == ["a", "b", "c"]
    assert len(call.asked) == 1
    poking.put(some, [unit.group.id for unit in some])
    until("one call for all once more", all_came_back)
    assert call.asked[1:] == [("a", ["a", "b", "c", "no"])]
    poking.end()


def test_each_kin_has_a_call_and_a_single_one_is_poked(poker: Poker, call: Call) -> None:
    some = [*units(poker, ["x", "y"], "a"), *units(poker, ["z"], "b", 3), *units(poker, ["u", "v"], "c", 4)]
    poke(poker, some)
    assert sorted(kin for kin, _ in call.asked) == ["a", "c"]
    assert Waits.poked == ["z"]


@pytest.mark.parametrize("kin", ["none", "raises"])
def test_what_has_no_question_is_poked_by_itself(poker: Poker, call: Call, kin: str) -> None:
    assert len(poke(poker, units(poker, ["x", "y"], kin))) == 2
    assert call.asked == []
    assert sorted(Waits.poked) == ["x", "y"]


@pytest.mark.parametrize(
    "answer",
    [lambda _: None, lambda _: "no", lambda _: 0, lambda _: True],
    ids=["None", "text", "zero", "True"],
)
def test_only_false_is_no(poker: Poker, call: Call, answer: Callable[[str], Any]) -> None:
    call.answer = answer
    poke(poker, units(poker, ["x", "y"]))
    assert sorted(Waits.poked) == ["x", "y"]


def raises(error: BaseException) -> Callable[[str], Any]:
    def answer(name: str) -> Any:
        raise error

    return answer


@pytest.mark.parametrize("error", [ValueError("odd"), SystemExit(1), KeyError("x")], ids=repr)
def test_a_call_that_fails_costs_no_poke_and_is_not_made_for_a_while(
    poker: Poker, call: Call, error: BaseException
) -> None:
    call.answer = raises(error)
    for _ in range(2):
        assert {report.outcome for report in poke(poker, units(poker, ["x", "y"])).values()} == {Outcome.NOT_LANDED}
    assert len(call.asked) == 1
    assert sorted(Waits.poked) == ["x", "x", "y", "y"]


def test_a_call_that_fails_for_one_kin_is_asked_for_the_others(
    poker: Poker, call: Call, caplog: pytest.LogCaptureFixture
) -> None:
    """One bucket that may not be listed keeps no other bucket from being listed."""
    call.answer = lambda name: {}[name] if name.startswith("bad") else False
    some = [
        *units(poker, ["bad1", "bad2"], "a"),
        *units(poker, ["x", "y"], "b", 3),
        *units(poker, ["bad3", "bad4"], "c", 5),
    ]
    poke(poker, some)
    assert sorted(Waits.poked) == ["bad1", "bad2", "bad3", "bad4"]
    poke(poker, some)
    assert [kin for kin, _ in call.asked if kin == "b"] == ["b", "b"]
    assert len(call.asked) == 4
    assert sum("one call for many fails" in record.getMessage() for record in caplog.records) == 1


def test_a_call_with_too_few_answers_counts_as_failed(poker: Poker, call: Call, monkeypatch: Any) -> None:
    monkeypatch.setattr(call, "ask", lambda kin, asked: [False])
    poke(poker, units(poker, ["x", "y"]))
    assert sorted(Waits.poked) == ["x", "y"]


@pytest.mark.parametrize("first", ["while its class is paused", "after its deadline"])
def test_a_group_whose_first_poke_is_its_own_shares_later_calls(poker: Poker, call: Call, first: str) -> None:
    some = units(poker, ["x", "y"])
    if first == "after its deadline":
        for unit in some:
            unit.group = unit.group._replace(next_deadline=500)
    else:
        poker.shared_calls.pause(classpath(Waits), None, "a call took longer than its limit")
    poke(poker, some, lambda _: 1_000)
    assert (call.asked, sorted(Waits.poked)) == ([], ["x", "y"])
    poker.shared_calls._paused.clear()
    for unit in some:
        unit.group = unit.group._replace(next_deadline=None)
    poke(poker, some, lambda _: 1_000)
    assert call.asked == [("a", ["x", "y"])]
    assert sorted(Waits.poked) == ["x", "y"]


def test_a_call_whose_backend_is_away_fails_for_all_its_groups_and_is_not_made_for_a_while(
    poker: Poker, call: Call
) -> None:
    """The batch of a service may be throttled while its single calls are answered: no group waits for it for ever."""
    call.answer = raises(ConnectionRefusedError(111, "refused"))
    found = poke(poker, units(poker, ["x", "y", "z"]))
    assert [each.outcome for each in found.values()] == [Outcome.INFRA_FAILURE] * 3
    assert Waits.poked == []
    assert {each.outcome for each in poke(poker, units(poker, ["x", "y", "z"])).values()} == {Outcome.NOT_LANDED}
    assert (len(call.asked), sorted(Waits.poked)) == (1, ["x", "y", "z"])


def test_a_group_whose_deadline_has_passed_is_poked_by_itself(poker: Poker, call: Call) -> None:
    """The answer of a call may keep a sensor waiting, and no more: its last poke is its own."""
    call.answer = lambda _: False
    late = [
        PokeUnit(due_group(number, next_deadline=deadline), classpath(Waits), text, poker.tools)
        for number, deadline in enumerate((None, 999, 1_000, 1_001, 5_000), 1)
        for text in [f'{{"kin": "a", "name": "n{number}"}}']
    ]
    assert len(poke(poker, late, lambda _: 1_000)) == 5
    assert sorted(Waits.poked) == ["n2", "n3"]
    assert call.asked == [("a", ["n1", "n4", "n5"])]


def test_the_answer_of_a_call_judges_no_deadline_that_passed_while_it_waited(poker: Poker, call: Call) -> None:
    before = time.monotonic()
    began: list[float] = []
    call.before = lambda: began.append(time.monotonic())
    found = poke(poker, units(poker, ["x", "y"]))
    assert all(before <= report.began < began[0] for report in found.values())


def test_a_call_that_takes_too_long_costs_no_group_its_poke(poker: Poker, call: Call) -> None:
    gate = threading.Event()
    call.before = lambda: gate.wait(30)
    found = poke(poker, units(poker, ["x", "y"]))
    assert {report.outcome for report in found.values()} == {Outcome.NOT_LANDED}
    assert sorted(Waits.poked) == ["x", "y"]
    gate.set()
    until("its thread", lambda: poker.abandoned == 0)
    assert sorted(Waits.poked) == ["x", "y"], "what came late is not poked again"
    poke(poker, units(poker, ["u", "v"], "another"))
    assert len(call.asked) == 1, "a backend that hangs would take a thread for each kin"


def test_a_shared_call_that_cannot_be_loaded_costs_no_poke(
    poker: Poker, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Entry) -> Any:
        raise ImportError("the provider is another one")

    monkeypatch.setattr(Entry, "load", fails)
    assert len(poke(poker, units(poker, ["x", "y"]))) == 2
    assert sorted(Waits.poked) == ["x", "y"]


# files


def test_the_files_of_a_folder(tmp_path: Any) -> None:
    for name in ("there", "Upper", "e\u0301t\u00e9", "folder"):
        (tmp_path / name).touch() if name != "folder" else (tmp_path / name).mkdir()
    names = ["there", "upper", "\u00e9te\u0301", "folder", "not", "THERE", "a", "b"]
    assert len(names) >= FEWEST
    assert in_folder(str(tmp_path), names) == [True, True, True, True, False, True, False, False]
    assert in_folder(str(tmp_path / "nowhere"), names) == [False] * len(names)
    assert in_folder(str(tmp_path / "there"), names) == [False] * len(names)
    assert in_folder(str(tmp_path), ["not"]) == [True], "one file is not worth a look at a folder"


@pytest.mark.parametrize(
    ("path", "question"),
    [
        ("/a/b/c", ("/a/b", "c")),
        ("file:///a/b", ("/a", "b")),
        ("/a", ("/", "a")),
        ("/a/*", None),
        ("/a[0]/b", None),
        ("/a/b/", None),
        ("/a/..", None),
        ("s3://bucket/a", None),
        (7, None),
    ],
)
def test_the_question_of_a_path(path: Any, question: tuple[str, str] | None) -> None:
    assert Folders().question({"path": path}) == question
    assert Folders().question({"path": path, "conn_id": "x"}) is None
