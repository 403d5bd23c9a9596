"""Patterns in ``sensors_enabled``: how they are written, and what is refused."""

import pytest

from sensorpool import Settings
from sensorpool.errors import SettingsError
from sensorpool.model.patterns import covers


@pytest.mark.parametrize(
    "entry", ["mycompany.*", "mycompany.sensors.*", " mycompany.sensors:* ", "airflow.providers.*", "_own.a1.*"]
)
def test_a_package_with_a_star_at_its_end_is_a_pattern(entry: str) -> None:
    assert Settings.load(sensors_enabled=entry).sensors_enabled == (entry.strip().replace(":", "."),)


def test_class_paths_stand_beside_patterns() -> None:
    settings = Settings.load(sensors_enabled="mycompany.sensors.*, other.mod:Class,sensorpool.sensors.PathSensor")
    assert settings.sensors_enabled == ("mycompany.sensors.*", "other.mod.Class", "sensorpool.sensors.PathSensor")


@pytest.mark.parametrize("entry", ["*", "**", ".*", "*.*", " * "])
def test_a_pattern_of_everything_is_refused(entry: str) -> None:
    with pytest.raises(SettingsError) as refused:
        Settings.load(sensors_enabled=f"sensorpool.sensors.PathSensor,{entry}")
    assert "would enable every class: name a package in front, as in 'mycompany.sensors.*'" in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    "entry",
    [
        *(
            "airflow*",
            "airflow.prov*",
            "airflow.providers.*.sensors",
            "airflow.*.S3KeySensor",
            "a.*.b.*",
            "a.**",
            "a.*.*",
        ),
        *("*.S3KeySensor", "*Sensor", "a..*", ".a.*", "a.b*", "a.?", "a.[bc].*", "a b.*", "1a.*", "ä.*", "a.*\n.b"),
        "a" * 500 + ".*",
    ],
)
def test_any_other_star_is_refused(entry: str) -> None:
    with pytest.raises(SettingsError) as refused:
        Settings.load(sensors_enabled=[entry])
    assert "is no pattern: write it as 'mycompany.sensors.*', a package with one .* at its end" in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_other_settings_of_class_paths_take_no_pattern() -> None:
    with pytest.raises(SettingsError, match=r"INFRA_FAILURES: 'requests\.exceptions\.\*' is not a class path"):
        Settings.load(infra_failures="requests.exceptions.*")


def test_a_pattern_covers_whole_names() -> None:
    assert covers("my.sensors.*", "my.sensors.Arrived")
    assert covers("my.sensors.*", "my.sensors.files.Arrived")
    assert not covers("my.sensors.*", "my.sensors_too.Arrived")
    assert not covers("my.sensors.*", "my.sensors")
