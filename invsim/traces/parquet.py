"""Native Parquet, opened and read batch by batch, and what of a damaged file can still be decoded.

A damaged page may end the process of the library that decodes it, and so may a file that is cut short meanwhile. So a
file not our own is decoded in a process apart (``apart.WORKER``), and nowhere else.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeAlias

from invsim.errors import InputError
from invsim.traces.apart import WORKER, Died
from invsim.traces.columns import CHECKED, DEFAULTS, REQUIRED, dtypes
from invsim.traces.pages import NOWHERE, Edges, find_edges
from invsim.traces.reader import Faults

if TYPE_CHECKING:
    import polars as pl

BATCH = 500_000
"""Rows held at a time."""

BATCH, BYTES = 500_000, 1 << 27
"""Rows held at a time, and what they may weigh."""

FIRST = 1000
"""Rows by which it is judged what others weigh."""

SHIPPED = 100_000
"""Rows held at a time of a damaged file, and of one that is decoded in one process for the use of another."""

DEPTH = 4
"""How often a damaged page is halved in search of rows that can be decoded: sound parts of 1/16 of it are all found."""

FATAL = 5
"""How often a column of one row group may be the death of the process that decodes it, before it is given up."""

NEEDED = tuple(
    dict.fromkeys(
        ("task_id", "trial", "model", "arm", "constraint", "seed", "step", "seq", "finish_reason", *CHECKED)
    )
)  # fmt: skip
"""Columns without which a row would tell of something else; damage to any other is not the end of its row."""

Part: TypeAlias = tuple[int, int]
"""Rows from one number to another, counted from 0, the last not included."""


class Unreadable(InputError):
    """A file that cannot be read, whatever it may hold."""


class Torn(Exception):
    """Some rows of a file cannot be decoded."""


class File(NamedTuple):
    """A file as it was when it was first looked at.

    Parameters
    ----------
    name : str
        What it was called.
    path : Path
        Where it is, in whatever folder a process stands.
    state : tuple of int
        Its length, and when it was last written.
    """

    name: str
    path: Path
    state: tuple[int, int]

    @classmethod
    def at(cls, path: Path) -> File:
        """Look at a file; ``Unreadable`` where there is none."""
        try:
            real = Path(os.path.realpath(path))  # /dev/stdin is another file in another process
            return cls(str(path), real, _state(real.stat()))
        except OSError as error:
            raise Unreadable(f"cannot be read: {error.strerror}", where=str(path)) from None

    @contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """Open the file; ``Unreadable``, whatever came of it, if it is no longer what it was."""
        try:
            with self.path.open("rb") as file:
                try:
                    yield file
                finally:
                    if _state(os.fstat(file.fileno())) != self.state:
                        raise Unreadable("changed while it was read", where=self.name)
        except OSError as error:
            raise Unreadable(f"cannot be read: {error.strerror}", where=self.name) from None


def _state(found: os.stat_result) -> tuple[int, int]:
    return found.st_size, found.st_mtime_ns


class Footer(NamedTuple):
    """What the end of a file says: name and type of each column, and the number of rows."""

    file: File
    columns: dict[str, Any]
    rows: int


class Stretch(NamedTuple):
    """Rows of a file.

    Parameters
    ----------
    start, stop : int
        Its rows, counted from 0, the last not included.
    columns : tuple of str
        Those that can be decoded in them.
    tried : bool
        Whether it is known that they can, in one piece.
    """

    start: int
    stop: int
    columns: tuple[str, ...]
    tried: bool = False


# Decoding -----------------------------------------------------------------------------------------------------------


def _scan(file: IO[bytes]) -> pl.LazyFrame:
    """Open Parquet, never by its name: the library would take that for a pattern, an address or a user's home."""
    import polars as pl

    return pl.scan_parquet(file)


def read_footer(file: File) -> Footer | None:
    """Return what the end of a file says; None where it is missing or broken."""
    import polars as pl

    with file.opened() as opened:
        try:
            scan = _scan(opened)
            return Footer(file, dict(scan.collect_schema()), int(scan.select(pl.len()).collect().item()))
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):
            return None


def decode(file: File, there: Iterable[str], columns: Sequence[str], start: int, stop: int) -> pl.DataFrame:
    """Return some rows of a file: of ``columns`` those that are ``there`` as it holds them, and the others filled in.

    Raises
    ------
    Torn
        Where they cannot be decoded.
    """
    import polars as pl

    wanted, there = dtypes(), frozenset(there)
    with file.opened() as opened:
        try:
            rows = _scan(opened).slice(start, stop - start)
            chosen = rows.select(_column(name, wanted[name], name in there) for name in columns)
            found = chosen.collect(engine="streaming")
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


def batches(file: File, columns: Sequence[str], stretches: Iterable[Stretch]) -> Iterator[tuple[int, pl.DataFrame]]:
    """Yield (number of the first row, from 1; rows) of the stretches in order; ``Torn`` where one is not sound."""
    return _batches(partial(decode, file), columns, stretches, BATCH)


def _batches(
    decode: Callable[..., pl.DataFrame], columns: Sequence[str], stretches: Iterable[Stretch], most: int
) -> Iterator[tuple[int, pl.DataFrame]]:
    rows = min(FIRST, most)
    for start, stop, there, tried in stretches:
        while start < stop:  # slices: a stream of batches reads ahead without bound
            batch = decode(there, columns, start, stop if tried else min(start + rows, stop))
            yield start + 1, batch
            start += batch.height  # noqa: PLW2901
            rows = _affordable(int(batch.estimated_size()) // batch.height, 1, most)


def _affordable(weight: int, least: int, most: int) -> int:
    """Return how many rows of some bytes each may be held."""
    return max(least, min(most, BYTES // max(1, weight)))


def _steps(start: int, stop: int, rows: int) -> Iterator[Part]:
    """Yield the parts of a range that hold so many rows each, and the last what is left."""
    for first in range(start, stop, rows):
        yield first, min(first + rows, stop)


def check_columns(footer: Footer | None, faults: Faults) -> Stretch | None:
    """Return all rows of a file if its columns are those of calls; else None, with the fault noted."""
    if footer is None:
        message = "its footer, without which no row of it can be found, is missing or broken"
        faults.add("end of file", "torn-file", message)
        return None
    wanted = dtypes()
    wrong = {name: kind for name, kind in footer.columns.items() if name in wanted and not _fits(kind, wanted[name])}
    for name, kind in wrong.items():
        faults.add(f"column {name}", "wrong-type", f"holds {kind}; {wanted[name]} would be right")
    absent = [name for name in REQUIRED if name not in footer.columns]
    for name in absent:
        faults.add(f"column {name}", "missing-field", "needed in every file")
    for name in footer.columns:
        if name not in wanted:
            faults.add(f"column {name}", "unknown-field", "no field of a call, and left out", lost=False)
    if wrong or absent:
        return None
    return Stretch(0, footer.rows, tuple(name for name in footer.columns if name in wanted))


def _fits(kind: Any, wanted: Any) -> bool:
    import polars as pl

    if kind == pl.Null:
        return True
    if wanted == pl.Int64:
        return bool(kind.is_integer()) and kind not in (pl.UInt64, pl.Int128, pl.UInt128)
    return kind == pl.String or isinstance(kind, pl.Categorical | pl.Enum)


# In a process apart -------------------------------------------------------------------------------------------------


def footer_apart(path: Path) -> Footer | None:
    """Return what the end of a file says; None where it is missing or broken.

    Raises
    ------
    Unreadable
        Where the file is not there, or may not be read.
    """
    try:
        found: Footer | None = WORKER.call(read_footer, File.at(path))
    except Died:
        return None
    return found


def batches_apart(
    file: File, columns: Sequence[str], whole: Stretch, faults: Faults
) -> Iterator[tuple[int, pl.DataFrame]]:
    """Yield (number of the first row, from 1; rows) of what can be decoded of a file; what cannot be is noted."""
    reached = whole.start
    try:
        for first, batch in _batches(partial(WORKER.call, decode, file), columns, [whole], SHIPPED):
            yield first, batch
            reached = first - 1 + batch.height
    except (Died, Torn):
        for start, stop, there, _ in sound(file, whole._replace(start=reached), columns, faults):
            try:
                yield start + 1, WORKER.call(decode, file, there, columns, start, stop)
            except (Died, Torn) as error:  # they could be a moment ago
                faults.add(_rows(start, stop), "torn-rows", f"cannot be decoded once more: {error}")


def sound(file: File, whole: Stretch, columns: Sequence[str], faults: Faults) -> list[Stretch]:
    """Return the stretches of a file that can be decoded, of ``SHIPPED`` rows at most; what cannot be is noted.

    Parameters
    ----------
    file : File
    whole : Stretch
        All rows, and the columns that the file holds.
    columns : sequence of str
        Columns wanted. Where only such as are not ``NEEDED`` are damaged, the others are kept.
    faults : Faults
    """
    edges = _edges_apart(file)
    at_once = _affordable(edges.weight, FIRST, BATCH)
    wanted = [name for name in whole.columns if name in columns]
    needed = tuple(name for name in wanted if name in NEEDED)

    def by_itself(name: str, rows: Iterable[Part]) -> list[Part]:
        pages = edges.pages.get(name, ())

        def of_group(group: Part) -> list[Part]:
            decodes = Probe(file, (name,), at_once, deaths=FATAL)
            return decodable(decodes, cut([group], pages), partial(ends, decodes))

        return joined(decodable(Probe(file, (name,), at_once), cut(rows, edges.groups), of_group))

    left: list[Part] = [(whole.start, whole.stop)]
    for name in needed:
        left = by_itself(name, left)
    steps = [step for part in left for step in _steps(*part, min(at_once, SHIPPED))]
    together = Probe(file, needed, at_once)  # what can be decoded apart need not go together
    rows = decodable(together, steps, partial(ends, together))
    for first, last in gaps(joined(rows), whole.start, whole.stop):
        faults.add(_rows(first, last), "torn-rows", "cannot be decoded")
    others = {name: by_itself(name, rows) for name in wanted if name not in needed}
    found = []
    for part in rows:
        pieces = [
            Stretch(*piece, (*needed, *(name for name in others if _covers(others[name], piece))), tried=True)
            for piece in cut([part], sorted(row for each in others.values() for torn in each for row in torn))
        ]
        if not all(Probe(file, each.columns, at_once)([each[:2]]) for each in pieces):
            pieces = [Stretch(*part, needed, tried=True)]
        for piece in pieces:
            if lost := [name for name in wanted if name not in piece.columns]:
                message = f"{', '.join(lost)} cannot be decoded, and left out"
                faults.add(_rows(piece.start, piece.stop), "torn-columns", message, lost=False)
        found += pieces
    return found


def _edges_apart(file: File) -> Edges:
    try:
        found: Edges = WORKER.call(find_edges, file.path)
    except Died:
        return NOWHERE
    return found


def _rows(start: int, stop: int) -> str:
    return f"rows {start + 1:,} to {stop:,}" if stop - start > 1 else f"row {stop:,}"


class Probe:
    """Says whether parts of a file can be decoded, having tried it in a process apart.

    Parameters
    ----------
    file : File
    columns : sequence of str
    rows : int
        Rows at a time.
    deaths : int, optional
        How often that process may die of it; then nothing more is tried, and taken to be torn. A damaged dictionary
        can be the death of a process over each page that goes by it, and another takes its time to start.
    """

    def __init__(self, file: File, columns: Sequence[str], rows: int, deaths: int | None = None) -> None:
        self.file, self.columns, self.rows, self.deaths = file, columns, rows, deaths

    def __call__(self, parts: Sequence[Part]) -> bool:
        """Try some parts, all of them."""
        if self.deaths == 0:
            return False
        try:
            WORKER.call(_try_to_decode, self.file, self.columns, parts, self.rows)
        except Torn:
            return False
        except Died:
            if self.deaths is not None:
                self.deaths -= 1
            return False
        return True


def _try_to_decode(file: File, columns: Sequence[str], parts: Sequence[Part], rows: int) -> None:
    for part in parts:
        for step in _steps(*part, rows):
            decode(file, columns, columns, *step)


# Parts --------------------------------------------------------------------------------------------------------------

Decodes: TypeAlias = Callable[[Sequence[Part]], bool]
"""Whether some parts can all be decoded; if some can, so can each row of them by itself."""


def decodable(decodes: Decodes, parts: Sequence[Part], within: Callable[[Part], list[Part]]) -> list[Part]:
    """Return the parts that can be decoded, in order, and of another what ``within`` finds in it."""
    if not parts or decodes(parts):
        return list(parts)
    if len(parts) == 1:
        return within(parts[0])
    middle = len(parts) // 2
    return [*decodable(decodes, parts[:middle], within), *decodable(decodes, parts[middle:], within)]


def ends(decodes: Decodes, part: Part) -> list[Part]:
    """Return what can be decoded at either end of a part, and about the points at which the rest is halved.

    It is halved ``DEPTH`` times over, but once if neither end can be decoded.
    """

    def decodes_rows(start: int, stop: int) -> bool:
        return decodes([(start, stop)])

    start, stop = part
    head = start + _longest(lambda rows: decodes_rows(start, start + rows), stop - start)
    tail = stop - _longest(lambda rows: decodes_rows(stop - rows, stop), stop - head)
    depth = DEPTH if start < head or tail < stop else 1
    found = [(start, head), *_islands(decodes_rows, head, tail, depth), (tail, stop)]
    return [each for each in found if each[0] < each[1]]


def _islands(decodes: Callable[[int, int], bool], start: int, stop: int, depth: int) -> list[Part]:
    if start >= stop or not depth:
        return []
    middle = (start + stop) // 2
    up = middle + _longest(lambda rows: decodes(middle, middle + rows), stop - middle)
    down = middle - _longest(lambda rows: decodes(middle - rows, middle), middle - start) if up > middle else middle
    before = _islands(decodes, start, down, depth - 1)
    return [*before, (down, middle), (middle, up), *_islands(decodes, max(up, middle + 1), stop, depth - 1)]


def _longest(works: Callable[[int], bool], most: int) -> int:
    """Return the largest number up to ``most`` that works, given that all below one that works do; 0 does."""
    low, high = 0, min(1, most)
    while high > low and works(high):
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if works(middle) else (low, middle)
    return low


def gaps(parts: Sequence[Part], start: int, stop: int) -> list[Part]:
    """Return what parts of a range, in order, leave out of it."""
    edges = [start, *(edge for part in parts for edge in part), stop]
    return [(low, high) for low, high in zip(edges[::2], edges[1::2], strict=True) if low < high]


def joined(parts: Iterable[Part]) -> list[Part]:
    """Return parts, given in order, with those that touch as one."""
    found: list[Part] = []
    for first, last in parts:
        if found and found[-1][1] == first:
            found[-1] = found[-1][0], last
        else:
            found.append((first, last))
    return found


def cut(parts: Iterable[Part], edges: Sequence[int]) -> list[Part]:
    """Return parts cut at those edges, given in order, that lie within them."""
    found: list[Part] = []
    for first, last in parts:
        within = edges[bisect_right(edges, first) : bisect_left(edges, last)]
        found += pairwise(dict.fromkeys((first, *within, last)))
    return found


def _covers(parts: Sequence[Part], part: Part) -> bool:
    """Whether one of some parts, in order, holds another."""
    at = bisect_right(parts, part[0], key=lambda each: each[0]) - 1
    return at >= 0 and parts[at][1] >= part[1]
