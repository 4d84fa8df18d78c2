"""Episodes that stand in two files: each is told by a number, the same wherever its calls are written the same.

Calls that an id and a time tell are counted once, see ``repeats``; what has none may be the same, and is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from invsim.traces.columns import frame
from invsim.traces.schema import Call

if TYPE_CHECKING:
    import polars as pl

Marks: TypeAlias = npt.NDArray[np.uint64]

TELLING = ("episode_id", "task_id", "model", "arm", "seed", "step", "seq", "tool", "request", "outcome")
"""Columns that two episodes must share, call for call, to be taken for one."""


class Common(NamedTuple):
    """How many episodes of a file are in an earlier one too; files by number."""

    file: int
    earlier: int
    episodes: int


def no_marks() -> Marks:
    """Return the marks of no episodes."""
    return np.empty(0, np.uint64)


def marks_in(rows: pl.DataFrame, starts: npt.NDArray[np.int64]) -> Marks:
    """Return the mark of each episode, given where its rows begin."""
    if not len(starts):
        return no_marks()
    found: Marks = np.add.reduceat(rows.select(TELLING).hash_rows().to_numpy(), starts)
    return found


def marks_of(episodes: Sequence[Sequence[Call]]) -> Marks:
    """Return the mark of each episode, given its calls."""
    if not episodes:
        return no_marks()
    lengths = np.array([len(each) for each in episodes])
    return marks_in(frame(list(chain(*episodes)), TELLING), np.cumsum(lengths) - lengths)


def in_common(files: Sequence[Marks]) -> list[Common]:
    """Return, of the files in order, which have episodes of an earlier one, and how many."""
    owner = np.repeat(np.arange(len(files)), [len(each) for each in files])
    mark = np.concatenate([no_marks(), *files])
    order = np.lexsort((owner, mark))
    owner, mark = owner[order], mark[order]
    begins = np.flatnonzero(np.append(True, mark[1:] != mark[:-1])[: len(mark)])
    first = np.repeat(owner[begins], np.diff(begins, append=len(mark)))
    again = owner != first
    pairs, times = np.unique(np.stack([owner[again], first[again]], axis=1), axis=0, return_counts=True)
    return [Common(file, earlier, n) for (file, earlier), n in zip(pairs.tolist(), times.tolist(), strict=True)]
