"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from invsim.errors import InputError

UNFINISHED = ".unfinished"
"""How the name of a file ends that is still being written, or whose writer was killed."""


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that appears whole or not at all, whoever else writes the same one.

    Raises
    ------
    InputError
        Where it cannot be written, a full disk among the reasons.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{UNFINISHED}")
    try:
        unfinished.write_bytes(data)
        unfinished.replace(path)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", where=str(path)) from None
    finally:
        with suppress(OSError):  # it is there only if something failed, which has been said
            unfinished.unlink()


def entries(folder: Path) -> list[Path]:
    """Return what a folder holds but for unfinished files; nothing of one that is not there."""
    return [path for path in folder.iterdir() if not path.name.endswith(UNFINISHED)] if folder.is_dir() else []
