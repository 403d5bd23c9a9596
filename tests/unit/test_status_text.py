"""What `sensorpool status` prints: a line for each backlog."""

from typing import Any

import pytest

from sensorpool.cli.status import print_status

QUIET: dict[str, Any] = {
    "sensing": 3,
    "groups": 2,
    "states": {"sensing": 3, "success": 7, "failed": 1},
    "late": 0,
    "quarantined": 0,
    "deaths": [],
    "away": [],
    "budgets": [],
    "overrunning": 0,
    "wait_apart": {"groups": 0, "overdue": 0, "longest_s": 0.0},
    "dags_over_quota": {},
    "problems": [],
    "unpublished_s": None,
    "callbacks": [],
}
FORGED = "\x1b[2J\u202ename"
BUSY: dict[str, tuple[Any, str]] = {
    "problems": (["beat is not running"], "beat is not running"),
    "away": (
        [{"backend": "hive", "why": "throttled", "for_s": 61.2, "asked_in_s": 4.0, "cause": "429"}],
        "the backend hive wants to be left alone, for 61 s now: 429",
    ),
    "late": (2, "later than usual: 2 conditions (`sensorpool list --late` names who waits)"),
    "quarantined": (1, "in quarantine: 1 condition (`sensorpool quarantine` lists them)"),
    "deaths": (["w1: signal 9"], "died in the last 10 minutes: 1 process of the workers, last w1: signal 9"),
    "budgets": (
        [{"waiting": 5, "backends": "hive", "budget": "50/s", "longest_s": 70.4}],
        "waiting for the budget of hive (50/s): 5 groups, for up to 70 s",
    ),
    "overrunning": (1, "overran SENSORPOOL_POKE_TIMEOUT: the last poke of 1 group"),
    "wait_apart": ({"groups": 7_000, "longest_s": 8.1}, "waiting to be poked apart: 7,000 groups, for up to 8 s"),
    "dags_over_quota": ({"d": 10_001}, "d is over its quota (10,001 sensing): its further sensors are refused"),
    "unpublished_s": (12, "results have been waiting to be published for 12 s"),
    "callbacks": (
        [{"waiting": 1, "task": "t.done", "oldest_s": 5, "cause": "no broker"}],
        "waiting to be sent for 5 s: 1 callback of t.done: no broker",
    ),
}


@pytest.mark.parametrize("name", BUSY)
def test_each_backlog_has_its_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    value, line = BUSY[name]
    print_status(QUIET | {name: value})
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["3 sensing in 2 groups; 7 success, 1 failed", line]


def test_all_of_them_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    print_status(QUIET | {name: value for name, (value, _) in BUSY.items()})
    said = capsys.readouterr().out.splitlines()
    assert said[1 : 1 + len(BUSY)] == [line for _, line in BUSY.values()]


def test_no_line_has_what_a_terminal_acts_upon(capsys: pytest.CaptureFixture[str]) -> None:
    """The texts come from Redis, the database and other hosts, where somebody may have forged them."""
    lines = {name: _forged(value) for name, (value, _) in BUSY.items()}
    ranges = dict.fromkeys(("shard_min", "shard_max", "groups", "holder", "last_tick_at", "lag_s", "pokes"), "x")
    lines |= {"problems": _forged(["p"]), "ranges": _forged([ranges | {"left": "x", "suspects": "x"}])}
    lines |= {"dags_over_quota": {FORGED: 10_001}}
    print_status(QUIET | lines)
    said = capsys.readouterr().out
    assert said.count("\\u001b[2J") >= 7  # some lines have numbers alone
    assert said.replace("\n", "").isprintable()


def _forged(value: Any) -> Any:
    """Return a value with each text in it forged."""
    if isinstance(value, dict):
        return {key: _forged(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_forged(each) for each in value]
    return FORGED if isinstance(value, str) else value


def test_a_pool_without_backlogs_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    print_status(QUIET)
    said = capsys.readouterr().out
    assert said.splitlines()[0] == "3 sensing in 2 groups; 7 success, 1 failed"
    assert all(line not in said for _, line in BUSY.values())


def test_a_single_group_has_no_plural(capsys: pytest.CaptureFixture[str]) -> None:
    print_status(QUIET | {"sensing": 1, "groups": 1})
    assert capsys.readouterr().out.splitlines() == ["1 sensing in 1 group; 7 success, 1 failed"]
