"""Whether the first poke of a company's class was proved on a worker, as a triggerer finds it in the pool's database.

The rows of a class are read at once, and kept for a while. A row counts for the code that this process has, and if the
sensor that was proved can be built here again as it was there: with the same attributes beside its arguments, and the
same state that all sensors of its class share.
"""

import json
import time
from collections.abc import Mapping
from threading import Lock
from typing import Any

from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof.arguments import external_inputs, rebuild
from sensorpool.airflow.start.blueprint import Blueprint
from sensorpool.airflow.task import class_proof
from sensorpool.store import class_proofs
from sensorpool.store.database import Database

KEPT = 30.0  # seconds: a class that was proved, or withdrawn, is known here by then
_MOST = 1_000  # classes
_UNPROVED = "no first poke on a worker has proved its class with this code and these arguments yet"

_lock = Lock()
_read: dict[str, tuple[float, Mapping[bytes, str]]] = {}  # by class path: when, and what


def check_known(database: Database, blueprint: Blueprint) -> None:
    """Check that there is a proof of a class, whatever it proves. No code of the class is imported.

    :raises NotPoolable: when there is none.
    :raises Unreachable: when the database does not answer.
    """
    if not _rows(database, blueprint.op_classpath):
        raise NotPoolable(_UNPROVED, "unproved")


def poke_context(database: Database, cls: Any, blueprint: Blueprint) -> Mapping[str, Any]:
    """Return the poke_context of a sensor that was proved, and proves one with this blueprint.

    :raises NotPoolable: when there is none, or when it would be another sensor here.
    :raises Unreachable: when the database does not answer.
    :raises Exception: whatever the constructor of the class raises.
    """
    if not blueprint.dag_file:
        raise NotPoolable("its blueprint does not say that it needs a proof", "unproved")
    rows = _rows(database, blueprint.op_classpath)
    text = rows.get(class_proof.digest_of(cls, blueprint.subject())) if rows else None
    if text is None:
        raise NotPoolable(_UNPROVED, "unproved")
    proved: dict[str, Any] = json.loads(text)
    again = rebuild.rebuild(cls, proved)
    differing = external_inputs.differing_attribute(again, proved)
    if (name := differing or external_inputs.differing_shared_state(again, proved)) is not None:
        raise NotPoolable(f"built in the triggerer, its attribute {name} is another one than on its worker", "unproved")
    return proved


def _rows(database: Database, op_classpath: str) -> Mapping[bytes, str]:
    """Return the rows of a class. Threads that ask for it at one moment read it once."""
    with _lock:
        read_at, rows = _read.get(op_classpath, (float("-inf"), {}))
        if time.monotonic() - read_at >= KEPT:
            rows = database.read(class_proofs.of_class, op_classpath)
            if len(_read) >= _MOST:
                _read.clear()
            _read[op_classpath] = (time.monotonic(), rows)
    return rows
