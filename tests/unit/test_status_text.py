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
    "wrong_calls": {},
    "budgets": [],
    "overrunning": 0,
    "left_over": {"groups": 0, "overdue": 0, "longest_s": 0.0},
    "wait_apart": {"groups": 0, "overdue": 0, "longest_s": 0.0},
    "dags_over_quota": {},
    "problems": [],
    "unsettled": [],
    "unpublished_s": None,
    "callbacks": [],
    "not_here": [],
    "ranges": [],
}
FORGED = "\x1b[2J\u202ename"
BUSY: dict[str, tuple[Any, str]] = {
    "late": (2, "2 conditions are later than usual: `sensorpool list --late` names who waits"),
    "quarantined": (1, "1 conditions in quarantine: `sensorpool quarantine` lists them"),
    "deaths": (
        ["w1: signal 9"],
        "1 processes of the workers died in the last 10 minutes, the last one of w1: signal 9",
    ),
    "away": (
        [{"backend": "hive", "why": "away", "for_s": 61.2, "asked_in_s": 4.0, "cause": "refused"}],
        "the backend hive is away, for 61 s now; one poke asks it in 4 s: refused",
    ),
    "wrong_calls": (
        {"a.B": "it left one out"},
        "a.B is poked one by one: its call for many was wrong, it left one out",
    ),
    "budgets": (
        [{"waiting": 5, "backends": "hive", "budget": "50/s", "stretch": 2.0}],
        "5 groups wait for the budget of hive (50/s): it stretches their intervals to 2 times as long",
    ),
    "overrunning": (4, "the last poke of 4 groups overran SENSORPOOL_POKE_TIMEOUT: `show ID` says more"),
    "left_over": ({"overdue": 6, "longest_s": 9.4}, "6 groups wait for a poke, the longest for 9 s"),
    "wait_apart": ({"groups": 7, "longest_s": 8.1}, "7 groups wait to be poked apart, the longest for 8 s"),
    "dags_over_quota": ({"d": 10_001}, "d is over its quota (10,001 sensing): its further sensors are refused"),
    "unsettled": ([{"group_id": 1, "cause": "locked"}], "1 groups whose result cannot be written: locked"),
    "unpublished_s": (12, "results have been waiting to be published for 12 s"),
    "callbacks": (
        [{"waiting": 2, "task": "t.done", "oldest_s": 5, "cause": "no broker"}],
        "2 callbacks of t.done wait to be sent, for 5 s: no broker",
    ),
    "not_here": (
        [{"worker": "w1", "op_classpath": "a.B", "why": "no module"}],
        "w1 cannot poke a.B, other workers have to: no module",
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
    lines |= {"wrong_calls": {FORGED: FORGED}, "dags_over_quota": {FORGED: 10_001}}
    print_status(QUIET | lines)
    said = capsys.readouterr().out
    assert said.count("\\u001b[2J") > len(BUSY)
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
