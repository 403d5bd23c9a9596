"""What is usual for a family by its landings, and what is expected of its next condition."""

import math
import random
from collections import Counter, deque

from sensorpool.model.usual_landing import ALL_DAYS, PastLanding, Usual, earliest, expected, usual_of

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
MONDAY = 1_790_553_600_000  # 2026-09-28
WEEKDAY = MONDAY // DAY % 7
ALL = (True, ALL_DAYS)
STEADY = Usual(40, HOUR, HOUR, HOUR - 7, HOUR - 8)


def test_nothing_is_expected_where_nothing_is_usual() -> None:
    assert expected({}, MONDAY, MONDAY) is None
    assert earliest({}, MONDAY, MONDAY) is None


def test_the_margin_is_five_minutes_at_least() -> None:
    assert expected({ALL: STEADY}, MONDAY, MONDAY) == (MONDAY + HOUR, MONDAY + HOUR + 5 * MINUTE, 40)
    wide = STEADY._replace(latest=2 * HOUR)
    assert expected({ALL: wide}, MONDAY, MONDAY) == (MONDAY + HOUR, MONDAY + 4 * HOUR, 40)


def test_the_landings_of_the_same_weekday_count_if_they_are_known() -> None:
    series = {ALL: STEADY, (True, WEEKDAY): Usual(10, 5 * HOUR, 5 * HOUR, HOUR, HOUR)}
    for date, usually, landings in ((MONDAY, 5 * HOUR, 10), (MONDAY + DAY, HOUR, 40)):
        found = expected(series, date, date)
        assert found == (date + usually, date + usually + 5 * MINUTE, landings)


def test_without_a_logical_date_time_counts_from_the_first_waiter() -> None:
    series = {ALL: STEADY._replace(median=9 * HOUR), (False, ALL_DAYS): STEADY}
    assert expected(series, None, MONDAY) == (MONDAY + HOUR, MONDAY + HOUR + 5 * MINUTE, 40)
    assert earliest({ALL: STEADY}, None, MONDAY) is None


def test_a_run_that_is_caught_up_has_the_margin_from_when_it_waits() -> None:
    found = expected({ALL: STEADY}, MONDAY, MONDAY + 40 * DAY)
    assert found == (MONDAY + HOUR, MONDAY + 40 * DAY + 5 * MINUTE, 40)


def test_what_was_waited_for_bounds_the_earliest_landing() -> None:
    """A family of weekly runs is used by a daily one: its logical date lies a day back, not a week."""
    weekly = {ALL: Usual(10, 0, 0, earliest=7 * DAY + HOUR, shortest_wait=HOUR)}
    assert earliest(weekly, MONDAY - DAY, MONDAY) == MONDAY + HOUR
    assert earliest(weekly, MONDAY - 7 * DAY, MONDAY) == MONDAY + HOUR


def landed(took: int, began: int, waited: int = 0) -> PastLanding:
    """Return a landing.

    :param waited: how long after its time began the first waiter came.
    """
    return PastLanding(began, began + waited, began + took)


def days(*took: int, waited: int = 0) -> list[PastLanding]:
    return [landed(each, MONDAY - (n + 1) * DAY, waited) for n, each in enumerate(took)]


def test_percentiles_are_those_of_the_landings() -> None:
    chance = random.Random(17)
    for _ in range(20):
        took = [chance.randrange(20 * HOUR) for _ in range(chance.randint(10, 60))]
        usual = usual_of(days(*took, waited=HOUR))
        took.sort()
        shortest = max(0, took[0] - HOUR)
        wanted = Usual(len(took), took[(len(took) - 1) // 2], took[math.ceil(0.9 * len(took)) - 1], took[0], shortest)
        assert usual[ALL] == wanted


def test_a_weekday_with_ten_landings_has_percentiles_of_its_own() -> None:
    landings = days(*[5 * HOUR if n % 7 == 6 else HOUR for n in range(69)])
    assert (True, WEEKDAY) not in usual_of(landings), "nine Mondays are too few"
    usual = usual_of([*landings, landed(5 * HOUR, MONDAY - 70 * DAY)])
    assert usual[True, WEEKDAY] == Usual(10, 5 * HOUR, 5 * HOUR, 5 * HOUR, 5 * HOUR)
    assert usual[ALL] == Usual(70, HOUR, 5 * HOUR, HOUR, HOUR)


def test_a_backfill_says_nothing_about_when_data_lands() -> None:
    ordinary = [landed(26 * HOUR, MONDAY - n * DAY, 24 * HOUR) for n in range(2, 42)]
    by_hand = [landed(MINUTE, MONDAY - DAY)]
    backfill = [landed(n * DAY, MONDAY - n * DAY, n * DAY) for n in range(42, 72)]
    assert usual_of(ordinary + by_hand + backfill)[ALL] == Usual(41, 26 * HOUR, 26 * HOUR, MINUTE, MINUTE)


def daily(chance: random.Random, began: int) -> float:
    """Four hours after midnight, an hour later on Mondays, and a little later every day; the tail is long."""
    monday, drift = HOUR if began // DAY % 7 == WEEKDAY else 0, (began - MONDAY) / DAY * 10_000
    return 4 * HOUR + monday + drift + chance.lognormvariate(0, 0.6) * 20 * MINUTE


def test_years_of_alerts() -> None:
    """Daily partitions of which one in a hundred comes hours late."""
    counted: Counter[str] = Counter()
    for year in range(10):
        chance, landings = random.Random(year), deque[PastLanding](maxlen=120)
        for began in range(MONDAY, MONDAY + 365 * DAY, DAY):
            has_trouble = chance.random() < 0.01
            took = round(daily(chance, began)) + (chance.randint(2 * HOUR, 10 * HOUR) if has_trouble else 0)
            if (found := expected(usual_of(landings), began, began)) is None:
                counted["not known"] += 1
            elif began + took > found.late_after:
                counted["in time" if has_trouble else "false"] += 1
            else:
                counted["missed" if has_trouble else "none"] += 1
            landings.append(landed(took, began))
    troubles = counted["in time"] + counted["missed"]
    assert troubles > 20
    assert counted["missed"] <= troubles * 0.1
    assert counted["false"] <= counted["none"] * 0.02
    assert counted["not known"] == 100
