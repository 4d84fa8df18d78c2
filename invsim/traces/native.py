"""The native format, read: JSON lines or Parquet with one row per call, every fault located and no good row lost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from invsim.errors import InputError
from invsim.traces.columns import NULLABLE, REQUIRED, calls_of
from invsim.traces.parquet import batches_apart, check_columns, footer_apart
from invsim.traces.reader import Faults
from invsim.traces.schema import Call

if TYPE_CHECKING:
    from invsim.traces.reader import Reader

MAGIC = b"PAR1"
TORN = "torn"
"""Warning on the last row that was whole of an episode whose next row was cut off: what came of it is not known."""

_FIELDS = frozenset(Call.__struct_fields__)
_BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n\0"
_EPISODE = re.compile(rb'"episode_id"\s*:\s*("(?:[^"\\]|\\.)*")')
_decode = msgspec.json.Decoder(Call).decode


class NativeReader:
    """Reads what ``invsim`` writes."""

    name = "native"

    def detect(self, head: bytes, path: Path) -> bool:
        """Return whether a file is Parquet with the columns of the schema, or JSON lines with its fields."""
        if head.startswith(MAGIC):
            footer = footer_apart(path)
            return footer is None or _native(footer.columns)
        return any(_native(_keys(line)) for line in head.removeprefix(_BOM).split(b"\n"))

    def read(self, path: Path, faults: Faults) -> Iterator[Call]:
        """Yield the calls in the order of the file."""
        try:
            with path.open("rb") as file:
                parquet = file.read(len(MAGIC)) == MAGIC
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
        return _read_parquet(path, faults) if parquet else _read_lines(path, faults)


NATIVE: Reader = NativeReader()


def _native(names: object) -> bool:
    """Whether enough of the required names are there to tell a file with a fault from one of another format."""
    return isinstance(names, dict) and "episode_id" in names and sum(name in names for name in REQUIRED) >= 3


def _keys(line: bytes) -> object:
    """Return the object of a line, or the keys at the beginning of one too long to stand in the head."""
    line = line.strip(_BLANK)
    if not line.startswith(b"{"):
        return None
    try:
        return msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {name: None for name in REQUIRED if b'"%s":' % name.encode() in line.replace(b'" :', b'":')}


# JSON lines ---------------------------------------------------------------------------------------------------------


def _read_lines(path: Path, faults: Faults) -> Iterator[Call]:
    """Yield the calls of JSON lines, one behind, so that a torn end can be told on the episode it belongs to."""
    rows = _Lines(faults)
    held: Call | None = None
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            call = rows.read(number, line.removeprefix(_BOM) if number == 1 else line)
            if call is not None:
                if held is not None:
                    yield held
                held = call
    if held is not None:
        if rows.torn is not None and rows.torn in ("", held.episode_id):
            held = msgspec.structs.replace(held, warnings=(*held.warnings, TORN))
        yield held


class _Lines:
    """Turns lines into calls and notes what is wrong with them; ``torn`` names the episode of a torn last line."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.torn: str | None = None
        self.unknown: set[str] = set()

    def read(self, number: int, line: bytes) -> Call | None:
        text = line.strip(_BLANK)
        if b"\0" in line:
            self.faults.add(f"line {number}", "nul-bytes", "NUL bytes, as a crash leaves them", lost=not text)
        if not text:
            return None
        try:
            return _decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return self._mend(number, text, torn=not line.endswith(b"\n"))

    def _mend(self, number: int, text: bytes, *, torn: bool) -> Call | None:
        """Read a row that is not plainly right: with unknown fields or nulls it is, and else its fault is noted."""
        try:
            row = msgspec.json.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            kind = "not-utf-8" if _not_utf8(text) else "torn-line" if torn else "not-json"
            if torn:
                self.torn = _episode_of(text)
            self.faults.add(f"line {number}", kind, _brief(error))
            return None
        if not isinstance(row, dict):
            self.faults.add(f"line {number}", "not-an-object", "a row is an object with a field for each column")
            return None
        return self._convert(number, row)

    def _convert(self, number: int, row: dict[str, Any]) -> Call | None:
        for name in sorted(row.keys() - _FIELDS - self.unknown):
            self.unknown.add(name)
            message = f"{name!r} is no field of a call, and is left out here and further on"
            self.faults.add(f"line {number}, {name}", "unknown-field", message, lost=False)
        return to_call(row, f"line {number}", self.faults)


def _not_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return True
    return False


def _brief(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def _episode_of(text: bytes) -> str:
    """Return the episode that a torn row names; empty where it was cut off before that."""
    found = _EPISODE.search(text)
    try:
        return "" if found is None else msgspec.json.decode(found.group(1), type=str)
    except msgspec.MsgspecError:
        return ""


def to_call(row: dict[str, Any], place: str, faults: Faults) -> Call | None:
    """Return the call of a row given as plain data; None, with the fault noted, where a field is wrong.

    Null in a field that has a default stands for the default.
    """
    known = {name: value for name, value in row.items() if name in _FIELDS and (value is not None or name in NULLABLE)}
    try:
        return msgspec.convert(known, Call)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$.")
        missing = re.search(r"missing required field `(\w+)`", message)
        if missing and not path:
            name = missing.group(1)
            faults.add(f"{place}, {name}", "missing-field", "needed in every row" + (", not null" * (name in row)))
        else:
            faults.add(f"{place}, {path.rstrip('`')}", "wrong-value", message.replace("`", ""))
        return None


# Parquet ------------------------------------------------------------------------------------------------------------


def _read_parquet(path: Path, faults: Faults) -> Iterator[Call]:
    footer = footer_apart(path)
    whole = check_columns(footer, faults)
    if footer is None or whole is None:
        return
    for first, batch in batches_apart(footer.file, Call.__struct_fields__, whole, faults):
        yield from calls_of(batch, first, faults)
