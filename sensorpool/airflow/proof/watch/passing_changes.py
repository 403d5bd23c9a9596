"""Changes that a poke makes for its own duration and puts back: `redirect_stdout`, `mock.patch`, a session's header.

Natively nothing else runs meanwhile. In the pool the pokes of other sensors do, on other threads of the process. So the
first poke is looked at wherever the company's code calls something.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from queue import Empty, SimpleQueue
from types import CodeType, FrameType
from typing import Any

from sensorpool.airflow.proof.state import references
from sensorpool.airflow.proof.state.shared_state import SharedState
from sensorpool.airflow.proof.watch.process_state import ProcessState, of_other_threads
from sensorpool.airflow.proof.watch.worker_only import is_importing

_LOOKS = 2  # at each place of the code
_LONGEST = 0.5  # seconds of all looks
_EVENTS = 3_000_000  # calls and returns that are followed: a poke that computes for long is not slowed down for long
_PATIENCE = 5.0  # seconds for one look
_MOCK = "unittest.mock"
_PATCHES = frozenset({"__enter__", "start"})

Note = Callable[[str], object]
Extend = Callable[[], object]


@contextmanager
def noting(note_process: Note, note_shared: Note) -> Iterator[Callable[[type, Extend], None]]:
    """Note what a poke changes for a while, in the thread of the caller and in those that it starts.

    :param note_shared: called for state of a class that is followed.
    :yields: a function that follows a class, wherever the code of the class's company calls something. The first class
        begins the watch, if this thread gives it. The function takes also what to call after imports, before what was
        imported is called.
    """
    with ExitStack() as stack:
        watches: dict[type, _Watch] = {}
        own_thread = threading.get_ident()

        def follow(cls: type, extend: Extend) -> None:
            if cls in watches:
                return
            if not watches and (sys.getprofile() is not None or threading.get_ident() != own_thread):
                return  # a profiler is at work
            watch = watches[cls] = next(iter(watches.values()), None) or _Watch(note_process, note_shared)
            watch.follow(cls, extend)
            if len(watches) == 1:
                stack.enter_context(_profiled(watch, note_process))

        yield follow


@contextmanager
def _profiled(watch: "_Watch", note_process: Note) -> Iterator[None]:
    hear, of_threads = watch.hear, threading.getprofile()
    threading.setprofile(hear)
    sys.setprofile(hear)
    try:
        yield
    finally:
        is_there = sys.getprofile() is hear
        if is_there:
            sys.setprofile(None)
        threading.setprofile(of_threads)
        if not is_there and not watch.is_over:
            note_process("uses a profiler, beside which it cannot be watched")
        watch.end()


class _Looker:
    """A thread that looks. No signal handler runs on it, so an exception there is that of odd code."""

    def __init__(self, look: Callable[[], bool]) -> None:
        self._look = look
        self._pid = os.getpid()
        self._asked: SimpleQueue[SimpleQueue[bool] | None] = SimpleQueue()
        threading.Thread(target=self._run, daemon=True, name="looks").start()

    def ask(self) -> bool:
        """Return whether a look finds something; True if it is not to be had."""
        if os.getpid() != self._pid:  # a fork has no such thread
            return True
        answer: SimpleQueue[bool] = SimpleQueue()
        self._asked.put(answer)
        try:
            return answer.get(timeout=_PATIENCE)
        except Empty:
            return True

    def end(self) -> None:
        """End the thread."""
        self._asked.put(None)

    def _run(self) -> None:
        while (answer := self._asked.get()) is not None:
            try:
                found = self._look()
            except Exception:  # odd code is no error of its poke
                found = True
            answer.put(found)


class _Watch:
    def __init__(self, note_process: Note, note_shared: Note) -> None:
        self.is_over = False
        self._note_process = note_process
        self._note_shared = note_shared
        self._followed: list[
            tuple[frozenset[str], SharedState, Extend]
        ] = []  # company, state, what to call after imports
        self._process = ProcessState(of_other_threads())
        self._streams = sys.stdout, sys.stderr, sys.argv
        self._companys: dict[int, tuple[CodeType, bool]] = {}  # by id: a code object's hash takes its bytecode's length
        self._looks: dict[tuple[int, int], int] = {}
        self._modules = len(sys.modules)
        self._events = 0
        self._took = 0.0
        self._looker = _Looker(self._look)

    def follow(self, cls: type, extend: Extend) -> None:
        """Follow the state of a class, wherever the code of its company calls something."""
        self._followed.append((references.company_of(cls), SharedState(cls, brief=True), extend))
        self._companys = {}

    def end(self) -> None:
        """End the watch, also in threads that go on."""
        self.is_over = True
        self._looker.end()

    def hear(self, frame: FrameType, event: str, _: Any) -> None:
        """Hear of a call or a return; look whether something has changed.

        Nothing is caught here: an exception may be that of a signal handler, which ends the poke.
        """
        self._events += 1
        if self.is_over or self._finds(frame, event) or self._events > _EVENTS or self._took > _LONGEST:
            self.is_over = True
            sys.setprofile(None)

    def _finds(self, frame: FrameType, event: str) -> bool:
        out, err, argv = self._streams
        if sys.stdout is not out or sys.stderr is not err or sys.argv is not argv:
            self._streams = sys.stdout, sys.stderr, sys.argv
            return self._looker.ask()
        if event == "call":
            if frame.f_code.co_name in _PATCHES and frame.f_globals.get("__name__") == _MOCK:
                self._note_process("replaces code by unittest.mock, which others use meanwhile in the pool")
                return True
            caller = frame.f_back
        elif event == "c_call":
            caller = frame
        else:
            return False
        return caller is not None and self._is_due(caller) and self._looker.ask()

    def _is_due(self, caller: FrameType) -> bool:
        """Whether to look before a call from this place."""
        code = caller.f_code
        known = self._companys.get(id(code))
        if known is None:
            module = caller.f_globals.get("__name__")
            known = code, any(references.is_of_company(company, module) for company, _, _ in self._followed)
            self._companys[id(code)] = known
        if not known[1]:
            return False
        place = id(code), caller.f_lasti
        self._looks[place] = looks = self._looks.get(place, 0) + 1
        if looks > _LOOKS and len(sys.modules) == self._modules:
            return False
        return not is_importing(caller)  # a module that is being imported has not all of its names yet

    def _look(self) -> bool:
        began = time.perf_counter()
        found = self._finds_in_process() or self._finds_in_shared()
        self._took += time.perf_counter() - began
        return found

    def _finds_in_process(self) -> bool:
        names = self._process.changed()
        if names:
            self._note_process(f"changes {names[0]} of its process, which others share in the pool")
        return bool(names)

    def _finds_in_shared(self) -> bool:
        followed = list(self._followed)
        for _, shared, _ in followed:
            if (name := shared.changed()) is not None:
                self._note_shared(f"changes {name}")
                return True
        if len(sys.modules) != self._modules:
            self._modules = len(sys.modules)
            for _, shared, extend in followed:
                shared.extend()
                extend()
        return False
