"""The exact engine against the engine on arrays: shipped scenarios and 300 random ones, at 100,000 streams.

That engine is the SimPy engine stream by stream, as ``test_vector.py`` shows. Every metric's estimate is compared with
its exact value in units of its exact standard error (for a ratio of means, by the delta method on exact moments). Seeds
are fixed, so the outcome is too. Drawn afresh, |z| <= 5 fails one normal comparison in 1.7 million: with some 40,000
that vary, the file would fail by chance once in 40 runs at the most. What varies so rarely that it is far from normal,
an event with fewer than 5 expected occurrences, may deviate by 12 of them, which a Poisson law exceeds with probability
5 in a million at 5 expected, less below.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from invsim.client.arms import Arm, arm_names, evict_tables, get_arm
from invsim.client.planners import Behaviour, ProbabilisticModel, RetryLaw, load_model
from invsim.experiment import ArmResult, layout, run
from invsim.sim.exact import Exact, distribution
from invsim.sim.facts import Facts, tabulate
from invsim.sim.generate import random_scenario
from invsim.sim.plan import Plan, compile_plan
from invsim.sim.scenario import SHIPPED, load_scenario
from invsim.sim.vector import simulate_block
from invsim.stats.costs import TokenCosts
from invsim.stats.metrics import first_try_by_class, metrics
from invsim.stats.moments import UNDEFINED, Estimate, Expectations, Weights

STREAMS, SCENARIOS, LIMIT = 100_000, 300, 5.0
NOISY = ProbabilisticModel(
    "noisy",
    Behaviour(0.8, 0.4, 0.7, 0.1, 0.3, RetryLaw.geometric(0.6), RetryLaw.geometric(0.5)),
    conflict=0.2,
)
MODELS = (load_model("claude-sonnet-4-6"), load_model("deepseek-v4-flash"), load_model("gemini-3.5-flash"), NOISY)


class PerStream(Expectations):
    """Exact values, each with the standard deviation that one stream would have: ``Means`` for a single stream."""

    def __init__(self, law: Exact) -> None:
        super().__init__(law.names, law.mean)
        self.law = law

    def mean(self, weights: Weights, *, scale: float = 1.0) -> Estimate:
        value = super().mean(weights, scale=scale).value
        return Estimate(value, math.sqrt(self.law.variance(weights)) / scale, 1)

    def ratio(self, over: Weights, under: Weights) -> Estimate:
        value, below = super().ratio(over, under).value, self.law.expected(under)
        if value is None:
            return UNDEFINED
        off = {name: over.get(name, 0.0) - value * under.get(name, 0.0) for name in {*over, *under}}
        return Estimate(value, math.sqrt(self.law.variance(off)) / abs(below), 1)


def precision(law: Exact) -> Estimate:
    pmf = law.pmfs["evictions"]
    mean, above = pmf.mean_reciprocal, pmf.values > 0
    if mean is None:
        return UNDEFINED
    mass = float(pmf.probabilities[above].sum())
    spread = float(pmf.probabilities[above] @ (1 / pmf.values[above] - mean) ** 2) / mass
    return Estimate(mean, math.sqrt(spread / mass), 1)


def compared(
    plan: Plan, facts: Facts, arm: Arm, model: ProbabilisticModel, result: ArmResult, streams: int
) -> dict[str, tuple[float, float]]:
    """Return (deviation in standard errors, standard error) of every metric, and of every count's variance ratio."""
    law = distribution(facts, arm=arm, model=model, pmf=["evictions"])
    shape = layout(plan, model, arm, TokenCosts(conflict=model.conflict_cost))
    known = metrics(shape, PerStream(law), precision(law))
    estimated = dict(result.metrics)
    known |= {f"class {name}": each for name, each in first_try_by_class(shape, PerStream(law)).items()}
    estimated |= {f"class {name}": each for name, each in result.first_try_by_class.items()}
    found = {}
    for name, exact in known.items():
        value = estimated[name].value
        if exact.value is None:
            assert value is None, (plan.name, arm.name, name, value)
        elif value is not None:
            se = (exact.se or 0.0) / math.sqrt(streams)
            off = value - exact.value
            found[name] = (off / se if se > 1e-9 else math.inf if abs(off) > 1e-8 else 0.0, se)
    return found


def rare(deviation: float, se: float, streams: int) -> bool:
    """Whether a deviation is what a few occurrences of a rare event make of it.

    A 0-1 count of rate r has se = sqrt(r / n), so n se^2 = r and n^2 se^2 = n r is the expected number of occurrences.
    """
    return se * streams < math.sqrt(5) and abs(deviation) * se * streams <= 12


def check(plan: Plan, model: ProbabilisticModel, *, streams: int, seed: int) -> list[float]:
    facts, arms = tabulate(plan), [get_arm(name) for name in arm_names()[:9]]
    result = run(plan, model=model, arms=arms, replications=streams, seed=seed, engine="vector")
    deviations = []
    for arm in arms:
        found = compared(plan, facts, arm, model, result[arm.name], streams)
        for metric, (z, se) in found.items():
            if se * streams >= math.sqrt(5):
                deviations.append(z)
            else:
                assert rare(z, se, streams) or abs(z) <= LIMIT, (plan.name, model.name, arm.name, metric, z)
    return deviations


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
@pytest.mark.parametrize("scenario", SHIPPED)
def test_every_metric_on_the_shipped_scenarios(scenario: str, model: ProbabilisticModel, ledger) -> None:
    deviations = check(compile_plan(load_scenario(scenario)), model, streams=STREAMS, seed=2026)
    if deviations:
        ledger.z("exact means, shipped scenarios", deviations, limit=LIMIT)


def test_another_model_is_caught(ledger) -> None:
    plan, arm = compile_plan(load_scenario("payments")), get_arm("A1")
    result = run(plan, model=NOISY, arms=[arm], replications=STREAMS, seed=2026, engine="vector")
    other = replace(NOISY, default=replace(NOISY.default, p_fresh=0.41))
    found = compared(plan, tabulate(plan), arm, other, result["A1"], STREAMS)
    worst = max(abs(z) for z, _ in found.values())
    ledger.check("negative control: |z| against a model whose p_fresh is off by .01", worst, low=LIMIT)


def test_a_deliberately_wrong_arm_is_caught(ledger) -> None:
    """A2D that clears whole tables, as A2 does: by the event engine against the exact and the array engine's A2D."""
    plan, arm, streams = compile_plan(load_scenario("payments")), get_arm("A2D"), 2_000
    wrong = replace(arm, on_tables=evict_tables)
    result = run(plan, model=NOISY, arms=[wrong], replications=streams, seed=2026, engine="simpy")
    found = compared(plan, tabulate(plan), arm, NOISY, result["A2D"], streams)
    ledger.check("negative control: |z| of a wrong arm", max(abs(z) for z, _ in found.values()), low=LIMIT)
    right = run(plan, model=NOISY, arms=[arm], replications=streams, seed=2026, engine="vector")
    alike = [name for name, each in right["A2D"].metrics.items() if each == result["A2D"].metrics[name]]
    ledger.check("negative control: metrics in which a wrong arm differs", len(found) - len(alike), low=10)


def noisy(seed: int) -> ProbabilisticModel:
    """A model with every rate strictly inside (0, 1), another one per class."""
    random = np.random.default_rng(seed)

    def behaviour() -> Behaviour:
        q, injected = random.uniform(0.3, 0.9, size=2)
        rates = random.uniform(0.1, 0.9, size=5)
        return Behaviour(*rates.tolist(), RetryLaw.geometric(q), RetryLaw.geometric(injected))

    return ProbabilisticModel(f"noisy-{seed}", behaviour(), {"funding": behaviour(), "governed": behaviour()})


def plans(seeds: range) -> list[tuple[int, Plan]]:
    return [(seed, compile_plan(random_scenario(seed, between=True, events=4, episodes=12))) for seed in seeds]


def test_every_metric_on_random_scenarios(ledger) -> None:
    deviations = []
    for seed, plan in plans(range(SCENARIOS)):
        deviations += check(plan, noisy(seed), streams=STREAMS, seed=seed)
    squares = np.square(deviations)
    # Were the exact standard errors wrong, the mean square would not be 1. Metrics and arms of a stream are correlated.
    ledger.z("exact means, random scenarios", deviations, limit=LIMIT)
    ledger.check("exact means, random scenarios: metrics compared", len(squares), low=20_000)
    ledger.check("exact means, random scenarios: mean squared z", squares.mean(), low=0.8, high=1.25)


def test_variances_on_random_scenarios(ledger) -> None:
    """Sample variance / exact variance of seven counts, per scenario and arm; pooled, it is 1 within 3%."""
    ratios = []
    for seed, plan in plans(range(SCENARIOS, SCENARIOS + 30)):
        facts, model = tabulate(plan), noisy(seed)
        for name in arm_names()[:9]:
            block = simulate_block(facts, arm=get_arm(name), model=model, seed=seed, first=0, count=2_000)
            law = distribution(facts, arm=get_arm(name), model=model)
            sampled = {
                "attempts": block.episode("attempts").sum(axis=1),
                "first_try": block.first_try.sum(axis=1),
                "completed": block.episode("completed").sum(axis=1),
                "injected_entries": block.episode("injected_entries").sum(axis=1),
                "evictions": block.episode("evicted").sum(axis=1),
                "restamped_entries": block.episode("restamped").sum(axis=1),
                "required_by_table": block.stream("required_by_table"),
            }
            for count, values in sampled.items():
                variance = law.variance(count)
                if variance < 1e-12:
                    assert np.ptp(values) == 0, (plan.name, name, count)
                elif variance > 0.05:
                    ratios.append(values.var(ddof=1) / variance)
    ledger.check("exact variances: counts compared", len(ratios), low=800)
    ledger.check("exact variances: mean ratio of the sample's to them", np.mean(ratios), low=0.97, high=1.03)
    ledger.check("exact variances: smallest ratio", np.min(ratios), low=0.55)
    ledger.check("exact variances: largest ratio", np.max(ratios), high=1.8)
