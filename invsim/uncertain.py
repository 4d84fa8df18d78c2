"""Experiments with a model that was estimated: every metric under many draws of it, which carries its error through."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from invsim.client.arms import Arm
from invsim.client.planners.probabilistic import ProbabilisticModel
from invsim.errors import InputError
from invsim.experiment import ArmResult, RunResult, layout, run
from invsim.sim.exact import expectations
from invsim.sim.exact.chain import StateSpaceError
from invsim.sim.facts import NotTabularError, tabulate
from invsim.sim.plan import Plan
from invsim.stats.costs import TokenCosts
from invsim.stats.metrics import bounds, first_try_by_class, metrics
from invsim.stats.moments import Estimate, Expectations, exactly
from invsim.stats.uncertainty import over_draws

DRAWS = 200
"""Draws of a model; the limits of a 95% interval then rest on five draws either side."""

STREAMS = {"vector": 500, "simpy": 10}
"""Streams per draw and arm where nobody says how many, by what the engine can do in seconds."""

Tick = Callable[[int], None]


@dataclass(frozen=True)
class UncertainRun(RunResult):
    """A run whose every estimate is an ``Uncertain``.

    Parameters
    ----------
    draws : int
        Of the model.
    """

    draws: int = 0

    def to_dict(self) -> dict[str, object]:
        """Return plain data; see ``RunResult`` and ``Uncertain``."""
        head = super().to_dict()
        arms = head.pop("arms")
        return {**head, "draws": self.draws, "arms": arms}


def run_draws(
    plan: Plan,
    *,
    model: ProbabilisticModel,
    arms: Sequence[Arm] | None = None,
    draws: int = DRAWS,
    replications: int | None = None,
    seed: int = 1,
    costs: TokenCosts | None = None,
    engine: str = "auto",
    confidence: float = 0.95,
    tick: Tick | None = None,
) -> UncertainRun:
    """Work out a plan under many draws of a model from its posterior.

    Draw k is ``model.drawn(seed, k)``, and all draws meet the same random numbers in every stream, so that what
    differs between them is the model.

    Parameters
    ----------
    plan : Plan
    model : ProbabilisticModel
        One with ``uncertainty``.
    arms : sequence of Arm, optional
        The scenario's by default.
    draws : int
        1 or more.
    replications : int, optional
        Streams per draw and arm. Without it: exact, or ``STREAMS`` where the exact engine cannot answer.
    seed : int
        Of the draws and of the streams.
    costs : TokenCosts, optional
    engine : str
        As in ``invsim.experiment.run``.
    confidence : float
        Of the intervals.
    tick : callable, optional
        Called with the number of draws done since.

    Raises
    ------
    InputError
        A model without a posterior, a count below 1, and whatever ``run`` refuses.
    NotTabularError, StateSpaceError, UnknownNameError
        See ``run``.
    """
    if not model.uncertainty:
        raise InputError("the model has no posterior to draw from", value=model.name)
    if draws < 1:
        raise InputError("draws must be 1 or more", value=draws)
    if seed < 0:
        raise InputError("seed must be 0 or more", value=seed)
    drawn = [model.drawn(seed, at) for at in range(draws)]
    chosen = tuple(dict.fromkeys(plan.arms if arms is None else arms))
    found = None
    if engine == "exact" or (engine == "auto" and replications is None):
        if replications is not None:
            raise InputError("the exact engine samples no streams to number", value=replications)
        try:
            found = exact_draws(plan, drawn, chosen, costs)
            _report(tick, draws)
        except (NotTabularError, StateSpaceError):
            if engine == "exact":
                raise
    if found is None:
        found = _sampled(plan, drawn, chosen, replications, seed, costs, engine, tick)
    first = found[0]
    return UncertainRun(
        scenario=plan.name,
        model=model.name,
        seed=seed,
        replications=first.replications,
        level=first.level,
        arms=tuple(
            _together([each.arms[at] for each in found], len(plan.episodes), confidence) for at in range(len(chosen))
        ),
        engine=first.engine,
        as_published=False,
        draws=draws,
    )


def exact_draws(
    plan: Plan, models: Sequence[ProbabilisticModel], arms: Sequence[Arm], costs: TokenCosts | None = None
) -> list[RunResult]:
    """Return the exact result of each model; the states of the client are walked once for all of them."""
    expected = expectations(tabulate(plan), arms=arms, models=models)
    results = []
    for at, model in enumerate(models):
        found = []
        for arm in arms:
            law = expected[arm.name]
            shape = layout(plan, model, arm, costs or TokenCosts(conflict=model.conflict_cost))
            means, reciprocal = Expectations(law.names, law.mean[at]), float(law.reciprocal[at])
            precision = exactly(None if math.isnan(reciprocal) else reciprocal)
            found.append(ArmResult(arm.name, metrics(shape, means, precision), first_try_by_class(shape, means)))
        results.append(RunResult(plan.name, model.name, 0, 0, plan.world.level.name, tuple(found), engine="exact"))
    return results


def _sampled(
    plan: Plan,
    models: Sequence[ProbabilisticModel],
    arms: Sequence[Arm],
    replications: int | None,
    seed: int,
    costs: TokenCosts | None,
    engine: str,
    tick: Tick | None,
) -> list[RunResult]:
    results = []
    for model in models:
        streams = replications or STREAMS.get(engine, STREAMS["vector"])
        try:
            results.append(_run(plan, model, arms, streams, seed, costs, "vector" if engine == "auto" else engine))
        except NotTabularError:
            if engine != "auto":
                raise
            engine = "simpy"
            results.append(_run(plan, model, arms, replications or STREAMS[engine], seed, costs, engine))
        _report(tick, 1)
    return results


def _run(
    plan: Plan,
    model: ProbabilisticModel,
    arms: Sequence[Arm],
    streams: int,
    seed: int,
    costs: TokenCosts | None,
    engine: str,
) -> RunResult:
    return run(plan, model=model, arms=arms, replications=streams, seed=seed, costs=costs, engine=engine)


def _together(found: Sequence[ArmResult], episodes: int, confidence: float) -> ArmResult:
    def over(each: Sequence[Estimate], limits: tuple[float, float]) -> Estimate:
        return over_draws(each, confidence=confidence, bounds=limits)

    first = found[0]
    return ArmResult(
        first.arm,
        {name: over([arm.metrics[name] for arm in found], bounds(name, episodes)) for name in first.metrics},
        {name: over([arm.first_try_by_class[name] for arm in found], (0.0, 1.0)) for name in first.first_try_by_class},
    )


def _report(tick: Tick | None, done: int) -> None:
    if tick is not None:
        tick(done)
