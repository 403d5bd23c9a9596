"""Scripted sensors, for tests of a pool.

A scripted sensor lives in a folder. It appends a line to ``pokes.jsonl`` whenever it is poked (one write, so that many
processes may share the file), lands when ``<name>.landed`` exists, and otherwise does what its script says.
"""

import asyncio
import ctypes
import json
import os
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from sensorpool.errors import FailSensor, InfraFailure, SkipSensor
from sensorpool.model.values import PokeReturnValue

LONG = 3_600  # seconds
_LEAKED = 256  # times 16 MB


class ScriptedSensor:
    """A sensor that follows a script.

    :param folder: the folder in which it writes and reads.
    :param name: its name.
    :param script: ``wait`` (the default), ``raise``, ``infra``, ``skip``, ``fail``, ``hang`` (in Python), ``freeze``
        (holding the interpreter lock), ``exit``, ``segfault``, ``leak`` (takes memory, up to 4 GB), ``print`` (100 MB).
    :param seconds: the duration of each poke.
    """

    poke_context_fields: ClassVar[tuple[str, ...]] = ("folder", "name", "script", "seconds")

    def __init__(self, folder: str, name: str, script: str = "wait", seconds: float = 0.0) -> None:
        self.folder = folder
        self.name = name
        self.script = script
        self.seconds = seconds

    def poke(self, context: Any) -> Any:  # the signature of sensors
        """Poke."""
        record_poke(self.folder, self.name)
        if self.seconds:
            time.sleep(self.seconds)
        if os.path.exists(os.path.join(self.folder, f"{self.name}.landed")):
            return PokeReturnValue(True, {"name": self.name})
        return act(self.script, self.name)


class AsyncScriptedSensor(ScriptedSensor):
    """A `ScriptedSensor` that is poked by coroutine; ``block`` blocks the event loop."""

    async def poke(self, context: Any) -> Any:
        """Poke."""
        record_poke(self.folder, self.name)
        await asyncio.sleep(self.seconds)
        if os.path.exists(os.path.join(self.folder, f"{self.name}.landed")):
            return True
        if self.script == "block":
            time.sleep(LONG)
        if self.script == "hang":
            await asyncio.sleep(LONG)
        return act(self.script, self.name)


class ManyScriptedSensor:
    """A scripted sensor that answers many contexts in one call."""

    @classmethod
    def poke_many(cls, contexts: Sequence[dict[str, Any]]) -> list[Any]:
        """Poke many."""
        answers: list[Any] = []
        for context in contexts:
            record_poke(context["folder"], context["name"])
            script = context.get("script", "wait")
            if script == "raise":
                answers.append(ValueError(f"{context['name']} raises"))
            else:
                answers.append(os.path.exists(os.path.join(context["folder"], f"{context['name']}.landed")))
        return answers


def act(script: str, name: str) -> bool:
    """Do what a script says."""
    match script:
        case "raise":
            raise ValueError(f"{name} raises")
        case "infra":
            raise InfraFailure(f"{name} cannot ask")
        case "skip":
            raise SkipSensor(f"{name} skips")
        case "fail":
            raise FailSensor(f"{name} fails")
        case "hang":
            time.sleep(LONG)
        case "freeze":
            ctypes.PyDLL(None).sleep(LONG)  # PyDLL keeps the interpreter lock
        case "exit":
            os._exit(3)
        case "segfault":
            ctypes.string_at(0)
        case "leak":
            kept: list[bytearray] = []
            while len(kept) < _LEAKED:
                kept.append(bytearray(16 * 2**20))
            time.sleep(LONG)
        case "print":
            for _ in range(100):
                print("x" * 1_000_000)
    return False


def record_poke(folder: str, name: str) -> None:
    """Append a line to the event record: name, time (by the wall clock) and process of a poke."""
    line = json.dumps({"name": name, "at": time.time(), "pid": os.getpid()}) + "\n"
    record = os.open(os.path.join(folder, "pokes.jsonl"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(record, line.encode())
    finally:
        os.close(record)


def land(folder: str | os.PathLike[str], name: str) -> float:
    """Make a scripted sensor's condition true; return the time (seconds since 1970)."""
    Path(folder, f"{name}.landed").touch()
    return time.time()


@dataclass(frozen=True, slots=True)
class Poke:
    """One line of the event record."""

    name: str
    at: float
    pid: int


def pokes(folder: str | os.PathLike[str]) -> dict[str, list[Poke]]:
    """Read the event record: the pokes of each name, in order."""
    by_name: dict[str, list[Poke]] = defaultdict(list)
    record = Path(folder, "pokes.jsonl")
    if record.exists():
        for line in record.read_text().splitlines(keepends=True):
            if not line.endswith("\n"):
                continue  # the write of the last line may still go on
            # A writer that was killed leaves half a line, and the next line stands behind it.
            poke = Poke(**json.loads(line[line.rindex('{"name"') :]))
            by_name[poke.name].append(poke)
    for some in by_name.values():
        some.sort(key=lambda poke: poke.at)
    return by_name
