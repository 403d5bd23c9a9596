"""Which file's Celery settings are laid over the package's; the file of another application is not run."""

import sys
from pathlib import Path

import pytest
from celery import Celery

from sensorpool.admin import findings
from sensorpool.config.settings import Settings
from sensorpool.errors import SettingsError
from sensorpool.publish import overlay, wire
from sensorpool.service.app import make_app

MARKED = "SENSORPOOL_CELERY_CONFIG = True\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, which is not on the Python path, as for a console script."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path and not Path(path, "celeryconfig.py").exists()])
    monkeypatch.setitem(sys.modules, "celeryconfig", None)
    return here


def test_the_working_directory_s_is_read(folder: Path) -> None:
    (folder / "celeryconfig.py").write_text(f"{MARKED}worker_concurrency = 3\nworker_concurency = 4\n")
    found = overlay.read()
    assert found.where == str(folder / "celeryconfig.py")
    assert found.values["worker_concurrency"] == 3
    assert make_app(Settings.load(redis_url="redis://127.0.0.1:1/0")).conf.worker_concurrency == 3
    said = [each.said for each in findings.doctor(Settings.load(database_url="sqlite://")) if each.subject == "celery"]
    assert said == [f"{found.where} is laid over the package's Celery settings (for what starts in {folder})"]


def test_the_python_path_s_is_read_where_the_working_directory_has_none(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "celeryconfig.py").write_text(f"SENSORPOOL_CELERY_CONFIG: bool = True\nworker_concurrency = {1 + 4}\n")
    # not `syspath_prepend`: its undoing comes after that of `folder`, and would put the shortened path back for good
    monkeypatch.setattr(sys, "path", [str(elsewhere), *sys.path])
    assert overlay.read().values["worker_concurrency"] == 5


def test_a_named_module_is_found_in_the_working_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "named_overlay_of_test.py").write_text("worker_concurrency = 3\n")
    monkeypatch.setenv("SENSORPOOL_CONFIG_MODULE", "named_overlay_of_test")
    assert overlay.read().values["worker_concurrency"] == 3


@pytest.mark.parametrize(
    "text",
    [
        "import os\nbroker_url = os.environ['OF_ANOTHER_APPLICATION']\n",
        "raise SystemExit(3)\n",
        "x = = 1\n",
        "\0",
        "SENSORPOOL_CELERY_CONFIG = False\n1 / 0",
        "# SENSORPOOL_CELERY_CONFIG = True\nx = = 1\n",
    ],
)
def test_another_application_s_is_not_run(folder: Path, text: str) -> None:
    (folder / "celeryconfig.py").write_text(text)
    found = overlay.read()
    assert (found.where, found.values) == ("", {})
    assert "has no line SENSORPOOL_CELERY_CONFIG = True, and is left alone" in str(found)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("broker_url = nowhere\n", "NameError: name 'nowhere' is not defined"),
        ("x = = 1\n", "SyntaxError: invalid syntax"),
        ("import no_such_module\n", "ModuleNotFoundError"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        ("beat_schedule = ['x']\n", "beat_schedule must be a mapping"),
        ("broker_transport_options = None\n", "broker_transport_options must be a mapping"),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_one_of_ours_that_fails_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str, named: bool
) -> None:
    name = "failing_overlay_of_test" if named else "celeryconfig"
    (folder / f"{name}.py").write_text(MARKED + text)
    if named:
        monkeypatch.setenv("SENSORPOOL_CONFIG_MODULE", name)
        monkeypatch.delitem(sys.modules, name, raising=False)  # another test's
    with pytest.raises(SettingsError) as refused:
        make_app(Settings.load(redis_url="redis://127.0.0.1:1/0"))
    assert says in str(refused.value)
    assert name in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
    wrong = [each for each in findings.doctor(Settings.load(database_url="sqlite://")) if each.subject == "celery"]
    assert [each.level for each in wrong] == ["wrong"]


def laid_over(folder: Path, text: str, **settings: object) -> Celery:
    (folder / "celeryconfig.py").write_text(MARKED + text)
    return make_app(Settings.load(**{"redis_url": "redis://127.0.0.1:1/0"} | settings))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("task_serializer = 'pickle'", "task_serializer: the pool's messages are JSON only: leave it out"),
        ("accept_content = ['json', 'pickle']", "accept_content: the pool's messages are JSON only"),
        ("accept_content = None", "accept_content: the pool's messages are JSON only"),
        ("task_always_eager = True", "task_always_eager: beat would run the jobs itself"),
        ("task_default_rate_limit = '1/h'", "task_default_rate_limit: it would hold up the ticks"),
        ("task_queues = ['mine']", "task_queues: senders and workers of the pool have one queue"),
        ("task_annotations = {'*': {'rate_limit': '1/h'}}", "task_annotations changes the pool's own tasks"),
        (
            "task_annotations = {'sensorpool.rescue': {'time_limit': 1}}",
            "task_annotations changes the pool's own tasks",
        ),
    ],
)
def test_what_would_stop_the_ticks_is_refused(folder: Path, text: str, says: str) -> None:
    with pytest.raises(SettingsError, match=says) as refused:
        laid_over(folder, f"{text}\n")
    assert str(refused.value).startswith(f"{folder / 'celeryconfig.py'}: ")
    assert len(str(refused.value).splitlines()) == 1
    settings = Settings.load(database_url="sqlite://", redis_url="redis://127.0.0.1:1/0")
    [wrong] = [each for each in findings.doctor(settings) if each.subject == "celery"]
    assert (wrong.level, wrong.said) == ("wrong", str(refused.value))


def test_values_that_do_no_harm_are_laid_over(folder: Path) -> None:
    text = """
from datetime import timedelta
from celery.schedules import crontab
task_serializer = "json"
accept_content = ["json"]
task_always_eager = False
task_acks_late = True
timezone = "Europe/Paris"
worker_concurrency = 3
worker_max_tasks_per_child = None
broker_connection_timeout = 2.5
result_expires = timedelta(hours=1)
broker_use_ssl = {"ca_certs": "/ca.pem"}
task_annotations = {"a.b": {"rate_limit": "1/h"}}
beat_schedule = {
    "seconds": {"task": "a.b", "schedule": 30},
    "span": {"task": "a.b", "schedule": timedelta(hours=1), "options": {"queue": "theirs"}},
    "nightly": {"task": "a.b", "schedule": crontab(hour=3), "args": (1,)},
}
"""
    conf = laid_over(folder, text).conf
    assert (conf.worker_concurrency, conf.task_always_eager, conf.task_acks_late) == (3, False, True)
    assert {"seconds", "span", "nightly"} < conf.beat_schedule.keys()
    assert conf.task_annotations["a.b"] == {"rate_limit": "1/h"}


def test_options_of_the_broker_come_beside_the_package_s(folder: Path) -> None:
    """Without the key prefix, a worker would read another list than that to which registrants send."""
    app = laid_over(folder, 'broker_transport_options = {"visibility_timeout": 3600, "sep": "\\x06\\x16"}\n')
    package = wire.transport_options("redis://127.0.0.1:1/0")
    assert package.keys() >= {"global_keyprefix", "sep", "socket_timeout", "socket_connect_timeout"}
    assert app.conf.broker_transport_options == package | {"visibility_timeout": 3600}
    with app.connection_for_read() as connection:
        assert connection.transport_options == package | {"visibility_timeout": 3600}


def test_a_broker_without_options_of_the_package_takes_any(folder: Path) -> None:
    app = laid_over(folder, 'broker_transport_options = {"socket_timeout": 1}\n', broker_url="amqp://127.0.0.1:1//")
    assert app.conf.broker_transport_options == {"socket_timeout": 1}


def test_a_policy_of_attempts_to_send_keeps_its_bound(folder: Path) -> None:
    """kombu's own is without end, so beat would wait for one message as long as its broker is away."""
    policy = laid_over(folder, 'task_publish_retry_policy = {"interval_max": 1}\n').conf.task_publish_retry_policy
    assert policy == wire.RETRY | {"interval_max": 1}


def test_the_broker_of_all_processes_may_be_named_again(folder: Path) -> None:
    url = "redis://127.0.0.1:1/0?socket_timeout=7"
    conf = laid_over(folder, f"broker_url = {url!r}\nbroker_read_url = {url!r}\n", redis_url=url).conf
    assert (conf.broker_url, conf.broker_transport_options["socket_timeout"]) == ("redis://127.0.0.1:1/0", 7)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            'broker_transport_options = {"global_keyprefix": "x"}',
            "another global_keyprefix .*SENSORPOOL_NAMESPACE sets",
        ),
        ('broker_transport_options = {"socket_timeout": 60}', "the option socket_timeout of the broker's URL sets it"),
        ('broker_transport_options = {"sep": ":"}', "has another sep than the package: leave it out"),
        ('task_publish_retry_policy = {"max_retries": None}', "has another max_retries than the package"),
        ('broker_url = "redis://:hush@127.0.0.1:2/0"', "broker_url is not the broker of .*SENSORPOOL_BROKER_URL"),
        ('broker_read_url = ["redis://127.0.0.1:1/0"]', "broker_read_url is not the broker of"),
    ],
)
def test_what_all_processes_go_by_is_not_laid_over(folder: Path, text: str, says: str) -> None:
    with pytest.raises(SettingsError, match=says) as refused:
        laid_over(folder, f"{text}\n")
    assert "hush" not in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
    settings = Settings.load(database_url="sqlite://", redis_url="redis://127.0.0.1:1/0")
    [wrong] = [each for each in findings.doctor(settings) if each.subject == "celery"]
    assert (wrong.level, wrong.said) == ("wrong", str(refused.value))
