"""What if: what memory saves in composed settings, and where one arm begins to pay more than another.

Every figure is a mean over drift schedules, each with simulated streams of its own; the spread over schedules, which
holds the Monte Carlo error of the streams, is the error beside it. Every arm and every model meets the same schedules
and the same random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from invsim.client.arms import get_arm
from invsim.client.planners.probabilistic import Behaviour, ProbabilisticModel
from invsim.errors import InputError, UnknownNameError
from invsim.experiment import run
from invsim.sim.compose import Setting, compose
from invsim.sim.plan import Plan
from invsim.stats.moments import Estimate
from invsim.world.wire import Level

SCHEDULES = 8
"""Drift schedules averaged over."""

STREAMS = 500
"""Streams simulated per schedule and arm."""

SETTINGS = 8
"""Settings whose plans are kept: a study asks of the same few again and again, and a sweep of many once."""

CLOSE = 1e-3
"""How near a break-even point is near enough."""


@lru_cache(maxsize=SETTINGS)
def schedules(setting: Setting, *, number: int = SCHEDULES, seed: int = 1, level: Level = Level.L6) -> tuple[Plan, ...]:
    """Return plans of one setting, each with an order of tasks and a drift schedule of its own."""
    if number < 1:
        raise InputError("number must be 1 or more", value=number)
    return tuple(compose(setting, seed=seed + at, level=level) for at in range(number))


def outcome(
    setting: Setting,
    *,
    model: ProbabilisticModel,
    arms: Sequence[str] = ("A1", "A2", "A2D"),
    metric: str = "token_saving",
    number: int = SCHEDULES,
    streams: int = STREAMS,
    seed: int = 1,
) -> Mapping[str, Estimate]:
    """Return a metric of each arm: its mean over schedules, with the standard error of that mean.

    Parameters
    ----------
    setting : Setting
    model : ProbabilisticModel
    arms : sequence of str
    metric : str
        Of ``invsim.run``; one that is undefined in a schedule leaves that schedule out.
    number, streams : int
        Schedules, and streams of each.
    seed : int
        Of the first schedule and its streams; the next has the next.

    Raises
    ------
    UnknownNameError
    """
    chosen = [get_arm(name) for name in arms]
    found: dict[str, list[float]] = {name: [] for name in arms}
    for at, plan in enumerate(schedules(setting, number=number, seed=seed)):
        result = run(plan, model=model, arms=chosen, replications=streams, seed=seed + at, engine="vector")
        for each in result.arms:
            if metric not in each.metrics:
                raise UnknownNameError("metric", metric, each.metrics)
            value = each.metrics[metric].value
            if value is not None:
                found[each.arm].append(value)
    return {name: mean_of(values) for name, values in found.items()}


def mean_of(values: Sequence[float]) -> Estimate:
    """Return the mean of values, one a schedule, with its standard error."""
    if not values:
        return Estimate(None, None, 0)
    spread = float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else None
    return Estimate(float(np.mean(values)), spread, len(values))


def planner(
    p_apply: float, *, p_fresh: float = 0.0, p_stale: float | None = None, p_unaided: float = 0.0
) -> ProbabilisticModel:
    """Return a planner of one compliance in every class; without ``p_stale``, a stale fix is as good to it as any."""
    rates = Behaviour(p_apply, p_fresh, p_apply if p_stale is None else p_stale, p_unaided, p_unaided)
    return ProbabilisticModel("planner", rates)


@dataclass(frozen=True)
class BreakEven:
    """Where an arm begins to pay, along one parameter.

    Parameters
    ----------
    at : float or None
        The value of the parameter at which the difference is 0; None where it keeps its sign.
    low, high : float
        The difference at the ends of the range: the arm's metric less the other's.
    """

    at: float | None
    low: float
    high: float

    @property
    def pays(self) -> str:
        """Where the arm pays: "always", "never", "above" or "below" the point."""
        if self.at is None:
            return "always" if self.low > 0 or self.high > 0 else "never"
        return "above" if self.high > self.low else "below"


def break_even(
    setting: Setting,
    *,
    arm: str = "A2D",
    against: str = "A0",
    p_fresh: float = 0.0,
    p_unaided: float = 0.0,
    metric: str = "token_saving",
    number: int = SCHEDULES,
    streams: int = STREAMS,
    seed: int = 1,
) -> BreakEven:
    """Return the compliance p_apply, from 0 to 1, at which an arm pays as much as another.

    Parameters
    ----------
    setting : Setting
    arm, against : str
        "A0" stands for no memory at all.
    p_fresh, p_unaided : float
        See ``Behaviour``; held fixed.
    metric, number, streams, seed
        As in ``outcome``; an undefined metric counts as 0.

    Raises
    ------
    InputError, UnknownNameError
        See ``outcome``.
    """
    from scipy.optimize import brentq

    def difference(p_apply: float) -> float:
        model = planner(p_apply, p_fresh=p_fresh, p_unaided=p_unaided)
        found = outcome(
            setting, model=model, arms=(arm, against), metric=metric, number=number, streams=streams, seed=seed
        )
        return (found[arm].value or 0.0) - (found[against].value or 0.0)

    low, high = difference(0.0), difference(1.0)
    if low * high >= 0:
        return BreakEven(None, low, high)
    return BreakEven(float(brentq(difference, 0.0, 1.0, xtol=CLOSE)), low, high)
