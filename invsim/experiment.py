"""Experiments: scenarios, models and arms in, estimates out.

This is where the simulator and the statistics meet; ``run`` is what the command line calls and what a notebook should.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from invsim.client.arms import A0, Arm
from invsim.client.planners.base import ComplianceModel, Injected
from invsim.errors import InputError, UnknownNameError
from invsim.sim.engine import Connect, simulate_block
from invsim.sim.exact import distribution
from invsim.sim.exact.chain import StateSpaceError
from invsim.sim.exchange import Watcher
from invsim.sim.facts import NotTabularError, tabulate
from invsim.sim.plan import Plan
from invsim.sim.result import Block
from invsim.sim.vector import Outcomes, VectorEngine
from invsim.stats.costs import TokenCosts
from invsim.stats.metrics import STREAM_COUNTS, Counts, Layout, Summary, first_try_by_class, metrics
from invsim.stats.moments import Column, Estimate, Expectations, exactly
from invsim.stats.sequential import Stopping, Target
from invsim.world.server import Server

CHUNK = 500
"""Streams simulated at a time by SimPy: large enough that reducing them is cheap, small enough to hold."""

VECTOR_DRAWS = 1_500_000
"""Draws of the streams that NumPy simulates at a time: long enough arrays to be fast, short enough to stay in cache."""

ENGINES = ("auto", "simpy", "vector", "exact")

DEFAULT_REPLICATIONS = 500
"""Streams per arm where nobody says how many, and the exact engine cannot answer."""

BUDGET = 100_000_000
"""Streams at which a run to a precision gives up."""

FIRST_LOOK = 1000
"""Streams before the first look of a run to a precision."""

LOOKS = 20
"""Looks that a run to a precision takes on the way to the streams it expects to need; it looks on for five more."""

PRECISE = ("first_try_eligible", "validity", "token_saving")
"""Metrics that a run to a precision waits for, unless others are named."""


@dataclass(frozen=True)
class ArmResult:
    """Estimates of one arm: named metrics, the first-try rate of each class, and distributions that were asked for.

    ``pmf`` maps the name of a count to its values and their probabilities.
    """

    arm: str
    metrics: dict[str, Estimate]
    first_try_by_class: dict[str, Estimate]
    pmf: dict[str, dict[float, float]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        """Return plain data."""
        return {
            "arm": self.arm,
            **{name: each.to_dict() for name, each in self.metrics.items()},
            "first_try_by_class": {name: each.to_dict() for name, each in self.first_try_by_class.items()},
            **({"pmf": {name: _law(pmf) for name, pmf in self.pmf.items()}} if self.pmf else {}),
        }


def _law(pmf: Mapping[float, float]) -> list[dict[str, float]]:
    return [{"value": value, "p": p} for value, p in pmf.items()]


@dataclass(frozen=True)
class RunResult:
    """Estimates of one model on one scenario, with all that is needed to run it again.

    ``as_published`` tells that the scenario ran as its manifest has it, so that published figures compare;
    ``stopped`` why a run to a precision ended, "precise" or "budget".
    """

    scenario: str
    model: str
    seed: int
    replications: int
    level: str
    arms: tuple[ArmResult, ...]
    engine: str = "simpy"
    as_published: bool = False
    stopped: str | None = None

    def to_dict(self) -> dict[str, object]:
        """Return plain data: rates as 0..1, undefined as None; "stopped" where the run was to a precision."""
        return {
            "scenario": self.scenario,
            "model": self.model,
            "seed": self.seed,
            "replications": self.replications,
            "engine": self.engine,
            "wire": self.level,
            **({} if self.stopped is None else {"stopped": self.stopped}),
            "arms": [each.to_dict() for each in self.arms],
        }

    def __getitem__(self, arm: str) -> ArmResult:
        for each in self.arms:
            if each.arm == arm:
                return each
        raise UnknownNameError("arm of this run", arm, [each.arm for each in self.arms])


Observer = Callable[[Arm, Block], None]
Watch = Callable[[Arm], Watcher]
Recall = Callable[[Arm, int, int], Block | None]


def run(
    plan: Plan,
    *,
    model: ComplianceModel,
    arms: Sequence[Arm] | None = None,
    replications: int | None = None,
    seed: int = 1,
    costs: TokenCosts | None = None,
    chunk: int | None = None,
    observe: Observer | None = None,
    watch: Watch | None = None,
    engine: str = "auto",
    pmf: Sequence[str] = (),
    precision: float | None = None,
    precise: Sequence[str] = PRECISE,
    budget: int = BUDGET,
    connect: Connect = Server,
    recall: Recall | None = None,
) -> RunResult:
    """Work out a plan under some arms: every metric, exactly or from simulated streams.

    Memory does not grow with ``replications``. Simulated results are the same bit for bit whatever ``chunk`` is, and
    whichever of the two simulating engines runs them.

    Parameters
    ----------
    plan : Plan
    model : ComplianceModel
    arms : sequence of Arm, optional
        The scenario's by default. A0 is worked out in any case, as the baseline of the savings.
    replications : int, optional
        Streams per arm, at least 1.
    seed : int
        0 or more. Arms meet common random numbers.
    costs : TokenCosts, optional
    chunk : int, optional
        Streams held at a time.
    observe : callable, optional
        Called with (arm, block) for every block of a requested arm, to write or to count.
    watch : callable, optional
        Called with each arm; what it returns is told of every attempt of that arm's streams. It needs SimPy.
    engine : str
        "simpy" plays every event on the real server, and any plan, arm and model. "vector" plays whole arrays of
        streams, "exact" samples none; both know drift between episodes, the nine arms and models made of rates.
        "auto" takes what answers fastest: exact where no streams are asked for, else vector, else simpy.
    pmf : sequence of str
        Counts whose distribution is wanted; exact only.
    precision : float, optional
        Go on until the half-width of the 95% interval of every metric in ``precise`` is at most this in every arm,
        and stays so for five more looks; in place of ``replications``.
    precise : sequence of str
    budget : int
        Streams at which to stop in any case.
    connect : callable, optional
        Opens the server that each stream meets, if it is not one in this process; simpy only.
    recall : callable, optional
        Called with (arm, first stream, count) before streams of a requested arm are played; what it returns, if
        anything, stands in for them. Of use with simpy; nobody watches what is recalled.

    Raises
    ------
    InputError
        For a replication count or a chunk below 1, a negative seed, or options that do not go together.
    UnknownNameError
        For an engine or a metric that there is none of.
    NotTabularError, StateSpaceError
        For a plan, an arm or a model that the engine named cannot run.
    """
    for name, value in (("replications", replications), ("chunk", chunk), ("budget", budget)):
        if value is not None and value < 1:
            raise InputError(f"{name} must be 1 or more", value=value)
    if seed < 0:
        raise InputError("seed must be 0 or more", value=seed)
    if engine not in ENGINES:
        raise UnknownNameError("engine", engine, ENGINES)
    if connect is not Server:
        if engine not in {"auto", "simpy"}:
            raise InputError("only the simpy engine plays against a server elsewhere", value=engine)
        engine = "simpy"
    if precision is not None and not precision > 0:
        raise InputError("a precision is a half-width above 0", value=precision)
    if precision is not None and replications is not None:
        raise InputError("a run is to a precision or of a number of replications, not both", value=replications)
    chosen = tuple(dict.fromkeys(plan.arms if arms is None else arms))
    names = [arm.name for arm in chosen]
    if len(set(names)) < len(names):
        raise InputError("two arms have one name, so their results could not be told apart", value=names)
    if watch is not None and engine in {"exact", "vector"}:
        raise InputError(
            "only SimPy plays attempts one by one, so that they can be watched: --engine simpy", value=engine
        )
    engine = "simpy" if watch is not None else engine
    streams_wanted = replications is not None or precision is not None or observe is not None
    if engine == "exact" or (engine == "auto" and not streams_wanted):
        if streams_wanted:
            raise InputError(
                "the exact engine samples no streams: none to number or to write, no error to make smaller"
            )
        try:
            return replace(solve(plan, model=model, arms=chosen, costs=costs, pmf=pmf), seed=seed)
        except (NotTabularError, StateSpaceError):
            if engine == "exact":
                raise
    if pmf:
        raise InputError("a distribution comes from the exact engine: --engine exact", value=list(pmf))
    streams = _Streams(plan, model, chosen, seed, costs, chunk, observe, watch, engine, connect, recall)
    if precision is None:
        streams.extend(replications or DEFAULT_REPLICATIONS)
        return streams.result()
    stopped = _extend_until(streams, Target(absolute=precision), precise, budget)
    return replace(streams.result(), stopped=stopped)


class _Streams:
    """Simulated streams so far: the summaries of the arms, and the engine that adds to them."""

    def __init__(
        self,
        plan: Plan,
        model: ComplianceModel,
        arms: Sequence[Arm],
        seed: int,
        costs: TokenCosts | None,
        chunk: int | None,
        observe: Observer | None,
        watch: Watch | None,
        engine: str,
        connect: Connect,
        recall: Recall | None,
    ) -> None:
        self.plan, self.model, self.arms, self.seed, self.observe = plan, model, arms, seed, observe
        self.connect, self.recall = connect, recall
        self.watchers = {} if watch is None else {arm.name: watch(arm) for arm in arms}
        costs = costs or TokenCosts(conflict=model.conflict_cost)
        self.summaries = {arm.name: Summary(layout(plan, model, arm, costs)) for arm in arms}
        self.vector = None if engine == "simpy" else _vector(plan, model, arms, must=engine == "vector")
        small = self.vector is None or observe is not None  # an observer is handed every count of every episode
        self.chunk = chunk or (CHUNK if small else max(1, VECTOR_DRAWS // plan.slots))
        self.count = 0

    def extend(self, count: int) -> None:
        """Simulate the next ``count`` streams of every arm."""
        first, last = self.count, self.count + count
        for start in range(first, last, self.chunk):
            number = min(self.chunk, last - start)
            if self.vector is None:
                self._by_events(start, number)
            else:
                self._by_arrays(self.vector, start, number)
        self.count = last

    def _by_events(self, first: int, count: int) -> None:
        baseline = self._block(A0, first, count)
        for arm in self.arms:
            block = baseline if arm is A0 else self._block(arm, first, count)
            self.summaries[arm.name].add(counts(block, baseline))
            if self.observe is not None:
                self.observe(arm, block)

    def _block(self, arm: Arm, first: int, count: int) -> Block:
        """Simulate the same streams of an arm as of every other, so that they can be compared."""
        if self.recall is not None and arm in self.arms:
            recalled = self.recall(arm, first, count)
            if recalled is not None:
                return recalled
        watch = self.watchers.get(arm.name) if arm in self.arms else None
        return simulate_block(
            self.plan, arm=arm, model=self.model, seed=self.seed, first=first, count=count, connect=self.connect,
            watch=watch,
        )  # fmt: skip

    def _by_arrays(self, engine: VectorEngine, first: int, count: int) -> None:
        """Reduce a chunk of streams straight to sums; only an observer needs a block."""
        drawn = engine.draw(seed=self.seed, first=first, count=count)
        baseline = engine.attempts_without_memory(drawn)
        for arm in self.arms:
            outcomes = engine.play(arm, drawn)
            add_outcomes(self.summaries[arm.name], outcomes, baseline)
            if self.observe is not None:
                self.observe(arm, outcomes.block())

    def estimates(self, metrics: Sequence[str]) -> dict[str, Estimate]:
        """Return some metrics of every arm, as "arm metric"."""
        found = {}
        for arm, summary in self.summaries.items():
            known = summary.metrics()
            for name in metrics:
                if name not in known:
                    raise UnknownNameError("metric", name, known)
                found[f"{arm} {name}"] = known[name]
        return found

    def result(self) -> RunResult:
        """Return the estimates so far."""
        return RunResult(
            scenario=self.plan.name,
            model=self.model.name,
            seed=self.seed,
            replications=self.count,
            level=self.plan.world.level.name,
            arms=tuple(
                ArmResult(name, summary.metrics(), summary.first_try_by_class())
                for name, summary in self.summaries.items()
            ),
            engine="simpy" if self.vector is None else "vector",
            as_published=self.plan.as_written,
        )


def _extend_until(streams: _Streams, target: Target, metrics: Sequence[str], budget: int) -> str:
    """Simulate until the target is met and stays met, and return why it ended.

    Looks come ever less often as more streams are needed.
    """
    streams.extend(min(FIRST_LOOK, budget))
    rule = Stopping(dict.fromkeys(streams.estimates(metrics), target), budget=budget)
    while True:
        decision = rule.update(streams.estimates(metrics))
        if len(decision.undefined) == len(rule.targets):
            raise InputError("no metric that the run is to wait for is defined in these arms", value=list(metrics))
        if decision.stop or streams.count >= budget:
            return str(decision.reason.value if decision.stop else "budget")
        rule = decision.rule
        ahead = max(FIRST_LOOK, (decision.expected - decision.n) // LOOKS, decision.n // LOOKS)
        streams.extend(min(ahead, budget - streams.count))


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
    pmf: Sequence[str] = (),
) -> RunResult:
    """Return every metric of a plan as it is, without sampling: each with error 0, resting on no stream.

    Parameters
    ----------
    plan : Plan
    model : ComplianceModel
    arms : sequence of Arm, optional
        The scenario's by default.
    costs : TokenCosts, optional
    pmf : sequence of str
        Counts whose distribution is wanted: "retries", "first_try", "evictions", a window's name ...; "tokens" is in
        units of an attempt's base cost.

    Raises
    ------
    NotTabularError, StateSpaceError
        See ``invsim.sim.exact.distribution``.
    """
    facts = tabulate(plan)
    costs = costs or TokenCosts(conflict=model.conflict_cost)
    tokens = costs.weights(
        attempts="attempts",
        entries="injected_entries",
        conflicts="conflict_attempts",
        one="one",
        episodes=len(plan.episodes),
    )
    counted = [name for name in pmf if name != "tokens"]
    results = []
    for arm in plan.arms if arms is None else arms:
        law = distribution(
            facts,
            arm=arm,
            model=model,
            pmf=["evictions", *counted],
            combinations={"tokens": tokens} if "tokens" in pmf else None,
        )
        shape, means = layout(plan, model, arm, costs), Expectations(law.names, law.mean)
        precision = exactly(law.pmfs["evictions"].mean_reciprocal)
        found = {
            name: dict(zip(law.pmfs[name].values.tolist(), law.pmfs[name].probabilities.tolist(), strict=True))
            for name in pmf
        }
        results.append(ArmResult(arm.name, metrics(shape, means, precision), first_try_by_class(shape, means), found))
    return RunResult(
        scenario=plan.name,
        model=model.name,
        seed=0,
        replications=0,
        level=plan.world.level.name,
        arms=tuple(results),
        engine="exact",
        as_published=plan.as_written,
    )


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
