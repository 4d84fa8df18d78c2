"""Why memory saves what it saves: the savings equation of one model and arm, and which of its parameters matter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from invsim.client.arms import A0, Arm
from invsim.client.planners.base import ComplianceModel, Injected
from invsim.client.planners.probabilistic import Behaviour, ProbabilisticModel, RetryLaw
from invsim.errors import InputError, UnknownNameError
from invsim.experiment import solve
from invsim.sim.engine import simulate_block
from invsim.sim.exact import Exact, distribution
from invsim.sim.facts import Facts, NotTabularError, tabulate
from invsim.sim.plan import Plan
from invsim.sim.result import Block
from invsim.sim.vector import VectorEngine
from invsim.stats.costs import TokenCosts
from invsim.stats.episodes import EpisodeSums
from invsim.stats.moments import Estimate
from invsim.stats.savings import KINDS, EpisodeMeans, Priced, Savings, priced, savings, verdict
from invsim.stats.sensitivity import Sensitivity, sobol

CHUNK = 5000
"""Streams simulated at a time."""


@dataclass(frozen=True)
class Explanation:
    """What the savings equation says of one model and one arm, and what it leaves out.

    Parameters
    ----------
    scenario, model, arm : str
    exact : Savings
        In retries per stream.
    priced : dict of class to Priced
        In units of an attempt's base cost, or in money.
    sampled : dict of class to dict of name to Estimate
        The same figures as ``exact`` from simulated streams, with their error.
    streams : int
    verdict : list of str
        The product's worth in words.
    """

    scenario: str
    model: str
    arm: str
    exact: Savings
    priced: dict[str, Priced]
    sampled: dict[str, dict[str, Estimate]]
    streams: int
    verdict: list[str]


def explain(
    plan: Plan,
    *,
    model: ComplianceModel,
    arm: Arm,
    replications: int = 20_000,
    seed: int = 1,
    costs: TokenCosts | None = None,
    price: float = 1.0,
) -> Explanation:
    """Take apart what memory saves.

    Parameters
    ----------
    plan : Plan
    model : ComplianceModel
    arm : Arm
    replications : int
        Streams of the Monte Carlo side.
    seed : int
    costs : TokenCosts, optional
    price : float
        Of an attempt's base cost, for the priced side.

    Raises
    ------
    NotTabularError, StateSpaceError
        Where the exact engine cannot run the plan, the arm or the model.
    """
    facts = tabulate(plan)
    costs = costs or TokenCosts(conflict=model.conflict_cost)
    means = episode_means(plan, distribution(facts, arm=arm, model=model))
    found = savings(means)
    sums, play = episode_sums(plan), _player(plan, facts, model, seed)
    for first in range(0, replications, CHUNK):
        count = min(CHUNK, replications - first)
        add_block(sums, play(arm, first, count), play(A0, first, count))
    return Explanation(
        scenario=plan.name,
        model=model.name,
        arm=arm.name,
        exact=found,
        priced=priced(means, costs, price=price),
        sampled=sums.estimates(),
        streams=sums.streams,
        verdict=verdict(found),
    )


def _player(plan: Plan, facts: Facts, model: ComplianceModel, seed: int) -> Callable[[Arm, int, int], Block]:
    """Return what plays (arm, first, count): on arrays, or event by event where the model decides by its own code."""
    try:
        engine = VectorEngine(facts, model)
    except NotTabularError:
        return lambda arm, first, count: simulate_block(plan, arm=arm, model=model, seed=seed, first=first, count=count)
    return lambda arm, first, count: engine.play(arm, engine.draw(seed=seed, first=first, count=count)).block()


# Sensitivity -------------------------------------------------------------------------------------------------------

PARAMETERS = ("p_apply", "p_fresh", "p_stale", "p_unaided", "q")
"""What can be varied: the rates of ``Behaviour``, the unaided rate first and later alike, and q of the retry law."""


def varied(model: ProbabilisticModel, plan: Plan, values: Mapping[str, float]) -> ProbabilisticModel:
    """Return the model with parameters set, "p_apply" in every class, "governed.p_apply" in one.

    Raises
    ------
    UnknownNameError
        A class or a parameter of another name.
    """
    classes = {name: model.behaviour(name, plan.shape_of(name)) for name in plan.classes}
    for name, value in values.items():
        constraint, _, parameter = name.rpartition(".")
        if parameter not in PARAMETERS:
            raise UnknownNameError("parameter", parameter, PARAMETERS)
        if constraint and constraint not in classes:
            raise UnknownNameError("class", constraint, classes)
        for each in [constraint] if constraint else list(classes):
            classes[each] = _with(classes[each], parameter, value)
    return replace(model, classes={**model.classes, **classes})


def _with(rates: Behaviour, parameter: str, value: float) -> Behaviour:
    if parameter == "q":
        law = RetryLaw.geometric(value)
        return replace(rates, retry=law, retry_injected=law)
    if parameter == "p_unaided":
        return replace(rates, p_unaided_first=value, p_unaided_repeat=value)
    rate: dict[str, Any] = {parameter: value}
    return replace(rates, **rate)


def sensitivity(
    plan: Plan,
    *,
    model: ProbabilisticModel,
    arm: Arm,
    metric: str,
    ranges: Mapping[str, tuple[float, float]],
    points: int = 64,
    seed: int = 1,
) -> Sensitivity:
    """Share the variance of a metric out among the model's parameters (Sobol), from exact values.

    Parameters
    ----------
    plan : Plan
    model : ProbabilisticModel
        Gives what is not varied.
    arm : Arm
    metric : str
    ranges : mapping of parameter to (low, high)
        See ``varied`` for the names. Each parameter is uniform over its range, independently.
    points : int
        Base points, a power of 2; the metric is worked out at points * (parameters + 2).
    seed : int

    Raises
    ------
    UnknownNameError, InputError, NotTabularError, StateSpaceError
    """
    for name, (low, high) in ranges.items():
        if not 0.0 <= low < high <= 1.0:
            raise InputError(f"{name} varies between two probabilities, low below high", value=[low, high])

    def response(parameters: Mapping[str, npt.NDArray[np.float64]]) -> list[float]:
        found = []
        for values in zip(*parameters.values(), strict=True):
            planner = varied(model, plan, dict(zip(parameters, map(float, values), strict=True)))
            known = solve(plan, model=planner, arms=[arm])[arm.name].metrics
            if metric not in known:
                raise UnknownNameError("metric", metric, known)
            value = known[metric].value
            if value is None:
                raise InputError(f"{metric} is not defined all over these ranges", value=dict(ranges))
            found.append(value)
        return found

    return sobol(response, ranges, n=points, seed=seed)


# The savings equation ----------------------------------------------------------------------------------------------


def repeated(plan: Plan) -> npt.NDArray[np.bool_]:
    """Return which episodes have a key that an earlier one had."""
    keyed = np.array([task.slot is not None for task in plan.episodes])
    again: npt.NDArray[np.bool_] = keyed & ~np.array(plan.first_occurrence)
    return again


def episode_means(plan: Plan, law: Exact) -> EpisodeMeans:
    """Return what the savings equation needs, from an exact law."""
    by = law.by_episode
    return EpisodeMeans(
        classes=plan.classes,
        class_index=plan.class_index,
        repeated=repeated(plan),
        baseline_retries=by("baseline_attempts") - 1.0,
        baseline_first_try=by("baseline_first_try"),
        retries=by("attempts") - 1.0,
        addressable=by("addressable"),
        entries=by("injected_entries"),
        conflict_attempts=by("conflict_attempts"),
        probability=np.array([by(kind) for kind in KINDS]),
        first_try=np.array([by(f"{kind}_first_try") for kind in KINDS]),
        kind_retries=np.array([by(f"{kind}_attempts") - by(kind) for kind in KINDS]),
    )


def episode_sums(plan: Plan) -> EpisodeSums:
    """Return an accumulator of the same from simulated streams; see ``add_block``."""
    return EpisodeSums(plan.classes, plan.class_index, repeated(plan))


def add_block(sums: EpisodeSums, block: Block, baseline: Block) -> None:
    """Add a block, and the block of the same streams without memory."""
    injected = block.episode("injected")
    sums.add(
        first=block.first,
        attempts=block.episode("attempts"),
        first_try=block.first_try,
        kinds={kind: injected == Injected[kind.upper()] for kind in KINDS},
        addressable=block.episode("addressable"),
        entries=block.episode("injected_entries"),
        baseline_attempts=baseline.episode("attempts"),
        baseline_first_try=baseline.first_try,
    )
