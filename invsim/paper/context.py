"""What every artifact draws on: each published cell simulated once, and solved once, whoever asks for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from invsim.client.arms import Arm, get_arm
from invsim.client.planners.models import load_model
from invsim.client.planners.probabilistic import ProbabilisticModel
from invsim.experiment import ArmResult, RunResult, layout, run
from invsim.sim.exact import Exact, distribution
from invsim.sim.facts import Facts, tabulate
from invsim.sim.plan import Plan, compile_plan
from invsim.sim.scenario import load_scenario
from invsim.sim.vector import VectorEngine
from invsim.stats.costs import TokenCosts
from invsim.stats.metrics import Total, first_try_by_class, metrics
from invsim.stats.moments import Estimate, Expectations, Moments, Weights, exactly

T = TypeVar("T")

SEED, STREAMS = 1, 20_000
"""Seed and streams per cell where nobody says otherwise."""

RUNS = 3
"""Runs, one a seed, that a published cell of the drifted stream pools."""

CHUNK = 10_000
"""Streams held at a time."""

CERTAIN = 1e-5
"""A standard deviation up to this is none: any other outcome is one in thousands of millions."""


@dataclass(frozen=True)
class Measure:
    """A quantity as a run gives it.

    Parameters
    ----------
    simulated : Estimate
        From simulated streams, with its Monte Carlo standard error.
    exact : float or None
        From the exact engine; None where it is undefined.
    sd : float or None
        Standard deviation of the mean of ``runs`` independent runs: how far a publication of that size may be off. 0
        where the mechanics leave nothing to chance.
    runs : int
    """

    simulated: Estimate
    exact: float | None
    sd: float | None
    runs: int = RUNS

    @property
    def value(self) -> float | None:
        """The exact value, or else the simulated one."""
        return self.simulated.value if self.exact is None else self.exact

    @property
    def certain(self) -> bool:
        """Whether nothing is left to chance."""
        return self.sd is not None and self.sd <= CERTAIN


@dataclass
class Context:
    """A computation of the paper, at a seed and a number of streams; everything in it is worked out once.

    Parameters
    ----------
    seed : int
    streams : int
        Simulated streams per cell.
    tell : callable, optional
        Called with a line whenever something long begins.
    """

    seed: int = SEED
    streams: int = STREAMS
    tell: Callable[[str], None] | None = None
    _known: dict[tuple[Any, ...], Any] = field(default_factory=dict, repr=False)

    def once(self, key: tuple[Any, ...], work: Callable[[], T]) -> T:
        """Return what ``work`` returned when this key was first asked for."""
        if key not in self._known:
            self._known[key] = work()
        found: T = self._known[key]
        return found

    def plan(self, scenario: str) -> Plan:
        """Return a shipped scenario, compiled."""
        return self.facts(scenario).plan

    def facts(self, scenario: str) -> Facts:
        """Return a shipped scenario, tabulated."""
        return self.once(("facts", scenario), lambda: tabulate(compile_plan(load_scenario(scenario))))

    def model(self, name: str) -> ProbabilisticModel:
        """Return a shipped model."""
        return self.once(("model", name), lambda: load_model(name))

    def arms(self, scenario: str, model: str) -> tuple[Arm, ...]:
        """Return the arms that a model is shown with: on the drifted stream those that are published."""
        if scenario == "payments" and self.model(model).published_arms:
            return tuple(map(get_arm, self.model(model).published_arms))
        return self.plan(scenario).arms

    def simulated(self, scenario: str, model: str) -> RunResult:
        """Return every metric of every arm from simulated streams."""

        def work() -> RunResult:
            if self.tell is not None:
                self.tell(f"{scenario}, {model}: {self.streams:,} streams an arm")
            return run(
                self.plan(scenario),
                model=self.model(model),
                arms=self.arms(scenario, model),
                engine="vector",
                replications=self.streams,
                seed=self.seed,
            )

        return self.once(("simulated", scenario, model), work)

    def exact(self, scenario: str, model: str, arm: str) -> ArmResult:
        """Return every metric of an arm as it is, without sampling."""

        def work() -> ArmResult:
            law, chosen, planner = self.law(scenario, model, arm), get_arm(arm), self.model(model)
            shape = layout(self.plan(scenario), planner, chosen, TokenCosts(conflict=planner.conflict_cost))
            means = Expectations(law.names, law.mean)
            found = metrics(shape, means, exactly(law.pmfs["evictions"].mean_reciprocal))
            return ArmResult(arm, found, first_try_by_class(shape, means))

        return self.once(("exact", scenario, model, arm), work)

    def law(self, scenario: str, model: str, arm: str) -> Exact:
        """Return the joint law of an arm's counts: means and covariances, and the distribution of its evictions."""
        return self.once(
            ("law", scenario, model, arm),
            lambda: distribution(self.facts(scenario), arm=get_arm(arm), model=self.model(model), pmf=["evictions"]),
        )

    def totals(self, scenario: str, model: str) -> Moments:
        """Return the moments of every arm's counts over the same streams, named "arm count"; 1 is called "one".

        The counts are those of ``stats.metrics.Layout.totals``, and "completed:class".
        """
        return self.once(("totals", scenario, model), lambda: self._totals(scenario, model))

    def _totals(self, scenario: str, model: str) -> Moments:
        plan, engine = self.plan(scenario), VectorEngine(self.facts(scenario), self.model(model))
        arms, wanted = self.arms(scenario, model), _counted(plan)
        moments = Moments(["one", *(f"{arm.name} {name}" for arm in arms for name in wanted)])
        for first in range(0, self.streams, CHUNK):
            count = min(CHUNK, self.streams - first)
            drawn = engine.draw(seed=self.seed, first=first, count=count)
            columns = {
                f"{arm.name} {name}": outcomes.total(*each)
                for arm in arms
                for outcomes in [engine.play(arm, drawn)]
                for name, each in wanted.items()
            }
            moments.add_columns({"one": 1, **columns}, count)
        return moments

    def measure(self, scenario: str, model: str, arm: str, metric: str, *, runs: int = RUNS) -> Measure:
        """Return a metric of an arm, or the first-try rate of a class, with how far ``runs`` runs may be off."""
        simulated = _metric(self.simulated(scenario, model)[arm], metric)
        exact = _metric(self.exact(scenario, model, arm), metric).value
        spread = self._variance(scenario, model, arm, metric)
        if spread is None and simulated.se is not None:
            spread = simulated.se**2 * simulated.n
        return Measure(simulated, exact, None if spread is None else math.sqrt(spread / runs), runs)

    def _variance(self, scenario: str, model: str, arm: str, metric: str) -> float | None:
        """Return a metric's variance from run to run, exactly; None where only simulated streams tell."""
        law, plan = self.law(scenario, model, arm), self.plan(scenario)
        if metric in (linear := linear_metrics(plan)):
            weights, scale = linear[metric]
            return law.variance(weights) / scale**2
        if metric == "token_saving":
            # The runs of an arm and those without memory are different runs.
            baseline, tokens = self.law(scenario, model, "A0"), self.tokens(scenario, model)
            spent, base = law.expected(tokens), baseline.expected(tokens)
            if arm == "A0":
                return 0.0
            return (law.variance(tokens) + (spent / base) ** 2 * baseline.variance(tokens)) / base**2
        if metric == "eviction_precision":
            pmf = law.pmfs["evictions"]
            some = [
                (1 / value, p)
                for value, p in zip(pmf.values.tolist(), pmf.probabilities.tolist(), strict=True)
                if value
            ]
            mass = math.fsum(p for _, p in some)
            mean = math.fsum(value * p for value, p in some) / mass if mass else 0.0
            return math.fsum(p * (value - mean) ** 2 for value, p in some) / mass if mass else None
        return None

    def tokens(self, scenario: str, model: str) -> Weights:
        """Return the tokens of a stream as a combination of its counts, in units of an attempt's base cost."""
        costs = TokenCosts(conflict=self.model(model).conflict_cost)
        return costs.weights(
            attempts="attempts", entries="injected_entries", conflicts="conflict_attempts", one="one",
            episodes=len(self.plan(scenario).episodes),
        )  # fmt: skip

    def gain(self, scenario: str, model: str, arm: str, over: str, metric: str, *, runs: int = RUNS) -> Measure:
        """Return a metric's rise from one arm to another; they meet the same streams here, and did not in print."""
        low, high = (self.measure(scenario, model, name, metric, runs=runs) for name in (over, arm))
        exact = None if low.exact is None or high.exact is None else high.exact - low.exact
        sd = None if low.sd is None or high.sd is None else math.hypot(low.sd, high.sd)
        return Measure(self._paired(scenario, model, arm, over, metric), exact, sd, runs)

    def _paired(self, scenario: str, model: str, arm: str, over: str, metric: str) -> Estimate:
        moments = self.totals(scenario, model)
        if metric == "token_saving":
            tokens = self.tokens(scenario, model)
            return moments.ratio(_difference(tokens, over, arm), _of(tokens, "A0"))
        weights, scale = linear_metrics(self.plan(scenario))[metric]
        return moments.mean(_difference(weights, arm, over), scale=scale)


def linear_metrics(plan: Plan) -> dict[str, tuple[Weights, float]]:
    """Return the metrics that are a combination of counts, divided by a number: both, by the metric's name."""
    episodes = float(len(plan.episodes))
    sizes = {name: float((plan.class_index == at).sum()) for at, name in enumerate(plan.classes)}
    counts = ("evictions", "restamped_entries", "restamp_operations", "first_try", "attempts", "contract_failures")
    return {
        **(
            {"first_try_eligible": ({"eligible_first_try": 1.0}, float(plan.eligible.sum()))}
            if plan.eligible.any()
            else {}
        ),
        **{each.name: ({f"window:{each.name}": 1.0}, float(each.mask.sum())) for each in plan.windows},
        **{name: ({f"first_try:{name}": 1.0}, size) for name, size in sizes.items()},
        **{name: ({name: 1.0}, 1.0) for name in counts},
        "retries": ({"attempts": 1.0, "one": -episodes}, 1.0),
        "exhausted": ({"one": episodes, "completed": -1.0}, 1.0),
    }


def _counted(plan: Plan) -> dict[str, Total]:
    """Return what ``Context.totals`` counts of every arm, by name."""
    every = plan.class_index >= 0
    by_class = {name: plan.class_index == at for at, name in enumerate(plan.classes)}
    return {
        **{
            name: Total(name, every)
            for name in ("attempts", "injected_entries", "conflict_attempts", "completed", "first_try")
        },
        "eligible_first_try": Total("first_try", plan.eligible),
        **{f"first_try:{name}": Total("first_try", mask) for name, mask in by_class.items()},
        **{f"completed:{name}": Total("completed", mask) for name, mask in by_class.items()},
        **{f"window:{each.name}": Total("first_try", each.mask) for each in plan.windows},
    }


def _metric(found: ArmResult, metric: str) -> Estimate:
    return found.metrics[metric] if metric in found.metrics else found.first_try_by_class[metric]


def _of(weights: Weights, arm: str) -> dict[str, float]:
    return {name if name == "one" else f"{arm} {name}": weight for name, weight in weights.items()}


def _difference(weights: Mapping[str, float], more: str, less: str) -> dict[str, float]:
    """Return a combination of one arm's counts, less the same of another's."""
    found = _of({name: weight for name, weight in weights.items() if name != "one"}, more)
    for name, weight in weights.items():
        if name != "one":
            found[f"{less} {name}"] = found.get(f"{less} {name}", 0.0) - weight
    return found
