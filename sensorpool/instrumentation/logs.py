"""Logs: one line for each event, with its figures as fields, and without secrets."""

import json
import logging
import os
import sys
from datetime import UTC, datetime
from socket import gethostname
from typing import Any

from sensorpool.instrumentation.log_filters import ROOT, PokeLines
from sensorpool.instrumentation.redaction import hide, printable

_TELL_OF_EACH_JOB = ("celery.app.trace", "celery.worker.strategy")
_PLAIN = frozenset({str, int, float, bool, type(None)})
_root = logging.getLogger()


class Logger:
    """A logger whose events carry fields: ``log.info("settled", groups=3)``."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, **fields: Any) -> None:
        """Log an event that only developers need."""
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """Log an event."""
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, traceback: str | None = None, **fields: Any) -> None:
        """Log an event that an operator should look at some day; see `error`."""
        self._log(logging.WARNING, event, fields, traceback=traceback)

    def error(self, event: str, traceback: str | None = None, **fields: Any) -> None:
        """Log an event that an operator should look at now.

        :param traceback: of an error that another thread or process has caught; it is set off as an exception's is.
        """
        self._log(logging.ERROR, event, fields, traceback=traceback)

    def exception(self, event: str, **fields: Any) -> None:
        """Log an event with the exception that is being handled."""
        self._log(logging.ERROR, event, fields, exc_info=True)

    def _log(
        self, level: int, event: str, fields: dict[str, Any], exc_info: bool = False, traceback: str | None = None
    ) -> None:
        fields = {name: _plain(value) for name, value in fields.items()}
        error = sys.exc_info() if exc_info else None
        if _Own.handlers is None:
            if self._logger.isEnabledFor(level):
                extra = {"fields": fields}
                record = self._logger.makeRecord(self._logger.name, level, "", 0, event, (), error, extra=extra)
                record.exc_text = traceback
                self._logger.handle(record)
        elif level >= self._logger.getEffectiveLevel():
            # to our own handlers, without the locks of `logging`: sensors may add handlers, and hold the locks
            record = logging.LogRecord(self._logger.name, level, "", 0, event, None, error)
            record.exc_text = traceback
            record.__dict__["fields"] = fields
            for handler in _Own.handlers:
                if level >= handler.level:
                    handler.handle(record)


def logger(name: str) -> Logger:
    """Return the logger of a module."""
    return Logger(name)


class TextFormatter(logging.Formatter):
    """``time level event key=value …``; below it, set off, the traceback of an exception."""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={_spell(_hidden(value))}" for name, value in getattr(record, "fields", {}).items())
        line = f"{_time(record)} {record.levelname.lower()} {record.name}: {printable(record.getMessage())}{fields}"
        line = hide(line)
        if record.exc_info or record.exc_text:
            # set off and escaped, so that an exception's text cannot look like a line of ours
            trace = hide(_trace_of(self, record)).split("\n")
            line = "\n".join([line, *(f"    {printable(each)}" for each in trace)])
        return line


class BriefFormatter(logging.Formatter):
    """``sensorpool: event: error``, for who has given a command."""

    def format(self, record: logging.LogRecord) -> str:
        fields = dict(getattr(record, "fields", {}))
        error = f": {fields.pop('error')}" if "error" in fields else ""
        more = "".join(f" {name}={_spell(value)}" for name, value in fields.items())
        return printable(hide(f"{record.name.partition('.')[0]}: {record.getMessage()}{more}{error}"))


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, event, the fields of the event, and the process that tells it."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": hide(record.getMessage()),
            **{name: _hidden(value) for name, value in getattr(record, "fields", {}).items()},
            "host": gethostname(),
            "pid": os.getpid(),
        }
        if _Own.name is not None:
            entry["worker"] = _Own.name
        if record.exc_info or record.exc_text:
            entry["exception"] = hide(_trace_of(self, record))
        return printable(json.dumps(entry, default=str, ensure_ascii=False))


def _trace_of(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """Return the traceback of a record that has one."""
    return record.exc_text or formatter.formatException(record.exc_info) if record.exc_info else str(record.exc_text)


def formatter(log_format: str) -> logging.Formatter:
    """Return the formatter for the setting ``log_format``."""
    return JsonFormatter() if log_format == "json" else TextFormatter()


class _Own:
    """The logging of this process as it should be; sensors may change the real one."""

    name: str | None = None
    handlers: list[logging.Handler] | None = None
    level = logging.INFO
    poke_level = logging.WARNING


def silence(poke_log_level: str) -> None:
    """Log nothing in this process. Pokes may ask for the least level of their lines, which is as in a worker."""
    root = logging.getLogger()
    root.handlers[:] = [logging.NullHandler()]
    root.setLevel(poke_log_level)
    adopt(root, "text", poke_log_level)


def configure(log_format: str, log_level: str, poke_log_level: str = "WARNING") -> None:
    """Log to standard error. For our own commands; Celery sets the logging of a worker up, see `adopt`."""
    root = logging.getLogger()
    root.handlers[:] = [logging.StreamHandler(sys.stderr)]
    root.setLevel(log_level)
    logging.getLogger("alembic").setLevel(logging.WARNING)  # each of its plugins logs a line at its import
    adopt(root, log_format, poke_log_level)


def adopt(logger: logging.Logger, log_format: str, poke_log_level: str) -> None:
    """Give a logger's handlers our format and our filter for pokes; remember the handlers of the root logger."""
    for handler in logger.handlers:
        handler.setFormatter(formatter(log_format))
        others = [each for each in handler.filters if type(each) is not PokeLines]
        handler.filters[:] = [*others, PokeLines(poke_log_level)]
    if logger is logging.getLogger():
        _Own.handlers, _Own.level = list(logger.handlers), logger.level
        for name in _TELL_OF_EACH_JOB:  # what a job has poked is a line of ours
            logging.getLogger(name).setLevel(logging.DEBUG if logger.level <= logging.DEBUG else logging.WARNING)
        _Own.poke_level = logging.getLevelName(poke_log_level)


def name_process(name: str) -> None:
    """Say which worker or beat this process is one of: JSON lines have it."""
    _Own.name = name


def restore() -> int | None:
    """Restore this process's logging after an import or a poke has changed it: a user's handler may hang.

    Airflow's import replaces the root logger's handlers. Without a change the call costs a microsecond.

    :returns: the least level of the lines of pokes; None where the logging is not ours.
    """
    if _Own.handlers is None:
        return None
    if list(map(id, _root.handlers)) != list(map(id, _Own.handlers)):
        _root.handlers[:] = _Own.handlers
        _root.setLevel(_Own.level)
        for name, found in list(logging.Logger.manager.loggerDict.items()):
            if isinstance(found, logging.Logger) and name.partition(".")[0] in {ROOT, "celery"}:
                found.disabled = False  # `logging.config` disables loggers by default
    return _Own.poke_level


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(value: Any) -> Any:
    """Return a value as text now, unless it is a plain one: a handler would format it under its lock."""
    return value if type(value) in _PLAIN else str(value)


def _spell(value: Any) -> str:
    text = str(value)
    if text and not any(c in text for c in ' ="') and printable(text) == text:
        return text
    return printable(json.dumps(text, ensure_ascii=False))


def _hidden(value: Any) -> Any:
    """Hide secrets in a field before it becomes JSON, which may spell them in another way."""
    return value if value is None or isinstance(value, bool | int | float) else hide(str(value))
