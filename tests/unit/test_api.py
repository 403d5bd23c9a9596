"""The API as a program and its type checker see it."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import sensorpool

OPTIONS = ("poke_interval", "timeout", "soft_fail", "on_success", "on_failure", "family", "backend", "location")


def test_dir_tells_the_api() -> None:
    assert set(sensorpool.__all__) <= set(dir(sensorpool))
    for name in sensorpool.__all__:
        assert getattr(sensorpool, name) is not None
    assert {"register", "get", "wait", "State", "Refused", "aio", "sensor", "wait_for", "all_of"} <= set(
        dir(sensorpool)
    )


@pytest.mark.parametrize("function", ["register", "all_of", "wait", "get", "cancel", "wake"])
@pytest.mark.parametrize("module", [sensorpool, sensorpool.aio])
def test_help_shows_each_option_with_its_type(module: object, function: str) -> None:
    parameters = inspect.signature(getattr(module, function)).parameters
    assert "self" not in parameters
    for parameter in parameters.values():
        assert parameter.annotation is not parameter.empty, parameter
        assert parameter.kind not in {parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL}


def test_help_explains_each_option_of_register() -> None:
    said = inspect.getdoc(sensorpool.register) or ""
    for name in set(inspect.signature(sensorpool.register).parameters) - {"task_id", "run_id"}:
        assert f":param {name}:" in said, name
    assert inspect.iscoroutinefunction(sensorpool.aio.register)


GOOD = """
import asyncio
from datetime import timedelta
from pathlib import Path
import sensorpool
from sensorpool.sensors import PathSensor

@sensorpool.sensor
def arrived(partner: str, day: str = "") -> bool:
    return bool(partner and day)

instance: sensorpool.Instance = sensorpool.register(
    PathSensor, {"path": Path("/data")}, poke_interval=timedelta(minutes=1), timeout=60, soft_fail=True
)
sensorpool.register(Path("/data/x"))
sensorpool.register(arrived("acme", day="monday"))
state: sensorpool.State = instance.wait(5)
states: dict[int, sensorpool.State] = sensorpool.wait([instance, 3], timedelta(seconds=1))
result = sensorpool.get(instance.id).result
if result is not None:
    said: str | None = result.reason
both: sensorpool.Instance = sensorpool.all_of([instance, 3], timeout=5)

async def main() -> None:
    made = await sensorpool.aio.register("a.B", {}, family="x")
    await sensorpool.aio.wait(made, 5)

asyncio.run(main())
"""
BAD = (
    'sensorpool.register("a.B", {}, poke_intervall=5)',
    'sensorpool.register("a.B", {}, timeout="5")',
    "sensorpool.wait(instance, timeout=[])",
    "arrived(parner=5)",
    'sensorpool.get("5")',
    "sensorpool.all_of([instance], on_sucess=None)",
    'asyncio.run(sensorpool.aio.register("a.B", {}, timout=5))',
)


def test_mypy_takes_what_is_right_and_rejects_a_typo(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(GOOD + "\n".join(BAD) + "\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--config-file=", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    first = GOOD.count("\n") + 1
    wrong = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error: " in line}
    assert wrong == set(range(first, first + len(BAD))), done.stdout
