"""The tally of a native Parquet file, by columns: what ``tally.tally`` counts, at the speed of the columns.

Rows are put in order and matched as arrays. What is left to judge is grouped first, so that each distinct hint beside a
distinct pair of requests is judged once a batch, by the very functions that judge a single trial.

An episode's rows need not stand together. The first pass assumes that they do, and keeps a hash of each run of rows; if
an episode turns out to stand in two places, it is left out of a second pass and gathered by itself in further ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from invsim.traces.columns import CHECKED, batches, decode, misfits, open_parquet
from invsim.traces.judging import TEXT, Answer, injected_state, judge, judge_first, shape_of
from invsim.traces.reader import Faults
from invsim.traces.schema import Fix
from invsim.traces.tally import Size, Tally, total
from invsim.traces.trials import CUT, EXHAUSTED, REFUSALS, closing, ended, marks

if TYPE_CHECKING:
    import polars as pl

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NEEDED = tuple(
    dict.fromkeys(
        ("task_id", "trial", "model", "arm", "constraint", "step", "seq", "finish_reason", *CHECKED)
    )
)  # fmt: skip

GATHERED = 2_000_000
"""Rows of scattered episodes that are held at once."""

FINISHED = ("completed", "exhausted", "gave_up", "censored")
NO_OPS = r"^\s*\[\s*\]\s*$"


class Runs:
    """The runs of rows of one episode that a pass has met: a hash and a length of each."""

    def __init__(self) -> None:
        self.hashes: list[npt.NDArray[np.uint64]] = []
        self.rows: list[Ints] = []

    def add(self, hashes: npt.NDArray[np.uint64], rows: Ints) -> None:
        """Note some runs."""
        self.hashes.append(hashes)
        self.rows.append(rows)

    def scattered(self) -> tuple[npt.NDArray[np.uint64], int]:
        """Return, sorted, the hashes that more than one run has, and how many rows those runs hold."""
        hashes = np.concatenate([np.empty(0, np.uint64), *self.hashes])
        found, counts = np.unique(hashes, return_counts=True)
        twice = found[counts > 1]
        if not len(twice):
            return twice, 0
        return twice, int(np.concatenate(self.rows)[np.isin(hashes, twice)].sum())


def tally_parquet(path: Path, faults: Faults, advance: Callable[[int], None] | None = None) -> tuple[Tally, Size]:
    """Count the trials and episodes of a native Parquet file in bounded memory.

    Parameters
    ----------
    path : Path
    faults : Faults
    advance : callable, optional
        Told of rows as they are read in the first pass.
    """
    runs = Runs()
    counted = _together(_rows(path, faults, advance), runs)
    scattered, rows = runs.scattered()
    if not rows:
        return counted
    del counted
    silent = Faults(faults.file)  # what there is to say of this file has been said
    result, size = _together((_only(batch, scattered, inside=False) for batch in _rows(path, silent)), Runs())
    results, parts = [result], -(-rows // GATHERED)
    for part in range(parts):
        mine = scattered[scattered % np.uint64(parts) == part]
        gathered = [_only(batch, mine, inside=True) for batch in _rows(path, silent)]
        result, more = count(_concat(gathered).sort("episode_id", maintain_order=True))
        results.append(result)
        size += more
    return total(results), size


def _rows(path: Path, faults: Faults, advance: Callable[[int], None] | None = None) -> Iterator[pl.DataFrame]:
    """Yield the rows of a file that can be read."""
    scan = open_parquet(path, faults, columns=NEEDED)
    if scan is None:
        return
    for first, batch in batches(scan, faults):
        good = misfits(batch, first, faults)
        yield batch if good is None else batch.filter(good)
        if advance is not None:
            advance(batch.height)


def _only(batch: pl.DataFrame, hashes: npt.NDArray[np.uint64], *, inside: bool) -> pl.DataFrame:
    import polars as pl

    mine = np.isin(batch["episode_id"].hash().to_numpy(), hashes)
    return batch.filter(pl.Series(mine if inside else ~mine))


def _concat(frames: list[pl.DataFrame]) -> pl.DataFrame:
    import polars as pl

    return pl.concat(frames)


def _together(rows: Iterator[pl.DataFrame], runs: Runs) -> tuple[Tally, Size]:
    """Count batch by batch; the last run of a batch waits for the next, which may go on with it."""
    results: list[Tally] = []
    size = Size()
    held: list[pl.DataFrame] = []

    def close(batch: pl.DataFrame) -> None:
        nonlocal size
        starts = _starts(batch["episode_id"])
        runs.add(batch["episode_id"].gather(starts).hash().to_numpy(), np.diff(starts, append=batch.height))
        result, more = count(batch)
        results.append(result)
        size += more
        if len(results) >= 8:
            results[:] = [total(results)]

    for batch in rows:
        if not batch.height:
            continue
        ids = batch["episode_id"]
        if held and held[-1]["episode_id"][-1] == ids[0] and ids[0] == ids[-1] and _starts(ids).size == 1:
            held.append(batch)
            continue
        last = int(_starts(ids)[-1])
        whole = _concat([*held, batch[:last]])
        if whole.height:
            close(whole)
        held = [batch[last:]]
    if held:
        close(_concat(held))
    return total(results), size


def _starts(ids: pl.Series) -> Ints:
    """Return where runs of one value begin."""
    changed = (ids != ids.shift(1)).fill_null(value=True).to_numpy()
    return np.flatnonzero(changed)


# A batch of whole episodes ------------------------------------------------------------------------------------------


class _Batch:
    """Rows of whole episodes that stand together, in order of step, and the arrays made of them.

    Parameters
    ----------
    rows : DataFrame
    """

    def __init__(self, rows: pl.DataFrame) -> None:
        starts = _starts(rows["episode_id"])
        episode = np.repeat(np.arange(len(starts)), np.diff(starts, append=rows.height))
        step, seq = rows["step"].to_numpy(), rows["seq"].to_numpy()
        later = (step[1:] > step[:-1]) | ((step[1:] == step[:-1]) & (seq[1:] >= seq[:-1]))
        if not np.all(later | (np.diff(episode) > 0)):
            order = np.lexsort((seq, step, episode))
            rows, step = rows[order], step[order]
        self.rows, self.starts, self.episode, self.step = rows, starts, episode, step
        self.lasts = np.append(starts[1:], rows.height) - 1
        outcome = rows["outcome"]
        self.ok, self.error = (outcome == "ok").to_numpy(), (outcome == "error").to_numpy()
        self.missing = (outcome == "missing").to_numpy()
        self.first_of = starts[episode]
        self.tool = _codes(rows["tool"])

    def any_of(self, flags: Bools) -> Bools:
        """Return of each episode whether any of its rows is flagged."""
        return np.logical_or.reduceat(flags, self.starts)

    def first_where(self, flags: Bools) -> Ints:
        """Return of each episode the first row that is flagged; the number of rows for none."""
        height = len(flags)
        return np.minimum.reduceat(np.where(flags, np.arange(height), height), self.starts)


def _codes(column: pl.Series) -> Ints:
    """Return a number for each value, the same for equal ones."""
    import polars as pl

    return column.cast(pl.Categorical).to_physical().to_numpy().astype(np.int64)


def _matches(column: pl.Series, pattern: str) -> Bools:
    return column.str.contains(pattern).fill_null(value=False).to_numpy()


def _isin(column: pl.Series, values: tuple[str, ...]) -> Bools:
    return column.is_in(values).fill_null(value=False).to_numpy()


class _Matched(NamedTuple):
    """Of each row: the first call of its tool's next turn (-1 for none), and whether it is surely the one meant."""

    following: Ints
    sure: Bools
    turns_retried: int


def _match(batch: _Batch) -> _Matched:
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
    return _Matched(following[back], sure[back], int((followed & (errors > 0)).sum()))


def count(rows: pl.DataFrame) -> tuple[Tally, Size]:
    """Count whole episodes, the rows of each standing together."""
    if not rows.height:
        return total([]), Size()
    batch = _Batch(rows)
    matched = _match(batch)
    closed = _closings(batch)
    flat = batch.any_of((batch.rows["order_source"] == "flattened").to_numpy())
    trials: Counter[tuple[Any, ...]] = Counter()
    ends: Counter[tuple[Any, ...]] = Counter()
    _count_recoveries(batch, matched, closed, flat, trials)
    _count_first_attempts(batch, flat, trials)
    _count_episodes(batch, closed, ends)
    size = Size(len(batch.starts), rows.height, int(batch.error.sum()), matched.turns_retried)
    return Tally.of(trials, ends), size


def _closings(batch: _Batch) -> Ints:
    """Return how the log of each episode ends, as an index into ``FINISHED``."""
    last = batch.lasts
    exhausted, torn = _marked(batch)
    cut = _isin(batch.rows["finish_reason"], CUT)[last]
    run = batch.rows["arm"].is_not_null().to_numpy()[last]
    bits = np.stack([exhausted, torn, batch.missing[last], cut, run, batch.ok[last]]).astype(np.int64)
    code = (bits << np.arange(6)[:, None]).sum(axis=0)
    table: Ints = np.array([_closing_of(each) for each in range(64)])
    return np.asarray(table[code])


def _closing_of(code: int) -> int:
    exhausted, torn, missing, cut, run, ok = (bool(code >> at & 1) for at in range(6))
    said = frozenset(({EXHAUSTED} if exhausted else set()) | ({"censored"} if torn else set()))
    return FINISHED.index(closing(said, missing=missing, cut=cut, run=run, ok=ok))


def _marked(batch: _Batch) -> tuple[Bools, Bools]:
    """Return of each episode whether its warnings call it exhausted, and censored."""
    texts = batch.rows["warnings"]
    distinct = texts.unique().drop_nulls().to_list()
    said = {text: marks(decode("warnings", text)) for text in distinct}
    exhausted = _isin(texts, tuple(text for text in distinct if EXHAUSTED in said[text]))
    torn = _isin(texts, tuple(text for text in distinct if "censored" in said[text]))
    return batch.any_of(exhausted), batch.any_of(torn)


# Groups, each judged once -------------------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 16)
def _value(text: str | None) -> Any:
    return decode("request", text)


def _identity(batch: _Batch, first: Ints) -> dict[str, pl.Series]:
    """Return what the rows of an episode share, by its first call."""
    import polars as pl

    rows = batch.rows
    task = rows["task_id"].gather(first)
    episode = rows["episode_id"].gather(first)
    return {
        "task": pl.select(pl.when(task == "").then(episode).otherwise(task)).to_series(),
        "constraint": rows["constraint"].gather(first),
        "injected": rows["injected"].gather(first),
    }


def _grouped(columns: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Yield each distinct row, and how often it is there."""
    import polars as pl

    frame = pl.DataFrame(columns)
    yield from frame.group_by(frame.columns).agg(pl.len()).iter_rows()


def _state(text: str | None) -> str:
    return injected_state(decode("injected", text))


def _count_recoveries(
    batch: _Batch, matched: _Matched, closed: Ints, flat: Bools, trials: Counter[tuple[Any, ...]]
) -> None:
    import polars as pl

    rows, told = batch.rows, np.flatnonzero(batch.error)
    if not len(told):
        return
    episode, following = batch.episode[told], matched.following[told]
    there = following >= 0
    acting = np.where(there, following, told)
    # Without an answer: 1 and more by how the log ends and whether another call came later; 0 with one.
    later = batch.step[batch.lasts[episode]] > batch.step[told]
    fate = np.where(there, 0, np.where(closed[episode] > 0, 1, np.where(later, 2, 3)))
    answered = pl.Series(there)
    groups = _grouped(
        {
            **_identity(batch, batch.first_of[told]),
            "model": rows["model"].gather(acting),
            "hint": rows["hint"].gather(told),
            "request": rows["request"].gather(told),
            "next_request": pl.select(pl.when(answered).then(rows["request"].gather(acting))).to_series(),
            "refused": _isin(rows["finish_reason"], REFUSALS)[acting],
            "parse_status": rows["parse_status"].gather(acting),
            "next": np.where(there, _successes(batch)[acting], -1),
            "fate": fate,
            "sure": matched.sure[told] & ~flat[episode],
        }
    )
    for task, constraint, fixes, model, hint, request, next_request, refused, status, next_ok, fate, sure, n in groups:
        ops, base = decode("hint", hint), _value(request)
        shape = shape_of(ops, base) if ops else TEXT
        result = (
            judge(ops, base, Answer(_value(next_request), refused, status))
            if fate == 0
            else ("", "censored", "switched", "gave_up")[fate]
        )
        trials[
            model, task, constraint, shape, "recovery", "certain" if sure else "unknown", _state(fixes), result,
            None if next_ok < 0 else bool(next_ok),
        ] += n  # fmt: skip


def _successes(batch: _Batch) -> Ints:
    """Return of each row 1 for a success, 0 for none, -1 for not known."""
    return np.where(batch.missing, -1, batch.ok.astype(np.int64))


def _count_first_attempts(batch: _Batch, flat: Bools, trials: Counter[tuple[Any, ...]]) -> None:
    rows = batch.rows
    mine = np.flatnonzero(rows["injected"].is_not_null().to_numpy()[batch.starts])
    if not len(mine):
        return
    first = batch.starts[mine]
    second = np.minimum(first + 1, len(batch.step) - 1)
    alone = (first == batch.lasts[mine]) | (batch.step[second] != batch.step[first])
    groups = _grouped(
        {
            **_identity(batch, first),
            "model": rows["model"].gather(first),
            "request": rows["request"].gather(first),
            "refused": _isin(rows["finish_reason"], REFUSALS)[first],
            "parse_status": rows["parse_status"].gather(first),
            "next": _successes(batch)[first],
            "sure": alone & ~flat[mine],
        }
    )
    for task, constraint, text, model, request, refused, status, next_ok, sure, n in groups:
        fixes: tuple[Fix, ...] = decode("injected", text)
        state, answer = injected_state(fixes), Answer(_value(request), refused, status)
        for fix in fixes:
            trials[
                model, task, constraint, shape_of(fix.ops, None), "first_attempt", "certain" if sure else "unknown",
                state, judge_first(fix, answer), None if next_ok < 0 else bool(next_ok),
            ] += n  # fmt: skip


def _count_episodes(batch: _Batch, closed: Ints, ends: Counter[tuple[Any, ...]]) -> None:
    import polars as pl

    rows, first = batch.rows, batch.starts
    height = len(batch.step)
    mine = batch.tool == batch.tool[batch.first_of]
    reached = batch.first_where(mine & batch.ok)
    until = np.arange(height) <= reached[batch.episode]
    again = mine & until & (batch.step > batch.step[batch.first_of])
    hinted = mine & batch.error & rows["hint"].is_not_null().to_numpy() & ~_matches(rows["hint"], NO_OPS)
    told = batch.first_where(hinted)
    there = pl.Series(told < height)
    at = np.where(told < height, told, 0)
    occurrence = rows["trial"].gather(first)
    known = rows["arm"].gather(first).is_not_null() & occurrence.is_not_null()
    groups = _grouped(
        {
            **_identity(batch, first),
            "model": rows["model"].gather(first),
            "hint": pl.select(pl.when(there).then(rows["hint"].gather(at))).to_series(),
            "request": pl.select(pl.when(there).then(rows["request"].gather(at))).to_series(),
            "errors": batch.any_of(mine & batch.error),
            "first_occurrence": pl.select(pl.when(known).then(occurrence == 0)).to_series(),
            "first_ok": batch.ok[first],
            "first_missing": batch.missing[first],
            "retries": np.add.reduceat(again.astype(np.int64), first),
            "completed": reached < height,
            "closing": closed,
        }
    )
    for task, constraint, text, model, hint, request, errors, occurrence, ok, missing, retries, done, end, n in groups:
        fixes: tuple[Fix, ...] = decode("injected", text)
        if fixes:
            shape: str | None = shape_of((op for fix in fixes for op in fix.ops), None)
        elif hint is not None:
            shape = shape_of(decode("hint", hint), _value(request))
        else:
            shape = TEXT if errors else None
        ends[
            model, task, constraint, shape, injected_state(fixes), occurrence, ok, retries,
            ended(first_missing=missing, completed=done, closing=FINISHED[end]),  # type: ignore[arg-type]
        ] += n  # fmt: skip
