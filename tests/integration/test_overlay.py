"""The celery command as a wheel installs it: the working directory is not on its path."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import sensorpool
from harness.service import Service
from harness.until import until
from sensorpool.admin import findings
from sensorpool.config.defaults import key_prefix
from sensorpool.publish import wire

pytestmark = pytest.mark.processes

SCRIPT = "import sys\nfrom celery.__main__ import main\nsys.exit(main())\n"


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """The environment of a package that is not installed in place: no `celeryconfig` lies beside it."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sensorpool").symlink_to(Path(sensorpool.__file__).parent)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "celery").write_text(SCRIPT)
    return os.environ | {
        "PYTHONPATH": os.pathsep.join([str(site), sysconfig.get_path("purelib")]),
        "XDG_STATE_HOME": str(tmp_path),
    }


def run(environment: dict[str, str], folder: Path, *arguments: str) -> list[str]:
    """Run the console script (-S: without the links of packages installed in place); return our lines."""
    script = [sys.executable, "-S", str(folder.parent / "bin" / "celery")]
    done = subprocess.run(
        [*script, *arguments], env=environment, cwd=folder.parent, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1, done
    assert "Traceback" not in done.stdout + done.stderr
    return [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("sensorpool:")]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("worker_pool = 'solo'", "the worker's pool is solo"),
        ("x = nowhere", "NameError"),
    ],
)
def test_the_overlay_of_the_working_directory_counts(
    installed: dict[str, str], tmp_path: Path, text: str, says: str
) -> None:
    folder = tmp_path / "deployment"
    folder.mkdir()
    (folder / "celeryconfig.py").write_text(f"SENSORPOOL_CELERY_CONFIG = True\n{text}\n")
    [said] = run(installed, folder, "--workdir", str(folder), "-A", "sensorpool", "worker")
    assert says in said


def test_another_application_s_does_not_end_the_worker(installed: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "deployment"
    folder.mkdir()
    (folder / "celeryconfig.py").write_text("import os\nbroker_url = os.environ['OF_ANOTHER_APPLICATION']\n")
    [said] = run(installed, folder, "--workdir", str(folder), "-A", "sensorpool", "worker")
    assert "the broker is memory://" in said


def test_a_worker_that_takes_jobs_from_another_queue_is_named(service: Service) -> None:
    service.worker("-Q", "mine")
    said = until("health to say so", lambda: [line for line in findings.health(service.pool) if "the queue" in line])
    assert said[0].startswith("no worker takes jobs from the queue sensorpool: worker0@")
    assert "from mine: leave -Q and task_default_queue out" in said[0]
    assert service.cli("doctor").stdout.count("no worker takes jobs from the queue sensorpool") == 1


def test_registrants_and_workers_use_one_list_whatever_options_an_overlay_adds(service: Service) -> None:
    """A list of nudges that no worker reads would grow without end."""
    (service.folder / "theirs.py").write_text("broker_transport_options = {'visibility_timeout': 3600}\n")
    service.start(SENSORPOOL_CONFIG_MODULE="theirs")
    assert "sensorpool: theirs is laid over the package's Celery settings" in service.logs()
    client, key = service.pool.leases.store.client, f"{key_prefix('')}{wire.queue_of(service.settings)}"
    for name in "abc":
        service.pool.publisher.nudge(service.pool.ranges[0])
        until(f"nudge {name} to be read", lambda: not client.llen(key))
    assert not client.keys("_kombu*")


def test_variables_of_another_celery_application_move_no_process(service: Service) -> None:
    theirs = "redis://127.0.0.1:1/0"  # nothing listens there
    service.start(CELERY_BROKER_URL=theirs)
    service.beat(CELERY_BROKER_URL=theirs)
    said = "without effect here, as meant for another Celery application: CELERY_BROKER_URL; "
    until("a line of worker and beat", lambda: service.logs().count(said) == 2)
    assert "127.0.0.1:1/" not in service.logs()
