"""A company's code in a triggerer, whose process all triggers share: what its constructor may not do there."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sensorpool.airflow.errors import NotPoolable, OnlyOnWorker
from sensorpool.airflow.proof.watch import denials, process_state, worker_only
from sensorpool.airflow.proof.watch.denials import Denials
from sensorpool.airflow.proof.watch.process_state import ProcessState

_lock = threading.Lock()
_states: list[ProcessState] = []  # one for each thread that builds; all are that of the moment before the first began


@contextmanager
def guarded() -> Iterator[None]:
    """Deny changes of the environment and the working directory on this thread; undo other changes of the process.

    :raises NotPoolable: when there were any.
    """
    worker_only.deny_changes()
    with _lock:
        state = _states[0] if _states else ProcessState(process_state.of_other_threads())
        _states.append(state)
    changed: list[str] = []
    try:
        with Denials(asker=denials.CONSTRUCTOR) as here:
            yield
    except OnlyOnWorker as error:
        raise NotPoolable(str(error), "needs_worker") from None
    finally:
        with _lock:
            _states.pop()
            changed = state.restore()
    if here.denied:
        raise NotPoolable(here.denied[0], "needs_worker")
    if changed:
        raise NotPoolable(f"its constructor changes {changed[0]} of its process", "needs_worker")
