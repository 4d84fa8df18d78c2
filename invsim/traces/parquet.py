"""Native Parquet, opened and read batch by batch, and what of a damaged file can still be decoded.

A damaged page may end the process of the library that decodes it. So a file not our own is looked at in a process
apart (``apart.WORKER``); what was decoded there, and only that, is decoded here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from invsim.traces.apart import WORKER, Died
from invsim.traces.columns import CHECKED, DEFAULTS, REQUIRED, dtypes
from invsim.traces.reader import Faults

if TYPE_CHECKING:
    import polars as pl

BATCH = 500_000
"""Rows held at a time."""

DEPTH = 4
"""How often a damaged part is halved in search of rows that can be decoded: sound parts of 1/16 of it are all found."""

NEEDED = tuple(
    dict.fromkeys(
        ("task_id", "trial", "model", "arm", "constraint", "seed", "step", "seq", "finish_reason", *CHECKED)
    )
)  # fmt: skip
"""Columns without which a row would tell of something else; damage to any other is not the end of its row."""


class Footer(NamedTuple):
    """Name and type of each column of a file, and the number of its rows."""

    columns: dict[str, Any]
    rows: int


class Stretch(NamedTuple):
    """Rows ``start`` to ``stop`` (from 0, the last not included), with the columns that can be decoded in them."""

    start: int
    stop: int
    columns: tuple[str, ...]


class Torn(Exception):
    """Some rows of a file cannot be decoded."""


# Decoding -----------------------------------------------------------------------------------------------------------


def read_footer(path: Path) -> Footer | None:
    """Return what the end of a file says; None where it is missing or broken."""
    import polars as pl

    try:
        scan = pl.scan_parquet(path)
        return Footer(dict(scan.collect_schema()), int(scan.select(pl.len()).collect().item()))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):
        return None


def decode(path: Path, there: Iterable[str], columns: Sequence[str], start: int, stop: int) -> pl.DataFrame:
    """Return some rows of a file: of ``columns`` those that are ``there`` as it holds them, and the others filled in.

    Raises
    ------
    Torn
        Where they cannot be decoded.
    """
    import polars as pl

    wanted, there = dtypes(), frozenset(there)
    try:
        rows = pl.scan_parquet(path).slice(start, stop - start)
        found = rows.select(_column(name, wanted[name], name in there) for name in columns).collect(engine="streaming")
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:  # a damaged page can panic
        raise Torn(" ".join(str(error).split())[:200]) from None
    if found.height != stop - start:
        raise Torn(f"holds {found.height:,} rows where {stop - start:,} should be")
    return found


def _column(name: str, kind: Any, there: bool) -> pl.Expr:
    import polars as pl

    default = DEFAULTS.get(name)
    filled = default if isinstance(default, str | int) else None
    if not there:
        return pl.lit(filled, dtype=kind).alias(name)
    column = pl.col(name).cast(kind)
    return column if filled is None else column.fill_null(filled)


def batches(path: Path, columns: Sequence[str], stretches: Iterable[Stretch]) -> Iterator[tuple[int, pl.DataFrame]]:
    """Yield (number of the first row, from 1; rows) of the stretches in order; ``Torn`` where one is not sound."""
    for stretch in stretches:
        for start in range(stretch.start, stretch.stop, BATCH):  # slices: a stream of batches reads ahead without bound
            stop = min(start + BATCH, stretch.stop)
            yield start + 1, decode(path, stretch.columns, columns, start, stop)


def check_columns(footer: Footer | None, faults: Faults) -> Stretch | None:
    """Return all rows of a file if its columns are those of calls; else None, with the fault noted."""
    if footer is None:
        message = "its footer, without which no row of it can be found, is missing or broken"
        faults.add("end of file", "torn-file", message)
        return None
    wanted = dtypes()
    for name in footer.columns.keys() - wanted.keys():
        faults.add(f"column {name}", "unknown-field", "no field of a call, and left out", lost=False)
    wrong = {name: kind for name, kind in footer.columns.items() if name in wanted and not _fits(kind, wanted[name])}
    for name, kind in wrong.items():
        faults.add(f"column {name}", "wrong-type", f"holds {kind}; {wanted[name]} would be right")
    absent = [name for name in REQUIRED if name not in footer.columns]
    for name in absent:
        faults.add(f"column {name}", "missing-field", "needed in every file")
    if wrong or absent:
        return None
    return Stretch(0, footer.rows, tuple(name for name in footer.columns if name in wanted))


def _fits(kind: Any, wanted: Any) -> bool:
    import polars as pl

    if kind == pl.Null:
        return True
    if wanted == pl.Int64:
        return bool(kind.is_integer()) and kind != pl.UInt64
    return kind == pl.String or isinstance(kind, pl.Categorical | pl.Enum)


# Damage -------------------------------------------------------------------------------------------------------------


def footer_apart(path: Path) -> Footer | None:
    """Return what the end of a file says, read in a process apart; None where it is missing or broken."""
    try:
        found: Footer | None = WORKER.call(read_footer, path)
    except Died:
        return None
    return found


def sound(path: Path, whole: Stretch, columns: Sequence[str], faults: Faults) -> list[Stretch]:
    """Return the stretches of a file that can be decoded, found in a process apart; what cannot be is noted.

    Parameters
    ----------
    path : Path
    whole : Stretch
        All rows, and the columns that the file holds.
    columns : sequence of str
        Columns wanted. Where only such as are not ``NEEDED`` are damaged, the others are kept.
    faults : Faults
    """
    wanted = tuple(name for name in whole.columns if name in columns)
    needed = tuple(name for name in wanted if name in NEEDED)
    found: list[Stretch] = []
    for start in range(whole.start, whole.stop, BATCH):
        stop = min(start + BATCH, whole.stop)
        for first, last in decodable(lambda a, b: _decodes(path, needed, a, b), start, stop):
            inner = decodable(lambda a, b: _decodes(path, wanted, a, b), first, last)
            found += [Stretch(*each, wanted) for each in inner]
            for low, high in gaps(inner, first, last):
                kept = tuple(name for name in wanted if name in needed or _decodes(path, (name,), low, high))
                found.append(Stretch(low, high, kept))
    found.sort()
    for first, last in gaps([(each.start, each.stop) for each in found], whole.start, whole.stop):
        faults.add(_rows(first, last), "torn-rows", "cannot be decoded")
    for each in found:
        if lost := [name for name in wanted if name not in each.columns]:
            message = f"{', '.join(lost)} cannot be decoded, and left out"
            faults.add(_rows(each.start, each.stop), "torn-columns", message, lost=False)
    return found


def _rows(start: int, stop: int) -> str:
    return f"rows {start + 1:,} to {stop:,}" if stop - start > 1 else f"row {stop:,}"


def _decodes(path: Path, columns: Sequence[str], start: int, stop: int) -> bool:
    try:
        WORKER.call(_try_to_decode, path, columns, start, stop)
    except (Died, Torn):
        return False
    return True


def _try_to_decode(path: Path, columns: Sequence[str], start: int, stop: int) -> None:
    decode(path, columns, columns, start, stop)


def decodable(decodes: Callable[[int, int], bool], start: int, stop: int) -> list[tuple[int, int]]:
    """Return the parts of a range that can be decoded, in order.

    A part that can be is found whole if it lies at either end, or holds one of the points at which the rest is halved,
    ``DEPTH`` times over. Rows that can be decoded together can be decoded one by one.

    Parameters
    ----------
    decodes : callable
        Whether the rows from one number to another, that not included, can be decoded.
    start, stop : int
    """
    if start >= stop:
        return []
    if decodes(start, stop):
        return [(start, stop)]
    head = start + _longest(lambda rows: decodes(start, start + rows), stop - start)
    tail = stop - _longest(lambda rows: decodes(stop - rows, stop), stop - head)
    found = [(start, head), *_islands(decodes, head, tail, DEPTH), (tail, stop)]
    return [part for part in found if part[0] < part[1]]


def _islands(decodes: Callable[[int, int], bool], start: int, stop: int, depth: int) -> list[tuple[int, int]]:
    if start >= stop or not depth:
        return []
    middle = (start + stop) // 2
    up = middle + _longest(lambda rows: decodes(middle, middle + rows), stop - middle)
    down = middle - _longest(lambda rows: decodes(middle - rows, middle), middle - start) if up > middle else middle
    before = _islands(decodes, start, down, depth - 1)
    return [*before, (down, up), *_islands(decodes, max(up, middle + 1), stop, depth - 1)]


def _longest(works: Callable[[int], bool], most: int) -> int:
    """Return the largest number up to ``most`` that works, given that all below one that works do; 0 does."""
    low, high = 0, min(1, most)
    while high > low and works(high):
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if works(middle) else (low, middle)
    return low


def gaps(parts: Sequence[tuple[int, int]], start: int, stop: int) -> list[tuple[int, int]]:
    """Return what parts of a range, in order, leave out of it."""
    edges = [start, *(edge for part in parts for edge in part), stop]
    return [(low, high) for low, high in zip(edges[::2], edges[1::2], strict=True) if low < high]
