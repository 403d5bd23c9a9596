"""``sensorpool register``, ``wait`` and ``cancel``."""

import json
import re
import sys
from dataclasses import dataclass, field
from typing import IO, Any

import click
from click.core import ParameterSource

from sensorpool.cli.output import NumberRange, json_option, print_apart, print_json, say
from sensorpool.client.pool import Pool
from sensorpool.client.register import AT_ONCE
from sensorpool.client.validate import CheckedRegistration
from sensorpool.errors import KeyConflict, Refused
from sensorpool.model.identity import parse_context
from sensorpool.model.states import State

LONGEST_LINE = 1_000_000  # characters
_NO_TEXT = re.compile("[\udc80-\udcff]")  # `surrogateescape` makes these of bytes that are no UTF-8


@click.command()
@click.argument("sensor_class", metavar="[CLASS]", required=False)
@click.argument("context_json", metavar="[CONTEXT_JSON]", required=False)
@click.option(
    "--from",
    "source",
    type=click.File("r", encoding="utf-8", errors="surrogateescape"),  # a line that is no text is refused alone
    help="A file of JSON lines; - is standard input.",
)
@click.option("--dag-id", help="With --task-id and --run-id: the key. Registering it again returns the same instance.")
@click.option("--task-id", help="Part of the key.")
@click.option("--run-id", help="Part of the key.")
@click.option("--map-index", type=int, default=-1, show_default=True, help="Part of the key.")
@click.option("--try-number", type=int, default=1, show_default=True, help="A higher try cancels a lower one.")
@click.option("--poke-interval", type=float, help="Seconds; SENSORPOOL_POKE_INTERVAL if left out.")
@click.option("--timeout", type=float, help="Seconds; SENSORPOOL_TIMEOUT if left out.")
@click.option("--logical-date", help="The date of the condition, if it is one of a series: 2030-01-31T00:00:00+00:00.")
@click.option("--family", help="The name of that series: what is usual in it is known of its earlier landings.")
@click.option("--soft-fail", is_flag=True, help="End as skipped, not as failed, at the timeout and by FailSensor.")
@json_option
def register(
    sensor_class: str | None, context_json: str | None, source: IO[str] | None, as_json: bool, **options: Any
) -> None:
    """Register a sensor: CLASS (pkg.mod.Class) waits for what CONTEXT_JSON says.

    With --from, the file has one JSON object a line: the arguments of sensorpool.register, with op_classpath in place
    of sensor. Refused lines are reported by number, and the others are registered, a thousand at a time. Ctrl-C
    ends the command, and the count may lack the last thousand.
    """
    if source is not None:
        if sensor_class is not None:
            raise click.UsageError("CLASS and --from exclude each other")
        source_of = click.get_current_context().get_parameter_source
        for name in options:
            if source_of(name) is ParameterSource.COMMANDLINE:
                raise click.UsageError(f"--{name.replace('_', '-')} does not go with --from: name it in the lines")
        _register_lines(source)
        return
    if sensor_class is None or context_json is None:
        raise click.UsageError("name a CLASS and a CONTEXT_JSON, or --from FILE.jsonl")
    context = parse_context(context_json)
    with print_apart():
        instance = Pool().register(sensor_class, context, **options)
    fields = {name: getattr(instance, name) for name in ("id", "hashcode", "shardcode", "group_id", "created", "state")}
    if as_json:
        print_json(fields)
    else:
        word = "registered" if instance.created else f"was registered already, {instance.state}"
        say(f"instance {instance.id} {word} (group {instance.group_id})")


@click.command()
@click.argument("ids", metavar="ID...", type=int, nargs=-1, required=True)
@click.option("--timeout", type=NumberRange(min=0), help="Seconds; without it the command waits for ever.")
@json_option
def wait(ids: tuple[int, ...], timeout: float | None, as_json: bool) -> None:
    """Wait until instances are settled. The exit code is 0 if all of them landed, otherwise 1."""
    states = Pool().wait(ids, timeout)
    if as_json:
        print_json({str(instance_id): state for instance_id, state in states.items()})
    else:
        for instance_id, state in states.items():
            say(f"{instance_id} {state}")
    sys.exit(0 if all(state is State.SUCCESS for state in states.values()) else 1)


@click.command()
@click.argument("ids", metavar="ID...", type=int, nargs=-1, required=True)
@click.option("--reason", default="cancelled by hand", show_default=True, help="The reason that `show` shows.")
@json_option
def cancel(ids: tuple[int, ...], reason: str, as_json: bool) -> None:
    """Cancel instances; none if an ID does not exist. The exit code is 1 then, or if an instance had settled before."""
    from sensorpool.admin import instances

    pool = Pool()
    for instance_id in ids:
        instances.instance(pool, instance_id)
    states: dict[int, State] = {}
    try:
        for instance_id in ids:
            states[instance_id] = pool.cancel(instance_id, reason)
            if not as_json:
                say(f"{instance_id} {states[instance_id]}")
    finally:
        if as_json:
            print_json({str(instance_id): state for instance_id, state in states.items()})
    sys.exit(0 if all(state is State.CANCELLED for state in states.values()) else 1)


@dataclass(slots=True)
class _Count:
    """The results of the lines."""

    registered: int = 0
    groups: set[int] = field(default_factory=set)
    refused: list[dict[str, Any]] = field(default_factory=list)
    read: int = 0
    stopped: str = ""

    def say(self) -> None:
        """Print the results."""
        self.refused.sort(key=lambda each: int(each["line"]))
        said = {"registered": self.registered, "groups": len(self.groups), "refused": self.refused}
        print_json(said | ({"stopped": self.stopped} if self.stopped else {}))


def _register_lines(source: IO[str]) -> None:
    """Register lines, and say what came of them; a refused line is reported by its number."""
    count = _Count()
    try:
        with print_apart():
            _take_lines(Pool(), source, count)
    except KeyboardInterrupt:
        count.stopped = f"interrupted at line {count.read}: the last lines before it may be unregistered"
    except BaseException:
        count.stopped = f"an error at line {count.read}"
        count.say()
        raise
    count.say()
    sys.exit(1 if count.refused or count.stopped else 0)


def _take_lines(pool: Pool, source: IO[str], count: _Count) -> None:
    """Register lines, a thousand at a time."""
    batch: list[tuple[int, CheckedRegistration]] = []
    for count.read, line in enumerate(iter(lambda: _next_line(source), ""), 1):
        try:
            if line.strip():
                batch.append((count.read, pool.check(_read_line(line))))
        except Refused as error:
            count.refused.append({"line": count.read, "reason": str(error)})
        if len(batch) == AT_ONCE:
            _register_batch(pool, batch, count)
            batch = []
    _register_batch(pool, batch, count)


def _register_batch(pool: Pool, batch: list[tuple[int, CheckedRegistration]], count: _Count) -> None:
    """Register a batch; if the database refuses it, halve it until the refused line stands alone."""
    if not batch:
        return
    try:
        instances = pool.register_checked([checked for _, checked in batch])
    except (KeyConflict, Refused) as error:
        if len(batch) == 1:
            count.refused.append({"line": batch[0][0], "reason": str(error)})
            return
        middle = len(batch) // 2
        for half in (batch[:middle], batch[middle:]):
            _register_batch(pool, half, count)
        return
    count.registered += len(instances)
    count.groups.update(instance.group_id for instance in instances)


def _next_line(source: IO[str]) -> str:
    """Return the next line; of one that is too long, only as much as refuses it is kept in memory."""
    line = rest = source.readline(LONGEST_LINE + 2)
    while len(rest) == LONGEST_LINE + 2 and not rest.endswith("\n"):
        rest = source.readline(LONGEST_LINE + 2)
    return line


def _read_line(line: str) -> dict[str, Any]:
    if len(line) > LONGEST_LINE:
        raise Refused(f"the line has more than {LONGEST_LINE:,} characters")
    if _NO_TEXT.search(line):
        raise Refused("the line is not UTF-8 text")
    read = parse_context(line)
    if not isinstance(read.get("poke_context", {}), dict):
        raise Refused(f"poke_context must be a JSON object, not {json.dumps(read['poke_context'])[:40]}")
    return read
