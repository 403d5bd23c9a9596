"""The settings: one frozen object; each mistake is one line that names its variable."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from sensorpool.config.defaults import BUILT_IN_SENSORS, MEMORY
from sensorpool.config.origins import unknown_variables
from sensorpool.config.settings import Settings
from sensorpool.errors import SettingsError
from sensorpool.instrumentation.redaction import hide_password

REDIS = "redis://localhost:6379/0"
POSTGRES = "postgresql://user:password@localhost/pool"


def _mistakes(monkeypatch: pytest.MonkeyPatch, **variables: str) -> list[str]:
    for name, value in variables.items():
        monkeypatch.setenv(f"SENSORPOOL_{name}", value)
    with pytest.raises(SettingsError) as caught:
        Settings.load()
    return str(caught.value).splitlines()


IMPOSSIBLE: list[tuple[str, dict[str, str]]] = [
    ("HEARTBEAT", {"HEARTBEAT": "15", "LEASE_TTL": "30"}),
    ("HEARTBEAT", {"HEARTBEAT": "60"}),
    ("SHARDS", {"SHARDS": "11", "SHARD_CODE_UPPER_LIMIT": "10"}),
    ("POKE_TIMEOUT", {"POKE_TIMEOUT": "151"}),
    ("TICK", {"TICK": "60.5"}),
    ("TICK", {"POKE_INTERVAL": "1"}),
    ("DATABASE_URL", {"DATABASE_URL": "pool.db"}),
    ("REDIS_URL", {"REDIS_URL": "http://localhost"}),
    ("REDIS_URL", {"REDIS_URL": "localhost:6379"}),
    ("BROKER_URL", {"BROKER_URL": "http://localhost", "REDIS_URL": REDIS}),
    ("BROKER_URL", {"BROKER_URL": "http://[", "REDIS_URL": REDIS}),
    ("BROKER_URL", {"BROKER_URL": MEMORY, "REDIS_URL": REDIS}),
    ("REDIS_URL", {"BROKER_URL": "amqp://localhost"}),
    ("DATABASE_URL", {"DATABASE_URL": "postgresql://user:p@ss@localhost/pool"}),
    ("DATABASE_URL", {"DATABASE_URL": "postgresql://user:p@ss/w#rd@localhost:5432/pool"}),
    ("REDIS_URL", {"REDIS_URL": "redis://:pa/ss@localhost:6379/0"}),
    ("BROKER_URL", {"BROKER_URL": "amqp://user:pa#ss@localhost//", "REDIS_URL": REDIS}),
    ("REDIS_URL", {"REDIS_URL": "redis://localhost:6379/abc"}),
    ("DATABASE_SCHEMA", {"DATABASE_SCHEMA": "information_schema", "DATABASE_URL": POSTGRES}),
    ("DATABASE_SCHEMA", {"DATABASE_SCHEMA": "pg_catalog", "DATABASE_URL": POSTGRES}),
    ("DATABASE_SCHEMA", {"DATABASE_SCHEMA": "pg_mine", "DATABASE_URL": POSTGRES}),
]


@pytest.mark.parametrize(("named", "variables"), IMPOSSIBLE, ids=lambda part: str(part))
def test_an_impossible_combination_is_refused_with_one_line(
    monkeypatch: pytest.MonkeyPatch, named: str, variables: dict[str, str]
) -> None:
    [line] = _mistakes(monkeypatch, **variables)
    assert line.startswith(f"SENSORPOOL_{named} ")
    assert len(line) < 300


MALFORMED: list[tuple[str, str]] = [
    ("SHARDS", "0"),
    ("SHARDS", "-1"),
    ("SHARDS", "many"),
    ("SHARDS", "1.5"),
    ("SHARD_CODE_UPPER_LIMIT", "0"),
    ("POKE_CONCURRENCY", "0"),
    ("TICK", "0"),
    ("TICK", "nan"),
    ("TIMEOUT", "inf"),
    ("TIMEOUT", "1e300"),
    ("POKE_MEMORY", "99999999999999"),
    ("POKE_TIMEOUT", "-3"),
    ("LEASE_TTL", "30 s"),
    ("METRICS_PORT", "70000"),
    ("LOG_LEVEL", "LOUD"),
    ("LOG_FORMAT", "xml"),
    ("SENSORS_ENABLED", "no class path"),
    ("SENSORS_ENABLED", "x" * 10_000),
]


@pytest.mark.parametrize(("name", "value"), MALFORMED, ids=lambda part: part[:30])
def test_a_malformed_setting_is_refused_with_one_line(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    [line] = _mistakes(monkeypatch, **{name: value})
    assert line.startswith(f"SENSORPOOL_{name}: ")
    assert value[:20] in line
    assert len(line) < 300


def test_every_mistake_has_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = _mistakes(monkeypatch, SHARDS="0", TICK="x", LOG_LEVEL="LOUD")
    assert sorted(line.split(":")[0] for line in lines) == [
        "SENSORPOOL_LOG_LEVEL",
        "SENSORPOOL_SHARDS",
        "SENSORPOOL_TICK",
    ]


def test_every_impossible_combination_has_its_line() -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.load(heartbeat=60, shards=99_999)
    assert [line.split()[0] for line in str(caught.value).splitlines()] == ["SENSORPOOL_HEARTBEAT", "SENSORPOOL_SHARDS"]


def test_a_setting_that_there_is_not_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"^SENSORPOOL_SHARD: there is no such setting$"):
        Settings.load(shard=3)


def test_variables_that_no_setting_has_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SHARD", "TICKS", "SHARDS", "CONN_MY_DB", "FAILPOINT", "TEST_DATABASE_URL", "CONFIG_MODULE"):
        monkeypatch.setenv(f"SENSORPOOL_{name}", "1")
    monkeypatch.setenv("AIRFLOW__SENSORPOOL_X", "1")
    assert [name for name in unknown_variables() if "TEST" not in name] == ["SENSORPOOL_SHARD", "SENSORPOOL_TICKS"]


def test_lists_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENSORPOOL_SENSORS_ENABLED", " a.B, c.d:E ,,f.G,")
    monkeypatch.setenv("SENSORPOOL_INFRA_FAILURES", "a.Error,b.Error")
    monkeypatch.setenv("SENSORPOOL_ON_SETTLED_TASKS", "one")
    settings = Settings.load()
    assert settings.sensors_enabled == ("a.B", "c.d.E", "f.G")
    assert settings.infra_failures == ("a.Error", "b.Error")
    assert settings.on_settled_tasks == ("one",)
    assert Settings.load(sensors_enabled=["x.Y", "z:A"]).sensors_enabled == ("x.Y", "z.A")


def test_the_defaults_run_embedded() -> None:
    settings = Settings.load()
    assert settings.embedded
    assert settings.redis_url == settings.broker == MEMORY
    assert settings.database_url.startswith("sqlite:///")
    assert settings.sensors_enabled == BUILT_IN_SENSORS
    assert settings.on_settled_tasks == ()
    assert (settings.shard_code_upper_limit, settings.tick_ms) == (10_000, 5_000)


def test_an_empty_variable_is_left_out_and_arguments_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENSORPOOL_SHARDS", "")
    monkeypatch.setenv("SENSORPOOL_TICK", "7")
    assert (Settings.load().shards, Settings.load().tick) == (2, 7.0)
    assert Settings.load(tick=9).tick == 9.0


def test_a_redis_makes_the_broker_and_ends_the_embedding() -> None:
    settings = Settings.load(redis_url=REDIS)
    assert settings.broker == REDIS
    assert not settings.embedded
    assert Settings.load(redis_url=REDIS, broker_url="amqp://rabbit//").broker == "amqp://rabbit//"


@pytest.mark.parametrize(
    "url",
    ["redis://:p@ss@localhost:6379/0", "rediss://user:p%2Fss@localhost/2?ssl_cert_reqs=none", "unix:///run/a@b.sock"],
)
def test_a_password_that_redis_can_read_is_taken(url: str) -> None:
    assert Settings.load(redis_url=url).redis_url == url


def test_a_file_may_have_any_name() -> None:
    assert Settings.load(database_url="sqlite:////tmp/a@b#c@d.db").database_url.endswith("d.db")


def test_settings_are_frozen() -> None:
    settings = Settings.load()
    with pytest.raises(ValidationError, match="frozen"):
        settings.shards = 3  # type: ignore[misc]
    assert settings.shards == 2


SECRET_URLS = [
    "postgresql+psycopg://user:hunter2@host:5432/name",
    "postgresql://user:hun/hunter2@host/name",
    "postgresql://user:hun:hunter2@host/name",
    "redis://:hunter2@host:6379/0",
    "redis://user:hun@hunter2@host:6379/0",
    "rediss://:hun@hunter2@host",
    "amqp://user:hunter2@host//",
    "postgresql://host/name?user=u&password=hunter2&sslmode=require",
    "postgresql://host/name?sslpassword=hunter2",
    "rediss://host?ssl_keyfile_password=hunter2",
]


@pytest.mark.parametrize("url", SECRET_URLS)
def test_no_secret_of_a_url_is_shown(url: str) -> None:
    assert "hunter2" not in hide_password(url)
    assert "host" in hide_password(url)


@pytest.mark.parametrize(
    "url", ["sqlite:////path/to/a@b.db", "redis://host:6379/0", "postgresql://user@host/name", MEMORY]
)
def test_a_url_without_a_secret_is_shown_as_it_is(url: str) -> None:
    assert hide_password(url) == url


def test_the_effective_settings_are_shown_without_secrets() -> None:
    values: dict[str, Any] = {
        "database_url": "postgresql+psycopg://user:hunter2@db/name",
        "redis_url": "redis://:hunter2@redis/0",
        "broker_url": "amqp://user:hunter2@rabbit//",
        "on_settled_broker_url": "redis://:hunter2@elsewhere/0",
    }
    shown = Settings.load(**values).shown()
    assert "hunter2" not in str(shown)
    assert shown.keys() == Settings.model_fields.keys()
    assert shown["database_url"] == "postgresql+psycopg://user:***@db/name"
    assert shown["shards"] == 2


def test_whitespace_around_a_setting_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret that is mounted as a file ends with a newline."""
    monkeypatch.setenv("SENSORPOOL_DATABASE_URL", " postgresql://u:p@h/name\n")
    monkeypatch.setenv("SENSORPOOL_REDIS_URL", "redis://h:1/0\n")
    found = Settings.load()
    assert (found.database_url, found.redis_url) == ("postgresql://u:p@h/name", "redis://h:1/0")


def test_a_refusal_tells_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = _mistakes(
        monkeypatch, DATABASE_URL="user:hunter2@host", BROKER_URL="http://u:hunter2@x", REDIS_URL="x:hunter2"
    )
    assert "hunter2" not in "\n".join(lines)
    assert len(lines) == 3


def test_a_typo_is_named_with_what_it_most_likely_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In our environment, in Airflow's, in its file, and in the module with Celery settings."""
    from sensorpool.admin import findings

    (tmp_path / "airflow.cfg").write_text("[core]\nx = 1\n[sensorpool]\nshard = 3\nTick = 5\nredis_url_cmd = x\nodd\n")
    (tmp_path / "our_overlay.py").write_text("worker_concurency = 2\nworker_concurrency = 2\ndef helper(): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, value in {
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__SENSORPOOL__POKE_TIMEOUTS": "1",
        "SENSORPOOL_SHARS": "4",
        "SENSORPOOL_CONFIG_MODULE": "our_overlay",
        "SENSORPOOL_DATABASE_URL": f"sqlite:///{tmp_path / 'x.db'}",
    }.items():
        monkeypatch.setenv(name, value)
    said = [found.said for found in findings.doctor(Settings.load()) if found.level == "warning"]
    for line in (
        "there is no such setting: SENSORPOOL_SHARS (did you mean SENSORPOOL_SHARDS?)",
        "there is no such setting: AIRFLOW__SENSORPOOL__POKE_TIMEOUTS (did you mean poke_timeout?)",
        "there is no such setting: [sensorpool] shard (did you mean shards?)",
        "there is no such setting: [sensorpool] odd",
        "our_overlay sets what is no setting of Celery's: worker_concurency (did you mean worker_concurrency?)",
    ):
        assert line in said
    assert not any("redis_url" in line or "Tick" in line or "helper" in line for line in said)
