"""Malformed URLs: one line that names the setting, the error and the right form; `doctor` goes on."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from sensorpool.cli import main
from sensorpool.config.settings import Settings
from sensorpool.errors import SettingsError
from sensorpool.model.urls import has_odd_address, is_in_memory
from sensorpool.store.migrate import upgrade

ODD = ["user:hush@host:port", "user:hush@host:54x", "user:hush@host:0", "user:hush@host:99999", "user:hush@[::1"]
FINE = ["host", "host:1", "user:pa:ss@host:65535", "[::1]:5432", "[::1]", "user:p%40ss@host", ":hush@host:6379"]


@pytest.mark.parametrize("place", ODD)
@pytest.mark.parametrize("name", ["DATABASE_URL", "REDIS_URL", "BROKER_URL", "ON_SETTLED_BROKER_URL"])
def test_an_odd_port_is_one_line_with_an_example(monkeypatch: pytest.MonkeyPatch, name: str, place: str) -> None:
    monkeypatch.setenv("SENSORPOOL_REDIS_URL", "redis://localhost:6379/0")
    monkeypatch.setenv(f"SENSORPOOL_{name}", f"{'postgresql' if name == 'DATABASE_URL' else 'redis'}://{place}/1")
    with pytest.raises(SettingsError) as caught:
        Settings.load()
    [line] = str(caught.value).splitlines()
    assert line.startswith(f"SENSORPOOL_{name} has no number from 1 to 65535 for a port, or half a bracket: write ")
    assert "://" in line
    assert "hush" not in line
    assert place.split("@")[1] not in line, "it may be a part of a password"


@pytest.mark.parametrize("place", FINE)
def test_a_place_that_can_be_is_taken(place: str) -> None:
    for url in (
        f"postgresql://{place}/name",
        f"redis://{place}/0",
        f"amqp://{place}//",
        f"amqp://{place}//;amqp://b:x",
    ):
        assert not has_odd_address(url)
    assert not has_odd_address("sqlite:////a:b/c.db")


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=1"])
def test_a_database_in_memory_is_not_upgraded(url: str) -> None:
    assert is_in_memory(url)
    with pytest.raises(
        SettingsError, match=r"^SENSORPOOL_DATABASE_URL names an SQLite database in memory.*name a file"
    ):
        upgrade(url)
    assert not is_in_memory("sqlite:////tmp/memory.db")


@pytest.mark.parametrize(
    ("given", "wrong", "looked_at"),
    [
        ({"REDIS_URL": "redis://host:port/0"}, ["REDIS_URL"], {"settings"}),
        ({"SHARDS": "0", "TICK": "5s"}, ["SHARDS", "TICK"], {"settings"}),
        ({"DATABASE_URL": "postgresql://u:hush@h:x/n"}, ["DATABASE_URL"], {"settings"}),
        ({"REDIS_URL": "redis://127.0.0.1:1/0"}, [], {"database", "redis", "sensor", "open files"}),
        ({"DATABASE_URL": "nosuch://u:hush@h/n"}, [], {"database", "sensor", "open files"}),
    ],
    ids=lambda part: str(sorted(part))[:40],
)
def test_doctor_names_what_is_wrong_and_goes_on_where_the_settings_can_be_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: dict[str, str], wrong: list[str], looked_at: set[str]
) -> None:
    upgrade(f"sqlite:///{tmp_path / 'pool.db'}")
    monkeypatch.setenv("SENSORPOOL_DATABASE_URL", f"sqlite:///{tmp_path / 'pool.db'}")
    for name, value in given.items():
        monkeypatch.setenv(f"SENSORPOOL_{name}", value)
    done = CliRunner().invoke(main.main, ["doctor"])
    assert done.exit_code == 1
    lines = [line[9:] for line in done.stdout.splitlines()]
    named = [line.split()[1].strip(":") for line in lines if line.startswith("settings: SENSORPOOL_")]
    assert named == [f"SENSORPOOL_{name}" for name in wrong]
    assert looked_at <= {line.partition(":")[0] for line in lines}
    assert "hush" not in done.stdout
