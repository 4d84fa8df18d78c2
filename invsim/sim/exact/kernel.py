"""What is counted in an episode, and an episode's outcomes as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from invsim.client.planners.base import Injected
from invsim.sim.exact.cells import Cell

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]

QUANTITIES = (
    "attempts",
    "baseline_attempts",
    "baseline_first_try",
    "completed",
    "first_try",
    "addressable",
    "evicted",
    "restamped",
    "injected_entries",
    "valid",
    "valid_first_try",
    "valid_attempts",
    "conflict",
    "conflict_first_try",
    "conflict_attempts",
    "stale",
    "stale_first_try",
    "stale_attempts",
    "restamp_operations",
    "evicted_right_by_row",
    "evicted_right_by_table",
    "required_by_row",
    "required_by_table",
    "contract_failures",
)
"""What is counted in an episode. After them comes, per drift event, whether it was noticed."""

ATTEMPTS, ENTRIES = QUANTITIES.index("attempts"), QUANTITIES.index("injected_entries")
ADDRESSABLE = QUANTITIES.index("addressable")
OF_STEP = [
    QUANTITIES.index(name)
    for name in (
        "evicted", "restamped", "restamp_operations", "evicted_right_by_row", "evicted_right_by_table",
        "required_by_row", "required_by_table", "contract_failures",
    )
]  # fmt: skip


class Fate(NamedTuple):
    """Outcomes of an episode that do the same to the store, with what they count by themselves."""

    completed: bool
    committed: int
    heard: tuple[frozenset[str], ...]
    probabilities: Floats
    quantities: Floats


def fates(found: Iterable[Cell], kind: Injected, *, hears: bool, events: int) -> tuple[Fate, ...]:
    """Group the cells of an episode by what they do to the store.

    Parameters
    ----------
    found : iterable of Cell
    kind : Injected
    hears : bool
        Whether it matters what the failed responses suggested.
    events : int
        Drift events of the plan.
    """
    groups: dict[tuple[bool, int, tuple[frozenset[str], ...]], list[Cell]] = {}
    for cell in found:
        groups.setdefault((cell.completed, cell.committed, cell.heard if hears else ()), []).append(cell)
    return tuple(
        Fate(*group, np.array([cell.probability for cell in mine]), _amounts(mine, kind, events))
        for group, mine in groups.items()
    )


def _amounts(mine: Sequence[Cell], kind: Injected, events: int) -> Floats:
    amounts = np.zeros((len(mine), len(QUANTITIES) + events))
    amounts[:, :5] = [
        (
            cell.attempts,
            cell.baseline_attempts,
            cell.baseline_first_try,
            cell.completed,
            cell.completed and cell.attempts == 1,
        )
        for cell in mine
    ]
    if kind is not Injected.NOTHING:
        start = QUANTITIES.index(kind.name.lower())
        amounts[:, start] = 1.0
        amounts[:, start + 1] = amounts[:, 4]
        amounts[:, start + 2] = amounts[:, 0]
    return amounts


Target = tuple[tuple[int, ...], int, int]
"""What the touched slots hold after an episode, rule events noticed, entries set aside."""


class Kernel:
    """An episode from one set of equivalent states: its outcomes, each leading to one of a few targets.

    Parameters
    ----------
    targets : sequence of Target
    starts : ndarray of int, shape (targets,)
        First outcome of each target; a target's outcomes stand together.
    probabilities : ndarray, shape (outcomes,)
        Or, of several models at once, (outcomes, models).
    quantities : ndarray, shape (outcomes, q)
        q = len(QUANTITIES) + drift events.

    Attributes
    ----------
    chance : ndarray, shape (targets,)
        Probability of each target; (targets, models) of several models.
    mean : ndarray, shape (q,)
        Or (q, models).
    """

    def __init__(self, targets: Sequence[Target], starts: Indices, probabilities: Floats, quantities: Floats) -> None:
        self.targets, self.starts, self.probabilities, self.quantities = targets, starts, probabilities, quantities
        self.chance: Floats = np.add.reduceat(probabilities, starts)
        self.mean: Floats = quantities.T @ probabilities

    @cached_property
    def added(self) -> Floats:
        """Expectation of (quantities, if that target) of one model, shape (targets, q)."""
        found: Floats = np.add.reduceat(self.probabilities[:, None] * self.quantities, self.starts)
        return found

    @cached_property
    def spread(self) -> Floats:
        """Covariance of the quantities of one model, shape (q, q)."""
        off = self.quantities - self.mean
        found: Floats = off.T @ (self.probabilities[:, None] * off)
        return found

    @cached_property
    def target(self) -> Indices:
        """Index of each outcome's target, shape (outcomes,)."""
        return np.repeat(np.arange(len(self.targets)), np.diff(self.starts, append=len(self.probabilities)))

    def beside(self, outside: int) -> Kernel:
        """Return the same episode with other entries in the store, which every attempt carries."""
        if not outside:
            return self
        quantities = self.quantities.copy()
        quantities[:, ENTRIES] += outside * quantities[:, ATTEMPTS]
        return Kernel(self.targets, self.starts, self.probabilities, quantities)
