"""What the engine on arrays returns: a byte per episode and stream, and few more; reduced, or spread out to a block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from invsim.client.planners.base import Injected
from invsim.sim.result import PER_EPISODE, PER_STREAM, Block
from invsim.sim.scenario import MAX_ATTEMPTS
from invsim.sim.vector.decisions import ADDRESSABLE, ATTEMPTS, COMPLETED, INJECTED, INJECTED_SHIFT

Planes = npt.NDArray[np.unsignedinteger]
"""Small counts of every episode and stream, shape (episodes, streams)."""
Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

_FIRST_TRY_BITS, _FIRST_TRY = COMPLETED | ATTEMPTS, COMPLETED | 1
_VALID_BITS, _VALID = ADDRESSABLE | INJECTED, ADDRESSABLE | Injected.VALID << INJECTED_SHIFT
_CONFLICT = Injected.CONFLICT << INJECTED_SHIFT


class Outcomes:
    """Outcomes of consecutive streams of one arm.

    Parameters
    ----------
    first, count : int
        Index of the first stream, and number of streams.
    episodes : int
    most : int
        Entries that a store can hold at the most.
    alerts : sequence of int
        Per drift event, the episode in which every stream notices it; -1 for none.

    Attributes
    ----------
    outcome : ndarray of uint8, shape (episodes, streams)
        See ``decisions.ATTEMPTS`` and its likes.
    entries : ndarray of unsigned int, shape (episodes, streams)
        Entries in the injected block, summed over attempts.
    evicted, restamped : dict of int to ndarray of int
        By episode, where there are any, shape (streams,).
    streams : dict of str to ndarray of int
        The columns ``PER_STREAM``, shape (streams,).
    alerts : list of int or ndarray of int
        Per drift event, for all streams or for each.
    """

    def __init__(self, *, first: int, count: int, episodes: int, most: int, alerts: Sequence[int]) -> None:
        self.first: Final = first
        self.count: Final = count
        self.outcome: Planes = np.empty((episodes, count), dtype=np.uint8)
        self.entries: Planes = np.empty((episodes, count), dtype=np.min_scalar_type(MAX_ATTEMPTS * most))
        self.evicted: dict[int, Ints] = {}
        self.restamped: dict[int, Ints] = {}
        self.streams: dict[str, Ints] = {}
        self.alerts: list[int | Ints] = list(alerts)
        self._known: dict[str, Planes] = {}

    def add(self, name: str, counts: npt.NDArray[np.generic], *, episode: int | None = None) -> None:
        """Add to a column of ``PER_STREAM``, or to "evicted" or "restamped" in an episode."""
        columns: dict[str, Ints] | dict[int, Ints] = self.streams if episode is None else getattr(self, name)
        at = name if episode is None else episode
        if at in columns:
            columns[at] += counts
        else:
            columns[at] = counts.astype(np.int64)

    def total(self, quantity: str, episodes: Mask) -> npt.NDArray[np.generic] | int:
        """Return a quantity summed over some episodes, shape (streams,); a plain number where streams do not differ.

        Parameters
        ----------
        quantity : str
            "attempts", "completed", "first_try", "addressable", "valid" (a valid fix alone, and the key had completed),
            "valid_first_try", "conflict_attempts" (where a stale fix stood beside a valid one), "evicted", "restamped"
            or "injected_entries".
        episodes : ndarray of bool, shape (episodes,)
        """
        if quantity in ("evicted", "restamped"):
            rows = [row for episode, row in getattr(self, quantity).items() if episodes[episode]]
            return sum(rows[1:], start=rows[0]) if rows else 0
        planes = self._planes(quantity)
        if not episodes.all():
            planes = planes[episodes]
        most = np.iinfo(planes.dtype).max if quantity == "injected_entries" else MAX_ATTEMPTS
        return planes.sum(axis=0, dtype=np.min_scalar_type(most * len(planes)))

    def _planes(self, quantity: str) -> Planes:
        if quantity == "injected_entries":
            return self.entries
        if quantity not in self._known:
            self._known[quantity] = _PLANES[quantity](self.outcome)
        return self._known[quantity]

    def block(self) -> Block:
        """Return the same as a block."""
        episodes, count = self.outcome.shape
        columns = np.zeros((count, episodes, len(PER_EPISODE)), dtype=np.int64)
        by_name = {name: columns[:, :, at] for at, name in enumerate(PER_EPISODE)}
        for name in ("attempts", "completed", "injected", "addressable", "injected_entries"):
            by_name[name][:] = self._planes(name).T
        for name in ("evicted", "restamped"):
            for episode, row in getattr(self, name).items():
                by_name[name][:, episode] = row
        streams, alerts = np.zeros((count, len(PER_STREAM)), np.int64), np.empty((count, len(self.alerts)), np.int64)
        for name, counts in self.streams.items():
            streams[:, PER_STREAM.index(name)] = counts
        for event, noticed in enumerate(self.alerts):
            alerts[:, event] = noticed
        return Block(self.first, columns, streams, alerts)


def _holds(outcome: Planes, bits: int, value: int) -> Planes:
    return ((outcome & bits) == value).view(np.uint8)


_PLANES: Final[Mapping[str, Callable[[Planes], Planes]]] = {
    "attempts": lambda outcome: outcome & ATTEMPTS,
    "completed": lambda outcome: _holds(outcome, COMPLETED, COMPLETED),
    "injected": lambda outcome: (outcome & INJECTED) >> INJECTED_SHIFT,
    "addressable": lambda outcome: _holds(outcome, ADDRESSABLE, ADDRESSABLE),
    "first_try": lambda outcome: _holds(outcome, _FIRST_TRY_BITS, _FIRST_TRY),
    "valid": lambda outcome: _holds(outcome, _VALID_BITS, _VALID),
    "valid_first_try": lambda outcome: _holds(outcome, _VALID_BITS | _FIRST_TRY_BITS, _VALID | _FIRST_TRY),
    "conflict_attempts": lambda outcome: (outcome & ATTEMPTS) * _holds(outcome, INJECTED, _CONFLICT),
}
