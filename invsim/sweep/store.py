"""Results on disk: a file for each finished case, under a name that follows from all that went into it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from invsim.errors import InputError
from invsim.sweep.cases import Case, Study
from invsim.sweep.work import Row

STUDY = "study.json"
CELLS = "cells"


class _Finished(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    case: dict[str, Any]
    rows: list[dict[str, str | int | float | None]]


class Store:
    """A folder of finished cases.

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
            raise InputError("is a file, not a folder", value=str(folder))
        if folder.is_dir() and any(folder.iterdir()) and not (folder / STUDY).is_file():
            raise InputError("holds something that is no sweep; results go to a folder of their own", value=str(folder))

    def begin(self, study: Study) -> None:
        """Write down what is to be worked out."""
        (self.folder / CELLS).mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / STUDY, msgspec.json.format(msgspec.json.encode(study.to_dict()), indent=2))

    def recall(self, case: Case) -> list[Row] | None:
        """Return the rows of a case that was finished before; None where it was not, or its file is damaged."""
        try:
            found = msgspec.json.decode(self._file(case).read_bytes(), type=_Finished)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
        return found.rows if found.key == case.key else None

    def keep(self, case: Case, rows: list[Row]) -> None:
        """Write the rows of a finished case, whole or not at all."""
        write_whole(self._file(case), msgspec.json.encode(_Finished(case.key, case.to_dict(), rows)))

    def _file(self, case: Case) -> Path:
        return self.folder / CELLS / f"{case.key}.json"


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that appears whole or not at all."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.write_bytes(data)
    unfinished.replace(path)
