"""A model of lease, poke, settle and re-registration: one condition, two workers, two registrations.

Time is an order of steps: a deadline comes, a lease expires, and a frozen worker is a worker that takes no step
meanwhile. The model leaves out which groups are due: the holder of the lease may load at any time. `Faults` are the
ways in which the model can be made wrong. Without a fault, `explorer` must find no broken guarantee, and a path to the
end from every state.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

REGISTRATIONS, WORKERS, CRASHES, LOSSES = 2, 2, 1, 1
SENSING, SUCCESS, FAILED, CANCELLED = "sensing", "success", "failed", "cancelled"
DEAD = -1  # the holder of a lease whose worker is dead


class Instance(NamedTuple):
    """One try of a task; ``late``: its deadline has come."""

    task: int
    state: str
    group: int
    joined: int
    late: bool = False


class Fact(NamedTuple):
    """The fact in a worker's hand: the group, its version, and from its poke on what the poke saw, and of which tries.

    ``there`` (how many tries are registered) and ``late`` (whose deadline has come) are true when the poke begins. The
    code does not know the first, but the guarantees are about it.
    """

    group: int
    version: int
    poked: bool = False
    saw: bool = False
    there: int = 0
    late: frozenset[int] = frozenset()


class World(NamedTuple):
    """A state of the whole. A worker is None (idle) or a Fact (from its load on)."""

    landed: bool = False
    instances: tuple[Instance, ...] = ()
    group: tuple[int, int] | None = None  # id and version
    groups: int = 0  # ids given so far
    lease: int | None = None
    workers: tuple[Fact | None, ...] = (None,) * WORKERS
    crashes: int = 0
    losses: int = 0


@dataclass(frozen=True)
class Faults:
    """The possible faults of the model."""

    no_version_check: bool = False
    no_state_guard: bool = False
    lease_never_expires: bool = False
    group_goes_while_newer_member_waits: bool = False
    timeout_without_late_poke: bool = False
    registration_takes_no_version: bool = False
    group_ids_used_again: bool = False
    superseded_try_not_cancelled: bool = False


def steps(world: World, faults: Faults) -> Iterator[tuple[str, World]]:
    """Yield every possible step, and the state to which it leads."""
    instances = world.instances
    if len(instances) < REGISTRATIONS:
        yield "register a task", _register(world, len(instances), faults)
        if instances:
            yield "register the next try", _register(world, instances[0].task, faults)
    if not world.landed:
        yield "land", world._replace(landed=True)
    for number, each in enumerate(instances):
        if each.state == SENSING:
            yield f"cancel {number}", _end(world, {number: CANCELLED}, faults)
            if not each.late:
                late = _with(instances, number, each._replace(late=True))
                yield f"deadline {number}", world._replace(instances=late)
    if world.lease is not None and not faults.lease_never_expires:
        yield "lease expires", world._replace(lease=None)
    if world.lease is not None and world.losses < LOSSES:
        yield "Redis loses everything", world._replace(lease=None, losses=world.losses + 1)
    for me, mine in enumerate(world.workers):

        def turn(into: Fact | None, of: World = world, me: int = me) -> World:
            return of._replace(workers=_with(of.workers, me, into))

        if mine is not None and world.crashes < CRASHES:
            lease = DEAD if world.lease == me else world.lease
            yield f"crash {me}", turn(None, world._replace(lease=lease, crashes=world.crashes + 1))
        if mine is None:
            if world.lease is None and world.group is not None:
                yield f"load {me}", turn(Fact(*world.group), world._replace(lease=me))
        elif not mine.poked:
            late = frozenset(n for n, each in enumerate(instances) if each.late and each.state == SENSING)
            seen = mine._replace(poked=True, saw=world.landed, there=len(instances), late=late)
            yield f"poke {me}", turn(seen)
        else:
            free = world._replace(lease=None) if world.lease == me else world
            yield f"settle {me}", turn(None, _settle(free, mine, faults))


def _register(world: World, task: int, faults: Faults) -> World:
    if world.group is None:
        group, groups = (0 if faults.group_ids_used_again else world.groups, 1), world.groups + 1
    else:
        taken = 0 if faults.registration_takes_no_version else 1
        group, groups = (world.group[0], world.group[1] + taken), world.groups
    instances = (*world.instances, Instance(task, SENSING, *group))
    joined = world._replace(instances=instances, group=group, groups=groups)
    lower = {n for n, each in enumerate(world.instances) if each.task == task and each.state == SENSING}
    return joined if faults.superseded_try_not_cancelled else _end(joined, dict.fromkeys(lower, CANCELLED), faults)


def _settle(world: World, fact: Fact, faults: Faults) -> World:
    """Apply a fact, which settles group_id = g AND joined_version <= v AND state = 'sensing'."""
    ends: dict[int, str] = {}
    for number, each in enumerate(world.instances):
        senses = each.state == SENSING or faults.no_state_guard
        known = each.joined <= fact.version or faults.no_version_check
        late = each.late if faults.timeout_without_late_poke else number in fact.late
        if each.group == fact.group and senses and known and (fact.saw or late):
            ends[number] = SUCCESS if fact.saw else FAILED
    return _end(world, ends, faults, fact.version)


def _end(world: World, ends: dict[int, str], faults: Faults, version: int | None = None) -> World:
    """Write terminal states; delete the group if no member is left, otherwise give it the next version."""
    if not ends:
        return world
    instances = tuple(each._replace(state=ends.get(n, each.state)) for n, each in enumerate(world.instances))
    blind = version is not None and faults.group_goes_while_newer_member_waits
    left = [e for e in instances if e.state == SENSING and not (blind and e.joined > (version or 0))]
    group = (world.group[0], world.group[1] + 1) if left and world.group else None
    return world._replace(instances=instances, group=group)


def _with(row: tuple, place: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*row[:place], value, *row[place + 1 :])
