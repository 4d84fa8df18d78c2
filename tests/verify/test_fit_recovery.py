"""Fits of simulated trials find the published profiles again, and their intervals cover.

Each published profile is simulated, 30, 300 and 3,000 trials a cell in ten tasks that do not differ, 400 times, and
fitted. Coverage is averaged over cells whose true rate lies inside (0, 1); cells at 0 or 1, where an interval covers
always or the rate is its limit, stand apart. With some 10,000 intervals of a kind and size the Monte Carlo error is
.002, so that a sound method fails a bound of .93 or .97 by chance less than once in a million runs; discreteness of
counts, and not chance, is what keeps the average from .95. The laws rest on 3,600 intervals a size, error .004, and may
fall to .92: one of five outcomes is rare, and its prior shows at 30 trials. The interval by task is wide on purpose.
"""

from functools import cache
from itertools import product

import numpy as np
import polars as pl
import pytest
from scipy.special import betaincinv

from invsim.client.arms import get_arm
from invsim.client.planners import Behaviour, load_model
from invsim.client.planners.models import PUBLISHED
from invsim.client.planners.posterior import RetryPosterior
from invsim.client.planners.probabilistic import RetryLaw
from invsim.fit import Fit, Frames, Rate, fit
from invsim.fit.frames import EPISODES, TRIALS
from invsim.record import Recorder
from invsim.sim.engine import simulate_block
from invsim.sim.plan import compile_plan
from invsim.sim.scenario import load_scenario
from invsim.traces.schema import Call
from invsim.traces.tally import tally

CLASSES = ("governed", "funding", "control", "celiac", "incompat")
SIZES = (30, 300, 3000)
TASKS, REPEATS, LAW_REPEATS, LAW_DRAWS = 10, 400, 1200, 500
BY = ("model", "constraint")


@cache
def rates() -> dict[tuple[str, str, str], float]:
    """Every distinct rate of the published profiles, by model, class and parameter."""
    found: dict[tuple[str, str, str], float] = {}
    for name, constraint in product(PUBLISHED, CLASSES):
        model = load_model(name)
        if constraint not in model.classes:
            continue
        behaviour = model.behaviour(constraint)
        first, repeat = behaviour.p_unaided_first, behaviour.p_unaided_repeat
        mine = {"p_apply": behaviour.p_apply, "p_fresh": behaviour.p_fresh, "p_stale": behaviour.p_stale}
        mine |= {"p_unaided_first": first, "p_unaided_repeat": repeat} if first != repeat else {"p_unaided": first}
        found |= {(name, constraint, parameter): value for parameter, value in mine.items()}
    return found


def inside(value: float) -> bool:
    return 0.0 < value < 1.0


def simulated(truth: dict[tuple[str, str, str], float], n: int, seed: int, repeats: int) -> Frames:
    """Trials and episodes of every cell and repeat, a repeat being a model of its own."""
    rng = np.random.default_rng((seed, n))
    trials, episodes = [], []
    for (name, constraint, parameter), value in truth.items():
        hits = rng.binomial(n // TASKS, value, size=(repeats, TASKS)).ravel()
        frame = pl.DataFrame(
            {
                "model": np.repeat([f"{name}#{at}" for at in range(repeats)], TASKS),
                "task": np.tile([f"t{at}" for at in range(TASKS)], repeats),
                "constraint": np.full(repeats * TASKS, constraint),
                "hit": hits,
                "miss": n // TASKS - hits,
            }
        ).unpivot(["hit", "miss"], index=["model", "task", "constraint"], variable_name="what", value_name="n")
        hit = pl.col("what") == "hit"
        if parameter in {"p_apply", "p_stale"}:
            result = pl.when(hit).then(pl.lit("applied")).otherwise(pl.lit("other"))
            state = "valid" if parameter == "p_apply" else "stale"
            said = {"kind": "first_attempt", "attribution": "certain", "injected": state, "shape": "add-a-field"}
            trials.append(frame.with_columns(result=result, **{key: pl.lit(each) for key, each in said.items()}))
        else:
            occurrence = {"p_unaided_first": True, "p_unaided_repeat": False}.get(parameter)
            state = "conflict" if parameter == "p_fresh" else "nothing"
            episodes.append(
                frame.with_columns(
                    first_ok=hit, injected=pl.lit(state), retries=pl.lit(0), ended=pl.lit(None, pl.String),
                    first_occurrence=pl.lit(occurrence, pl.Boolean), shape=pl.lit("add-a-field"),
                )
            )  # fmt: skip
    return Frames(_as(trials, TRIALS), _as(episodes, EPISODES))


def _as(frames: list[pl.DataFrame], schema: dict[str, type[pl.DataType]]) -> pl.DataFrame:
    whole = pl.concat([pl.DataFrame(schema=schema), *frames], how="diagonal_relaxed")
    return whole.select(list(schema)).with_columns(pl.col("n").cast(pl.Int64))


def fitted(truth: dict[tuple[str, str, str], float], n: int, seed: int) -> list[tuple[float, Rate]]:
    """Return the true rate beside the fitted one, of every cell and repeat."""
    found = fit(simulated(truth, n, seed, REPEATS), by=BY, pool=False)
    pairs = []
    for each in found.rates:
        name = each.key[0].partition("#")[0]
        at = (name, each.key[1], each.parameter)
        if each.trials and at in truth:
            pairs.append((truth[at], each))
    assert len(pairs) == len(truth) * REPEATS
    return pairs


def covers(pairs: list[tuple[float, Rate]], limits: np.ndarray) -> float:
    true = np.array([value for value, _ in pairs])
    return float(((limits[:, 0] <= true) & (true <= limits[:, 1])).mean())


def posterior_limits(pairs: list[tuple[float, Rate]]) -> np.ndarray:
    alpha, beta = np.array([each.posterior for _, each in pairs]).T
    return np.column_stack([betaincinv(alpha, beta, 0.025), betaincinv(alpha, beta, 0.975)])


@pytest.mark.parametrize("n", SIZES)
def test_intervals_of_rates_inside(n: int, ledger) -> None:
    truth = {at: value for at, value in rates().items() if inside(value)}
    assert len(truth) > 15
    pairs = fitted(truth, n, seed=11)
    jeffreys = np.array([each.interval for _, each in pairs])
    tasks = np.array([each.cluster_interval for _, each in pairs])
    error = float(np.sqrt(0.95 * 0.05 / len(pairs)))
    ledger.coverage(f"fit, Jeffreys, n={n}", covers(pairs, jeffreys), low=0.93, high=0.97, error=error)
    ledger.coverage(f"fit, posterior, n={n}", covers(pairs, posterior_limits(pairs)), low=0.93, high=0.97, error=error)
    ledger.coverage(f"fit, by task, n={n}", covers(pairs, tasks), low=0.95, error=error)
    errors = np.array([(each.rate or 0.0) - value for value, each in pairs])
    spread = np.array([np.sqrt(value * (1 - value) / n) for value, _ in pairs])
    ledger.z(f"fit, mean of all rates, n={n}", [float((errors / spread).mean() * np.sqrt(len(errors)))])
    # Negative control: an interval that is too narrow by a third must not pass for one.
    middle = np.array([[each.rate or 0.0] for _, each in pairs])
    ledger.check(f"too narrow an interval covers, n={n}", covers(pairs, middle + (jeffreys - middle) * 2 / 3), high=0.9)


@pytest.mark.parametrize("n", SIZES)
def test_intervals_of_rates_at_0_and_1(n: int, ledger) -> None:
    """Every trial agrees, so Jeffreys' interval reaches the limit and covers always; by task it does too."""
    truth = {at: value for at, value in rates().items() if not inside(value)}
    chosen = dict(list(truth.items())[:6])
    pairs = fitted(chosen, n, seed=12)
    jeffreys = np.array([each.interval for _, each in pairs])
    ledger.check(f"rates of 0 and 1 covered by Jeffreys, n={n}", covers(pairs, jeffreys), low=1.0)
    widths = jeffreys[:, 1] - jeffreys[:, 0]
    ledger.check(f"width of Jeffreys at 0 and 1, n={n}", float(widths.max()), high=1 - 0.025 ** (1 / n) + 1e-9)


@pytest.mark.parametrize("tasks", [5, 10, 30])
def test_posteriors_where_tasks_differ(tasks: int, ledger) -> None:
    """Six cells, six trials a task, correlation .2 within a task, which each fit must find by itself; 120 fits."""
    true, rho = np.array([0.3, 0.5, 0.6, 0.7, 0.8, 0.9]), 0.2
    rng = np.random.default_rng((21, tasks))
    by_task, ignored, robust = [], [], []
    for _ in range(120):
        own = rng.beta(true * (1 / rho - 1), (1 - true) * (1 / rho - 1), size=(tasks, 6))
        hits = rng.binomial(6, own)
        kind = ("add-a-field", "first_attempt", "certain", "valid")
        rows = [
            (f"m{cell}", f"t{task}", "c", None, None, *kind, result, None, n)
            for task, mine in enumerate(hits.tolist())
            for cell, x in enumerate(mine)
            for result, n in (("applied", x), ("other", 6 - x))
        ]
        counts = Frames(pl.DataFrame(rows, schema=TRIALS, orient="row"), pl.DataFrame(schema=EPISODES))
        for cluster, kept in (("task", by_task), ("none", ignored)):
            found = fit(counts, pool=False, cluster=cluster)
            pairs = [(value, found.rate("p_apply", f"m{cell}", "add-a-field")) for cell, value in enumerate(true)]
            kept.append(covers(pairs, posterior_limits(pairs)))
        robust.append(covers(pairs, np.array([each.cluster_interval for _, each in pairs])))
    error = float(np.sqrt(0.95 * 0.05 / 720))
    ledger.coverage(f"fit, posterior, {tasks} tasks that differ", float(np.mean(by_task)), low=0.9, error=error)
    ledger.coverage(f"fit, by task, {tasks} tasks that differ", float(np.mean(robust)), low=0.94, error=error)
    ledger.check(f"covers as if {tasks} tasks did not differ", float(np.mean(ignored)), high=0.9)


def test_posteriors_of_a_simulation_with_three_arms(ledger) -> None:
    """The arms meet the same random numbers, so that they repeat each other's trials; 100 runs, two rates each.

    Taken for independent, as rows without a seed are, they would seem to tell up to three times what they do.
    """
    plan, model = compile_plan(load_scenario("payments")), load_model("gemini-3.5-flash")
    true = model.behaviour("governed")
    known: list[bool] = []
    ignored: list[bool] = []
    for seed in range(100):
        calls: list[Call] = []
        for name in ("A1", "A2", "A2D"):
            watch = Recorder(plan, model="m", arm=name, write=calls.append, seed=seed)
            simulate_block(plan, arm=get_arm(name), model=model, seed=seed, first=0, count=20, watch=watch)
        told, _ = tally(calls)
        unseeded = Frames(*(each.with_columns(seed=pl.lit(None, pl.String)) for each in (told.trials, told.episodes)))
        for counts, kept in ((told, known), (unseeded, ignored)):
            found = fit(counts, by=BY)
            rates = [found.rate(name, "m", "governed") for name in ("p_apply", "p_stale")]
            limits = posterior_limits([(0.0, rate) for rate in rates])
            kept += [lo <= value <= hi for value, (lo, hi) in zip((true.p_apply, true.p_stale), limits, strict=True)]
    error = float(np.sqrt(0.95 * 0.05 / len(known)))
    ledger.coverage("fit, posterior, three arms of a simulation", float(np.mean(known)), low=0.9, error=error)
    ledger.check("covers as if arms of a simulation did not repeat each other", float(np.mean(ignored)), high=0.9)


LAWS: dict[str, RetryLaw] = {
    "gemini governed": load_model("gemini-3.5-flash").behaviour("governed").retry,
    "gemini governed, injected": load_model("gemini-3.5-flash").behaviour("governed").retry_injected,
    "gemini control": load_model("gemini-3.5-flash").behaviour("control").retry,
}


ENDED = ("completed",) * 4 + ("exhausted",)


def law_fit(law: RetryLaw, n: int, repeats: int) -> Fit:
    rng = np.random.default_rng((5, n, round(1e6 * law.mean_retries)))
    chances = np.diff([0.0, *law.cumulative, 1.0])
    counts = rng.multinomial(n, np.clip(chances, 0.0, 1.0) / chances.sum(), size=repeats)
    rows = [
        (f"m#{at}", "t", "c", None, None, "add-a-field", "nothing", None, False, min(k, 3) + 1, ENDED[k], x)
        for at, mine in enumerate(counts.tolist())
        for k, x in enumerate(mine)
        if x
    ]  # fmt: skip
    return fit(
        Frames(pl.DataFrame(schema=TRIALS), pl.DataFrame(rows, schema=EPISODES, orient="row")), by=BY, pool=False
    )


@pytest.mark.parametrize("n", SIZES)
def test_intervals_of_the_retry_laws(n: int, ledger) -> None:
    """Equal-tailed 95% intervals of mean retries, and of recovery at the first, from the posterior that is drawn."""
    rng = np.random.default_rng(3)
    means, firsts = [], []
    for law in LAWS.values():
        for each in law_fit(law, n, LAW_REPEATS).laws:
            if each.parameter != "retry":
                continue
            concentration = RetryPosterior(each.counts, each.exhausted).concentration
            draws = rng.dirichlet(concentration, size=LAW_DRAWS)
            reach = 1.0 + (1.0 - np.cumsum(draws, axis=1)[:, :3]).sum(axis=1)
            lo, hi = np.quantile(reach, [0.025, 0.975])
            means.append(lo <= law.mean_retries <= hi)
            first, rest = concentration[0], sum(concentration[1:])
            firsts.append(betaincinv(first, rest, 0.025) <= law.cumulative[0] <= betaincinv(first, rest, 0.975))
    error = float(np.sqrt(0.95 * 0.05 / len(means)))
    ledger.coverage(f"fit, mean retries, n={n}", float(np.mean(means)), low=0.92, high=0.97, error=error)
    ledger.coverage(f"fit, first retry, n={n}", float(np.mean(firsts)), low=0.92, high=0.97, error=error)


def test_a_law_that_never_exhausts_is_found_again(ledger) -> None:
    """The six other models recover at once: the posterior mean tends to one retry."""
    for n in SIZES:
        (law,) = [each for each in law_fit(Behaviour().retry, n, 1).laws if each.parameter == "retry"]
        mean = RetryPosterior(law.counts, law.exhausted).mean.mean_retries
        ledger.check(f"mean retries of a model that recovers at once, n={n}", mean, low=1.0, high=1.0 + 3.0 / n)


def pooled_against_apart(truth: dict[tuple[str, str, str], float], seed: int) -> tuple[np.ndarray, list[Rate]]:
    """Return the squared errors at 30 trials, pooled and apart, summed over cells; and the pooled rates."""
    found = fit(simulated(truth, 30, seed, repeats=1), by=BY, cluster="none")
    mine = [found.rate(parameter, f"{name}#0", constraint) for name, constraint, parameter in truth]
    true = np.array(list(truth.values()))
    apart = np.array([(each.applied + 0.5) / (each.trials + 1.0) for each in mine])
    pooled = np.array([each.pooled for each in mine])
    return np.array([((pooled - true) ** 2).sum(), ((apart - true) ** 2).sum()]), mine


def inside_of_pooled(mine: list[Rate], truth: dict[tuple[str, str, str], float]) -> list[bool]:
    limits = [each.pooled_interval or (0.0, 1.0) for each in mine]
    pairs = zip(limits, truth.values(), strict=True)
    return [lo <= value <= hi for (lo, hi), value in pairs if inside(value)]


def test_pooling_helps_models_that_are_alike(ledger) -> None:
    """Seven models whose rates have mean .8 and standard deviation .1, drawn anew 100 times."""
    squares, covered = np.zeros(2), []
    for repeat in range(100):
        drawn = np.random.default_rng((9, repeat)).beta(12.0, 3.0, len(PUBLISHED))
        truth = {(name, "governed", "p_apply"): float(value) for name, value in zip(PUBLISHED, drawn, strict=True)}
        errors, mine = pooled_against_apart(truth, 2000 + repeat)
        squares += errors
        covered += inside_of_pooled(mine, truth)
    ledger.check("squared error, pooled over apart, alike, n=30", float(squares[0] / squares[1]), high=0.9)
    error = float(np.sqrt(0.95 * 0.05 / len(covered)))
    ledger.coverage("fit, pooled, alike, n=30", float(np.mean(covered)), low=0.92, high=0.98, error=error)


def test_pooling_does_no_harm_to_models_that_are_not(ledger) -> None:
    """The published profiles, .05 to 1 in one class: pooling then has little to give, and must not take."""
    truth = {at: value for at, value in rates().items() if at[2] == "p_apply"}
    squares, covered = np.zeros(2), []
    for repeat in range(40):
        errors, mine = pooled_against_apart(truth, 1000 + repeat)
        squares += errors
        covered += inside_of_pooled(mine, truth)
    ledger.check("squared error, pooled over apart, published, n=30", float(squares[0] / squares[1]), high=1.0)
    error = float(np.sqrt(0.95 * 0.05 / len(covered)))
    ledger.coverage("fit, pooled, published, n=30", float(np.mean(covered)), low=0.91, high=0.98, error=error)
