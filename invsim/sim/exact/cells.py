"""What one episode can come to, and with what probability: the decision cells of a probabilistic planner.

An episode uses two uniform draws, u for the first try and v for all its retries, and so does the same episode of the
same stream without memory. Both plays are step functions of (u, v); a cell is a rectangle on which neither changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from invsim.client.planners.base import Injected
from invsim.client.planners.probabilistic import Behaviour, RetryLaw
from invsim.sim.facts import PLAIN, SOLVED, EpisodeFacts, FirstRequest

Steps = Sequence[tuple[float, int]]
"""A step function on [0, 1): (end of the step, what holds on it), ends non-decreasing, the last one 1."""


class Cell(NamedTuple):
    """One way an episode can go.

    Parameters
    ----------
    probability : float
    attempts : int
        1..5.
    completed : bool
    committed : int
        Fix that is stored on completion; -1 for none.
    heard : tuple of frozenset of str
        Families that each failed response suggested, in order.
    baseline_attempts : int
        Attempts of the same episode on the same draws with nothing injected.
    baseline_first_try : bool
    """

    probability: float
    attempts: int
    completed: bool
    committed: int
    heard: tuple[frozenset[str], ...]
    baseline_attempts: int
    baseline_first_try: bool


def judged(episode: EpisodeFacts, fixes: Sequence[int]) -> Injected:
    """Return what an injected block with these fixes amounts to in this episode."""
    works = {episode.works[fix] for fix in fixes}
    if not works:
        return Injected.NOTHING
    if len(works) == 2:
        return Injected.CONFLICT
    return Injected.VALID if True in works else Injected.STALE


def cells(episode: EpisodeFacts, fixes: Sequence[int], rates: Behaviour) -> tuple[Cell, ...]:
    """Return the cells of an episode, probabilities summing to 1.

    Parameters
    ----------
    episode : EpisodeFacts
    fixes : sequence of int
        What is injected, oldest first.
    rates : Behaviour

    Notes
    -----
    With g the unaided rate that applies, u decides the first request:

    ============  ==============================================================
    nothing       solved on [0, g), else plain
    valid only    the valid fix on [0, p_apply), else plain
    conflict      the newest valid fix on [0, p_fresh), else the newest stale one
    stale only    solved on [0, (1 - p_stale) g), plain on [.., 1 - p_stale), else the newest stale fix
    ============  ==============================================================

    v decides the retry from which the planner complies: the k-th on [c(k-1), c(k)), c the cumulative retry law.
    """
    kind = judged(episode, fixes)
    unaided = rates.p_unaided_first if episode.first_occurrence else rates.p_unaided_repeat
    alone: Steps = ((unaided, SOLVED), (1.0, PLAIN))
    mine = alone if kind is Injected.NOTHING else _first(episode, fixes, kind, rates, unaided)
    law = _complies(rates.retry if kind is Injected.NOTHING else rates.retry_injected)
    found: dict[tuple[int, bool, int, tuple[frozenset[str], ...], int, bool], float] = {}
    for width, request, other in _overlaid(mine, alone):
        first, bare = episode.first[request], episode.first[other]
        retries = [(1.0, 0, 0)] if first.ok and bare.ok else _overlaid(law, _complies(rates.retry))
        for height, complies, without in retries:
            attempts, completed, committed, heard = _followed(first, complies)
            outcome = attempts, completed, committed, heard, _followed(bare, without)[0], bare.ok
            found[outcome] = found.get(outcome, 0.0) + width * height
    return tuple(Cell(probability, *outcome) for outcome, probability in found.items())


def _first(episode: EpisodeFacts, fixes: Sequence[int], kind: Injected, rates: Behaviour, unaided: float) -> Steps:
    valid = [fix for fix in fixes if episode.works[fix]]
    stale = [fix for fix in fixes if not episode.works[fix]]
    if kind is Injected.VALID:
        return (rates.p_apply, valid[-1]), (1.0, PLAIN)
    if kind is Injected.CONFLICT:
        return (rates.p_fresh, valid[-1]), (1.0, stale[-1])
    free = 1.0 - rates.p_stale
    return (free * unaided, SOLVED), (free, PLAIN), (1.0, stale[-1])


def _complies(law: RetryLaw) -> Steps:
    return *((end, at) for at, end in enumerate(law.cumulative)), (1.0, len(law.cumulative))


def _overlaid(left: Steps, right: Steps) -> Iterator[tuple[float, int, int]]:
    """Yield (width, value of left, value of right) of every interval on which neither changes."""
    start, i, j = 0.0, 0, 0
    while i < len(left) and j < len(right):
        end = min(left[i][0], right[j][0])
        if end > start:
            yield end - start, left[i][1], right[j][1]
            start = end
        i, j = i + (left[i][0] <= end), j + (right[j][0] <= end)


def _followed(first: FirstRequest, complies: int) -> tuple[int, bool, int, tuple[frozenset[str], ...]]:
    if first.ok:
        return 1, True, -1, ()
    recovery = first.recoveries[complies]
    return recovery.attempts, recovery.completed, recovery.committed, recovery.failures
