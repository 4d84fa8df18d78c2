"""One case worked out: every metric of every arm, each with its error and a 95% interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from invsim.client.arms import get_arm
from invsim.client.planners.probabilistic import ProbabilisticModel
from invsim.experiment import ArmResult, layout, run
from invsim.sim.compose import Setting
from invsim.stats.costs import TokenCosts
from invsim.stats.intervals import t_interval
from invsim.stats.metrics import Summary
from invsim.stats.moments import Estimate
from invsim.stats.uncertainty import Uncertain
from invsim.sweep.cases import Case, Sources
from invsim.uncertain import DRAWS, run_draws
from invsim.whatif import STREAMS, mean_of

Row: TypeAlias = dict[str, str | int | float | None]
"""arm, metric, value, se, lo, hi, n."""

BY_CLASS = "first_try_by_class."
"""How the metric of a class is named."""

ALERT = "alert_"
"""How metrics begin that are of one drift event, and so of one schedule."""


def work_out(case: Case, sources: Sources) -> list[Row]:
    """Return a row for each arm and metric.

    ``n`` counts streams, or, of a composed setting, schedules: its values are means over schedules, and their spread,
    which holds the Monte Carlo error, gives the interval. An exact value is its own interval. Of a fitted model, ``se``
    and the interval hold what is not known of it, beside the Monte Carlo error.
    """
    model = case.compliance(sources)
    arms = None if case.arms is None else [get_arm(name) for name in case.arms]
    if isinstance(case.scenario, Setting):
        engine = "vector" if case.engine == "auto" else case.engine
        streams = None if engine == "exact" else case.replications or STREAMS
        found = [
            run(plan, model=model, arms=arms, replications=streams, seed=case.seed + at, engine=engine).arms
            for at, plan in enumerate(case.plans(sources))
        ]
        return [row for each in zip(*found, strict=True) for row in _over_schedules(each)]
    (plan,) = case.plans(sources)
    work = partial(run_draws, draws=draws) if (draws := _draws(case, model)) else run
    result = work(plan, model=model, arms=arms, replications=case.replications, seed=case.seed, engine=case.engine)
    return [_row(arm.arm, name, each) for arm in result.arms for name, each in _estimates(arm).items()]


def metric_names(case: Case, sources: Sources) -> list[str]:
    """Return the metrics that a case has rows of, without working it out."""
    (plan,), model = replace(case, schedules=1).plans(sources), case.compliance(sources)
    summary = Summary(layout(plan, model, plan.arms[0], TokenCosts()))
    names = [*summary.metrics(), *(f"{BY_CLASS}{name}" for name in summary.first_try_by_class())]
    return [name for name in names if not (isinstance(case.scenario, Setting) and name.startswith(ALERT))]


def _draws(case: Case, model: ProbabilisticModel) -> int:
    if not model.uncertainty:
        return 0
    return DRAWS if case.draws is None else case.draws


def _estimates(arm: ArmResult) -> Mapping[str, Estimate]:
    return {**arm.metrics, **{f"{BY_CLASS}{name}": each for name, each in arm.first_try_by_class.items()}}


def _row(arm: str, metric: str, each: Estimate) -> Row:
    lo: float | None
    hi: float | None
    se = each.se
    if isinstance(each, Uncertain):
        lo, hi = each.lo, each.hi
        se = None if se is None or each.fit_se is None else math.hypot(se, each.fit_se)
    elif each.value is None or each.se is None:
        lo = hi = None
    elif each.n == 0:  # exact
        lo = hi = each.value
    else:
        limits = t_interval(each.value, each.se, each.n - 1)
        lo, hi = float(limits.lo), float(limits.hi)
    return {"arm": arm, "metric": metric, "value": each.value, "se": se, "lo": lo, "hi": hi, "n": each.n}


def _over_schedules(results: Sequence[ArmResult]) -> list[Row]:
    """Return the means of what all schedules have; an undefined value leaves its schedule out."""
    every = [_estimates(each) for each in results]
    shared = [name for name in every[0] if all(name in each for each in every) and not name.startswith(ALERT)]
    rows = []
    for name in shared:
        values = [value for each in every if (value := each[name].value) is not None]
        rows.append(_row(results[0].arm, name, mean_of(values)))
    return rows
