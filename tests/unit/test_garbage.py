"""Python's search for garbage while a batch is made."""

import gc
from collections.abc import Iterator

import pytest

from sensorpool.instrumentation.garbage import seldom_collected

USUAL = (700, 10, 10)


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*USUAL)
    yield
    gc.set_threshold(*before)


def test_it_is_less_often_and_as_before_afterwards() -> None:
    with seldom_collected():
        assert gc.get_threshold() == (20_000, 10, 10)
    assert gc.get_threshold() == USUAL


def test_it_is_as_before_after_an_error() -> None:
    with pytest.raises(ValueError, match="bad"), seldom_collected():
        raise ValueError("bad")
    assert gc.get_threshold() == USUAL


@pytest.mark.parametrize("own", [(0, 10, 10), (50_000, 5, 5)])
def test_a_program_that_searches_less_often_or_never_keeps_its_thresholds(own: tuple[int, int, int]) -> None:
    gc.set_threshold(*own)
    with seldom_collected():
        assert gc.get_threshold() == own
    assert gc.get_threshold() == own


def test_what_the_program_sets_meanwhile_stays() -> None:
    with seldom_collected():
        gc.set_threshold(1_000, 10, 10)
    assert gc.get_threshold() == (1_000, 10, 10)


def test_batches_that_overlap_leave_the_thresholds_as_they_were() -> None:
    first, second = seldom_collected(), seldom_collected()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert gc.get_threshold() == USUAL
