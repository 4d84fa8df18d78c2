"""Experiments: scenarios, models and arms in, estimates out.

This is where the simulator and the statistics meet; ``run`` is what the command line calls and what a notebook should.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from invsim.client.arms import A0, Arm
from invsim.client.planners.base import ComplianceModel, Injected
from invsim.errors import InputError, UnknownNameError
from invsim.sim.engine import simulate_block
from invsim.sim.exact import Exact, distribution
from invsim.sim.facts import NotTabularError, tabulate
from invsim.sim.plan import Plan
from invsim.sim.result import Block
from invsim.sim.vector import Outcomes, VectorEngine
from invsim.stats.costs import TokenCosts
from invsim.stats.episodes import EpisodeSums
from invsim.stats.metrics import STREAM_COUNTS, Counts, Layout, Summary, first_try_by_class, metrics
from invsim.stats.moments import Column, Estimate, Expectations, exactly
from invsim.stats.savings import KINDS, EpisodeMeans

CHUNK = 500
"""Streams simulated at a time by SimPy: large enough that reducing them is cheap, small enough to hold."""

VECTOR_DRAWS = 1_500_000
"""Draws of the streams that NumPy simulates at a time: long enough arrays to be fast, short enough to stay in cache."""

ENGINES = ("auto", "simpy", "vector")


@dataclass(frozen=True)
class ArmResult:
    """Estimates of one arm: named metrics, and the first-try rate of each class."""

    arm: str
    metrics: dict[str, Estimate]
    first_try_by_class: dict[str, Estimate]

    def to_dict(self) -> dict[str, object]:
        """Return plain data."""
        return {
            "arm": self.arm,
            **{name: each.to_dict() for name, each in self.metrics.items()},
            "first_try_by_class": {name: each.to_dict() for name, each in self.first_try_by_class.items()},
        }


@dataclass(frozen=True)
class RunResult:
    """Estimates of one model on one scenario, with all that is needed to run it again.

    ``as_published`` tells that the scenario ran as its manifest has it, so that published figures compare.
    """

    scenario: str
    model: str
    seed: int
    replications: int
    level: str
    arms: tuple[ArmResult, ...]
    engine: str = "simpy"
    as_published: bool = False

    def to_dict(self) -> dict[str, object]:
        """Return plain data: rates as 0..1, undefined as None."""
        return {
            "scenario": self.scenario,
            "model": self.model,
            "seed": self.seed,
            "replications": self.replications,
            "engine": self.engine,
            "wire": self.level,
            "arms": [each.to_dict() for each in self.arms],
        }

    def __getitem__(self, arm: str) -> ArmResult:
        for each in self.arms:
            if each.arm == arm:
                return each
        raise UnknownNameError("arm of this run", arm, [each.arm for each in self.arms])


Observer = Callable[[Arm, Block], None]


def run(
    plan: Plan,
    *,
    model: ComplianceModel,
    arms: Sequence[Arm] | None = None,
    replications: int = 500,
    seed: int = 1,
    costs: TokenCosts | None = None,
    chunk: int | None = None,
    observe: Observer | None = None,
    engine: str = "simpy",
) -> RunResult:
    """Simulate a plan under some arms and estimate every metric.

    Memory does not grow with ``replications``. The result is the same bit for bit whatever ``chunk`` is.

    Parameters
    ----------
    plan : Plan
    model : ComplianceModel
    arms : sequence of Arm, optional
        The scenario's by default. A0 is simulated in any case, as the baseline of the savings.
    replications : int
        Streams per arm, at least 1.
    seed : int
        0 or more. Arms meet common random numbers.
    costs : TokenCosts, optional
    chunk : int, optional
        Streams held at a time.
    observe : callable, optional
        Called with (arm, block) for every block of a requested arm, to write or to count.
    engine : str
        "simpy", "vector", or "auto": vector wherever it can run the plan, the arms and the model. Both give the same
        numbers.

    Raises
    ------
    InputError
        For a replication count or a chunk below 1, or a negative seed.
    UnknownNameError
        For an engine that there is none of.
    NotTabularError
        For a plan, an arm or a model that the vector engine was told to run and cannot.
    """
    if replications < 1:
        raise InputError("replications must be 1 or more", value=replications)
    if seed < 0:
        raise InputError("seed must be 0 or more", value=seed)
    if chunk is not None and chunk < 1:
        raise InputError("chunk must be 1 or more", value=chunk)
    if engine not in ENGINES:
        raise UnknownNameError("engine", engine, ENGINES)
    chosen = tuple(dict.fromkeys(plan.arms if arms is None else arms))
    names = [arm.name for arm in chosen]
    if len(set(names)) < len(names):
        raise InputError("two arms have one name, so their results could not be told apart", value=names)
    costs = costs or TokenCosts(conflict=model.conflict_cost)
    summaries = {arm.name: Summary(layout(plan, model, arm, costs)) for arm in chosen}
    vector = None if engine == "simpy" else _vector(plan, model, chosen, must=engine == "vector")
    if vector is None:
        _run_simpy(plan, model, chosen, replications, seed, chunk or CHUNK, summaries, observe)
    else:
        size = chunk or max(1, VECTOR_DRAWS // plan.slots)
        _run_vector(vector, chosen, replications, seed, size, summaries, observe)
    results = tuple(
        ArmResult(name, summary.metrics(), summary.first_try_by_class()) for name, summary in summaries.items()
    )
    return RunResult(
        plan.name,
        model.name,
        seed,
        replications,
        plan.world.level.name,
        results,
        engine="simpy" if vector is None else "vector",
        as_published=plan.as_written,
    )


def _vector(plan: Plan, model: ComplianceModel, arms: Sequence[Arm], *, must: bool) -> VectorEngine | None:
    """Return the vector engine; None where it cannot run the plan, the model or an arm, and need not."""
    try:
        vector = VectorEngine(tabulate(plan), model)
        vector.prepare(arms)
    except NotTabularError:
        if must:
            raise
        return None
    return vector


def _run_simpy(
    plan: Plan,
    model: ComplianceModel,
    arms: Sequence[Arm],
    replications: int,
    seed: int,
    chunk: int,
    summaries: Mapping[str, Summary],
    observe: Observer | None,
) -> None:
    for baseline, arm, block in _blocks(plan, model, arms, replications, seed, chunk):
        summaries[arm.name].add(counts(block, baseline))
        if observe is not None:
            observe(arm, block)


def _blocks(
    plan: Plan, model: ComplianceModel, arms: Sequence[Arm], replications: int, seed: int, chunk: int
) -> Iterator[tuple[Block, Arm, Block]]:
    """Yield (baseline, arm, block): all arms of a chunk before the next chunk, so that they can be compared."""
    for first in range(0, replications, chunk):
        count = min(chunk, replications - first)
        baseline = simulate_block(plan, arm=A0, model=model, seed=seed, first=first, count=count)
        for arm in arms:
            if arm is A0:
                yield baseline, arm, baseline
            else:
                block = simulate_block(plan, arm=arm, model=model, seed=seed, first=first, count=count)
                yield baseline, arm, block


def _run_vector(
    engine: VectorEngine,
    arms: Sequence[Arm],
    replications: int,
    seed: int,
    chunk: int,
    summaries: Mapping[str, Summary],
    observe: Observer | None,
) -> None:
    """Reduce each chunk of streams straight to sums; only an observer needs a block."""
    for first in range(0, replications, chunk):
        drawn = engine.draw(seed=seed, first=first, count=min(chunk, replications - first))
        baseline = engine.attempts_without_memory(drawn)
        for arm in arms:
            outcomes = engine.play(arm, drawn)
            add_outcomes(summaries[arm.name], outcomes, baseline)
            if observe is not None:
                observe(arm, outcomes.block())


def add_outcomes(summary: Summary, outcomes: Outcomes, baseline_attempts: Column) -> None:
    """Add some streams of the vector engine to a summary, beside the attempts of the same streams without memory."""
    summary.add_columns(
        {name: outcomes.total(*each) for name, each in summary.totals.items()},
        baseline_attempts=baseline_attempts,
        per_stream={name: outcomes.streams.get(name, 0) for name in STREAM_COUNTS},
        alerts=outcomes.alerts,
        streams=outcomes.count,
    )


def solve(
    plan: Plan,
    *,
    model: ComplianceModel,
    arms: Sequence[Arm] | None = None,
    costs: TokenCosts | None = None,
) -> RunResult:
    """Return every metric of a plan as it is, without sampling: each with error 0, resting on no stream.

    Parameters
    ----------
    plan : Plan
    model : ComplianceModel
    arms : sequence of Arm, optional
        The scenario's by default.
    costs : TokenCosts, optional

    Raises
    ------
    NotTabularError, StateSpaceError
        See ``invsim.sim.exact.distribution``.
    """
    facts = tabulate(plan)
    costs = costs or TokenCosts(conflict=model.conflict_cost)
    results = []
    for arm in plan.arms if arms is None else arms:
        law = distribution(facts, arm=arm, model=model, pmf=["evictions"])
        shape, means = layout(plan, model, arm, costs), Expectations(law.names, law.mean)
        precision = exactly(law.pmfs["evictions"].mean_reciprocal)
        results.append(ArmResult(arm.name, metrics(shape, means, precision), first_try_by_class(shape, means)))
    return RunResult(plan.name, model.name, 0, 0, plan.world.level.name, tuple(results), engine="exact")


def layout(plan: Plan, model: ComplianceModel, arm: Arm, costs: TokenCosts) -> Layout:
    """Return which episode of the plan counts for what."""
    return Layout(
        classes=plan.classes,
        class_index=plan.class_index,
        weights={name: model.weight(name, plan.shape_of(name)) for name in plan.classes},
        eligible=plan.eligible,
        windows={window.name: window.mask for window in plan.windows},
        events=len(plan.drift),
        stores=arm.stores,
        costs=costs,
    )


def counts(block: Block, baseline: Block) -> Counts:
    """Return a block's outcomes beside those of the same streams without memory."""
    injected = block.episode("injected")
    return Counts(
        attempts=block.episode("attempts"),
        completed=block.episode("completed"),
        first_try=block.first_try,
        valid_only=injected == Injected.VALID,
        conflict=injected == Injected.CONFLICT,
        addressable=block.episode("addressable"),
        evicted=block.episode("evicted"),
        restamped=block.episode("restamped"),
        injected_entries=block.episode("injected_entries"),
        alerts=block.alerts,
        per_stream={name: block.stream(name) for name in STREAM_COUNTS},
        baseline_attempts=baseline.episode("attempts").sum(axis=1),
    )


# The savings equation --------------------------------------------------------------------------------------------


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
