"""Celery's own variables, which may be another application's, change nothing of ours; its start says so in a line."""

import sys
from pathlib import Path

import pytest
from celery import Celery

from sensorpool.admin import findings
from sensorpool.config.settings import Settings
from sensorpool.publish import application
from sensorpool.publish.callbacks import Callbacks
from sensorpool.service.app import make_app

OURS = "redis://127.0.0.1:1/0"
THEIRS = "amqp://theirs:hush@127.0.0.1:2//"
MODULE = "module_of_another_application"


def settings() -> Settings:
    return Settings.load(database_url="sqlite://", redis_url=OURS, on_settled_broker_url="redis://127.0.0.1:1/5")


@pytest.fixture(params=["CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL"])
def variable(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A variable that moves a plain application to another broker."""
    monkeypatch.setenv(request.param, THEIRS)
    plain = Celery("plain", set_as_current=False, broker=OURS)
    assert THEIRS in {plain.conf.broker_url, plain.conf.broker_read_url, plain.conf.broker_write_url}
    return str(request.param)


@pytest.mark.usefixtures("variable")
def test_worker_and_beat_stay_with_their_broker() -> None:
    app = make_app(settings())
    for connection in (app.connection_for_read(), app.connection_for_write(), app.connection()):
        assert (connection.transport_cls, connection.port, connection.virtual_host) == ("redis", 1, "0")
    assert app.connection().as_uri().endswith("127.0.0.1:1/0")


@pytest.mark.usefixtures("variable")
def test_on_settled_tasks_go_to_their_broker() -> None:
    sender, producer = Callbacks(settings())._made()
    connection = producer.connection
    assert (connection.transport_cls, connection.port, connection.virtual_host) == ("redis", 1, "5")
    sender.close()


def test_doctor_names_the_variable(variable: str) -> None:
    [said] = [each for each in findings.doctor(settings()) if "another Celery application" in each.said]
    assert (said.subject, said.level) == ("celery", "warning")
    assert f": {variable}; SENSORPOOL_BROKER_URL sets" in said.said
    assert "hush" not in said.said


def test_the_same_broker_is_not_worth_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELERY_BROKER_URL", OURS)
    assert application.ignored_variables(settings()) == []


def test_another_application_s_module_and_loader_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f"{MODULE}.py").write_text("task_always_eager = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("CELERY_CONFIG_MODULE", MODULE)
    assert Celery("plain", set_as_current=False).conf.task_always_eager
    monkeypatch.delitem(sys.modules, MODULE)
    monkeypatch.setenv("CELERY_LOADER", "no_such_module:Loader")
    monkeypatch.setenv("CELERY_RESULT_BACKEND", "nonsense://")
    app = make_app(settings())
    assert not app.conf.task_always_eager
    assert MODULE not in sys.modules
    assert app.backend.as_uri() == "disabled://"
    [said] = application.ignored_variables(settings())
    assert ": CELERY_RESULT_BACKEND, CELERY_CONFIG_MODULE, CELERY_LOADER; " in said
