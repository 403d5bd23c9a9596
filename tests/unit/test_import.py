"""The import of sensorpool is cheap and does nothing: no heavy package, no file, no connection."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import sensorpool

ROOT = Path(sensorpool.__file__).parents[1]

REFUSE = """
import os, sys

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_REFUSED = {
    "socket.connect", "socket.bind", "socket.getaddrinfo", "sqlite3.connect", "subprocess.Popen", "os.system",
    "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.fork", "os.exec", "shutil.rmtree", "tempfile.mkstemp",
}

def refuse(event, arguments):
    if event in _REFUSED:
        raise RuntimeError(f"{event} {arguments}")
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITING and arguments[0] != os.devnull:
        raise RuntimeError(f"{event} {arguments}")
"""

EVERY_MODULE = """
LIGHT = {"policy", "provider", "configuration", "checks", "reconcile", "errors", "secrets_masker", "codec"}
import importlib, pkgutil, sensorpool
names = [found.name for found in pkgutil.walk_packages(sensorpool.__path__, "sensorpool.")]
names = [name for name in names if not name.endswith("__main__")]
# of Airflow's side only what Airflow loads everywhere, or the command line does
names = [name for name in names if not name.startswith("sensorpool.airflow.") or name.rpartition(".")[2] in LIGHT]
for name in names:
    importlib.import_module(name)
print(len(names))
"""


def _run(code: str, tmp_path: Path) -> str:
    """Run code in an interpreter of its own, which finds an airflow that refuses to be imported."""
    (tmp_path / "airflow").mkdir()
    (tmp_path / "airflow" / "__init__.py").write_text("raise RuntimeError('airflow was imported')")
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT))),
        "HOME": str(tmp_path / "home"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "statement", ["import sensorpool", "from sensorpool import Key, PokeReturnValue, Registration"]
)
def test_importing_sensorpool_is_cheap(tmp_path: Path, statement: str) -> None:
    roots = _run(
        f"{statement}\nimport sys\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))", tmp_path
    )
    heavy = {
        "celery",
        "kombu",
        "sqlalchemy",
        "pydantic",
        "pydantic_settings",
        "redis",
        "alembic",
        "click",
        "rich",
        "httpx",
    }
    assert not heavy & set(roots.split())
    assert "sensorpool" in roots.split()


def test_no_module_does_anything_when_it_is_imported(tmp_path: Path) -> None:
    code = f"{REFUSE}\nsys.addaudithook(refuse)\n{EVERY_MODULE}"
    assert int(_run(code, tmp_path)) > 40
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    "act", ["open('x', 'w')", "__import__('socket').create_connection(('127.0.0.1', 9))", "import airflow"]
)
def test_the_refusal_works(tmp_path: Path, act: str) -> None:
    with pytest.raises(AssertionError, match="RuntimeError"):
        _run(f"{REFUSE}\nsys.addaudithook(refuse)\n{act}", tmp_path)


def test_airflow_is_never_imported(tmp_path: Path) -> None:
    assert _run(f"{EVERY_MODULE}\nimport sys\nprint('airflow' in sys.modules)", tmp_path).split()[-1] == "False"


def test_what_the_package_offers_is_there_and_nothing_else() -> None:
    for name in sensorpool.__all__:
        assert getattr(sensorpool, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'registre'"):
        sensorpool.registre  # noqa: B018


@pytest.mark.parametrize("modules", ["cli.inspecting, sensorpool.admin.status", "cli.health"])
def test_a_command_that_only_looks_imports_no_broker(tmp_path: Path, modules: str) -> None:
    code = f"import sys, sensorpool.{modules}, sensorpool.admin.findings\nprint(*sys.modules)"
    roots = {name.partition(".")[0] for name in _run(code, tmp_path).split()}
    assert {"sensorpool", "sqlalchemy", "redis"} <= roots
    assert not roots & {"celery", "kombu", "amqp", "rich", "fakeredis"}


def test_a_command_leaves_no_file_beside_a_database_of_sqlite(tmp_path: Path) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "SENSORPOOL_DATABASE_URL": f"sqlite:///{tmp_path / 'pool.db'}",
        "SENSORPOOL_REDIS_URL": "memory://",
    }
    for arguments in (["db", "upgrade"], ["list"]):
        command = [sys.executable, "-m", "sensorpool", *arguments]
        subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, timeout=120, check=True)
    assert sorted(path.name for path in tmp_path.glob("pool.db*")) == ["pool.db"]
