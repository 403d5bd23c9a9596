"""TimeSensor."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from sensorpool.sensors import TimeSensor


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))])
def test_holds_from_its_moment_on(zone: timezone) -> None:
    now = datetime.now(zone)
    assert TimeSensor((now - timedelta(minutes=1)).isoformat()).poke({})
    assert not TimeSensor((now + timedelta(hours=1)).isoformat()).poke({})


def test_holds_at_the_very_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = datetime(2030, 1, 31, 6, tzinfo=UTC)
    sensor = TimeSensor("2030-01-31T06:00:00Z")
    monkeypatch.setattr("time.time", lambda: moment.timestamp())
    assert sensor.poke({}) is True
    monkeypatch.setattr("time.time", lambda: moment.timestamp() - 0.001)
    assert sensor.poke({}) is False


@pytest.mark.parametrize(
    ("target_time", "error", "said"),
    [
        ("2030-01-31T06:00:00", ValueError, "has no offset"),
        ("2030-01-31", ValueError, "has no offset"),
        ("tomorrow", ValueError, "not an ISO 8601 time"),
        ("2030-02-31T06:00:00Z", ValueError, "not an ISO 8601 time"),
        ("", ValueError, "empty"),
        (1_900_000_000, TypeError, "is a string, not int"),
        (None, TypeError, "is a string, not NoneType"),
    ],
)
def test_refuses(target_time: object, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said) as caught:
        TimeSensor(target_time)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("target_time", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_takes_the_ends_of_time(target_time: str) -> None:
    assert TimeSensor(target_time).poke({}) is target_time.startswith("0001")
