"""The results of a benchmark: rows for a table on the terminal, and for a file."""

import json
import platform
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

Row = dict[str, Any]
RESULTS = Path(__file__).parent / "results"

console = Console(soft_wrap=True)


class Failed(Exception):
    """A case did not do its work, so its figures would be worthless."""


def demand(holds: bool, what: str) -> None:
    """Check a fact of a case.

    :raises Failed: when it does not hold.
    """
    if not holds:
        raise Failed(what)


def show(question: str, rows: Sequence[Row]) -> None:
    """Print a table, with a column for each case if there are few cases."""
    table = Table(title=question, title_justify="left")
    table.add_column("")
    names = list(dict.fromkeys(name for row in rows for name in row))
    for row in rows:
        table.add_column(str(row.get("case", "")), justify="right")
    for name in names:
        if name != "case":
            table.add_row(name, *(said(row.get(name, "")) for row in rows))
    if rows:
        console.print(table)


def said(value: object) -> str:
    """Return a value as a short text."""
    match value:
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
        case int():
            return f"{value:,}"
        case dict():
            return "\n".join(f"{name} {said(each)}" for name, each in value.items())
        case list() | tuple():
            return " / ".join(map(said, value))
    return str(value)


def write(question: str, rows: Iterable[Row], command: str, *, code: str | None = None) -> Path:
    """Write the rows as JSON, with the machine and the command of the run.

    :param code: the version of the code, of which these are all rows; None: it is not known, or rows are missing.
    """
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{question}.json"
    found = {
        "question": question,
        "command": command,
        "code": code,
        "date": time.strftime("%Y-%m-%d"),
        "machine": {
            "cores": psutil.cpu_count(),
            "memory_gib": round(psutil.virtual_memory().total / 2**30),
            "python": platform.python_version(),
            "nanoseconds_a_loop": round(loop_speed() * 1e9, 1),
        },
        "rows": list(rows),
    }
    path.write_text(json.dumps(found, indent=1, default=str) + "\n")
    return path


def is_measured(question: str, command: str, code: str | None) -> bool:
    """Whether all rows of a question were written by this command for this version of the code."""
    try:
        found = json.loads((RESULTS / f"{question}.json").read_text())
        return code is not None and (found["code"], found["command"]) == (code, command)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def loop_speed() -> float:
    """Return the CPU seconds of one round of an empty loop, for the comparison with other machines."""
    began = time.process_time()
    for _ in range(2_000_000):
        pass
    return (time.process_time() - began) / 2_000_000


def quantiles(values: Sequence[float]) -> Row:
    """Return p50, p99 and the maximum."""
    ordered = sorted(values)
    if not ordered:
        return {"p50": None, "p99": None, "max": None}
    return {
        "p50": round(ordered[len(ordered) // 2], 3),
        "p99": round(ordered[int(len(ordered) * 0.99)], 3),
        "max": round(ordered[-1], 3),
    }
