"""Checks of whether a pool works now: each yields what is wrong, in a line with its mend.

What may be usual for a while is a warning: `health` leaves it out.
"""

from collections.abc import Iterator, Sequence

from sensorpool.admin.look import Finding, Look, outage_said, outage_shown
from sensorpool.errors import SensorpoolError, Unreachable
from sensorpool.instrumentation.redaction import hide_password, printable, safe_line
from sensorpool.leases import standalone_files
from sensorpool.leases.incidents import LATELY, ROUNDS, Incidents
from sensorpool.leases.range_state import MISSED, RangeState, grace
from sensorpool.model.outage import Kind
from sensorpool.model.terms import untaken
from sensorpool.model.values import ShardRange
from sensorpool.model.words import counted
from sensorpool.publish.wire import queue_of
from sensorpool.store import callback_rows, inspecting, migrate, troubles

MOST_CLASSES = 20  # that are named
UNTOLD = 300.0  # seconds that results and callbacks may wait to be sent
TRIGGERER_AWAY = 90.0  # seconds: a triggerer looks every 15 s, and a restart of it takes a while
REPEATED = 3  # deaths of processes in `LATELY` that are too many
KILLED = 10  # the same of kills from outside, of which a few are an operator's
BEAT_AWAY = 12.0  # seconds: beat makes a note every ten
_LONGEST = 400  # characters of a line that another process has a part in


def _database(look: Look) -> Iterator[Finding]:
    if look.database.is_read_only():
        said = f"the database {look.database.where} is read-only: nothing can be settled; is it a standby?"
        yield Finding("database", "wrong", said)
    else:
        where = hide_password(look.settings.database_url)
        yield Finding("database", "ok", f"{where}: the schema is {migrate.head()}")


def _redis(look: Look) -> Iterator[Finding]:
    _ = look.leases
    yield Finding("redis", "ok", hide_password(look.settings.redis_url))


def _agreement(look: Look) -> Iterator[Finding]:
    """Live workers differ from each other, or from the settings here."""
    workers = look.workers
    untaken_by = [printable(each)[:_LONGEST] for each in untaken(queue_of(look.settings), workers)]
    for line in look.pool.disagreements(workers) + untaken_by:
        yield Finding("settings", "wrong", line)
    if (foreign := look.pool.roster.foreign()) is not None:
        said = f"jobs come for the range {foreign}, which no worker has: a beat or a registrant has other SHARDS or "
        yield Finding("settings", "wrong", f"{said}another SHARD_CODE_UPPER_LIMIT")


def _triggerer(look: Look) -> Iterator[Finding]:
    """Tasks of Airflow wait, and the triggerers are gone. One that was never there is missed by Airflow's checks."""
    _ = look.leases
    age = look.pool.roster.triggerer_age()
    if age is None or age < TRIGGERER_AWAY:
        return
    if look.read(inspecting.has_external, look.now - round(1_000 * TRIGGERER_AWAY)):  # newer ones may be on their way
        said = f"no triggerer of Airflow has looked at the pool for {age:.0f} s, and tasks that wait do not end "
        yield Finding("triggerer", "wrong", f"{said}without one: start `airflow triggerer`")


def _deaths(look: Look) -> Iterator[Finding]:
    own, killed = ([each for each in look.deaths if each.outside is outside] for outside in (False, True))
    if len(own) >= REPEATED:
        yield Finding(
            "processes",
            "wrong",
            f"processes of the workers die again and again: {len(own)} in {LATELY / 60:g} minutes, the last one of "
            f"{own[-1].worker} ({own[-1].cause}): a poke ends them, and is quarantined after three "
            "(`sensorpool quarantine`); or a thread that a poke left behind, which the pool does not find: mend the "
            "sensor, or the library that it uses",
        )
    if len(killed) >= KILLED:
        yield Finding(
            "processes",
            "wrong",
            f"processes of the workers are killed again and again: {len(killed)} in {LATELY / 60:g} minutes, the last "
            f"one of {killed[-1].worker} ({killed[-1].cause}): by a poke that signals its own process, by the kernel "
            "for want of memory, or by hand",
        )
    if look.deaths and len(own) < REPEATED and len(killed) < KILLED:
        dead = f"died in the last {LATELY / 60:g} minutes: {counted(len(look.deaths), 'process', 'es')} of the workers"
        yield Finding("processes", "warning", f"{dead}, last {look.deaths[-1].worker}: {look.deaths[-1].cause}")


def _lateness(look: Look) -> Iterator[Finding]:
    """Groups are not poked in time although jobs look at every range."""
    left, isolated = look.waiting
    if left.overdue:
        yield Finding(
            "pokes",
            "wrong",
            f"the workers cannot keep up: {_groups(left.overdue)} for a poke for more than {MISSED} intervals, the "
            f"longest for {left.seconds:.0f} s: more workers, a higher SENSORPOOL_POKE_CONCURRENCY, or longer "
            "intervals",
        )
    if isolated.overdue:
        yield Finding(
            "pokes",
            "wrong",
            f"{_groups(isolated.overdue)} to be poked apart for more than {MISSED} intervals, the longest for "
            f"{isolated.seconds:.0f} s: mend what hangs, or more workers, a higher "
            "SENSORPOOL_HANGING_CONCURRENCY, a shorter SENSORPOOL_POKE_TIMEOUT",
        )
    elif isolated.groups:
        said = f"waiting to be poked apart: {counted(isolated.groups, 'group')}, for up to {isolated.seconds:.0f} s"
        yield Finding("pokes", "warning", said)


def _chores(look: Look) -> Iterator[Finding]:
    for chore, cause in Incidents(look.leases).of_chores().items():
        yield Finding("rescue", "wrong", f"rescue fails at {chore}, for {ROUNDS} rounds and more: {cause}")


def _ticks(look: Look) -> Iterator[Finding]:
    """Jobs do not look at some ranges, and why."""
    now, limit = look.now, MISSED * look.tick
    causes = Incidents(look.leases).of_jobs(list(look.ranges))
    failing: dict[str, list[ShardRange]] = {}  # why jobs fail, and of which ranges
    free: list[ShardRange] = []
    held: list[str] = []
    for shard_range, (holder, state) in look.ranges.items():
        if state.last and (now - state.last) / 1000 <= limit:
            continue
        if shard_range in causes:
            failing.setdefault(causes[shard_range], []).append(shard_range)
        elif holder is None:
            free.append(shard_range)
        elif (said := _why_held(look, shard_range, holder, state, limit)) is not None:
            held.append(said)
    for cause, ranges in failing.items():
        yield Finding("ticks", "wrong", f"the jobs of {_named(ranges)} fail: {cause}")
    if held:
        more = f"; so are {counted(len(held) - 1, 'other range')}" if len(held) > 1 else ""
        yield Finding("ticks", "wrong", held[0] + more)
    if free:
        all_free = len(free) == len(look.ranges)
        latest = max(look.ranges[each][1].last for each in free)
        since = f"for {(now - latest) / 1000:.0f} s" if latest else "since Redis started"
        who = _who_is_away(look, limit, all_free=all_free) or "the workers may be busy"
        which = "any range" if all_free else _named(free)
        said = f"ticks have stopped: {who}; no job has looked at {which} {since}"
        yield Finding("ticks", "wrong", said, stops=True)
    if not (failing or held or free):
        yield Finding("ticks", "ok", f"all {len(look.ranges)} shard ranges are looked at")


def _why_held(look: Look, shard_range: ShardRange, holder: str, state: RangeState, limit: float) -> str | None:
    """Return why a range is late; None if its job takes long but all intervals are longer, which does no harm.

    :param limit: seconds between two jobs that are too many.
    """
    age = (look.now - state.last) / 1000
    since = f"its last tick was {age:.0f} s ago" if state.last else "no job has finished since Redis started"
    if state.last and age < look.settings.job_time_limit + limit:
        shortest = look.read(inspecting.shortest_interval, shard_range)
        if shortest is None or age * 1000 <= MISSED * shortest:
            return None
        since += f", and groups of it have an interval of {shortest / 1000:g} s"
    return f"the holder of range {shard_range}, {safe_line(holder, 200)}, is not done with it: {since}"


def _who_is_away(look: Look, limit: float, *, all_free: bool) -> str | None:
    """Return which part of the pool is not running, or cannot be reached; None if that is not known.

    :param limit: seconds without a note of beat after which it is away.
    :param all_free: whether no range has been looked at.
    """
    if look.settings.embedded:
        return standalone_files.last_written(look.settings) if all_free else None
    from sensorpool.admin.installation import probe_broker  # a check of a healthy pool imports no broker

    try:
        probe_broker(look.settings)
    except SensorpoolError as error:
        return str(error)
    age = look.pool.roster.beat_age()
    away = [] if look.workers else ["no worker is running (start `celery -A sensorpool worker`)"]
    if age is None or age > max(limit, BEAT_AWAY):
        seen = "" if age is None else f", last seen {age:.0f} s ago"
        away.append(f"beat is not running{seen} (start `celery -A sensorpool beat`)")
    return ", and ".join(away) or None


def _unpokeable(look: Look) -> Iterator[Finding]:
    for each in look.read(troubles.unpokeable, MOST_CLASSES):
        what = f"{counted(each.groups, 'condition')} of {printable(each.op_classpath)}"
        said = f"{what} cannot be poked: {safe_line(each.cause or 'no process says why', 300)}"
        yield Finding("worker", "wrong", said)


def _backends(look: Look) -> Iterator[Finding]:
    """Backends are away. One that throttles answers: that is no problem of the pool."""
    for outage in look.away:
        if outage.kind != Kind.THROTTLED:
            asked = f"one poke asks it in {outage_shown(outage)['asked_in_s']:.0f} s"
            yield Finding("backend", "wrong", f"the {outage_said(outage)}; {asked}: {outage.cause}")
        else:
            yield Finding("backend", "warning", f"the {outage_said(outage)}: {outage.cause}")


def _untold(look: Look) -> Iterator[Finding]:
    """Results and callbacks wait to be sent; a few seconds are usual."""
    for each in look.read(callback_rows.backlog):
        waited = (look.now - each.oldest) / 1000
        said = f"callbacks wait to be sent: {each.waiting} of {printable(each.task)}, for {waited:.0f} s: "
        said += each.cause or "no worker has tried to send them"
        yield Finding("on_settled", "wrong" if waited > UNTOLD else "warning", said)
    if (oldest := look.unpublished) is not None:
        said = f"results wait to be published, for {oldest:.0f} s: does the broker answer?"
        yield Finding("results", "wrong" if oldest > UNTOLD else "warning", said)


def _past_deadline(look: Look) -> Iterator[Finding]:
    """Groups are long past their deadline, whatever the reason."""
    try:
        tick = look.tick
    except Unreachable:  # Redis
        tick = look.settings.tick
    more = grace(tick, look.settings.poke_timeout)
    count, first = look.read(inspecting.past_deadline, look.now, MISSED, more)
    if first is None:
        return
    group_id, op_classpath, deadline = first
    groups = "1 group is past its deadline" if count == 1 else f"{count:,} groups are past their deadlines"
    yield Finding(
        "deadlines",
        "wrong",
        f"{groups} by more than {MISSED} intervals, group {group_id} ({printable(op_classpath)[:200]}) by "
        f"{(look.now - deadline) / 1000:.0f} s: it was not poked, or what was seen not settled; the workers' logs say "
        "more",
    )


def _named(ranges: Sequence[ShardRange]) -> str:
    return f"range {ranges[0]}" if len(ranges) == 1 else f"{len(ranges)} ranges ({ranges[0]} and others)"


def _groups(count: int) -> str:
    return "1 group waits" if count == 1 else f"{count:,} groups wait"


CHECKS = (
    ("database", _database),
    ("redis", _redis),
    ("settings", _agreement),
    ("triggerer", _triggerer),
    ("processes", _deaths),
    ("pokes", _lateness),
    ("rescue", _chores),
    ("ticks", _ticks),
    ("worker", _unpokeable),
    ("backend", _backends),
    ("on_settled", _untold),
    ("deadlines", _past_deadline),
)
"""Each with the subject under which its error is told."""
