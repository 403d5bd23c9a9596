"""Each example of `examples/` is started as its README says, on a Redis of the tests."""

import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.until import until

EXAMPLES = Path(__file__).parents[2] / "examples"


class Project:
    """A copy of an example, and its processes."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SENSORPOOL_")}
        self.environment = kept | {"PYTHONPATH": str(folder), "TMPDIR": str(folder), **environment}
        self._started: list[subprocess.Popen[bytes]] = []

    def run(self, *arguments: str) -> str:
        """Run ``python …`` in it; return what it prints."""
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, name: str, *arguments: str) -> None:
        """Start a process of it, with a log file."""
        with (self.folder / f"{name}.log").open("wb") as log:
            self._started.append(
                subprocess.Popen(
                    [sys.executable, *arguments],
                    cwd=self.folder,
                    env=self.environment,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )

    def start_pool(self) -> None:
        """Start worker and beat of its pool."""
        self.run("-m", "sensorpool", "db", "upgrade")
        self.start("pool", "-m", "celery", "-A", "sensorpool", "worker", "--concurrency=1", "--loglevel=INFO")
        self.start("beat", "-m", "celery", "-A", "sensorpool", "beat")

    def stop(self) -> None:
        """End all processes."""
        for each in self._started:
            family = [*psutil.Process(each.pid).children(recursive=True), psutil.Process(each.pid)]
            for process in family:
                process.kill()
            each.wait(30)


@contextmanager
def project(name: str, folder: Path, **environment: str) -> Iterator[Project]:
    copy = folder / name
    for source in sorted((EXAMPLES / name).rglob("*")):
        if source.is_file() and "__pycache__" not in source.parts:
            target = copy / source.relative_to(EXAMPLES / name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    made = Project(copy, **environment)
    try:
        yield made
    finally:
        made.stop()


def variables(file: Path, folder: Path, **given: str) -> dict[str, str]:
    """Return what a shell script exports."""
    done = subprocess.run(
        ["bash", "-c", f". ./{file.name} && env -0"],
        cwd=folder,
        env={"PATH": os.environ["PATH"], **given},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(each.split("=", 1) for each in done.stdout.split("\0") if "=" in each)


def test_the_celery_project(tmp_path: Path, own_redis: str) -> None:
    with project("celery_project", tmp_path) as shop:
        shop.environment |= variables(Path("settings.sh"), shop.folder, REDIS_URL=own_redis)
        shop.start_pool()
        shop.start("shop", "-m", "celery", "-A", "shop.app", "worker", "--concurrency=1")
        shop.run("-m", "shop.start", "acme", "2030-01-31")
        until(
            "the step that waits",
            lambda: "shop.sensors.delivered" in shop.run("-m", "sensorpool", "list", "--json"),
            every=0.5,
        )
        (shop.folder / "deliveries" / "acme-2030-01-31.csv").write_text("a\nb\n")
        assert shop.run("-m", "shop.ended").startswith("2 rows of ")
        assert "3 passed" in shop.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")


def call(port: int, path: str, method: str = "GET", body: dict[str, Any] | None = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"}, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=90) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_the_web_service(tmp_path: Path, own_redis: str) -> None:
    environment = {
        "SENSORPOOL_DATABASE_URL": f"sqlite:///{tmp_path / 'pool.db'}",
        "SENSORPOOL_REDIS_URL": f"{own_redis}/0",
        "SENSORPOOL_TICK": "1",
    }
    with project("fastapi_service", tmp_path, **environment) as service:
        service.start_pool()
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        service.start("web", "-m", "uvicorn", "service:app", "--port", str(port))
        until("the service", lambda: _answers(port))
        wanted = {"path": str(tmp_path / "arrived"), "timeout": 600}
        status, made = call(port, "/waits", "POST", wanted)
        assert (status, made["state"]) == (201, "sensing")
        path = f"/waits/{made['id']}"
        assert call(port, path)[1]["state"] == "sensing"
        (tmp_path / "arrived").touch()
        assert call(port, f"{path}?wait=60") == (200, {"id": made["id"], "state": "success", "reason": None})
        _, other = call(port, "/waits", "POST", wanted | {"path": "/no/such/file"})
        assert call(port, f"/waits/{other['id']}", "DELETE")[1]["state"] == "cancelled"
        assert call(port, "/waits/999")[0] == 404
        assert call(port, "/waits", "POST", {"path": "relative"})[0] == 422


def _answers(port: int) -> bool:
    try:
        return call(port, "/openapi.json")[0] == 200
    except OSError:
        return False


def test_the_django_project(tmp_path: Path, own_redis: str) -> None:
    environment = {"DJANGO_SETTINGS_MODULE": "shop.settings", "REDIS_URL": own_redis}
    with project("django_project", tmp_path, **environment) as shop:
        shop.run("manage.py", "migrate")
        shop.run("manage.py", "sensorpool", "db", "upgrade")
        shop.start_pool()
        shop.start("shop", "-m", "celery", "-A", "shop.celery", "worker", "--concurrency=1")
        assert "instance 1 waits for" in shop.run("manage.py", "expect", "acme", str(tmp_path / "acme.csv"))
        (tmp_path / "acme.csv").touch()
        assert shop.run("manage.py", "deliveries", "--wait", "60") == "acme: success\n"
        assert shop.run("manage.py", "makemigrations", "--check", "--dry-run").startswith("No changes")


def commands(readme: str) -> Sequence[str]:
    """Return the commands of a README's blocks of shell."""
    blocks = [part.split("```")[0] for part in readme.split("```sh\n")[1:]]
    return [line.split("   #")[0].strip() for block in blocks for line in block.splitlines() if line.strip()]


@pytest.mark.parametrize("name", ["celery_project", "fastapi_service", "django_project"])
def test_the_files_that_a_readme_names_are_there(name: str) -> None:
    """The commands themselves are those of the tests above, which need no installation."""
    for command in commands((EXAMPLES / name / "README.md").read_text()):
        words = command.split()
        if words[0] == "python" and words[1] != "-m":
            assert (EXAMPLES / name / words[1]).is_file(), command
        elif words[:2] == ["python", "-m"] and words[2].startswith("shop."):
            assert (EXAMPLES / name / f"{words[2].replace('.', '/')}.py").is_file(), command
