"""The output of commands: JSON for programs, tables for people. Only functions that print tables import rich."""

import io
import json
import math
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from typing import TYPE_CHECKING, Any

import click

from sensorpool.errors import SensorpoolError
from sensorpool.instrumentation.redaction import printable
from sensorpool.model.words import nearest

if TYPE_CHECKING:
    from rich.table import Table

_GAP = "  "  # between two columns
# what is on a terminal in colour, if it stands alone in a cell
_COLOURS = (
    dict.fromkeys(("success", "landed"), "green")
    | dict.fromkeys(("failed", "fail", "poke_error", "crashed", "exited", "timeout"), "red")
    | dict.fromkeys(("poke_timeout", "infra_failure", "cannot_poke"), "yellow")
)


class NumberRange(click.FloatRange):
    """A number in a range; ``nan`` and ``inf``, which Python takes for numbers, are none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        converted = super().convert(value, param, ctx)
        if not math.isfinite(converted):
            self.fail(f"{value} is no number", param, ctx)
        return converted


watch_option = click.option(
    "--watch",
    metavar="[SECONDS]",
    type=NumberRange(min=0.5, max=86_400),
    is_flag=False,
    flag_value=2.0,
    help="Show it again every SECONDS (2), until Ctrl-C.",
)


def _keep_apart(context: click.Context, _: click.Parameter, as_json: bool) -> bool:
    """With --json, have all that the command and other code print go to standard error, but for `print_json`."""
    if as_json:
        context.call_on_close(_print_kept)  # after what was kept apart: the last that was opened is closed first
        context.with_resource(print_apart())
    return as_json


json_option = click.option("--json", "as_json", is_flag=True, callback=_keep_apart, help="Print JSON.")
_kept: list[Any] = []


def print_json(value: Any) -> None:
    """Print a value as JSON on one line; with --json, at the end of the command."""
    _kept.append(value)
    context = click.get_current_context(silent=True)
    if context is None or not context.params.get("as_json"):
        _print_kept()


def _print_kept() -> None:
    has_all_letters = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")
    while _kept:
        click.echo(printable(json.dumps(_kept.pop(0), ensure_ascii=not has_all_letters, default=str)))


@contextmanager
def print_apart() -> Iterator[None]:
    """Have what other code prints go to standard error, also by its descriptor: standard output is the command's own.

    A copy of the process, which such code may have made by a fork, ends here. With a stream that is closed, nothing is
    kept apart.
    """
    if sys.stdout is None or sys.stderr is None:
        yield
        return
    sys.stdout.flush()
    kept, process = os.dup(1), os.getpid()
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if os.getpid() != process:
            os._exit(0)
        os.dup2(kept, 1)
        os.close(kept)


class Commands(click.Group):
    """A group of commands that says which command was most likely meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"No such command {args[0]!r}{nearest(args[0], self.list_commands(ctx))}.")
        return super().resolve_command(ctx, args)


def say_unknown_settings() -> None:
    """Print a line for each setting that is written somewhere and does not exist."""
    from sensorpool.config.origins import unknown_settings

    with print_apart():  # a configuration is code, which may print
        found = unknown_settings()
    for name in found:
        say(f"sensorpool: there is no such setting: {name}", err=True)


def bear_any_text() -> None:
    """Print characters that the locale does not have as question marks, instead of raising an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def say(line: str = "", *, err: bool = False) -> None:
    """Print a line whose parts may come from other programs, without control characters."""
    click.echo(printable(line), err=err)


def is_terminal() -> bool:
    """Whether the output is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


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
            click.clear()
            try:
                show()
            except SensorpoolError as error:  # a server that is away may come back
                say(f"sensorpool: {error}")
            time.sleep(every)


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, crop: Collection[str] = ()
) -> None:
    """Print a table: on a terminal as wide as the terminal, with long cells folded; otherwise in full, a line a row.

    :param crop: the columns that are cut on a terminal, so that each row is one line; the others keep their width.
    """
    say(title)
    if not is_terminal():
        _print_lines([columns, *rows])
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, len(_GAP), 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column not in crop if crop else column == "id")
    _print(table, rows, is_cut=bool(crop))


def print_fields(fields: dict[str, Any]) -> None:
    """Print names with their values, one on each line."""
    if not is_terminal():
        _print_lines(list(fields.items()))
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, len(_GAP), 0, 0), show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    _print(table, fields.items(), is_cut=False)


def _print(table: "Table", rows: Iterable[Sequence[Any]], *, is_cut: bool) -> None:
    """Print a table on a terminal. Its cells are plain text: without markup and control characters.

    :param is_cut: whether a cell that is too long is cut, and not folded.
    """
    from rich.console import Console, ConsoleOptions
    from rich.measure import Measurement
    from rich.text import Text

    class Cut:
        """A cell that loses its middle where it does not fit: names often differ at their end."""

        def __init__(self, text: str, style: str) -> None:
            self.text = Text(text, style, no_wrap=True, overflow="ellipsis")

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
            text, room = self.text.plain, options.max_width - 1
            if self.text.cell_len > options.max_width:
                self.text.plain = f"{text[: room - room // 2]}…{text[len(text) - room // 2 :]}"
            yield self.text

        def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
            return Measurement(1, self.text.cell_len)

    made: type[Cut | Text] = Cut if is_cut else Text
    for row in rows:
        texts = [_text(cell) for cell in row]
        table.add_row(*(made(text, _COLOURS.get(text, "")) for text in texts))
    Console(force_terminal=True).print(table)


def _print_lines(rows: Sequence[Sequence[Any]]) -> None:
    """Print rows in full, a line a row: rich takes a millisecond a row."""
    texts = [[_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for row in texts:
        click.echo(_GAP.join(map(str.ljust, row, widths)).rstrip())


def _text(cell: object) -> str:
    text = json.dumps(cell, ensure_ascii=False) if isinstance(cell, dict | list) else cell
    return "" if text is None else printable(str(text))
