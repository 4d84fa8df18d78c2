"""The tally of a batch of whole episodes, by columns.

Rows are matched as arrays; what is left to judge is judged once for each distinct case, by the functions that judge a
single trial. A case is a hint beside what the requests hold at the places that the hint names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from invsim.traces.codes import Coded, Ints, Views, coded, counted, judged
from invsim.traces.columns import decode
from invsim.traces.judging import (
    STRENGTH,
    TEXT,
    Answer,
    Injected,
    Result,
    injected_state,
    judge,
    judge_first,
    shape_of,
)
from invsim.traces.marks import marks_in, no_marks
from invsim.traces.ordered import FINISHED, Batch, Bools, Matched, closings, isin, late, match, silenced
from invsim.traces.schema import Fix, Op, ParseStatus
from invsim.traces.tally import OF_EPISODES, OF_TRIALS, Size, Tally, total
from invsim.traces.trials import REFUSALS, Attribution, Ended, Kind, ended

if TYPE_CHECKING:
    import polars as pl

SHAPES = (*STRENGTH, TEXT)
RESULTS: tuple[Result, ...] = get_args(Result)
STATES: tuple[Injected, ...] = get_args(Injected)
KINDS: tuple[Kind, ...] = get_args(Kind)
ATTRIBUTIONS: tuple[Attribution, ...] = get_args(Attribution)
ENDED: tuple[Ended, ...] = get_args(Ended)
PARSED: tuple[ParseStatus, ...] = get_args(ParseStatus)
UNANSWERED: tuple[Result, ...] = ("censored", "switched", "gave_up", "refused")
"""What a hint that no call answered comes to."""

YES, NO, UNKNOWN = 1, 0, -1


def count(batch: Batch, views: Views | None = None, *, marked: bool = True) -> tuple[Tally, Size]:
    """Count whole episodes into a tally that is yet to be summed.

    Parameters
    ----------
    batch : Batch
    views : Views, optional
        Keeps what was read of requests from batch to batch.
    marked : bool
        Whether episodes are to be known again in another file.
    """
    if not len(batch.starts):
        return total([]), Size()
    return _Count(batch, Views() if views is None else views).result(marked=marked)


class _Hints:
    """What stands in a column of hints or of fixes: the value of each distinct text, and the paths it names."""

    def __init__(self, column: Coded, name: str, ops: Callable[[Any], tuple[Op, ...]]) -> None:
        self.column = column
        self.values = [decode(name, text) for text in column.texts]
        self.ops = [ops(value) for value in self.values]
        paths = [tuple(dict.fromkeys(op.path for op in each)) for each in self.ops]
        self.paths = list(dict.fromkeys([*paths, ()]))
        numbers = [self.paths.index(each) for each in paths]
        self._places = np.array([*numbers, self.paths.index(())], np.int64)  # the last answers for code -1

    def value(self, code: int) -> Any:
        """Return what a text holds; nothing for null."""
        return () if code < 0 else self.values[code]

    def places(self, rows: Ints) -> Ints:
        """Return which of ``paths`` the hints of some rows name."""
        return self._places[self.column.codes[rows]]


def _ops_of_fixes(fixes: tuple[Fix, ...]) -> tuple[Op, ...]:
    return tuple(op for fix in fixes for op in fix.ops)


def _named(codes: Ints, names: tuple[str, ...]) -> Coded:
    import polars as pl

    return Coded(codes, pl.Series(names))


class _Count:
    """The counts of one batch."""

    def __init__(self, batch: Batch, views: Views) -> None:
        rows = batch.rows
        self.batch, self.rows = batch, rows
        self.matched: Matched = match(batch)
        self.closed = closings(batch)
        self.flat = batch.any_of((rows["order_source"] == "flattened").to_numpy())
        self.model = coded(rows["model"])
        self._runs = {name: coded(rows[name]) for name in ("constraint", "arm", "seed")}
        self.views = views
        views.take(coded(rows["request"]))
        self.hints = _Hints(coded(rows["hint"]), "hint", tuple)
        self.fixes = _Hints(coded(rows["injected"]), "injected", _ops_of_fixes)
        self.refused = isin(rows["finish_reason"], REFUSALS)
        self.parsed = _positions(rows["parse_status"], PARSED)
        self.task = self._tasks()
        states = [STATES.index(injected_state(fixes)) for fixes in self.fixes.values]
        self.state = np.array([*states, STATES.index("nothing")], np.int64)[self.fixes.column.codes[batch.starts]]

    def result(self, *, marked: bool) -> tuple[Tally, Size]:
        """Return the tally and what there was."""
        import polars as pl

        batch = self.batch
        trials = pl.concat([self._recoveries(), self._first_attempts()])
        size = Size(
            len(batch.starts), len(batch.step), int(batch.error.sum()), self.matched.turns_retried,
            marks_in(batch.rows, batch.starts) if marked else no_marks(),
        )  # fmt: skip
        return Tally(trials, self._episodes(), self._calls()), size

    def _calls(self) -> pl.DataFrame:
        outcome = coded(self.rows["outcome"])
        return counted({"model": self.model, "tool": self.batch.tools, "outcome": outcome})

    def _tasks(self) -> Coded:
        import polars as pl

        task, episode = (self.rows[name].gather(self.batch.starts) for name in ("task_id", "episode_id"))
        return coded(pl.select(pl.when(task == "").then(episode).otherwise(task)).to_series())

    def _run(self, rows: Ints) -> dict[str, Coded]:
        """Return what is known of the run that some rows are of, by column."""
        return {name: column.at(rows) for name, column in self._runs.items()}

    def _success(self, rows: Ints) -> Ints:
        return np.where(self.batch.missing[rows], UNKNOWN, self.batch.ok[rows].astype(np.int64))

    # Trials -----------------------------------------------------------------------------------------------------

    def _recoveries(self) -> pl.DataFrame:
        """Count the trials of hints."""
        batch, told = self.batch, np.flatnonzero(self.batch.error)
        episode, following = batch.episode[told], self.matched.following[told]
        refused = silenced(batch)[told]
        there = (following >= 0) & ~refused
        acting = np.where(there, following, told)
        later = batch.step[batch.lasts[episode]] > batch.step[told]
        places = self.hints.places(told)
        whole = self.views.wholes(told)
        asked = {
            "hint": self.hints.column.codes[told],
            "request": self.views.of(places, self.hints.paths, told),
            "following": np.where(there, self.views.of(places, self.hints.paths, acting), UNKNOWN),
            "again": there & (whole >= 0) & (whole == self.views.wholes(acting)),
            "refused": self.refused[acting] & there,
            "parsed": np.where(there, self.parsed[acting], 0),
            "unanswered": np.select([there, refused, self.closed[episode] > 0, later], [-1, 3, 0, 1], default=2),
        }
        rows, shape, result = judged(asked, self._judge_recovery, width=2)
        sure = (self.matched.sure[told] | refused) & ~self.flat[episode]
        next_ok = np.where(there, self._success(acting), UNKNOWN)
        return self._trials("recovery", episode[rows], acting[rows], shape, result, sure[rows], next_ok[rows])

    def _judge_recovery(
        self, hint: int, request: int, following: int, again: bool, refused: bool, parsed: int, unanswered: int
    ) -> list[tuple[int, int]]:
        ops, base = self.hints.value(hint), self.views.value(request)
        shape = shape_of(ops, base) if ops else TEXT
        answer = Answer(self.views.value(following), refused, PARSED[parsed], again)
        result = judge(ops, base, answer) if unanswered < 0 else UNANSWERED[unanswered]
        return [(SHAPES.index(shape), RESULTS.index(result))]

    def _first_attempts(self) -> pl.DataFrame:
        """Count the trials of injected fixes."""
        batch = self.batch
        mine = np.flatnonzero(self.fixes.column.codes[batch.starts] >= 0)
        first = batch.starts[mine]
        second = np.minimum(first + 1, len(batch.step) - 1)
        alone = (first == batch.lasts[mine]) | (batch.step[second] != batch.step[first])
        asked = {
            "fixes": self.fixes.column.codes[first],
            "request": self.views.of(self.fixes.places(first), self.fixes.paths, first),
            "refused": self.refused[first],
            "parsed": self.parsed[first],
        }
        rows, shape, result = judged(asked, self._judge_first_attempt, width=2)
        sure, next_ok = alone & ~self.flat[mine], self._success(first)
        return self._trials("first_attempt", mine[rows], first[rows], shape, result, sure[rows], next_ok[rows])

    def _judge_first_attempt(self, fixes: int, request: int, refused: bool, parsed: int) -> list[tuple[int, int]]:
        answer = Answer(self.views.value(request), refused, PARSED[parsed])
        return [
            (SHAPES.index(shape_of(fix.ops, None)), RESULTS.index(judge_first(fix, answer)))
            for fix in self.fixes.value(fixes)
        ]

    def _trials(
        self, kind: Kind, episode: Ints, acting: Ints, shape: Ints, result: Ints, sure: Bools, next_ok: Ints
    ) -> pl.DataFrame:
        """Count trials by what a tally keeps, given their episode, the call that acted, and what was judged."""
        import polars as pl

        found = counted(
            {
                "model": self.model.at(acting),
                "task": self.task.at(episode),
                **self._run(self.batch.starts[episode]),
                "shape": _named(shape, SHAPES),
                "attribution": _named(np.where(sure, 0, 1), ATTRIBUTIONS),
                "injected": _named(self.state[episode], STATES),
                "result": _named(result, RESULTS),
                "next_ok": next_ok,
            }
        )
        return found.with_columns(_truth("next_ok"), kind=pl.lit(kind)).select(*OF_TRIALS, "n")

    # Episodes ---------------------------------------------------------------------------------------------------

    def _episodes(self) -> pl.DataFrame:
        """Count how episodes went on the tool of their first call."""
        batch, first = self.batch, self.batch.starts
        height = len(batch.step)
        mine = batch.tool == batch.tool[batch.first_of]
        reached = batch.first_where(mine & batch.ok)
        until = np.arange(height) <= reached[batch.episode]
        again = mine & until & (batch.step > batch.step[batch.first_of])
        occurrence = self.rows["trial"].gather(first).is_in([0]).fill_null(value=False).to_numpy().astype(np.int64)
        known = (self.rows["arm"].is_not_null() & self.rows["trial"].is_not_null()).to_numpy()[first]
        _, end = judged(
            {"missing": batch.missing[first], "completed": reached < height, "closing": self.closed},
            _judge_end,
            width=1,
        )
        found = counted(
            {
                "model": self.model.at(first),
                "task": self.task,
                **self._run(first),
                "shape": _named(self._shapes(mine), SHAPES),
                "injected": _named(self.state, STATES),
                "first_occurrence": np.where(known, occurrence, UNKNOWN),
                "first_ok": np.where(late(batch), UNKNOWN, batch.ok[first].astype(np.int64)),
                "retries": np.bincount(batch.episode[again], minlength=len(first)),
                "ended": _named(end, ENDED),
            }
        )
        return found.with_columns(_truth("first_occurrence"), _truth("first_ok")).select(*OF_EPISODES, "n")

    def _shapes(self, mine: Bools) -> Ints:
        """Return the shape of what each episode was told or had injected; -1 for nothing."""
        batch = self.batch
        hinted = np.array([*map(bool, self.hints.values), False])[self.hints.column.codes]
        told = batch.first_where(mine & batch.error & hinted)
        there = told < len(batch.step)
        at = np.where(there, told, 0)
        asked = {
            "fixes": self.fixes.column.codes[batch.starts],
            "hint": np.where(there, self.hints.column.codes[at], UNKNOWN),
            "request": np.where(there, self.views.of(self.hints.places(at), self.hints.paths, at), UNKNOWN),
            "errors": batch.any_of(mine & batch.error),
        }
        _, shape = judged(asked, self._judge_shape, width=1)
        return shape

    def _judge_shape(self, fixes: int, hint: int, request: int, errors: bool) -> list[tuple[int]]:
        held, told = self.fixes.value(fixes), self.hints.value(hint)
        if held:
            return [(SHAPES.index(shape_of(_ops_of_fixes(held), None)),)]
        if told:
            return [(SHAPES.index(shape_of(told, self.views.value(request))),)]
        return [(SHAPES.index(TEXT) if errors else UNKNOWN,)]


def _judge_end(missing: bool, completed: bool, closing: int) -> list[tuple[int]]:
    return [(ENDED.index(ended(first_missing=missing, completed=completed, closing=FINISHED[closing])),)]


def _truth(name: str) -> pl.Expr:
    """Return a column of 1, 0 and -1 as true, false and null."""
    import polars as pl

    return pl.when(pl.col(name) >= 0).then(pl.col(name) == YES).alias(name)


def _positions(column: pl.Series, names: tuple[str, ...]) -> Ints:
    import polars as pl

    return column.cast(pl.Enum(names)).to_physical().cast(pl.Int64).to_numpy()
