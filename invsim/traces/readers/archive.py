"""The members of a zip archive, read one at a time, also of one that is cut off or damaged."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from invsim.errors import InputError
from invsim.traces.reader import Faults
from invsim.traces.readers.records import open_bytes, unreadable

LARGEST_MEMBER = 1 << 30
"""Bytes of a member once unpacked; a larger one is not read."""

_LOCAL = b"PK\x03\x04"
_CENTRAL = b"PK\x01\x02"
_HEADER = struct.Struct("<4sHHHHHIIIHH")
_STORED, _DEFLATED, _ZSTD, _OLD_ZSTD = 0, 8, 93, 20
_CHUNK, _PIECE = 1 << 20, 1 << 12


class Member(NamedTuple):
    """A member, its bytes, and whether they are all of it."""

    name: str
    data: bytes
    whole: bool


class _Unpacked(NamedTuple):
    data: bytes
    used: int
    problem: str | None


def read_members(path: Path, faults: Faults, wanted: Callable[[str], bool]) -> Iterator[Member]:
    """Yield the wanted members in the order in which they were written.

    The directory at the end of an archive is not used: each member has a header before its bytes, which is there even
    if the end is not. Of a member that is cut off or damaged, what unpacks is yielded, and noted. Of members of one
    name, which an archive that was appended to may hold, all are yielded.

    Raises
    ------
    InputError
        If the file cannot be read, or a member is packed by a method for which a library is missing.
    """
    try:
        with open_bytes(path) as file:
            yield from _members(file, path, faults, wanted)
    except OSError as error:
        raise unreadable(path, error) from None


def _members(file: IO[bytes], path: Path, faults: Faults, wanted: Callable[[str], bool]) -> Iterator[Member]:
    at, searching = 0, False
    while (found := _next_header(file, at)) is not None:
        if found > at and not searching:
            faults.add(f"byte {at}", "damaged-archive", f"{found - at} bytes that belong to no member")
        searching = False
        file.seek(found)
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size:
            faults.add(f"byte {found}", "torn-archive", "the archive ends within a member's header")
            return
        _, _, flags, method, _, _, crc, packed, _, name_size, extra_size = _HEADER.unpack(head)
        name = file.read(name_size).decode("utf-8", errors="replace")
        file.seek(extra_size, 1)
        start = file.tell()
        streamed = bool(flags & 8)
        sized = not streamed and packed != 0xFFFFFFFF
        if sized and not wanted(name):
            at, searching = (start + packed, False) if _is_mark(file, start + packed) else (start, True)
            continue
        unpacked = _unpack(file, method, packed if sized else None, path)
        problem = unpacked.problem
        if problem is None and not streamed and zlib.crc32(unpacked.data) != crc:
            problem = "its checksum is wrong"
        at = start + unpacked.used
        if streamed and unpacked.problem is None:
            at = _after_descriptor(file, at)
        if not _is_mark(file, at):
            at, searching = start, True
        if not wanted(name):
            continue
        if problem is not None:
            faults.add(name, "damaged-member", f"{problem}; {len(unpacked.data)} bytes were unpacked")
        yield Member(name, unpacked.data, problem is None)


def _is_mark(file: IO[bytes], at: int) -> bool:
    """Return whether a header or the directory begins at a position: it is where a sound member ends."""
    file.seek(at)
    return file.read(4) in (_LOCAL, _CENTRAL)


def _next_header(file: IO[bytes], at: int) -> int | None:
    """Return where the next member's header stands at or after a position; None behind the last one.

    The directory begins with its own mark: whatever looks like a header behind that is none.
    """
    overlap = b""
    file.seek(at)
    base = at
    while chunk := file.read(_CHUNK):
        block = overlap + chunk
        local, central = block.find(_LOCAL), block.find(_CENTRAL)
        if central >= 0 and (local < 0 or central < local):
            return None
        if local >= 0:
            return base + local
        overlap = block[-3:]
        base += len(block) - len(overlap)
    return None


def _after_descriptor(file: IO[bytes], at: int) -> int:
    """Return where the descriptor ends that follows a member of a size unknown beforehand."""
    file.seek(at)
    return at + (16 if file.read(4) == b"PK\x07\x08" else 12)


def _unpack(file: IO[bytes], method: int, packed: int | None, path: Path) -> _Unpacked:
    """Unpack a member as far as it goes; a packed stream knows where it ends, whatever its header says."""
    if method == _STORED:
        data = file.read(min(packed or 0, LARGEST_MEMBER))
        return _Unpacked(data, len(data), None if len(data) == (packed or 0) else "it is cut off")
    failure: type[Exception]
    unpacker: Any
    if method == _DEFLATED:
        unpacker, failure = zlib.decompressobj(-zlib.MAX_WBITS), zlib.error
    elif method in (_ZSTD, _OLD_ZSTD):
        unpacker, failure = _zstd(path)
    else:
        return _Unpacked(b"", 0, f"packed by method {method}, which is not known")
    parts: list[bytes] = []
    size = used = 0
    while chunk := file.read(_PIECE):
        try:
            parts.append(unpacker.decompress(chunk))
        except failure as error:
            return _Unpacked(b"".join(parts), used, f"it is damaged: {error}")
        size += len(parts[-1])
        used += len(chunk)
        if size > LARGEST_MEMBER:
            return _Unpacked(b"", used, f"it unpacks to more than {LARGEST_MEMBER} bytes")
        if unpacker.eof:
            return _Unpacked(b"".join(parts), used - len(unpacker.unused_data), None)
    return _Unpacked(b"".join(parts), used, "it is cut off")


def _zstd(path: Path) -> tuple[Any, type[Exception]]:
    try:
        import zstandard
    except ImportError:
        raise InputError(
            "packed with zstd, which needs an extra library: pip install invsim[inspect]", where=str(path)
        ) from None
    return zstandard.ZstdDecompressor().decompressobj(), zstandard.ZstdError
