"""The engine beside a hand-written SimPy script, a tally beside a bare scan, memory, and start-up: ``make bench``.

Every rate is a median of interleaved rounds of one process. Nothing here passes or fails on a time; what is asserted
is that engine and script count the same events on the same draws. The last line is one JSON object.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from time import perf_counter

import engines
import handwritten
import simpy
import traces
from peak import peak_of

from invsim.client.arms import get_arm
from invsim.client.planners import Action, Behaviour, ComplianceModel, NoCall, ProbabilisticModel, RetryLaw, Situation
from invsim.rng import uniforms
from invsim.sim.engine import simulate_block
from invsim.sim.plan import Plan, compile_plan
from invsim.sim.result import Block
from invsim.sim.scenario import load_scenario
from invsim.world.wire import Request

SEED = 1
STREAMS = 1_000
ROUNDS = 7
STARTS = 5
FEW, MANY = 500, 8_000
ARM = "A2D"
ARMS = ("A0", "A1", "A2", ARM)

RATES = {
    "governed": handwritten.Rates(valid=92 / 108, conflict=0.6, unaided=0.05, retry=0.8),
    "funding": handwritten.Rates(valid=0.95, conflict=0.7, unaided=0.0, retry=0.7),
    "control": handwritten.Rates(valid=0.9, conflict=0.8, unaided=0.3, retry=0.9),
}
CLASS = {"G": "governed", "k1": "funding", "k2": "funding", "k3": "funding", "k4": "funding", "C": "control"}

PROGRAM = str(Path(sys.executable).with_name("invsim"))


def main() -> None:
    """Run every benchmark, print what it found, and last the same as JSON."""
    plan, model = compile_plan(load_scenario("payments")), _model()
    by_task = {name: RATES[CLASS[name]] for name in CLASS}
    _check_counts(plan, model, by_task)
    figures, ratios = _speed(plan, model, by_task)
    engines_part = engines.measure(plan, model, by_task, _counts, peak_of)
    for part in (engines_part, traces.measure(traces.ROWS), _memory(), _starts()):
        figures |= part[0]
        ratios |= part[1]
    rounded = {name: float(f"{value:.4g}") for name, value in figures.items()}
    print(json.dumps({"figures": rounded, "ratios": {name: round(value, 3) for name, value in ratios.items()}}))


def _model() -> ProbabilisticModel:
    classes = {}
    for name, rates in RATES.items():
        law = RetryLaw.geometric(rates.retry)
        classes[name] = Behaviour(
            p_apply=rates.valid,
            p_fresh=rates.conflict,
            p_unaided_first=rates.unaided,
            p_unaided_repeat=rates.unaided,
            retry=law,
            retry_injected=law,
        )
    return ProbabilisticModel("bench", classes=classes)


# The same events ----------------------------------------------------------------------------------------------------


def _check_counts(plan: Plan, model: ProbabilisticModel, by_task: Mapping[str, handwritten.Rates]) -> None:
    print(f"Events of {STREAMS:,} payments streams, engine and hand-written script alike:")
    print("  arm " + " ".join(f"{name:>9}" for name in asdict(handwritten.Counts())))
    for arm in ARMS:
        block = simulate_block(plan, arm=get_arm(arm), model=model, seed=SEED, first=0, count=STREAMS)
        engine = _counts(block)
        script = handwritten.simulate(arm, by_task, seed=SEED, first=0, count=STREAMS)
        assert engine == script, f"{arm}: the engine counts {engine}, the script {script}"
        print(f"  {arm:<3} " + " ".join(f"{count:>9,}" for count in asdict(engine).values()))


def _counts(block: Block) -> handwritten.Counts:
    attempts = block.episode("attempts")
    return handwritten.Counts(
        attempts=int(attempts.sum()),
        retries=int((attempts - 1).sum()),
        first_try=int(block.first_try.sum()),
        completed=int(block.episode("completed").sum()),
        evicted=int(block.episode("evicted").sum()),
        restamped=int(block.episode("restamped").sum()),
    )


# Streams per second, and what they are spent on ---------------------------------------------------------------------


class _Recorder(ComplianceModel):
    """Passes every decision on, and keeps what was asked."""

    def __init__(self, model: ComplianceModel) -> None:
        self.name, self.model = model.name, model
        self.asked: list[tuple[Situation, float]] = []

    def decide(self, situation: Situation, u: float) -> Action | Request | NoCall:
        self.asked.append((replace(situation), u))
        return self.model.decide(situation, u)


def _speed(
    plan: Plan, model: ProbabilisticModel, by_task: Mapping[str, handwritten.Rates]
) -> tuple[dict[str, float], dict[str, float]]:
    arm, recorder = get_arm(ARM), _Recorder(model)
    block = simulate_block(plan, arm=arm, model=recorder, seed=SEED, first=0, count=STREAMS)
    drift, agents = _timeouts(plan, block)

    def engine() -> None:
        simulate_block(plan, arm=arm, model=model, seed=SEED, first=0, count=STREAMS)

    def script() -> None:
        handwritten.simulate(ARM, by_task, seed=SEED, first=0, count=STREAMS)

    def bare() -> None:
        for agent in agents:
            env = simpy.Environment()
            env.process(_wait(env, drift))
            env.process(_wait(env, agent))
            env.run()

    def draw() -> None:
        for row in uniforms(SEED, first=0, count=STREAMS, slots=plan.slots):
            row.tolist()

    def plan_actions() -> None:
        decide = model.decide
        for situation, u in recorder.asked:
            decide(situation, u)

    each = {
        piece.__name__: seconds / STREAMS
        for piece, seconds in _medians([engine, script, bare, draw, plan_actions]).items()
    }
    shared = each["bare"] + each["draw"]
    tables = {
        "engine": [
            ("SimPy alone: same timeouts, empty bodies", each["bare"]),
            ("drawing the uniforms", each["draw"]),
            ("the model's decisions", each["plan_actions"]),
            ("client, server, oracles, records", each["engine"] - shared - each["plan_actions"]),
            ("all", each["engine"]),
        ],
        "hand-written": [
            ("SimPy alone: same timeouts, empty bodies", each["bare"]),
            ("drawing the uniforms", each["draw"]),
            ("decisions, memory, versions", each["script"] - shared),
            ("all", each["script"]),
        ],
    }
    waits = len(drift) + sum(map(len, agents)) / STREAMS
    print(f"\nTime of a payments stream, {ARM}, {waits:.1f} timeouts (medians of {ROUNDS} interleaved rounds):")
    for name, rows in tables.items():
        whole = rows[-1][1]
        print(f"  {name}: {1 / whole:,.0f} streams/s")
        for what, seconds in rows:
            print(f"    {what:<42} {seconds * 1e6:>7.1f} us {seconds / whole:>6.1%}")
    figures = {
        "engine_streams_per_s": 1 / each["engine"],
        "handwritten_streams_per_s": 1 / each["script"],
        "bare_simpy_streams_per_s": 1 / each["bare"],
        "draws_streams_per_s": 1 / each["draw"],
    }
    ratios = {
        "engine_over_handwritten": each["script"] / each["engine"],
        "engine_simpy_share": each["bare"] / each["engine"],
        "engine_draws_share": each["draw"] / each["engine"],
        "engine_decisions_share": each["plan_actions"] / each["engine"],
        "engine_rest_share": tables["engine"][3][1] / each["engine"],
        "handwritten_simpy_share": each["bare"] / each["script"],
    }
    print(f"  engine / hand-written: {ratios['engine_over_handwritten']:.2f}")
    return figures, ratios


def _timeouts(plan: Plan, block: Block) -> tuple[list[int], list[list[int]]]:
    """Return the delays, in half ticks, that the drift process and each stream's agent wait in turn."""
    at = [2 * event.tick - 1 for event in plan.drift]
    drift = [later - earlier for earlier, later in zip([0, *at], at, strict=False)]
    agents = []
    for attempts in block.episode("attempts").tolist():
        delays, start = [0], 2 * plan.episode_ticks
        for made in attempts:
            delays += [2] * (made - 1) + [start - 2 * (made - 1)]
        agents.append(delays[:-1])
    return drift, agents


def _wait(env: simpy.Environment, delays: list[int]) -> handwritten.Process:
    for delay in delays:
        yield env.timeout(delay)


def _medians(pieces: list[Callable[[], None]]) -> dict[Callable[[], None], float]:
    taken: dict[Callable[[], None], list[float]] = {piece: [] for piece in pieces}
    for _ in range(ROUNDS):
        for piece in pieces:
            gc.collect()
            started = perf_counter()
            piece()
            taken[piece].append(perf_counter() - started)
    return {piece: median(times) for piece, times in taken.items()}


# Processes ----------------------------------------------------------------------------------------------------------


def _memory() -> tuple[dict[str, float], dict[str, float]]:
    peaks = {}
    for replications in (FEW, MANY):
        run = [sys.executable, "-m", "invsim", "run", "payments", "--arms", ARM, "--json"]
        peaks[replications] = peak_of([*run, "--replications", str(replications)])
    print(f"\nPeak memory of invsim run payments --arms {ARM} --json:")
    for replications, peak in peaks.items():
        print(f"  {replications:>6,} replications {peak:>7.1f} MiB")
    growth = peaks[MANY] / peaks[FEW]
    print(f"  growth {growth:.3f}")
    return {f"peak_mib_{number}": peak for number, peak in peaks.items()}, {"peak_rss_growth": growth}


def _starts() -> tuple[dict[str, float], dict[str, float]]:
    commands = {
        "python": [sys.executable, "-c", "pass"],
        "help": [PROGRAM, "--help"],
        "run_payments": [PROGRAM, "run", "payments"],
    }
    cold = {}
    for name, command in commands.items():
        with tempfile.TemporaryDirectory() as empty:
            cold[name] = _seconds(command, {"PYTHONPYCACHEPREFIX": empty})
    warm: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(STARTS):
        for name, command in commands.items():
            warm[name].append(_seconds(command))
    print(f"\nStart to end: medians of {STARTS}, and once with no bytecode cached, that of libraries included:")
    labels = {"python": "python -c pass", "help": "invsim --help", "run_payments": "invsim run payments"}
    for name, label in labels.items():
        print(f"  {label:<22} {median(warm[name]):>6.3f} s   cold {cold[name]:>6.3f} s")
    figures = {f"{name}_seconds": median(times) for name, times in warm.items()}
    figures |= {f"{name}_cold_seconds": seconds for name, seconds in cold.items()}
    return figures, {"help_over_python": figures["help_seconds"] / figures["python_seconds"]}


def _seconds(command: list[str], environment: Mapping[str, str] | None = None) -> float:
    started = perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env={**os.environ, **(environment or {})})
    return perf_counter() - started


if __name__ == "__main__":
    main()
