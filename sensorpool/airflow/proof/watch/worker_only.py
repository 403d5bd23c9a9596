"""What only a worker has: the current context, its environment (`environment_reads`), the main thread and its loop.

The first poke is a native one, and its requests are noted (`noting`). A poke in the pool with the same request fails,
or goes on without an answer and may land wrongly, so it is handed back (`deny_changes`, `missed_by`).
"""

import asyncio
import importlib
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool.airflow.compat import operators, task_runtime
from sensorpool.airflow.proof.watch import denials, environment_reads
from sensorpool.airflow.proof.watch.environment_reads import OF_TASK
from sensorpool.airflow.proof.watch.process_state import ProcessState

Note = Callable[[str], object]

# errors of objects bound to one thread, one event loop or a running task; some libraries have no class for them
_MISSED = re.compile(
    r"no current event loop|(attached|bound) to a different (event )?loop|main thread|(same|different|another) thread"
    r"|'_thread\._local' object|daemonic processes|Current context was requested|SUPERVISOR_COMMS|AIRFLOW_CTX_"
)
_OF_ONE_THREAD = frozenset(
    {"sqlite3.Connection", "sqlite3.Cursor", "_thread._local", "asyncio.events.AbstractEventLoop"}
)
_RUNS = frozenset({"subprocess.Popen", "os.posix_spawn", "os.exec", "os.spawn", "os.system"})
_BETWEEN = frozenset({"subprocess", "os", "asyncio", "multiprocessing"})
_LOOK_AROUND = frozenset({"platform", "uuid", "ctypes", "sysconfig"})  # start programs to learn about the machine
_CHANGES = frozenset({"os.putenv", "os.unsetenv", "os.chdir"})
_listening: Note | None = None


@contextmanager
def noting(note: Note, note_program: Note, found: Note) -> Iterator[None]:
    """Note the requests of a poke.

    :param note_program: called for programs that are started with the task's names in their environment, and for
        changes of the whole process.
    :param found: called for Connections and Variables that are found in the environment.
    """
    with ExitStack() as stack:
        for watch in (_context_noted, _signals_noted, _loop_noted):
            stack.enter_context(watch(note))
        stack.enter_context(environment_reads.noting(note, found))
        stack.enter_context(_process_noted(note_program))
        stack.enter_context(_programs_noted(note_program))
        yield


def bound_to_a_thread(attributes: Mapping[str, Any]) -> str | None:
    """Return the name of an attribute whose value works only in the thread that has made it."""
    for name, value in attributes.items():
        if not _OF_ONE_THREAD.isdisjoint(f"{cls.__module__}.{cls.__qualname__}" for cls in type(value).__mro__):
            return name
    return None


def missed_by(error: BaseException | None) -> str | None:
    """Return what a poke lacked in the pool, judged by its error and the causes of that; None if it lacked nothing."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        text = " ".join(str(error).split())
        of_task = isinstance(error, KeyError) and error.args and error.args[0] in _of_task()  # the poke read vars(self)
        if of_task or _MISSED.search(text):
            return f"its poke needs what only a worker has: {type(error).__name__}: {text[:300]}"
        error = error.__cause__ or error.__context__
    return None


def _of_task() -> frozenset[str]:
    return operators.task_attributes(BaseSensorOperator)


@contextmanager
def _context_noted(note: Note) -> Iterator[None]:
    module = importlib.import_module(task_runtime.CURRENT_CONTEXT[0])
    native = getattr(module, task_runtime.CURRENT_CONTEXT[1])

    def current() -> Any:
        note("calls get_current_context, which only its task can")
        return native()

    setattr(module, task_runtime.CURRENT_CONTEXT[1], current)
    try:
        yield
    finally:
        setattr(module, task_runtime.CURRENT_CONTEXT[1], native)


@contextmanager
def _signals_noted(note: Note) -> Iterator[None]:
    native = signal._signal  # type: ignore[attr-defined]  # signal.signal calls it, under whatever name it was imported

    class Signals:
        def __getattr__(self, name: str) -> Any:
            # asyncio.run sets a handler in the main thread, and needs none elsewhere
            caller = sys._getframe(1).f_back
            if name == "signal" and _in_main_thread() and _module_of(caller) != "asyncio.runners":
                note("sets a signal handler, which only the main thread of its worker can")
            return getattr(native, name)

    signal._signal = Signals()  # type: ignore[attr-defined]
    try:
        yield
    finally:
        signal._signal = native  # type: ignore[attr-defined]


@contextmanager
def _loop_noted(note: Note) -> Iterator[None]:
    policy: Any = getattr(asyncio.events, "_get_event_loop_policy", asyncio.get_event_loop_policy)()
    native = policy.get_event_loop

    def get_event_loop() -> Any:
        if _in_main_thread():
            note("asks for the event loop of its thread, which only the main thread of its worker has")
        return native()

    vars(policy)["get_event_loop"] = get_event_loop
    try:
        yield
    finally:
        vars(policy).pop("get_event_loop", None)


@contextmanager
def _process_noted(note: Note) -> Iterator[None]:
    before = ProcessState()
    try:
        yield
    finally:
        for name in before.changed():
            note(f"changes {name} of its process, which others share in the pool")


def _change_by(event: str, arguments: tuple[Any, ...]) -> str | None:
    """Return what an audit event is about to change for the whole process; None if nothing."""
    match event, arguments:
        case "os.chdir", _:
            return "changes the working directory"
        case "os.putenv", (name, value) if os.environb.get(os.fsencode(name)) != os.fsencode(value):
            return f"sets {os.fsdecode(name)} in the environment"
        case "os.unsetenv", (name,) if os.fsencode(name) in os.environb:
            return f"takes {os.fsdecode(name)} from the environment"
    return None


def deny_changes() -> None:
    """Deny pokes and constructors in this process, one of the pool's, to change it for all: they raise `OnlyOnWorker`.

    Natively a process has one sensor; here an environment or working directory would be that of another's poke, too.
    """
    _hook(_refuse_change)


def _refuse_change(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in _CHANGES or (asker := denials.asker_here()) is None:
        return
    why = _change_by(event, arguments)
    if why is not None and not is_importing(sys._getframe(1)):
        raise denials.deny(f"its {asker} {why} of its process, which only a worker has for one task alone")


def is_importing(frame: Any) -> bool:
    """Whether a module is being imported: an import may change its process, and must not end half done."""
    while frame is not None:
        if _module_of(frame) == "importlib._bootstrap":
            return True
        frame = frame.f_back
    return False


@cache
def _hook(hear: Callable[[str, tuple[Any, ...]], None]) -> None:
    sys.addaudithook(hear)  # Python has no way to remove a hook


@contextmanager
def _programs_noted(note: Note) -> Iterator[None]:
    global _listening
    _hook(_hear)
    _listening = note
    try:
        yield
    finally:
        _listening = None


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if _listening is None or not event.startswith(("os.", "subprocess.")):
        return
    if event in _CHANGES:
        if (why := _change_by(event, arguments)) is not None:
            _listening(f"{why} of its process, which others share in the pool")
    elif event in ("os.fork", "os.forkpty"):
        _listening("forks, which no poke in the pool may")
    elif event in _RUNS:
        given = None if event == "os.system" else arguments[-1]
        names = os.environ if given is None else given
        if any(str(name).removeprefix("b'").startswith(OF_TASK) for name in names):
            frame: Any = sys._getframe(1)
            while frame is not None and _package_of(frame) in _BETWEEN:
                frame = frame.f_back
            if _package_of(frame) not in _LOOK_AROUND:
                _listening("starts a program, which finds its task's names in the environment")


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _module_of(frame: Any) -> str:
    return "" if frame is None else str(frame.f_globals.get("__name__"))


def _package_of(frame: Any) -> str:
    return _module_of(frame).partition(".")[0]
