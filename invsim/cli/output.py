"""How commands print: JSON for programs, tables for people, a bar on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from invsim.errors import one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WITHOUT_TERMINAL, WIDEST = 200, 10_000
"""Columns of a table that goes to no terminal, and columns that no table has."""


@contextmanager
def progress(label: str, total: int | None) -> Iterator[Any]:
    """Yield a function that counts streams done and shows a bar; None where there is no terminal, or no total."""
    if total is None or sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=total)
        yield lambda done: progress.advance(task, done)


@contextmanager
def telling() -> Iterator[Callable[[str], None] | None]:
    """Yield a function that shows what is being done, on one line that is taken back; None without a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status("") as status:
        yield lambda text: status.update(escape(text))


def to_json(data: object) -> bytes:
    """Return indented JSON."""
    import msgspec

    return msgspec.json.format(msgspec.json.encode(data), indent=2)


def print_json(data: object) -> None:
    """Print JSON."""
    click.echo(to_json(data))


def print_listing(rows: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    """Print rows as JSON, or as a table."""
    if as_json:
        print_json(rows)
    else:
        print_rows(rows)


def print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows as a table, a column for each key of the first."""
    _console().print(_table(rows))


def fits(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a table of the rows can be printed without folding a text."""
    from rich.measure import Measurement

    console = _console()
    table = _table(rows)
    return Measurement.get(console, console.options.update(width=WIDEST), table).maximum <= console.width


def _console() -> Console:
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WITHOUT_TERMINAL
    return console


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in rows[0]:
        table.add_column(name, justify="right" if isinstance(rows[0][name], int) else "left", overflow="fold")
    for row in rows:
        texts = (" ".join(value) if isinstance(value, list) else str(value) for value in row.values())
        table.add_row(*(Text(one_line(text)) for text in texts))  # a name from a log may hold a terminal's commands
    return table
