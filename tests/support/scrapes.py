"""Scrapes of a worker's metrics port, as Prometheus makes them."""

import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

SECONDS = 5.0  # that a scrape may take before it counts as failed


class Sample(NamedTuple):
    """One line of a scrape."""

    name: str
    labels: dict[str, str]
    value: float


def free_port() -> int:
    """Return a port on loopback that is free just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def scrape(port: int) -> list[Sample]:
    """Return what a worker tells; an empty list if it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=SECONDS) as answer:
            text = answer.read().decode()
    except OSError:
        return []
    families = text_string_to_metric_families(text)
    return [Sample(each.name, dict(each.labels), each.value) for family in families for each in family.samples]


def ask(port: int, path: str) -> tuple[int, Any]:
    """Return status and JSON of a probe; 0 and None if nothing answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=SECONDS) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
    except OSError:
        return 0, None


def values(samples: Iterable[Sample], name: str, **labels: str) -> list[float]:
    """Return the values of a metric with these labels."""
    return [each.value for each in samples if each.name == name and labels.items() <= each.labels.items()]


def total(samples: Iterable[Sample], name: str, **labels: str) -> float:
    """Return the sum of a metric's values with these labels, as `sum()` of Prometheus."""
    return sum(values(samples, name, **labels))


def timed(port: int) -> float:
    """Return how many seconds a scrape takes."""
    began = time.monotonic()
    assert scrape(port)
    return time.monotonic() - began
