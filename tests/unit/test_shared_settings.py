"""Settings that all processes of a pool share: what a worker tells of its own, and what differs."""

import pytest

from sensorpool import Settings
from sensorpool.config.shared import differences, shared

URL = "sqlite:////nowhere/x.db"


def settings(**more: object) -> Settings:
    return Settings.load(
        database_url=URL, redis_url="redis://:hush@localhost/1", web_token="hush hush hush hush", **more
    )


def test_nothing_secret_is_told() -> None:
    assert "hush" not in str(shared(settings()))


def test_equal_settings_differ_in_nothing() -> None:
    assert differences(shared(settings(poke_timeout=5)), shared(settings(poke_timeout=5.0))) == []


def test_each_difference_is_one_line() -> None:
    here = shared(settings(sensors_enabled="a.B,c.*,d.E", poke_timeout=5, on_settled_tasks="x,y"))
    there = shared(settings(sensors_enabled="a.B,f.G", on_settled_tasks="y,x"))
    assert differences(here, there) == [
        "SENSORS_ENABLED is c.*, d.E only here; f.G only there",
        "POKE_TIMEOUT is 5.0 here and 10.0 there",
        "ON_SETTLED_TASKS is in another order there",
    ]


@pytest.mark.parametrize("there", [{}, {"poke_timeouts": 1}])
def test_what_another_version_does_not_tell_is_no_difference(there: dict[str, object]) -> None:
    assert differences(shared(settings()), there) == []
