"""The output of commands: JSON for programs; for people tables on a terminal, and in a pipe tab-separated values."""

import io
import json
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from typing import IO, Any

import click

from sensorpool.errors import SensorpoolError
from sensorpool.instrumentation.redaction import printable

# of a cell that is one of these words
_COLOURS = (
    dict.fromkeys(("success", "landed"), "green")
    | dict.fromkeys(("failed", "fail", "poke_error", "crashed", "exited", "timeout"), "red")
    | dict.fromkeys(("poke_timeout", "infra_failure", "cannot_poke"), "yellow")
)

watch_option = click.option(
    "--watch",
    metavar="[SECONDS]",
    type=click.FloatRange(min=0.5, max=86_400),
    is_flag=False,
    flag_value=2.0,
    help="Show it again every SECONDS (2), until Ctrl-C.",
)
_own: IO[str] | None = None


@contextmanager
def own_output() -> Iterator[None]:
    """Keep standard output for the command: what settings, classes and pokes print goes to standard error."""
    global _own
    before, _own = _own, sys.stdout
    if isinstance(_own, io.TextIOWrapper):
        _own.reconfigure(errors="replace")  # a letter that the locale has not ends no command
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _own = before


def json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option --json to a command, and keep standard output for it."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(own_output()(function))


def _out() -> IO[str]:
    return _own or sys.stdout


def is_terminal() -> bool:
    """Whether the output is a terminal."""
    return _out() is not None and _out().isatty()


def print_json(value: Any) -> None:
    """Print a value as JSON on one line."""
    click.echo(json.dumps(value, default=str), _out())


def say(line: str = "", *, err: bool = False) -> None:
    """Print a line whose parts may come from other programs, without control characters."""
    click.echo(printable(line), None if err else _out(), err=err)


def say_unknown_settings() -> None:
    """Print a line for each setting that is written somewhere and does not exist."""
    from sensorpool.config.origins import unknown_settings

    with own_output():
        found = unknown_settings()
    for name in found:
        say(f"sensorpool: there is no such setting: {name}", err=True)


def repeat(show: Callable[[], None], every: float | None, *, as_json: bool) -> None:
    """Show something, and again after each span in seconds, until Ctrl-C; None: once.

    :raises click.UsageError: when the output is no terminal, or JSON.
    """
    if every is None:
        show()
        return
    if as_json or not is_terminal():
        raise click.UsageError("--watch is for a terminal, and not for --json")
    with suppress(KeyboardInterrupt):
        while True:
            click.echo("\x1b[2J\x1b[H", _out(), nl=False)
            try:
                show()
            except SensorpoolError as error:  # a server that is away may come back
                say(f"sensorpool: {error}")
            time.sleep(every)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, crop: Collection[str] = ()) -> None:
    """Print a table.

    :param columns: the head; empty: there is none, and the first cell of a row names it.
    :param crop: the columns that are cut on a terminal, so that each row is one line; the others keep their width.
    """
    texts = [[_text(cell) for cell in row] for row in rows]
    if not is_terminal():
        for row in [columns, *texts] if columns else texts:
            click.echo("\t".join(row), _out())
        return
    from rich.console import Console  # slow to import
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=bool(columns))
    for column in columns:
        table.add_column(column, no_wrap=column not in crop if crop else column == "id")
    cell: dict[str, Any] = {"no_wrap": True, "overflow": "ellipsis"} if crop else {"overflow": "fold"}
    for row in texts:
        table.add_row(*(Text(text, _COLOURS.get(text, ""), **cell) for text in row))
    Console(file=_out()).print(table)


def print_fields(fields: dict[str, Any]) -> None:
    """Print names with their values, one on each line."""
    print_table((), fields.items())


def _text(cell: object) -> str:
    text = json.dumps(cell, ensure_ascii=False) if isinstance(cell, dict | list) else cell
    return "" if text is None else printable(str(text))
