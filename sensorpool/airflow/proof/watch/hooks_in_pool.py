"""Hooks of a company that pokes get in the pool: the pokes of all sensors share the state of their classes.

A poke that gets a hook whose state has changed is denied that, and so is one whose worker found another state. A poke
that changes the state goes back as well.
"""

from typing import Any

from sensorpool.airflow.compat import hook_classes
from sensorpool.airflow.proof.state import shared_state
from sensorpool.airflow.proof.watch import company_hooks, denials, process_state
from sensorpool.airflow.proof.watch.company_hooks import CompanyHooks, HooksOfSensor, held_by
from sensorpool.instrumentation.redaction import one_line

_seen = CompanyHooks()


def watch() -> None:
    """Watch the hooks that pokes get in this process; a second watch is ignored."""
    hook_classes.hear_always(_hear)


def forget() -> None:
    """Forget the hooks of this process: the state that the next poke finds is that of the import again."""
    global _seen
    _seen = CompanyHooks()


def reason_before(sensor: Any, hooks: HooksOfSensor) -> str | None:
    """Return why a poke has to be made on its worker by the hooks that its sensor has or got; None if none is known."""
    try:
        return _first_reason([hook for hook in held_by(sensor) if hook not in hooks.states], [hooks]) or _changed(hooks)
    except Exception as error:
        return _unwatchable(error)


def reason_after(hooks: HooksOfSensor) -> str | None:
    """Return why a poke that got hooks has to be made on its worker; None if it has changed nothing."""
    if (why := _changed(hooks)) is not None:
        return why
    if names := process_state.pool_state().restore():
        return f"pokes in the pool have changed {names[0]} of their process, which all of them share"
    return None


def _hear(hook: type) -> None:
    if denials.asker_here() == denials.CONSTRUCTOR:
        list(_seen.add(hook))  # its state is looked at before the first poke
        return
    pokes = denials.hooks_of_pokes()
    try:
        why = _first_reason([hook], pokes) if pokes else None
    except Exception as error:
        why = _unwatchable(error)
    if why is not None:
        raise denials.deny(why)


def _first_reason(found: list[type], pokes: list[HooksOfSensor]) -> str | None:
    for cls, state in (each for hook in found for each in _seen.add(hook)):
        if all(cls in hooks.states for hooks in pokes):
            state.extend()
            continue  # it was looked at before the poke
        if (name := state.changed()) is not None:
            return f"pokes in the pool have changed {name}"
        state.extend()
        for hooks in pokes:
            hooks.states[cls] = state
            if (name := shared_state.differing(cls, hooks.registered)) is not None:
                return f"its hook has another {name} in the pool than on its worker"
    return None


def _changed(hooks: HooksOfSensor) -> str | None:
    name = company_hooks.changed_of(list(hooks.states.values()))
    return None if name is None else f"pokes in the pool have changed {name}"


def _unwatchable(error: Exception) -> str:
    """Say that a hook's class is odd: the error is none of its poke."""
    return f"its hook cannot be watched in the pool: {one_line(error)}"
