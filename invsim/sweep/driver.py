"""A study worked out case by case, here or on an executor; what is finished is kept, and not worked out again."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from invsim.errors import InvsimError, UnknownNameError
from invsim.files import write_whole
from invsim.sweep.cases import KINDS, VERSION, Case, Cell, Sources, Study
from invsim.sweep.store import Store
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
            **self.study.to_dict(),
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
        stopped or a smaller one, is recalled. At the end it holds ``sweep.parquet`` and ``sweep.csv`` too. Cells of an
        arm or a domain that is registered in Python are worked out every time: their code cannot be told from a name.
    tick : callable, optional
        Called with the number of cells done since.

    Raises
    ------
    InputError, UnknownNameError
        See ``Study.cells``, and ``Store`` for the folder. What a case is refused for while it runs names its cell;
        the cells that were finished are kept.
    InvsimError
        Where a worker dies, or runs another version of invsim, or the executor gives up.
    """
    cells = study.cells()
    store = None if out is None else Store(Path(out))
    found: dict[int, list[Row]] = {}
    if store is not None:
        store.begin(study)
        found = {at: rows for at, cell in enumerate(cells) if (rows := store.recall(cell)) is not None}
    recalled = len(found)
    _report(tick, recalled)
    for at, rows in _worked_out({at: cell for at, cell in enumerate(cells) if at not in found}, executor):
        found[at] = rows
        if store is not None:
            store.keep(cells[at], rows)
        _report(tick, 1)
    result = Sweep(study, tuple(cells), tuple(found[at] for at in range(len(cells))), recalled)
    if store is not None:
        frame, parquet = result.frame(), io.BytesIO()
        frame.write_parquet(parquet)
        write_whole(store.folder / "sweep.parquet", parquet.getvalue())
        write_whole(store.folder / "sweep.csv", frame.write_csv().encode())
    return result


def _report(tick: Callable[[int], None] | None, done: int) -> None:
    if tick is not None and done:
        tick(done)


GAVE_UP = "the executor gave up, as one does whose cluster is gone"


# Working out --------------------------------------------------------------------------------------------------------


def _worked_out(cells: Mapping[int, Cell], executor: Executor | None) -> Iterator[tuple[int, list[Row]]]:
    """Yield each cell's number with its rows as it is finished."""
    if executor is None:
        for at, cell in cells.items():
            try:
                rows = work_out(cell.case, cell.sources)
            except InvsimError as error:
                raise _at(cell, error) from None
            yield at, rows
        return
    futures: dict[Future[tuple[str, list[Row]]], int] = {}
    failed: BaseException | None = None
    try:
        try:
            for at, cell in cells.items():
                futures[executor.submit(_elsewhere, cell.case, cell.sources)] = at
        except RuntimeError as error:  # broken or shut down; what it has begun may still be finished
            failed = InvsimError(f"the executor takes no more work: {error}")
        for future in as_completed(futures):
            at = futures.pop(future)  # and with it, on a cluster, the result's place in some worker's memory
            if (wrong := _error_of(future, cells[at])) is None:
                yield at, future.result()[1]
            else:
                failed = failed or wrong
                _cancel(futures)
    finally:
        _cancel(futures)
    if failed is not None:
        raise failed


def _elsewhere(case: Case, sources: Sources) -> tuple[str, list[Row]]:
    return VERSION, work_out(case, sources)


def _error_of(future: Future[tuple[str, list[Row]]], cell: Cell) -> BaseException | None:
    """Return what is wrong with a finished future, as the caller is to be told; None if its rows can be taken."""
    if future.cancelled():  # since another failed, or by the executor itself
        return InvsimError(GAVE_UP)
    match future.exception():
        case None:
            version, _ = future.result()
            return None if version == VERSION else InvsimError(f"a worker runs invsim {version}, and this is {VERSION}")
        case CancelledError():
            return InvsimError(GAVE_UP)
        case BrokenExecutor() as error:
            return InvsimError(f"a worker died, perhaps for want of memory ({error})")
        case UnknownNameError() as error:  # it is known here, or the study would have been refused
            return _at(cell, InvsimError(f"{error}; what is registered in Python, every worker has to register"))
        case InvsimError() as error:
            return _at(cell, error)
        case Exception() as error:  # of the executor rather than the case, such as a cluster without invsim
            failed = _at(cell, InvsimError(f"a worker failed: {type(error).__name__}: {' '.join(str(error).split())}"))
            failed.__cause__ = error
            return failed
        case interrupt:
            return interrupt


def _cancel(futures: Iterable[Future[tuple[str, list[Row]]]]) -> None:
    for future in futures:
        future.cancel()


def _at(cell: Cell, error: InvsimError) -> InvsimError:
    """Return the error with the point of the grid it came up at."""
    return InvsimError(f"{cell.place}: {error}") if cell.point else error
