"""Hooks of a company that pokes get in the pool: the pokes of all sensors share the state of their classes.

A poke that gets a hook whose state has changed is denied that, and so is one whose worker found another state. A poke
that changes the state goes back as well.
"""

from sensorpool.airflow.compat import hook_classes
from sensorpool.airflow.proof.state import shared_state
from sensorpool.airflow.proof.watch import company_hooks, denials, process_state
from sensorpool.airflow.proof.watch.company_hooks import CompanyHooks
from sensorpool.airflow.proof.watch.denials import Denials
from sensorpool.instrumentation.redaction import one_line

_seen = CompanyHooks()


def watch() -> None:
    """Watch the hooks that pokes get in this process; a second watch is ignored."""
    hook_classes.hear_always(_hear)


def forget() -> None:
    """Forget the hooks of this process: the state that the next poke finds is that of the import again."""
    global _seen
    _seen = CompanyHooks()


def reason_against(poke: Denials) -> str | None:
    """Return why a poke that got hooks has to be made on its worker; None if it has changed nothing."""
    if (name := company_hooks.changed_of(poke.hooks.values())) is not None:
        return f"pokes in the pool have changed {name}"
    if names := process_state.pool_state().restore():
        return f"pokes in the pool have changed {names[0]} of their process, which all of them share"
    return None


def _hear(hook: type) -> None:
    pokes = denials.pokes_with_hooks()
    try:
        why = _reason_against_hook(hook, pokes) if pokes else None
    except Exception as error:  # an odd class; the error is none of its poke
        why = f"its hook cannot be watched in the pool: {one_line(error)}"
    if why is not None:
        raise denials.deny(why)


def _reason_against_hook(hook: type, pokes: list[Denials]) -> str | None:
    for cls, state in _seen.add(hook):
        if (name := state.changed()) is not None:
            return f"pokes in the pool have changed {name}"
        state.extend()
        for poke in pokes:
            poke.hooks = {**poke.hooks, cls: state}
            if (name := shared_state.differing(cls, poke.registered_hooks or {})) is not None:
                return f"its hook has another {name} in the pool than on its worker"
    return None
