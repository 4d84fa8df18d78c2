"""The probability of a cell's printed integers, all together, under a vector of parameters.

Classes meet only in the totals that a cell prints (retries, exhausted, evictions): they have keys and tables of their
own, and drift reaches every client at its next response, whichever class that belongs to. So the exact engine gives,
class by class, the joint law of what one stream adds to every count; runs are independent, so it is convolved with
itself once a run; what is printed of the class alone is conditioned on; and the classes are convolved in the totals.
Nothing is approximated, and no two integers of a cell are taken for independent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt

from invsim.calibrate.evidence import SHARED, Cell, Total, class_of, episodes_of, facts_of
from invsim.client.arms import get_arm
from invsim.client.planners.probabilistic import Behaviour, ProbabilisticModel, RetryLaw
from invsim.sim.exact import distribution
from invsim.sim.facts import Facts
from invsim.sim.plan import Window

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Behaviours = Callable[[str], Behaviour]
"""The behaviour of each class."""

IMPOSSIBLE = 1e-15
"""Least probability told from 0: Fourier transforms leave errors of this size."""

RADIX = 256.0
"""More than any count of a stream: a joint law is carried as one number in this base."""

ABSENT = Behaviour(p_unaided_first=1.0, p_unaided_repeat=1.0)
"""Solves everything at once and learns nothing: a class that is not looked at."""

GENERIC = Behaviour(
    p_apply=0.637, p_fresh=0.271, p_stale=0.823, p_unaided_first=0.143, p_unaided_repeat=0.389,
    retry=RetryLaw((0.31, 0.57, 0.73, 0.91)), retry_injected=RetryLaw((0.43, 0.61, 0.79, 0.87)),
)  # fmt: skip
"""Nothing special: laws are polynomials in the parameters, so two that agree here agree everywhere."""


@dataclass(frozen=True, eq=False)
class Joint:
    """A joint law of counts: ``p[i, j, ...]`` = P(count k is ``low[k]`` + index k, for all k)."""

    names: tuple[str, ...]
    low: tuple[int, ...]
    p: Floats

    def fixed(self, observed: Mapping[str, int]) -> Joint:
        """Condition on counts, in the sense of keeping P(those counts, the others)."""
        where: list[slice | int] = []
        for axis, name in enumerate(self.names):
            if name not in observed:
                where.append(slice(None))
                continue
            at = observed[name] - self.low[axis]
            if not 0 <= at < self.p.shape[axis]:
                left = [e for e in range(len(self.names)) if self.names[e] not in observed]
                return Joint(tuple(self.names[e] for e in left), (0,) * len(left), np.zeros((1,) * len(left)))
            where.append(at)
        left = [e for e in range(len(self.names)) if self.names[e] not in observed]
        return Joint(tuple(self.names[e] for e in left), tuple(self.low[e] for e in left), self.p[tuple(where)])

    def over(self, names: Sequence[str]) -> Joint:
        """Return the law of some of the counts, in that order."""
        kept = [self.names.index(name) for name in names]
        rest = tuple(e for e in range(len(self.names)) if e not in kept)
        p = np.transpose(self.p.sum(axis=rest), [sorted(kept).index(axis) for axis in kept])
        return Joint(tuple(names), tuple(self.low[e] for e in kept), p)


# One class, one stream ---------------------------------------------------------------------------------------------


@cache
def _alone(scenario: str, constraint: str) -> Facts:
    """Return the episodes of one class, and those in which a client first meets drift."""
    facts = facts_of(scenario)
    plan, mine = facts.plan, facts.plan.classes.index(constraint)
    kept = [at for at, e in enumerate(facts.episodes) if e.constraint == mine or e.drift or at == 0]
    part = replace(
        plan,
        episodes=tuple(plan.episodes[at] for at in kept),
        first_occurrence=tuple(plan.first_occurrence[at] for at in kept),
        class_index=plan.class_index[kept],
        eligible=plan.eligible[kept],
        windows=tuple(Window(w.name, w.mask[kept]) for w in plan.windows),
    )
    return replace(facts, plan=part, episodes=tuple(facts.episodes[at] for at in kept))


def _weights(facts: Facts, metric: str) -> dict[str, float]:
    plan = facts.plan
    episodes = len(plan.episodes)
    if metric == "retries":
        return {"attempts": 1, "one": -episodes}
    if metric == "exhausted":
        return {"one": episodes, "completed": -1}
    if metric == "first_try_eligible":
        return {"eligible_first_try": 1}
    if metric in plan.classes:
        return {f"first_try:{metric}": 1}
    return {metric: 1} if metric in SHARED else {f"window:{metric}": 1}


def _metrics(scenario: str, constraint: str) -> tuple[str, ...]:
    """Return what is counted of a class alone."""
    plan = facts_of(scenario).plan
    names = ("first_try_eligible", *(w.name for w in plan.windows), *plan.classes)
    counted = [n for n in names if (mask := episodes_of(plan, n)) is not None and mask.any()]
    return tuple(name for name in counted if class_of(plan, name) == constraint)


@lru_cache(maxsize=20_000)
def _stream(
    scenario: str, arm: str, constraint: str, metrics: tuple[str, ...], behaviour: Behaviour
) -> tuple[Counts, Floats, frozenset[str]]:
    """Return the joint law of counts that one class adds in one stream, and which sets of fixes it ever injects.

    Counts have shape (n, metrics), their probabilities (n,); the sets are among "valid", "conflict", "stale".
    """
    facts = _alone(scenario, constraint)
    weights: dict[str, float] = {}
    for place, metric in enumerate(metrics):
        for name, weight in _weights(facts, metric).items():
            weights[name] = weights.get(name, 0.0) + weight * RADIX**place
    model = ProbabilisticModel("one class", default=ABSENT, classes={constraint: behaviour})
    exact = distribution(facts, arm=get_arm(arm), model=model, combinations={"all": weights})
    law = exact.pmfs["all"]
    code = np.rint(law.values).astype(np.int64)
    digits = [code // int(RADIX) ** place % int(RADIX) for place in range(len(metrics))]
    mine = facts.plan.class_index == facts.plan.classes.index(constraint)
    met = frozenset(kind for kind in ("valid", "conflict", "stale") if exact.by_episode(kind)[mine].any())
    return np.stack(digits, axis=1), law.probabilities, met


@cache
def _like(scenario: str, arm: str, constraint: str, metrics: tuple[str, ...]) -> tuple[str, frozenset[str]]:
    """Return the arm that stands for all that treat a class alike, as far as these counts go, and what it injects."""
    counts, p, met = _stream(scenario, arm, constraint, metrics, GENERIC)
    for other in (each.name for each in facts_of(scenario).plan.arms):
        if other == arm:
            break
        theirs = _stream(scenario, other, constraint, metrics, GENERIC)
        if np.array_equal(theirs[0], counts) and np.allclose(theirs[1], p, rtol=1e-9, atol=1e-15):
            return other, met
    return arm, met


def _reduced(behaviour: Behaviour, met: frozenset[str]) -> Behaviour:
    """Return a behaviour with what never comes to bear set to one value, so that equal laws have equal keys."""
    idle = {
        "p_apply": "valid" not in met,
        "p_fresh": "conflict" not in met,
        "p_stale": "stale" not in met,
        "retry_injected": not met,
    }
    return replace(behaviour, **{name: getattr(GENERIC, name) for name, off in idle.items() if off})


def _kind(
    scenario: str, arm: str, constraint: str, extra: tuple[str, ...], behaviour: Behaviour
) -> tuple[str, tuple[str, ...], Behaviour]:
    """Return what a class's law depends on, told apart as little as possible: an arm, what is counted, a behaviour."""
    metrics = (*_metrics(scenario, constraint), *SHARED[:2], *(each for each in SHARED[2:] if each in extra))
    like, met = _like(scenario, arm, constraint, metrics)
    return like, metrics, _reduced(behaviour, met)


def stream_law(
    scenario: str, arm: str, constraint: str, metrics: Sequence[str], behaviour: Behaviour
) -> tuple[Counts, Floats]:
    """Return what one class adds to some counts in one stream.

    Returns
    -------
    counts : ndarray of int, shape (outcomes, metrics)
    p : ndarray, shape (outcomes,)
    """
    like, counted, reduced = _kind(scenario, arm, constraint, tuple(metrics), behaviour)
    counts, p, _ = _stream(scenario, like, constraint, counted, reduced)
    return counts[:, [counted.index(each) for each in metrics]], p


def expectation(cell: Cell, metric: str, behaviours: Behaviours) -> tuple[float, float]:
    """Return mean and variance of a count, pooled over the runs of a cell."""
    plan = facts_of(cell.scenario).plan
    of = class_of(plan, metric)
    mean = variance = 0.0
    for constraint in plan.classes if of is None else (of,):
        counts, p = stream_law(cell.scenario, cell.arm, constraint, (metric,), behaviours(constraint))
        first = float(p @ counts[:, 0])
        mean += first
        variance += float(p @ (counts[:, 0] - first) ** 2)
    return cell.runs * mean, cell.runs * variance


# One class, all runs of a cell -------------------------------------------------------------------------------------


@lru_cache(maxsize=5_000)
def _pooled(
    scenario: str,
    arm: str,
    constraint: str,
    runs: int,
    own: tuple[tuple[str, int], ...],
    shared: tuple[tuple[str, int], ...],
    behaviour: Behaviour,
) -> Joint:
    """Return P(the counts of the class alone, the shared ones) over the runs, as a law of the shared ones."""
    names = tuple(name for name, _ in (*own, *shared))
    left = tuple(name for name, _ in shared)
    if not names:
        return Joint((), (), np.ones(()))
    counts, p = stream_law(scenario, arm, constraint, names, behaviour)
    low = counts.min(axis=0)
    for axis, (_, observed) in enumerate((*own, *shared)):  # more in one stream than was seen in all leads nowhere
        fits = counts[:, axis] - low[axis] <= observed - runs * low[axis]
        counts, p = counts[fits], p[fits]
    if not len(p):
        return Joint(left, (0,) * len(left), np.zeros((1,) * len(left)))
    shape = tuple(runs * (counts.max(axis=0) - low) + 1)
    dense = np.zeros(shape)
    np.add.at(dense, tuple((counts - low).T), p)
    law = _power(dense, runs)
    joint = Joint(names, tuple(int(each) for each in runs * low), law)
    return joint.fixed(dict(own))


def _power(dense: Floats, runs: int) -> Floats:
    """Return the law of a sum of ``runs`` independent copies; the array has room for it."""
    size = dense.size
    if size == 1 or runs == 1:
        return dense**runs
    spectrum = np.fft.rfft(dense.ravel(), size)  # the flat index adds up as the counts do, since none overflows
    return np.maximum(np.fft.irfft(spectrum**runs, size), 0.0).reshape(dense.shape)


# All classes of a cell ---------------------------------------------------------------------------------------------


def cell_law(cell: Cell, behaviours: Behaviours, tracked: tuple[str, str] | None = None) -> Floats:
    """Return the probability of a cell's integers.

    Parameters
    ----------
    cell : Cell
    behaviours : callable
    tracked : (class, count), optional
        Also tell how much of a shared count falls to one class.

    Returns
    -------
    ndarray
        Shape (1,), or by the tracked count from 0 on.
    """
    plan = facts_of(cell.scenario).plan
    shared = tuple(name for name in SHARED if cell.count(name) is not None)
    observed = {each.metric: each.count for each in cell.integers}
    known = tuple((name, observed[name]) for name in shared)
    order = [name for name in plan.classes if tracked is None or name != tracked[0]]
    parts = []
    for constraint in (*order, *(() if tracked is None else (tracked[0],))):
        mine = _metrics(cell.scenario, constraint)
        own = tuple((name, observed[name]) for name in mine if name in observed)
        like, _, reduced = _kind(cell.scenario, cell.arm, constraint, shared, behaviours(constraint))
        parts.append(_pooled(cell.scenario, like, constraint, cell.runs, own, known, reduced))
    rest = parts[0]
    for part in parts[1:-1]:
        rest = _added(rest, part)
    last = parts[-1]
    if len(parts) == 1:
        rest = Joint(shared, (0,) * len(shared), np.ones((1,) * len(shared)))
    # P(rest = observed - last) over every value of the last.
    mass = last.p * _reflected(rest, last, [observed[name] for name in shared])
    if tracked is None:
        return np.atleast_1d(mass.sum())
    axis = shared.index(tracked[1])
    along = mass.sum(axis=tuple(e for e in range(mass.ndim) if e != axis))
    return np.concatenate([np.zeros(last.low[axis]), along])


def _added(left: Joint, right: Joint) -> Joint:
    from scipy.signal import fftconvolve

    p = left.p * right.p if left.p.ndim == 0 else np.maximum(fftconvolve(left.p, right.p), 0.0)
    return Joint(left.names, tuple(a + b for a, b in zip(left.low, right.low, strict=True)), p)


def _reflected(rest: Joint, last: Joint, observed: Sequence[int]) -> Floats:
    """Return, for every value of ``last``, the probability that ``rest`` makes up what is missing to the observed."""
    p = rest.p
    for axis, total in enumerate(observed):
        wanted = total - last.low[axis] - np.arange(last.p.shape[axis]) - rest.low[axis]
        inside = (wanted >= 0) & (wanted < p.shape[axis])
        taken = np.take(p, np.where(inside, wanted, 0), axis=axis)
        p = taken * inside.reshape([-1 if e == axis else 1 for e in range(p.ndim)])
    return p


def log_likelihood(cells: Iterable[Cell], behaviours: Behaviours, totals: Sequence[Total] = ()) -> float:
    """Return the log probability of all integers; cells are independent.

    Never below log(1e-15) a cell: what is rarer is not told apart.
    """
    found, follow = 0.0, {("payments", arm): each for each in totals for arm in each.arms}
    sums: dict[Total, Floats] = {}
    for cell in cells:
        total = follow.get((cell.scenario, cell.arm))
        if total is None:
            found += float(np.log(max(cell_law(cell, behaviours)[0], IMPOSSIBLE)))
            continue
        along = cell_law(cell, behaviours, (total.constraint, total.metric))
        weight = max(float(along.sum()), IMPOSSIBLE)
        found += float(np.log(weight))
        share = along / weight
        sums[total] = np.convolve(sums[total], share) if total in sums else share
    for total, law in sums.items():
        at = law[total.count] if total.count < len(law) else 0.0
        found += float(np.log(max(at, IMPOSSIBLE)))
    return found
