"""Expectations under many models at once, as draws from a posterior are: one pass over the states for all of them.

What can happen in an episode is much the same whatever the rates; only its probability differs. So the chain is built
on everything that any of the models can do, and every probability carries a last axis, the models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from invsim.client.arms import Arm
from invsim.client.planners.probabilistic import Behaviour, ProbabilisticModel
from invsim.sim.exact.arms import CONDUCT
from invsim.sim.exact.cells import Cell, cells
from invsim.sim.exact.chain import CellsOf, Chain, Step
from invsim.sim.exact.kernel import QUANTITIES, Floats, Indices, Kernel
from invsim.sim.exact.law import MAX_STATES, count_maps, count_names, must_support
from invsim.sim.facts import Facts

EVICTED = QUANTITIES.index("evicted")

AT_ONCE = 200
"""Models per pass: enough to share the work, few enough for the arrays to fit."""


@dataclass(frozen=True)
class Expected:
    """Expectations of a stream's counts under several models.

    Parameters
    ----------
    names : tuple of str
        The counts, as in ``Exact``.
    mean : ndarray, shape (models, counts)
    reciprocal : ndarray, shape (models,)
        E[1/evictions | evictions > 0]; NaN where nothing is ever evicted.
    """

    names: tuple[str, ...]
    mean: Floats
    reciprocal: Floats


def expectations(
    facts: Facts, *, arms: Sequence[Arm], models: Sequence[ProbabilisticModel], max_states: int = MAX_STATES
) -> dict[str, Expected]:
    """Return the expectations of each arm under each model, the same as ``distribution`` gives one by one.

    Parameters
    ----------
    facts : Facts
    arms : sequence of Arm
    models : sequence of ProbabilisticModel
        One or more.
    max_states : int

    Raises
    ------
    NotTabularError, StateSpaceError
        See ``distribution``.
    """
    for arm in arms:
        for model in models:
            must_support(arm, model)
    parts: dict[str, list[Expected]] = {arm.name: [] for arm in arms}
    for first in range(0, len(models), AT_ONCE):
        some = models[first : first + AT_ONCE]
        cells_of = _cells_by(facts, some)
        for arm in arms:
            parts[arm.name].append(_expectations(facts, arm, cells_of, len(some), max_states))
    return {
        name: Expected(
            found[0].names,
            np.concatenate([each.mean for each in found]),
            np.concatenate([each.reciprocal for each in found]),
        )
        for name, found in parts.items()
    }


def _cells_by(facts: Facts, models: Sequence[ProbabilisticModel]) -> CellsOf:
    """Return what an episode can come to under any of the models; a probability is an array, one per model."""
    known: dict[tuple[object, ...], tuple[Cell, ...]] = {}
    rates: dict[tuple[str, str | None], list[Behaviour]] = {}

    def of(at: int, fixes: tuple[int, ...]) -> tuple[Cell, ...]:
        episode, task = facts.episodes[at], facts.plan.episodes[at]
        asked = id(episode.first), episode.first_occurrence, fixes, task.constraint, task.shape
        if asked not in known:
            name = task.constraint, task.shape
            if name not in rates:
                rates[name] = [model.behaviour(*name) for model in models]
            known[asked] = _merged([cells(episode, fixes, each) for each in rates[name]])
        return known[asked]

    return of


def _merged(found: Sequence[Sequence[Cell]]) -> tuple[Cell, ...]:
    chances: dict[Cell, Floats] = {}
    for at, mine in enumerate(found):
        for cell in mine:
            outcome = cell._replace(probability=0.0)
            if outcome not in chances:
                chances[outcome] = np.zeros(len(found))
            chances[outcome][at] += cell.probability
    return tuple(outcome._replace(probability=chance) for outcome, chance in chances.items())  # type: ignore[arg-type]


def _expectations(facts: Facts, arm: Arm, cells_of: CellsOf, models: int, max_states: int) -> Expected:
    names = count_names(facts.plan)
    maps = count_maps(facts.plan, names)
    chain = Chain(facts, CONDUCT[arm.name], cells_of, max_states=max_states)
    mean = np.zeros((len(names), models))
    law = _Evictions(models)
    for step in chain.steps():
        weight = _summed(law.by_state(), step.kernel, len(step.kernels))
        average = np.einsum("km,kqm->qm", weight, np.array([kernel.mean for kernel in step.kernels]))
        mean += maps[step.episode] @ average
        law.advance(step)
    required = np.array(chain.final(), dtype=np.float64)
    at = [names.index("required_by_row"), names.index("required_by_table")]
    mean[at] += required.T @ law.by_state()
    mean[names.index("one")] = 1.0
    return Expected(names, mean.T, law.mean_reciprocal())


def _summed(rows: Floats, groups: Indices, number: int) -> Floats:
    """Return the sum of the rows of each group, shape (number, models)."""
    order = np.argsort(groups, kind="stable")
    bounds = np.searchsorted(groups[order], np.arange(number))
    found: Floats = np.add.reduceat(rows[order], bounds)
    return found


class _Evictions:
    """The joint law of the state and the evictions so far, as rows (state, evictions) with a probability per model."""

    def __init__(self, models: int) -> None:
        self.state, self.evicted = np.zeros(1, np.intp), np.zeros(1, np.intp)
        self.probability = np.ones((1, models))

    def by_state(self) -> Floats:
        """Return the law of the state, shape (states, models)."""
        starts = np.flatnonzero(np.diff(self.state, prepend=-1))
        found: Floats = np.add.reduceat(self.probability, starts)
        return found

    def advance(self, step: Step) -> None:
        """Take one episode: every row splits into the targets of its state's kernel, by what is evicted."""
        parts = [_by_evictions(kernel) for kernel in step.kernels]
        lengths = np.array([len(target) for target, _, _ in parts])
        begin = (np.cumsum(lengths) - lengths)[step.kernel]
        times = lengths[step.kernel][self.state]
        rows = np.repeat(np.arange(len(self.state)), times)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(times) - times, times)
        outcome = begin[self.state[rows]] + within
        first_goal = np.searchsorted(step.source, np.arange(len(step.kernel)))
        target = np.concatenate([each for each, _, _ in parts])[outcome]
        goal = step.goal[first_goal[self.state[rows]] + target]
        evicted = self.evicted[rows] + np.concatenate([each for _, each, _ in parts])[outcome]
        probability = self.probability[rows] * np.concatenate([each for _, _, each in parts])[outcome]
        order = np.lexsort((evicted, goal))
        goal, evicted = goal[order], evicted[order]
        starts = np.flatnonzero((np.diff(goal, prepend=-1) != 0) | (np.diff(evicted, prepend=-1) != 0))
        self.state, self.evicted = goal[starts], evicted[starts]
        self.probability = np.add.reduceat(probability[order], starts)

    def mean_reciprocal(self) -> Floats:
        """Return E[1/evictions | evictions > 0] per model; NaN where nothing is ever evicted."""
        above = self.evicted > 0
        mass = self.probability[above].sum(axis=0)
        found = (self.probability[above] / self.evicted[above, None]).sum(axis=0)
        return np.where(mass > 0, found / np.where(mass > 0, mass, 1.0), np.nan)


def _by_evictions(kernel: Kernel) -> tuple[Indices, Indices, Floats]:
    """Return (target, evictions, probability) of a kernel's outcomes, those alike in both as one."""
    evicted = kernel.quantities[:, EVICTED].astype(np.intp)
    if not evicted.any():
        return np.arange(len(kernel.targets)), np.zeros(len(kernel.targets), np.intp), kernel.chance
    order = np.lexsort((evicted, kernel.target))
    target, evicted = kernel.target[order], evicted[order]
    starts = np.flatnonzero((np.diff(target, prepend=-1) != 0) | (np.diff(evicted, prepend=-1) != 0))
    return target[starts], evicted[starts], np.add.reduceat(kernel.probabilities[order], starts)
