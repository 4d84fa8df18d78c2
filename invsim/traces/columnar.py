"""The tally of a native Parquet file, by columns: what ``tally.tally`` counts, at the speed of the columns.

An episode's rows need not stand together. The first pass assumes that they do, and keeps a hash of each run of rows; if
an episode turns out to stand in two places, it is left out of a second pass and gathered by itself in further ones.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from invsim.traces.codes import Ints, Views
from invsim.traces.columns import misfits
from invsim.traces.counting import count
from invsim.traces.ordered import Batch, starts_of
from invsim.traces.parquet import NEEDED, File, Stretch, batches
from invsim.traces.reader import Faults
from invsim.traces.tally import Size, Tally, total

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")

TAIL = 64
"""Rows at the end of a batch that are looked at first for where its last episode begins."""

WORKERS = 2
"""Batches that are counted at the same time: more would hold more memory than a second core is worth."""

GATHERED = 2_000_000
"""Rows of scattered episodes that are held at once."""


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


def tally_parquet(
    file: File,
    stretches: Sequence[Stretch],
    faults: Faults,
    tell: Callable[[int], None] | None = None,
    *,
    marked: bool = True,
) -> tuple[Tally, Size]:
    """Count the trials and episodes of a native Parquet file in bounded memory.

    Parameters
    ----------
    file : File
    stretches : sequence of Stretch
        What of the file is read.
    faults : Faults
    tell : callable, optional
        Told of rows as they are read in the first pass.
    marked : bool
        Whether episodes are to be known again in another file, which takes time.

    Raises
    ------
    Torn
        Where they cannot be decoded.
    """

    def rows(faults: Faults, tell: Callable[[int], None] | None = None) -> Iterator[pl.DataFrame]:
        return _readable(batches(file, NEEDED, stretches), faults, tell)

    runs = Runs()
    counted = _together(rows(faults, tell), runs, marked)
    scattered, height = runs.scattered()
    if not height:
        return counted
    del counted
    silent = Faults(faults.file)  # what there is to say of this file has been said
    result, size = _together((_only(batch, scattered, inside=False) for batch in rows(silent)), Runs(), marked)
    results, parts = [result], -(-height // GATHERED)
    for part in range(parts):
        mine = scattered[scattered % np.uint64(parts) == part]
        gathered = [_only(batch, mine, inside=True) for batch in rows(silent)]
        result, more = count(Batch(_concat(gathered).sort("episode_id", maintain_order=True)), marked=marked)
        results.append(result)
        size += more
    return total(results), size


def _readable(
    numbered: Iterator[tuple[int, pl.DataFrame]], faults: Faults, tell: Callable[[int], None] | None
) -> Iterator[pl.DataFrame]:
    """Yield the rows of batches that can be read."""
    for first, batch in _ahead(numbered):
        good = misfits(batch, first, faults)
        yield batch if good is None else batch.filter(good)
        if tell is not None:
            tell(batch.height)


def _ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield items, the next being read while one is worked on."""
    with ThreadPoolExecutor(max_workers=1) as reader:
        coming = reader.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = reader.submit(next, items, None)
            yield item


def _only(batch: pl.DataFrame, hashes: npt.NDArray[np.uint64], *, inside: bool) -> pl.DataFrame:
    import polars as pl

    mine = np.isin(batch["episode_id"].hash().to_numpy(), hashes)
    return batch.filter(pl.Series(mine if inside else ~mine))


def _concat(frames: list[pl.DataFrame]) -> pl.DataFrame:
    import polars as pl

    return pl.concat(frames)


def _together(rows: Iterator[pl.DataFrame], runs: Runs, marked: bool) -> tuple[Tally, Size]:
    """Count batch by batch; the last run of a batch waits for the next, which may go on with it."""
    with ThreadPoolExecutor(max_workers=WORKERS) as pool:
        return _counted(rows, _Counting(runs, pool, marked))


def _counted(rows: Iterator[pl.DataFrame], counting: _Counting) -> tuple[Tally, Size]:
    held: list[pl.DataFrame] = []
    for batch in rows:
        if not batch.height:
            continue
        ids = batch["episode_id"]
        last = _last_start(ids)
        if held and last == 0 and held[-1]["episode_id"][-1] == ids[0]:
            held.append(batch)
            continue
        whole = _concat([*held, batch[:last]])
        if whole.height:
            counting.add(whole)
        held = [batch[last:]]
    if held:
        counting.add(_concat(held))
    return counting.result()


def _last_start(ids: pl.Series) -> int:
    """Return where the last run of one value begins, looking no farther back than is needed."""
    tail = TAIL
    while tail < len(ids):
        starts = starts_of(ids[-tail:])
        if len(starts) > 1:
            return len(ids) - tail + int(starts[-1])
        tail *= 8
    return int(starts_of(ids)[-1])


class _Counting:
    """Counts batches of whole episodes, two at a time; what they sum to does not depend on which is done first."""

    def __init__(self, runs: Runs, pool: ThreadPoolExecutor, marked: bool) -> None:
        self._marked = marked
        self._runs, self._size, self._pool = runs, Size(), pool
        self._results: list[Tally] = []
        self._own = threading.local()
        self._pending: deque[Future[tuple[Tally, Size, npt.NDArray[np.uint64], Ints]]] = deque()

    def add(self, batch: pl.DataFrame) -> None:
        """Count a batch, and wait until no more than one for each worker is under way."""
        self._pending.append(self._pool.submit(self._count, batch))
        while len(self._pending) > WORKERS:
            self._take()

    def result(self) -> tuple[Tally, Size]:
        """Return the sum of all batches."""
        while self._pending:
            self._take()
        return total(self._results), self._size

    def _count(self, rows: pl.DataFrame) -> tuple[Tally, Size, npt.NDArray[np.uint64], Ints]:
        if not hasattr(self._own, "views"):
            self._own.views = Views()
        batch = Batch(rows)
        hashes = batch.rows["episode_id"].gather(batch.starts).hash().to_numpy()
        return *count(batch, self._own.views, marked=self._marked), hashes, np.diff(batch.starts, append=rows.height)

    def _take(self) -> None:
        result, size, hashes, rows = self._pending.popleft().result()
        self._runs.add(hashes, rows)
        self._results.append(result)
        self._size += size
        if len(self._results) >= 8:
            self._results[:] = [total(self._results)]
