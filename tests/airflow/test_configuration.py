"""The section ``[sensorpool]``: one configuration for Airflow and the pool."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sensorpool import Settings
from sensorpool.airflow.configuration import SCHEMA, AirflowSettings
from sensorpool.airflow.provider import get_provider_info
from sensorpool.config.defaults import BUILT_IN_SENSORS
from sensorpool.config.origins import unknown_variables
from sensorpool.errors import SettingsError

POSTGRES = "postgresql+psycopg2://u:p@127.0.0.1:1/airflow"


def read(folder: Path, *, file: str = "", **environment: str) -> Any:
    """Read the settings in an interpreter of its own."""
    if file:
        (folder / "airflow.cfg").write_text(f"[core]\nload_examples = False\n\n[sensorpool]\n{file}")
    code = """
import json, sys
from sensorpool.config.settings import Settings
from sensorpool.airflow.configuration import AirflowSettings
shown = Settings.load().shown() | dict(AirflowSettings.load())
print(json.dumps({"airflow": "airflow" in sys.modules, **shown}, default=str))
"""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "SENSORPOOL"))}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=kept | {"AIRFLOW_HOME": str(folder)} | environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_environment_gives_settings_without_importing_airflow(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        AIRFLOW__SENSORPOOL__ENABLED="True",
        AIRFLOW__SENSORPOOL__DATABASE_URL=POSTGRES,
        AIRFLOW__SENSORPOOL__REDIS_URL="redis://127.0.0.1:1/2",
        AIRFLOW__SENSORPOOL__SHARDS="3",
    )
    assert found["airflow"] is False
    assert (found["enabled"], found["shards"], found["redis_url"]) == (True, 3, "redis://127.0.0.1:1/2")
    assert found["database_schema"] == SCHEMA
    assert "airflow.providers.*" in found["sensors_enabled"]
    assert "sensorpool.sensors.PathSensor" in found["sensors_enabled"]


def test_airflows_file_gives_settings(tmp_path: Path) -> None:
    lines = f"enabled = True\ndatabase_url_cmd = echo {POSTGRES}\nshards = 5\ninclude = etl_*, dwh_*\n"
    found = read(tmp_path, file=lines)
    assert (found["enabled"], found["shards"], found["include"]) == (True, 5, ["etl_*", "dwh_*"])


def test_our_own_variables_win(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        AIRFLOW__SENSORPOOL__SHARDS="3",
        AIRFLOW__SENSORPOOL__ENABLED="True",
        SENSORPOOL_SHARDS="7",
        SENSORPOOL_ENABLED="false",
    )
    assert (found["shards"], found["enabled"]) == (7, False)


def test_without_the_section_nothing_is_different(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert found["airflow"] is False
    assert (found["enabled"], found["database_schema"]) == (False, "")
    assert found["sensors_enabled"] == list(BUILT_IN_SENSORS)


def test_our_own_switch_brings_airflows_sensors_too(tmp_path: Path) -> None:
    found = read(tmp_path, SENSORPOOL_ENABLED="1", SENSORPOOL_DATABASE_URL=POSTGRES)
    assert found["airflow"] is False
    assert (found["enabled"], found["database_schema"]) == (True, SCHEMA)
    assert "airflow.providers.*" in found["sensors_enabled"]


def test_another_database_has_no_schema(tmp_path: Path) -> None:
    found = read(
        tmp_path, file="database_url = mysql+pymysql://u:p@127.0.0.1/pool\nredis_url = redis://127.0.0.1:1/2\n"
    )
    assert found["database_schema"] == ""


def test_what_is_wrong_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENSORPOOL_FIRST_POKE", "nobody")
    with pytest.raises(SettingsError, match=r"^\[sensorpool\] first_poke: [^\n]+$"):
        AirflowSettings.load()


def test_a_command_that_fails_is_said_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "airflow.cfg").write_text("[sensorpool]\ndatabase_url_cmd = false\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "SENSORPOOL"))}
    done = subprocess.run(
        [sys.executable, "-m", "sensorpool", "status"],
        env=kept | {"AIRFLOW_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("sensorpool:")]
    assert done.returncode == 2
    assert len(lines) == 1
    assert "[sensorpool] of Airflow's configuration cannot be read" in lines[0]
    assert "Traceback" not in done.stderr


def test_airflows_side_is_no_typo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENSORPOOL_ON_POOL_DEAD", "wait")
    monkeypatch.setenv("SENSORPOOL_ON_POOL_DED", "wait")
    assert unknown_variables() == ["SENSORPOOL_ON_POOL_DED"]


def test_every_setting_is_an_option_of_the_provider() -> None:
    options = get_provider_info()["config"]["sensorpool"]["options"]
    assert options.keys() == {*Settings.model_fields, *AirflowSettings.model_fields}
    assert all(option["description"].strip() and option["version_added"] for option in options.values())
    for secret in ("database_url", "redis_url", "web_token", "wake_token"):
        assert options[secret]["sensitive"], secret
    assert not options["shards"]["sensitive"]


def test_config_shows_where_each_setting_comes_from(tmp_path: Path) -> None:
    """What Airflow gives as a provider's default is a default; a wrong option of Airflow's hides its side alone."""
    cfg = "[core]\nload_examples = False\n[sensorpool]\nenabled = True\npoke_timeout = 7\nfirst_poke = pool\n"
    (tmp_path / "airflow.cfg").write_text(cfg)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "SENSORPOOL"))}

    def shown(**environment: str) -> tuple[dict[str, list[str]], str]:
        done = subprocess.run(
            [sys.executable, "-m", "sensorpool", "config"],
            env=kept | {"AIRFLOW_HOME": str(tmp_path), "SENSORPOOL_TICK": "2"} | environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        cells = (line.split("\t") for line in done.stdout.splitlines())
        return {name: rest for name, *rest in cells}, done.stderr

    found, said = shown(AIRFLOW__SENSORPOOL__LEASE_TTL="40")
    assert found["SENSORPOOL_POKE_TIMEOUT"] == ["7.0", "Airflow's [sensorpool]"]
    assert found["SENSORPOOL_LEASE_TTL"] == ["40.0", "Airflow's [sensorpool]"]
    assert found["SENSORPOOL_FIRST_POKE"] == ["pool", "Airflow's [sensorpool]"]
    assert found["SENSORPOOL_TICK"] == ["2.0", "environment"]
    assert found["SENSORPOOL_HEARTBEAT"][-1] == found["SENSORPOOL_SENSORS_ENABLED"][-1] == "default"
    assert found["SENSORPOOL_RESUME_HOLD"] == ["10.0", "default"]
    assert said == ""
    found, said = shown(AIRFLOW__SENSORPOOL__RESUME_HOLD="10s", AIRFLOW__SENSORPOOL__TIKC="1")
    assert "[sensorpool] resume_hold: must be a number of seconds" in said
    assert "there is no such setting: AIRFLOW__SENSORPOOL__TIKC (did you mean tick?)" in said
    assert found["SENSORPOOL_POKE_TIMEOUT"] == ["7.0", "Airflow's [sensorpool]"]
    assert "SENSORPOOL_RESUME_HOLD" not in found
