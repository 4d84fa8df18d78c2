"""Columns as numbers: each distinct text is read once, and each distinct case is judged once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from invsim.traces.columns import decode
from invsim.traces.judging import ABSENT, canonical, resolve

if TYPE_CHECKING:
    import polars as pl

Ints = npt.NDArray[np.int64]

KEPT = 1 << 16
"""Requests whose reading is kept from batch to batch."""


class Coded(NamedTuple):
    """A column of numbers, and the text each stands for; -1 stands for null."""

    codes: Ints
    texts: pl.Series

    def at(self, rows: Ints) -> Coded:
        """Return some rows."""
        return Coded(self.codes[rows], self.texts)


def coded(column: pl.Series) -> Coded:
    """Return a column of texts as numbers from 0."""
    import polars as pl

    numbered = column.cast(pl.Categorical(pl.Categories.random()))
    distinct = numbered.unique().drop_nulls()
    distinct = distinct.gather(distinct.to_physical().arg_sort())
    numbers = numbered.to_physical()
    codes = np.searchsorted(distinct.to_physical().to_numpy(), numbers.fill_null(0).to_numpy()).astype(np.int64)
    codes[numbers.is_null().to_numpy()] = -1
    return Coded(codes, distinct.cast(pl.String))


def counted(columns: Mapping[str, Coded | npt.NDArray[Any] | pl.Series]) -> pl.DataFrame:
    """Return each distinct row of some columns, and as "n" how often it is there."""
    import polars as pl

    numbers = {name: column.codes if isinstance(column, Coded) else column for name, column in columns.items()}
    found = pl.DataFrame(numbers).group_by(list(numbers)).agg(n=pl.len().cast(pl.Int64))
    return found.with_columns(
        column.texts.gather(found[name].replace(-1, None)).alias(name)
        for name, column in columns.items()
        if isinstance(column, Coded)
    )


def judged(
    asked: Mapping[str, npt.NDArray[Any]], judge: Callable[..., Iterable[tuple[int, ...]]], *, width: int
) -> tuple[Ints, ...]:
    """Return what a function says of each row of some columns, asking it once of each distinct row.

    Parameters
    ----------
    asked : mapping of str to ndarray
    judge : callable
        Takes a row, and returns any number of answers, each of ``width`` numbers.
    width : int

    Returns
    -------
    tuple of ndarray
        The numbers of the rows, and a column for each number of an answer. A row has as many answers as the function
        gives, which may be none.
    """
    import polars as pl

    frame = pl.DataFrame(asked)
    distinct = frame.unique()
    answers = [list(judge(*row)) for row in distinct.iter_rows()]
    case = frame.join(distinct.with_row_index("case"), on=frame.columns, how="left", maintain_order="left")["case"]
    many = np.array([len(each) for each in answers], np.int64)
    begins = np.cumsum(many) - many
    flat = np.array([row for each in answers for row in each], np.int64)
    cases = case.to_numpy().astype(np.int64)
    counts = many[cases]
    rows = np.repeat(np.arange(len(cases)), counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    chosen = flat.reshape(-1, width)[begins[cases[rows]] + within]
    return (rows, *chosen.T)


@lru_cache(maxsize=KEPT)
def _read(text: str) -> tuple[Any, str]:
    value = decode("request", text)
    return value, canonical(value)


@lru_cache(maxsize=KEPT)
def _seen(text: str, paths: tuple[str, ...]) -> tuple[str | None, ...]:
    """Return what a request holds at some paths; None for nothing."""
    value, _ = _read(text)
    found = (resolve(value, path) for path in paths)
    return tuple(None if each is ABSENT else canonical(each) for each in found)


class Views:
    """Requests as hints see them: two that hold the same at the places a hint names are one to it.

    Parameters
    ----------
    requests : Coded
    """

    def __init__(self, requests: Coded) -> None:
        self._codes, self._texts = requests.codes, requests.texts.to_list()
        self._views: dict[tuple[tuple[str, ...], int], int] = {}
        self._numbers: dict[Hashable, int] = {}
        self._standing_for: list[Any] = []
        self._wholes: dict[str, int] = {}

    def value(self, view: int) -> Any:
        """Return a request that looks as a view does; null where it is not known."""
        return None if view < 0 else self._standing_for[view]

    def of(self, places: Ints, paths: list[tuple[str, ...]], rows: Ints) -> Ints:
        """Return of some rows the view of their request from the paths that ``places`` number; -1 for no request."""
        import polars as pl

        pairs = pl.DataFrame({"place": places, "request": self._codes[rows]})
        distinct = pairs.unique()
        views = [self._view(paths[place], code) for place, code in distinct.iter_rows()]
        table = distinct.with_columns(pl.Series("view", views, pl.Int64))
        return pairs.join(table, on=["place", "request"], how="left", maintain_order="left")["view"].to_numpy()

    def _view(self, paths: tuple[str, ...], code: int) -> int:
        if (paths, code) not in self._views:
            self._views[paths, code] = self._number(paths, code)
        return self._views[paths, code]

    def _number(self, paths: tuple[str, ...], code: int) -> int:
        value = None if code < 0 else _read(self._texts[code])[0]
        if value is None:
            return -1
        number = self._numbers.setdefault((paths, _seen(self._texts[code], paths)), len(self._standing_for))
        if number == len(self._standing_for):
            self._standing_for.append(value)
        return number

    def wholes(self, rows: Ints) -> Ints:
        """Return a number for each row's request, the same for equal ones; -1 for no request."""
        codes = self._codes[rows]
        numbers = np.full(len(self._texts) + 1, -1, np.int64)  # the last answers for code -1
        for code in np.unique(codes[codes >= 0]).tolist():
            value, text = _read(self._texts[code])
            if value is not None:
                numbers[code] = self._wholes.setdefault(text, len(self._wholes))
        return numbers[codes]
