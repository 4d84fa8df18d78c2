"""What the engine on arrays returns: a byte per episode and stream, and few more; reduced, or spread out to a block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from invsim.client.planners.base import Injected
from invsim.sim.result import PER_EPISODE, PER_STREAM, Block
from invsim.sim.scenario import MAX_ATTEMPTS
from invsim.sim.vector.decisions import (
    ADDRESSABLE,
    ATTEMPTS,
    COMPLETED,
    INJECTED,
    INJECTED_SHIFT,
    Bools,
    Bytes,
    Codes,
    Counts,
)

_FIRST_TRY_BITS, _FIRST_TRY = COMPLETED | ATTEMPTS, COMPLETED | 1
_VALID_BITS, _VALID = ADDRESSABLE | INJECTED, ADDRESSABLE | Injected.VALID << INJECTED_SHIFT
_CONFLICT = Injected.CONFLICT << INJECTED_SHIFT


class Certainty:
    """Which episodes come out the same in every stream; that of an arm serves all its chunks.

    Parameters
    ----------
    outcomes : sequence of int or None
        Per episode, its outcome if it is certain; an outcome is a byte, see ``decisions.ATTEMPTS``.
    """

    def __init__(self, outcomes: Sequence[int | None]) -> None:
        self.outcomes: Bytes = np.array([outcome or 0 for outcome in outcomes], dtype=np.uint8)
        self.varies: Bools = np.array([outcome is None for outcome in outcomes])
        self.row = np.cumsum(self.varies) - 1
        self._known: dict[tuple[str, bytes], tuple[int, Codes]] = {}

    def split(self, quantity: str, episodes: Bools) -> tuple[int, Codes]:
        """Return a quantity summed over the certain ones of some episodes, and the rows of the others."""
        asked = quantity, episodes.tobytes()
        if asked not in self._known:
            shared = _PLANES[quantity](self.outcomes)[episodes].sum()
            self._known[asked] = int(shared), self.row[episodes & self.varies]
        return self._known[asked]


class Outcomes:
    """Outcomes of consecutive streams of one arm.

    Parameters
    ----------
    first, count : int
        Index of the first stream, and number of streams.
    certainty : Certainty
    most : int
        Entries that a store can hold at the most.
    alerts : sequence of int
        Per drift event, the episode in which every stream notices it; -1 for none.

    Attributes
    ----------
    outcome : ndarray of uint8, shape (episodes that vary, streams)
    entries : ndarray of unsigned int, shape (episodes, streams)
        Entries in the injected block, summed over attempts.
    evicted, restamped : dict of int to ndarray of int
        By episode, where there are any, shape (streams,).
    streams : dict of str to ndarray of int
        The columns ``PER_STREAM`` that are not all 0, shape (streams,).
    alerts : list of int or ndarray of int
        Per drift event, for all streams or for each.
    """

    def __init__(self, *, first: int, count: int, certainty: Certainty, most: int, alerts: Sequence[int]) -> None:
        self.first: Final = first
        self.count: Final = count
        self.certainty: Final = certainty
        self.outcome: Bytes = np.empty((int(certainty.varies.sum()), count), dtype=np.uint8)
        self.entries: npt.NDArray[np.unsignedinteger[Any]] = np.empty(
            (len(certainty.varies), count), dtype=np.min_scalar_type(MAX_ATTEMPTS * most)
        )
        self.evicted: dict[int, Counts] = {}
        self.restamped: dict[int, Counts] = {}
        self.streams: dict[str, Counts] = {}
        self.alerts: list[int | Counts] = list(alerts)
        self._planes: dict[str, Bytes] = {}

    def row(self, episode: int) -> Bytes:
        """Return the outcomes of an episode, shape (streams,): of a certain one as a copy, else to be written to."""
        if self.certainty.varies[episode]:
            row: Bytes = self.outcome[self.certainty.row[episode]]
            return row
        return np.full(self.count, self.certainty.outcomes[episode])

    def add(self, name: str, counts: Counts | Bools) -> None:
        """Add to a column of ``PER_STREAM``."""
        _add(self.streams, name, counts)

    def add_evicted(self, episode: int, counts: Bools) -> None:
        """Count entries evicted in an episode."""
        _add(self.evicted, episode, counts)

    def add_restamped(self, episode: int, counts: Bools) -> None:
        """Count entries restamped in an episode."""
        _add(self.restamped, episode, counts)

    # Reduced ----------------------------------------------------------------------------------------------------------

    def total(self, quantity: str, episodes: Bools) -> Counts | int:
        """Return a quantity summed over some episodes, shape (streams,); a plain number where all streams share it.

        Parameters
        ----------
        quantity : str
            "attempts", "completed", "first_try", "addressable", "valid" (a valid fix alone, and the key had completed
            before), "valid_first_try", "conflict_attempts" (attempts with a stale fix beside a valid one), "evicted",
            "restamped" or "injected_entries".
        episodes : ndarray of bool, shape (episodes,)
        """
        if quantity == "injected_entries":
            most = np.iinfo(self.entries.dtype).max * len(self.entries)
            return _sum(self.entries if episodes.all() else self.entries[episodes], most)
        if quantity in ("evicted", "restamped"):
            counts = [each for at, each in getattr(self, quantity).items() if episodes[at]]
            return sum(counts[1:], start=counts[0]) if counts else 0
        shared, rows = self.certainty.split(quantity, episodes)
        if not len(rows):
            return shared
        planes = self._planes.get(quantity)
        if planes is None:
            planes = self._planes[quantity] = _PLANES[quantity](self.outcome)
        total = _sum(planes if len(rows) == len(planes) else planes[rows], MAX_ATTEMPTS * len(episodes))
        if shared:
            total += total.dtype.type(shared)
        return total

    # Spread out -------------------------------------------------------------------------------------------------------

    def block(self) -> Block:
        """Return the same as a block."""
        episodes = len(self.entries)
        outcome = np.stack([self.row(at) for at in range(episodes)], axis=1)
        by_episode = np.zeros((self.count, episodes, len(PER_EPISODE)), dtype=np.int64)
        columns = {name: by_episode[:, :, at] for at, name in enumerate(PER_EPISODE)}
        for name in ("attempts", "completed", "injected", "addressable"):
            columns[name][:] = _PLANES[name](outcome)
        columns["injected_entries"][:] = self.entries.T
        for name in ("evicted", "restamped"):
            for at, counts in getattr(self, name).items():
                columns[name][:, at] = counts
        streams = np.zeros((self.count, len(PER_STREAM)), dtype=np.int64)
        for name, counts in self.streams.items():
            streams[:, PER_STREAM.index(name)] = counts
        alerts = np.empty((self.count, len(self.alerts)), dtype=np.int64)
        for event, episode in enumerate(self.alerts):
            alerts[:, event] = episode
        return Block(self.first, by_episode, streams, alerts)


def _add(columns: dict[Any, Counts], at: object, counts: Counts | Bools) -> None:
    if at in columns:
        columns[at] += counts
    else:
        columns[at] = counts.astype(np.int64)


def _sum(planes: npt.NDArray[np.unsignedinteger[Any]], most: int) -> Counts:
    total: Counts = planes.sum(axis=0, dtype=np.min_scalar_type(most))
    return total


def _flag(bits: int, value: int) -> Callable[[Bytes], Bytes]:
    return lambda outcome: (outcome & np.uint8(bits) == value).view(np.uint8)


_PLANES: Final[Mapping[str, Callable[[Bytes], Bytes]]] = {
    "attempts": lambda outcome: outcome & np.uint8(ATTEMPTS),
    "completed": _flag(COMPLETED, COMPLETED),
    "injected": lambda outcome: (outcome & np.uint8(INJECTED)) >> np.uint8(INJECTED_SHIFT),
    "addressable": _flag(ADDRESSABLE, ADDRESSABLE),
    "first_try": _flag(_FIRST_TRY_BITS, _FIRST_TRY),
    "valid": _flag(_VALID_BITS, _VALID),
    "valid_first_try": _flag(_VALID_BITS | _FIRST_TRY_BITS, _VALID | _FIRST_TRY),
    "conflict_attempts": lambda outcome: (outcome & np.uint8(ATTEMPTS)) * _flag(INJECTED, _CONFLICT)(outcome),
}
