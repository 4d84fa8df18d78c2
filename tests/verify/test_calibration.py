"""The estimator by parametric bootstrap, and the files of the models whose estimation takes longest.

Integers are simulated from known parameters by the array engine, estimated as the published ones are, and the nominal
95% intervals counted that hold the truth. Their coverage is a proportion of independent tries, so the bounds leave 4
Monte Carlo errors; three runs an arm, as published, make the counts as small as the published ones.
"""

from dataclasses import replace

import numpy as np
import pytest

from invsim.calibrate.estimate import fit
from invsim.calibrate.evidence import Integer, facts_of, integers
from invsim.calibrate.structure import Structure, structure
from invsim.client.arms import get_arm
from invsim.client.planners import load_model
from invsim.client.planners.probabilistic import RetryLaw
from invsim.sim.vector import VectorEngine

RUNS = 3


def narrowed(model: str, truth: dict[str, float]) -> Structure:
    """The structure with the named parameters free, and one retry and no unaided success elsewhere."""
    fixed = {"default.retry": 1.0, "default.p_unaided": 0.0, "funding.p_apply": 1.0, "control.p_apply": 1.0}
    return Structure(
        model,
        tuple(
            each if each.name in truth else replace(each, free=False, value=fixed.get(each.name, each.value))
            for each in structure(model).parameters
        ),
    )


def simulated(shape: Structure, truth: dict[str, float], wanted: dict[str, tuple[str, ...]], tries: int, seed: int):
    """Yield the integers of three runs an arm, once a try; arms are independent, as published runs are."""
    facts = facts_of("payments")
    plan = facts.plan
    engine = VectorEngine(facts, shape.model(truth))
    counted: dict[tuple[str, str], np.ndarray] = {}
    for number, (arm, metrics) in enumerate(wanted.items()):
        played = engine.play(get_arm(arm), engine.draw(seed=seed + number, first=0, count=RUNS * tries)).block()
        per_stream = {
            "first_try_eligible": played.first_try[:, plan.eligible].sum(axis=1),
            "retries": played.episode("attempts").sum(axis=1) - len(plan.episodes),
            "exhausted": len(plan.episodes) - played.episode("completed").sum(axis=1),
        }
        for metric in metrics:
            counted[arm, metric] = per_stream[metric].reshape(tries, RUNS).sum(axis=1)
    for at in range(tries):
        yield [
            Integer("payments", arm, metric, int(values[at]), 27 if metric == "first_try_eligible" else RUNS, RUNS, "")
            for (arm, metric), values in counted.items()
        ]


def covered(shape: Structure, truth: dict[str, float], tries: list[list[Integer]]) -> dict[str, float]:
    held = dict.fromkeys(truth, 0)
    for evidence in tries:
        found = fit(shape, evidence, near=truth)
        for name, value in truth.items():
            low, high = found.interval(name, confidence=0.95)
            held[name] += low <= value <= high
    return {name: count / len(tries) for name, count in held.items()}


def test_intervals_of_rates_cover(ledger) -> None:
    truth = {"governed.p_apply": 0.85, "default.p_fresh": 0.15}
    shape = narrowed("claude-sonnet-4-6", truth)
    arms = dict.fromkeys(("A1", "A2", "A2D", "A2DC", "A2DG"), ("first_try_eligible",))
    tries = list(simulated(shape, truth, arms, 60, seed=5))
    for name, share in covered(shape, truth, tries).items():
        error = (0.95 * 0.05 / len(tries)) ** 0.5
        ledger.coverage(f"calibrated {name}", share, low=0.95 - 4 * error, error=error)


def test_intervals_of_a_retry_law_cover(ledger) -> None:
    truth = {"governed.p_apply": 0.1, "governed.retry": 0.67, "governed.retry_injected": 0.5}
    shape = narrowed("claude-sonnet-5", truth)
    wanted = {
        "A0": ("retries", "exhausted"),
        "A1": ("first_try_eligible", "retries"),
        "A2D": ("first_try_eligible", "retries"),
    }
    tries = list(simulated(shape, truth, wanted, 12, seed=50))
    shares = covered(shape, truth, tries)
    pooled = sum(shares.values()) / len(shares)
    error = (0.95 * 0.05 / (len(tries) * len(shares))) ** 0.5
    ledger.coverage("calibrated rates and retry laws together", pooled, low=0.95 - 4 * error, error=error)


def test_an_interval_that_is_too_short_is_caught(ledger) -> None:
    """Half the width is the interval of confidence .67: the check above would refuse it."""
    truth = {"governed.p_apply": 0.85}
    shape = narrowed("claude-sonnet-4-6", truth)
    held = []
    for evidence in simulated(shape, truth, {"A2D": ("first_try_eligible",)}, 100, seed=9):
        low, high = fit(shape, evidence, near=truth).interval("governed.p_apply", confidence=0.67)
        held.append(low <= 0.85 <= high)
    ledger.check("negative control: coverage of intervals of half the width", float(np.mean(held)), high=0.85)


@pytest.mark.parametrize("model", ["claude-sonnet-5", "deepseek-v4-flash", "gemini-3.5-flash"])
def test_the_files_that_take_longest_hold_the_estimates(model: str, ledger) -> None:
    """To the three digits written, from the starts of the table and not from the file."""
    shape, played = structure(model), load_model(model)
    found = fit(shape, integers(model))
    off = []
    for each in shape.free:
        behaviour = played.default if each.owner == "default" else played.classes.get(each.owner, played.default)
        written = getattr(behaviour, "p_unaided_repeat" if each.field == "p_unaided" else each.field)
        if isinstance(written, RetryLaw):
            written = written.cumulative[0] if each.kind == "geometric" else written.mean_retries
        off.append(abs(written - found.values[each.name]) / (1.0 if each.kind != "mean" else 4.0))
    ledger.check(f"file of {model}: largest difference from the estimate", max(off), high=5.01e-4)
