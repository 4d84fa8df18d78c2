"""Trials and episodes reduced to counts: all that an estimate needs, in memory that does not grow with the trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from invsim.traces.marks import Marks, marks_of, no_marks
from invsim.traces.schema import Call
from invsim.traces.trials import Episode, Trial, episode_trials, episodes, in_order, retried, turns

if TYPE_CHECKING:
    import polars as pl

OF_TRIALS = (
    "model", "task", "constraint", "arm", "seed", "shape", "kind", "attribution", "injected", "result", "next_ok",
)  # fmt: skip
OF_EPISODES = (
    "model", "task", "constraint", "arm", "seed", "shape", "injected", "first_occurrence", "first_ok", "retries",
    "ended",
)  # fmt: skip
OF_CALLS = ("model", "tool", "outcome")
_OTHERS = {"next_ok", "first_occurrence", "first_ok"}


Counts: TypeAlias = Counter[tuple[Any, ...]]


@dataclass(frozen=True, eq=False)
class Tally:
    """How often each kind of trial and of episode occurred.

    Parameters
    ----------
    trials : DataFrame
        Columns ``OF_TRIALS`` and n (Int64), see ``trials.Trial``; one row for each combination that occurred, sorted.
    episodes : DataFrame
        Columns ``OF_EPISODES`` and n, see ``trials.Episode``.
    calls : DataFrame
        Columns ``OF_CALLS`` and n.
    """

    trials: pl.DataFrame
    episodes: pl.DataFrame
    calls: pl.DataFrame

    @classmethod
    def of(cls, trials: Counts, episodes: Counts, calls: Counts) -> Tally:
        """Return the tally of counts by ``OF_TRIALS``, ``OF_EPISODES`` and ``OF_CALLS``."""
        return cls(_counted(trials, OF_TRIALS), _counted(episodes, OF_EPISODES), _counted(calls, OF_CALLS))

    @classmethod
    def summed(cls, trials: pl.DataFrame, episodes: pl.DataFrame, calls: pl.DataFrame) -> Tally:
        """Return the tally of frames with the columns of one, which may hold a combination twice."""
        return cls(_summed(trials, OF_TRIALS), _summed(episodes, OF_EPISODES), _summed(calls, OF_CALLS))

    def __add__(self, other: Tally) -> Tally:
        return total([self, other])


def total(tallies: Sequence[Tally]) -> Tally:
    """Return the sum of tallies; that of none is empty."""
    import polars as pl

    every = [Tally.of(Counter(), Counter(), Counter()), *tallies]
    return Tally.summed(
        pl.concat([each.trials for each in every]),
        pl.concat([each.episodes for each in every]),
        pl.concat([each.calls for each in every]),
    )


def _counted(counts: Counts, names: Sequence[str]) -> pl.DataFrame:
    import polars as pl

    types = {name: pl.Boolean if name in _OTHERS else pl.String for name in names} | {"n": pl.Int64}
    if "retries" in names:
        types["retries"] = pl.Int64
    return pl.DataFrame([(*key, n) for key, n in counts.items()], schema=types, orient="row").sort(names)


def _summed(counts: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    import polars as pl

    return counts.group_by(names).agg(pl.col("n").sum()).sort(names)


def trial_key(trial: Trial) -> tuple[Any, ...]:
    """Return what a trial is counted under."""
    return tuple(getattr(trial, name) for name in OF_TRIALS)


def episode_key(episode: Episode) -> tuple[Any, ...]:
    """Return what an episode is counted under."""
    return tuple(getattr(episode, name) for name in OF_EPISODES)


@dataclass(frozen=True)
class Size:
    """What there was to count.

    Parameters
    ----------
    episodes, calls, errors : int
    retries : int
        Turns of a tool that followed one with an error.
    marks : ndarray
        What tells each episode; see ``invsim.traces.marks``.
    """

    episodes: int = 0
    calls: int = 0
    errors: int = 0
    retries: int = 0
    marks: Marks = field(default_factory=no_marks, compare=False, repr=False)

    def __add__(self, other: Size) -> Size:
        return Size(
            self.episodes + other.episodes, self.calls + other.calls, self.errors + other.errors,
            self.retries + other.retries, np.concatenate([self.marks, other.marks]),
        )  # fmt: skip


def tally(calls: Iterable[Call]) -> tuple[Tally, Size]:
    """Count the trials and episodes of one file's calls, which may come in any order and are held at once."""
    trials: Counts = Counter()
    ends: Counts = Counter()
    outcomes: Counts = Counter()
    seen = list(episodes(calls))
    retries = 0
    for mine in seen:
        found, row = episode_trials(mine)
        trials.update(map(trial_key, found))
        ends[episode_key(row)] += 1
        outcomes.update((call.model, call.tool, call.outcome) for call in mine)
        retries += retried(turns(in_order(mine)))
    errors = sum(n for (*_, outcome), n in outcomes.items() if outcome == "error")
    size = Size(len(seen), outcomes.total(), errors, retries, marks_of(seen))
    return Tally.of(trials, ends, outcomes), size
