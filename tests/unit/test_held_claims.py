"""Claims that are made again have their groups marked again, also where the first attempt fails."""

from collections.abc import Mapping
from typing import Any

import pytest

from sensorpool.errors import Unreachable
from sensorpool.model.values import Milliseconds, ShardRange
from sensorpool.worker.held_claims import HeldClaims

RANGE = ShardRange(0, 100)


class Claims:
    """Stands for the claims in Redis."""

    def __init__(self) -> None:
        self.ended: set[int] = set()
        self.dropped: list[int] = []
        self.away = False

    def renew(self, claims: Mapping[ShardRange, Mapping[int, Milliseconds]], _: float) -> dict[ShardRange, list[int]]:
        again = {each: [group_id for group_id in groups if group_id in self.ended] for each, groups in claims.items()}
        self.ended.clear()
        if self.away:
            raise Unreachable("the answer is lost")
        return {each: groups for each, groups in again.items() if groups}

    def drop(self, _: ShardRange, group_ids: Any) -> None:
        self.dropped += group_ids


@pytest.fixture
def claims() -> Claims:
    return Claims()


@pytest.fixture
def held(claims: Any) -> HeldClaims:
    made = HeldClaims(claims, 15)
    made.hold(RANGE, [1, 2, 3], 7)
    return made


class Marks(list[int]):
    """The groups that were marked again."""

    away = False

    def __call__(self, _: ShardRange, group_ids: list[int]) -> None:
        if self.away:
            raise Unreachable("Redis does not answer")
        self.extend(group_ids)


def test_only_what_was_claimed_again_is_marked(held: HeldClaims, claims: Claims) -> None:
    marks, claims.ended = Marks(), {2}
    held.renew([1, 2, 3], marks)
    held.renew([1, 2, 3], marks)
    assert marks == [2]


def test_a_mark_that_fails_is_made_with_the_next_renewal(held: HeldClaims, claims: Claims) -> None:
    marks, claims.ended = Marks(), {2}
    marks.away = True
    with pytest.raises(Unreachable):
        held.renew([1, 2, 3], marks)
    marks.away = False
    held.renew([1, 2, 3], marks)
    assert 2 in marks


def test_where_the_answer_is_lost_all_may_have_been_claimed_again(held: HeldClaims, claims: Claims) -> None:
    marks, claims.ended, claims.away = Marks(), {2}, True
    with pytest.raises(Unreachable):
        held.renew([1, 2], marks)
    claims.away = False
    held.let_go([1])
    held.renew([1, 2, 3], marks)
    assert marks == [2]
    held.renew([2, 3], marks)
    assert marks == [2]


def test_what_is_let_go_meanwhile_is_dropped_again(held: HeldClaims, claims: Claims) -> None:
    marks, claims.ended = Marks(), {2}
    real = claims.renew

    def renew(*arguments: Any) -> Any:
        held.let_go([2])
        return real(*arguments)

    claims.renew = renew  # type: ignore[method-assign]
    held.renew([1, 2], marks)
    assert (marks, claims.dropped) == ([], [2])
