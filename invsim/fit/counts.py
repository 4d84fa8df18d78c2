"""Counts that somebody typed, from a table of a paper say, as a tally."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from invsim.errors import InputError
from invsim.fit.frames import EPISODES, TRIALS, Frames
from invsim.located import Source
from invsim.traces.reader import Faults
from invsim.world.wire import Shape

REQUIRED = ("model", "shape", "kind", "applied", "trials")
OPTIONAL = ("task", "constraint", "arm", "injected", "source")
KINDS = ("first_attempt", "recovery")
INJECTED = ("valid", "conflict", "stale", "nothing")
SHAPES = (*(str(shape) for shape in Shape), "remove-a-field")


MOST = 10**9
"""Largest count of a line: more trials would still be as good as certainty, and are a slip of the hand."""

KNOWN_BY = 3
"""Needed columns that tell a file of counts; what else is wrong with its header can then be said."""


def is_counts(head: bytes) -> bool:
    """Return whether a file that begins so is a CSV file of typed counts, its header in order or nearly so."""
    for line in head.decode("utf-8", "replace").removeprefix("\ufeff").splitlines():
        if line.strip() and not line.startswith("#"):
            names = {name.strip().strip('"').lower() for name in re.split("[,;\t]", line)}
            return line.lstrip()[:1] not in {"{", "["} and len(names.intersection(REQUIRED)) >= KNOWN_BY
    return False


def tally_from_counts(path: Path, *, faults: Faults | None = None) -> Frames:
    """Read a CSV file of counts: model, shape, kind, applied, trials, and optionally more.

    Lines that begin with "#" are comments. Optional columns: ``task``, the cluster, unknown where it is empty;
    ``constraint`` and ``arm``, to fit by; ``injected``, what the memory block held, "valid" unless said otherwise for a
    first attempt: of "conflict" and "nothing" the applied are the first tries that succeeded; ``source``, a free text
    that is not read.

    Parameters
    ----------
    path : Path
    faults : Faults, optional
        Takes note of bad lines, which are then left out; without it the first is an error.

    Raises
    ------
    InputError
        A file that cannot be read or has another header; a bad line, without ``faults``.
    """
    trials: list[dict[str, Any]] = []
    episodes: list[dict[str, Any]] = []
    for line, row in _rows(Source.read(path)):
        try:
            _add(row, trials, episodes)
        except InputError as error:
            if faults is None:
                raise InputError(error.what, where=f"{path}, line {line}", value=error.value) from None
            faults.add(f"line {line}", "bad-count", str(error))
    return Frames(
        pl.DataFrame(trials, schema=TRIALS),
        pl.DataFrame(episodes, schema=EPISODES),
    )


def _rows(source: Source) -> Iterator[tuple[int, dict[str | None, Any]]]:
    """Yield each line's number and its fields, comments left out; check the header."""
    lines = [
        (at, line)
        for at, line in enumerate(source.text.splitlines(), 1)
        if line.strip() and not line.startswith("#")
    ]  # fmt: skip
    if not lines:
        raise InputError(f"is empty; a file of counts has the columns {', '.join(REQUIRED)}", where=source.name)
    (first, header), *rest = lines
    names = [name.strip() for name in next(csv.reader([header]))]
    missing = [name for name in REQUIRED if name not in names]
    unknown = [name for name in names if name not in REQUIRED + OPTIONAL]
    where = f"{source.name}, line {first}"
    if missing:
        what = f"a file of counts needs the columns {', '.join(REQUIRED)}, parted by commas"
        raise InputError(what, where=where, value=header)
    if unknown or len(set(names)) < len(names):
        allowed = ", ".join(REQUIRED + OPTIONAL)
        raise InputError(f"the columns of a file of counts are {allowed}, each once", where=where, value=header)
    for at, line in rest:
        yield at, dict(next(csv.DictReader([line], fieldnames=names, restval="")))


def _add(row: dict[str | None, Any], trials: list[dict[str, Any]], episodes: list[dict[str, Any]]) -> None:
    if None in row:
        raise InputError("has more fields than the header", value=row[None])
    said = {str(name): str(value).strip() or None for name, value in row.items()}
    applied, number = (_whole(said[name], name) for name in ("applied", "trials"))
    if applied > number:
        raise InputError("applied must not exceed trials", value=f"{applied} of {number}")
    kind = _one_of(said["kind"], "kind", KINDS)
    shape = _one_of(said["shape"], "shape", SHAPES)
    injected = _one_of(
        said.get("injected") or ("valid" if kind == "first_attempt" else "nothing"), "injected", INJECTED
    )
    if said["model"] is None:
        raise InputError("model must not be empty")
    head: dict[str, Any] = {name: said.get(name) for name in ("model", "task", "constraint", "arm")}
    head |= {"shape": shape, "injected": injected}
    outcomes = [(True, applied), (False, number - applied)]
    if kind == "recovery" or injected in {"valid", "stale"}:
        base: dict[str, Any] = {**head, "kind": kind, "attribution": "certain", "next_ok": None}
        trials += [{**base, "result": "applied" if ok else "other", "n": n} for ok, n in outcomes if n or not number]
    else:
        base = {**head, "first_occurrence": None, "retries": 0, "ended": None}
        episodes += [{**base, "first_ok": ok, "n": n} for ok, n in outcomes if n or not number]


def _whole(text: str | None, name: str) -> int:
    text = text or ""
    if not (text.isascii() and text.isdigit()):
        raise InputError(f"{name} must be a whole number, 0 or more", value=text)
    digits = text.lstrip("0") or "0"
    if len(digits) > len(str(MOST)) or int(digits) > MOST:
        raise InputError(f"{name} must be a whole number, 0 or more and at most {MOST:,}", value=text)
    return int(digits)


def _one_of(text: str | None, name: str, known: tuple[str, ...]) -> str:
    if text not in known:
        raise InputError(f"{name} must be one of {', '.join(known)}", value=text or "")
    return text
