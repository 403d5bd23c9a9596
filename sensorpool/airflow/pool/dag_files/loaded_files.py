"""The DAG files that a process of a bundle has loaded, each once; what has changed since needs another process."""

import json
import os
import sys
import time
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from typing import Any

from sensorpool.airflow.compat import dag_bundles
from sensorpool.airflow.compat.dag_bundles import Bundle
from sensorpool.airflow.pool.dag_files import loaded_sensor
from sensorpool.airflow.pool.dag_files.bundle_here import BundleHere
from sensorpool.airflow.pool.dag_files.load_changes import LoadChanges
from sensorpool.airflow.pool.dag_files.loaded_sensor import LoadedSensor
from sensorpool.airflow.pool.dag_files.lookups import Questions
from sensorpool.airflow.proof.arguments import dag_file
from sensorpool.airflow.proof.state import bundle_files
from sensorpool.errors import CannotPoke, HandBack, InfraFailure, NotReady
from sensorpool.instrumentation.redaction import one_line
from sensorpool.poke.classes import Classes, SensorClass, Way

_RETRY_AFTER = 15.0  # seconds until a file that could not be loaded is loaded again; doubles with each failure
_LONGEST_RETRY = 900.0  # seconds
_MOST_KEPT = 2_000  # sensors


class LoadedFiles(Classes):
    """The DAG files of one bundle at one version; the "class path" of each is its path in the bundle.

    A file is loaded while no poke goes on, so that no poke sees what a load changes for a while (`load_changes`).

    :param bundle: the name of the bundle.
    :param version: None for a bundle without versions.
    :param questions: what this process asks its parent.
    """

    def __init__(self, bundle: str, version: str | None, questions: Questions) -> None:
        super().__init__(())
        self._changes = LoadChanges()
        self._questions = questions
        self._name = bundle
        self._version = version
        self._here = BundleHere(bundle, version, questions)
        self._bundle: Bundle | None = None
        self._files: dict[str, _File] = {}
        self._contents: dict[str, str] = {}  # of the loaded files, by path

    finds_alone = True

    def known(self, op_classpath: str) -> SensorClass | None:
        """Return a file if it is loaded."""
        file = self._files.get(op_classpath)
        return None if file is None else SensorClass(op_classpath, file.sensor, Way.SYNC)

    def refusal(self, _: str) -> str | None:
        """Return None: a file that cannot be loaded says so itself."""
        return None

    def find(self, op_classpath: str) -> SensorClass:
        """Return a file; load it, on the main thread, which asks for each file first."""
        if op_classpath not in self._files or self.is_due(op_classpath):
            self._files[op_classpath] = self._load(op_classpath, self._files.get(op_classpath))
        return SensorClass(op_classpath, self._files[op_classpath].sensor, Way.SYNC)

    def is_due(self, op_classpath: str) -> bool:
        """Whether it is time to load a file again that could not be loaded."""
        file = self._files.get(op_classpath)
        return file is not None and file.failure is not None and time.monotonic() >= file.retry_at

    def learn_async(self, _: str) -> None:
        """Learn nothing: a coroutine is awaited on its thread."""

    def _load(self, path: str, before: "_File | None") -> "_File":
        began, unanswered = time.time(), self._questions.unanswered
        file = _File(self, path)
        try:
            self._bundle = self._here.get()
            file.module = dag_bundles.module_of(self._bundle.fileloc(path))
            if not os.path.isfile(self._bundle.fileloc(path)):
                raise FileNotFoundError(f"{path} is not in the bundle {self._name} of the pool")
            self._load_alone(file, self._bundle, began)
        except (HandBack, InfraFailure) as error:
            file.failure, file.is_for_now = str(error), isinstance(error, InfraFailure)
        except BaseException as error:  # a DAG file may raise anything
            file.failure = f"its DAG file cannot be loaded in the pool: {one_line(error)}"
        if self._questions.unanswered > unanswered:
            file.failure = "its DAG file looks up a Connection or Variable, and Airflow's database does not answer"
            file.is_for_now = True
        if file.failure is not None:
            file.dags = {}
            file.wait = _RETRY_AFTER if before is None else min(2 * before.wait, _LONGEST_RETRY)
            file.retry_at = time.monotonic() + (_RETRY_AFTER if file.is_for_now else file.wait)
        return file

    def _load_alone(self, file: "_File", bundle: Bundle, began: float) -> None:
        self._changes.begin()
        try:
            file.dags = bundle.load(file.path)
        except BaseException:
            self._changes.fail()
            raise
        file.failure = self._changes.end()
        if file.failure is None and self._version is None:
            self._note_contents(file, began)
            if file.failure is not None:
                self._changes.fail()

    def _note_contents(self, file: "_File", began: float) -> None:
        """Note what the load has loaded, if it is certain that the files still hold that."""
        assert self._bundle is not None
        folder = self._bundle.folder
        file.imported = ({file.path} | bundle_files.loaded_from(folder)) - self._contents.keys()
        try:
            contents = bundle_files.contents_of(folder, file.imported)
            changed = bundle_files.changed_since(self._bundle.place, folder, file.imported, began)
        except OSError as error:
            changed = one_line(error)
        if changed is None:
            self._contents |= contents
        else:
            file.failure = f"its DAG file was changed while it was loaded in the pool: {changed}"
            file.is_for_now = True

    def check(self, file: "_File", poke_context: Mapping[str, Any]) -> None:
        """Check that this process has loaded what a poke_context was registered with.

        :raises CannotPoke: when a newer process can have that.
        :raises HandBack: when no process can.
        :raises InfraFailure: when a later process may.
        """
        if file.failure is not None:
            raise NotReady(file.failure) if file.is_for_now else HandBack(file.failure)
        if file.module != poke_context["module"]:
            raise HandBack("the bundle of its DAG file lies in another folder in the pool than on its worker")
        if self._version is not None:
            return
        paths, registered = poke_context[dag_file.FILES], poke_context[dag_file.DIGEST]
        loaded = {path: self._contents[path] for path in paths if path in self._contents}
        if len(loaded) == len(paths) and bundle_files.digest_of(loaded) == registered:
            if more := file.imported - set(paths):
                raise HandBack(f"its DAG file imports {min(more)} in the pool, and not on its worker")
            return
        assert self._bundle is not None
        try:
            now = bundle_files.contents_of(self._bundle.place, paths)  # a link in it may lead to newer code
        except OSError:
            now = {}
        if len(now) == len(paths) and bundle_files.digest_of(now) == registered and now != loaded:
            if any(path in self._contents and self._contents[path] != now[path] for path in paths):
                raise CannotPoke(f"its DAG file has changed {dag_file.STALE}")
            raise HandBack("its DAG file imports less of its bundle's folder in the pool than on its worker")
        why = "its DAG file has changed since it registered, or is another one in the pool"
        raise CannotPoke(f"{why} {dag_file.OLD_FILES}") if self._bundle.is_fetched else HandBack(why)

    def imported_later(self) -> str | None:
        """Return a file that a poke has imported, of which nothing is known; None if there is none."""
        if self._version is not None or self._bundle is None:
            return None
        return min(bundle_files.loaded_from(self._bundle.folder) - self._contents.keys(), default=None)


class _File:
    """One loaded DAG file, and the sensors that are kept of it."""

    def __init__(self, files: LoadedFiles, path: str) -> None:
        self.path = path
        self.module = ""
        self.dags: Mapping[str, Any] = {}
        self.imported: set[str] = set()  # paths of the files of the bundle that its load was the first to load
        self.failure: str | None = None
        self.is_for_now = False
        self.wait = self.retry_at = 0.0
        self._files = files
        self._classes: dict[tuple[str, str], type[LoadedSensor]] = {}
        self._kept: OrderedDict[str, LoadedSensor] = OrderedDict()

    def sensor(self, **poke_context: Any) -> "_Poke":
        """Return the sensor of a poke_context, for one poke.

        :raises CannotPoke: when another process has to poke it.
        :raises HandBack: when only a worker can.
        """
        self._files.check(self, poke_context)
        key = json.dumps(poke_context, sort_keys=True)
        kept = self._kept.pop(key, None)  # two pokes at once have two sensors
        if kept is None:
            kept = self._class_for(poke_context["dag_id"], poke_context["task_id"])(**poke_context)
        return _Poke(kept, partial(self._keep, key, kept), self._files)

    def _class_for(self, dag_id: str, task_id: str) -> type[LoadedSensor]:
        found = self._classes.get((dag_id, task_id))
        if found is None:
            task = getattr(self.dags.get(dag_id), "task_dict", {}).get(task_id)
            if task is None:
                raise HandBack(f"its DAG file has no task {task_id} of the DAG {dag_id} in the pool")
            found = self._classes[dag_id, task_id] = loaded_sensor.class_for(task)
        return found

    def _keep(self, key: str, sensor: LoadedSensor) -> None:
        self._kept[key] = sensor
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)


class _Poke:
    """A sensor for one poke; it is kept if the poke returns."""

    __slots__ = ("_files", "_keep", "_modules", "_sensor")

    def __init__(self, sensor: LoadedSensor, keep: Any, files: LoadedFiles) -> None:
        self._sensor = sensor
        self._keep = keep
        self._files = files
        self._modules = len(sys.modules)

    def poke(self, context: Mapping[str, Any]) -> Any:
        """Poke.

        :raises HandBack: when the poke imports what no digest has.
        """
        found = self._sensor.poke(context)
        if len(sys.modules) != self._modules and (path := self._files.imported_later()) is not None:
            raise HandBack(f"its poke imports {path} of its bundle's folder: import it at the top of its DAG file")
        self._keep()
        return found
