"""The notes on outages in Redis: what other processes read, and what is forgotten."""

import time
from typing import Any

import pytest

from sensorpool.admin.look import outage_shown
from sensorpool.instrumentation import redaction
from sensorpool.leases.outages import STALE, Outages
from sensorpool.leases.redis_store import RedisStore
from sensorpool.model.outage import Kind, Outage, away, throttled

NAME = "warehouse"
KEY = "sensorpool:{pool}:outages"


@pytest.fixture
def outages(client: Any) -> Outages:
    """The outages of an empty pool."""
    return Outages(RedisStore(client))


def gone(name: str = NAME, *, ago: float = 0.0) -> Outage:
    """An outage that has begun some seconds ago."""
    return away(None, name, "refused", time.monotonic() - ago, 5.0)


def test_what_one_process_notes_another_one_reads(outages: Outages, client: Any) -> None:
    noted = [gone("a"), throttled(None, "b", "429", time.monotonic(), 5.0, 40.0)]
    for each in noted:
        outages.write(each)
    found = Outages(RedisStore(client)).look()
    assert [each[:2] for each in found] == [each[:2] for each in noted]
    assert [each.cause for each in found] == ["refused", "429"]
    for seen, each in zip(found, noted, strict=True):
        assert seen[2:6] == pytest.approx(each[2:6], abs=0.5)
    assert [each.backend for each in outages.away()] == ["a", "b"]


def test_one_that_is_over_is_known_for_a_while_and_not_away(outages: Outages) -> None:
    outages.write(gone().healed(time.monotonic()))
    assert [each.kind for each in outages.look()] == [Kind.HEALED]
    assert outages.away() == []
    outages.write(gone().healed(time.monotonic() - 61))
    assert outages.look() == []


@pytest.mark.parametrize(("ago", "is_known"), [(STALE - 60, True), (STALE + 60, False)])
def test_one_that_nobody_asks_about_is_forgotten(outages: Outages, client: Any, ago: float, is_known: bool) -> None:
    outages.write(gone(ago=ago))
    assert bool(outages.look()) is is_known
    assert bool(client.hlen(KEY)) is is_known


def test_a_clock_that_is_put_back_holds_no_group(outages: Outages) -> None:
    outages.write(gone(ago=-3_600.0))
    assert outages.look() == []


@pytest.mark.parametrize("text", ["", "x", "1", "[]", '["odd", 1, 1, 0, 5, "x"]', '["away", "x", 1, 0, 5, "x"]'])
def test_a_note_that_cannot_be_read_is_dropped(outages: Outages, client: Any, text: str) -> None:
    client.hset(KEY, "other", text)
    outages.write(gone())
    assert [each.backend for each in outages.look()] == [NAME]
    assert client.hkeys(KEY) == [NAME]


@pytest.mark.parametrize("name", ["a." * 120 + "B", "warehouse_of_hush hush hush"])
def test_a_name_is_kept_as_it_is(outages: Outages, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is shown cut, and without secrets; a group finds its backend by all of it."""
    monkeypatch.setattr(redaction, "_known", ("hush hush hush",))
    outages.write(gone(name))
    [seen] = outages.look()
    assert seen.backend == name
    assert outage_shown(seen)["backend"] != name
