"""Rescue finds what a dead process left half done, and what is of no use any more.

A round goes through the list of chores; what a chore has no time for has its turn in the next round. Any number of
processes may run rescue at once: work that two of them do is harmless.
"""

from contextlib import suppress

from sensorpool.errors import SensorpoolError, Unreachable
from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.leases.rescue_place import RescuePlace
from sensorpool.worker.chores import (
    actions,
    groups,
    instances,
    landings,
    late,
    left_behind,
    others,
    quarantine,
)
from sensorpool.worker.chores.round import Chore, Place, Rescued, Round
from sensorpool.worker.context import Worker

CHORES = (
    # these walk through all rows, for what is old, and for what only a hand on the tables could have left astray
    Chore("pruning and ending instances", instances.prune_and_end, every=4),
    Chore("dropping empty groups", groups.drop_empty, every=4),
    Chore("folding shardcodes", groups.fold_shardcodes),
    Chore("pruning landings", landings.prune, every=4),
    Chore("pruning actions", actions.prune, every=4),
    Chore("finding late conditions", late.find),
    Chore("forgetting troubles", groups.forget_troubles),
    Chore("quarantine", quarantine.let_out),
    Chore("dropping abandoned listeners", left_behind.drop_listeners, every=4),
    Chore("rescuers of other packages", others.rescue),
    # last, and each for half a round at most: a backlog starves no other chore
    Chore("sending callbacks", left_behind.send_callbacks),
    Chore("publishing what a dead process left", left_behind.publish),
)

log = logger(__name__)


def go_on(worker: Worker, place: Place) -> Rescued:
    """Do one round from where the last one came to, in whichever process that was.

    A pool has many processes, each of which is replaced after a while: by itself none of them would come to the end of
    a large table.

    :param place: where this process goes on while Redis does not answer.
    :raises Unreachable: when the database does not answer.
    """
    kept = RescuePlace(worker.leases.store)
    with suppress(Unreachable):
        place.go_to(kept.read() or "")
        kept.keep(place.in_next_round())  # a chore that ends its process must not come first in each round
    try:
        return rescue(worker, place)
    finally:
        with suppress(Unreachable):
            if not place.is_behind(kept.read() or ""):  # after a round that took long
                kept.keep(place.as_text())


def rescue(worker: Worker, place: Place) -> Rescued:
    """Do one round; ``place`` moves on. A chore that fails ends no other, and is noted for `health`.

    :raises Unreachable: when the database does not answer.
    """
    now = Round(worker, place, Rescued())
    failed: dict[str, str] = {}
    done: set[str] = set()
    turn, place.rounds = place.rounds, place.rounds + 1
    for chore in CHORES:
        if turn % chore.every:
            continue
        try:
            chore.work(now)
            done.add(chore.name)
        except Exception as error:
            failed[chore.name] = one_line(error) if not isinstance(error, SensorpoolError) else str(error)
            log.warning("a chore of rescue failed", chore=chore.name, error=failed[chore.name])
            if isinstance(error, Unreachable):
                worker.database.read(worker.database.now)  # where the database does not answer at all, the round ends
    try:
        worker.trouble.note_chores(failed, done)
    except Unreachable as error:
        log.warning("the cause of a failure was not noted", error=str(error))
    if found := now.done.as_dict():
        log.info("rescued", **found)
    return now.done
