"""What a fit is made from: two frames of counts, of trials and of episodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import polars as pl

TRIALS = {
    "model": pl.String,
    "task": pl.String,
    "constraint": pl.String,
    "arm": pl.String,
    "seed": pl.String,
    "shape": pl.String,
    "kind": pl.String,
    "attribution": pl.String,
    "injected": pl.String,
    "result": pl.String,
    "next_ok": pl.Boolean,
    "n": pl.Int64,
}
"""A trial is one shown hint, or one injected fix, and the first call that could obey it. Arms of one seed, of a
simulation, meet the same random numbers."""

EPISODES = {
    "model": pl.String,
    "task": pl.String,
    "constraint": pl.String,
    "arm": pl.String,
    "seed": pl.String,
    "shape": pl.String,
    "injected": pl.String,
    "first_occurrence": pl.Boolean,
    "first_ok": pl.Boolean,
    "retries": pl.Int64,
    "ended": pl.String,
    "n": pl.Int64,
}


class TallyLike(Protocol):
    """Counts of trials and of episodes."""

    @property
    def trials(self) -> pl.DataFrame:
        """Columns ``TRIALS``."""

    @property
    def episodes(self) -> pl.DataFrame:
        """Columns ``EPISODES``."""


@dataclass(frozen=True)
class Frames:
    """A tally that was put together by hand, or typed."""

    trials: pl.DataFrame
    episodes: pl.DataFrame


def combined(tallies: Iterable[TallyLike]) -> Frames:
    """Return several tallies as one; a column that one of them lacks is unknown there."""
    found = list(tallies)
    return Frames(
        pl.concat([pl.DataFrame(schema=TRIALS), *(each.trials for each in found)], how="diagonal_relaxed"),
        pl.concat([pl.DataFrame(schema=EPISODES), *(each.episodes for each in found)], how="diagonal_relaxed"),
    )
