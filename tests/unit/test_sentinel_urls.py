"""URLs of Sentinels."""

import pytest

from sensorpool.config.settings import Settings
from sensorpool.errors import SettingsError
from sensorpool.model import sentinel
from sensorpool.publish.application import celery_settings

URL = "sentinel://us%40er:p%2Fw@one:26380,two,[::1]:7/3?master_name=pool&sentinel_password=own&socket_timeout=4"


def test_a_url_is_read() -> None:
    found = sentinel.read(URL)
    assert found.hosts == (("one", 26380), ("two", 26379), ("::1", 7))
    assert (found.username, found.password, found.database, found.master_name) == ("us@er", "p/w", 3, "pool")
    assert found.sentinel_options() == {"password": "own"}


def test_celery_gets_each_sentinel() -> None:
    settings = Settings.load(redis_url=URL)
    found = celery_settings(settings)
    assert found["broker_url"].split(";") == [
        "sentinel://us%40er:p%2Fw@one:26380/3",
        "sentinel://us%40er:p%2Fw@two:26379/3",
        "sentinel://us%40er:p%2Fw@[::1]:7/3",
    ]
    options = found["broker_transport_options"]
    assert (options["master_name"], options["sentinel_kwargs"]) == ("pool", {"password": "own"})
    assert (options["socket_timeout"], options["global_keyprefix"]) == (4.0, "sensorpool:")


def test_no_password_is_needed() -> None:
    found = sentinel.read("sentinel://one/?master_name=x")
    assert (found.username, found.password, found.database) == (None, None, 0)
    assert found.each() == ["sentinel://one:26379/0"]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sentinel://one/0", "no master_name"),
        ("sentinel://one:x/0?master_name=x", "no host with a port"),
        ("sentinel://one:70000/0?master_name=x", "no host with a port"),
        ("sentinel://,/0?master_name=x", "no host with a port"),
        ("sentinel://one/name?master_name=x", "no number of a Redis database"),
        ("sentinel://one/0?master_name=x&colour=red", "the option colour"),
        ("sentinel://one/0?master_name=x&socket_timeout=0.1", "the option socket_timeout"),
    ],
)
def test_a_wrong_url_is_one_line(url: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said) as caught:
        Settings.load(redis_url=url)
    assert len(str(caught.value).splitlines()) == 1


def test_its_passwords_are_secret() -> None:
    shown = str(Settings.load(redis_url=URL.replace("own", "another-secret")).shown()["redis_url"])
    assert "p%2Fw" not in shown
    assert "another-secret" not in shown
