"""The savings equation by Monte Carlo: sums per episode over simulated streams, and jackknife errors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from invsim.stats.moments import UNDEFINED, Estimate
from invsim.stats.savings import KINDS, EpisodeMeans, savings

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

GROUPS = 20
"""Groups of the jackknife; a standard error from 20 is itself uncertain by a sixth."""


class EpisodeSums:
    """Sums over streams of what ``EpisodeMeans`` averages, in constant memory.

    Streams are dealt to ``GROUPS`` groups by their index, so the standard errors (delete-a-group jackknife) do not
    depend on how the streams were cut into blocks.

    Parameters
    ----------
    classes : sequence of str
    class_index : ndarray of int, shape (episodes,)
    repeated : ndarray of bool, shape (episodes,)
    """

    _ROWS = 6 + 3 * len(KINDS)

    def __init__(self, classes: Sequence[str], class_index: Ints, repeated: Mask) -> None:
        self.classes, self.class_index, self.repeated = tuple(classes), class_index, repeated
        self._streams = np.zeros(GROUPS, dtype=np.int64)
        self._sums = np.zeros((GROUPS, self._ROWS, len(class_index)), dtype=np.int64)

    def add(
        self,
        *,
        first: int,
        attempts: Ints,
        first_try: Mask,
        kinds: Mapping[str, Mask],
        addressable: Ints,
        entries: Ints,
        baseline_attempts: Ints,
        baseline_first_try: Mask,
    ) -> None:
        """Add consecutive streams from stream ``first`` on; every array has shape (streams, episodes)."""
        retries = attempts - 1
        masks = [kinds[name] for name in KINDS]
        rows: list[npt.NDArray[np.generic]] = [
            baseline_attempts - 1,
            baseline_first_try,
            retries,
            addressable,
            entries,
            attempts * kinds["conflict"],
            *masks,
            *(mask & first_try for mask in masks),
            *(mask * retries for mask in masks),
        ]
        group = (first + np.arange(len(attempts))) % GROUPS
        self._streams += np.bincount(group, minlength=GROUPS)
        for at, row in enumerate(rows):
            np.add.at(self._sums[:, at], group, row.astype(np.int64))

    @property
    def streams(self) -> int:
        """Streams added so far."""
        return int(self._streams.sum())

    def means(self) -> EpisodeMeans:
        """Return the averages over all streams."""
        return self._means(self._sums.sum(axis=0), self.streams)

    def estimates(self) -> dict[str, dict[str, Estimate]]:
        """Return every figure of ``Savings.figures`` with its standard error."""
        if not self.streams:
            return {}
        whole, sums = savings(self.means()).figures(), self._sums.sum(axis=0)
        used = [group for group in range(GROUPS) if 0 < self._streams[group] < self.streams]
        without = [
            savings(self._means(sums - self._sums[group], self.streams - int(self._streams[group]))).figures()
            for group in used
        ]
        return {
            part: {
                name: self._estimate(value, [each[part][name] for each in without]) for name, value in figures.items()
            }
            for part, figures in whole.items()
        }

    def _estimate(self, value: float | None, without: Sequence[float | None]) -> Estimate:
        if value is None:
            return UNDEFINED
        values = np.array([each for each in without if each is not None])
        if len(values) < 2 or len(values) < len(without):
            return Estimate(value, None, self.streams)
        spread = (len(values) - 1) / len(values) * float(((values - values.mean()) ** 2).sum())
        return Estimate(value, math.sqrt(spread), self.streams)

    def _means(self, sums: Ints, streams: int) -> EpisodeMeans:
        rows = sums / streams
        baseline_retries, baseline_first_try, retries, addressable, entries, conflict_attempts = rows[:6]
        return EpisodeMeans(
            classes=self.classes,
            class_index=self.class_index,
            repeated=self.repeated,
            baseline_retries=baseline_retries,
            baseline_first_try=baseline_first_try,
            retries=retries,
            addressable=addressable,
            entries=entries,
            conflict_attempts=conflict_attempts,
            probability=rows[6:9],
            first_try=rows[9:12],
            kind_retries=rows[12:15],
        )
