"""What is expected of a condition, by what is usual for its family."""

from sensorpool.model.usual_landing import ALL_DAYS, Usual, earliest, expected

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
MONDAY = 1_790_553_600_000  # 2026-09-28
WEEKDAY = MONDAY // DAY % 7
STEADY = Usual(40, HOUR, HOUR, HOUR - 7, HOUR - 8)


def test_nothing_is_expected_where_nothing_is_usual() -> None:
    assert expected({}, MONDAY, MONDAY) is None
    assert earliest({}, MONDAY, MONDAY) is None


def test_the_margin_is_five_minutes_at_least() -> None:
    assert expected({(True, ALL_DAYS): STEADY}, MONDAY, MONDAY) == (MONDAY + HOUR, MONDAY + HOUR + 5 * MINUTE, 40)
    wide = STEADY._replace(latest=2 * HOUR)
    assert expected({(True, ALL_DAYS): wide}, MONDAY, MONDAY) == (MONDAY + HOUR, MONDAY + 4 * HOUR, 40)


def test_the_landings_of_the_same_weekday_count_if_they_are_known() -> None:
    series = {(True, ALL_DAYS): STEADY, (True, WEEKDAY): Usual(10, 5 * HOUR, 5 * HOUR, HOUR, HOUR)}
    for date, usually, landings in ((MONDAY, 5 * HOUR, 10), (MONDAY + DAY, HOUR, 40)):
        found = expected(series, date, date)
        assert found == (date + usually, date + usually + 5 * MINUTE, landings)


def test_without_a_logical_date_time_counts_from_the_first_waiter() -> None:
    series = {(True, ALL_DAYS): STEADY._replace(median=9 * HOUR), (False, ALL_DAYS): STEADY}
    assert expected(series, None, MONDAY) == (MONDAY + HOUR, MONDAY + HOUR + 5 * MINUTE, 40)
    assert earliest({(True, ALL_DAYS): STEADY}, None, MONDAY) is None


def test_a_run_that_is_caught_up_has_the_margin_from_when_it_waits() -> None:
    found = expected({(True, ALL_DAYS): STEADY}, MONDAY, MONDAY + 40 * DAY)
    assert found == (MONDAY + HOUR, MONDAY + 40 * DAY + 5 * MINUTE, 40)


def test_what_was_waited_for_bounds_the_earliest_landing() -> None:
    """A family of weekly runs is used by a daily one: its logical date lies a day back, not a week."""
    weekly = {(True, ALL_DAYS): Usual(10, 0, 0, earliest=7 * DAY + HOUR, shortest_wait=HOUR)}
    assert earliest(weekly, MONDAY - DAY, MONDAY) == MONDAY + HOUR
    assert earliest(weekly, MONDAY - 7 * DAY, MONDAY) == MONDAY + HOUR
