"""URLs that a driver or a client does not take: one line, and no server is asked."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from redis.exceptions import TimeoutError as RedisTimeoutError
from sqlalchemy import text

from sensorpool import Settings
from sensorpool.cli import main
from sensorpool.errors import SettingsError, Unreachable
from sensorpool.instrumentation import redaction
from sensorpool.leases.connection import connect
from sensorpool.leases.redis_store import RedisStore
from sensorpool.publish import wire
from sensorpool.publish.broker import Connection
from sensorpool.store.database import Database


def test_a_unix_socket_is_taken(tmp_path: Path) -> None:
    url = f"unix://{tmp_path}/none.sock"
    with pytest.raises(Unreachable, match="does not answer"):
        RedisStore(connect(url), url=url).probe()
    assert "socket_keepalive" not in wire.transport_options(url)
    assert "socket_keepalive" in wire.transport_options("redis://localhost/0")
    assert wire.broker_url(f"{url}?db=2") == f"redis+socket://{tmp_path}/none.sock?virtual_host=2"  # kombu's names


@pytest.mark.parametrize(
    ("url", "celery_s", "options"),
    [
        ("redis://:p@h:1/2?socket_timeout=5", "redis://:p@h:1/2", {"socket_timeout": 5.0}),
        ("redis://h:1?db=3&protocol=3", "redis://h:1/3", {}),
        ("redis://h:1/1?db=3&client_name=us", "redis://h:1/3", {"client_name": "us"}),
        ("redis://h:1/1?socket_keepalive=no", "redis://h:1/1", {"socket_keepalive": False}),
        (
            "redis://h:1/1?health_check_interval=7&retry_on_timeout=false",
            "redis://h:1/1",
            {"health_check_interval": 7, "retry_on_timeout": False},
        ),
        (
            "rediss://h:1/0?ssl_ca_certs=%2Fx%20y&socket_connect_timeout=3",
            "rediss://h:1/0?ssl_ca_certs=%2Fx+y&ssl_cert_reqs=required",
            {"socket_connect_timeout": 3.0},
        ),
        ("unix:///x.sock?db=2&socket_timeout=3", "redis+socket:///x.sock?virtual_host=2", {"socket_timeout": 3.0}),
    ],
)
def test_leases_and_celery_both_take_an_option(url: str, celery_s: str, options: dict[str, object]) -> None:
    settings = Settings(redis_url=url)
    assert wire.broker_url(settings.broker) == celery_s
    assert {name: wire.transport_options(url)[name] for name in options} == options
    asked = connect(url).connection_pool.connection_kwargs
    with Connection(celery_s, transport_options=wire.transport_options(url)) as connection:
        found = connection.channel_errors and connection.transport.Channel
        assert found
        parameters = _celery_s_parameters(connection)
    assert {name: asked[name] for name in options} == {name: parameters[name] for name in options} == options
    assert int(asked.get("db", 0)) == int(parameters["db"])


@pytest.mark.parametrize(
    "url", ["redis://h:1/0?retry_on_timeout=true", "redis://h:1/0", "sentinel://h:1/0?master_name=main"]
)
def test_the_leases_make_no_call_twice(url: str) -> None:
    retry = connect(url).connection_pool.make_connection().retry
    tries: list[int] = []

    def fail() -> None:
        tries.append(1)
        raise RedisTimeoutError

    with pytest.raises(RedisTimeoutError):
        retry.call_with_retry(fail, lambda _: None)
    assert len(tries) == 1


def test_several_brokers_are_one_each() -> None:
    several = "rediss://a:1/0?ssl_cert_reqs=none&socket_timeout=5;rediss://b:1/0?db=2"
    assert wire.broker_url(Settings(redis_url="redis://h:1/0", broker_url=several).broker) == (
        "rediss://a:1/0?ssl_cert_reqs=none;rediss://b:1/2?ssl_cert_reqs=required"
    )
    assert wire.transport_options(several)["socket_timeout"] == 5
    both = "amqp://u:first-secret@a:1//;amqp://u:second-secret@b:1//"
    assert Settings.load(redis_url="redis://h:1/0", broker_url=both).broker == both
    redaction.learn(both)
    assert redaction.hide_password("first-secret second-secret") == "*** ***"
    for wrong in (
        "redis://:p@h:1/0;redis://:p/q@h:1/0",
        "redis://:p@h:1/0;redis://h:1/x",
        "redis://h/0;redis://h/0?x=1",
    ):
        with pytest.raises(SettingsError, match="SENSORPOOL_BROKER_URL"):
            Settings.load(redis_url="redis://h:1/0", broker_url=wrong)
    with pytest.raises(SettingsError, match="SENSORPOOL_REDIS_URL"):
        Settings.load(redis_url="redis://:p@h:1/0;redis://:p@h:1/0")


def _celery_s_parameters(connection: Connection) -> dict[str, object]:
    """Return what Celery's client would connect with, without connecting."""
    channel_of = connection.transport.Channel
    channel = channel_of.__new__(channel_of)
    channel.connection = connection.transport
    for name in channel_of.from_transport_options:
        if name in connection.transport_options:
            setattr(channel, name, connection.transport_options[name])
    found: dict[str, object] = channel._connparams()
    return found


@pytest.mark.parametrize("name", ["redis_url", "broker_url", "on_settled_broker_url"])
@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://h:1/0?max_connections=5", "has the option max_connections, which its leases or Celery cannot have"),
        ("redis://h:1/0?foo=bar", "has the option foo"),
        ("redis://h:1/0?password=hush", "has the option password"),
        ("redis://h:1/0?socket_timeout=soon", "has the option socket_timeout, whose value is not valid"),
        ("redis://h:1/0?socket_timeout=0.1", "has the option socket_timeout, whose value is not valid"),
        ("redis://h:1/0?ssl_cert_reqs=none", "has the option ssl_cert_reqs"),
        ("rediss://h:1/0?ssl_cert_reqs=maybe", "has the option ssl_cert_reqs, whose value is not valid"),
        ("redis://h:1/0?hush-hush", "has the option without a name"),
        ("redis://h:1/0?db=x", "has the option db, whose value is not valid"),
    ],
)
def test_an_option_that_one_of_them_does_not_take_is_refused(name: str, url: str, says: str) -> None:
    given = {"redis_url": "redis://h:1/0"} | {name: url}
    with pytest.raises(SettingsError) as refused:
        Settings.load(**given)
    [line] = str(refused.value).splitlines()
    assert line.startswith(f"SENSORPOOL_{name.upper()} {says}")
    assert "hush" not in line


def test_an_option_that_rabbitmq_s_client_does_not_take_is_refused() -> None:
    given = {"redis_url": "redis://h:1/0", "broker_url": "amqp://u:p@h:1//?socket_timeout=5"}
    with pytest.raises(SettingsError, match=r"^SENSORPOOL_BROKER_URL has the option socket_timeout, which is unknown"):
        Settings.load(**given)
    assert Settings.load(**(given | {"broker_url": "amqp://u:p@h:1//?heartbeat=5"}))


def test_an_option_that_redis_does_not_know_is_named() -> None:
    with pytest.raises(SettingsError, match=r"^SENSORPOOL_REDIS_URL: .*foo"):
        connect("redis://localhost:6379/0?foo=bar")


def test_an_option_that_postgresql_does_not_know_is_named() -> None:
    database = Database("postgresql://user:pass@127.0.0.1:1/pool?foo=bar")
    with pytest.raises(SettingsError, match=r"^SENSORPOOL_DATABASE_URL: .*foo"):
        database.read(lambda connection: connection.execute(text("SELECT 1")))


@pytest.mark.parametrize("scheme", ["mysql", "mariadb"])
def test_mysql_has_the_driver_that_is_installed_with_us(scheme: str) -> None:
    assert Database(f"{scheme}://user:pass@127.0.0.1:1/pool").engine.driver == "pymysql"


def test_config_shows_a_list_as_it_is_set() -> None:
    said = CliRunner(env={"SENSORPOOL_SENSORS_ENABLED": "a.B, c.D"}).invoke(main.main, ["config"]).stdout
    assert re.search(r"^SENSORPOOL_SENSORS_ENABLED\ta\.B,c\.D\tenvironment$", said, re.MULTILINE)


def test_a_defect_is_one_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks() -> None:
        raise RuntimeError("broken\nin two")

    monkeypatch.setattr("sensorpool.config.settings.Settings.load", breaks)
    done = CliRunner().invoke(main.main, ["config"])
    assert done.exit_code == main.NO
    assert done.stderr == "sensorpool: RuntimeError: broken in two (SENSORPOOL_LOG_LEVEL=DEBUG shows where)\n"
    monkeypatch.setenv("SENSORPOOL_LOG_LEVEL", "DEBUG")
    assert isinstance(CliRunner().invoke(main.main, ["config"]).exception, RuntimeError)
