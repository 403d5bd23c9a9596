"""Explores the whole model, breadth first, so that the path to a broken guarantee is a shortest one."""

from collections import deque
from dataclasses import dataclass

from tests.faults.model.model import DEAD, FAILED, SENSING, WORKERS, Faults, World, steps

EXTERNAL = ("register", "land", "cancel", "crash", "Redis")  # steps that the pool may not rely on


@dataclass
class Explored:
    """The number of states, and the path to the first broken guarantee, if there is one."""

    states: int
    broken: str | None = None
    trace: tuple[str, ...] = ()


def explore(faults: Faults) -> Explored:
    """Visit every reachable state, nearest first; then check that from each of them all instances can end."""
    start = World()
    came_from: dict[World, tuple[World, str] | None] = {start: None}
    back: dict[World, list[World]] = {}  # along the pool's own steps
    queue = deque([start])
    while queue:
        world = queue.popleft()
        for step, reached in steps(world, faults):
            after = _alike(reached)
            if after not in came_from:
                came_from[after] = (world, step)
                queue.append(after)
            broken = judge(world, step, after)
            if broken:
                return Explored(len(came_from), broken, (*_trace(came_from, world), step))
            if not step.startswith(EXTERNAL):
                back.setdefault(after, []).append(world)
    ending = [world for world in came_from if all(each.state != SENSING for each in world.instances)]
    live = set(ending)
    while ending:
        for before in back.get(ending.pop(), ()):
            if before not in live:
                live.add(before)
                ending.append(before)
    for world in came_from:
        if world not in live:
            return Explored(len(came_from), "G1: an instance senses for ever", _trace(came_from, world))
    return Explored(len(came_from))


def judge(before: World, step: str, after: World) -> str | None:
    """Return the guarantee that a step breaks, if any."""
    for number, now in enumerate(after.instances):
        was = before.instances[number] if number < len(before.instances) else None
        if was is not None and was.state not in (SENSING, now.state):
            return f"G2: {was.state} became {now.state}"
        if now.state == SENSING and (after.group is None or after.group[0] != now.group):
            return f"GROUPS: instance {number} senses in a group that is gone"
        if now.state == SENSING and any(other.task == now.task for other in after.instances[number + 1 :]):
            return f"KEYS: instance {number} senses though it is superseded"
        if was is None or was.state == now.state or not step.startswith("settle"):
            continue
        fact = before.workers[int(step.split()[-1])]
        assert fact is not None
        if number >= fact.there:
            return f"G3: instance {number} took {now.state} from a poke before its registration"
        if now.state == FAILED and number not in fact.late:
            return f"G6: instance {number} timed out by a poke before its deadline"
    return None


def _alike(world: World) -> World:
    """Return the state that stands for all states that differ only in the workers' names and in old deadlines."""
    instances = tuple(each if each.state == SENSING else each._replace(late=False) for each in world.instances)
    named = sorted(
        range(WORKERS), key=lambda me: (world.workers[me] is None, repr(world.workers[me]), world.lease != me)
    )
    lease = world.lease if world.lease in (None, DEAD) else named.index(world.lease)
    return world._replace(instances=instances, lease=lease, workers=tuple(world.workers[me] for me in named))


def _trace(came_from: dict[World, tuple[World, str] | None], world: World) -> tuple[str, ...]:
    trace: list[str] = []
    while (step := came_from[world]) is not None:
        world = step[0]
        trace.append(step[1])
    return tuple(reversed(trace))
