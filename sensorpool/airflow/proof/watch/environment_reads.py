"""Reads of the environment of a task's process, where the pool's process has another one.

Airflow names the task there. And a DAG file, a policy, a constructor or `pre_execute` may have changed a name since the
process started (`process_start`): a Variable or Connection, a profile, a proxy, the time zone. Only that process has
the change, so a sensor that depends on it runs natively. The log gets the name, never the value.
"""

import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from airflow.sdk.bases.operator import BaseOperator

from sensorpool.airflow.compat import operators, task_runtime
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof import known_sensors
from sensorpool.airflow.proof.state import references
from sensorpool.airflow.proof.state.judged_class import judged_class_of
from sensorpool.airflow.proof.watch import denials, process_start, watched_environment

OF_TASK = "AIRFLOW_CTX_"  # the beginning of the names that say which task runs
_OF_AIRFLOW = (OF_TASK, "_AIRFLOW_", "__AIRFLOW_")  # names that Airflow keeps for itself
_LOOK_UPS = {"AIRFLOW_VAR_": "Variable", "AIRFLOW_CONN_": "Connection"}
_TIME_ZONE = "TZ"
# names that libraries in C read unseen, with the modules that load such a library
_READ_IN_C = (
    (re.compile(r"PG[A-Z]\w*"), ("psycopg", "psycopg2", "adbc_driver_postgresql")),
    (re.compile(r"SSL_CERT_(FILE|DIR)|OPENSSL_\w+"), ("_ssl",)),
    (re.compile(r"RES_OPTIONS|LOCALDOMAIN|HOSTALIASES"), ("_socket",)),
    (re.compile(r"KRB5\w*|GSS_\w+"), ("gssapi", "kerberos", "krb5", "winkerberos")),
    (re.compile(r"TNS_ADMIN|NLS_\w+|ORA(CLE)?_\w+|TWO_TASK"), ("oracledb", "cx_Oracle")),
    (re.compile(r"ODBC\w*|TDS\w*|FREETDS\w*"), ("pyodbc", "pymssql", "turbodbc")),
    (re.compile(r"MYSQL_\w+|MARIADB_\w+|LIBMYSQL\w+"), ("MySQLdb", "mariadb")),
    (re.compile(r"LDAP\w*|SASL_\w+"), ("_ldap",)),
    (re.compile(r"\w+_proxy|\w+_PROXY|CURL_\w+"), ("pycurl",)),
)
# modules that read these names for the user agent of their requests, which no answer depends on
_FOR_USER_AGENT = {
    "airflow.providers.amazon.aws.hooks.base_aws": frozenset({"AIRFLOW_CTX_DAG_ID", "AIRFLOW_CTX_TEAM_NAME"})
}
_OF_PYTHON = frozenset(
    {"os", "collections.abc", "_collections_abc", watched_environment.__name__}
)  # they read for their callers
_DEEPEST = 8
_POOL = "sensorpool.airflow.pool.adapters."


def noting(note: Callable[[str], object], found: Callable[[str], object]) -> AbstractContextManager[None]:
    """Note reads of names in the environment that only this process has.

    :param found: called for each Connection or Variable in the environment: the pool may have another one elsewhere.
    """
    return _noting(note, _changed(), found)


def noting_changes(note: Callable[[str], object]) -> AbstractContextManager[object]:
    """Note reads of names in the environment that the task has changed."""
    changed = _changed()
    return _noting(note, changed) if changed else nullcontext()


def changed_by_task() -> frozenset[str]:
    """Return the names in the environment that the task has changed, without those that Airflow sets for each task."""
    return _changed() - task_runtime.SET_FOR_TASKS


def build_checked(build: Callable[[], Any]) -> Any:
    """Build a sensor, and check what its constructor reads.

    A task has its process for itself: all threads are heard. A triggerer builds on threads, and others read meanwhile.

    :raises NotPoolable: when the constructor reads a name that the task has changed in the environment.
    :raises Exception: whatever the constructor raises.
    """
    changed, found = _changed(), list[str]()
    if not changed:
        return build()
    is_main = threading.current_thread() is threading.main_thread()
    with _noting(found.append, changed, thread=None if is_main else threading.get_ident()):
        sensor = build()
    if found:
        raise NotPoolable(f"its constructor {found[0]}", "needs_worker")
    return sensor


def _noting(
    note: Callable[[str], object],
    changed: frozenset[str],
    found: Callable[[str], object] | None = None,
    thread: int | None = None,
) -> AbstractContextManager[None]:
    watched = (OF_TASK, *_LOOK_UPS) if found else ()

    def ask(name: str) -> None:
        if _is_for_user_agent(name):
            return
        if found and name not in changed and (lookup := _lookup_of(name)) is not None:
            if process_start.has(name):
                found(lookup)
            return
        whose = ", which its task has changed" if name in changed else " of its worker"
        note(f"reads {name} from the environment{whose}")

    def is_watched(name: str) -> bool:
        return name in changed or name.startswith(watched)

    def is_listed(name: str) -> bool:
        return is_watched(name) and name not in task_runtime.SET_FOR_TASKS

    return watched_environment.watching(is_watched, is_listed, process_start.gone() & changed, ask, thread)


def reason_against(sensor: BaseOperator, hooks: Iterable[type] = ()) -> str | None:
    """Return why changes of the environment keep a sensor on its worker that no watched poke shows; None if none do.

    Libraries in C are not watched, and a later poke may read names that the first one does not.

    :param hooks: the classes of companies' hooks by which it asks.
    """
    changed, in_c = changed_by_task(), process_start.changed_in_c()
    companys = [cls for cls in (judged_class_of(sensor), *hooks) if not known_sensors.is_reviewed(cls)]
    if _TIME_ZONE in changed | in_c and companys:
        return f"its task has changed {_TIME_ZONE} in the environment, and with it the local time of its process"
    for name in sorted(changed | in_c):
        if any(names.fullmatch(name) and not sys.modules.keys().isdisjoint(by) for names, by in _READ_IN_C):
            return f"its task has changed {name} in the environment, which libraries in C read unseen"
    texts = frozenset(_texts_of(sensor, companys)) if changed else frozenset[str]()
    upper = frozenset(text.upper() for text in texts)
    for name in sorted(changed):
        lookup = _lookup_of(name)
        if name in texts or (lookup and lookup.partition(" ")[2] in upper):
            return f"its code names {name}, which its task has changed in the environment"
    return None


def _is_for_user_agent(name: str) -> bool:
    """Whether a name is read, just now, for the user agent of a request and for nothing else."""
    if not any(name in names for names in _FOR_USER_AGENT.values()):
        return False
    frame = sys._getframe(2)
    while frame is not None and (module := str(frame.f_globals.get("__name__"))) in _OF_PYTHON:
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and name in _FOR_USER_AGENT.get(module, ())


def _lookup_of(name: str) -> str | None:
    """Return the Connection or Variable, in capitals, that a name in the environment holds; None for other names."""
    return next(
        (f"{kind} {name.removeprefix(prefix)}" for prefix, kind in _LOOK_UPS.items() if name.startswith(prefix)), None
    )


def _changed() -> frozenset[str]:
    """Return the names that the task has changed, without those that Airflow keeps for itself."""
    return frozenset(name for name in process_start.changed() if not name.startswith(_OF_AIRFLOW))


def _texts_of(sensor: BaseOperator, companys: Iterable[type]) -> Iterator[str]:
    """Yield the texts among a sensor's attributes, and in the code of companies' classes."""
    yield from (value for value in operators.own_attributes(sensor).values() if type(value) is str)
    for cls in companys:
        referenced = references.references_of(cls)
        yield from (value for _, _, value in referenced.data() if type(value) is str)
        for function in referenced.functions:
            yield from _texts_in(function.__code__)


def _texts_in(constant: Any, depth: int = _DEEPEST) -> Iterator[str]:
    if type(constant) is str:
        yield constant
        return
    parts = constant if type(constant) in (tuple, frozenset) else getattr(constant, "co_consts", ())
    for part in parts if depth else ():
        yield from _texts_in(part, depth - 1)


def deny_names() -> None:
    """Deny pokes of this process, one of the pool's, the names of their task: a read raises `OnlyOnWorker`."""

    def deny(name: str) -> None:
        if _is_for_user_agent(name):
            return
        frame = sys._getframe(2)
        while frame is not None and not str(frame.f_globals.get("__name__")).startswith(_POOL):
            frame = frame.f_back  # type: ignore[assignment]
        if frame is not None:
            raise denials.deny(f"its poke asks for {name} in the environment, which only a worker has")

    watched_environment.put_in_place(lambda name: name.startswith(OF_TASK), deny)
