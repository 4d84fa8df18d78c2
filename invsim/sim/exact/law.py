"""Exact distributions: the law of a stream's counts, by one forward pass over the states of the client.

No sampling: means, covariances and probability functions are what the event engine's averages tend to.

Notes
-----
Let s be the client's state before an episode, p(s) its probability, S the vector of counts so far, and
D(s) = E[(S - E S) 1{state = s}]. From s an episode reaches s' with probability P(s, s') and adds x(s, s') to the counts
on average. With m = E x over all transitions,

    p'(s') = sum over s of p(s) P(s, s')
    D'(s') = sum over s of P(s, s') (D(s) + p(s) (x(s, s') - m))
    Cov'   = Cov + A + A^T + Cov(x),   A = sum over s, s' of P(s, s') D(s) (x(s, s') - m)^T

Deviations are carried rather than second moments, so a count that cannot vary has variance exactly 0. The probability
function of a linear combination c of counts is carried as q(s, c), moved by the outcomes one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from invsim.client.arms import Arm, get_arm
from invsim.client.planners.base import ComplianceModel
from invsim.client.planners.probabilistic import ProbabilisticModel
from invsim.errors import UnknownNameError
from invsim.sim.exact.arms import CONDUCT
from invsim.sim.exact.cells import Cell, cells
from invsim.sim.exact.chain import CellsOf, Chain, Step
from invsim.sim.exact.kernel import QUANTITIES, Floats, Indices
from invsim.sim.facts import Facts, NotTabularError
from invsim.sim.plan import Plan

Weights = Mapping[str, float]
"""A linear combination of named counts."""

MAX_STATES = 50_000
TOLERANCE = 1e-9
"""Values of a linear combination that differ by less are one value."""


@dataclass(frozen=True)
class Pmf:
    """A probability function on finitely many values.

    Parameters
    ----------
    values : ndarray, increasing
    probabilities : ndarray
        Above 0, summing to 1.
    """

    values: Floats
    probabilities: Floats

    @property
    def mean(self) -> float:
        """The expectation."""
        return float(self.values @ self.probabilities)

    @property
    def mean_reciprocal(self) -> float | None:
        """E[1/value | value > 0]; None where the value is never above 0."""
        above = self.values > 0
        mass = float(self.probabilities[above].sum())
        return float((self.probabilities[above] / self.values[above]).sum()) / mass if mass > 0 else None


@dataclass(frozen=True)
class Exact:
    """The law of a stream's counts.

    Parameters
    ----------
    scenario, model, arm : str
    names : tuple of str
        The counts, those of ``invsim.stats.metrics.Summary`` in its order. ``baseline_attempts`` are the attempts of
        the same stream without memory under common random numbers, jointly with the rest: its covariances are those
        of paired streams.
    mean : ndarray, shape (counts,)
    covariance : ndarray, shape (counts, counts)
        Of one stream's counts, so the standard error of a mean over n streams is sqrt(variance / n).
    pmfs : mapping of name to Pmf
        Those that were asked for.
    quantities : tuple of str
    episodes : ndarray, shape (episodes, quantities)
        Expectation per episode of what happens in it: see ``invsim.sim.exact.kernel.QUANTITIES``.
    states : int
        The most states that were possible at once.
    """

    scenario: str
    model: str
    arm: str
    names: tuple[str, ...]
    mean: Floats
    covariance: Floats
    pmfs: Mapping[str, Pmf]
    quantities: tuple[str, ...]
    episodes: Floats
    states: int
    _at: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_at", {name: at for at, name in enumerate(self.names)})

    def expected(self, weights: str | Weights) -> float:
        """Return the expectation of a count, or of a linear combination of counts."""
        return float(self._vector(weights) @ self.mean)

    def variance(self, weights: str | Weights) -> float:
        """Return the variance over streams of a count, or of a linear combination of counts."""
        vector = self._vector(weights)
        return max(float(vector @ self.covariance @ vector), 0.0)

    def by_episode(self, quantity: str) -> Floats:
        """Return the expectation of one quantity in each episode, shape (episodes,)."""
        return self.episodes[:, self.quantities.index(quantity)]

    def _vector(self, weights: str | Weights) -> Floats:
        return _combination(self.names, {weights: 1.0} if isinstance(weights, str) else weights)


def supports(arm: Arm, model: ComplianceModel) -> bool:
    """Return whether the exact engine knows the arm and the model: the nine arms, and rates per class or shape."""
    return _refusal(arm, model) is None


def must_support(arm: Arm, model: ComplianceModel) -> ProbabilisticModel:
    """Return the model; one, or an arm, that the engine does not know is a ``NotTabularError``."""
    refusal = _refusal(arm, model)
    if refusal is not None or not isinstance(model, ProbabilisticModel):
        raise NotTabularError(refusal or "")
    return model


def _refusal(arm: Arm, model: ComplianceModel) -> str | None:
    if arm.name not in CONDUCT or get_arm(arm.name) != arm:
        return f"the exact engine knows the arms {', '.join(CONDUCT)}, not {arm.name!r}; use --engine simpy"
    if not isinstance(model, ProbabilisticModel) or type(model).decide is not ProbabilisticModel.decide:
        return f"the exact engine needs a model made of rates, and {model.name!r} decides otherwise; use --engine simpy"
    return None


def distribution(
    facts: Facts,
    *,
    arm: Arm,
    model: ComplianceModel,
    pmf: Sequence[str] = (),
    combinations: Mapping[str, Weights] | None = None,
    max_states: int = MAX_STATES,
) -> Exact:
    """Return the law of the counts of one arm and one model.

    Parameters
    ----------
    facts : Facts
        See ``invsim.sim.facts.tabulate``.
    arm : Arm
        One of the nine.
    model : ProbabilisticModel
    pmf : sequence of str
        Counts whose probability function is wanted: any of ``Exact.names``, "retries", "exhausted", or a window by
        its bare name.
    combinations : mapping of name to Weights, optional
        Linear combinations of counts whose probability function is wanted as well, such as tokens.
    max_states : int

    Raises
    ------
    NotTabularError
        An arm or a model of another kind.
    StateSpaceError
        More than ``max_states`` states at once.
    UnknownNameError
        A count of another name.
    """
    model = must_support(arm, model)
    plan = facts.plan
    names = count_names(plan)
    wanted = {name: _named(plan, names, name) for name in pmf} | dict(combinations or {})
    chain = Chain(facts, CONDUCT[arm.name], cells_by(facts, model), max_states=max_states)
    maps = count_maps(plan, names)
    moments = _Moments(len(names))
    laws = {name: _Law(_combination(names, weights)) for name, weights in wanted.items()}
    for step in chain.steps():
        moments.advance(step, maps[step.episode])
        for law in laws.values():
            law.advance(step, maps[step.episode])
    required = np.zeros((len(moments.p), len(names)))
    required[:, [names.index("required_by_row"), names.index("required_by_table")]] = chain.final()
    constant = names.index("one")
    moments.finish(required, constant=constant)
    return Exact(
        scenario=plan.name,
        model=model.name,
        arm=arm.name,
        names=names,
        mean=moments.mean,
        covariance=moments.covariance,
        pmfs={name: law.finish(required, constant=constant) for name, law in laws.items()},
        quantities=QUANTITIES,
        episodes=np.array(moments.episodes)[:, : len(QUANTITIES)],
        states=chain.reached,
    )


def cells_by(facts: Facts, model: ProbabilisticModel) -> CellsOf:
    """Return what an episode of the plan can come to under a model."""

    def of(at: int, fixes: Sequence[int]) -> tuple[Cell, ...]:
        task = facts.plan.episodes[at]
        return cells(facts.episodes[at], fixes, model.behaviour(task.constraint, task.shape))

    return of


# Counts -----------------------------------------------------------------------------------------------------------

_PLAIN = {
    "attempts": "attempts",
    "baseline_attempts": "baseline_attempts",
    "completed": "completed",
    "first_try": "first_try",
    "eligible_first_try": "first_try",
    "evictions": "evicted",
    "restamped_entries": "restamped",
    "injected_entries": "injected_entries",
    "conflict_attempts": "conflict_attempts",
}
_BY_CLASS = ("first_try", "addressable", "valid", "valid_first_try")
_BY_STREAM = QUANTITIES[QUANTITIES.index("restamp_operations") :]


def count_names(plan: Plan) -> tuple[str, ...]:
    """Return the names of the counts of a plan's streams."""
    return (
        "one",
        *_PLAIN,
        *(f"{kind}:{name}" for name in plan.classes for kind in _BY_CLASS),
        *(f"window:{window.name}" for window in plan.windows),
        *_BY_STREAM,
        *(f"{kind}:{at}" for at in range(len(plan.drift)) for kind in ("noticed", "alert")),
    )


def count_maps(plan: Plan, names: tuple[str, ...]) -> Floats:
    """Return, per episode, the matrix that turns its quantities into what they add to the counts."""
    episodes = len(plan.episodes)
    maps = np.zeros((episodes, len(names), len(QUANTITIES) + len(plan.drift)))

    def count(name: str, quantity: str, weight: float | npt.NDArray[np.generic] = 1.0) -> None:
        maps[:, names.index(name), QUANTITIES.index(quantity)] = weight

    for name, quantity in _PLAIN.items():
        count(name, quantity, plan.eligible if name.startswith("eligible") else 1.0)
    for at, constraint in enumerate(plan.classes):
        for kind in _BY_CLASS:
            count(f"{kind}:{constraint}", kind, plan.class_index == at)
    for window in plan.windows:
        count(f"window:{window.name}", "first_try", window.mask)
    for name in _BY_STREAM:
        count(name, name)
    for at in range(len(plan.drift)):
        maps[:, names.index(f"noticed:{at}"), len(QUANTITIES) + at] = 1.0
        maps[:, names.index(f"alert:{at}"), len(QUANTITIES) + at] = np.arange(episodes)
    return maps


def _named(plan: Plan, names: tuple[str, ...], name: str) -> Weights:
    derived: dict[str, Weights] = {
        "retries": {"attempts": 1, "one": -len(plan.episodes)},
        "exhausted": {"one": len(plan.episodes), "completed": -1},
        **{window.name: {f"window:{window.name}": 1} for window in plan.windows},
    }
    if name in derived:
        return derived[name]
    if name not in names:
        raise UnknownNameError("count", name, (*derived, *names))
    return {name: 1}


def _combination(names: tuple[str, ...], weights: Weights) -> Floats:
    vector = np.zeros(len(names))
    for name, weight in weights.items():
        if name not in names:
            raise UnknownNameError("count", name, names)
        vector[names.index(name)] += weight
    return vector


# Recursions -------------------------------------------------------------------------------------------------------


class _Moments:
    """Mean and covariance, carried as the notes of this module say."""

    def __init__(self, counts: int) -> None:
        self.p = np.ones(1)
        self.deviation = np.zeros((1, counts))
        self.mean = np.zeros(counts)
        self.covariance = np.zeros((counts, counts))
        self.episodes: list[Floats] = []

    def advance(self, step: Step, to_counts: Floats) -> None:
        """Take one episode."""
        kernels = step.kernels
        weight = np.bincount(step.kernel, self.p, len(kernels))
        means = np.array([kernel.mean for kernel in kernels])
        average = weight @ means
        off = means - average
        spread = np.tensordot(weight, np.array([kernel.spread for kernel in kernels]), 1) + off.T @ (
            weight[:, None] * off
        )
        mean = to_counts @ average
        summed = np.zeros((len(kernels), len(mean)))
        np.add.at(summed, step.kernel, self.deviation)
        cross = summed.T @ (off @ to_counts.T)  # centred too: the deviations sum to 0 but for rounding
        self.covariance += cross + cross.T + to_counts @ spread @ to_counts.T
        # A transition leads from a state to one target of its kernel.
        fans = np.array([len(kernel.targets) for kernel in kernels])
        fan = fans[step.kernel]
        at = (np.cumsum(fans) - fans)[step.kernel].repeat(fan) + _counted(fan)
        chance = np.concatenate([kernel.chance for kernel in kernels])[at]
        added = (np.concatenate([kernel.added for kernel in kernels]) @ to_counts.T)[at]
        p = self.p[step.source]
        moved = chance[:, None] * self.deviation[step.source] + p[:, None] * (added - chance[:, None] * mean)
        order = np.argsort(step.goal, kind="stable")
        bounds = np.searchsorted(step.goal[order], np.arange(step.states))
        self.deviation = np.add.reduceat(moved[order], bounds)
        self.p = np.add.reduceat((p * chance)[order], bounds)
        self.mean += mean
        self.episodes.append(average)

    def finish(self, added: Floats, *, constant: int) -> None:
        """Add what each final state brings, shape (states, counts), and the count that is always 1."""
        mean = self.p @ added
        off = added - mean
        cross = self.deviation.T @ off
        self.covariance += cross + cross.T + off.T @ (off * self.p[:, None])
        self.mean += mean
        self.mean[constant] = 1.0


class _Law:
    """The joint law of the state and one linear combination, as rows (state, value, probability)."""

    def __init__(self, weights: Floats) -> None:
        self.weights = weights
        self.rows: Rows = np.zeros(1, np.intp), np.zeros(1), np.ones(1)

    def advance(self, step: Step, to_counts: Floats) -> None:
        """Take one episode: every row splits into the outcomes of its state's kernel."""
        value_of = self.weights @ to_counts
        outcomes = [
            _merged(kernel.target, kernel.quantities @ value_of, kernel.probabilities) for kernel in step.kernels
        ]
        goals = np.split(step.goal, np.cumsum(np.bincount(step.source))[:-1])
        fan = np.array([len(target) for target, _, _ in outcomes])[step.kernel]
        goal = np.concatenate([goals[state][outcomes[which][0]] for state, which in enumerate(step.kernel)])
        more = np.concatenate([outcomes[which][1] for which in step.kernel])
        chance = np.concatenate([outcomes[which][2] for which in step.kernel])
        state, value, probability = self.rows
        times = fan[state]
        at = (np.cumsum(fan) - fan)[state].repeat(times) + _counted(times)
        self.rows = _merged(goal[at], value.repeat(times) + more[at], probability.repeat(times) * chance[at])

    def finish(self, added: Floats, *, constant: int) -> Pmf:
        """Add what each final state brings, and return the law whatever the state."""
        state, value, probability = self.rows
        value = value + (added @ self.weights)[state] + self.weights[constant]
        _, values, probabilities = _merged(np.zeros(len(value), np.intp), value, probability)
        return Pmf(values, probabilities)


Rows = tuple[Indices, Floats, Floats]


def _merged(state: Indices, value: Floats, probability: Floats) -> Rows:
    """Return rows in order of state and value, those of one state whose values agree to the tolerance as one."""
    order = np.lexsort((value, state))
    state, value = state[order], value[order]
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = (np.diff(state) != 0) | (np.diff(value) > TOLERANCE)
    starts = np.flatnonzero(new)
    return state[starts], value[starts], np.add.reduceat(probability[order], starts)


def _counted(times: Indices) -> Indices:
    """Return 0, 1, ... times[0] - 1, 0, 1, ... times[1] - 1, and so on."""
    ends = np.cumsum(times)
    counted: Indices = np.arange(ends[-1]) - (ends - times).repeat(times)
    return counted
