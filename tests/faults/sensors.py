"""Sensors of the fault tests: backends that go away, answers of every kind, and one more class to be fair to."""

import os
from pathlib import Path
from typing import Any, ClassVar

from sensorpool.model import PokeReturnValue
from sensorpool.testing import ScriptedSensor, record_poke


class Backend(ScriptedSensor):
    """Asks a backend that refuses connections while a file ``down`` is there."""

    def poke(self, context: Any) -> Any:
        if os.path.exists(os.path.join(self.folder, "down")):
            raise ConnectionRefusedError(111, "Connection refused")
        return super().poke(context)


class Slow(ScriptedSensor):
    """Takes its time while a file ``slow`` is there, as much as the file says."""

    def poke(self, context: Any) -> Any:
        said = Path(self.folder, "slow")
        self.seconds = float(said.read_text()) if said.exists() else 0.0
        return super().poke(context)


class Ends(ScriptedSensor):
    """Records when its pokes end, not when they begin."""

    def poke(self, context: Any) -> Any:
        landed = super().poke(context)
        record_poke(self.folder, f"{self.name} ended")
        return landed


class _Stubborn:
    def __bool__(self) -> bool:
        raise ValueError("neither true nor false")


class Says:
    """Returns what it is told."""

    answers: ClassVar[dict[str, Any]] = {
        "none": None,
        "zero": 0,
        "empty": "",
        "one": 1,
        "text": "no",
        "list": [False],
        "done": PokeReturnValue(True, {"rows": 3}),
        "not done": PokeReturnValue(False, {"rows": 3}),
        "stubborn": _Stubborn(),
    }

    def __init__(self, say: str) -> None:
        self.say = say

    def poke(self, context: Any) -> Any:
        return self.answers[self.say]
