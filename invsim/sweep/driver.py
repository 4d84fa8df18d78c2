"""A study worked out case by case, here or on an executor; what is finished is kept, and not worked out again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from invsim.errors import InvsimError
from invsim.sweep.cases import KINDS, VERSION, Case, Cell, Study
from invsim.sweep.store import Store, write_whole
from invsim.sweep.work import Row, work_out

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Sweep:
    """Estimates over a grid.

    Parameters
    ----------
    study : Study
    cells : tuple of Cell
    rows : tuple of list of dict
        Of each cell, see ``invsim.sweep.work.Row``.
    recalled : int
        Cells that had been finished before.
    """

    study: Study
    cells: tuple[Cell, ...]
    rows: tuple[list[Row], ...]
    recalled: int = 0

    def frame(self) -> pl.DataFrame:
        """Return a row for each cell, arm and metric.

        Columns: the parameters varied, arm, metric, value, se, lo, hi (the 95% interval) and n; null is undefined.
        """
        import polars as pl

        polars_of = {str: pl.String, int: pl.Int64, float: pl.Float64}
        types: dict[str, type[pl.DataType]] = {name: polars_of[KINDS[name]] for name in self.study.vary}
        types |= {"arm": pl.String, "metric": pl.String}
        types |= dict.fromkeys(("value", "se", "lo", "hi"), pl.Float64)
        types["n"] = pl.Int64
        flat = [{**cell.point, **row} for cell, rows in zip(self.cells, self.rows, strict=True) for row in rows]
        return pl.DataFrame(flat, schema=types)

    def to_dict(self) -> dict[str, object]:
        """Return plain data, cell by cell."""
        return {
            "base": self.study.base.to_dict(),
            "vary": {name: list(values) for name, values in self.study.vary.items()},
            "recalled": self.recalled,
            "cells": [
                {"at": cell.point, "arms": _by_arm(rows)} for cell, rows in zip(self.cells, self.rows, strict=True)
            ],
        }


def _by_arm(rows: Sequence[Row]) -> list[dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    for row in rows:
        estimate = {name: row[name] for name in ("value", "se", "lo", "hi", "n")}
        found.setdefault(str(row["arm"]), {"arm": row["arm"]})[str(row["metric"])] = estimate
    return list(found.values())


def sweep(
    study: Study,
    *,
    executor: Executor | None = None,
    out: Path | str | None = None,
    tick: Callable[[int], None] | None = None,
) -> Sweep:
    """Work out every cell of a study.

    The result is the same bit for bit whatever the executor, its workers and the order in which they finish, and
    whatever was recalled from an earlier sweep.

    Parameters
    ----------
    study : Study
    executor : concurrent.futures.Executor, optional
        Threads, processes, or a cluster, such as ``distributed.Client(...).get_executor()``. By default everything is
        worked out here.
    out : Path, optional
        A folder. Each cell is written there as it is finished, and one that is there already, from a sweep that was
        stopped or a smaller one, is recalled. At the end it holds ``sweep.parquet`` and ``sweep.csv`` too.
    tick : callable, optional
        Called with the number of cells done since.

    Raises
    ------
    InputError, UnknownNameError
        See ``Study.cells``, and ``Store`` for the folder. What a case is refused for while it runs names its cell;
        the cells that were finished are kept.
    InvsimError
        Where a worker dies, or runs another version of invsim.
    """
    cells = study.cells()
    store = None if out is None else Store(Path(out))
    found: dict[str, list[Row]] = {}
    if store is not None:
        store.begin(study)
        found = {cell.case.key: rows for cell in cells if (rows := store.recall(cell.case)) is not None}
    recalled = sum(cell.case.key in found for cell in cells)
    _report(tick, recalled)
    for case, rows in _worked_out([cell for cell in cells if cell.case.key not in found], executor):
        found[case.key] = rows
        if store is not None:
            store.keep(case, rows)
        _report(tick, 1)
    result = Sweep(study, tuple(cells), tuple(found[cell.case.key] for cell in cells), recalled)
    if store is not None:
        frame = result.frame()
        write_whole(store.folder / "sweep.csv", frame.write_csv().encode())
        unfinished = store.folder / ".sweep.parquet.unfinished"
        frame.write_parquet(unfinished)
        unfinished.replace(store.folder / "sweep.parquet")
    return result


def _report(tick: Callable[[int], None] | None, done: int) -> None:
    if tick is not None and done:
        tick(done)


# Working out --------------------------------------------------------------------------------------------------------


def _worked_out(cells: Sequence[Cell], executor: Executor | None) -> Iterator[tuple[Case, list[Row]]]:
    """Yield each case with its rows as it is finished."""
    if executor is None:
        for cell in cells:
            try:
                rows = work_out(cell.case)
            except InvsimError as error:
                raise _at(cell, error) from None
            yield cell.case, rows
        return
    futures = {executor.submit(_elsewhere, cell.case): cell for cell in cells}
    failed: InvsimError | None = None
    try:
        for future in as_completed(futures):
            cell = futures[future]
            try:
                rows = _rows_of(future)
            except CancelledError:  # since another failed
                continue
            except InvsimError as error:
                failed = failed or _at(cell, error)
                _cancel(futures)
                continue
            yield cell.case, rows
    finally:
        _cancel(futures)
    if failed is not None:
        raise failed


def _elsewhere(case: Case) -> tuple[str, list[Row]]:
    return VERSION, work_out(case)


def _rows_of(future: Future[tuple[str, list[Row]]]) -> list[Row]:
    try:
        version, rows = future.result()
    except BrokenExecutor as error:
        raise InvsimError(f"a worker died, perhaps for want of memory; what was finished is kept ({error})") from None
    if version != VERSION:
        raise InvsimError(f"a worker runs invsim {version}, and this is {VERSION}")
    return rows


def _cancel(futures: Iterable[Future[tuple[str, list[Row]]]]) -> None:
    for future in futures:
        future.cancel()


def _at(cell: Cell, error: InvsimError) -> InvsimError:
    """Return the error with the point of the grid it came up at."""
    return InvsimError(f"{cell.place}: {error}") if cell.point else error
