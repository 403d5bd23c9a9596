"""The shop's tests: the pool is in this process, and does what a test says."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from shop.sensors import delivered
from shop.tasks import tell_when_all_are_delivered

import sensorpool.testing
from sensorpool.pytest_plugin import TestPool


@pytest.fixture
def pool() -> Iterator[TestPool]:
    with sensorpool.testing.pool() as pool:
        yield pool


def test_a_delivery(pool: TestPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_DELIVERIES", str(tmp_path))
    instance = sensorpool.register(delivered("acme", "2030-01-31"))
    assert pool.poke() == {instance.id: "sensing"}
    (tmp_path / "acme-2030-01-31.csv").touch()
    assert pool.poke() == {instance.id: "success"}
    assert instance.xcom_value == str(tmp_path / "acme-2030-01-31.csv")


def test_all_deliveries_of_a_day(pool: TestPool) -> None:
    every = tell_when_all_are_delivered(["acme", "umbrella"], "2030-01-31")
    again = tell_when_all_are_delivered(["acme", "umbrella"], "2030-01-31")
    assert again.id == every.id  # it has a key, so it registers once
    pool.land(*pool.registered[:2])
    pool.poke(every)
    assert [each.task for each in pool.sent] == ["shop.alarm"]
    assert pool.sent[0].args[0]["state"] == "all there"


def test_a_delivery_that_does_not_come(pool: TestPool) -> None:
    every = tell_when_all_are_delivered(["acme", "umbrella"], "2030-01-31")
    pool.time_out(*pool.registered[:1])
    pool.poke(every)
    [sent] = pool.sent
    assert sent.result["state"] == "failed"
