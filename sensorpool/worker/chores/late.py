"""Finds the conditions that are later than their family usually lands, and logs each of them once.

A round looks at a few pages of groups, and reads what is usual for a bounded number of families; the next round goes on
from there.
"""

from sensorpool.errors import Unreachable
from sensorpool.instrumentation.logs import logger
from sensorpool.model.times import spell_time
from sensorpool.model.usual_landing import Expected, begins
from sensorpool.model.values import Milliseconds, range_of, shard_ranges
from sensorpool.store import late_conditions
from sensorpool.store.late_conditions import Waiting
from sensorpool.worker.chores import pages
from sensorpool.worker.chores.round import Round
from sensorpool.worker.context import Worker
from sensorpool.worker.usual_landings import UsualLandings

PAGES = 4  # in a round: 100,000 groups of known families are looked at in twenty-five rounds
FAMILIES = 500  # whose landings one round reads
_NAMED = 5  # groups that a round names in the log

log = logger(__name__)


def find(now: Round) -> None:
    """Look at the next groups, and mark the late ones."""
    worker, place, done = now
    database, usual_landings = worker.database, worker.usual_landings
    now_ms, room = database.read(database.now), FAMILIES
    for _ in range(PAGES):
        page = database.read(late_conditions.waiting, place.waiting_id, pages.ROWS)
        families = dict.fromkeys(each.family for each in page)
        unread = [family for family in families if usual_landings.is_unread(family)][:room]
        usual_landings.read(unread, now_ms)
        room -= len(unread)
        page, is_whole = _known(page, usual_landings)
        late = {each: found for each in page if (found := _late(each, usual_landings, now_ms)) is not None}
        late = _looked_at_since(late, worker)
        new = database.run(late_conditions.mark, [each.id for each in late], now_ms) if late else set()
        done.late += len(new)
        _tell([(each.id, expected) for each, expected in late.items() if each.id in new])
        if is_whole and len(page) < pages.ROWS:  # the end of the table
            place.waiting_id = 0
            return
        place.waiting_id = page[-1].id if page else place.waiting_id
        if not is_whole:  # the next round reads more families
            return


def _known(page: list[Waiting], usual_landings: UsualLandings) -> tuple[list[Waiting], bool]:
    """Return the groups up to the first one whose family is not read yet, and whether those are all."""
    for place, each in enumerate(page):
        if usual_landings.is_unread(each.family):
            return page[:place], False
    return page, True


def _late(waiting: Waiting, usual_landings: UsualLandings, now: Milliseconds) -> Expected | None:
    """Return what was expected of a condition that is late; None: it is not."""
    began = begins(waiting.logical_date, waiting.registered_at)
    found = usual_landings.of(waiting.family, began)
    expected = None if found is None else found.expects(began, waiting.registered_at)
    return expected if expected is not None and now > expected.late_after else None


def _looked_at_since(late: dict[Waiting, Expected], worker: Worker) -> dict[Waiting, Expected]:
    """Return the groups whose range has been looked at since they are late.

    After an outage of the pool many conditions have landed meanwhile: the first poke is to find that.
    """
    if not late:
        return late
    settings = worker.settings
    ranges = shard_ranges(settings.shards, settings.shard_code_upper_limit)
    try:
        states = dict(zip(ranges, worker.leases.look(ranges), strict=True))
    except Unreachable:
        return {}  # without Redis no job pokes them either

    def is_looked_at(each: Waiting, expected: Expected) -> bool:
        looked_at = states[range_of(each.shardcode, ranges)][1].last
        return looked_at == 0 or looked_at > expected.late_after  # 0: not known

    return {each: expected for each, expected in late.items() if is_looked_at(each, expected)}


def _tell(late: list[tuple[int, Expected]]) -> None:
    for group_id, expected in late[:_NAMED]:
        usually_at, late_at = spell_time(expected.usually), spell_time(expected.late_after)
        log.warning("a condition is late", group_id=group_id, usually_lands_at=usually_at, late_after=late_at)
    if len(late) > _NAMED:
        log.warning("more conditions are late", groups=len(late) - _NAMED)
