"""What is said: one line an event, with its figures as fields, and no secret in it."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from sensorpool.redaction import hide, printable

ROOT = "sensorpool"


class Logger:
    """A logger whose events carry fields: ``log.info("settled", groups=3)``."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, **fields: Any) -> None:
        """Log an event that only a developer wants."""
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """Log an event."""
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Log an event that somebody should look at some day."""
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Log an event that somebody should look at now."""
        self._log(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """Log an event with the exception that is being handled."""
        self._log(logging.ERROR, event, fields, exc_info=True)

    def _log(self, level: int, event: str, fields: dict[str, Any], exc_info: bool = False) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s", event, extra={"fields": fields}, exc_info=exc_info)


def logger(name: str) -> Logger:
    """Return the logger of a module."""
    return Logger(name)


class TextFormatter(logging.Formatter):
    """``time level event key=value …``; below it, set off, the traceback of an exception."""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={_spell(_hidden(value))}" for name, value in getattr(record, "fields", {}).items())
        line = f"{_time(record)} {record.levelname.lower()} {record.name}: {printable(record.getMessage())}{fields}"
        line = hide(line)
        if record.exc_info:
            # set off and escaped, so that no exception's text can pass for a line of ours
            trace = hide(self.formatException(record.exc_info)).split("\n")
            line = "\n".join([line, *(f"    {printable(each)}" for each in trace)])
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, event, and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": hide(record.getMessage()),
            **{name: _hidden(value) for name, value in getattr(record, "fields", {}).items()},
        }
        if record.exc_info:
            entry["exception"] = hide(self.formatException(record.exc_info))
        return printable(json.dumps(entry, default=str, ensure_ascii=False))


def formatter(log_format: str) -> logging.Formatter:
    """Return the formatter of a setting."""
    return JsonFormatter() if log_format == "json" else TextFormatter()


def configure(log_format: str, log_level: str) -> None:
    """Log to standard error. For processes of our own; a worker configures Celery's logging with `formatter`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(log_format))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(log_level)
    logging.getLogger("alembic").setLevel(logging.WARNING)  # its plugins introduce themselves, one by one


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _spell(value: Any) -> str:
    text = str(value)
    if text and not any(c in text for c in ' ="') and printable(text) == text:
        return text
    return printable(json.dumps(text, ensure_ascii=False))


def _hidden(value: Any) -> Any:
    """Hide secrets in a field before it is spelt as JSON, which may spell them otherwise."""
    return value if value is None or isinstance(value, bool | int | float) else hide(str(value))
