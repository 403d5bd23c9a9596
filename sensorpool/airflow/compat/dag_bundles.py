"""DAG bundles and their files: where a task's DAG file is, and how Airflow loads it, without Airflow's database."""

import os
import re
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

CONTEXT = ("_AIRFLOW_PROCESS_CONTEXT", "client")
# what the environment of a process that runs DAG code must not have
_SECRET = re.compile(
    r"""(?x) AIRFLOW__ ( DATABASE__SQL_ALCHEMY_CONN(_ASYNC)? | CORE__(SQL_ALCHEMY_CONN|FERNET_KEY)
            | CELERY__(BROKER_URL|RESULT_BACKEND) | API_AUTH__\w+ | (API|WEBSERVER)__SECRET_KEY ) (_CMD|_SECRET)?
        | (SENSORPOOL|AIRFLOW__SENSORPOOL)_ ( \w*_URL(_CMD|_SECRET)? | _?CONN_\w+ )"""
)
_VERSION = re.compile(r"[A-Za-z0-9][\w.+:@=-]{0,199}", re.ASCII)  # no part of a path
# a configuration file may have them as well: these values stand before it
_INSTEAD = {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "sqlite://", "AIRFLOW__CORE__FERNET_KEY": ""}


class DagFile(NamedTuple):
    """A DAG file of a bundle.

    :param version: of the bundle; None for a bundle without versions.
    :param place: the bundle's folder, as the bundle names it.
    :param folder: the same without links.
    :param path: relative to that.
    :param module: the name of the module that Airflow makes of the file.
    """

    bundle: str
    version: str | None
    place: str
    folder: str
    path: str
    module: str


def dag_file_of(sensor: Any, context: Mapping[str, Any]) -> DagFile | None:
    """Return the DAG file of a task on its worker; None if it is not known, or is no plain file of its bundle."""
    bundle = getattr(context.get("ti"), "bundle_instance", None)
    folder, name = getattr(bundle, "path", None), getattr(bundle, "name", None)
    fileloc = getattr(getattr(sensor, "dag", None), "fileloc", None)
    if (
        bundle is None
        or folder is None
        or not isinstance(name, str)
        or not isinstance(fileloc, str)
        or not os.path.isfile(fileloc)
    ):
        return None
    path = os.path.relpath(fileloc, folder)
    version = None if bundle.version is None else str(bundle.version)
    if reason_against(version, path) is not None:
        return None
    place = os.path.abspath(folder)
    return DagFile(name, version, place, os.path.realpath(place), path, module_of(fileloc))


def is_within(path: str) -> bool:
    """Whether a path, relative to a bundle, stays in it; where its links lead, who writes the bundle decides."""
    return not os.path.isabs(path) and ".." not in path.split(os.sep)


def reason_against(version: Any, path: Any) -> str | None:
    """Return why a version and a path name no DAG file of a bundle, whatever bundle that is; None if they may."""
    if version is not None and not (isinstance(version, str) and _VERSION.fullmatch(version)):
        return "the version of its bundle is no plain name"
    if not isinstance(path, str) or not is_within(path) or not path.endswith(".py"):
        return "the path of its DAG file is not that of a .py file within its bundle"
    return None


def module_of(fileloc: str) -> str:
    """Return the name of the module that Airflow makes of a DAG file."""
    from airflow.utils.file import get_unique_dag_module_name

    return str(get_unique_dag_module_name(fileloc))


def environment_for_dags(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment for a process that runs DAG code: without secrets of Airflow's servers and of the pool."""
    kept = {name: value for name, value in environment.items() if _SECRET.fullmatch(name) is None}
    return kept | _INSTEAD | dict([CONTEXT])


def block_database() -> None:
    """Keep the code of this process from Airflow's database, as a worker's supervisor does."""
    import airflow  # noqa: F401  # first: it sets itself up for a database
    from airflow.sdk.execution_time.supervisor import block_orm_access

    block_orm_access()


def configured() -> list[str]:
    """Return the names of the bundles that Airflow's configuration has here.

    :raises Exception: when it cannot be read.
    """
    from airflow.configuration import conf

    return [str(bundle["name"]) for bundle in conf.getjson("dag_processor", "dag_bundle_config_list") or ()]


def is_gone(error: BaseException) -> bool:
    """Whether a bundle that cannot be had for this error will not be there the next time either.

    Its name or class is not there, its arguments are others, it has no such version or Connection. All else may be an
    outage of what it comes from: a worker that has to fetch the bundle then fails its task.
    """
    is_airflows = any(cls.__name__ == "AirflowException" for cls in type(error).__mro__)
    return is_airflows or isinstance(
        error, ValueError | TypeError | ImportError | AttributeError | LookupError | NotImplementedError
    )


class Bundle:
    """A bundle of this process, at one version, which is kept from removal until the process ends.

    :raises Exception: when there is none of that name, or it cannot be brought here.
    """

    def __init__(self, name: str, version: str | None) -> None:
        from airflow.dag_processing.bundles.base import BundleVersionLock
        from airflow.dag_processing.bundles.manager import DagBundlesManager

        self._lock = BundleVersionLock(bundle_name=name, bundle_version=version)
        self._lock.__enter__()
        self._bundle = DagBundlesManager().get_bundle(name=name, version=version)
        if version is not None and not self._bundle.supports_versioning:
            raise ValueError(f"the bundle {name} has no versions here")
        self._bundle.initialize()
        # a bundle that could have versions brings its files by itself, as it does for each task on a worker
        self.is_fetched = version is None and bool(self._bundle.supports_versioning)
        self.place = os.path.abspath(self._bundle.path)
        self.folder = os.path.realpath(self.place)

    def close(self) -> None:
        """Let the version be removed."""
        self._lock.release()

    def fileloc(self, path: str) -> str:
        """Return the path of a file of the bundle, as Airflow gives it to the file's module."""
        return os.fspath(Path(self._bundle.path, path))

    def load(self, path: str) -> Mapping[str, Any]:
        """Load a DAG file; return its DAGs by their ids.

        :raises ImportError: when the file cannot be loaded, with the last line of the error.
        """
        from airflow.dag_processing.dagbag import BundleDagBag

        try:
            bag = BundleDagBag(
                dag_folder=self.fileloc(path),
                safe_mode=False,
                load_op_links=False,
                bundle_path=self._bundle.path,
                bundle_name=self._bundle.name,
            )
        finally:
            if threading.current_thread() is threading.main_thread():
                # the load leaves a handler in Python, with which a poke that crashes would go on for ever
                signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        for error in bag.import_errors.values():
            raise ImportError(str(error).strip().rpartition("\n")[2])
        dags: Mapping[str, Any] = bag.dags
        return dags
