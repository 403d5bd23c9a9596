"""What a process shares."""

import os
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from sensorpool.sensors.shared import Shared


def test_makes_a_thing_once() -> None:
    shared: Shared[str, object] = Shared(2)
    assert shared.get("a", object) is shared.get("a", object)
    assert shared.find("b") is None


def test_lets_the_least_recently_used_go() -> None:
    gone: list[str] = []
    shared: Shared[str, str] = Shared(2, discard=gone.append)
    for key in "abac":
        shared.get(key, key.upper)
    assert gone == ["B"]
    assert len(shared) == 2


def test_threads_that_come_at_once_get_the_same_thing() -> None:
    gone: list[object] = []
    made: list[object] = []
    shared: Shared[str, object] = Shared(2, discard=gone.append)
    together = threading.Barrier(8, timeout=30)

    def make() -> object:
        made.append(object())
        return made[-1]

    def get(_: int) -> object:
        together.wait()
        return shared.get("a", make)

    with ThreadPoolExecutor(8) as pool:
        got = {id(thing) for thing in pool.map(get, range(8))}
    assert len(got) == len(made) == 1
    assert not gone


def test_drops_only_what_it_was_given() -> None:
    shared: Shared[str, list[int]] = Shared(2)
    kept = shared.get("a", lambda: [1])
    shared.drop("a", [1])
    assert shared.find("a") is kept
    shared.drop("a", kept)
    assert shared.find("a") is None


def test_what_cannot_be_made_is_not_kept() -> None:
    shared: Shared[str, float] = Shared(2)
    with pytest.raises(ZeroDivisionError):
        shared.get("a", lambda: 1 / 0)
    assert shared.get("a", lambda: 1.0) == 1.0


def test_a_forked_child_makes_its_own_even_while_a_thread_holds_the_lock() -> None:
    discarded: list[str] = []
    shared: Shared[str, str] = Shared(2, discard=discarded.append)
    shared.get("a", lambda: "parent's")
    with shared._lock, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forking beside threads
        child = os.fork()
        if not child:
            os._exit(0 if shared.get("a", lambda: "child's") == "child's" and not discarded else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert shared.find("a") == "parent's"
