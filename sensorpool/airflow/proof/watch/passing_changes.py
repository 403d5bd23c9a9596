"""Changes that a poke makes for its own duration and puts back: `redirect_stdout`, `mock.patch`, a session's header.

Natively nothing else runs meanwhile. In the pool the pokes of other sensors do, on other threads of the process. So the
first poke is looked at wherever the company's code calls something.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from sensorpool.airflow.proof.state import references
from sensorpool.airflow.proof.state.shared_state import SharedState
from sensorpool.airflow.proof.watch.process_state import ProcessState, of_other_threads

_LOOKS = 2  # at each place of the code
_LONGEST = 0.5  # seconds of all looks
_EVENTS = 300_000  # calls and returns that are followed: a poke that computes for long is not slowed down for long
_MOCK = "unittest.mock"
_PATCHES = frozenset({"__enter__", "start"})

Note = Callable[[str], object]


@contextmanager
def noting(cls: type, note_process: Note, note_shared: Note) -> Iterator[None]:
    """Note what a poke of a class changes for a while, in the thread of the caller.

    :param note_shared: called for state that the sensors of the class share.
    """
    if sys.getprofile() is not None:  # a profiler is at work
        yield
        return
    hear = _Watch(cls, note_process, note_shared).hear
    sys.setprofile(hear)
    try:
        yield
    finally:
        if sys.getprofile() is hear:  # not a profiler that the poke has started
            sys.setprofile(None)


class _Watch:
    def __init__(self, cls: type, note_process: Note, note_shared: Note) -> None:
        self._company = str(cls.__module__).partition(".")[0]
        self._note_process = note_process
        self._note_shared = note_shared
        self._shared = SharedState(cls, brief=True)
        self._process = ProcessState(of_other_threads())
        self._streams = sys.stdout, sys.stderr, sys.argv
        self._is_companys: dict[CodeType, bool] = {}
        self._looks: dict[tuple[CodeType, int], int] = {}
        self._events = 0
        self._took = 0.0

    def hear(self, frame: FrameType, event: str, _: Any) -> None:
        """Hear of a call or a return; look whether something has changed."""
        self._events += 1
        try:
            if self._finds(frame, event) or self._events > _EVENTS or self._took > _LONGEST:
                sys.setprofile(None)
        except Exception:  # odd code is no error of its poke
            sys.setprofile(None)

    def _finds(self, frame: FrameType, event: str) -> bool:
        out, err, argv = self._streams
        if sys.stdout is not out or sys.stderr is not err or sys.argv is not argv:
            self._streams = sys.stdout, sys.stderr, sys.argv
            return self._finds_in_process()
        if event == "call" and frame.f_code.co_name in _PATCHES and frame.f_globals.get("__name__") == _MOCK:
            self._note_process("replaces code by unittest.mock, which others use meanwhile in the pool")
            return True
        caller = {"call": frame.f_back, "c_call": frame}.get(event)
        if caller is None or not self._is_due(caller):
            return False
        began = time.perf_counter()
        try:
            return self._finds_in_process() or self._finds_in_shared()
        finally:
            self._took += time.perf_counter() - began

    def _is_due(self, caller: FrameType) -> bool:
        """Whether to look before a call from this place."""
        code = caller.f_code
        is_companys = self._is_companys.get(code)
        if is_companys is None:
            is_companys = references.is_of_company(self._company, caller.f_globals.get("__name__"))
            self._is_companys[code] = is_companys
        if not is_companys:
            return False
        place = code, caller.f_lasti
        self._looks[place] = looks = self._looks.get(place, 0) + 1
        return looks <= _LOOKS

    def _finds_in_process(self) -> bool:
        names = self._process.changed()
        if names:
            self._note_process(f"changes {names[0]} of its process, which others share in the pool")
        return bool(names)

    def _finds_in_shared(self) -> bool:
        name = self._shared.changed()
        if name is not None:
            self._note_shared(f"changes {name}")
        return name is not None
