"""The allowlist of callables: names and packages that it takes, and what they list."""

import pytest

from sensorpool.airflow.callables_enabled import is_name, lists
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.errors import SettingsError


@pytest.mark.parametrize(
    ("given", "entries"),
    [
        ("", ()),
        ("acme.checks.ready", ("acme.checks.ready",)),
        (" acme.checks.ready , acme.more.* ,", ("acme.checks.ready", "acme.more.*")),
        ("airflow.providers.acme.*", ("airflow.providers.acme.*",)),
        ("acme.*", ("acme.*",)),
    ],
)
def test_what_is_taken(monkeypatch: pytest.MonkeyPatch, given: str, entries: tuple[str, ...]) -> None:
    monkeypatch.setenv("SENSORPOOL_CALLABLES_ENABLED", given)
    assert AirflowSettings.load().callables_enabled == entries
    assert AirflowSettings.load(callables_enabled=entries).callables_enabled == entries


@pytest.mark.parametrize(
    "entry",
    ["*", "*.*", ".*", "acme*", "acme.*.ready", "acme.che*", "acme", "acme..x", "a b.c", "acme.x()", "-", "acme.x\n.y"],
)
def test_what_names_no_function(entry: str) -> None:
    with pytest.raises(SettingsError, match=r"callables_enabled: .*names no function: write mycompany\.checks\.ready"):
        AirflowSettings.load(callables_enabled=("acme.checks.ready", entry))


@pytest.mark.parametrize(
    "entry", ["os.system", "os.*", "builtins.eval", "builtins.*", "posix.system", "subprocess.*", "__main__.x", "sys.x"]
)
def test_what_is_of_python(monkeypatch: pytest.MonkeyPatch, entry: str) -> None:
    monkeypatch.setenv("SENSORPOOL_CALLABLES_ENABLED", f"acme.checks.ready,{entry}")
    with pytest.raises(SettingsError, match=f"'{entry[:-1]}.' is of Python itself"):
        AirflowSettings.load()


@pytest.mark.parametrize("entry", ["airflow.*", "airflow.providers.*", "sensorpool.*"])
def test_whole_packages_that_are_not_the_companys(entry: str) -> None:
    with pytest.raises(SettingsError, match="lists a whole package that is not yours"):
        AirflowSettings.load(callables_enabled=(entry,))


@pytest.mark.parametrize("entry", [7, f"acme.{'x' * 500}"])
def test_what_is_no_text_or_too_long(entry: object) -> None:
    with pytest.raises(SettingsError, match=r"is no text|more than 500 characters|names no function"):
        AirflowSettings.load(callables_enabled=(entry,))


def test_what_is_listed() -> None:
    enabled = ("acme.checks.ready", "acme.more.*")
    for name in ("acme.checks.ready", "acme.more.x", "acme.more.within.x"):
        assert lists(enabled, name)
    for name in (
        "acme.checks.ready2",
        "acme.checks.readyx",
        "acme.checks",
        "acme.moreover.x",
        "acme.more",
        "more.x",
        "",
    ):
        assert not lists(enabled, name)
    assert not lists((), "acme.checks.ready")


@pytest.mark.parametrize("name", ["a.b", "acme.checks.ready", "_a._b1"])
def test_a_name(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize(
    "name", ["", "a", "a.", ".a", "a..b", "a.b\n", "a b.c", "a.1", "ä.b", None, 7, ["a.b"], "a." * 300]
)
def test_no_name(name: object) -> None:
    assert not is_name(name)
