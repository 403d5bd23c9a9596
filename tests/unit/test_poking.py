"""One job's poking: an error in one lane does not affect the other."""

import logging

import pytest

from harness.until import until
from sensorpool.config.settings import Settings
from sensorpool.model.states import Outcome
from sensorpool.model.values import Report
from sensorpool.poke.loop_lane import LoopLane
from sensorpool.poke.poker import Poker
from sensorpool.poke.thread_lane import ThreadLane
from tests.support.builders import classpath, one, outcomes
from tests.support.sensors import answering

CLASSES = (answering.Lands, answering.AsyncLands)


@pytest.mark.parametrize("bad", [LoopLane, ThreadLane])
def test_a_lane_that_raises_loses_no_report_and_is_logged_once(
    bad: type, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    poker = Poker(Settings.load(sensors_enabled=[classpath(cls) for cls in CLASSES]))
    for cls in CLASSES:
        poker.classes.find(classpath(cls))
    poking = poker.begin()
    ones = [one(number, cls, poker.tools) for number, cls in enumerate(CLASSES)]
    poking.put(ones, [each.group.id for each in ones])
    raised = []

    def supervise(self: object) -> None:
        raised.append(self)
        raise RuntimeError("it cannot be looked after")

    monkeypatch.setattr(bad, "supervise", supervise)
    seen: list[Report] = []

    def all_seen() -> bool:
        seen.extend(poking.step())
        return len(seen) == len(CLASSES) and len(raised) > 2

    with caplog.at_level(logging.ERROR):
        until("both are reported", all_seen)
    assert outcomes(seen) == dict.fromkeys(range(len(CLASSES)), Outcome.LANDED)
    assert len([record for record in caplog.records if "looked after" in record.getMessage()]) == 1
    until("it is over", lambda: poking.is_over)
    poking.end()
