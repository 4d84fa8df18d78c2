"""Columns as numbers: each distinct text is read once, and each distinct case is judged once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from invsim.traces.columns import decode
from invsim.traces.judging import ABSENT, canonical, resolve

if TYPE_CHECKING:
    import polars as pl

Ints = npt.NDArray[np.int64]

UNREAD = -2
RUNS, SAMPLE = 0.2, 1000
"""A column is read run by run where it begins with at most so many of them for each row of so many."""

LARGEST = 1 << 62
"""Rows are told apart by numbers below this."""

SPARSE = 8
"""Rows are counted in a table of all numbers they could have where that is at most so many times as long."""

KEPT = 1 << 25
"""Characters of requests whose reading is kept from batch to batch."""


class Coded(NamedTuple):
    """A column of numbers, and the text each stands for; -1 stands for null."""

    codes: Ints
    texts: pl.Series

    def at(self, rows: Ints) -> Coded:
        """Return some rows."""
        return Coded(self.codes[rows], self.texts)


def coded(column: pl.Series) -> Coded:
    """Return a column of texts as numbers from 0; where it repeats itself, a run is read once."""
    if len(_begins(column[:SAMPLE])) > RUNS * min(SAMPLE, len(column)):
        return _coded(column)
    begins = _begins(column)
    heads = _coded(column.gather(begins))
    return Coded(np.repeat(heads.codes, np.diff(begins, append=len(column))), heads.texts)


def _begins(column: pl.Series) -> Ints:
    """Return where runs of one text begin."""
    changed = column.ne_missing(column.shift(1)).to_numpy(writable=True)
    changed[:1] = True
    return np.flatnonzero(changed)


def _coded(column: pl.Series) -> Coded:
    import polars as pl

    numbered = column.cast(pl.Categorical(pl.Categories.random()))
    distinct = numbered.unique().drop_nulls()
    numbers, order = (each.to_physical().cast(pl.Int64) for each in (numbered, distinct))
    places = np.full(int(order.to_numpy().max(initial=-1)) + 2, -1, np.int64)  # the last answers for null
    places[order.to_numpy()] = np.arange(len(order))
    return Coded(places[numbers.fill_null(-1).to_numpy()], distinct.cast(pl.String))


class _Distinct(NamedTuple):
    """The distinct rows of some columns: where one of each stands, which each row is, and how often each is there."""

    rows: Ints
    which: Ints
    times: Ints


def _distinct(columns: Iterable[npt.NDArray[Any]]) -> _Distinct:
    """Tell rows apart by one number each, in which every column has its digit."""
    keys, size = np.zeros(1, np.int64), 1
    for column in columns:
        if not len(column):
            return _Distinct(*(np.empty(0, np.int64) for _ in range(3)))
        least = int(column.min())
        span = int(column.max()) - least + 1
        if size * span >= LARGEST:
            named, keys = np.unique(keys, return_inverse=True)
            size = len(named)
        keys, size = keys * span + (column.astype(np.int64) - least), size * span
    if size <= SPARSE * len(keys):
        times = np.bincount(keys, minlength=size)
        present = np.flatnonzero(times)
        places, which = np.empty(size, np.int64), np.empty(size, np.int64)
        places[keys], which[present] = np.arange(len(keys)), np.arange(len(present))
        return _Distinct(places[present], which[keys], times[present])
    _, rows, which, times = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    return _Distinct(rows, which, times)


def counted(columns: Mapping[str, Coded | npt.NDArray[Any]]) -> pl.DataFrame:
    """Return each distinct row of some columns, and as "n" how often it is there."""
    import polars as pl

    numbers = {name: column.codes if isinstance(column, Coded) else column for name, column in columns.items()}
    found = _distinct(numbers.values())
    frame = pl.DataFrame({**{name: column[found.rows] for name, column in numbers.items()}, "n": found.times})
    return frame.with_columns(
        column.texts.gather(frame[name].replace(-1, None)).alias(name)
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
        Takes a row by name, and returns any number of answers, each of ``width`` numbers.
    width : int

    Returns
    -------
    tuple of ndarray
        The numbers of the rows, and a column for each number of an answer. A row has as many answers as the function
        gives, which may be none.
    """
    found = _distinct(asked.values())
    cases = zip(*(column[found.rows].tolist() for column in asked.values()), strict=True)
    answers = [list(judge(**dict(zip(asked, case, strict=True)))) for case in cases]
    many = np.array([len(each) for each in answers], np.int64)
    begins = np.cumsum(many) - many
    flat = np.array([row for each in answers for row in each], np.int64).reshape(-1, width)
    counts = many[found.which]
    rows = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    return (rows, *flat[begins[found.which[rows]] + within].T)


class _Request:
    """A distinct request: its value, and the numbers it goes by."""

    __slots__ = ("value", "views", "whole")

    def __init__(self, value: Any, whole: int) -> None:
        self.value, self.whole = value, whole
        self.views: dict[tuple[str, ...], int] = {}


class Views:
    """Requests as hints see them: two that hold the same at the places a hint names are one to it.

    What has been read of a request is kept from batch to batch, up to a bound.
    """

    def __init__(self) -> None:
        self._codes, self._texts = np.empty(0, np.int64), list[str]()
        self._tables: dict[tuple[str, ...] | None, Ints] = {}
        self._forget()

    def _forget(self) -> None:
        self._characters = 0
        self._requests: dict[str, _Request] = {}
        self._wholes: dict[str, int] = {}
        self._views: dict[Hashable, int] = {}
        self._standing_for: list[Any] = []

    def take(self, requests: Coded) -> None:
        """Turn to the requests of another batch; numbers given before are void."""
        self._codes, self._texts = requests.codes, requests.texts.to_list()
        self._tables = {}
        if self._characters > KEPT:
            self._forget()

    def value(self, view: int) -> Any:
        """Return a request that looks as a view does; null where it is not known."""
        return None if view < 0 else self._standing_for[view]

    def of(self, places: Ints, paths: list[tuple[str, ...]], rows: Ints) -> Ints:
        """Return of some rows the view of their request from the paths that ``places`` number; -1 for no request."""
        codes, found = self._codes[rows], np.empty(len(rows), np.int64)
        for place in np.flatnonzero(np.bincount(places)).tolist():
            mine = places == place
            found[mine] = self._looked_up(paths[place], codes[mine])
        return found

    def wholes(self, rows: Ints) -> Ints:
        """Return a number for each row's request, the same for equal ones; -1 for no request."""
        return self._looked_up(None, self._codes[rows])

    def _looked_up(self, paths: tuple[str, ...] | None, codes: Ints) -> Ints:
        """Return the views of some codes, or their wholes for no paths, having read those not yet met."""
        table = self._tables.get(paths)
        if table is None:
            table = self._tables[paths] = np.full(len(self._texts) + 1, UNREAD, np.int64)
            table[-1] = -1  # for code -1
        lacking = np.zeros(len(table), np.bool_)
        lacking[codes] = True
        for code in np.flatnonzero(lacking & (table == UNREAD)).tolist():
            request = self._read(self._texts[code])
            table[code] = request.whole if paths is None else self._view(request, paths)
        return table[codes]

    def _read(self, text: str) -> _Request:
        request = self._requests.get(text)
        if request is None:
            self._characters += len(text) + 100
            value = decode("request", text)
            try:
                whole = -1 if value is None else self._wholes.setdefault(canonical(value), len(self._wholes))
            except RecursionError:  # nested just as deeply as can be read, and too deeply to be written again
                value, whole = None, -1
            request = self._requests[text] = _Request(value, whole)
        return request

    def _view(self, request: _Request, paths: tuple[str, ...]) -> int:
        if paths not in request.views:
            request.views[paths] = -1 if request.value is None else self._seen(request.value, paths)
        return request.views[paths]

    def _seen(self, value: Any, paths: tuple[str, ...]) -> int:
        found = (resolve(value, path) for path in paths)
        key = (paths, tuple(None if each is ABSENT else canonical(each) for each in found))
        number = self._views.setdefault(key, len(self._standing_for))
        if number == len(self._standing_for):
            self._standing_for.append(value)
        return number
