"""The engine on arrays beside the hand-written SimPy script, and beside the bare drawing of its numbers.

Rates are streams per second of the payments stream with everything a run does, estimates included: medians of
interleaved rounds of one process. Asserted is only that script and engine count the same events on the same draws.
The last line is one JSON object.
"""

from __future__ import annotations

import json
import subprocess
import sys
from statistics import median
from time import perf_counter

import handwritten
from bench import CLASS, PEAK_OF, PEAK_UNIT, RATES, ROUNDS, SEED, _counts, _model

from invsim.client.arms import get_arm
from invsim.experiment import VECTOR_DRAWS, run
from invsim.rng import uniforms
from invsim.sim.facts import tabulate
from invsim.sim.plan import compile_plan
from invsim.sim.scenario import load_scenario
from invsim.sim.vector import simulate_block

ARMS = ("A0", "A1", "A2D", "A2DC")
SCRIPT_STREAMS, STREAMS = 1_000, 400_000
FEW, MANY = 100_000, 10_000_000
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


def main() -> None:
    """Run everything, print what it found, and last the same as JSON."""
    plan, model = compile_plan(load_scenario("payments")), _model()
    by_task = {name: RATES[CLASS[name]] for name in CLASS}
    facts, chunk = tabulate(plan), VECTOR_DRAWS // plan.slots
    for arm in ("A0", "A1", "A2", "A2D"):
        block = simulate_block(facts, arm=get_arm(arm), model=model, seed=SEED, first=0, count=SCRIPT_STREAMS)
        assert _counts(block) == handwritten.simulate(arm, by_task, seed=SEED, first=0, count=SCRIPT_STREAMS)

    def draw() -> None:
        for first in range(0, STREAMS, chunk):
            uniforms(SEED, first=first, count=min(chunk, STREAMS - first), slots=plan.slots)

    taken: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        started = perf_counter()
        handwritten.simulate("A2D", by_task, seed=SEED, first=0, count=SCRIPT_STREAMS)
        taken.setdefault("script", []).append((perf_counter() - started) / SCRIPT_STREAMS)
        started = perf_counter()
        draw()
        taken.setdefault("draws", []).append((perf_counter() - started) / STREAMS)
        for arm in ARMS:
            started = perf_counter()
            run(plan, model=model, arms=[get_arm(arm)], replications=STREAMS, seed=SEED, engine="vector")
            taken.setdefault(arm, []).append((perf_counter() - started) / STREAMS)
    rates = {name: 1 / median(times) for name, times in taken.items()}
    print(f"{'':<8}{'streams/s':>12}{'of script':>12}{'of draws':>10}")
    for name, rate in rates.items():
        print(f"{name:<8}{rate:>12,.0f}{rate / rates['script']:>11,.1f}x{rate / rates['draws']:>10.1%}")
    peaks = {replications: _peak(replications) for replications in (FEW, MANY)}
    for replications, peak in peaks.items():
        print(f"peak of {replications:>10,} streams, A2D: {peak:.1f} MiB")
    figures = {f"{name}_streams_per_s": round(rate) for name, rate in rates.items()}
    print(json.dumps(figures | {f"peak_mib_{number}": round(peak, 1) for number, peak in peaks.items()}))


def _peak(replications: int) -> float:
    command = [sys.executable, "-c", PEAK_OF, sys.executable, "-c", RUN, str(replications)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(answer.stdout) * PEAK_UNIT / 2**20


if __name__ == "__main__":
    main()
