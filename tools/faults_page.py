"""Write the figures of the faults and of the soak into docs/guarantees.md.

SENSORPOOL_TEST_FAULTS_TABLE=benchmarks/results/faults.json make faults; python -m benchmarks.soak; then this.
"""

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "guarantees.md"
RESULTS = ROOT / "benchmarks" / "results"


def main() -> None:
    """Write both tables."""
    text = PAGE.read_text()
    for name, table in (("faults", faults(_read("faults"))), ("soak", soak(_read("soak")))):
        text = re.sub(
            rf"<!-- {name} -->.*<!-- /{name} -->",
            lambda _, n=name, t=table: f"<!-- {n} -->\n{t}<!-- /{n} -->",
            text,
            flags=re.DOTALL,
        )
    PAGE.write_text(text)


def faults(records: list[dict[str, Any]]) -> str:
    """Return what came of all trials, and a row for each fault: its variants, and the slowest recovery of them."""
    runs, sensors = (sum(record[name] for record in records) for name in ("runs", "sensors"))
    lost, doubled, wrong = (sum(record[name] for record in records) for name in ("lost", "doubled", "wrong"))
    lines = [
        f"In {runs} runs with {sensors:,} sensors, {lost} were lost, {doubled} doubled and {wrong} wrongly failed.\n",
        "| fault | slowest recovery |",
        "| --- | ---: |",
    ]
    numbers = dict.fromkeys(record["fault"].split()[0] for record in records)
    for number in sorted(numbers, key=int):
        of_it = [record for record in records if record["fault"].split()[0] == number]
        times = [each for record in of_it for each in record["recovery"]]
        names = "<br>".join(_name(record) for record in of_it)
        lines.append(f"| {number} {names} | {f'{max(times):.2f}' if times else ''} |")
    return "\n".join(lines) + "\n"


def _name(record: dict[str, Any]) -> str:
    """Return the name of a fault, without its number, and what it has cost."""
    name = re.sub(r" \((recovery: how late the others were|the others' lateness)\)", "", record["fault"])
    cost = [kind for kind in ("lost", "doubled", "wrong") if record[kind]]
    return name.partition(" ")[2] + (f" **({', '.join(cost)})**" if cost else "")


def soak(found: dict[str, Any]) -> str:
    """Return the figures of the soak, in words."""
    first, last = found["samples"][4], found["samples"][-1]
    p50, p99, most = found["true to settled, intervals, p50/p99/max"]
    size = f"{found['sensors']:,} sensors on {found['groups']:,} groups every {found['interval']:g} s"
    missed, early = found["missed intervals"], found["twice in an interval"]
    longest = found["longest time between pokes, intervals"]
    lines = (
        f"**The soak** (`python -m benchmarks.soak`) ran for {found['minutes']:g} minutes with {size}.",
        f"It had {found['kills']} kills, one a minute (a child, a whole worker, beat, in turn).",
        f"Of {found['pokes']:,} pokes {early} came too early, in batches whose worker died.",
        f"{missed} intervals were missed, and the longest time between two pokes of a group was {longest} intervals.",
        f"{found['landed']:,} conditions landed: {found['lost']} lost, {found['doubled']} doubled,",
        f"{found['wrongly failed']} wrongly failed.",
        f"They settled after {p50} (p50), {p99} (p99), {most} (max) intervals.",
        f"Memory grew from {first['MiB']:g} to {last['MiB']:g} MiB after the fifth minute.",
    )
    return "\n".join(lines) + "\n"


def _read(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


if __name__ == "__main__":
    main()
