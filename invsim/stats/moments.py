"""First and second moments of per-stream counts, in constant memory, the same however streams are cut into blocks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

ROUNDING = 64 * float(np.finfo(np.float64).eps)
"""Share of the terms of a variance that rounding may leave of one that is 0."""

SINGLE_THREADED = 2**18
"""Multiplications up to which OpenBLAS keeps a product of matrices on one thread."""


@dataclass(frozen=True)
class Estimate:
    """A number with its Monte Carlo standard error.

    Parameters
    ----------
    value : float or None
        None where it is undefined.
    se : float or None
        Standard error of ``value`` over streams; None from fewer than two streams.
    n : int
        Streams it rests on.
    """

    value: float | None
    se: float | None
    n: int

    def to_dict(self) -> dict[str, float | int | None]:
        """Return plain data."""
        return {"value": self.value, "se": self.se, "n": self.n}


UNDEFINED = Estimate(None, None, 0)

Column = npt.NDArray[np.integer | np.bool_] | int
"""A count of each of some streams, or of all of them."""

Weights = Mapping[str, float]
"""A linear combination of named counts."""


class Means(Protocol):
    """What metrics are made of: means of counts over streams, and ratios of means."""

    def mean(self, weights: Weights, *, scale: float = 1.0) -> Estimate:
        """Return the mean of a linear combination, divided by ``scale``."""

    def ratio(self, over: Weights, under: Weights) -> Estimate:
        """Return the ratio of two means; undefined over 0."""


class Expectations:
    """Means that are known, not estimated: every answer has error 0 and rests on no stream.

    Parameters
    ----------
    names : sequence of str
    values : ndarray, shape (names,)
    """

    def __init__(self, names: Sequence[str], values: npt.NDArray[np.float64]) -> None:
        self._values = dict(zip(names, values.tolist(), strict=True))

    def mean(self, weights: Weights, *, scale: float = 1.0) -> Estimate:
        """Return the expectation of a linear combination, divided by ``scale``."""
        return exactly(self._expected(weights) / scale)

    def ratio(self, over: Weights, under: Weights) -> Estimate:
        """Return the ratio of two expectations; undefined over 0."""
        below = self._expected(under)
        return exactly(self._expected(over) / below if below else None)

    def _expected(self, weights: Weights) -> float:
        return math.fsum(weight * self._values[name] for name, weight in weights.items())


def exactly(value: float | None) -> Estimate:
    """Return a number that is known; undefined where it is None."""
    return UNDEFINED if value is None else Estimate(value, 0.0, 0)


class Moments:
    """Running sums of counts and of their products.

    Every count is an integer, and sums are kept of its distance from the first stream's count. So the result does not
    depend on how the streams were cut into blocks, and counts that never vary have variance exactly 0.

    Parameters
    ----------
    names : sequence of str
        One per count.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._at = {name: at for at, name in enumerate(self.names)}
        size = len(self.names)
        self.n = 0
        self._origin: Ints | None = None
        self._sums = np.zeros(size, dtype=np.int64)
        self._products = np.zeros((size, size), dtype=np.int64)
        self._room = np.empty(0)

    def add(self, counts: Ints) -> None:
        """Add streams, shape (streams, counts)."""
        self.add_columns(dict(zip(self.names, counts.T, strict=True)), len(counts))

    def add_columns(self, columns: Mapping[str, Column], streams: int) -> None:
        """Add streams, given as one column per count; a column may be a number that all of them share."""
        if not streams:
            return
        ordered = [columns[name] for name in self.names]
        if self._origin is None:
            first = [column if isinstance(column, int) else int(column[0]) for column in ordered]
            self._origin = np.array(first, dtype=np.int64)
        # What equals the first stream throughout adds nothing.
        vary = [at for at, column in enumerate(ordered) if not isinstance(column, int) or column != self._origin[at]]
        gram = self._gram([ordered[at] for at in vary], self._origin[vary], streams)
        self.n += streams
        self._sums[vary] += gram[0, 1:]
        self._products[np.ix_(vary, vary)] += gram[1:, 1:]

    def _gram(self, columns: Sequence[Column], origin: Ints, streams: int) -> Ints:
        """Return the sums of products of any two distances from the origin, the first being 1 throughout."""
        # Products of small integers are exact in float64, and BLAS is what makes them fast. It is given tiles that it
        # does on one thread: for more there is too little to do.
        size = 1 + len(columns)
        tile = max(1, SINGLE_THREADED // size**2)
        tiles = -(-streams // tile)
        if self._room.size < size * tiles * tile:
            self._room = np.empty(size * tiles * tile)
        room = self._room[: size * tiles * tile].reshape(size, tiles * tile)
        room[0, :streams] = 1.0
        room[:, streams:] = 0.0
        for at, column in enumerate(columns):
            room[1 + at, :streams] = column
            room[1 + at, :streams] -= origin[at]
        parts = room.reshape(size, tiles, tile).transpose(1, 0, 2)
        products: Ints = (parts @ parts.transpose(0, 2, 1)).astype(np.int64).sum(axis=0)
        return products

    def _vector(self, weights: Weights) -> npt.NDArray[np.float64]:
        vector = np.zeros(len(self.names))
        for name, weight in weights.items():
            vector[self._at[name]] += weight
        return vector

    def _mean(self, vector: npt.NDArray[np.float64]) -> float:
        if self._origin is None:
            return math.nan
        return float(vector @ self._origin + vector @ self._sums / self.n)

    def _variance(self, vector: npt.NDArray[np.float64]) -> float:
        total = float(vector @ self._sums)
        spread = float(vector @ self._products @ vector) - total * total / self.n
        size = np.abs(vector)
        rounding = ROUNDING * float(size @ np.abs(self._products) @ size)
        return spread / (self.n - 1) if spread > rounding else 0.0

    def mean(self, weights: Weights, *, scale: float = 1.0) -> Estimate:
        """Return the mean over streams of a linear combination, divided by ``scale``."""
        if not self.n:
            return UNDEFINED
        vector = self._vector(weights) / scale
        se = math.sqrt(self._variance(vector) / self.n) if self.n > 1 else None
        return Estimate(self._mean(vector), se, self.n)

    def ratio(self, over: Weights, under: Weights) -> Estimate:
        """Return the ratio of two means, with the delta method's standard error; undefined over 0.

        se^2 = Var(a - R b) / (n * mean(b)^2), R = mean(a) / mean(b).
        """
        if not self.n:
            return UNDEFINED
        top, bottom = self._vector(over), self._vector(under)
        below = self._mean(bottom)
        if below == 0.0:
            return UNDEFINED
        value = self._mean(top) / below
        se = None
        if self.n > 1:
            se = math.sqrt(self._variance(top - value * bottom) / self.n) / abs(below)
        return Estimate(value, se, self.n)


class ReciprocalMean:
    """Mean over streams of 1/count, where the count is not 0; kept as a histogram, so in constant memory."""

    def __init__(self) -> None:
        self._histogram: dict[int, int] = {}

    def add(self, counts: npt.NDArray[np.integer]) -> None:
        """Add one count per stream, 0 or more."""
        times = np.bincount(counts)
        for value in np.flatnonzero(times).tolist():
            self._histogram[value] = self._histogram.get(value, 0) + int(times[value])

    def estimate(self) -> Estimate:
        """Return the mean; undefined, not 1, when no stream has a count."""
        kept = sorted((value, number) for value, number in self._histogram.items() if value)
        n = sum(number for _, number in kept)
        if not n:
            return UNDEFINED
        mean = math.fsum(number / value for value, number in kept) / n
        if n == 1:
            return Estimate(mean, None, n)
        if len(kept) == 1:
            return Estimate(mean, 0.0, n)
        spread = math.fsum(number * (1.0 / value - mean) ** 2 for value, number in kept)
        return Estimate(mean, math.sqrt(spread / (n - 1) / n), n)
