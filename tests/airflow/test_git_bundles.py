"""Sensors of DAG files in a Git bundle, as Airflow's provider brings it: a version of it is a commit."""

import json
import shutil
import subprocess
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow.providers.standard")
pytest.importorskip("airflow.providers.git")
if shutil.which("git") is None:
    pytest.skip("git is not installed", allow_module_level=True)

from airflow.dag_processing.bundles import base

from harness.until import until
from sensorpool.airflow.pool import dag_files
from sensorpool.model.states import Outcome
from tests.airflow.dag_file_world import Group, World

pytestmark = pytest.mark.processes

WAITS = """
@task.sensor
def wait():
    return PokeReturnValue(pathlib.Path("{arrived}").exists(), "{revision}")
wait()
"""


class GitWorld(World):
    """A world whose bundle is a Git repository; the worker and the pool share one machine."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder)
        self.origin, self.storage, self.arrived = folder / "origin.git", folder / "storage", folder / "arrived"
        self._patch = monkeypatch
        self.git("init", "--quiet", "--initial-branch", "main")
        self.git("init", "--quiet", "--bare", "--initial-branch", "main", str(self.origin))
        self.git("remote", "add", "origin", str(self.origin))
        monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_STORAGE_PATH", str(self.storage))
        monkeypatch.setattr(base, "STALE_BUNDLE_TRACKING_FOLDER", self.storage / "_tracking")
        self.configure()

    def configure(self, name: str = "ours", classpath: str = "", **kwargs: Any) -> None:
        """Configure the one bundle of the worker and the pool."""
        found = {"tracking_ref": "main", "repo_url": str(self.origin)} if not classpath else {}
        classpath = classpath or "airflow.providers.git.bundles.git.GitDagBundle"
        bundle = {"name": name, "classpath": classpath, "kwargs": found | kwargs}
        self._patch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", json.dumps([bundle]))

    def git(self, *words: str) -> str:
        """Run git in the folder where the DAG files are written."""
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        return subprocess.check_output(["git", *who, *words], cwd=self.folder, text=True).strip()

    def commit(self, revision: str, path: str = "x.py", body: str = WAITS, **files: str) -> str:
        """Commit a DAG file and push it; return the version."""
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        self.write(body.replace("{arrived}", str(self.arrived)).replace("{revision}", revision), path)
        self.git("add", ".")
        self.git("commit", "--quiet", "-m", revision)
        self.git("push", "--quiet", "--force", "origin", "HEAD:main")
        return self.git("rev-parse", "HEAD")

    def unversioned(self) -> Group:
        """Return a group of a task for which Airflow has pulled the branch, as it does if versions are off."""
        self.sensor()
        pulled = self.storage / "ours" / "tracking_repo" / "x.py"
        until("the file's time", lambda: pulled.stat().st_ctime < time.time() - 0.2)
        return self.pooled(self.sensor())

    def forget(self) -> None:
        """Let the pool be on a machine that has nothing of the bundle, and has no process for it."""
        for process in dag_files.processes().running:
            process.retire()
        shutil.rmtree(self.storage, ignore_errors=True)  # a bundle of another name brings nothing


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: World) -> GitWorld:
    return GitWorld(tmp_path / "git", monkeypatch)


def test_a_sensor_waits_with_its_version_while_the_branch_moves_on(repository: GitWorld) -> None:
    groups = {}
    for revision in ("a", "b"):
        version = repository.commit(revision)
        registered = repository.registered(repository.sensor(version=version))
        assert (registered["version"], registered.get("files")) == (version, None)
        groups[revision] = Group(registered)
    repository.commit("c")
    repository.forget()
    assert [group.poke().outcome for group in groups.values()] == [Outcome.NOT_LANDED] * 2
    repository.arrived.touch()
    assert {revision: group.value() for revision, group in groups.items()} == {"a": "a", "b": "b"}


def test_a_repository_that_cannot_be_reached_is_an_outage(repository: GitWorld) -> None:
    """A worker that had to fetch the version would fail its task."""
    version = repository.commit("a")
    group = repository.pooled(repository.sensor(version=version))
    repository.forget()
    repository.origin.rename(repository.origin.with_name("away"))
    report = group.poke()
    assert (report.outcome, "cannot be had in the pool" in str(report.reason)) == (Outcome.INFRA_FAILURE, True), report
    repository.origin.with_name("away").rename(repository.origin)
    until("the bundle is had again", lambda: group.poke().outcome is Outcome.NOT_LANDED)


def test_a_version_that_is_here_needs_no_repository(repository: GitWorld) -> None:
    version = repository.commit("a")
    group = repository.pooled(repository.sensor(version=version))
    shutil.rmtree(repository.origin)
    assert group.poke().outcome is Outcome.NOT_LANDED


def test_what_is_gone_is_handed_back(repository: GitWorld) -> None:
    """A version that a forced push has removed; a bundle under another name, of another type, or without its class."""
    version = repository.commit("a")
    group = repository.pooled(repository.sensor(version=version))
    repository.git("checkout", "--quiet", "--orphan", "new")
    repository.commit("b")
    repository.git("gc", "--quiet", "--prune=now")
    subprocess.check_call(["git", "gc", "--quiet", "--prune=now"], cwd=repository.origin)
    repository.forget()
    found = {"version": group.poke()}
    for kind, change in {
        "name": {"name": "theirs"},
        "type": {"classpath": "airflow.dag_processing.bundles.local.LocalDagBundle", "path": str(repository.folder)},
        "arguments": {"tracking": "main"},
        "class": {"classpath": "acme.bundles.Gone"},
    }.items():
        repository.configure(**change)
        repository.forget()
        found[kind] = group.poke()
    assert {kind: report.outcome for kind, report in found.items()} == dict.fromkeys(found, Outcome.HAND_BACK)


def test_files_of_one_version_that_import_modules_of_one_name(repository: GitWorld) -> None:
    """Each folder of a repository has its helper; natively no process imports both."""
    body = """
    sys.path.insert(0, os.path.dirname(__file__))
    from acme_helper import revision
    @task.sensor
    def wait():
        return PokeReturnValue(pathlib.Path("{arrived}").exists(), revision())
    wait()
    """
    for name in "ab":
        (repository.folder / name).mkdir()
        (repository.folder / name / "acme_helper.py").write_text(f"def revision(): return '{name}'")
        version = repository.commit(name, f"{name}/x.py", textwrap.dedent(body))
    groups = [repository.pooled(repository.sensor(f"{name}/x.py", version=version)) for name in "ab"]
    repository.arrived.touch()
    assert groups[0].value() == "a"
    report = groups[1].poke()
    assert (report.outcome, "from elsewhere" in str(report.reason)) == (Outcome.HAND_BACK, True)


def test_a_bundle_whose_versions_are_off(repository: GitWorld) -> None:
    """Airflow pulls the branch for each task then; in the pool, on another machine, a new process does."""
    repository.commit("a")
    old = repository.unversioned()
    assert old.poke().outcome is Outcome.NOT_LANDED
    [before] = dag_files.processes().running
    kept = repository.storage.with_name("kept")
    shutil.copytree(repository.storage, kept, symlinks=True)
    repository.commit("b")
    new = repository.unversioned()
    shutil.rmtree(repository.storage)
    kept.rename(repository.storage)
    report = new.poke()
    assert (report.outcome, "has changed since it registered" in str(report.reason)) == (Outcome.HAND_BACK, True)
    before.began -= 100
    assert new.poke().outcome is Outcome.NOT_LANDED
    report = old.poke()
    assert (report.outcome, "(" in str(report.reason)) == (Outcome.HAND_BACK, False), report
