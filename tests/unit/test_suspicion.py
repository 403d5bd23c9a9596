"""The marks of suspects in Redis."""

import pytest

from sensorpool.model import suspicion
from sensorpool.model.suspicion import Suspicion

LOST_TURN = "; its turn was lost with its worker"


@pytest.mark.parametrize("why", Suspicion)
def test_what_is_written_is_read(why: Suspicion) -> None:
    assert suspicion.read([(1, suspicion.spell(why)), (2, suspicion.spell(why, lost_turn=True))]) == (
        {1: why, 2: why},
        [2],
    )


@pytest.mark.parametrize("text", ["", "x", LOST_TURN, "\x00", "overran", "é" * 10_000])
def test_what_is_not_known_is_a_reason_that_is_not_known(text: str) -> None:
    suspects, lost_turn = suspicion.read([(7, text)])
    assert suspects == {7: Suspicion.UNKNOWN}
    assert lost_turn == ([7] if text == LOST_TURN else [])
    assert not Suspicion.UNKNOWN.hangs
