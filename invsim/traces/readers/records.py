"""Files of unknown making into JSON values: what is whole is kept, what is not is noted with its place."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias

import msgspec

from invsim.errors import InputError
from invsim.traces.reader import Faults
from invsim.traces.readers.salvage import salvage, wanted_within

Wanted: TypeAlias = Callable[[Any], bool]

LOOKED_AT = 64
"""Lines that tell whether a file holds a record a line or is one document."""

LONGEST_RUN = 1000
"""Lines in a row that are no JSON by themselves and are looked at together."""

BOM = b"\xef\xbb\xbf"

_MESSAGES = {
    "nul-bytes": "NUL bytes were left out",
    "bad-utf8": "bytes that are not UTF-8 were replaced",
    "nan": "a number that is not finite was read as null",
    "huge-number": "a number too long to read was read as null",
    "control-character": "a control character stands unescaped in a string",
    "lone-surrogate": "half of a surrogate pair was replaced",
}
_CONTROL = re.compile(r"[\x01-\x08\x0b\x0c\x0e-\x1f]")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class Record(NamedTuple):
    """A value that a reader asked for, where it stood, and the ids of its parts that are cut short.

    ``listed`` is the line of the list that it is an item of; empty for a line of its own, or a list that is the file.
    """

    place: str
    value: Any
    torn: frozenset[int] = frozenset()
    listed: str = ""


class Decoded(NamedTuple):
    """A JSON value, and the kinds of doubt with which it was read."""

    value: Any
    doubts: tuple[str, ...] = ()


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file; one that cannot be opened is an ``InputError`` that names it."""
    try:
        return path.open("rb")
    except (OSError, ValueError) as error:  # a path with a NUL byte is a ValueError
        raise unreadable(path, error) from None


def unreadable(path: Path, error: Exception) -> InputError:
    """Return the error that says why a file cannot be read."""
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return InputError(f"cannot be read: {reason}", where=str(path))


def decode(data: bytes) -> Decoded:
    """Decode JSON, and what is nearly JSON with a note of how it departs.

    Raises
    ------
    ValueError
        If the bytes are no JSON value even so.
    """
    try:
        return Decoded(msgspec.json.decode(data))
    except (ValueError, RecursionError):
        return _decode_tolerantly(data)


def note(doubts: tuple[str, ...], place: str, faults: Faults) -> None:
    """Note the doubts of a decoded value; none of them loses a row."""
    for kind in doubts:
        faults.add(place, kind, _MESSAGES[kind], lost=False)


def read_records(path: Path, faults: Faults, wanted: Wanted) -> Iterator[Record]:
    """Yield the wanted values of a file of JSON lines or of one JSON document, whole or broken.

    A line that cannot be decoded is noted and what is whole in it is kept. A file none of whose first lines holds
    anything wanted by itself is one document.

    Raises
    ------
    InputError
        If the file cannot be read.
    """
    try:
        with open_bytes(path) as file:
            head = [line for _, line in zip(range(LOOKED_AT), file, strict=False)]
            if any(_holds(line, wanted) for line in head):
                yield from _read_lines(chain(head, file), faults, wanted)
                return
            data = b"".join(chain(head, file))
    except OSError as error:
        raise unreadable(path, error) from None
    yield from _read_document(data, faults, wanted)


def _holds(line: bytes, wanted: Wanted) -> bool:
    bare = _bare(line)
    if not bare.endswith((b"}", b"]")) or bare[:1] not in (b"{", b"["):
        return False
    try:
        value = decode(bare).value
    except ValueError:
        return False
    return any(True for _ in wanted_within(value, wanted))


def _bare(line: bytes) -> bytes:
    return line.strip().removeprefix(BOM).removesuffix(b",")


def _read_lines(lines: Iterator[bytes], faults: Faults, wanted: Wanted) -> Iterator[Record]:
    bad: list[tuple[int, bytes]] = []
    for number, raw in enumerate(lines, 1):
        line, place = _bare(raw), f"line {number}"
        if not line.strip(b"\0 \t[]"):
            if b"\0" in line:
                faults.add(place, "nul-bytes", "nothing but NUL bytes")
            continue
        try:
            value, doubts = decode(line)
        except ValueError:
            bad.append((number, raw))
            if len(bad) < LONGEST_RUN:
                continue
        yield from _read_bad(bad, faults, wanted)
        if not bad or bad[-1][0] != number:
            note(doubts, place, faults)
            yield from _records(place, value, faults, wanted)
        bad = []
    yield from _read_bad(bad, faults, wanted)


def _read_bad(run: list[tuple[int, bytes]], faults: Faults, wanted: Wanted) -> Iterator[Record]:
    """Yield what is whole in lines that are no JSON by themselves: a record over several lines, or pieces of some."""
    if not run:
        return
    first = run[0][0]
    try:
        value, _ = decode(b"".join(raw for _, raw in run).strip().removesuffix(b","))
    except ValueError:
        pass
    else:
        faults.add(f"line {first}", "split-line", f"one value on {len(run)} lines", lost=False)
        yield from _records(f"line {first}", value, faults, wanted)
        return
    for number, raw in run:
        try:
            decode(_bare(raw))
        except ValueError as error:
            kind = "bad-line" if raw.endswith(b"\n") else "torn-line"
            faults.add(f"line {number}", kind, f"not JSON: {error}")
    # A line is a text of its own, lest what breaks off in one swallow the next; only then are they one text.
    texts = [raw.replace(b"\0", b"").decode("utf-8", errors="replace") for _, raw in run]
    found = [(number, each) for (number, _), text in zip(run, texts, strict=True) for each in salvage(text, wanted)]
    if not found:
        text = "".join(texts)
        found = [(first + text.count("\n", 0, each[0]), each) for each in salvage(text, wanted)]
    for number, (_, value, torn) in found:
        yield Record(f"line {number}", value, torn)


def _read_document(data: bytes, faults: Faults, wanted: Wanted) -> Iterator[Record]:
    data = data.removeprefix(BOM)
    if not data.strip(b"\0 \t\r\n"):
        faults.add("byte 0", "empty-file", "the file holds nothing")
        return
    try:
        value, doubts = decode(data)
    except ValueError as error:
        text = data.replace(b"\0", b"").decode("utf-8", errors="replace")
        faults.add(_place_of(error, text), "torn-document", f"not JSON: {error}")
        line, seen = 1, 0
        for start, found, torn in salvage(text, wanted):
            line, seen = line + text.count("\n", seen, start), start
            yield Record(f"line {line}", found, torn)
        return
    note(doubts, "document", faults)
    yield from _records("", value, faults, wanted)


def _records(place: str, value: Any, faults: Faults, wanted: Wanted) -> Iterator[Record]:
    """Yield what is wanted of a value: itself, or the items of a list."""
    if not isinstance(value, list):
        if wanted(value):
            yield Record(place, value)
        else:
            faults.add(place or "document", "unknown-record", "not a record of this format")
        return
    for index, each in enumerate(value):
        here = f"{place}, [{index}]" if place else f"[{index}]"
        if wanted(each):
            yield Record(here, each, listed=place)
        else:
            faults.add(here, "unknown-record", "not a record of this format")


def _place_of(error: ValueError, text: str) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"line {error.lineno}"
    return f"line {text.count(chr(10)) + 1}"


def _decode_tolerantly(data: bytes) -> Decoded:
    doubts: dict[str, None] = {}
    if b"\0" in data:
        data = data.replace(b"\0", b"")
        doubts["nul-bytes"] = None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("utf-8", errors="replace")
        doubts["bad-utf8"] = None
    try:
        value = _decoder(doubts).decode(text)
        if _SURROGATE.search(text):
            value = _whole_text(value, doubts)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if _CONTROL.search(text):
        doubts["control-character"] = None
    return Decoded(value, tuple(doubts))


def _decoder(doubts: dict[str, None]) -> json.JSONDecoder:
    def constant(_: str) -> None:
        doubts["nan"] = None

    def real(text: str) -> float | None:
        value = float(text)
        return value if math.isfinite(value) else constant(text)  # type: ignore[func-returns-value]

    def whole(text: str) -> int | None:
        try:
            return int(text)
        except ValueError:  # longer than Python converts
            doubts["huge-number"] = None
            return None

    return json.JSONDecoder(parse_constant=constant, parse_float=real, parse_int=whole, strict=False)


def _whole_text(value: Any, doubts: dict[str, None]) -> Any:
    """Return the value with every half of a surrogate pair replaced; such text can be written nowhere."""
    if isinstance(value, str):
        whole = value.encode("utf-8", errors="replace").decode()
        if whole != value:
            doubts["lone-surrogate"] = None
        return whole
    if isinstance(value, list):
        return [_whole_text(each, doubts) for each in value]
    if isinstance(value, dict):
        return {_whole_text(key, doubts): _whole_text(each, doubts) for key, each in value.items()}
    return value
