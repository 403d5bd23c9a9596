"""The sensor of the benchmarks' DAGs: it waits for files in the work folder, and knows nothing of sensorpool."""

import os
from pathlib import Path
from typing import Any

from airflow.sdk.bases.sensor import BaseSensorOperator

WORK = Path(os.environ.get("CLUSTER_WORK", "."))


class FlagSensor(BaseSensorOperator):
    """Waits for a file, and counts its pokes.

    :param flag: name of the file in the work folder.
    """

    template_fields = ("flag",)

    def __init__(self, *, flag: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.flag = flag

    def poke(self, context: Any) -> bool:  # noqa: ARG002  # the signature of sensors
        """Look for the file."""
        count("pokes")
        return (WORK / self.flag).exists()


def count(what: str) -> None:
    """Count one more, as a line in a file: in one write, because many processes write at once."""
    file = os.open(WORK / what, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(file, b"1\n")
    finally:
        os.close(file)


def on_success(context: Any) -> None:  # noqa: ARG001  # the signature of callbacks
    """Count an end."""
    count("ends")
