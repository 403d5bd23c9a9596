"""The bounds of one process: the text that its pokes print, and the memory that they take."""

import io
import subprocess
import sys
import threading

import pytest

from sensorpool.poke import process_bounds
from sensorpool.poke.process_bounds import BoundedOutput


def test_what_is_printed_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(process_bounds.time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    bounded = BoundedOutput(stream, most=10, span=5.0)
    assert bounded.write("12345") == 5
    assert bounded.write("1234567890") == 10
    bounded.write("and more")
    assert stream.getvalue() == "1234512345 … (too much is printed; the rest is dropped)\n"
    now[0] = 5.0
    bounded.write("again")
    assert stream.getvalue().endswith("dropped)\nagain")
    bounded.flush()  # other methods are the stream's own


def test_a_text_whose_length_never_comes_stops_no_other() -> None:
    asked, gate = threading.Event(), threading.Event()

    class Text(str):
        __slots__ = ()

        def __len__(self) -> int:
            asked.set()
            gate.wait(60)
            return super().__len__()

    stream = io.StringIO()
    bounded = BoundedOutput(stream)
    threading.Thread(target=bounded.write, args=(Text("late"),), daemon=True).start()
    assert asked.wait(60)
    other = threading.Thread(target=bounded.write, args=("here",), daemon=True)
    other.start()
    other.join(30)
    stands = other.is_alive()
    gate.set()
    assert not stands
    assert stream.getvalue().startswith("here")


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_memory_is_limited() -> None:
    code = (
        "from sensorpool.poke import process_bounds; process_bounds.limit_memory(100, threads=0)\n"
        "kept = bytearray(50 * 2**20); print('some', flush=True)\n"
        "try: more = bytearray(100 * 2**20)\nexcept MemoryError: print('no more')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split("\n") == ["some", "no more", ""]
