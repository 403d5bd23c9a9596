"""docker-compose.yml says what it must, and its command lines exist.

No Docker engine is asked for. Where a Compose is installed, it reads the file as well.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import make_url

from sensorpool.config.settings import Settings

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docker-compose.yml"
SERVICES = {"postgres", "redis", "migrate", "worker", "beat", "flower"}
OURS = {"migrate", "worker", "beat", "flower"}
REQUIRED = {"POSTGRES_PASSWORD": "not-a-secret", "REDIS_PASSWORD": "not-a-secret"}


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    return yaml.safe_load(FILE.read_text())["services"]


def test_the_services(services: dict[str, Any]) -> None:
    assert set(services) == SERVICES
    assert {name for name, service in services.items() if "profiles" in service} == {"flower"}


def test_the_servers_of_the_quickstart(services: dict[str, Any]) -> None:
    page = (ROOT / "docs" / "quickstart.md").read_text()
    [given, options] = re.findall(r"^(.*) docker compose (up .*)", page, re.MULTILINE)[0]
    passwords = dict(each.split("=") for each in given.split())
    assert passwords.keys() == REQUIRED.keys()
    assert {word for word in options.split() if word in services} == {"postgres", "redis"}
    database, redis = (
        make_url(re.findall(rf"{scheme}://[^\s/]*@localhost\S*", page)[0]) for scheme in ("psycopg", "redis")
    )
    made = services["postgres"]["environment"]
    assert (database.username, database.database) == (made["POSTGRES_USER"], made["POSTGRES_DB"])
    assert (database.password, redis.password) == (passwords["POSTGRES_PASSWORD"], passwords["REDIS_PASSWORD"])


def test_ports_are_published_on_loopback_only(services: dict[str, Any]) -> None:
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert published
    for port in published:
        assert re.fullmatch(r"127\.0\.0\.1:\$\{\w+:-\d+\}:\d+", port)
    assert not any("network_mode" in service for service in services.values())


def test_every_service_that_stays_has_a_health_check(services: dict[str, Any]) -> None:
    for name in SERVICES - {"migrate"}:
        check = services[name]["healthcheck"]
        assert check["test"][0] in {"CMD", "CMD-SHELL"}
        assert {"interval", "timeout", "retries"} <= check.keys()
    for name in ("worker", "beat"):
        assert services[name]["healthcheck"]["test"] == ["CMD", "sensorpool", "health", "--self"]


def test_nothing_starts_before_what_it_needs(services: dict[str, Any]) -> None:
    def needs(name: str) -> dict[str, str]:
        return {other: on["condition"] for other, on in services[name]["depends_on"].items()}

    assert needs("migrate") == {"postgres": "service_healthy"}
    for name in OURS - {"migrate"}:
        assert needs(name) == {"migrate": "service_completed_successfully", "redis": "service_healthy"}
    assert services["migrate"]["restart"] == "no"


def test_a_worker_has_the_time_to_leave(services: dict[str, Any]) -> None:
    assert services["worker"]["stop_grace_period"] == "60s"


def test_redis_evicts_nothing_and_keeps_a_log(services: dict[str, Any]) -> None:
    command = services["redis"]["command"][-1]
    assert "--maxmemory-policy noeviction" in command
    assert "--appendonly yes" in command


def test_no_secret_has_a_default(services: dict[str, Any]) -> None:
    text = FILE.read_text()
    for secret in REQUIRED:
        assert re.findall(rf"\$\{{{secret}([^}}]*)\}}", text)
        assert all(rest.startswith(":?") for rest in re.findall(rf"\$\{{{secret}([^}}]*)\}}", text))
    assert "${FLOWER_BASIC_AUTH:?" in services["flower"]["command"][-1]


def test_every_variable_is_a_setting(services: dict[str, Any]) -> None:
    settings = {f"SENSORPOOL_{name.upper()}" for name in Settings.model_fields}
    for name in OURS:
        ours = {variable for variable in services[name]["environment"] if variable.startswith("SENSORPOOL_")}
        assert ours
        assert ours <= settings


def test_empty_variables_keep_the_defaults(services: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in services["worker"]["environment"].items():
        monkeypatch.setenv(name, "" if value.endswith(":-}") else re.sub(r"\$\{\w+:\?[^}]*\}", "word", value))
    settings = Settings.load()
    assert settings.tick == Settings.model_fields["tick"].default
    assert settings.broker == settings.redis_url == "redis://:word@redis:6379/0"


@pytest.mark.parametrize("name", ["migrate", "worker", "beat"])
def test_the_command_lines_exist(services: dict[str, Any], name: str, tmp_path: Path) -> None:
    words = services[name]["command"]
    # `--help` stands after the commands and takes the place of the options: nothing is started.
    commands = [word for word in words[1:] if not word.startswith("--")]
    done = subprocess.run(
        [sys.executable, "-m", words[0], *commands, "--help"],
        cwd=tmp_path,
        env={**os.environ, "SENSORPOOL_DATABASE_URL": f"sqlite:///{tmp_path}/sensorpool.db"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for option in (word.partition("=")[0] for word in words if word.startswith("--")):
        assert option in done.stdout


def test_flower_does_not_start_without_a_password(services: dict[str, Any]) -> None:
    words = [word.replace("$$", "$") for word in services["flower"]["command"]]
    words[-1] = words[-1].replace("exec celery", "echo would start celery")
    for password, status in (("", False), ("name:password", True)):
        done = subprocess.run(
            words, env={"PATH": os.environ["PATH"], "FLOWER_BASIC_AUTH": password}, capture_output=True, check=False
        )
        assert (done.returncode == 0) is status
        assert (b"would start" in done.stdout) is status


@pytest.mark.parametrize("profile", [[], ["--profile", "flower"]], ids=["plain", "flower"])
def test_compose_reads_it(profile: list[str]) -> None:
    done = _compose(*profile, "config", "--services", variables=REQUIRED)
    assert done.returncode == 0, done.stderr
    expected = SERVICES if profile else SERVICES - {"flower"}
    assert expected <= set(done.stdout.split())


@pytest.mark.parametrize("secret", REQUIRED)
def test_compose_asks_for_a_secret_that_is_not_set(secret: str) -> None:
    done = _compose("config", variables={name: value for name, value in REQUIRED.items() if name != secret})
    assert done.returncode != 0
    assert "a password for" in done.stderr


def _compose(*arguments: str, variables: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, **variables}
    for program in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(program[0]) and not subprocess.run([*program, "version"], capture_output=True).returncode:
            return subprocess.run(
                [*program, "-f", str(FILE), *arguments], env=environment, capture_output=True, text=True, check=False
            )
    pytest.skip("no Compose here to read docker-compose.yml")
