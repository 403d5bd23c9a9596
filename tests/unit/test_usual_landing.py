"""The usual landing of a family, and a simulated year of alerts: in time, missed, false."""

import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorpool.model.usual_landing import FEWEST, MOST, Past, begins, usual

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
MONDAY = 1_790_553_600_000  # 2026-09-28


def days(*took: int, every: int = DAY) -> list[Past]:
    return [Past(MONDAY + n * every, each) for n, each in enumerate(took)]


def test_with_few_landings_nothing_is_usual() -> None:
    assert usual([], MONDAY) is None
    assert usual(days(*[HOUR] * (FEWEST - 1)), MONDAY) is None
    found = usual(days(*[HOUR] * FEWEST), MONDAY)
    assert found == (HOUR, HOUR + 5 * MINUTE, FEWEST)


def test_landings_of_the_same_weekday_count_if_there_are_enough() -> None:
    mondays_late = days(*[5 * HOUR if n % 7 == 0 else HOUR for n in range(70)])
    assert usual(mondays_late, MONDAY + 70 * DAY) == (5 * HOUR, 5 * HOUR + 5 * MINUTE, 10)
    assert usual(mondays_late, MONDAY + 71 * DAY) == (HOUR, HOUR + 5 * MINUTE, 10)
    found = usual(mondays_late[:-7], MONDAY + 63 * DAY)
    assert found is not None
    assert found.landings == 63, "nine Mondays are too few"


def test_one_landing_of_ten_may_be_any() -> None:
    assert usual(days(*[HOUR] * (FEWEST - 1), 99 * DAY), MONDAY) == (HOUR, HOUR + 5 * MINUTE, FEWEST)


def test_a_family_without_logical_dates_is_measured_from_its_first_waiter() -> None:
    assert begins(None, 7) == 7
    assert begins(0, 7) == 0


def test_a_backfill_tells_nothing_of_when_data_lands() -> None:
    ordinary = [Past(MONDAY + n * DAY, 26 * HOUR, 24 * HOUR) for n in range(40)]
    backfill = [Past(MONDAY - n * DAY, n * DAY, n * DAY) for n in range(40, 70)]
    found = usual(ordinary + backfill, MONDAY + 40 * DAY + DAY // 2)
    assert found is not None
    assert (found.after, found.late_after, found.landings) == (26 * HOUR, 26 * HOUR + 5 * MINUTE, 40)
    assert usual(backfill[:FEWEST], MONDAY) is not None, "where nothing else is known, they are all there is"


def test_a_run_that_is_caught_up_has_the_margin_from_when_it_waits() -> None:
    found = usual(days(*[HOUR] * FEWEST), MONDAY)
    assert found is not None
    assert found.expects(MONDAY, MONDAY) == (MONDAY + HOUR, MONDAY + HOUR + 5 * MINUTE)
    assert found.expects(MONDAY, MONDAY + 40 * DAY) == (MONDAY + HOUR, MONDAY + 40 * DAY + 5 * MINUTE)


@given(st.lists(st.integers(-(2**60), 2**60), min_size=FEWEST, max_size=MOST), st.integers(0, 2**60))
def test_what_is_late_is_later_than_nine_of_ten(took: list[int], began: int) -> None:
    found = usual(days(*took, every=7 * DAY), began)
    assert found is not None
    assert min(took) <= found.after <= max(took)
    assert found.late_after >= found.after + 5 * MINUTE
    assert sum(each > found.late_after for each in took) <= len(took) / 10


# a year


def year(
    step: int, took: Callable[[random.Random, int], float], delay: tuple[int, int], rng: random.Random
) -> Counter[str]:
    """Play a year of partitions of which one in a hundred comes too late; count what the alerts were."""
    past: list[Past] = []
    counted: Counter[str] = Counter()
    for n in range(365 * DAY // step):
        began, has_trouble = MONDAY + n * step, rng.random() < 0.01
        lasted = round(took(rng, began)) + (rng.randint(*delay) if has_trouble else 0)
        found = usual(past[-MOST:], began)
        if found is None:
            counted["not known"] += 1
        elif lasted > found.late_after:
            counted["in time" if has_trouble else "false"] += 1
        else:
            counted["missed" if has_trouble else "none"] += 1
        past.append(Past(began, lasted))
    return counted


def daily(rng: random.Random, began: int) -> float:
    """Four hours after midnight, an hour later on Mondays, and a little later every day; the tail is long."""
    weekday = began // DAY % 7
    drift = (began - MONDAY) / DAY * 10_000
    return 4 * HOUR + (HOUR if weekday == MONDAY // DAY % 7 else 0) + drift + rng.lognormvariate(0, 0.6) * 20 * MINUTE


def hourly(rng: random.Random, began: int) -> float:
    """Ten minutes after the hour, and twenty in the working hours."""
    is_busy = 8 <= began // HOUR % 24 <= 18
    return 10 * MINUTE + (10 * MINUTE if is_busy else 0) + rng.lognormvariate(0, 0.6) * 200_000


@pytest.mark.parametrize(
    ("step", "took", "delay", "years"),
    [(DAY, daily, (2 * HOUR, 10 * HOUR), range(10)), (HOUR, hourly, (HOUR, 6 * HOUR), range(1))],
)
def test_a_year_of_alerts(
    step: int, took: Callable[[random.Random, int], float], delay: tuple[int, int], years: Sequence[int]
) -> None:
    counted = sum((year(step, took, delay, random.Random(seed)) for seed in years), Counter[str]())
    troubles = counted["in time"] + counted["missed"]
    assert troubles > 20
    assert counted["missed"] <= troubles * 0.1
    assert counted["false"] <= counted["none"] * 0.02
    assert counted["not known"] == FEWEST * len(years)
