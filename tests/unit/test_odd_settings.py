"""Odd values of every setting: refused with one line that has the error and its mend, or reported by `doctor`."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic_core import PydanticUndefined

from sensorpool.admin import findings
from sensorpool.admin.installation import doubt_about_exception
from sensorpool.config.settings import Settings
from sensorpool.errors import SettingsError
from sensorpool.instrumentation import redaction

ODD = ("0", "-1", "nan", "inf", "1e300", "1e-300", "soon", "5s", "5 s", "1,5")
NUMBERS = [name for name, field in Settings.model_fields.items() if field.annotation in (float, int, int | None)]
TAKEN = {
    ("overrun_limit", "0"),
    *((name, "1e-300") for name in ("infra_failure_window", "poke_interval", "timeout", "lease_ttl", "commit_overlap")),
}
"""Numbers above that a setting takes: never, and at once. Two of them only where others are as small."""


def lines(**values: object) -> list[str]:
    """Return the error lines of settings."""
    try:
        Settings.load(**values)
    except SettingsError as error:
        return str(error).splitlines()
    return []


@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_is_refused_with_what_it_may_be(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"SENSORPOOL_{name.upper()}", value)
    found = lines()
    if (name, value) in TAKEN:
        assert all("must" in line and len(line) < 300 for line in found), "a rule of two settings"
        return
    [line] = found
    assert re.fullmatch(
        rf"SENSORPOOL_{name.upper()}: must be (a number of seconds, without a unit|a whole number), "
        rf"(from [\d.]+|above 0) to \d+ \(it is '{re.escape(value)}'\)",
        line,
    )


@pytest.fixture(autouse=True)
def own_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """What these tests give as a token is no secret of later tests."""
    monkeypatch.setattr(redaction, "_known", redaction._known)


@pytest.mark.parametrize("name", Settings.model_fields)
def test_an_empty_value_is_none(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(f"SENSORPOOL_{name.upper()}", "")
    field = Settings.model_fields[name]
    if field.default is not PydanticUndefined:
        assert getattr(Settings.load(), name) == field.default


@pytest.mark.parametrize("name", Settings.model_fields)
@pytest.mark.parametrize("value", ["0", "-1", "nan", "a word", "5s", ",", "\0", "x" * 10_000])
def test_whatever_is_wrong_is_said_in_one_line(name: str, value: str) -> None:
    found = lines(**{name: value})
    assert not found or any(name.upper() in line for line in found)
    assert all(line.startswith("SENSORPOOL_") and len(line) < 400 for line in found)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("POKE_TIMEOUT", {"poke_timeout": 61}),
        ("TIMEOUT", {"timeout": 59}),
        ("INFRA_FAILURE_WINDOW", {"infra_failure_window": 44}),
    ],
)
def test_what_is_unwise_is_told_and_not_refused(tmp_path: Path, name: str, values: dict[str, float]) -> None:
    settings = Settings.load(database_url=f"sqlite:///{tmp_path / 'x.db'}", **values)
    [said] = [each.said for each in findings.doctor(settings) if each.level == "warning" and each.subject == "settings"]
    assert said.split()[0] == name


def test_an_allowlist_of_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for nothing in (",", " , ,"):
        [line] = lines(sensors_enabled=nothing)
        assert line.startswith("SENSORPOOL_SENSORS_ENABLED: names no class: leave it out")
    assert Settings.load(infra_failures=",").infra_failures == (), "the one way to say: none"


@pytest.mark.parametrize("name", ["nope", "a b.C", "requests.exceptions.", "a.B, 7"])
def test_an_exception_that_is_no_class_path_is_refused(name: str) -> None:
    [line] = lines(infra_failures=name)
    assert line.startswith("SENSORPOOL_INFRA_FAILURES: ")
    assert "is not a class path: write it as 'pkg.mod.Class'" in line


DOUBTS = [
    ("builtins.ConectionError", True, "builtins has no ConectionError (did you mean ConnectionError?)"),
    ("os.path.join", True, "os.path.join is no exception class"),
    ("builtins.int", True, "builtins.int is no exception class"),
    ("socket.error", False, "nothing counts as socket.error: its own name is builtins.OSError"),
    ("not_installed_here.errors.Down", False, "not_installed_here.errors.Down cannot be imported here"),
    ("json.not_there.Down", False, "json.not_there.Down cannot be imported here"),
    (f"{__name__}.Outer.Down", False, None),
    ("json.decoder.JSONDecodeError", False, None),
]


class Outer:
    """A class with an exception class in it."""

    class Down(Exception):
        """An exception class."""


@pytest.mark.parametrize(("name", "is_typo", "said"), DOUBTS, ids=lambda part: str(part)[:40])
def test_a_typo_is_told_from_what_is_not_installed(name: str, is_typo: bool, said: str | None) -> None:
    found = list(doubt_about_exception(name))
    assert [each.level == "wrong" for each in found] == ([is_typo] if said else [])
    for each in found:
        assert each.said.startswith(f"INFRA_FAILURES: {said}")


def test_the_command_line_says_it_with_the_code_of_usage(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sensorpool", "config"],
        env=os.environ | {"SENSORPOOL_TICK": "5s", "SENSORPOOL_SENSORS_ENABLED": ","},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert [line.split(":")[1].strip() for line in done.stderr.splitlines()] == [
        "SENSORPOOL_SENSORS_ENABLED",
        "SENSORPOOL_TICK",
    ]
