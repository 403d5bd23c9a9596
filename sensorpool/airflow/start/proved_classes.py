"""Whether the first poke of a company's class was proved on a worker, as a triggerer finds it in the pool's database.

The rows of a class are read at once, and kept for a while. A row counts for the code that this process has, if a sensor
has the same attributes beside its arguments here, and if the state that all sensors of its class share is the same.
"""

import json
import time
from collections.abc import Mapping
from threading import Lock
from typing import Any

from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof.arguments import external_inputs
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
    if not blueprint.dag_file:
        raise NotPoolable("its blueprint does not say that it needs a proof", "unproved")
    if not _rows(database, blueprint.op_classpath):
        raise NotPoolable(_UNPROVED, "unproved")


def check_code(database: Database, cls: Any, blueprint: Blueprint) -> None:
    """Check that there is a proof of the code and the arguments of a class. Nothing of it is called.

    :raises NotPoolable: when there is none.
    :raises Unreachable: when the database does not answer.
    """
    beginning = class_proof.beginning_of(cls, blueprint.subject())
    if not any(digest.startswith(beginning) for digest in _rows(database, blueprint.op_classpath)):
        raise NotPoolable(_UNPROVED, "unproved")


def poke_context(database: Database, sensor: Any, blueprint: Blueprint, own: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the poke_context of a sensor that was proved, and proves one with this blueprint.

    :param sensor: as it was built here.
    :param own: its poke_context.
    :raises NotPoolable: when there is none, or when the class has another state here.
    :raises Unreachable: when the database does not answer.
    """
    digest = class_proof.digest_of(type(sensor), blueprint.subject(), own)
    text = _rows(database, blueprint.op_classpath).get(digest)
    if text is None:
        raise NotPoolable(_UNPROVED, "unproved")
    proved: dict[str, Any] = json.loads(text)
    if (name := external_inputs.differing_shared_state(sensor, proved)) is not None:
        raise NotPoolable(f"in the triggerer {name} is another one than on its worker", "unproved")
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
