"""Which count speaks of which parameter, and which of none, with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from invsim.errors import InputError
from invsim.fit.frames import TallyLike, combined

CELLS = {"p_apply": "first_attempt", "recovery": "recovery"}
"""Rates of trials, by the kind of trial: an injected valid fix, and a hint shown after an error."""

BY = ("model", "shape", "constraint", "arm")
"""Columns that a fit may go by."""

RATES = (*CELLS, "p_stale", "p_fresh", "p_unaided", "p_unaided_first", "p_unaided_repeat")
LAWS = ("retry", "retry_injected")

MISSING = {
    "p_apply": "no valid fix was injected",
    "recovery": "no hint was shown",
    "p_stale": "no stale fix was injected alone",
    "p_fresh": "no stale and valid fix were injected together",
    "p_unaided": "no episode began without a fix",
    "p_unaided_first": "no episode is known to be its key's first",
    "p_unaided_repeat": "no episode is known to repeat its key",
    "retry": "no first try without a fix failed",
    "retry_injected": "no first try with a fix failed",
}
"""Why a parameter has no data."""

UNNAMED = "unknown"
"""The model of calls that name none."""

EXHAUSTED = 5
"""Outcome of an episode that never recovered, beside 1..4, the retry that did."""


@dataclass(frozen=True)
class Evidence:
    """Counts sorted by what they speak of.

    Parameters
    ----------
    by : tuple of str
    keys : list of tuple
        The grid: every model with every combination of the other columns that was seen.
    rates : DataFrame
        Columns of ``by``, parameter, task, seed, within, applied, trials; ``within`` is the arm, where arms of a seed
        may repeat each other's trials.
    laws : DataFrame
        Columns of ``by``, parameter, task, seed, within, outcome (1..4, or 5 for never), n.
    arms : int
        Most arms of one seed.
    left_out : dict of reason to count
    why : dict of (key, parameter) to str
        What was seen of a parameter that nothing is known of.
    """

    by: tuple[str, ...]
    keys: list[tuple[str, ...]]
    rates: pl.DataFrame
    laws: pl.DataFrame
    arms: int
    left_out: dict[str, int]
    why: dict[tuple[tuple[str, ...], str], str]


def gather(tally: TallyLike, *, by: Sequence[str], loose: bool) -> Evidence:
    """Sort the counts of a tally.

    Parameters
    ----------
    tally : TallyLike
    by : sequence of str
        Columns that tell cells apart, "model" first among them.
    loose : bool
        Whether a value of another type that reads the same counts as applied.

    Raises
    ------
    InputError
        A column that cells cannot go by.
    """
    frames = combined([tally])
    if "model" not in by or len(set(by)) < len(by):
        raise InputError("goes by model, and by each column once", where="by", value=",".join(by))
    for name in by:
        if name not in BY:
            raise InputError(f"goes by any of {', '.join(BY)}", where="by", value=name)
    named = pl.when(pl.col("model").str.strip_chars() != "").then("model").otherwise(pl.lit(UNNAMED)).alias("model")
    trials = _trials(frames.trials.with_columns(named), by, loose)
    episodes = _with_shapes(frames.episodes.with_columns(named), frames.trials)
    if "shape" not in by:  # then neither a missing shape nor a text for a hint is in the way
        nothing = {"unshaped": pl.lit(False), "texted": pl.lit(False)}
        episodes = episodes.with_columns(shape=pl.lit(None, pl.String), **nothing)
    firsts, laws = _first_tries(episodes, by), _laws(episodes, by)
    rates = pl.concat([trials, firsts])
    keys = _grid(pl.concat([rates.select(by), laws.select(by)]), by)
    unplaced = _unplaced(episodes)
    doubtful = pl.col("parameter").str.starts_with("p_unaided") & pl.col("model").is_in(list(unplaced))
    beside = pl.when(doubtful).then(pl.lit("episode: beside successes of unknown shape"))
    rates = rates.with_columns(reason=pl.coalesce("reason", beside))
    cell = [*by, "parameter", "task", "seed", "within"]
    used = rates.filter(pl.col("reason").is_null()).group_by(cell)
    ended = laws.filter(pl.col("reason").is_null()).group_by(*cell, "outcome")
    return Evidence(
        by=tuple(by),
        keys=keys,
        rates=used.agg(applied=pl.col("n").filter(pl.col("applied")).sum(), trials=pl.col("n").sum()).sort(cell),
        laws=ended.agg(pl.col("n").sum()).sort(*cell, "outcome"),
        arms=_arms([rates, laws]),
        left_out=_left_out([rates, laws]),
        why=_why([rates, laws], by) | _doubts(keys, by, unplaced),
    )


def _trials(frame: pl.DataFrame, by: Sequence[str], loose: bool) -> pl.DataFrame:
    injected, first = pl.col("injected"), pl.col("kind") == "first_attempt"
    applied = pl.col("result").is_in(["applied", "loose"] if loose else ["applied"])
    reason = (
        pl.when(pl.col("shape") == "text").then(pl.lit("text hint"))
        .when(_unkeyed(by)).then(_lacks(by, ""))
        .when(pl.col("attribution").ne_missing("certain")).then(pl.lit("unknown attribution"))
        .when(pl.col("result").is_null() | (pl.col("result") == "censored")).then(pl.lit("censored"))
        .when(first & ~injected.is_in(["valid", "stale", "conflict"]).fill_null(False))
        .then(pl.lit("unknown validity"))
        .when(first & (injected == "conflict")).then(pl.lit("in a conflict, told by the episode"))
    )  # fmt: skip
    parameter = (
        pl.when(~first).then(pl.lit("recovery"))
        .when(injected == "stale").then(pl.lit("p_stale"))
        .when(injected == "conflict").then(pl.lit("conflict"))
        .otherwise(pl.lit("p_apply"))
    )  # fmt: skip
    return frame.select(*by, parameter=parameter, applied=applied, reason=reason, n="n", task="task", **_run())


def _first_tries(episodes: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return one row per count of first tries and parameter: without a fix, and with a stale beside a valid one."""
    injected = pl.col("injected")
    known = episodes.filter(~injected.is_in(["valid", "stale"]).fill_null(False))  # of those their trials tell
    torn = (pl.col("ended") == "censored") & ~pl.col("first_ok") & (pl.col("retries") == 0)
    reason = (
        pl.when(pl.col("shape") == "text").then(pl.lit("episode: text hint"))
        .when(~injected.is_in(["nothing", "conflict"]).fill_null(False)).then(pl.lit("episode: unknown validity"))
        .when((injected == "nothing") & pl.col("unshaped")).then(pl.lit("episode: success of unknown shape"))
        .when(_unkeyed(by)).then(_lacks(by, "episode: "))
        .when(pl.col("first_ok").is_null() | torn).then(pl.lit("episode: first try censored"))
    )  # fmt: skip
    again = pl.when(injected == "conflict").then(pl.lit("p_fresh")).otherwise(pl.lit("p_unaided"))
    told = known.with_columns(applied="first_ok", reason=reason, again=again)
    columns: dict[str, Any] = {"applied": "applied", "reason": "reason", "n": "n", "task": "task", **_run()}
    whole = told.select(*by, pl.col("again").alias("parameter"), **columns)
    occurrence = pl.when("first_occurrence").then(pl.lit("p_unaided_first")).otherwise(pl.lit("p_unaided_repeat"))
    split = told.filter((injected == "nothing") & pl.col("first_occurrence").is_not_null())
    return pl.concat([whole, split.select(*by, occurrence.alias("parameter"), **columns)])


def _laws(episodes: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    injected, ended, retries = pl.col("injected"), pl.col("ended"), pl.col("retries")
    failed = episodes.filter(~pl.col("first_ok") & ended.is_not_null())
    outcome = pl.when((ended == "completed") & (retries < EXHAUSTED)).then(retries).otherwise(EXHAUSTED)
    reason = (
        pl.when("texted").then(pl.lit("retry law: text hint"))
        .when(_unkeyed(by)).then(_lacks(by, "retry law: "))
        .when(~injected.is_in(["nothing", "valid", "conflict", "stale"]).fill_null(False))
        .then(pl.lit("retry law: unknown validity"))
        .when(ended == "censored").then(pl.lit("retry law: censored"))
        .when((ended == "completed") & (retries < 1)).then(pl.lit("retry law: completed without a retry"))
    )  # fmt: skip
    parameter = pl.when(injected == "nothing").then(pl.lit("retry")).otherwise(pl.lit("retry_injected"))
    return failed.select(*by, parameter=parameter, outcome=outcome, reason=reason, n="n", task="task", **_run())


def _run() -> dict[str, Any]:
    """Return the columns that tell which trials may repeat each other: a seed, and of what has one the arm."""
    return {"seed": pl.col("seed"), "within": pl.when(pl.col("seed").is_not_null()).then("arm")}


def _arms(frames: Sequence[pl.DataFrame]) -> int:
    """Return how many arms of one seed there are at the most."""
    runs = pl.concat([frame.select("seed", "within") for frame in frames]).drop_nulls().unique()
    return max((each.height for each in runs.partition_by("seed")), default=0)


def _unkeyed(by: Sequence[str]) -> pl.Expr:
    return pl.any_horizontal(pl.lit(False), *(pl.col(name).is_null() for name in by))


def _lacks(by: Sequence[str], whose: str) -> pl.Expr:
    """Return which column of a cell is not known."""
    return pl.coalesce(pl.when(pl.col(name).is_null()).then(pl.lit(f"{whose}no {name}")) for name in by)


def _with_shapes(episodes: pl.DataFrame, trials: pl.DataFrame) -> pl.DataFrame:
    """Give an episode that was told nothing, or a mere text, the shape of its class, or of its task, if others agree.

    A success without a fix is told nothing: left without a shape it would be missing from its shape's unaided rate.
    ``texted`` marks those that were told a text, whose retries say nothing of a hint.
    ``unshaped`` marks those of which it cannot be known: a class of several shapes, or no class and a task that nobody
    was ever told anything in. A class that never meets a hint has no shape, and that is known.
    """
    seen = pl.concat([frame.select("constraint", "task", "shape") for frame in (trials, episodes)])
    seen = seen.filter(pl.col("shape").is_not_null() & (pl.col("shape") != "text")).unique()
    found = episodes
    for name in ("constraint", "task"):
        shapes = seen.filter(pl.col(name).is_not_null()).group_by(name).agg(pl.col("shape").unique())
        one = shapes.select(
            name,
            pl.col("shape").list.first().alias(f"shape_of_{name}"),
            (pl.col("shape").list.len() > 1).alias(f"several_of_{name}"),
        )
        found = found.join(one, on=name, how="left", maintain_order="left")
    by_class = pl.when(~pl.col("several_of_constraint")).then("shape_of_constraint")
    by_task = pl.when(~pl.col("several_of_task")).then("shape_of_task")
    classless = pl.col("constraint").is_null() | pl.col("several_of_constraint").fill_null(False)
    texted = (pl.col("shape") == "text").fill_null(False)
    shape = pl.coalesce(pl.when(~texted).then("shape"), by_class, pl.when(classless).then(by_task), "shape")
    unshaped = shape.is_null() & classless & pl.col("first_ok")
    found = found.with_columns(shape=shape, unshaped=unshaped, texted=texted)
    return found.select(*episodes.columns, "unshaped", "texted")


def _grid(seen: pl.DataFrame, by: Sequence[str]) -> list[tuple[str, ...]]:
    """Return every model seen with every combination of the other columns seen, in order."""
    kept = seen.filter(~_unkeyed(by))
    if "shape" in by:
        kept = kept.filter(pl.col("shape") != "text")
    others = [name for name in by if name != "model"]
    grid = seen.select("model").unique()
    if others:
        grid = grid.join(kept.select(others).unique(), how="cross")
    return sorted(grid.select(by).rows())


def _unplaced(episodes: pl.DataFrame) -> dict[str, int]:
    """Return, per model, the first tries that succeeded without a fix and could be of any shape."""
    found = episodes.filter((pl.col("injected") == "nothing") & pl.col("unshaped")).group_by("model")
    return dict(found.agg(pl.col("n").sum()).filter(pl.col("n") > 0).iter_rows())


def _doubts(
    keys: Sequence[tuple[str, ...]], by: Sequence[str], unplaced: dict[str, int]
) -> dict[tuple[tuple[str, ...], str], str]:
    """Say of each unaided rate that successes of unknown shape make unknown that they do."""
    what = "{} first tries succeeded in tasks that were never told anything and could be of any shape"
    at = by.index("model")
    return {
        (key, name): what.format(unplaced[key[at]])
        for key in keys
        if key[at] in unplaced
        for name in RATES
        if name.startswith("p_unaided")
    }


def _left_out(frames: Sequence[pl.DataFrame]) -> dict[str, int]:
    """Return how many counts were left out for each reason; a first try counts once, split or not."""
    rows = pl.concat([frame.select("parameter", "reason", "n") for frame in frames]).filter(
        pl.col("reason").is_not_null() & ~pl.col("parameter").is_in(["p_unaided_first", "p_unaided_repeat"])
    )
    summed = rows.group_by("reason").agg(pl.col("n").sum()).filter(pl.col("n") > 0).sort("reason")
    return dict(summed.iter_rows())


def _why(frames: Sequence[pl.DataFrame], by: Sequence[str]) -> dict[tuple[tuple[str, ...], str], str]:
    found: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for frame in frames:
        summed = (
            frame.filter(pl.col("reason").is_not_null()).group_by(*by, "parameter", "reason").agg(pl.col("n").sum())
        )
        for *key, parameter, reason, n in summed.sort(pl.all()).iter_rows():
            if n and None not in key:
                found.setdefault((tuple(key), parameter), []).append(f"{n} {reason.rpartition(': ')[2]}")
    return {at: f"left out: {', '.join(parts)}" for at, parts in found.items()}
