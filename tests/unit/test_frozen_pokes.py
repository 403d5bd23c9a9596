"""Pokes that overran because their process stood still say nothing of their groups, for some pokes in a row."""

from sensorpool.model.states import Outcome
from sensorpool.model.values import Report
from sensorpool.worker.frozen_pokes import MOST, FrozenPokes
from tests.support.builders import due_group

LIMIT = 1.0


class Still:
    """A process that stood still for a while, or did not."""

    gap: tuple[float, float] | None = (100.5, 101.4)

    def __call__(self, began: float, ended: float) -> bool:
        return self.gap is not None and self.gap[0] < ended and self.gap[1] > began


def overran(group_id: int = 1, began: float = 100.0, seconds: float = LIMIT) -> Report:
    return Report(due_group(group_id), began, Outcome.POKE_TIMEOUT, "why", None, seconds)


def test_a_poke_in_which_the_process_stood_still_does_not_count() -> None:
    frozen = FrozenPokes(Still(), LIMIT)
    before, after = overran(2, began=98.0), overran(3, began=101.4)
    assert frozen.count([overran(), before, after]) == [before, after]
    assert frozen


def test_a_poke_that_always_freezes_its_process_counts_in_the_end() -> None:
    frozen = FrozenPokes(Still(), LIMIT)
    assert [len(frozen.count([overran()])) for _ in range(MOST + 1)] == [0] * MOST + [1]


def test_an_answer_ends_the_row() -> None:
    frozen = FrozenPokes(Still(), LIMIT)
    for _ in range(3):
        for _ in range(MOST):
            assert frozen.count([overran()]) == []
        frozen.answered([Report(due_group(1), 100.0, Outcome.NOT_LANDED)])
        assert not frozen


def test_a_poke_that_overran_by_itself_ends_the_row() -> None:
    frozen = FrozenPokes(still := Still(), LIMIT)
    frozen.count([overran()])
    still.gap = None
    assert len(frozen.count([overran()])) == 1
    assert not frozen


def test_a_poke_whose_process_was_killed_early_does_not_count() -> None:
    still = Still()
    still.gap = None
    frozen = FrozenPokes(still, LIMIT)
    assert frozen.count([overran(seconds=0.0)]) == []
    assert len(frozen.count([overran(seconds=LIMIT)])) == 1
