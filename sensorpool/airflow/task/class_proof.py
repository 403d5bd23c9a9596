"""What the first poke of a company's sensor proves on its worker, for sensors of its class that begin without one.

A first poke is watched (`first_poke`), and what it shows holds for the code that ran and for what it was given. So a
proof is one of a class, of the version of its code, of its DAG's file (which may change the state that a class shares,
or its environment), of the arguments that stay the same from run to run, and of what the constructor finds elsewhere.
Only values of template fields may differ: they do so between the runs of a task, too. A row in the pool's database
keeps it with the poke_context that was registered, so a triggerer can compare the shared state, and the pool what it
finds (`start.proved_classes`).
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from sqlalchemy.exc import IntegrityError

from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof import known_sensors
from sensorpool.airflow.proof.arguments import external_inputs
from sensorpool.airflow.proof.state import code_version
from sensorpool.airflow.proof.watch import process_start
from sensorpool.airflow.task import deferral
from sensorpool.airflow.task.patch import proved_by_first_poke
from sensorpool.instrumentation.redaction import error_text
from sensorpool.store import class_proofs


def digest_of(cls: type, subject: str, poke_context: Mapping[str, Any]) -> bytes:
    """Return the digest of a proof.

    :param subject: what is proved of the class (`start.blueprint.Blueprint.subject`).
    :param poke_context: that of a sensor; what its constructor found elsewhere than in its arguments is proved too.
    :raises NotPoolable: when the code of the class has no version.
    """
    return beginning_of(cls, subject) + _half_digest(external_inputs.own_digests_of(poke_context))


def beginning_of(cls: type, subject: str) -> bytes:
    """Return the first half of the digest of a proof: what can be told before a sensor is built.

    :raises NotPoolable: when the code of the class has no version.
    """
    version = _version_of(cls)
    if isinstance(version, NotPoolable):
        raise version
    return _half_digest(f"{version}\n{subject}")


def _half_digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:16]


@lru_cache(1_000)
def _version_of(cls: Any) -> str | NotPoolable:
    try:
        return code_version.version_of(cls, process_start.loaded_at())
    except NotPoolable as error:
        return error


def note(sensor: Any, op_classpath: str, poke_context: Mapping[str, Any]) -> None:
    """Keep what the first poke of a sensor has proved; an error costs a line in its log.

    :param poke_context: as it was registered.
    """
    subject = proved_by_first_poke.get((sensor.dag_id, sensor.task_id))
    if subject is None:
        return

    def keep() -> None:
        if external_inputs.missing_lookups_of(poke_context) != frozenset():
            raise NotPoolable("its first poke did not find a Connection or Variable")
        database, digest = deferral.pool().database, digest_of(type(sensor), subject, poke_context)
        if database.read(class_proofs.is_known, digest):
            return
        text = json.dumps(poke_context, sort_keys=True)
        now = database.read(database.now)
        try:
            database.run(class_proofs.add, digest, op_classpath, text, now)
        except IntegrityError:
            return  # another worker was quicker
        sensor.log.info("sensorpool: its first poke has proved it: from now on it may begin without a worker.")

    _try(sensor, "goes on beginning on workers", keep)


def withdraw(sensor: Any) -> None:
    """Withdraw what was proved of the class of a sensor that was handed back; an error costs a line in its log."""
    cls = type(sensor)

    def delete() -> None:
        if deferral.airflow_settings().start != "scheduler" or known_sensors.is_reviewed(cls):
            return
        if deferral.pool().database.run(class_proofs.withdraw, f"{cls.__module__}.{cls.__qualname__}"):
            sensor.log.info(
                "sensorpool: sensors of its class begin on workers again, until a first poke proves it anew."
            )

    _try(sensor, "may begin without a worker all the same", delete)


def _try(sensor: Any, otherwise: str, work: Callable[[], None]) -> None:
    try:
        work()
    except Exception as error:
        sensor.log.info("sensorpool: it %s: %s", otherwise, error_text(error))
