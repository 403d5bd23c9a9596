"""Rescue finds what a dead process left half done, and what is of no use any more.

A round goes through the list of chores; what a chore has no time for has its turn in the next round. Any number of
processes may run rescue at once: work that two of them do is harmless.
"""

from collections.abc import Callable
from contextlib import suppress

from sensorpool.errors import SensorpoolError, Unreachable
from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.worker.chores import late, left_behind, old_rows
from sensorpool.worker.chores.round import Place, Rescued, Round, begin
from sensorpool.worker.context import Worker

CHORES: dict[str, Callable[[Round], None]] = {  # each by its name, as `health` says it
    "pruning instances": old_rows.prune_instances,
    "pruning records": old_rows.prune_records,
    "folding shardcodes": old_rows.fold_shardcodes,
    "finding late conditions": late.find,
    "quarantine": old_rows.let_out,
    "dropping abandoned listeners": left_behind.drop_listeners,
    "rescuers of other packages": left_behind.call_rescuers,
    # last, and each for half a round at most: a backlog starves no other chore
    "sending callbacks": left_behind.send_callbacks,
    "publishing what a dead process left": left_behind.publish,
}
_KEPT = 86_400_000  # milliseconds

log = logger(__name__)


def go_on(worker: Worker, place: Place) -> Rescued:
    """Do one round from where the last one came to, in whichever process that was: Redis knows.

    A pool has many processes, each of which is replaced after a while: by itself none of them would come to the end of
    a large table.

    :param place: where this process goes on while Redis does not answer.
    :raises Unreachable: when the database does not answer.
    """
    store = worker.leases.store
    key = store.pool_key("rescue_place")
    with suppress(Unreachable):
        if (text := store.call(store.client.get, key)) is not None:
            place.go_to(text)
    try:
        return rescue(worker, place)
    finally:
        with suppress(Unreachable):
            store.call(store.client.set, key, place.as_text(), px=_KEPT)


def rescue(worker: Worker, place: Place) -> Rescued:
    """Do one round; ``place`` moves on. A chore that fails ends no other, and is noted for `health`.

    :raises Unreachable: when the database does not answer.
    """
    now = begin(worker, place)
    failed: dict[str, str] = {}
    done: set[str] = set()
    for name, work in CHORES.items():
        try:
            work(now)
            done.add(name)
        except Exception as error:
            failed[name] = one_line(error) if not isinstance(error, SensorpoolError) else str(error)
            log.warning("a chore of rescue failed", chore=name, error=failed[name])
            if isinstance(error, Unreachable):
                worker.database.read(worker.database.now)  # where the database does not answer at all, the round ends
    try:
        worker.incidents.note_chores(failed, done)
    except Unreachable as error:
        log.warning("the cause of a failure was not noted", error=str(error))
    if found := now.done.as_dict():
        log.info("rescued", **found)
    return now.done
