"""What a planner's two draws come to in an episode, for the engine that works on whole arrays of streams.

A draw is only ever compared with a few rates. Between two of them every draw leads to the same decision, so the pair of
draws of an episode is one of a few cells, and what follows from each cell is worked out once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from invsim import rng
from invsim.client.planners.base import Injected
from invsim.client.planners.probabilistic import MAX_RETRIES, Behaviour
from invsim.rng import FIRST_TRY, PURPOSES, RETRY
from invsim.sim.facts import PLAIN, SOLVED, EpisodeFacts

Codes = npt.NDArray[np.intp]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Counts = npt.NDArray[np.integer[Any]]
"""Counts of some streams, shape (streams,), in whatever integers suffice."""

TILE = 256
"""Streams turned at a time from stream-major to episode-major: as many as keep within a core's cache."""

ATTEMPTS, COMPLETED, INJECTED, ADDRESSABLE, STORED = 0b0000_0111, 0b0000_1000, 0b0011_0000, 0b0100_0000, 0b1000_0000
"""An episode's outcome in one byte: attempts made, whether it completed, what was injected, whether its key had
completed before, and whether a fix was stored (where a slot holds one at the most: whether it had been empty)."""
INJECTED_SHIFT, STORED_SHIFT = 4, 7


@dataclass(frozen=True)
class Coding:
    """How an episode's two draws become one small number, its cell.

    Parameters
    ----------
    first, retry : tuple of float
        Rates that either draw is compared with, strictly between 0 and 1, ascending. The cell is
        ``rank of the first draw + (len(first) + 1) * rank of the second``, a rank being the number of rates passed.
    """

    first: tuple[float, ...] = ()
    retry: tuple[float, ...] = ()

    @property
    def size(self) -> int:
        """Number of cells."""
        return (len(self.first) + 1) * (len(self.retry) + 1)

    def draws(self) -> Iterator[tuple[float, float]]:
        """Yield the least pair of draws in each cell."""
        yield from ((first, retry) for retry in (0.0, *self.retry) for first in (0.0, *self.first))


def coding(episode: EpisodeFacts, rates: Behaviour) -> Coding:
    """Return the coding of an episode that serves every arm."""
    unaided = _unaided(episode, rates)
    first, laws = [unaided], [rates.retry]
    if episode.works:  # some fix can be injected
        first += [rates.p_apply, rates.p_fresh, 1.0 - rates.p_stale, (1.0 - rates.p_stale) * unaided]
        laws.append(rates.retry_injected)
    elif episode.first[PLAIN].ok and episode.first[SOLVED].ok:
        return Coding()
    return Coding(_inside(first), _inside(each for law in laws for each in law.cumulative[:MAX_RETRIES]))


def _inside(rates: Iterable[float]) -> tuple[float, ...]:
    return tuple(sorted({rate for rate in rates if 0.0 < rate < 1.0}))


def _unaided(episode: EpisodeFacts, rates: Behaviour) -> float:
    return rates.p_unaided_first if episode.first_occurrence else rates.p_unaided_repeat


class Outcome(NamedTuple):
    """What became of an episode: see ``facts.Recovery``; ``stored`` is -1 for nothing."""

    attempts: int
    completed: bool
    stored: int
    failures: tuple[frozenset[str], ...]

    def byte(self, injected: Injected, *, addressable: bool, stored: bool) -> int:
        """Return it in one byte."""
        flags = COMPLETED * self.completed | ADDRESSABLE * addressable | STORED * stored
        return self.attempts | injected << INJECTED_SHIFT | flags


class Followed(NamedTuple):
    """What can follow in an episode, each once, and which of it follows in each cell, by position."""

    outcomes: tuple[Outcome, ...]
    of_cell: Codes

    def table(self, value: Callable[[Outcome], int]) -> Codes:
        """Return a table over cells."""
        values: Codes = np.array([value(outcome) for outcome in self.outcomes], dtype=np.intp)[self.of_cell]
        return values


def follow(
    episode: EpisodeFacts, rates: Behaviour, cells: Coding, *, right: int | None = None, wrong: int | None = None
) -> Followed:
    """Return what follows in each cell.

    Parameters
    ----------
    episode : EpisodeFacts
    rates : Behaviour
    cells : Coding
    right, wrong : int, optional
        The newest fix injected that is right, and the newest that is not.
    """
    numbers: dict[Outcome, int] = {}
    of_cell = []
    for first, retry in cells.draws():
        outcome = _outcome(episode, rates, right, wrong, first, retry)
        of_cell.append(numbers.setdefault(outcome, len(numbers)))
    return Followed(tuple(numbers), np.array(of_cell, dtype=np.intp))


def _outcome(
    episode: EpisodeFacts, rates: Behaviour, right: int | None, wrong: int | None, first: float, retry: float
) -> Outcome:
    request = episode.first[_first_request(right, wrong, rates, _unaided(episode, rates), first)]
    if request.ok:
        return Outcome(1, True, -1, ())
    law = rates.retry if right is None and wrong is None else rates.retry_injected
    within = law.cumulative[:MAX_RETRIES]
    complies = next((retries for retries, rate in enumerate(within) if retry < rate), MAX_RETRIES)
    recovery = request.recoveries[complies]
    return Outcome(recovery.attempts, recovery.completed, recovery.committed, recovery.failures)


def _first_request(right: int | None, wrong: int | None, rates: Behaviour, unaided: float, draw: float) -> int:
    """Return the number of the first request: a fix, ``SOLVED`` or ``PLAIN``."""
    if right is not None and wrong is not None:
        return right if draw < rates.p_fresh else wrong
    if right is not None:
        return right if draw < rates.p_apply else PLAIN
    if wrong is None:
        return SOLVED if draw < unaided else PLAIN
    if draw < (1.0 - rates.p_stale) * unaided:
        return SOLVED
    return wrong if draw >= 1.0 - rates.p_stale else PLAIN


# Draws ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Drawn:
    """The draws of consecutive streams, as cells.

    Parameters
    ----------
    first, count : int
        Index of the first stream, and number of streams.
    cells : tuple of (ndarray of uint8 or None)
        Per episode, shape (streams,); None where there is one cell.
    """

    first: int
    count: int
    cells: tuple[Bytes | None, ...]


def draw(
    codings: Sequence[Coding], *, seed: int, first: int, count: int, scratch: npt.NDArray[np.float64] | None = None
) -> Drawn:
    """Draw ``count`` streams from stream ``first`` on, and encode the draws of each episode.

    Parameters
    ----------
    codings : sequence of Coding
    seed, first, count : int
        See ``rng.uniforms``.
    scratch : ndarray of float, optional
        Room for at least ``PURPOSES * len(codings) * count`` numbers, to be overwritten: reusing it from chunk to chunk
        saves more time than the drawing takes.
    """
    if all(each.size == 1 for each in codings):
        return Drawn(first, count, (None,) * len(codings))
    slots = PURPOSES * len(codings)
    room = np.empty(slots * count) if scratch is None else scratch[: slots * count]
    turned, tile = room.reshape(slots, count), np.empty((min(TILE, count), slots))
    generator = rng.generator(seed, first=first, slots=slots)
    for at in range(0, count, TILE):
        streams = min(TILE, count - at)
        generator.random(out=tile[:streams])
        turned[:, at : at + streams] = tile[:streams].T
    by_episode = turned.reshape(len(codings), PURPOSES, count)
    return Drawn(first, count, tuple(map(_cells, codings, by_episode)))


def _cells(coding: Coding, draws: npt.NDArray[np.float64]) -> Bytes | None:
    if coding.size == 1:
        return None
    cells, passed = np.zeros(draws.shape[1], dtype=np.uint8), np.empty(draws.shape[1], dtype=np.bool_)
    as_number = passed.view(np.uint8)
    for rate in coding.retry:  # a draw below a rate is a success
        np.greater_equal(draws[RETRY], rate, out=passed)
        np.add(cells, as_number, out=cells)
    np.multiply(cells, np.uint8(len(coding.first) + 1), out=cells)
    for rate in coding.first:
        np.greater_equal(draws[FIRST_TRY], rate, out=passed)
        np.add(cells, as_number, out=cells)
    return cells
