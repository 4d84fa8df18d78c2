"""What an engine returns: counts per episode and per stream, as arrays; and the same as frames."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from invsim.client.planners.base import Injected
from invsim.sim.plan import Plan

if TYPE_CHECKING:
    import polars as pl

Ints = npt.NDArray[np.int64]

PER_EPISODE = ("attempts", "completed", "injected", "addressable", "evicted", "restamped", "injected_entries")
PER_STREAM = (
    "restamp_operations",
    "evicted_right_by_row",
    "evicted_right_by_table",
    "required_by_row",
    "required_by_table",
    "contract_failures",
)


@dataclass(frozen=True)
class Block:
    """Outcomes of consecutive streams of one arm and one model.

    Parameters
    ----------
    first : int
        Index of the first stream.
    episodes : ndarray of int, shape (streams, episodes, len(PER_EPISODE))
        Per episode: attempts made (1..5); completed (0/1); what was injected (``Injected``); whether the key had
        completed before (0/1); entries evicted, and entries restamped, counted once for every table they were
        brought up to date with; entries in the injected block, summed over
        attempts.
    streams : ndarray of int, shape (streams, len(PER_STREAM))
        Per stream: restamp operations; evictions that were right under the row oracle and under the cleared-table
        oracle; evictions that either oracle required; version checks that disagreed with the server.
    alerts : ndarray of int, shape (streams, drift events)
        Episode in which the client noticed each drift event; -1 for never.
    """

    first: int
    episodes: Ints
    streams: Ints
    alerts: Ints

    def episode(self, name: str) -> Ints:
        """Return one per-episode column, shape (streams, episodes)."""
        return self.episodes[:, :, PER_EPISODE.index(name)]

    def stream(self, name: str) -> Ints:
        """Return one per-stream column, shape (streams,)."""
        return self.streams[:, PER_STREAM.index(name)]

    @property
    def first_try(self) -> npt.NDArray[np.bool_]:
        """Whether the first attempt succeeded, shape (streams, episodes)."""
        hit: npt.NDArray[np.bool_] = (self.episode("attempts") == 1) & (self.episode("completed") == 1)
        return hit


def write_block(plan: Plan, block: Block, *, model: str, arm: str, folder: Path) -> None:
    """Write a block as two Parquet parts, ``episodes/`` and ``streams/``; a part appears whole or not at all."""
    part = f"{_slug(model)}.{_slug(arm)}.{block.first:09d}.parquet"
    frames = {"episodes": episode_frame, "streams": stream_frame}
    for name, frame in frames.items():
        target = folder / name / part
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_suffix(".unfinished")
        with unfinished.open("wb") as file:  # by its name Polars might write elsewhere: "file:" is an address to it
            frame(plan, block, model=model, arm=arm).write_parquet(file)
        unfinished.replace(target)


def _slug(name: str) -> str:
    """Return a name fit for a file: what a model calls itself is never a path, and no two share one."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:60]
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def episode_frame(plan: Plan, block: Block, *, model: str, arm: str) -> pl.DataFrame:
    """Return one row per episode.

    Columns: scenario, model, arm, stream, episode, class, key, shape, injected, attempts, retries, completed,
    first_try, addressable, eligible, evicted, restamped, injected_entries. ``key`` and ``shape`` are null for tasks
    without a constraint.
    """
    import polars as pl

    streams, episodes = block.episodes.shape[:2]
    tasks = plan.episodes
    labels = np.array([each.name.lower() for each in Injected])

    def tiled(values: list[str | None]) -> list[str | None]:
        return [value for _ in range(streams) for value in values]

    counts = {name: block.episode(name).ravel() for name in PER_EPISODE}
    return pl.DataFrame(
        {
            "scenario": pl.repeat(plan.name, streams * episodes, eager=True),
            "model": pl.repeat(model, streams * episodes, eager=True),
            "arm": pl.repeat(arm, streams * episodes, eager=True),
            "stream": np.repeat(np.arange(block.first, block.first + streams), episodes),
            "episode": np.tile(np.arange(episodes), streams),
            "class": tiled([task.constraint for task in tasks]),
            "key": tiled([task.slot.key if task.slot else None for task in tasks]),
            "shape": tiled([str(task.shape) if task.shape else None for task in tasks]),
            "injected": labels[counts["injected"]],
            "attempts": counts["attempts"],
            "retries": counts["attempts"] - 1,
            "completed": counts["completed"].astype(np.bool_),
            "first_try": block.first_try.ravel(),
            "addressable": counts["addressable"].astype(np.bool_),
            "eligible": np.tile(plan.eligible, streams),
            "evicted": counts["evicted"],
            "restamped": counts["restamped"],
            "injected_entries": counts["injected_entries"],
        },
        schema_overrides={"key": pl.String, "shape": pl.String},
    )


def stream_frame(plan: Plan, block: Block, *, model: str, arm: str) -> pl.DataFrame:
    """Return one row per stream.

    Columns: scenario, model, arm, stream, attempts, retries, completed, exhausted, first_try, evictions,
    restamped_entries, the names in ``PER_STREAM``, and ``alert_1`` ... per drift event (null where it was never
    noticed).
    """
    import polars as pl

    streams, episodes = block.episodes.shape[:2]
    attempts, completed = block.episode("attempts").sum(axis=1), block.episode("completed").sum(axis=1)
    alerts = {f"alert_{at + 1}": pl.Series(block.alerts[:, at]).replace(-1, None) for at in range(len(plan.drift))}
    return pl.DataFrame(
        {
            "scenario": pl.repeat(plan.name, streams, eager=True),
            "model": pl.repeat(model, streams, eager=True),
            "arm": pl.repeat(arm, streams, eager=True),
            "stream": np.arange(block.first, block.first + streams),
            "attempts": attempts,
            "retries": attempts - episodes,
            "completed": completed,
            "exhausted": episodes - completed,
            "first_try": block.first_try.sum(axis=1),
            "evictions": block.episode("evicted").sum(axis=1),
            "restamped_entries": block.episode("restamped").sum(axis=1),
            **{name: block.stream(name) for name in PER_STREAM},
            **alerts,
        }
    )
