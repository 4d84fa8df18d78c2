"""The four ways to a number beside each other, and beside the bare drawing of the uniforms, on the payments stream.

Rates are streams per second with everything a run does, estimates included; the exact engine, which has no streams, is
timed per arm. Medians of interleaved rounds in one process, so that what else the machine does hits all alike.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter

import handwritten

from invsim.client.arms import arm_names, get_arm
from invsim.client.planners.models import PUBLISHED, load_model
from invsim.client.planners.probabilistic import ProbabilisticModel
from invsim.experiment import VECTOR_DRAWS, run
from invsim.rng import uniforms
from invsim.sim.exact import distribution
from invsim.sim.facts import tabulate
from invsim.sim.plan import Plan
from invsim.sim.vector import simulate_block

ARMS = ("A0", "A1", "A2D", "A2DC")
SCRIPT_STREAMS, STREAMS = 1_000, 400_000
FEW, MANY = 100_000, 10_000_000
ROUNDS, SEED = 5, 2026
RUN = """
import sys
from invsim.client.arms import get_arm
from invsim.client.planners import load_model
from invsim.experiment import run
from invsim.sim.plan import compile_plan
from invsim.sim.scenario import load_scenario
plan = compile_plan(load_scenario("payments"))
run(plan, model=load_model("gpt-5.4-mini"), arms=[get_arm("A2D")], replications=int(sys.argv[1]), engine="vector")
"""

Figures = dict[str, float]


def measure(
    plan: Plan,
    model: ProbabilisticModel,
    by_task: Mapping[str, handwritten.Rates],
    count: Callable[..., handwritten.Counts],
    peak: Callable[[list[str]], float],
) -> tuple[Figures, Figures]:
    """Print the table and return figures and ratios.

    Parameters
    ----------
    plan : Plan
    model : ProbabilisticModel
    by_task : mapping of task to Rates
        The same model, for the hand-written script.
    count : callable
        Reduces a block to the script's counts, to assert that both see the same events.
    peak : callable
        Peak memory of a command, in MiB.
    """
    facts = tabulate(plan)
    for arm in ("A0", "A1", "A2", "A2D"):
        block = simulate_block(facts, arm=get_arm(arm), model=model, seed=SEED, first=0, count=SCRIPT_STREAMS)
        assert count(block) == handwritten.simulate(arm, by_task, seed=SEED, first=0, count=SCRIPT_STREAMS)
    rates = _rates(plan, model, by_task)
    print(f"\nThe engines on payments (medians of {ROUNDS} interleaved rounds):")
    print(f"  {'':<14}{'streams/s':>12}{'of script':>12}{'of draws':>10}")
    for name, rate in rates.items():
        print(f"  {name:<14}{rate:>12,.0f}{rate / rates['script']:>11,.1f}x{rate / rates['draws']:>10.1%}")
    figures = {f"{name.replace(' ', '_')}_streams_per_s": rate for name, rate in rates.items()}
    ratios = {
        "vector_over_handwritten": rates["vector A2D"] / rates["script"],
        "vector_share_of_draws": rates["vector A2D"] / rates["draws"],
    }
    exact = _exact(plan, model)
    slowest, random = 1e3 * exact["exact_arm_seconds"], 1e3 * exact["exact_arm_all_random_seconds"]
    print(f"  exact, one arm: {slowest:.1f} ms ({PUBLISHED[-1]}), {random:.1f} ms where every slot is random")
    grid, tables = exact["exact_grid_seconds"], 1e3 * exact["tabulate_seconds"]
    print(
        f"  exact, {len(PUBLISHED)} models x {len(arm_names())} arms: {grid:.2f} s; tabulating the plan {tables:.1f} ms"
    )
    peaks = {number: peak([sys.executable, "-c", RUN, str(number)]) for number in (FEW, MANY)}
    for number, value in peaks.items():
        print(f"  peak memory of {number:>10,} streams by arrays, A2D: {value:.1f} MiB")
    figures |= exact | {f"vector_peak_mib_{number}": value for number, value in peaks.items()}
    return figures, ratios | {"vector_peak_growth": peaks[MANY] / peaks[FEW]}


def _rates(plan: Plan, model: ProbabilisticModel, by_task: Mapping[str, handwritten.Rates]) -> Figures:
    chunk = VECTOR_DRAWS // plan.slots

    def draw() -> None:
        for first in range(0, STREAMS, chunk):
            uniforms(SEED, first=first, count=min(chunk, STREAMS - first), slots=plan.slots)

    def through(engine: str, arm: str, streams: int) -> Callable[[], object]:
        return lambda: run(plan, model=model, arms=[get_arm(arm)], replications=streams, seed=SEED, engine=engine)

    pieces: dict[str, tuple[Callable[[], object], int]] = {
        "script": (
            lambda: handwritten.simulate("A2D", by_task, seed=SEED, first=0, count=SCRIPT_STREAMS),
            SCRIPT_STREAMS,
        ),
        # An arm by events is run beside A0, its baseline: two streams' work.
        "simpy A0": (through("simpy", "A0", SCRIPT_STREAMS), SCRIPT_STREAMS),
        "draws": (draw, STREAMS),
        **{f"vector {arm}": (through("vector", arm, STREAMS), STREAMS) for arm in ARMS},
    }
    taken: dict[str, list[float]] = {name: [] for name in pieces}
    for _ in range(ROUNDS):
        for name, (piece, streams) in pieces.items():
            started = perf_counter()
            piece()
            taken[name].append((perf_counter() - started) / streams)
    return {name: 1 / median(times) for name, times in taken.items()}


def _exact(plan: Plan, model: ProbabilisticModel) -> Figures:
    def timed(work: Callable[[], object], rounds: int = ROUNDS) -> float:
        taken = []
        for _ in range(rounds):
            started = perf_counter()
            work()
            taken.append(perf_counter() - started)
        return median(taken)

    facts, models = tabulate(plan), [load_model(name) for name in PUBLISHED]

    def grid() -> None:
        for each in models:
            for arm in arm_names():
                distribution(facts, arm=get_arm(arm), model=each)

    return {
        "tabulate_seconds": timed(lambda: tabulate(plan)),
        # gemini is the slowest of the published; the benchmark's own model leaves every slot to chance.
        "exact_arm_seconds": timed(lambda: distribution(facts, arm=get_arm("A2D"), model=models[-1])),
        "exact_arm_all_random_seconds": timed(lambda: distribution(facts, arm=get_arm("A2D"), model=model)),
        "exact_grid_seconds": timed(grid, 3),
    }
