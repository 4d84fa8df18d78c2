"""The checks that simulate: a printed number against the model, with the luck that a publication of its size has."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from invsim.client.arms import get_arm
from invsim.client.planners.models import PUBLISHED
from invsim.data.published import Published, drifted_integers, published
from invsim.errors import InputError
from invsim.paper import arithmetic
from invsim.paper.audit import Audit, Found, weakest
from invsim.paper.claims import LIMIT, Claim, fits
from invsim.paper.context import CERTAIN, RUNS, Measure, linear_metrics
from invsim.paper.structures import structure
from invsim.stats.moments import Estimate

Check: TypeAlias = Callable[[Audit, Claim], Found]

TOLERANCE = 1e-9
OPERATORS = {
    "=": lambda left, right: math.isclose(left, right, abs_tol=5e-4),
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def compare(
    claim: Claim, measure: Measure, *, precise: float | None = None, fits_to: str = "", spread: float = 0.0,
    times: float | None = None, shown: str = "",
) -> Found:  # fmt: skip
    """Compare a printed number with a measure.

    Parameters
    ----------
    claim : Claim
    measure : Measure
    precise : float, optional
        The number before it was rounded, in the unit of the print.
    fits_to : str
        What was fitted to it; empty for nothing.
    spread : float
        Standard deviation of the model's own error, in the unit of the measure.
    times : float, optional
        What the measure is multiplied by to be in the unit of the print; by default what the unit says.
    """
    scale = claim.scale if times is None else times
    if measure.value is None or measure.sd is None:
        return Found(False, "exact", shown="undefined in this run")
    value = measure.value * scale
    simulated = Estimate(
        None if measure.simulated.value is None else measure.simulated.value * scale,
        None if measure.simulated.se is None else measure.simulated.se * abs(scale),
        measure.simulated.n,
    )
    exact = None if measure.exact is None else measure.exact * scale
    if measure.certain and not spread:
        agrees = abs(claim.value - value) <= claim.half + TOLERANCE + CERTAIN * scale
        return Found(agrees, "exact", value, simulated, exact, 0.0, None, shown, fits_to)
    sd = math.hypot(measure.sd, spread) * scale
    z = ((claim.value if precise is None else precise) - value) / sd
    return Found(abs(z) <= LIMIT, "fitted" if fits_to else "within", value, simulated, exact, sd, z, shown, fits_to)


def measured(audit: Audit, claim: Claim, where: str, *, runs: int = RUNS, **options: object) -> Found:
    """Compare a printed number with scenario/model/arm/metric."""
    scenario, model, arm, metric = where.split("/")
    measure = audit.context.measure(scenario, model, arm, metric, runs=runs)
    spread = token_error(audit) if metric == "token_saving" and arm != "A0" else 0.0
    return compare(claim, measure, fits_to=fits(scenario, model, metric), spread=spread, **options)  # type: ignore[arg-type]


def print_of(where: str) -> Published:
    """Return the printed figure of scenario/model/arm/metric, as ``data/published.csv`` has it."""
    scenario, model, arm, metric = where.split("/")
    known = published()
    found = known.get((scenario, model, arm, metric)) or known.get((scenario, "", arm, metric))
    if found is None:
        raise InputError("is not among the published figures", where="audit.csv", value=where)
    return found


def runs_of(audit: Audit, where: str, printed: Published) -> int:
    """Return how many runs a printed figure pools: its denominator over what one run has."""
    scenario, _, _, metric = where.split("/")
    if printed.of is None:
        return RUNS
    _, size = linear_metrics(audit.context.plan(scenario))[metric]
    return max(1, round(printed.of / size))


def cell(audit: Audit, claim: Claim) -> Found:
    """Work out a printed cell. The integer behind it must round to the print, whatever the model says."""
    printed = print_of(claim.about)
    unit = claim.scale
    precise = printed.value * unit if printed.count is None or not printed.of else printed.count / printed.of * unit
    found = measured(audit, claim, claim.about, runs=runs_of(audit, claim.about, printed), precise=precise)
    if abs(precise - claim.value) <= claim.half + TOLERANCE:
        return found
    integer = "" if printed.count is None else f"{printed.count}/{printed.of} = "
    return replace(found, agrees=False, value=precise, shown=f"the published data have {integer}{precise:.4g}")


def cell_count(audit: Audit, claim: Claim) -> Found:
    """Work out a count over the runs that a cell pools."""
    printed = print_of(claim.about)
    runs = printed.of or RUNS
    if printed.count != claim.value:
        return Found(False, "exact", printed.count, shown="the published data have another count")
    return measured(audit, claim, claim.about, runs=runs, times=runs)


def simulated(audit: Audit, claim: Claim) -> Found:
    """Work out a metric that no cell prints."""
    return measured(audit, claim, claim.about)


def run_of(audit: Audit, claim: Claim) -> Found:
    """Work out a metric of one run."""
    return measured(audit, claim, claim.about, runs=1)


def gain(audit: Audit, claim: Claim) -> Found:
    """Work out a rise from one arm to another. The rise of the integers must round to the print."""
    scenario, model, arm, over, metric = claim.about.split("/")
    high, low = (print_of(f"{scenario}/{model}/{name}/{metric}") for name in (arm, over))
    if high.count is not None and low.count is not None and high.of and low.of:
        precise, slack = claim.scale * (high.count / high.of - low.count / low.of), 0.0
        shown = f"{high.count}/{high.of} - {low.count}/{low.of} = {precise:.3f}"
    else:
        precise, slack = claim.scale * (high.value - low.value), 2 * claim.half
        shown = f"{claim.scale * high.value:.4g} - {claim.scale * low.value:.4g} = {precise:.4g}"
    spread = math.sqrt(2) * token_error(audit) if metric == "token_saving" else 0.0
    measure = audit.context.gain(scenario, model, arm, over, metric)
    exact = None if slack else precise
    found = compare(claim, measure, precise=exact, fits_to=fits(scenario, model, metric), spread=spread, shown=shown)
    if abs(precise - claim.value) <= claim.half + slack + TOLERANCE:
        return found
    return replace(found, agrees=False, value=precise)


def simulated_gain(audit: Audit, claim: Claim) -> Found:
    """Work out a rise from one arm to another that no cell prints."""
    scenario, model, arm, over, metric = claim.about.split("/")
    measure = audit.context.gain(scenario, model, arm, over, metric)
    return compare(claim, measure, fits_to=fits(scenario, model, metric))


def every(audit: Audit, claim: Claim) -> Found:
    """Compare one printed number with a metric of several models and arms; all must agree."""
    cells = list(_cells(audit, claim.about))
    found = [measured(audit, claim, each) for each in cells]
    wrong = [where for where, each in zip(cells, found, strict=True) if not each.agrees]
    worst = max(found, key=lambda each: (not each.agrees, abs(each.z or 0.0)))
    shown = f"{len(cells)} cells" + (f", not {', '.join(wrong)}" if wrong else "")
    return Found(
        not wrong, weakest(each.status for each in found), worst.value, worst.simulated, worst.exact, worst.sd,
        worst.z, shown, worst.fits_to,
    )  # fmt: skip


def how_many_simulated(audit: Audit, claim: Claim) -> Found:
    """Count the models of which a metric, in all of some arms, certainly is, or is above, a value."""
    where, sign, bound = claim.about.split()
    by_model: dict[str, list[Measure]] = {}
    for each in _cells(audit, where):
        scenario, model, arm, metric = each.split("/")
        by_model.setdefault(model, []).append(audit.context.measure(scenario, model, arm, metric))
    holds = [
        model
        for model, measures in by_model.items()
        if all(each.certain and OPERATORS[sign](each.value or 0.0, float(bound)) for each in measures)
    ]
    return Found(len(holds) == claim.value, "exact", len(holds), sd=0.0, shown=", ".join(holds))


def _cells(audit: Audit, about: str) -> Iterable[str]:
    """Yield the cells of scenario/models/arms/metric: names with commas, "*" for all, "-NAME" for all but one."""
    scenario, models, arms, metric = about.split("/")
    for model in _picked(models, PUBLISHED):
        for arm in _picked(arms, [arm.name for arm in audit.context.arms(scenario, model)]):
            yield f"{scenario}/{model}/{arm}/{metric}"


def _picked(wanted: str, known: Iterable[str]) -> list[str]:
    if wanted == "*":
        return list(known)
    return [name for name in known if name != wanted[1:]] if wanted.startswith("-") else wanted.split(",")


def evicted_at(audit: Audit, claim: Claim) -> Found:
    """Work out the entries evicted right after a drift event: in the first episode after it."""
    scenario, model, arm, event = claim.about.split("/")
    at = audit.context.plan(scenario).drift[int(event) - 1].after_episode + 1
    value = float(audit.context.law(scenario, model, arm).by_episode("evicted")[at])
    certain = audit.context.measure(scenario, model, arm, "evictions").certain
    return Found(certain and abs(value - claim.value) < TOLERANCE, "exact", value, exact=value, sd=0.0)


def token_error(audit: Audit) -> float:
    """Return the standard deviation of the token model's own error, 0..1: what luck leaves unexplained in Table 6.

    Each printed saving is off by luck, whose variance s_i^2 is known, and by the model, whose variance v is not. Its
    maximum likelihood solves sum(r_i^2 / (s_i^2 + v)^2) = sum(1 / (s_i^2 + v)).
    """

    def work() -> float:
        off, luck = [], []
        for (scenario, model, arm, metric), printed in published().items():
            if (scenario, metric) == ("payments", "token_saving") and arm != "A0":
                measure = audit.context.measure(scenario, model, arm, metric)
                off.append(printed.value - (measure.value or 0.0))
                luck.append((measure.sd or 0.0) ** 2)
        return math.sqrt(_own_variance(off, luck))

    return audit.context.once(("token error",), work)


def _own_variance(off: Sequence[float], luck: Sequence[float]) -> float:
    def slope(variance: float) -> float:
        return math.fsum(r**2 / (s + variance) ** 2 - 1 / (s + variance) for r, s in zip(off, luck, strict=True))

    low, high = 1e-12, max(each**2 for each in off)
    if slope(low) <= 0:
        return 0.0
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return high


def tokens(audit: Audit, claim: Claim) -> Found:
    """Work out the tokens of an arm against another's, on one scenario and model."""
    scenario, model, arm, over = claim.about.split("/")
    weights = audit.context.tokens(scenario, model)
    spent, base, none = (audit.context.law(scenario, model, name).expected(weights) for name in (arm, over, "A0"))
    sampled = audit.context.totals(scenario, model)
    more = {f"{arm} {name}": weight for name, weight in weights.items() if name != "one"}
    for name, weight in weights.items():
        if name != "one":
            more[f"{over} {name}"] = -weight
    under = {name if name == "one" else f"{over} {name}": weight for name, weight in weights.items()}
    spread = math.sqrt(2) * token_error(audit) * none / base
    measure = Measure(sampled.ratio(more, under), spent / base - 1, 0.0, 1)
    return compare(claim, measure, fits_to=fits(scenario, model, "token_cost"), spread=spread)


def exhausted_of(audit: Audit, claim: Claim) -> Found:
    """Work out the episodes of a class that exhaust, over all published arms and runs of a model."""
    model, constraint = claim.about.split()
    plan, moments = audit.context.plan("payments"), audit.context.totals("payments", model)
    size = float((plan.class_index == plan.classes.index(constraint)).sum())
    arms = [arm.name for arm in audit.context.arms("payments", model)]
    each = [moments.mean({"one": size, f"{arm} completed:{constraint}": -1.0}) for arm in arms]
    both = moments.mean({"one": size * len(arms), **{f"{arm} completed:{constraint}": -1.0 for arm in arms}})
    variance = math.fsum((one.se or 0.0) ** 2 * one.n for one in each)
    measure = Measure(both, None, math.sqrt(variance / RUNS))
    return compare(claim, measure, fits_to=fits("payments", model, "exhausted"), times=RUNS)


def exhausted_over(audit: Audit, claim: Claim) -> Found:
    """Work out the episodes that exhaust, over several scenarios, each "name" or "name:arm,arm", three runs each."""
    model, *scenarios = claim.about.split()
    mean = variance = 0.0
    for each in scenarios:
        scenario, _, arms = each.partition(":")
        for arm in arms.split(",") if arms else [arm.name for arm in audit.context.arms(scenario, model)]:
            measure = audit.context.measure(scenario, model, arm, "exhausted", runs=1)
            mean += RUNS * (measure.value or 0.0)
            variance += RUNS * (measure.sd or 0.0) ** 2
    found = Measure(Estimate(None, None, 0), mean, math.sqrt(variance))
    return compare(claim, found, fits_to=fits("payments", model, "exhausted"))


def seed_sd(audit: Audit, claim: Claim) -> Found:
    """Work out the largest standard deviation over the seeds of a compliance, over all cells.

    Over three runs of nine episodes, 18.1 points is a population standard deviation, of x, x + 2 and x + 4 ninths.
    """
    import numpy as np

    from invsim.sim.vector import VectorEngine

    context, plan = audit.context, audit.context.plan("payments")
    publications = context.streams // RUNS
    largest = np.zeros(publications)
    first = 0
    for model in PUBLISHED:
        engine = VectorEngine(context.facts("payments"), context.model(model))
        for arm in (each for each in context.arms("payments", model) if each.stores):
            drawn = engine.draw(seed=context.seed, first=first, count=publications * RUNS)
            total = engine.play(get_arm(arm.name), drawn).total("first_try", plan.eligible)
            counts = np.broadcast_to(np.asarray(total, dtype=float), publications * RUNS)
            spread = (counts / plan.eligible.sum()).reshape(publications, RUNS).std(axis=1)
            largest = np.maximum(largest, spread)
            first += publications * RUNS  # published runs of two arms share nothing, so neither do these
    se = float(largest.std() / math.sqrt(publications))
    measure = Measure(Estimate(float(largest.mean()), se, publications), None, float(largest.std()))
    ways = sorted(
        triple
        for triple in itertools.combinations_with_replacement(range(10), RUNS)
        if triple[0] == 0 and round(100 * float(np.std(triple)) / 9, 1) == claim.value
    )
    shown = f"a population sd of {', '.join(map(str, ways))} ninths" if ways else "no three runs of nine give it"
    found = compare(claim, measure, shown=shown)
    return found if ways else Found(False, found.status, found.value, shown=shown)


def exact_integers(audit: Audit) -> tuple[int, int]:
    """Count the integers printed for the drifted stream, and how many of them are certain and come out equal."""
    exact = 0
    for where in drifted_integers():
        printed = published()[where]
        measure = audit.context.measure(*where)
        off = (measure.value or 0.0) * (printed.of or 1) - (printed.count or 0)
        exact += measure.certain and abs(off) < 0.5
    return len(drifted_integers()), exact


def defined(audit: Audit, claim: Claim) -> Found:
    """Evaluate a definition; it must be the printed one to the digit."""
    value = structure(audit.context, claim.about)
    if isinstance(value, str):
        return Found(value == claim.printed, "structural", value)
    slack = claim.half if "." in claim.printed else TOLERANCE
    return Found(abs(float(value) - claim.value) <= slack + TOLERANCE, "structural", float(value))


CHECKS: dict[str, Check] = {
    "cell": cell,
    "cell_count": cell_count,
    "simulated": simulated,
    "run_of": run_of,
    "gain": gain,
    "simulated_gain": simulated_gain,
    "every": every,
    "how_many_simulated": how_many_simulated,
    "evicted_at": evicted_at,
    "tokens": tokens,
    "exhausted_of": exhausted_of,
    "exhausted_over": exhausted_over,
    "seed_sd": seed_sd,
    "structure": defined,
    **arithmetic.CHECKS,
}
"""Checks by the names that ``data/audit.csv`` calls them."""
