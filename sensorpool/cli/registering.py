"""``sensorpool register``, ``wait``, ``cancel`` and ``wake``."""

import sys
from typing import IO, Any

import click
from click.core import ParameterSource

from sensorpool.cli.output import json_option, print_json, say
from sensorpool.client.pool import Pool
from sensorpool.client.register import AT_ONCE
from sensorpool.client.validate import CheckedRegistration
from sensorpool.client.wake import read_event
from sensorpool.errors import Refused
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.identity import parse_context
from sensorpool.model.states import State

LONGEST_LINE = 1_000_000  # bytes


@click.command()
@click.argument("sensor_class", metavar="[CLASS]", required=False)
@click.argument("context_json", metavar="[CONTEXT_JSON]", required=False)
@click.option("--from", "source", type=click.File("rb"), help="A file of JSON lines; - is standard input.")
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
    sensor_class: str | None, context_json: str | None, source: IO[bytes] | None, as_json: bool, **options: Any
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
        made = _Lines().take(source)
        print_json(made)
        sys.exit(1 if made["refused"] or "stopped" in made else 0)
    if sensor_class is None or context_json is None:
        raise click.UsageError("name a CLASS and a CONTEXT_JSON, or --from FILE.jsonl")
    context = parse_context(context_json)
    instance = Pool().register(sensor_class, context, **options)
    fields = {name: getattr(instance, name) for name in ("id", "hashcode", "shardcode", "group_id", "created", "state")}
    if as_json:
        print_json(fields)
    else:
        word = "registered" if instance.created else f"was registered already, {instance.state}"
        say(f"instance {instance.id} {word} (group {instance.group_id})")


@click.command()
@click.argument("ids", metavar="ID...", type=int, nargs=-1, required=True)
@click.option("--timeout", type=click.FloatRange(min=0), help="Seconds; without it the command waits for ever.")
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


@click.command()
@click.argument("sensor_class", metavar="[CLASS]", required=False)
@click.argument("context_json", metavar="[CONTEXT_JSON]", required=False)
@click.option("--prefix", help="Wake all conditions whose location begins so: s3://bucket/day=1/.")
@click.option("--location", help="Wake what waits for this object, or for something in a folder above it.")
@click.option("--events", type=click.File("rb"), help="A file with one event of a bucket a line; - is standard input.")
@json_option
def wake(
    sensor_class: str | None,
    context_json: str | None,
    prefix: str | None,
    location: str | None,
    events: IO[bytes] | None,
    as_json: bool,
) -> None:
    """Have conditions poked at once, because they may hold now: the one of CLASS and CONTEXT_JSON, or those at a place.

    What is not true yet waits on as before. With --events, each line is an event of S3 or of Cloud Storage, as SQS,
    SNS, EventBridge or Pub/Sub brings it; a line that is none is reported by its number, and the exit code is 1.
    """
    if (sensor_class is not None) + (prefix is not None) + (location is not None) + (events is not None) != 1:
        raise click.UsageError("name one of these: CLASS with CONTEXT_JSON, --prefix, --location, --events")
    pool, woken = Pool(), 0
    refused: list[dict[str, Any]] = []
    if events is None:
        context = None if context_json is None else parse_context(context_json)
        woken = pool.wake(sensor_class, context, prefix=prefix, location=location)
    for number, line in enumerate(events or (), 1):
        if line.strip():
            try:
                woken += pool.wake_all(read_event(line.strip()))
            except Refused as error:
                refused.append({"line": number, "reason": str(error)})
    pool.close()
    if as_json:
        print_json({"woken": woken, "refused": refused})
    else:
        say(f"{woken} {'condition is' if woken == 1 else 'conditions are'} poked at once")
        for each in refused:
            say(f"line {each['line']}: {each['reason']}", err=True)
    sys.exit(1 if refused else 0)


class _Lines:
    """Registers lines, a thousand at a time."""

    def __init__(self) -> None:
        self._pool = Pool()
        self._registered = 0
        self._groups: set[int] = set()
        self._refused: list[dict[str, Any]] = []

    def take(self, source: IO[bytes]) -> dict[str, Any]:
        """Register lines; return the counts, the refused lines, and what ended the command before the last line."""
        batch: list[tuple[int, CheckedRegistration]] = []
        number, stopped = 0, {}
        try:
            for number, line in enumerate(iter(lambda: source.readline(LONGEST_LINE), b""), 1):
                if len(line) == LONGEST_LINE:
                    stopped = {"stopped": f"line {number} has {LONGEST_LINE:,} bytes or more"}
                    break
                if line.strip():
                    try:
                        batch.append((number, self._pool.check(_read_line(line))))
                    except Refused as error:
                        self._refuse(number, error)
                if len(batch) == AT_ONCE:
                    self._register(batch)
                    batch = []
            self._register(batch)
        except KeyboardInterrupt:
            stopped = {"stopped": f"interrupted at line {number}: the last lines before it may be unregistered"}
        except Exception as error:
            stopped = {"stopped": f"an error at line {number}: {one_line(error)}"}
        self._refused.sort(key=lambda each: int(each["line"]))
        return {"registered": self._registered, "groups": len(self._groups), "refused": self._refused} | stopped

    def _register(self, batch: list[tuple[int, CheckedRegistration]]) -> None:
        """Register a batch; if it is refused, halve it until the refused line stands alone."""
        try:
            instances = self._pool.register_checked([checked for _, checked in batch])
        except Refused as error:
            if len(batch) == 1:
                self._refuse(batch[0][0], error)
                return
            middle = len(batch) // 2
            for half in (batch[:middle], batch[middle:]):
                self._register(half)
            return
        self._registered += len(instances)
        self._groups.update(instance.group_id for instance in instances)

    def _refuse(self, number: int, error: Refused) -> None:
        self._refused.append({"line": number, "reason": str(error)})


def _read_line(line: bytes) -> dict[str, Any]:
    try:
        return parse_context(line.decode())
    except UnicodeDecodeError:
        raise Refused("the line is not UTF-8 text") from None
