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
    from rich.text import Text

_GAP = "  "  # between two columns
_NARROWEST = 6  # cells
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


def _print_kept() -> None:
    has_all_letters = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")
    while _kept:
        click.echo(printable(json.dumps(_kept.pop(0), ensure_ascii=not has_all_letters, default=str)))


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
    from sensorpool.config.variables import unknown_settings

    with print_apart():  # a configuration is code, which may print
        found = unknown_settings()
    for name in found:
        say(f"sensorpool: there is no such setting: {name}", err=True)


def bear_any_text() -> None:
    """Print characters that the locale does not have as question marks, instead of raising an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def print_json(value: Any) -> None:
    """Print a value as JSON on one line; with --json, at the end of the command."""
    _kept.append(value)
    context = click.get_current_context(silent=True)
    if context is None or not context.params.get("as_json"):
        _print_kept()


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
    own, kept, process = sys.stdout, os.dup(1), os.getpid()
    os.dup2(2, 1)
    try:
        # an object of its own, because such code may close it; never closed here, because a handler of logs may keep it
        apart = open(2, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115
        with redirect_stdout(apart):
            yield
    finally:
        if os.getpid() != process:
            os._exit(0)
        os.dup2(kept, 1)
        os.close(kept)
        sys.stdout = own


def say(line: str = "", *, err: bool = False) -> None:
    """Print a line whose parts may come from other programs, without control characters."""
    click.echo(printable(line), err=err)


def is_wide(wide: bool = False) -> bool:
    """Whether a table is printed in full, one line a row: on request, or when the output is no terminal."""
    from rich.console import Console

    return wide or not Console().is_terminal


def has_colours() -> bool:
    """Whether the output is a terminal with colours, which ``NO_COLOR`` and ``TERM=dumb`` say it is not."""
    from rich.console import Console

    console = Console()
    return console.is_terminal and console.color_system is not None and not console.no_color


def repeat(show: Callable[[], None], every: float | None, *, as_json: bool) -> None:
    """Show something, and again after each span in seconds, until Ctrl-C; None: once.

    :raises click.UsageError: when the output is no terminal, or JSON.
    """
    if every is None:
        show()
        return
    if as_json or is_wide():
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
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    wide: bool = False,
) -> None:
    """Print a table: on a terminal as wide as the terminal, with long cells folded; otherwise in full, one line a row.

    :param wide: print the table in full on a terminal, too.
    """
    if is_wide(wide):
        say(title)
        _print_lines([columns, *rows])
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(title=printable(title), title_justify="left", header_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column == "id")  # an id is copied: it stays in one piece
    for row in rows:
        table.add_row(*(_cell(cell) for cell in row))
    Console(markup=False, emoji=False, highlight=False).print(table)


def print_short(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], crop: Collection[str]) -> None:
    """Print a table for a terminal, a line a row: names that do not fit lose their middle, reasons lose their end.

    :param crop: the columns that are cut; they share the room that the other columns leave.
    """
    from rich.cells import cell_len
    from rich.console import Console

    texts = [list(columns), *([_one_line(cell) for cell in row] for row in rows)]
    widths = [max(cell_len(text) for text in column) for column in zip(*texts, strict=True)]
    room = Console().width - len(_GAP) * (len(columns) - 1)
    room -= sum(width for width, column in zip(widths, columns, strict=True) if column not in crop)
    # the narrowest first: the room that a column does not need goes to the next ones
    places = sorted((place for place, column in enumerate(columns) if column in crop), key=widths.__getitem__)
    for number, place in enumerate(places):
        widths[place] = min(widths[place], max(_NARROWEST, room // (len(places) - number)))
        room -= widths[place]
    title = printable(title)
    click.echo(click.style(title, bold=True) if has_colours() else title)
    ends = [0 if column == "reason" else 2 for column in columns]
    lines = [[cropped(*each) for each in zip(row, widths, ends, strict=True)] for row in texts]
    _print_lines(lines, paint=has_colours())


def cropped(text: str, width: int, of_its_end: int) -> str:
    """Cut the middle out of a text, because names often differ at their end; with ``of_its_end`` 0, cut its end."""
    from rich.cells import cell_len

    kept = len(text)
    cut = text
    while cell_len(cut) > width and kept:
        kept -= 1
        end = kept // of_its_end if of_its_end else 0
        cut = f"{text[: kept - end]}…{text[len(text) - end :]}"
    return cut


def print_fields(fields: dict[str, Any]) -> None:
    """Print names with their values, one on each line."""
    shown = {
        name: json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
        for name, value in fields.items()
    }
    if is_wide():
        _print_lines(list(shown.items()))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in shown.items():
        table.add_row(name, _cell(value))
    Console(markup=False, emoji=False, highlight=False).print(table)


def _print_lines(rows: Sequence[Sequence[Any]], *, paint: bool = False) -> None:
    """Print rows, each on one line even if a value has line breaks."""
    from rich.cells import cell_len

    texts = [[_one_line(cell) for cell in row] for row in rows]
    widths = [max(cell_len(text) for text in column) for column in zip(*texts, strict=True)]
    for row in texts:
        cells = [text + " " * (width - cell_len(text)) for text, width in zip(row, widths, strict=True)]
        cells[-1] = cells[-1].rstrip()
        if paint:
            colours = [_COLOURS.get(text) for text in row]
            cells = [click.style(cell, fg=each) if each else cell for cell, each in zip(cells, colours, strict=True)]
        click.echo(_GAP.join(cells).rstrip())


def _one_line(cell: object) -> str:
    return " ".join(_text(cell).split())


def _text(value: object) -> str:
    return "" if value is None else printable(str(value))


def _cell(value: object) -> "Text":
    """Make a cell of the plain text: without markup and control characters."""
    from rich.text import Text

    text = _text(value)
    return Text(text, style=_COLOURS.get(text, ""))
