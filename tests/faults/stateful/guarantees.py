"""The guarantees, as checks of a world. Each problem begins with the name of the guarantee that it breaks.

G1 one terminal state, in time · G2 which never changes · G3 nothing seen before a registration is applied to it ·
G4 one poke a period · G5 a landed condition is settled within an interval · G6 a poke comes before a timeout ·
G7 published at least once · G11 clock jumps time nothing out early · GROUPS are as their members say · KEYS are kept
"""

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from sensorpool.model.due import is_due, period
from sensorpool.model.states import Ending, State
from sensorpool.model.values import DueGroup, Key, ShardRange

if TYPE_CHECKING:
    from tests.faults.stateful.simulated import SimulatedWorker
    from tests.faults.stateful.world import Arrival, Round, World


def is_inside(group: Any, shard_range: ShardRange) -> bool:
    """Whether the row of a group is in a range."""
    return shard_range.shard_min <= group.shardcode < shard_range.shard_max


def key_of(row: Any) -> Key:
    """Return the key of a row."""
    return Key(row.dag_id, row.task_id, row.run_id, row.map_index, row.try_number)


def at_ending(world: "World", row: Any) -> None:
    """Check that an instance ends for a reason that was seen after its registration."""
    arrival = world.arrivals[row.id]
    seen = [o for o in world.observations if o.name == arrival.name and o.place > arrival.place]
    complain = world.problems.append
    match row.ending:
        case Ending.LANDED:
            if not any(o.saw == "true" for o in seen):
                complain(f"G3: {world.say(row)}: no poke since its registration saw that")
        case Ending.POKE_ERROR:
            if not any(o.saw == "error" for o in seen):
                complain(f"G3: {world.say(row)} ({row.reason}): no poke since its registration saw an error")
        case Ending.TIMEOUT:
            if not any(o.saw != "true" and (world.jumps or o.at >= row.timeout_at) for o in seen):
                complain(f"G6: {world.say(row)} ({row.reason}): no poke at or after its deadline found nothing")
            _not_early(world, row, arrival)
        case Ending.CANCELLED:
            superseded = any(other.try_number > row.try_number for other in world.tries(row))
            if row.id not in world.called_off and not superseded:
                complain(f"G1: {world.say(row)}: no step cancelled it")
        case _:
            complain(f"G1: {world.say(row)} ({row.ending}: {row.reason}): nothing of the kind happened")


def _not_early(world: "World", row: Any, arrival: "Arrival") -> None:
    """Check that no instance timed out early by a clock jump that its settler saw, within the drift of clocks."""
    from tests.faults.stateful.actors import current

    since = [jump for jump in world.jumps if jump.ms >= arrival.ms]
    actor = current()
    if not since or actor is None or not all(actor.owner.name in jump.known_to for jump in since):
        return
    waited, timeout = world.time.ms - arrival.ms, row.timeout_at - row.start_date
    slack = sum(2_000 + 0.05 * (world.time.ms - jump.seen[actor.owner.name][1] * 1000) for jump in since)
    if waited + slack < timeout:
        world.problems.append(f"G11: {world.say(row)}: timed out {waited} ms after its registration, not {timeout}")


def of_rows(world: "World", before: dict[int, Any]) -> None:
    """Check that terminal states do not change, and that only the highest try of a task instance senses."""
    for row_id, was in before.items():
        if was.state != State.SENSING and world.rows.get(row_id) != was:
            world.problems.append(f"G2: {world.say(was)}: it became {world.rows.get(row_id)}")
    for row in world.sensing():
        if any(other.try_number > row.try_number for other in world.tries(row)):
            world.problems.append(f"KEYS: {world.say(row)}: a higher try is there")


def of_groups(world: "World") -> None:
    """Check that a group exists exactly while an instance senses in it, and that its columns fit its members."""
    members: dict[int, list[Any]] = defaultdict(list)
    for row in world.sensing():
        members[row.group_id].append(row)
    complain = world.problems.append
    for group_id in members.keys() - world.groups.keys():
        complain(f"GROUPS: {world.say(members[group_id][0])} in group {group_id}, which is gone: it is never poked")
    for group_id, group in world.groups.items():
        own = members.get(group_id)
        if not own:
            complain(f"GROUPS: no instance senses in group {group_id}, which exists")
            continue
        if any((row.op_classpath, row.poke_context) != (group.op_classpath, group.poke_context) for row in own):
            complain(f"GROUPS: two contexts share group {group_id}")
        found = (group.members, group.poke_interval, group.next_deadline)
        right = (len(own), min(row.poke_interval for row in own), min(row.next_deadline for row in own))
        if found != right:
            complain(f"GROUPS: group {group_id} has members, interval and deadline {found}; they are {right}")
        if group.version < max(row.joined_version for row in own):
            complain(f"GROUPS: group {group_id} is at version {group.version}, and an instance joined it later")
    contexts = [group.poke_context for group in world.groups.values()]
    if len(set(contexts)) != len(contexts):
        complain("GROUPS: there are two groups of one context")


def after_load(world: "World", worker: "SimulatedWorker", rows: dict[int, Any], held: Any, loaded: Any) -> None:
    """Check that a load returned the groups that the rule finds due or that were left over, without recent ones.

    :param rows: the groups of the range.
    """
    shard_range = held.lease.shard_range
    overlap = round(world.settings.commit_overlap * 1000)
    last = held.state.last if held.state.last <= loaded.now else 0
    left, recent = {*held.state.left, *held.struck, *held.background.again}, set(held.state.recent)
    found = {unit.group.id for unit in loaded.units}
    for group_id, row in rows.items():
        when = {"poke_interval": row.poke_interval, "phase": row.phase, "next_deadline": row.next_deadline}
        when |= {"last": last, "now": loaded.now}
        again = is_due(**when, registered_at=0, commit_overlap=0)
        new = is_due(**when, registered_at=row.registered_at, commit_overlap=overlap) and group_id not in recent
        if (again or new or group_id in left) != (group_id in found):
            found_it = "was loaded" if group_id in found else "was not loaded"
            world.problems.append(
                f"{'G4' if group_id in found else 'G5'}: group {group_id} {found_it} at {loaded.now} after {last}: "
                f"due again {again}, new {new}, left over {group_id in left}"
            )
        on_time = world.group_arrivals[group_id] + _start(world) - row.registered_at < overlap
        if group_id not in world.loaded_once and on_time and not world.jumps and group_id not in found:
            world.problems.append(f"G5: group {group_id} is new and was not loaded at {loaded.now} after {last}")

    if world.fault_ms is None:
        _none_is_passed_over(world, shard_range, rows, found, loaded.now)


def _none_is_passed_over(
    world: "World", shard_range: ShardRange, rows: dict[int, Any], found: set[int], now: int
) -> None:
    """Check, without faults, that groups whose period began since the last round, or that it left over, are loaded."""
    then, intervals = world.last_round.get(shard_range, (0, {}))
    for group_id, row in rows.items():
        # the rule is written once more, because the query and the code might share an error
        same = row.poke_interval == intervals.get(group_id)
        began = (now + row.phase) // row.poke_interval > (then + row.phase) // row.poke_interval
        if same and began and group_id not in found:
            world.problems.append(f"G5: a period of group {group_id} began after {then}; not loaded at {now}")
        if group_id in world.owed.get(shard_range, set()) - found:
            world.problems.append(f"G5: group {group_id} was left over at {then}, and not loaded at {now}")


def _start(world: "World") -> int:
    return world.clock.now - world.time.ms  # while nothing jumped


def before_poke(world: "World", round_: "Round", group: DueGroup) -> None:
    """Check, without faults, that a period began or a deadline came since the load before the last poke."""
    last = world.poked_at.get(group.id)
    world.poked_at[group.id] = round_.now
    round_.poked.add(group.id)
    if last is None or world.fault_ms is not None:
        return
    if period(round_.now, group.poke_interval, group.phase) > period(last, group.poke_interval, group.phase):
        return
    if not any(last < deadline <= round_.now for deadline in world.deadlines[group.id]):
        world.problems.append(
            f"G4: group {group.id} was poked at {last} and again, in the same period, at {round_.now}"
        )


def after_round(world: "World", worker: "SimulatedWorker", shard_range: ShardRange) -> None:
    """Check that instances of the load have been settled if their condition or deadline came an interval before."""
    round_ = world.rounds[worker.name][shard_range]
    left = world.owed[shard_range] = round_.ids - round_.poked
    world.look()
    intervals = {group_id: group.poke_interval for group_id, group in world.groups.items()}
    world.last_round[shard_range] = round_.now, intervals
    for row in world.sensing():
        arrival = world.arrivals[row.id]
        group = world.groups.get(row.group_id)
        if group is None or not is_inside(group, shard_range):
            continue
        if arrival.place > round_.place or row.group_id in left | world.excused:
            continue
        true_ms = world.true_since.get(arrival.name)
        if true_ms is not None and _overdue(world, round_, max(true_ms, arrival.ms), row.poke_interval):
            world.problems.append(f"G5: {world.say(row)}: true since {true_ms} ms, loaded at {round_.ms} ms")
        deadline_ms = round_.ms - (round_.now - row.timeout_at)
        if not world.jumps and deadline_ms <= round_.ms and _overdue(world, round_, deadline_ms, 0, row.poke_interval):
            world.problems.append(f"G1: {world.say(row)}: it timed out at {deadline_ms} ms, loaded at {round_.ms} ms")


def _overdue(world: "World", round_: "Round", since: int, within: int, interval: int | None = None) -> bool:
    """Whether a round comes so late after ``since``; after a fault, two intervals count from there."""
    if world.fault_ms is None or world.fault_ms < since:
        return round_.ms - since >= within
    return round_.ms - world.fault_ms >= 2 * (within if interval is None else interval)


def at_the_end(world: "World") -> None:
    """Check that all instances have ended, and that all results were published."""
    told = set(world.published)
    for row in world.rows.values():
        if row.state == State.SENSING:
            world.problems.append(f"G1: {world.say(row)}: three intervals after its deadline")
        elif (row.id, row.state) not in told:
            world.problems.append(f"G7: {world.say(row)}: that was never published")
    for row_id, state in world.published:
        if row_id not in world.rows or world.rows[row_id].state != state:
            world.problems.append(f"G7: instance {row_id} was published as {state}, which it is not")
