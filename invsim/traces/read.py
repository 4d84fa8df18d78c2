"""Reading traces of any known format: which reader, what was there, what was lost, and the calls or their tally."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import chain, islice
from pathlib import Path

from invsim.errors import InputError, one_line
from invsim.traces.apart import WORKER, Died
from invsim.traces.marks import in_common
from invsim.traces.native import MAGIC, NATIVE
from invsim.traces.parquet import (
    NEEDED,
    File,
    Footer,
    Stretch,
    Torn,
    Unreadable,
    check_columns,
    footer_apart,
    read_footer,
    sound,
)  # fmt: skip
from invsim.traces.reader import HEAD, Fault, Faults, Reader, get_reader, reader_names
from invsim.traces.repeats import Repeats
from invsim.traces.schema import Call
from invsim.traces.tally import Size, Tally, tally, total
from invsim.traces.writing import write_calls

SHOWN = 100
"""Faults of a file that are kept; all are counted."""

HELD = 100_000
"""Calls of a file that are held as objects; a longer one is tallied by columns, from a file of the native format."""

UNREADABLE = "unreadable-file"

_PACKED = "is compressed ({}); unpack it first"
WRAPPED = {
    b"\x1f\x8b": _PACKED.format("gzip"),
    b"\x28\xb5\x2f\xfd": _PACKED.format("zstd"),
    b"BZh": _PACKED.format("bzip2"),
    b"\xfd7zXZ\0": _PACKED.format("xz"),
    b"PK\x03\x04": "is a zip archive, and not one of Inspect; unpack it first",
    b"PARE": "is encrypted Parquet; decrypt it first",
    b"\xff\xfe": "is UTF-16 text; write it as UTF-8 first",
    b"\xfe\xff": "is UTF-16 text; write it as UTF-8 first",
}
"""How a file begins that may well hold a trace, and what is to be done about it."""


@dataclass
class FileReport:
    """What there was in one file.

    Parameters
    ----------
    file, format : str
        ``format`` is empty where no reader knew the file.
    episodes, calls, errors : int
    retries : int or None
        Turns of a tool after one with an error; None from ``read_calls``, which does not put calls in order.
    skipped : dict of str to int
        Things lost, by kind.
    noted : dict of str to int
        Things read with a doubt, by kind.
    warnings : list of str
        "file:place: kind: message", the first ``SHOWN`` of them.
    """

    file: str
    format: str = ""
    episodes: int = 0
    calls: int = 0
    errors: int = 0
    retries: int | None = None
    skipped: dict[str, int] = field(default_factory=dict)
    noted: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def faults(self) -> int:
        """How many things were lost or doubtful."""
        return sum(self.skipped.values()) + sum(self.noted.values())

    def measure(self, size: Size) -> None:
        """Enter what was counted."""
        self.episodes, self.calls, self.errors, self.retries = size.episodes, size.calls, size.errors, size.retries

    def to_dict(self) -> dict[str, object]:
        """Return plain data."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


class Reported(Faults):
    """Counts faults into a report and keeps the first; with ``strict`` the first is an error."""

    def __init__(self, report: FileReport, *, strict: bool) -> None:
        super().__init__(report.file)
        self.report, self.strict = report, strict

    def add(self, place: object, kind: str, message: str, *, lost: bool = True) -> None:
        """Note a fault."""
        if self.strict:
            raise InputError(f"{kind}: {message}", where=f"{self.file}:{place}" if place else self.file)
        counts = self.report.skipped if lost else self.report.noted
        counts[kind] = counts.get(kind, 0) + 1
        if len(self.report.warnings) < SHOWN:
            self.report.warnings.append(
                one_line(f"{self.file}:{place}: {kind}: {message}" if place else f"{self.file}: {kind}: {message}")
            )
            self.found.append(Fault(self.file, str(place), kind, message, lost))

    def absorb(self, other: Reported) -> None:
        """Add the faults that another has met, which come after these."""
        for mine, theirs in (
            (self.report.skipped, other.report.skipped),
            (self.report.noted, other.report.noted),
        ):
            for kind, count in theirs.items():
                mine[kind] = mine.get(kind, 0) + count
        more = SHOWN - len(self.report.warnings)
        self.report.warnings += other.report.warnings[:more]
        self.found += other.found[:more]


# Which reader -------------------------------------------------------------------------------------------------------


def open_reader(path: Path | str, format: str | None = None) -> Reader:
    """Return the reader of a file: the one named, or the first that knows the file by its content.

    Raises
    ------
    InputError
        For a folder, a file that cannot be read, an empty one, or one of a format not known.
    UnknownNameError
        For a name that no reader has.
    """
    import_module("invsim.traces.readers")  # they register themselves
    path = Path(path)
    named = None if format is None else get_reader(format, where="format")
    head = _head(path)
    if named is not None:
        return named
    for name in reader_names():
        reader = get_reader(name)
        if reader.detect(head, path):
            return reader
    for mark, what in WRAPPED.items():
        if head.startswith(mark):
            raise InputError(what, where=str(path))
    raise InputError(f"is in no known trace format; known: {', '.join(reader_names())}", where=str(path))


def _head(path: Path) -> bytes:
    if path.is_dir():
        raise InputError("is a folder; name the files in it", where=str(path))
    if path.exists() and not path.is_file():
        raise InputError(
            "is no file but a pipe or a device, which can be read but once; save it first", where=str(path)
        )
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise InputError(f"cannot be read: {reason}", where=str(path)) from None
    if not head:
        raise InputError("is empty", where=str(path))
    return head


def _opened(
    path: Path, format: str | None, strict: bool
) -> tuple[FileReport, Reported, Reader | None]:  # fmt: skip
    report = FileReport(str(path))
    faults = Reported(report, strict=strict)
    try:
        reader = open_reader(path, format)
    except InputError as error:
        if strict:
            raise
        faults.add("", UNREADABLE, error.what)
        return report, faults, None
    report.format = reader.name
    return report, faults, reader


def _guarded(reader: Reader, path: Path, faults: Reported) -> Iterator[Call]:
    """Yield the calls of a file until the file gives out, or its reader gives it up; other files are still read."""
    begun = False
    try:
        for call in reader.read(path, faults):
            begun = True
            yield call
    except (InputError, OSError) as error:
        _give_up(faults, error, begun=begun)


def _give_up(faults: Reported, error: InputError | OSError, *, begun: bool = False) -> None:
    """Note that a file cannot be read, or not to its end; with ``strict`` that is raised."""
    if faults.strict:
        raise error
    if not begun:
        faults.report.format = ""
    faults.add("", UNREADABLE, error.what if isinstance(error, InputError) else error.strerror or str(error))


# Calls --------------------------------------------------------------------------------------------------------------


def read_calls(
    paths: Iterable[Path | str], *, format: str | None = None, strict: bool = False
) -> Iterator[tuple[FileReport, Iterator[Call]]]:
    """Yield of each file its report and its calls, in order; the report is complete once the calls are spent.

    A call that a file of the same format before told of counts there alone, but for the native format.

    Parameters
    ----------
    paths : iterable of Path
    format : str, optional
        Name of a reader; by default each file is known by its content.
    strict : bool
        Raise the first fault as an ``InputError``, in place of counting it.
    """
    paths = list(paths)
    repeats = _repeats(paths)
    for path in paths:
        report, faults, reader = _opened(Path(path), format, strict)
        calls = iter(()) if reader is None else _new_calls(reader, Path(path), faults, repeats)
        yield report, _measured(calls, report)


def _repeats(paths: Sequence[object]) -> Repeats | None:
    """Return what knows the calls of one file again in the next; None for a file alone, to which there is no other."""
    return Repeats() if len(paths) > 1 else None


def _new_calls(reader: Reader, path: Path, faults: Reported, repeats: Repeats | None) -> Iterator[Call]:
    calls = _guarded(reader, path, faults)
    return calls if reader is NATIVE or repeats is None else repeats.without(calls, faults)


def _measured(calls: Iterable[Call], report: FileReport) -> Iterator[Call]:
    """Pass calls on and count them."""
    seen: set[str] = set()
    for call in calls:
        report.calls += 1
        report.errors += call.outcome == "error"
        seen.add(call.episode_id)
        report.episodes = len(seen)
        yield call


# Tallies ------------------------------------------------------------------------------------------------------------


def read_tally(
    paths: Iterable[Path | str],
    *,
    format: str | None = None,
    strict: bool = False,
    progress: Callable[[int], None] | None = None,
) -> tuple[Tally, list[FileReport]]:
    """Return the tally of all files, in bounded memory, and a report of each.

    An episode is known by its id within its file; its rows may stand in any order. Calls count as for ``read_calls``.
    Episodes that are in two files all the same, call for call, count twice, and are told in the report of the second.

    Parameters
    ----------
    paths : iterable of Path
    format : str, optional
    strict : bool
    progress : callable, optional
        Told of bytes of the files as they are done with.

    Raises
    ------
    InputError
        With ``strict``, at the first fault.
    """
    paths = list(paths)
    tallies, reports, noted, marks, repeats = [], [], [], [], _repeats(paths)
    for path in map(Path, paths):
        report, faults, reader = _opened(path, format, strict)
        if reader is not None:
            advance = _Share(path, progress)
            counted, size = _tally_file(path, reader, faults, repeats, advance)
            report.measure(size)
            tallies.append(counted)
            noted.append(faults)
            marks.append(size.marks)
            advance.finish()
        reports.append(report)
    for file, earlier, n in in_common(marks):
        what = f"{n:,} episodes are in {noted[earlier].file} too, call for call"
        noted[file].add("", "repeated-episodes", f"{what}; if they are the same ones, they count twice", lost=False)
    return total(tallies), reports


class _Share:
    """Tells progress in bytes of a file, from rows where their number is known."""

    def __init__(self, path: Path, progress: Callable[[int], None] | None) -> None:
        self.progress, self.bytes, self.told = progress, path.stat().st_size, 0

    def rows(self, height: int) -> Callable[[int], None]:
        """Return a function that takes rows of a file that holds ``height``."""
        done = 0

        def advance(rows: int) -> None:
            nonlocal done
            done += rows
            self._tell(self.bytes * min(done, height) // max(1, height))

        return advance

    def finish(self) -> None:
        """Tell what is left."""
        self._tell(self.bytes)

    def _tell(self, upto: int) -> None:
        if self.progress is not None and upto > self.told:
            self.progress(upto - self.told)
            self.told = upto


def _tally_file(
    path: Path, reader: Reader, faults: Reported, repeats: Repeats | None, advance: _Share
) -> tuple[Tally, Size]:  # fmt: skip
    if reader is NATIVE and _is_parquet(path):
        try:
            return _tally_parquet(path, faults, advance, marked=repeats is not None)
        except Unreadable as error:
            _give_up(faults, error)
            return tally([])
    calls = _new_calls(reader, path, faults, repeats)
    held = list(islice(calls, HELD))
    if len(held) < HELD:
        return tally(held)
    with tempfile.TemporaryDirectory(prefix="invsim-") as folder:
        native = Path(folder) / "calls.parquet"
        write_calls(native, chain(_handed_over(held), calls))
        return _tally_native(native, faults)


def _tally_native(path: Path, faults: Faults) -> tuple[Tally, Size]:
    """Tally a file written here a moment ago, and sound."""
    from invsim.traces.columnar import tally_parquet

    footer = read_footer(File.at(path))
    whole = check_columns(footer, faults)
    return tally([]) if footer is None or whole is None else tally_parquet(footer.file, [whole], faults)


def _tally_parquet(path: Path, faults: Reported, advance: _Share, *, marked: bool) -> tuple[Tally, Size]:
    """Tally a file from elsewhere, in a process apart; once more, without what cannot be decoded, if that fails."""
    footer = footer_apart(path)
    whole = check_columns(footer, faults)
    if footer is None or whole is None:
        return tally([])
    try:
        return _tally_apart(footer, [whole], faults, advance, marked)
    except (Died, Torn):
        stretches = sound(footer.file, whole, NEEDED, faults)
    try:
        return _tally_apart(footer, stretches, faults, advance, marked)
    except Died as died:
        raise Unreadable(f"the process that counts it was {died}; is there memory enough?", where=str(path)) from None
    except Torn as torn:  # it could be decoded a moment ago
        raise Unreadable(f"cannot be counted: {torn}", where=str(path)) from None


def _tally_apart(
    footer: Footer, stretches: Sequence[Stretch], faults: Reported, advance: _Share, marked: bool
) -> tuple[Tally, Size]:
    tell = advance.rows(footer.rows)
    found, size, met = WORKER.call(_tally_there, footer.file, stretches, faults.strict, marked, told=tell)
    faults.absorb(met)
    return found, size


def _tally_there(
    file: File, stretches: Sequence[Stretch], strict: bool, marked: bool = True, *, tell: Callable[[int], None]
) -> tuple[Tally, Size, Reported]:
    from invsim.traces.columnar import tally_parquet

    faults = Reported(FileReport(file.name), strict=strict)
    found, size = tally_parquet(file, stretches, faults, tell, marked=marked)
    return found, size, faults


def _handed_over(calls: list[Call]) -> Iterator[Call]:
    """Yield calls and let go of them."""
    calls.reverse()
    while calls:
        yield calls.pop()


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC
