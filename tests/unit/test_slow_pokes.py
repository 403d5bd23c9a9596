"""Pokes that go on in their process after their job."""

from typing import Any
from unittest.mock import MagicMock, Mock

from sensorpool.leases.lease import Leases
from sensorpool.leases.redis_store import RedisStore
from sensorpool.model.values import Failing, ShardRange
from sensorpool.settle.infra_window import InfraWindow
from sensorpool.worker.slow_pokes import SlowPokes
from tests.support.builders import START

RANGE = ShardRange(0, 10)


def test_the_failure_of_a_group_goes_on_with_its_poke(client: Any) -> None:
    leases = Leases(RedisStore(client), lease_ttl=30)
    slow_pokes = SlowPokes(leases, Mock(let_go=lambda _: {}), Mock(), MagicMock(), heartbeat=5.0)
    poking = Mock(outstanding={}, is_idle=False, is_over=True, step=list, take_returned=list)
    failures = InfraWindow(600.0).of_range({1: START - 5_000, 2: START - 9_000})
    slow_pokes.adopt(poking, [(RANGE, [1], failures)], START)
    slow_pokes.close()
    assert leases.outside_failures.of(RANGE, [1, 2]) == {1: Failing(START - 5_000, START)}
    assert failures.since == {2: START - 9_000}, "it is poked in jobs"
