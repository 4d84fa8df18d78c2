"""Where in a Parquet file parts begin that can be torn by themselves: row groups, and the pages of each column.

No library at hand tells of pages. What is read here only says where to look for sound rows, of a file known to be
damaged; where it is wrong, rows are looked for in the wrong places, and that is all.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

TAIL = 8
"""Bytes after the footer: its length, and the magic."""

DICTIONARY = 2
"""Type of a page that holds no rows."""

BOOLEANS, BYTE, INTEGERS, DOUBLE, TEXT, LISTS, STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, (9, 10), 12
"""Types of Thrift's compact protocol."""

MOST, LONGEST = 1 << 20, 63
"""Parts that a list may have, and bits of a number: a damaged length is told by them."""

Bytes: TypeAlias = mmap.mmap | bytes

Struct: TypeAlias = dict[int, Any]
"""Fields by number."""

_BROKEN = (IndexError, KeyError, TypeError, ValueError, AttributeError, RecursionError)


class Edges(NamedTuple):
    """The rows, in order, at which something begins, and the number of all rows.

    Parameters
    ----------
    groups : list of int
        Row groups.
    pages : dict of str to list of int
        Pages of each column, as far as their headers can be read.
    weight : int
        Bytes of a row, unpacked, in the group that has most.
    """

    groups: list[int]
    pages: dict[str, list[int]]
    weight: int


NOWHERE = Edges([], {}, 0)


def find_edges(path: Path) -> Edges:
    """Return where the row groups and pages of a file begin; nothing, where its footer does not tell."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            end = len(data) - TAIL
            start = end - int.from_bytes(data[end : end + 4], "little")
            return _edges(data, _struct(data, start)[0][4])
    except (OSError, *_BROKEN):
        return NOWHERE


def _edges(data: Bytes, groups: list[Struct]) -> Edges:
    begins, found, weight = [0], dict[str, set[int]](), 0
    for group in groups:
        first = begins[-1]
        weight = max(weight, sum(column[3][6] for column in group[1]) // max(1, group[3]))
        for column in group[1]:
            about = column[3]
            name = ".".join(part.decode() for part in about[3])
            found.setdefault(name, set()).update((first, *_pages(data, about, first)))
        begins.append(first + group[3])
    return Edges(sorted(begins), {name: sorted({*rows, begins[-1]}) for name, rows in found.items()}, weight)


def _pages(data: Bytes, about: Struct, first: int) -> list[int]:
    """Return the rows at which the pages of a column begin, as far as their headers can be read."""
    at = min(about[9], about.get(11) or about[9])
    end, found, row = at + about[7], [], first
    while at < end:
        try:
            header, at = _struct(data, at)
            if header[1] != DICTIONARY:
                found.append(row)
                row += header[5 if 5 in header else 8][1]
            if header[3] < 0:
                break
            at += header[3]
        except _BROKEN:
            break
    return found


# Thrift -------------------------------------------------------------------------------------------------------------


def _struct(data: Bytes, at: int) -> tuple[Struct, int]:
    """Return a struct and where it ends."""
    found, field = {}, 0
    while head := data[at]:
        at += 1
        if head >> 4:
            field += head >> 4
        else:
            field, at = _integer(data, at)
        found[field], at = _value(data, at, head & 15)
    return found, at + 1


def _value(data: Bytes, at: int, kind: int, *, listed: bool = False) -> tuple[Any, int]:
    if kind in BOOLEANS:
        return (data[at] if listed else kind) == BOOLEANS[0], at + listed
    if kind == BYTE:
        return data[at], at + 1
    if kind in INTEGERS:
        return _integer(data, at)
    if kind == DOUBLE:
        return data[at : at + 8], at + 8
    if kind == TEXT:
        length, at = _varint(data, at)
        return data[at : at + length], at + length
    if kind in LISTS:
        return _list(data, at)
    if kind == STRUCT:
        return _struct(data, at)
    raise ValueError(f"type {kind} is not used in Parquet")


def _list(data: Bytes, at: int) -> tuple[list[Any], int]:
    head = data[at]
    length, at = (head >> 4, at + 1) if head >> 4 < 15 else _varint(data, at + 1)
    if length > MOST:
        raise ValueError("longer than any list of Parquet")
    found = []
    for _ in range(length):
        value, at = _value(data, at, head & 15, listed=True)
        found.append(value)
    return found, at


def _integer(data: Bytes, at: int) -> tuple[int, int]:
    number, at = _varint(data, at)
    return number >> 1 ^ -(number & 1), at


def _varint(data: Bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, LONGEST + 1, 7):
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
    raise ValueError("longer than any number of Parquet")
