"""Run the benchmarks: each starts its servers, prints a table, and writes its figures below ``results/``."""

import importlib
import shlex
import sys
import time

import click

from benchmarks import report
from benchmarks.code_version import code_version

QUESTIONS = {
    "airbnb": "20,000 sensors on 12,000 groups, pokes of 100 ms: processes, CPU, missed intervals, latency",
    "million": "from 1,000 sensors to (--full) a million: registration, CPU, memory, statements, cold start",
    "overhead": "CPU of a poke above the bare call, by kind of poke and number of groups",
    "settle": "10,000 landed groups at once; 5,000 duplicates of one; 10,000 timeouts",
    "record": "what the record of ended conditions adds to a settled row",
    "register": "one at a time, from 8 processes, in bulk, at midnight",
    "cold": "a process that registers once and ends, and `sensorpool status`, beside the libraries that they import",
    "idle": "CPU while nothing is due, and with few sensors, above an idle Celery worker and beat",
    "scale": "workers and shards",
    "latency": "from a true condition to the settled row and to the message",
    "hanging": "a backend that hangs for 1,000 groups: when they time out, how late healthy ones are, what it takes",
    "backends": "a backend with a budget of 50 calls a second, what a budget costs, and an outage",
    "adaptive": "pokes spared and latency paid by adaptive intervals, on a simulated month of daily partitions",
    "sizes": "what instances take in PostgreSQL, and what autovacuum keeps of it",
    "hotpath": "where the CPU of a worker goes, by a sampling profiler",
}


@click.command(help=__doc__)
@click.argument("questions", nargs=-1, type=click.Choice(list(QUESTIONS)))
@click.option("--full", is_flag=True, help="At full size: an hour.")
@click.option("--go-on", is_flag=True, help="Leave out what was measured already, of the same commit.")
def main(questions: tuple[str, ...], full: bool, go_on: bool) -> None:
    """Run the benchmarks of the command line."""
    failed, code = [], code_version()
    if go_on and code is None:
        report.console.print("the code has changes that are in no commit: all is measured")
    for question in questions or QUESTIONS:
        command = f"python -m benchmarks {question}" + (" --full" if full else "")
        if go_on and report.is_measured(question, command, code):
            report.console.print(f"[bold]{question}[/bold]: measured already")
            continue
        report.console.print(f"[bold]{question}[/bold]: {QUESTIONS[question]}")
        began = time.monotonic()
        module = importlib.import_module(f"benchmarks.{question}")
        rows: list[report.Row] = []
        try:
            for row in module.run(full):
                report.console.print(f"  {row['case']}: done after {time.monotonic() - began:.0f} s")
                rows.append(row)
        except report.Failed as error:
            report.console.print(f"[red]{question}: {error}[/red]")
            failed.append(question)
        report.show(f"{question} ({shlex.join(command.split())}, {time.monotonic() - began:.0f} s)", rows)
        report.write(question, rows, command, code=None if question in failed else code)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
