"""Results on disk: a file for each finished case, under a name that follows from all that went into it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from invsim.errors import InputError
from invsim.files import entries, write_whole
from invsim.sweep.cases import VERSION, Cell, Study
from invsim.sweep.work import Row

STUDY = "study.json"
CELLS = "cells"

T = TypeVar("T")

SHARED = "holds something that is no sweep; results go to a folder of their own"


class _Begun(msgspec.Struct, forbid_unknown_fields=True):
    """What a folder is for; not read again, but a folder without it is not ours."""

    invsim: str
    base: dict[str, Any]
    set: dict[str, Any]
    vary: dict[str, list[Any]]


class _Finished(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    case: dict[str, Any]
    rows: list[dict[str, str | int | float | None]]
    digest: str
    """Of the rows, by which a damaged file is known."""


class Store:
    """A folder of finished cases.

    Sweeps that run at once may share one: each file appears whole, and equal names hold equal bytes.

    Parameters
    ----------
    folder : Path
        Empty, not there yet, or one that a sweep has begun to fill.

    Raises
    ------
    InputError
        For a folder that holds something else.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if folder.exists() and not folder.is_dir():
            raise InputError("is a file, not a folder", where=str(folder))
        if entries(folder) and not self._is_a_sweep():
            raise InputError(SHARED, where=str(folder))

    def begin(self, study: Study) -> None:
        """Write down what is to be worked out."""
        self.folder.mkdir(parents=True, exist_ok=True)
        begun = msgspec.convert({"invsim": VERSION, **study.to_dict()}, _Begun)
        write_whole(self.folder / STUDY, msgspec.json.format(msgspec.json.encode(begun), indent=2))
        (self.folder / CELLS).mkdir(exist_ok=True)

    def recall(self, cell: Cell) -> list[Row] | None:
        """Return the rows of a case that was finished before; None where it was not, or its file is damaged."""
        if cell.key is None:
            return None
        found = _decoded(self._file(cell.key), _Finished)
        if found is None or (found.key, found.digest) != (cell.key, _digest(found.rows)):
            return None
        return found.rows

    def keep(self, cell: Cell, rows: list[Row]) -> None:
        """Write the rows of a finished case, but for one that could not be told from another later."""
        if cell.key is not None:
            finished = _Finished(cell.key, cell.case.to_dict(), rows, _digest(rows))
            write_whole(self._file(cell.key), msgspec.json.encode(finished))

    def _file(self, key: str) -> Path:
        return self.folder / CELLS / f"{key}.json"

    def _is_a_sweep(self) -> bool:
        """Whether a sweep has begun here; where its study is damaged, a finished case tells as well."""
        if _decoded(self.folder / STUDY, _Begun) is not None:
            return True
        return any(_decoded(path, _Finished) is not None for path in (self.folder / CELLS).glob("*.json"))


def _digest(rows: list[Row]) -> str:
    return hashlib.sha256(msgspec.json.encode(rows)).hexdigest()


def _decoded(path: Path, kind: type[T]) -> T | None:
    """Return what a file holds; None where it is missing or damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
