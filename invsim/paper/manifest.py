"""Writing the paper's files, with a manifest of what each was made from; and checking that they are up to date.

The same seed, streams and library versions give the same bytes, so files that are up to date are not touched.
"""

from __future__ import annotations

import dataclasses
import hashlib
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from invsim.errors import InputError
from invsim.paper.artifacts import FIGURES, Artifact
from invsim.paper.context import SEED, STREAMS, Context

NAME = "manifest.json"
DIGITS = 9
"""Significant digits of a number that its hash goes by: more may differ from machine to machine."""


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a file was made from.

    ``sha256`` is that of its bytes, ``data`` that of the plain values it shows.
    """

    artifact: str
    sha256: str
    data: str
    seed: int
    streams: int
    versions: dict[str, str]


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The files of a folder, by name."""

    files: dict[str, Entry]


@dataclass(frozen=True)
class Made:
    """A file of an artifact: where it belongs, its bytes, and its entry."""

    artifact: Artifact
    file: str
    content: bytes
    entry: Entry


@dataclass(frozen=True)
class Written:
    """A file of the paper on disk, and whether it had to be written."""

    path: Path
    entry: Entry
    changed: bool


@cache
def versions() -> dict[str, str]:
    """Return the versions that the bytes of a file depend on."""
    libraries = {name: version(name) for name in ("invsim", "numpy", "polars", "matplotlib")}
    return {"python": platform.python_version(), **libraries}


def make(artifacts: Sequence[Artifact], context: Context) -> Iterator[Made]:
    """Make every file of some artifacts."""
    for artifact in artifacts:
        data, files = artifact.made(context)
        shown = digest(msgspec.json.encode(canonical(data), order="deterministic"))
        for file, content in files.items():
            entry = Entry(artifact.name, digest(content), shown, context.seed, context.streams, versions())
            yield Made(artifact, file, content, entry)


def write(artifacts: Sequence[Artifact], context: Context, folders: Mapping[str, Path]) -> list[Written]:
    """Write every file of some artifacts, and enter it in the manifest of its folder.

    Parameters
    ----------
    artifacts : sequence of Artifact
    context : Context
    folders : mapping of ``TABLES`` and ``FIGURES`` to Path
    """
    written = []
    entries = {folder: dict(read(path).files) for folder, path in folders.items()}
    for made in make(artifacts, context):
        folder = made.artifact.folder
        path = folders[folder] / made.file
        written.append(Written(path, made.entry, _replace(path, made.content)))
        entries[folder][made.file] = made.entry
    for folder, files in entries.items():
        if files:
            manifest = Manifest(dict(sorted(files.items())))
            _replace(folders[folder] / NAME, msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
    return written


def _replace(path: Path, content: bytes) -> bool:
    """Write a file whole or not at all, and only if that changes it."""
    if path.is_file() and path.read_bytes() == content:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.write_bytes(content)
    unfinished.replace(path)
    return True


def read(folder: Path) -> Manifest:
    """Return the manifest of a folder; an empty one where there is none."""
    path = folder / NAME
    if not path.is_file():
        return Manifest({})
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except msgspec.DecodeError as error:
        raise InputError(f"is not a manifest that this version writes: {error}", where=str(path)) from None


@dataclass(frozen=True)
class Checked:
    """What a check found: files that are not what they would be if made now, and what is to be said about how."""

    stale: tuple[str, ...]
    notes: tuple[str, ...]
    files: int


def check(
    artifacts: Sequence[Artifact],
    folders: Mapping[str, Path],
    *,
    seed: int | None = None,
    streams: int | None = None,
    whole: bool = True,
    tell: Callable[[str], None] | None = None,
) -> Checked:
    """Make every file again, in memory, with the seed and streams it was made with, and compare.

    An artifact is not made again where each of its files is missing, unknown to the manifest, or altered since.

    Figures drawn with other versions of the libraries are compared by the data they show.

    Parameters
    ----------
    artifacts : sequence of Artifact
    folders : mapping of ``TABLES`` and ``FIGURES`` to Path
    seed, streams : int, optional
        In place of those that the manifest has.
    whole : bool
        Whether ``artifacts`` are all there are, so that a file of any other is stale.
    tell : callable, optional
        See ``Context``.
    """
    manifests = {folder: read(path) for folder, path in folders.items()}
    contexts: dict[tuple[int, int], Context] = {}
    stale, notes, files = [], [], 0
    for artifact in artifacts:
        known = next(
            (entry for entry in manifests[artifact.folder].files.values() if entry.artifact == artifact.name), None
        )
        key = (
            seed if seed is not None else known.seed if known else SEED,
            streams if streams is not None else known.streams if known else STREAMS,
        )
        home, entries = folders[artifact.folder], manifests[artifact.folder].files
        faults = {file: (_unfit(home / file, entries.get(file)), "") for file in artifact.files}
        if not all(fault for fault, _ in faults.values()):
            context = contexts.setdefault(key, Context(*key, tell))
            for made in make([artifact], context):
                faults[made.file] = _fault(made, home / made.file, entries.get(made.file))
        files += len(faults)
        stale += [f"{home / file}: {fault}" for file, (fault, _) in faults.items() if fault]
        notes += [note for note in dict.fromkeys(note for _, note in faults.values()) if note and note not in notes]
    if whole:
        promised = {(each.folder, file) for each in artifacts for file in each.files}
        for folder, manifest in manifests.items():
            gone = [file for file in manifest.files if (folder, file) not in promised]
            stale += [f"{folders[folder] / file}: is in the manifest, and made no more" for file in gone]
    return Checked(tuple(stale), tuple(notes), files)


def _unfit(path: Path, entry: Entry | None) -> str:
    """Return why a file on disk need not be compared with what would be made now; empty if it must be."""
    if not path.is_file():
        return "is missing"
    if entry is None:
        return "is not in the manifest"
    return "" if digest(path.read_bytes()) == entry.sha256 else "is not the file that the manifest has"


def _fault(made: Made, path: Path, entry: Entry | None) -> tuple[str, str]:
    """Return what is wrong with a file on disk, and what is to be said about the comparison; empty for nothing."""
    unfit = _unfit(path, entry)
    if unfit or entry is None:
        return unfit, ""
    if path.read_bytes() == made.content:
        return ("", "") if entry == made.entry else ("its entry in the manifest is out of date", "")
    if entry.data != made.entry.data:
        return "shows other data than would be made now", ""
    other = {name: (old, new) for name, new in versions().items() if (old := entry.versions.get(name)) != new}
    if made.artifact.folder == FIGURES and other:
        changed = ", ".join(f"{name} {old} then, {new} now" for name, (old, new) in other.items())
        return "", f"figures are compared by the data they show, not by their bytes: {changed}"
    return "shows the same data, drawn otherwise", ""


def digest(content: bytes) -> str:
    """Return the SHA-256 of some bytes, in hex."""
    return hashlib.sha256(content).hexdigest()


def canonical(data: Any) -> Any:
    """Return plain data to hash: records as mappings, numbers to ``DIGITS`` significant digits."""
    match data:
        case None | bool() | int() | str():
            return data
        case float():
            return f"{data:.{DIGITS}g}"
        case np.generic() | np.ndarray():
            return canonical(data.tolist())
        case Mapping():
            return {str(key): canonical(value) for key, value in data.items()}
        case msgspec.Struct():
            return {name: canonical(getattr(data, name)) for name in data.__struct_fields__}
        case list() | tuple():
            return [canonical(value) for value in data]
        case set() | frozenset():
            return sorted(map(canonical, data), key=str)
        case _ if dataclasses.is_dataclass(data):
            return {each.name: canonical(getattr(data, each.name)) for each in dataclasses.fields(data)}
        case _:
            raise InputError("an artifact's data is plain values and records of them", value=type(data).__name__)
