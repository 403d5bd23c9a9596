"""The outages of backends in Redis: who asks next, for how long, and what is not ours there."""

from typing import Any

import pytest

from harness.until import until
from sensorpool.admin import backends
from sensorpool.instrumentation import redaction
from sensorpool.leases.outages import MOST, Kind, Outages
from sensorpool.leases.redis_store import RedisStore

NAME = "warehouse"


@pytest.fixture
def outages(client: Any) -> Outages:
    """The outages of an empty pool."""
    return Outages(RedisStore(client))


def test_an_outage_begins_once(outages: Outages) -> None:
    assert outages.look() == []
    begun = outages.begin(NAME, Kind.AWAY, "refused", wait=5)
    assert begun == (True, 5.0)
    again = outages.begin(NAME, Kind.AWAY, "refused again", wait=5)
    assert not again.is_new
    assert 4 < again.left <= 5
    [seen] = outages.look()
    assert (seen.backend, seen.kind, seen.cause) == (NAME, Kind.AWAY, "refused")
    assert 0 <= seen.lasted < 2
    assert 3 < seen.left <= 5


def test_a_longer_quiet_span_counts(outages: Outages) -> None:
    assert outages.begin(NAME, Kind.THROTTLED, "429", wait=5, quiet=20).left == 20
    assert outages.begin(NAME, Kind.THROTTLED, "429", wait=5, quiet=3).left > 18
    assert outages.begin(NAME, Kind.THROTTLED, "429", wait=5, quiet=60).left == 60


def test_one_poke_at_a_time_asks(outages: Outages) -> None:
    outages.begin(NAME, Kind.AWAY, "refused", wait=0.05)
    early = outages.take_turn(NAME, "a", 30)
    assert early is not None
    until("the pause", lambda: outages.take_turn(NAME, "a", 30) == 0.0)
    left = outages.take_turn(NAME, "b", 30)
    assert left is not None
    assert 28 < left <= 30
    assert outages.failed(NAME, 30) == pytest.approx(0.1, rel=0.25)
    until("the next pause", lambda: outages.take_turn(NAME, "b", 30) == 0.0)
    lasted = outages.answered(NAME)
    assert lasted is not None
    assert outages.answered(NAME) is None
    assert outages.take_turn(NAME, "c", 30) is None
    [seen] = outages.look()
    assert seen.kind is Kind.HEALED


def test_a_turn_that_nobody_ends_goes_to_another(outages: Outages) -> None:
    outages.begin(NAME, Kind.AWAY, "refused", wait=0.001)
    until("a turn", lambda: outages.take_turn(NAME, "dies", 0.05) == 0.0)
    until("another turn", lambda: outages.take_turn(NAME, "lives", 30) == 0.0)


def test_pauses_double_up_to_a_longest_one(outages: Outages) -> None:
    outages.begin(NAME, Kind.AWAY, "refused", wait=5)
    pauses = [outages.failed(NAME, 30) for _ in range(5)]
    assert all(pause > 8 * 0.79 for pause in pauses)
    assert all(pause <= 30 * 1.2 for pause in pauses)
    assert pauses[-1] > 20


def test_a_backend_that_goes_away_again_at_once_is_no_new_outage(outages: Outages) -> None:
    outages.begin(NAME, Kind.AWAY, "refused", wait=5)
    outages.failed(NAME, 30)
    outages.answered(NAME)
    again = outages.begin(NAME, Kind.AWAY, "refused", wait=5)
    assert not again.is_new
    assert again.left == 10  # it goes on with the pause that it had


def test_there_are_so_many_at_most(outages: Outages) -> None:
    for number in range(MOST):
        outages.begin(f"backend {number}", Kind.AWAY, "", wait=5)
    assert not outages.begin("one more", Kind.AWAY, "", wait=5).is_new
    assert len(outages.look()) == MOST


def test_those_of_long_ago_make_room(outages: Outages, client: Any) -> None:
    for number in range(MOST):
        client.hset("sensorpool:{pool}:outages", f"backend {number}", "1000 2000 5000 healed long ago")
    assert outages.begin("one more", Kind.AWAY, "", wait=5).is_new
    assert client.hlen("sensorpool:{pool}:outages") == 1


@pytest.mark.parametrize("name", ["a." * 120 + "B", "warehouse_of_hush hush hush"])
def test_a_name_is_kept_as_it_is(outages: Outages, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is shown cut, and without secrets; a group finds its backend by all of it."""
    monkeypatch.setattr(redaction, "_known", ("hush hush hush",))
    outages.begin(name, Kind.AWAY, "", wait=5)
    [seen] = outages.look()
    assert seen.backend == name
    assert backends.shown(seen)["backend"] != name


def test_a_clock_that_is_put_back_holds_no_group(outages: Outages, client: Any) -> None:
    seconds, _ = client.time()
    for kind in ("away", "throttled", "healed"):
        later = f"{seconds * 1000 + 3_600_000} {seconds * 1000 + 3_605_000} 5000 {kind} x"
        client.hset("sensorpool:{pool}:outages", NAME, later)
        assert outages.look() == []
        assert outages.take_turn(NAME, "a", 30) is None
        assert outages.begin(NAME, Kind.AWAY, "now", wait=5).is_new


def test_a_backend_that_is_throttled_again_and_again_is_left_alone_each_time(outages: Outages, client: Any) -> None:
    """What has lasted for hours counts as lost, and its groups are poked; this one answers in between."""
    seconds, _ = client.time()
    hours_ago, just_now = seconds * 1000 - 9_000_000, seconds * 1000 + 50_000
    client.hset("sensorpool:{pool}:outages", NAME, f"{hours_ago} {just_now} 5000 healed x")
    assert not outages.begin(NAME, Kind.THROTTLED, "429", wait=5, quiet=30).is_new
    assert outages.look()[0].lasted < 5


@pytest.mark.parametrize("text", ["", "x", "1 2", "9" * 400, "1 2 3 odd cause", "-1 2 3 away x", "1 2 3 away x\ny"])
def test_what_is_not_ours_is_passed_over(outages: Outages, client: Any, text: str) -> None:
    client.hset("sensorpool:{pool}:outages", NAME, text)
    client.hset("sensorpool:{pool}:probes", NAME, text)
    outages.look()
    outages.take_turn(NAME, "a", 30)
    outages.failed(NAME, 30)
    outages.begin(NAME, Kind.AWAY, "refused", wait=5)
    assert [each.backend for each in outages.look()] == [NAME]
    assert outages.answered(NAME) is not None


@pytest.mark.parametrize("key", ["outages", "probes"])
def test_a_key_of_another_type_counts_as_lost(outages: Outages, client: Any, key: str) -> None:
    outages.begin(NAME, Kind.AWAY, "refused", wait=0.001)
    client.delete(f"sensorpool:{{pool}}:{key}")
    client.set(f"sensorpool:{{pool}}:{key}", "not ours")
    outages.look()
    outages.take_turn(NAME, "a", 30)
    client.delete(f"sensorpool:{{pool}}:{key}")
    client.set(f"sensorpool:{{pool}}:{key}", "not ours")
    outages.failed(NAME, 30)
    outages.begin(NAME, Kind.AWAY, "refused", wait=5)
    assert [each.backend for each in outages.look()] == [NAME]


def test_an_old_outage_for_which_nobody_waits_is_none(outages: Outages, client: Any) -> None:
    client.hset("sensorpool:{pool}:outages", NAME, "1000 2000 5000 away long ago")
    assert outages.look() == []
    assert outages.begin(NAME, Kind.AWAY, "now", wait=5).is_new
