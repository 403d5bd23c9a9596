"""Connections, and what is said about them."""

import pytest

from sensorpool.errors import InfraFailure, SettingsError
from sensorpool.sensors import arguments, connections


def test_is_found_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENSORPOOL_CONN_WARE_HOUSE", " sqlite:////a.db ")
    assert connections.connection("ware_House") == "sqlite:////a.db"


def test_names_the_variable_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SENSORPOOL_CONN_WAREHOUSE", raising=False)
    with pytest.raises(SettingsError, match="set SENSORPOOL_CONN_WAREHOUSE") as caught:
        connections.connection("warehouse")
    assert not getattr(caught.value, "is_infra_failure", False)


@pytest.mark.parametrize("bad", ["", "a-b", "a b", "postgresql://u:hunter2@h/d", "é", "a\n"])
def test_refuses_what_is_no_name_without_saying_it(bad: str) -> None:
    with pytest.raises(ValueError, match="names a connection") as caught:
        arguments.conn_id(bad)
    assert "hunter2" not in str(caught.value)


def test_a_connection_that_is_no_object_is_not_shown() -> None:
    for value in ("hunter2", '["hunter2"]', "[" * 100_000):
        with pytest.raises(SettingsError, match="SENSORPOOL_CONN_X is not a JSON object") as caught:
            connections.connection_object("SENSORPOOL_CONN_X", value)
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:hunter2@host:8080/a?token=hunter2#hunter2", "https://host:8080/a?***"),
        ("https://u:hun@ter2@host/a", "https://host/a"),
        ("s3://bucket/key", "s3://bucket/key"),
        ("http://[hunter2", "(a malformed URL)"),
    ],
)
def test_shows_urls_without_secrets(url: str, shown: str) -> None:
    assert connections.shown_url(url) == shown


def test_says_errors_in_one_short_line_without_secrets() -> None:
    error = RuntimeError("cannot log in\n  with hunter2 at ftp://me:hunter3@host/ " + "x" * 1000)
    said = connections.one_line(error, ["hunter2", "1", ""])
    assert said.startswith("cannot log in with *** at ftp://***@host/ xxx")
    assert len(said) == connections.MAX_REASON
    assert connections.one_line(EOFError()) == "EOFError"


def test_an_infra_failure_has_the_mark() -> None:
    assert InfraFailure("").is_infra_failure is True
