"""Rows of whole episodes as arrays: in order, each call beside the one that retried it, and how each log ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from invsim.traces.codes import Ints, coded
from invsim.traces.columns import decode, one_of
from invsim.traces.trials import CUT, EXHAUSTED, LATE, REFUSED_NEXT, Ended, closing, marks

if TYPE_CHECKING:
    import polars as pl

Bools = npt.NDArray[np.bool_]

FINISHED: tuple[Ended, ...] = ("completed", "exhausted", "gave_up", "censored")


def starts_of(ids: pl.Series) -> Ints:
    """Return where runs of one value begin."""
    changed = (ids != ids.shift(1)).fill_null(value=True).to_numpy()
    return np.flatnonzero(changed)


class Batch:
    """Rows of whole episodes that stand together, in order of step, and the arrays made of them.

    Parameters
    ----------
    rows : DataFrame
    """

    def __init__(self, rows: pl.DataFrame) -> None:
        starts = starts_of(rows["episode_id"])
        episode = np.repeat(np.arange(len(starts)), np.diff(starts, append=rows.height))
        step, seq = rows["step"].to_numpy(), rows["seq"].to_numpy()
        later = (step[1:] > step[:-1]) | ((step[1:] == step[:-1]) & (seq[1:] >= seq[:-1]))
        if not np.all(later | (np.diff(episode) > 0)):
            order = np.lexsort((seq, step, episode))
            rows, step = rows[order], step[order]
        self.rows, self.starts, self.episode, self.step = rows, starts, episode, step
        self.lasts = np.append(starts[1:], rows.height) - 1
        outcome = rows["outcome"]
        self.ok, self.error, self.missing = ((outcome == each).to_numpy() for each in ("ok", "error", "missing"))
        self.first_of = starts[episode]
        self.tools = coded(rows["tool"])
        self.tool = self.tools.codes

    def any_of(self, flags: Bools) -> Bools:
        """Return of each episode whether any of its rows is flagged."""
        found = np.zeros(len(self.starts), np.bool_)
        found[self.episode[flags]] = True
        return found

    def first_where(self, flags: Bools) -> Ints:
        """Return of each episode the first row that is flagged; the number of rows for none."""
        found = np.full(len(self.starts), len(flags))
        backwards = np.flatnonzero(flags)[::-1]  # of several numbers put in one place the last one stays
        found[self.episode[backwards]] = backwards
        return found


def isin(column: pl.Series, values: tuple[str, ...]) -> Bools:
    """Return which rows hold one of some values."""
    return one_of(column, values).to_numpy()


class Matched(NamedTuple):
    """Of each row: the first call of its tool's next turn (-1 for none), and whether it is surely the one meant."""

    following: Ints
    sure: Bools
    turns_retried: int


def match(batch: Batch) -> Matched:
    """Pair turns of one tool with the next; a turn is the calls of one step."""
    height = len(batch.step)
    same_tool = np.diff(batch.tool) == 0
    apart = np.diff(batch.episode) > 0
    order = np.arange(height) if np.all(same_tool | apart) else np.lexsort((batch.tool, batch.episode))
    episode, tool, step = batch.episode[order], batch.tool[order], batch.step[order]
    new_thread = np.append(True, (np.diff(episode) > 0) | (np.diff(tool) != 0))
    new_turn = new_thread | np.append(True, step[1:] != step[:-1])
    begins = np.flatnonzero(new_turn)
    turn = np.cumsum(new_turn) - 1
    calls = np.diff(begins, append=height)
    errors = np.add.reduceat(batch.error[order].astype(np.int64), begins)
    followed = np.append(~new_thread[begins][1:], False)
    first_call = np.append(order[begins][1:], -1)
    following = np.where(followed, first_call, -1)
    sure = ~followed | ((errors == 1) & (np.append(calls[1:], 0) == 1))
    back = np.empty(height, np.int64)
    back[order] = turn
    return Matched(following[back], sure[back], int((followed & (errors > 0)).sum()))


def closings(batch: Batch) -> Ints:
    """Return how the log of each episode ends, as an index into ``FINISHED``."""
    last = batch.lasts
    exhausted, torn = _marked(batch)
    cut = isin(batch.rows["finish_reason"].gather(last), CUT)
    run = batch.rows["arm"].gather(last).is_not_null().to_numpy()
    bits = np.stack([exhausted, torn, batch.missing[last], cut, run, batch.ok[last]]).astype(np.int64)
    code = (bits << np.arange(6)[:, None]).sum(axis=0)
    table: Ints = np.array([_closing_of(each) for each in range(64)])
    return np.asarray(table[code])


def _closing_of(code: int) -> int:
    exhausted, torn, missing, cut, run, ok = (bool(code >> at & 1) for at in range(6))
    said = frozenset(({EXHAUSTED} if exhausted else set()) | ({"censored"} if torn else set()))
    return FINISHED.index(closing(said, missing=missing, cut=cut, run=run, ok=ok))


def _marked(batch: Batch) -> tuple[Bools, Bools]:
    """Return of each episode whether its warnings call it exhausted, and censored."""
    return batch.any_of(_marks(batch, EXHAUSTED)), batch.any_of(_marks(batch, "censored"))


def _marks(batch: Batch, mark: str) -> Bools:
    """Return which rows carry a warning with a mark."""
    found = np.zeros(len(batch.step), np.bool_)
    rows = np.flatnonzero(batch.rows["warnings"].is_not_null().to_numpy())
    texts = batch.rows["warnings"].gather(rows)
    marked = [text for text in texts.unique() if mark in marks(decode("warnings", text))]
    found[rows] = texts.is_in(marked).to_numpy()
    return found


def late(batch: Batch) -> Bools:
    """Return which episodes begin after their first try."""
    return batch.any_of(_marks(batch, LATE))


def silenced(batch: Batch) -> Bools:
    """Return which rows stand in a step after which the model refused to answer."""
    refused = _marks(batch, REFUSED_NEXT)
    if not refused.any():
        return refused
    begins = np.append(True, (np.diff(batch.episode) > 0) | (batch.step[1:] != batch.step[:-1]))
    turn = np.cumsum(begins) - 1
    return np.asarray(np.logical_or.reduceat(refused, np.flatnonzero(begins))[turn])
