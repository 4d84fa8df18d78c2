"""What a reader of one log format is: it knows a file by its content and yields calls, whatever else goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from invsim.errors import UnknownNameError
from invsim.traces.schema import Call

HEAD = 65_536
"""Bytes of a file that a reader is shown to recognise it by."""


class Fault(NamedTuple):
    """Something in a file that could not be read, or was read with a doubt.

    ``place`` is a line, a byte, a member of an archive or a pointer, as the format counts; ``kind`` one short word to
    count by, "torn-line" or "duplicate-span"; ``lost`` tells that what stood there is in no row.
    """

    file: str
    place: str
    kind: str
    message: str
    lost: bool = True


class Faults:
    """The faults of one file, in the order met."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: list[Fault] = []

    def add(self, place: object, kind: str, message: str, *, lost: bool = True) -> None:
        """Note a fault."""
        self.found.append(Fault(self.file, str(place), kind, message, lost))


@runtime_checkable
class Reader(Protocol):
    """A reader of one format. Implement the two methods and hand an instance to ``register_reader``."""

    name: str

    def detect(self, head: bytes, path: Path) -> bool:
        """Return whether a file is of this format, judged by its first ``HEAD`` bytes; never by its name alone."""

    def read(self, path: Path, faults: Faults) -> Iterator[Call]:
        """Yield the calls of a file in order; note what is bad in ``faults`` and go on."""


_READERS: dict[str, Reader] = {}


def register_reader(reader: Reader) -> Reader:
    """Make a format known by its name; a later reader of the same name takes the place of an earlier one."""
    _READERS[reader.name] = reader
    return reader


def reader_names() -> tuple[str, ...]:
    """Return the names of the formats known, in the order in which they are tried."""
    return tuple(_READERS)


def get_reader(name: str, *, where: object = "") -> Reader:
    """Return a reader by name; an unknown one is an ``UnknownNameError``."""
    if name not in _READERS:
        raise UnknownNameError("trace format", name, _READERS, where=where)
    return _READERS[name]
