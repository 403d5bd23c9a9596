"""``sensorpool wake``."""

import sys
from typing import IO

import click

from sensorpool.cli.output import json_option, print_json, say
from sensorpool.client import storage_events
from sensorpool.client.pool import Pool
from sensorpool.errors import Refused
from sensorpool.model.identity import parse_context


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
    pool = Pool()
    refused: list[dict[str, object]] = []
    if events is None:
        context = None if context_json is None else parse_context(context_json)
        woken = pool.wake(sensor_class, context, prefix=prefix, location=location)
    else:
        woken = 0
        for number, line in enumerate(events, 1):
            if line.strip():
                try:
                    woken += pool.wake_all(storage_events.read(line.strip()))
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
