"""The end of a job: what has been poked is taken in, however late, and is not taken for slow."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from sensorpool.model.not_landed import Seen
from sensorpool.model.states import Outcome
from sensorpool.model.values import Report
from sensorpool.poke.unit import PokeUnit
from sensorpool.worker import dispatch, set_apart
from tests.support.builders import due_group, one
from tests.support.sensors.answering import Lands


class Late:
    """A poking whose poke ends between the last look of its job and the end."""

    def __init__(self, unit: PokeUnit) -> None:
        self.outstanding = {unit.group.id: unit}
        self.is_withdrawn = False

    def take_returned(self) -> list[PokeUnit]:
        return []

    def withdraw(self) -> list[PokeUnit]:
        """Give nothing back: the poke has begun."""
        self.is_withdrawn = True
        return []

    def step(self) -> list[Seen]:
        """Report the poke."""
        if not self.is_withdrawn or not self.outstanding:
            return []
        self.outstanding.clear()
        return [Report(due_group(1), 0.0, Outcome.LANDED)]


def test_what_ends_at_the_last_moment_is_not_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Seen] = []
    monkeypatch.setattr(dispatch.reports, "take", lambda _, seen: taken.extend(seen))
    monkeypatch.setattr(dispatch.reports, "settle", lambda _: None)
    monkeypatch.setattr(set_apart, "stuck", lambda run, poking, left: left)
    settings = SimpleNamespace(poke_concurrency=4, job_span=0.0, tick=5.0, heartbeat=5.0)
    run: Any = SimpleNamespace(
        settings=settings, lease=Mock(), outcomes=Mock(), worker=Mock(budgets=(), away=()), began=0.0
    )
    poking: Any = Late(one(1, Lands))
    poked = dispatch._Dispatch(run, []).poke_in_turn(poking)
    assert poked.left == []
    assert [each.group.id for each in taken if isinstance(each, Report)] == [1]
    assert not poking.outstanding
