"""Conditions on other instances: all of them landed, or any of them did. A join is an instance like any other.

`sensorpool.all_of` and `sensorpool.any_of` register them. The pool pokes all joins of a batch by one statement.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sensorpool.client.default import default_pool
from sensorpool.errors import FailSensor
from sensorpool.model.location import JOINS
from sensorpool.model.states import TERMINAL, State
from sensorpool.model.values import PokeReturnValue
from sensorpool.store import inspecting

_AT_ONCE = 10_000  # ids in one statement


class AllOf:
    """Holds when all instances have landed, and fails as soon as one of them has ended otherwise.

    Its context is ``{"instances": [id, …]}``.
    """

    @staticmethod
    def location_of(poke_context: Mapping[str, Any]) -> str:  # noqa: ARG004  # all joins are at one place
        """Return the location of all joins, by which pruning finds what they wait for."""
        return JOINS

    @classmethod
    def poke_many(cls, contexts: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Return for each context whether it holds; an exception in the place of an answer fails it.

        :raises Unreachable: when the database does not answer.
        """
        wanted = [_ids(context) for context in contexts]
        states = _states(sorted({each for ids in wanted for each in ids}))
        return [cls._answer(ids, states) for ids in wanted]

    @staticmethod
    def _answer(ids: Sequence[int], states: Mapping[int, State]) -> Any:
        for each in ids:
            if (state := states.get(each)) != State.SENSING and state != State.SUCCESS:
                return FailSensor(_said(each, state))
        return all(states[each] == State.SUCCESS for each in ids)


class AnyOf(AllOf):
    """Holds when one of the instances has landed, with its id as the value; fails when all have ended otherwise.

    Its context is ``{"instances": [id, …]}``.
    """

    @staticmethod
    def _answer(ids: Sequence[int], states: Mapping[int, State]) -> Any:
        landed = next((each for each in ids if states.get(each) == State.SUCCESS), None)
        if landed is not None:
            return PokeReturnValue(True, {"id": landed})
        if all(states.get(each) in {None, *TERMINAL} for each in ids):
            return FailSensor(f"none of the {len(ids)} instances has landed; {_said(ids[-1], states.get(ids[-1]))}")
        return False


def _ids(context: Mapping[str, Any]) -> list[int]:
    ids = context.get("instances")
    if not isinstance(ids, list) or not ids or not all(type(each) is int for each in ids):
        raise FailSensor("a join names the ids of instances")
    return ids


def _states(ids: Sequence[int]) -> dict[int, State]:
    database = default_pool().database
    found: dict[int, State] = {}
    for start in range(0, len(ids), _AT_ONCE):
        found |= database.read(inspecting.states, ids[start : start + _AT_ONCE])
    return found


def _said(instance_id: int, state: State | None) -> str:
    return f"instance {instance_id} is not there any more" if state is None else f"instance {instance_id} is {state}"
