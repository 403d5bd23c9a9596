"""How commands print: JSON for programs, tables for people."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sensorpool.redaction import printable

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def print_json(value: Any) -> None:
    """Print a value as JSON on one line."""
    click.echo(printable(json.dumps(value, ensure_ascii=False, default=str)))


def say(line: str, *, err: bool = False) -> None:
    """Print a line that may have in it what somebody else wrote: a terminal must not act upon that."""
    click.echo(printable(line), err=err)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table."""
    table = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(_cell(cell) for cell in row))
    Console(markup=False, emoji=False, highlight=False).print(table)


def print_fields(fields: dict[str, Any]) -> None:
    """Print names and values, one a line."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in fields.items():
        shown = json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
        table.add_row(name, _cell(shown))
    Console(markup=False, emoji=False, highlight=False).print(table)


def _cell(value: object) -> Text:
    """Make a cell of its very text: no markup, and nothing that a terminal acts upon."""
    return Text("" if value is None else printable(str(value)))
