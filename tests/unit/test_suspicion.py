"""The marks of suspects in Redis, which the versions before and after read and write beside this one."""

import pytest

from sensorpool.model import suspicion
from sensorpool.model.suspicion import Suspicion

# the texts that the version before writes, and compares
BEFORE = {
    "in a dead holder's hands": Suspicion.DEAD_HOLDER,
    "ran out of memory, files or threads": Suspicion.OUT_OF_MEMORY,
    "overran its time limit": Suspicion.OVERRAN,
    "its poke takes long": Suspicion.SLOW,
    "its class hangs": Suspicion.CLASS_HANGS,
    "its poke took its process down before": Suspicion.CRASHED,
    "processes that had poked it died again and again": Suspicion.LATE_CRASHES,
}
LOST_TURN = "; its turn was lost with its worker"


@pytest.mark.parametrize(("text", "why"), BEFORE.items())
def test_it_is_written_and_read_as_by_the_version_before(text: str, why: Suspicion) -> None:
    assert suspicion.spell(why) == text
    assert suspicion.spell(why, lost_turn=True) == text + LOST_TURN
    assert suspicion.read([(1, text), (2, text + LOST_TURN)]) == ({1: why, 2: why}, [2])


@pytest.mark.parametrize("why", Suspicion)
def test_the_codes_that_the_next_version_may_write_are_read(why: Suspicion) -> None:
    code = why.name.lower()
    assert suspicion.read([(1, code), (2, f"{code};lost_turn")]) == ({1: why, 2: why}, [2])


@pytest.mark.parametrize("why", Suspicion)
def test_what_is_written_is_read(why: Suspicion) -> None:
    assert suspicion.read([(1, suspicion.spell(why)), (2, suspicion.spell(why, lost_turn=True))]) == (
        {1: why, 2: why},
        [2],
    )


@pytest.mark.parametrize("text", ["", "x", LOST_TURN, "\x00", "OVERRAN", "é" * 10_000])
def test_what_is_not_known_is_a_reason_of_another_version(text: str) -> None:
    suspects, lost_turn = suspicion.read([(7, text)])
    assert suspects == {7: Suspicion.UNKNOWN}
    assert lost_turn == ([7] if text == LOST_TURN else [])
    assert not Suspicion.UNKNOWN.hangs
