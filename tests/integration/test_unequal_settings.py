"""A worker has read other settings than this process: `doctor` names them, as for a worker that was not restarted."""

from collections.abc import Callable, Iterator

import pytest

from sensorpool import Pool
from sensorpool.admin import findings
from sensorpool.leases.lease import leases_of
from sensorpool.leases.roster import Roster
from sensorpool.service.presence import Presence, terms_of

NAME = "celery@there"


@pytest.fixture
def pool(make_pool: Callable[..., Pool], redis_url: str) -> Pool:
    return make_pool(redis_url=redis_url, shards=1, poke_timeout=5.0)


@pytest.fixture
def live(pool: Pool) -> Iterator[Callable[..., Presence]]:
    """Has a worker live that has read other settings."""
    made: list[Presence] = []

    def make(**read: object) -> Presence:
        settings = pool.settings.model_copy(update=read)
        terms = terms_of(settings, pool.database)
        presence = Presence(settings, Roster(leases_of(settings)), f"{NAME}/1", terms, "0.1")
        presence.enter()
        made.append(presence)
        return presence

    yield make
    for presence in made:
        presence.leave()


def told(pool: Pool) -> list[str]:
    return [each.said for each in findings.doctor(pool.settings) if "has read other settings" in each.said]


def test_a_worker_with_equal_settings_is_not_told(pool: Pool, live: Callable[..., Presence]) -> None:
    live()
    assert told(pool) == []


def test_each_setting_is_told_once_with_the_mend(pool: Pool, live: Callable[..., Presence]) -> None:
    presence = live(poke_timeout=7.0, sensors_enabled=("a.B",), poke_concurrency=3)
    live(poke_timeout=9.0)
    timeout, sensors = sorted(told(pool), key=lambda said: "SENSORS_ENABLED" in said)
    assert sensors.startswith(f"{NAME} has read other settings: SENSORS_ENABLED is ")
    assert "a.B only there" in sensors
    assert "; a worker reads its settings when it starts: restart it" in timeout
    assert "POKE_TIMEOUT is 5.0 here and " in timeout
    pool.leases.store.client.delete(f"sensorpool:{{pool}}:settings:{presence.name}")
    assert not any("SENSORS_ENABLED" in line for line in told(pool)), "only the other worker is told"
    pool.leases.store.client.flushall()
    assert told(pool) == [], "the roster is gone, too"
