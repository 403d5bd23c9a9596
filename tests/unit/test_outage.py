"""The circuit breaker of one backend: when it is asked, when an answer ends it, and when it is forgotten."""

import pytest

from sensorpool.model.outage import HEALED_KEPT, LONGEST_PAUSE, Kind, Outage, away, throttled

NOW = 1_000.0
WAIT = 5.0


def begin(before: Outage | None = None, now: float = NOW, wait: float = WAIT) -> Outage:
    return away(before, "hive", "refused", now, wait)


def quiet(before: Outage | None, seconds: float, now: float = NOW) -> Outage:
    return throttled(before, "hive", "429", now, WAIT, seconds)


def test_the_first_poke_asks_after_a_tick() -> None:
    assert begin() == Outage("hive", Kind.AWAY, NOW, NOW + WAIT, 2 * WAIT, 0.0, "refused")
    assert begin(wait=300.0).ask_at == NOW + LONGEST_PAUSE


def test_pauses_double_up_to_a_longest_one() -> None:
    outage, now, pauses = begin(), NOW, []
    for _ in range(6):
        now = outage.ask_at
        outage = outage.asked(now)
        pauses.append(outage.ask_at - now)
    assert pauses == [pytest.approx(each, rel=0.21) for each in (10, 20, 30, 30, 30, 30)]


@pytest.mark.parametrize(("began", "ends"), [(NOW - 1, False), (NOW, False), (NOW + 0.1, True)])
def test_the_first_answer_to_a_later_poke_ends_it(began: float, ends: bool) -> None:
    assert begin().is_ended_by(began) is ends


def test_one_that_has_healed_is_known_for_a_while() -> None:
    healed = begin().healed(NOW + 60)
    assert not healed.is_open
    assert not healed.is_ended_by(NOW + 61)
    assert healed.ask_at == NOW + 60 + HEALED_KEPT


def test_one_that_goes_away_again_goes_on_with_its_pause() -> None:
    healed = begin().asked(NOW + 5).healed(NOW + 6)
    assert begin(healed, NOW + 10).ask_at == NOW + 10 + 20


def test_a_backend_is_left_alone_for_as_long_as_it_wants_and_a_part_more() -> None:
    found = quiet(None, 40)
    assert found.kind is Kind.THROTTLED
    assert NOW + 40 <= found.ask_at == found.quiet_until <= NOW + 50
    assert not found.is_ended_by(NOW + 39)
    assert found.is_ended_by(NOW + 51)
    assert quiet(found, 30) is found
    assert quiet(found, 400).ask_at >= NOW + 400


def test_one_that_is_away_may_want_to_be_left_alone_too() -> None:
    found = quiet(begin(), 40)
    assert found.kind is Kind.AWAY
    assert found.ask_at >= NOW + 40
    assert found.asked(NOW + 1).ask_at >= NOW + 40


def test_a_throttled_backend_that_has_answered_is_throttled_anew() -> None:
    again = quiet(quiet(None, 5).healed(NOW + 10), 5, NOW + 20)
    assert (again.kind, again.since) == (Kind.THROTTLED, NOW + 20)
