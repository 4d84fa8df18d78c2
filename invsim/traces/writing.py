"""The native format, written: JSON lines that survive a crash, and Parquet built from parts."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol, Self

import msgspec

from invsim.errors import InputError
from invsim.traces.columns import frame
from invsim.traces.schema import Call

SUFFIXES = (".jsonl", ".parquet")
PART = 100_000
"""Calls held before they are written to a part."""

TOGETHER = 100
"""Parts that are opened together to be joined. None is opened by its name, which Polars would not take literally."""


class Writer(Protocol):
    """Takes calls one by one; a context that closes the file."""

    def write(self, call: Call) -> None:
        """Add a row."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class JsonLinesWriter:
    """Writes JSON lines; with ``flush``, each row reaches the file before the next is asked for.

    Parameters
    ----------
    path : Path
    append : bool
        Keep what the file holds; a last line that a crash tore is ended first, so that it spoils no other.
    flush : bool
    """

    def __init__(self, path: Path, *, append: bool = False, flush: bool = True) -> None:
        self._flush = flush
        torn = append and _is_torn(path)
        self._file = path.open("ab" if append else "wb")
        if torn:
            self._file.write(b"\n")

    def write(self, call: Call) -> None:
        """Add a row."""
        self._file.write(msgspec.json.encode(call) + b"\n")
        if self._flush:
            self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def _is_torn(path: Path) -> bool:
    """Whether a file ends within a line."""
    if not path.exists() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1) != b"\n"


class ParquetWriter:
    """Writes Parquet in bounded memory; the file appears whole when the writer closes, and not at all on an error."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder = tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent)
        self._held: list[Call] = []
        self._parts: list[Path] = []
        self._joined: list[Path] = []

    def write(self, call: Call) -> None:
        """Add a row."""
        self._held.append(call)
        if len(self._held) >= PART:
            self._spill()

    def _spill(self) -> None:
        part = self._new("part", len(self._parts))
        with part.open("wb") as file:
            frame(self._held).write_parquet(file, statistics=False)
        self._held.clear()
        self._parts.append(part)
        if len(self._parts) == TOGETHER:
            self._joined.append(self._join(self._parts))
            self._parts = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._folder:
            if error is None:
                if self._held or not (self._parts or self._joined):
                    self._spill()
                self._join([*self._joined, *self._parts]).replace(self._path)

    def _join(self, parts: list[Path]) -> Path:
        """Return a file of the rows of all parts, in order; the parts are gone."""
        import polars as pl

        if len(parts) == 1:
            return parts[0]
        whole = self._new("whole", len(self._joined))
        with ExitStack() as stack, whole.open("wb") as file:
            opened: list[IO[bytes]] = [stack.enter_context(part.open("rb")) for part in parts]
            pl.scan_parquet(opened).sink_parquet(file, row_group_size=PART, statistics=False)
        for part in parts:
            part.unlink()
        return whole

    def _new(self, kind: str, number: int) -> Path:
        return Path(self._folder.name) / f"{kind}{number:09d}"


def open_writer(path: Path) -> Writer:
    """Return the writer for a file by the end of its name.

    Raises
    ------
    InputError
        For an end other than .jsonl or .parquet.
    """
    if path.suffix == ".jsonl":
        return JsonLinesWriter(path, flush=False)
    if path.suffix == ".parquet":
        return ParquetWriter(path)
    raise InputError("a trace ends in .jsonl or .parquet", where=str(path))


def write_calls(path: Path | str, calls: Iterable[Call]) -> int:
    """Write calls to a file ending in .jsonl or .parquet, without holding them all, and return how many.

    The file appears whole, or, on an error, not at all.
    """
    path, count = Path(path), 0
    unfinished = path.with_name(f".unfinished-{path.name}")
    try:
        with open_writer(unfinished) as writer:
            for call in calls:
                writer.write(call)
                count += 1
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return count
