"""A trigger that keeps what it says to the log of its task."""

from typing import Any

from sensorpool.airflow.trigger import PoolTrigger


class Told(PoolTrigger):
    """Keeps its lines; so a test sees when its instance has been looked up, and waits."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.lines: list[str] = []

    @property
    def log(self) -> "Told":
        """The log of its task."""
        return self

    def info(self, message: str, *arguments: Any) -> None:
        """Keep a line."""
        self.lines.append(message % arguments)

    warning = info

    @property
    def waits(self) -> bool:
        """Whether its first line has come."""
        return any(line.startswith(f"sensorpool: instance {self.instance_id} waits in the pool") for line in self.lines)
