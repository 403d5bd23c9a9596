"""Shifts the wall clock of a Python process that has this module first on its path, by a file that may change.

The file has two numbers: the shift in seconds, and by how many seconds each second is longer. The monotonic clock does
not change, as when a machine's time is set.
"""

import datetime
import os
import time

_time, _time_ns, _monotonic = time.time, time.time_ns, time.monotonic
_began = _monotonic()
_file = os.environ["SENSORPOOL_TEST_CLOCK"]


def _shift() -> float:
    with open(_file) as file:
        shift, rate = map(float, file.read().split())
    return shift + rate * (_monotonic() - _began)


class _Datetime(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> "_Datetime":
        return cls.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls) -> "_Datetime":
        return cls.fromtimestamp(time.time(), datetime.UTC).replace(tzinfo=None)


time.time = lambda: _time() + _shift()
time.time_ns = lambda: _time_ns() + int(_shift() * 1e9)
datetime.datetime = _Datetime  # type: ignore[misc]
