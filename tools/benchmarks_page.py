"""Write ``docs/benchmarks.md`` and its plots from the figures below ``benchmarks/results``: needs matplotlib."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot

ROOT = Path(__file__).parents[1]
RESULTS, PAGE, PLOTS = ROOT / "benchmarks" / "results", ROOT / "docs" / "benchmarks.md", ROOT / "docs" / "plots"
TEXT = ROOT / "tools" / "benchmarks_page.md"

Rows = list[dict[str, Any]]

# what the results keep, and the page leaves out: parts of a figure, and what a case says by its name
_LEFT_OUT = re.compile(
    "by part|by worker|of that|CPU, % of one core|registration|(sensors|groups|rows|landed|interval, s|processes)$"
    "|worker processes|pokes (a second|saved)|states|lines of log|failed|fairness between groups|triggerer, open files"
    "|(mean|longest) above|conditions$|latency, s: p99|settled to heard|all wait after|first settled"
    "|calls (that it|during)|seconds( to|$)|calls in a second (most|afterwards)"
)


def main() -> None:
    """Write the page: the text, with its tables and plots in their places."""
    read = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
    measured, few = (read.pop(name, {}) for name in ("peers", "peers_few"))
    found = {name: each for name, each in read.items() if isinstance(each, dict) and "rows" in each}
    PLOTS.mkdir(exist_ok=True)
    matplotlib.rcParams["svg.hashsalt"] = "sensorpool"  # the same figures give the same file
    text = TEXT.read_text()
    places: dict[str, Callable[[], str]] = {
        "machine": lambda: machine(found),
        "budgets": lambda: budgets(found),
        "peers": lambda: peers(measured),
        "peers_few": lambda: peers(few),
        **{name: lambda name=name: table(found[name]) for name in found},  # type: ignore[misc]
        "plot growth": lambda: growth(found["million"]["rows"]),
        "plot overhead": lambda: bars("overhead", found["overhead"]["rows"], "above the bare call, µs", "µs of CPU"),
        "plot hotpath": lambda: shares(found["hotpath"]["rows"]),
    }
    for name, fill in places.items():
        mark = f"<!-- {name} -->"
        if mark in text:
            text = text.replace(mark, fill())
    PAGE.write_text(text)


def machine(found: dict[str, Any]) -> str:
    """Return the machine on which the figures were taken, and how quick and slow its hours were."""
    of = found["overhead"]["machine"]
    rounds = [each["machine"]["nanoseconds_a_loop"] for each in found.values() if "machine" in each]
    return (
        f"{of['cores']} shared virtual cores, {of['memory_gib']} GiB, Python {of['python']}.\nA round of an empty "
        f"Python loop takes {min(rounds):.0f} to {max(rounds):.0f} ns there"
    )


def table(result: dict[str, Any]) -> str:
    """Return the figures of a benchmark, with a column for each case."""
    rows: Rows = result["rows"]
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name != "case"]
    names = [name for name in names if not _LEFT_OUT.match(name)]
    lines = [
        "| | " + " | ".join(row["case"] for row in rows) + " |",
        "| --- |" + " ---: |" * len(rows),
        *(f"| {name} | " + " | ".join(said(row.get(name)) for row in rows) + " |" for name in names),
    ]
    took = f", {nanoseconds} ns a round" if (nanoseconds := _nanoseconds(result)) else ""
    return f"`{result['command']}` ({result['date']}{took})\n\n" + "\n".join(lines)


def said(value: Any) -> str:
    """Return a figure as text."""
    match value:
        case None:
            return ""
        case bool() | str():
            return str(value)
        case float():
            return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
        case int():
            return f"{value:,}"
        case dict():
            return "<br>".join(f"{name} {said(each)}" for name, each in value.items())
        case list():
            return " / ".join(map(said, value))
    return str(value)


def budgets(found: dict[str, Any]) -> str:
    """Return the table that compares the figures with the budgets of the design."""

    def figure(question: str, start: str, name: str) -> tuple[float | None, str]:
        """Return the figure of the last case whose name begins so, and what a round of the empty loop took then."""
        result = found.get(question, {"rows": []})
        values = [row.get(name) for row in result["rows"] if str(row["case"]).startswith(start)]
        value = values[-1] if values else None
        return (None if value is None else float(value)), _nanoseconds(result)

    lines: list[tuple[str, tuple[float | None, str], float, str]] = [
        ("20,000 sensors, 100 ms, 180 s: a core", figure("airbnb", "every 180", "CPU in all, % of one core"), 5, "%"),
        ("the same: missed intervals", figure("airbnb", "every", "missed intervals"), 0, ""),
        ("1,000,000 sensors, 180 s: a core", figure("million", "1,000,000", "CPU in all, % of one core"), 15, "%"),
        ("the same: KB a resident group", _kilo(*figure("million", "1,000,000", "bytes a resident group")), 1.5, "KB"),
        ("no-op poke at saturation", _least(found["overhead"], "no-op, "), 3, "µs"),
        ("100 ms poke, everything included", figure("overhead", "100 ms, ", "CPU of a poke, µs"), 40, "µs"),
        ("the same, by coroutine", figure("overhead", "100 ms async", "CPU of a poke, µs"), 40, "µs"),
        ("settle, 10,000 landed groups: a row", figure("settle", "10,000 groups", "CPU of a row, µs"), 20, "µs"),
        ("settle, duplicates: a row", figure("settle", "20,000", "CPU of a row, µs"), 20, "µs"),
        ("bulk register: a row", figure("register", "100,000 in bulk, 60%", "CPU of a row, µs"), 25, "µs"),
        ("single register", figure("register", "one at a time", "CPU of a row, µs"), 500, "µs"),
        ("statements a range and tick", figure("million", "1,000 ev", "statements a range and tick"), 4, ""),
        ("true to settled, above half an interval and half a tick (mean)",
         figure("latency", "interval 5", "mean above half an interval and half a tick, ms"), 60, "ms"),
        ("true to settled, above an interval and a tick (longest)",
         figure("latency", "interval 5", "longest above an interval and a tick, ms"), 200, "ms"),
        ("10,000 sensors of Airflow: CPU of a life", figure("airflow_begin", "", "CPU of a life, ms"), 60, "ms"),
        ("the same: the triggerer's memory, a sensor",
         figure("airflow_begin", "", "triggerer, KB a waiting sensor"), 40, "KB"),
        ("the same: true to success, 99 of 100", figure("airflow_begin", "", "true to success p99, s"), 12, "s"),
    ]  # fmt: skip
    rows = [
        f"| {what} | {limit:g} {unit} | {_measured(value, unit)} | {nanoseconds} | "
        f"{'' if value is None else 'met' if value <= limit else 'missed'} |"
        for what, (value, nanoseconds), limit, unit in lines
    ]
    return "| budget | at most | measured | ns a round | |\n| --- | ---: | ---: | ---: | --- |\n" + "\n".join(rows)


def _measured(value: float | None, unit: str) -> str:
    """Return a figure with its unit; one that is less than nothing is what was left of a bound."""
    if value is None:
        return "not measured"
    return f"{said(value)} {unit}" if value >= 0 else f"nothing: {said(-value)} {unit} less"


def _kilo(value: float | None, nanoseconds: str) -> tuple[float | None, str]:
    return (None if value is None else value / 1000), nanoseconds


def _least(result: dict[str, Any], start: str) -> tuple[float | None, str]:
    figures = [row["CPU of a poke, µs"] for row in result["rows"] if str(row["case"]).startswith(start)]
    return min(figures, default=None), _nanoseconds(result)


def _nanoseconds(result: dict[str, Any]) -> str:
    """Return what a round of the empty loop took when something was measured."""
    return f"{result['machine']['nanoseconds_a_loop']:.0f}" if "machine" in result else ""


def peers(found: dict[str, dict[str, Any]]) -> str:
    """Return the table of the peers, each with its ratio to ours."""
    if "sensorpool" not in found:
        return "Not measured yet."
    ours = found["sensorpool"]["cpu_us_per_unique_poke"]
    lines = [
        "| peer | version | sensors | every, s | µs of CPU a poke | a unique poke | ratio | one core, % "
        "| taken off, % | MB | transactions a poke |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in sorted(found.values(), key=lambda row: float(row["cpu_us_per_unique_poke"])):
        fewer = " (fewer)" if row["extrapolated"] else ""
        figures = (row["cpu_us_per_poke"], row["cpu_us_per_unique_poke"], row["cpu_us_per_unique_poke"] / ours)
        share, idle = 100 * sum(row["cpu_s"].values()) / row["window_s"], row.get("idle_cpu_s_per_s")
        more = (
            share,
            None if idle is None else 100 * idle,
            row["memory_bytes"] / 1e6,
            None if (made := row.get("db_transactions_per_poke")) is None else max(0.0, made),  # less those of idle
        )
        lines.append(
            f"| {row['peer']} | {row['version']} | {row['sensors']:,}{fewer} | {row['interval_s']:g} | "
            + " | ".join(said(None if value is None else float(value)) for value in (*figures, *more))
            + " |"
        )
    return "\n".join(lines)


def growth(rows: Rows) -> str:
    """Plot how CPU and memory grow with the number of sensors."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.6))
    scaled = [row for row in rows if row["interval, s"] < 100]
    slow = [row for row in rows if row["interval, s"] >= 100]
    for some, mark, label in ((scaled, "o-", "every 18 s"), (slow, "s", "every 180 s")):
        if some:
            sensors = [row["sensors"] for row in some]
            left.plot(sensors, [row["CPU in all, % of one core"] for row in some], mark, label=label)
            right.plot(sensors, [row["memory of a worker, MB"] for row in some], mark, label=label)
    for axes, name in ((left, "CPU of everything, % of one core"), (right, "memory of the worker, MB")):
        axes.set(xscale="log", xlabel="sensors (40 % duplicates)", ylabel=name, ylim=(0, None))
        axes.grid(alpha=0.3)
        axes.legend()
    return _save(figure, "growth")


def bars(name: str, rows: Rows, key: str, label: str) -> str:
    """Plot one figure of each case."""
    figure, axes = pyplot.subplots(figsize=(8, 0.4 * len(rows) + 1))
    axes.barh([row["case"] for row in rows], [row[key] for row in rows])
    for place, row in enumerate(rows):
        axes.text(row[key], place, f" {said(float(row[key]))}", va="center")
    axes.invert_yaxis()
    axes.set(xlabel=label, xlim=(0, 1.15 * max(row[key] for row in rows)))
    return _save(figure, name)


def shares(rows: Rows) -> str:
    """Plot the shares of the samples of each case."""
    figure, axes = pyplot.subplots(figsize=(9, 0.6 * len(rows) + 1.6))
    parts = list(dict.fromkeys(part for row in rows for part in row["share of the samples, %"]))
    done = [0.0] * len(rows)
    for part in parts:
        widths = [row["share of the samples, %"].get(part, 0.0) for row in rows]
        axes.barh([row["case"] for row in rows], widths, left=done, label=part)
        done = [was + width for was, width in zip(done, widths, strict=True)]
    axes.invert_yaxis()
    axes.set(xlabel="% of the samples")
    axes.legend(ncols=5, loc="upper center", bbox_to_anchor=(0.4, -0.25), fontsize=8)
    return _save(figure, "hotpath")


def _save(figure: Any, name: str) -> str:
    figure.tight_layout()
    figure.savefig(PLOTS / f"{name}.svg", metadata={"Date": None})
    pyplot.close(figure)
    return f"![{name}](plots/{name}.svg)"


if __name__ == "__main__":
    main()
