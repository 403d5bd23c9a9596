"""``@sensorpool.sensor``: a function as a sensor class."""

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

import sensorpool
from sensorpool.client.sensor_object import describe
from sensorpool.errors import Refused
from sensorpool.poke.classes import Classes, Way

HERE = __name__


@sensorpool.sensor
def arrived(folder: str, name: str = "done") -> bool:
    """Say whether a file has arrived."""
    return Path(folder, name).exists()


@sensorpool.sensor
async def ready(number: int) -> Any:
    """Answer on an event loop."""
    await asyncio.sleep(0)
    return sensorpool.PokeReturnValue(number > 1, {"number": number})


def test_it_is_poked_with_its_arguments(tmp_path: Path) -> None:
    condition = arrived(str(tmp_path))
    assert describe(condition) == (f"{HERE}.arrived", {"folder": str(tmp_path), "name": "done"})
    assert condition.poke({}) is False
    (tmp_path / "done").touch()
    assert condition.poke({}) is True


@sensorpool.sensor
def crossed_off(parts: list[str], more: dict[str, Any] | None = None) -> bool:
    """Say whether all parts are there, and cross off those that are."""
    while parts and Path(parts[0]).exists():
        parts.pop(0)
    if more is not None:
        more["parts"] = parts
    return not parts


@sensorpool.sensor
async def crossed_off_on_a_loop(parts: list[str]) -> bool:
    return crossed_off.function(parts)  # type: ignore[attr-defined, no-any-return]


def test_what_a_function_changes_in_its_arguments_does_not_reach_the_next_poke(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    parts = [str(first), str(second)]
    for condition in (crossed_off(parts), crossed_off(parts, {}), crossed_off_on_a_loop(parts)):

        def ask(condition: Any = condition) -> Any:
            answer = condition.poke({})
            return asyncio.run(answer) if inspect.isawaitable(answer) else answer

        first.touch()
        assert ask() is False
        first.unlink()
        second.touch()
        assert ask() is False, "the two were never there together"
        first.touch()
        assert ask() is True
        assert condition.arguments["parts"] == parts == [str(first), str(second)]
        first.unlink()
        second.unlink()


def test_it_is_loaded_as_any_class() -> None:
    classes = Classes({f"{HERE}.arrived", f"{HERE}.ready"})
    assert classes.find(f"{HERE}.arrived").way is Way.SYNC
    assert classes.find(f"{HERE}.arrived").declared == {"folder", "name"}
    assert classes.find(f"{HERE}.ready").way is Way.ASYNC
    with pytest.raises(Refused, match="does not take this poke_context"):
        classes.try_out(f"{HERE}.arrived", {"folder": "/", "nam": "x"})


def test_it_keeps_name_text_and_function() -> None:
    assert arrived.__name__ == "arrived"
    assert arrived.__doc__ == "Say whether a file has arrived."
    assert arrived.function("/", "no such file") is False  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="folder"):
        arrived()  # type: ignore[call-arg]
    with pytest.raises(AttributeError, match="other"):
        _ = arrived("/").other  # type: ignore[attr-defined]


def test_it_works_in_a_pool(tmp_path: Path) -> None:
    with sensorpool.testing.pool() as pool:
        first = sensorpool.register(arrived(str(tmp_path)))
        second = sensorpool.register(arrived, {"folder": str(tmp_path), "name": "done"})
        third = sensorpool.register(ready(2))
        assert first.group_id == second.group_id
        assert pool.poke() == {first.id: "sensing", second.id: "sensing", third.id: "success"}
        assert third.xcom_value == {"number": 2}


def test_what_the_workers_cannot_import_is_refused() -> None:
    def within(x: int) -> bool:
        return bool(x)

    for wrong in (within, lambda x: x, len, 5, Path):
        with pytest.raises(TypeError, match="top level"):
            sensorpool.sensor(wrong)  # type: ignore[arg-type]


def star(*names: str) -> bool:
    """Take any number of arguments."""
    return bool(names)


def named(**names: str) -> bool:
    """Take any names."""
    return bool(names)


def taken(poke: str) -> bool:
    """Take an argument with a name of a sensor's own."""
    return bool(poke)


@pytest.mark.parametrize("function", [star, named, taken])
def test_arguments_have_names_of_their_own(function: Any) -> None:
    with pytest.raises(TypeError, match=function.__name__):
        sensorpool.sensor(function)
