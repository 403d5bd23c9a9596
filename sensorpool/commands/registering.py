"""``sensorpool register``, ``wait`` and ``cancel``."""

import json
import math
import sys
from collections.abc import Iterator
from typing import IO, Any

import click

from sensorpool.commands.output import json_option, print_json
from sensorpool.errors import KeyConflict, Refused
from sensorpool.identity import parse_context
from sensorpool.plan import Plan
from sensorpool.pool import Pool
from sensorpool.registration import AT_ONCE
from sensorpool.states import State

LONGEST_LINE = 1_000_000  # characters


@click.command()
@click.argument("sensor_class", metavar="[CLASS]", required=False)
@click.argument("context_json", metavar="[CONTEXT_JSON]", required=False)
@click.option(
    "--from",
    "source",
    type=click.File("r", encoding="utf-8", errors="strict"),
    help="JSON lines; - for standard input.",
)
@click.option("--dag-id", help="With --task-id and --run-id: who waits.")
@click.option("--task-id")
@click.option("--run-id")
@click.option("--map-index", type=int, default=-1, show_default=True)
@click.option("--try-number", type=int, default=1, show_default=True)
@click.option("--poke-interval", type=float, help="Seconds.")
@click.option("--timeout", type=float, help="Seconds.")
@click.option("--soft-fail", is_flag=True, help="Skip instead of fail at the timeout.")
@json_option
def register(
    sensor_class: str | None, context_json: str | None, source: IO[str] | None, as_json: bool, **options: Any
) -> None:
    """Register a sensor: CLASS (pkg.mod.Class) waits for what CONTEXT_JSON says.

    With --from, one JSON object a line, with the keys op_classpath, poke_context, dag_id, task_id, run_id, map_index,
    try_number, poke_interval, timeout, soft_fail. Refused lines are reported by number, and the others are registered.
    """
    if source is not None:
        if sensor_class is not None:
            raise click.UsageError("CLASS and --from exclude each other")
        _register_lines(Pool(), source)
        return
    if sensor_class is None or context_json is None:
        raise click.UsageError("name a CLASS and a CONTEXT_JSON, or --from FILE.jsonl")
    pool = Pool()
    instance = pool.register(sensor_class, parse_context(context_json), **options)
    fields = {name: getattr(instance, name) for name in ("id", "hashcode", "shardcode", "group_id", "created", "state")}
    if as_json:
        print_json(fields)
    else:
        word = "registered" if instance.created else f"was registered already, {instance.state}"
        click.echo(f"instance {instance.id} {word} (group {instance.group_id})")


@click.command()
@click.argument("ids", metavar="ID...", type=int, nargs=-1, required=True)
@click.option("--timeout", type=click.FloatRange(min=0), help="Seconds; left out, for ever.")
@json_option
def wait(ids: tuple[int, ...], timeout: float | None, as_json: bool) -> None:
    """Wait until instances are settled. 0 when all of them landed, 1 when one did not (yet)."""
    if timeout is not None and math.isnan(timeout):
        raise click.BadParameter("it is no number of seconds", param_hint="--timeout")
    states = Pool().wait(ids, timeout)
    if as_json:
        print_json({str(instance_id): state for instance_id, state in states.items()})
    else:
        for instance_id, state in states.items():
            click.echo(f"{instance_id} {state}")
    sys.exit(0 if all(state is State.SUCCESS for state in states.values()) else 1)


@click.command()
@click.argument("ids", metavar="ID...", type=int, nargs=-1, required=True)
@click.option("--reason", default="cancelled by hand", show_default=True)
@json_option
def cancel(ids: tuple[int, ...], reason: str, as_json: bool) -> None:
    """Call instances off. 1 when one of them had settled before."""
    pool = Pool()
    states = {instance_id: pool.cancel(instance_id, reason) for instance_id in ids}
    if as_json:
        print_json({str(instance_id): state for instance_id, state in states.items()})
    else:
        for instance_id, state in states.items():
            click.echo(f"{instance_id} {state}")
    sys.exit(0 if all(state is State.CANCELLED for state in states.values()) else 1)


def _register_lines(pool: Pool, source: IO[str]) -> None:
    """Register lines a thousand at a time; whatever is refused is reported by its number."""
    refused: list[dict[str, Any]] = []
    registered = 0
    groups: set[int] = set()
    batch: list[tuple[int, Plan]] = []
    for number, line in _lines(source):
        try:
            batch.append((number, pool.plan(_read_line(line))))
        except Refused as error:
            refused.append({"line": number, "reason": str(error)})
        if len(batch) == AT_ONCE:
            registered += _register_batch(pool, batch, refused, groups)
            batch = []
    registered += _register_batch(pool, batch, refused, groups)
    refused.sort(key=lambda each: each["line"])
    print_json({"registered": registered, "groups": len(groups), "refused": refused})
    sys.exit(1 if refused else 0)


def _register_batch(pool: Pool, batch: list[tuple[int, Plan]], refused: list[dict[str, Any]], groups: set[int]) -> int:
    """Register a batch; where the database holds something against one of them, find it by halves."""
    if not batch:
        return 0
    try:
        instances = pool.register_plans([plan for _, plan in batch])
    except (KeyConflict, Refused) as error:
        if len(batch) == 1:
            refused.append({"line": batch[0][0], "reason": str(error)})
            return 0
        middle = len(batch) // 2
        return sum(_register_batch(pool, half, refused, groups) for half in (batch[:middle], batch[middle:]))
    groups.update(instance.group_id for instance in instances)
    return len(instances)


def _lines(source: IO[str]) -> Iterator[tuple[int, str]]:
    """Read lines; of one that is too long no more than it takes to refuse it is kept in memory."""
    try:
        number = 0
        while line := source.readline(LONGEST_LINE + 2):
            number += 1
            rest = line
            while len(rest) == LONGEST_LINE + 2 and not rest.endswith("\n"):
                rest = source.readline(LONGEST_LINE + 2)
            if line.strip():
                yield number, line
    except UnicodeDecodeError:
        raise Refused(f"{getattr(source, 'name', 'the input')} is not UTF-8 text") from None


def _read_line(line: str) -> dict[str, Any]:
    if len(line) > LONGEST_LINE:
        raise Refused(f"the line has more than {LONGEST_LINE:,} characters")
    try:
        read = parse_context(line)
    except Refused as error:
        raise Refused(
            str(error)
            .replace("a poke_context is a JSON object", "a line is a JSON object")
            .replace("the poke_context", "the line")
        ) from None
    if not isinstance(read.get("poke_context", {}), dict):
        raise Refused(f"poke_context must be a JSON object, not {json.dumps(read['poke_context'])[:40]}")
    return read
