"""Budgets: how they are written, whose they are, and what counts as one poke."""

from typing import Any

import pytest

from sensorpool.config.settings import Settings
from sensorpool.errors import SettingsError
from sensorpool.model.budgets import MOST, Budget, Budgets, as_text, read_budgets
from sensorpool.worker.job_budgets import in_calls


@pytest.mark.parametrize(
    ("said", "budget"),
    [
        ("50/s", (50.0, None)),
        ("600/m", (10.0, None)),
        ("1/h", (1 / 3600, None)),
        ("0.5 / s", (0.5, None)),
        ("8 at once", (None, 8)),
        ("50/s, 8 at once", (50.0, 8)),
        ("8 at once,50/s", (50.0, 8)),
    ],
)
def test_a_budget_is_read(said: str, budget: tuple[float | None, int | None]) -> None:
    [read] = read_budgets({"hive": said})
    assert read == Budget("hive", *budget)
    assert read_budgets({"hive": str(read)}) == (read,)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("", "JSON"),
        ("hive: 50/s", "JSON"),
        ("[" * 100_000, "JSON"),
        ('["hive"]', "JSON object"),
        ('{"hive": 50}', "no text like"),
        ('{"hive": ""}', "write it like"),
        ('{"hive": "fast"}', "write it like"),
        ('{"hive": "50/s, 60/s"}', "write it like"),
        ('{"hive": "50/d"}', "write it like"),
        ('{"hive": "0/s"}', "from 1/h"),
        ('{"hive": "9999999/s"}', "from 1/h"),
        ('{"hive": "-1/s"}', "write it like"),
        ('{"hive": "nan/s"}', "write it like"),
        ('{"hive": "0 at once"}', "1 is the least"),
        ('{"": "1/s"}', "no name of a backend"),
        ('{"two words": "1/s"}', "no name of a backend"),
        ({f"b{n}": "1/s" for n in range(MOST + 1)}, "100 are allowed"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_is_no_budget_is_refused(value: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says) as raised:
        read_budgets(value)
    assert "\n" not in str(raised.value)


def test_the_setting_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENSORPOOL_BUDGETS", '{"hive": "often"}')
    with pytest.raises(SettingsError, match=r"SENSORPOOL_BUDGETS.*'50/s, 8 at once'"):
        Settings.load()
    monkeypatch.setenv("SENSORPOOL_BUDGETS", '{"hive": "50/s"}')
    assert Settings.load().budgets == (Budget("hive", 50.0, None),)
    assert as_text(Settings.load().budgets) == Settings.load().shown()["budgets"] == '{"hive": "50/s"}'


def test_the_first_budget_that_covers_a_backend_is_its_own() -> None:
    budgets = Budgets(read_budgets({"hive": "1/s", "s3*eu": "2/s", "*": "3/s", "never": "4/s"}))
    found = [budgets.of(name) for name in ("hive", "s3://eu", "s3://us", "never", "hive2", "a.b")]
    assert [each and each.per_second for each in found] == [1, 2, 3, 3, 3, 3]
    assert not Budgets(())
    assert Budgets(()).of("hive") is None
    assert Budgets(read_budgets({"a.b": "1/s"})).of("aXb") is None  # a dot is a dot


@pytest.mark.parametrize(
    ("names", "calls"),
    [
        ("", []),
        ("...", ["0", "1", "2"]),
        ("aaa", ["012"]),
        ("aaaa", ["012", "3"]),
        ("ab.a.b", ["03", "15", "2", "4"]),
    ],
)
def test_one_call_for_many_is_one_poke(names: str, calls: list[str]) -> None:
    """Groups by the letter of their call; a dot is asked for alone. Three groups fit into a call."""
    found = in_calls(range(len(names)), lambda place: None if names[place] == "." else names[place], 3)
    assert ["".join(map(str, call)) for call in found] == calls
