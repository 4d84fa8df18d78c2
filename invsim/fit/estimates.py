"""Rates with their error: an interval that takes trials for independent, one that does not, and partial pooling."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from invsim.fit.evidence import CELLS, MISSING, Evidence
from invsim.stats.arrays import tail
from invsim.stats.clusters import cluster_robust_rate
from invsim.stats.design import design_effect, intra_cluster_correlation, unrepeated
from invsim.stats.intervals import jeffreys
from invsim.stats.pooling import pool

Pair = tuple[float, float]
Key = tuple[str, ...]

PRIOR = 0.5
"""Successes and failures that the prior of a rate by itself is worth (Jeffreys)."""

SUMMED = 10_000
"""Trials up to which the distribution of the number applied is summed, term by term."""


@dataclass(frozen=True)
class Rate:
    """One rate of one cell.

    Parameters
    ----------
    key : tuple of str
        The cell: model, shape ...
    parameter : str
        "p_apply" (trials of a valid fix that was injected), "recovery" (of a hint after an error), "p_stale",
        "p_fresh", "p_unaided", "p_unaided_first" or "p_unaided_repeat".
    applied, trials : int
    status : str
        "ok"; "no data"; "unidentified", where something was seen and says nothing of it.
    reason : str
        Why it is not "ok".
    rate : float or None
        applied / trials.
    interval : pair or None
        Jeffreys: trials taken for independent, but for those that arms of one seed may repeat.
    clusters : int or None
        Tasks; None where some trials name none.
    cluster_interval : pair or None
        Tasks taken for independent: ``cluster_robust_rate``, which covers its level or more from three tasks on, at
        the price of width; (0, 1) from one.
    worth : float
        Independent trials that the trials are worth.
    pooled : float or None
        Posterior mean under partial pooling over models; of a cell without data what the other models let expect.
    pooled_interval : pair or None
    posterior : pair or None
        alpha and beta of the beta distribution that a model file carries.
    """

    key: Key
    parameter: str
    applied: int = 0
    trials: int = 0
    status: str = "ok"
    reason: str = ""
    rate: float | None = None
    interval: Pair | None = None
    clusters: int | None = None
    cluster_interval: Pair | None = None
    worth: float = 0.0
    pooled: float | None = None
    pooled_interval: Pair | None = None
    posterior: Pair | None = None

    @property
    def kind(self) -> str:
        """The kind of trial that a rate of trials is over; else the parameter."""
        return CELLS.get(self.parameter, self.parameter)


@dataclass(frozen=True)
class Counts:
    """Trials of one cell, by task.

    Parameters
    ----------
    applied, trials : list of int
    worth : list of float
        What the trials come to where arms of one seed may repeat each other's; see ``unrepeated``.
    tasks : list of str or None
    """

    applied: list[int]
    trials: list[int]
    worth: list[float]
    tasks: list[str | None]

    @property
    def hits(self) -> list[float]:
        """``applied``, scaled as the trials are."""
        return [min(x * w / n, w) for x, n, w in zip(self.applied, self.trials, self.worth, strict=True)]

    @property
    def clustered(self) -> bool:
        """Whether every trial names its task."""
        return None not in self.tasks


ByCell = Mapping[Key, Counts]


def by_parameter(evidence: Evidence) -> dict[str, dict[Key, Counts]]:
    """Return the counts of each parameter, by cell; cells without a trial are left out."""
    found: dict[str, dict[Key, Counts]] = {}
    rows = (row for row in evidence.rates.iter_rows() if row[-1])
    for (*key, parameter, task), runs in groupby(rows, key=lambda row: row[:-4]):
        cell = found.setdefault(parameter, {}).setdefault(tuple(key), Counts([], [], [], []))
        told = [(seed, x, n) for *_, seed, _, x, n in runs]
        cell.applied.append(sum(x for _, x, _ in told))
        cell.trials.append(sum(n for _, _, n in told))
        cell.worth.append(worth_of((seed, n) for seed, _, n in told))
        cell.tasks.append(task)
    return found


def worth_of(runs: Iterable[tuple[str | None, int]]) -> float:
    """Return what trials come to, given the seed and the number of each run."""
    by_seed: dict[str | None, list[int]] = {}
    for seed, n in runs:
        by_seed.setdefault(seed, []).append(n)
    return sum(float(sum(each)) if seed is None else unrepeated(each) for seed, each in by_seed.items())


def correlation(counts: ByCell) -> float | None:
    """Return how alike two trials of one task are, given the cell's rate; None where nothing tells."""
    told = [(at, each) for at, each in enumerate(counts.values()) if each.clustered]
    y = [y for _, each in told for y in each.hits]
    m = [m for _, each in told for m in each.worth]
    return intra_cluster_correlation(y, m, [at for at, each in told for _ in each.worth])


def estimate(
    evidence: Evidence,
    parameter: str,
    counts: ByCell,
    *,
    pooled: bool,
    confidence: float,
    correlation: float | None,
) -> list[Rate]:
    """Return one rate of every cell of the grid.

    Parameters
    ----------
    evidence : Evidence
    parameter : str
    counts : mapping of cell to Counts
    pooled : bool
        Learn from the other models with the same shape, and whatever else the fit goes by.
    confidence : float
    correlation : float or None
        Of two trials of one task.
    """
    known = _known(parameter, counts, confidence, correlation or 0.0)
    found = {key: known.get(key) or _unknown(evidence, key, parameter) for key in evidence.keys}
    if pooled:
        at = evidence.by.index("model")
        groups: dict[Key, list[Key]] = {}
        for key in evidence.keys:
            groups.setdefault(key[:at] + key[at + 1 :], []).append(key)
        for group in groups.values():
            found |= _pooled({key: found[key] for key in group}, confidence)
    return list(found.values())


def _unknown(evidence: Evidence, key: Key, parameter: str) -> Rate:
    why = evidence.why.get((key, parameter))
    if why is not None:
        return Rate(key, parameter, status="unidentified", reason=why)
    status = "no data" if parameter in CELLS else "unidentified"
    return Rate(key, parameter, status=status, reason=MISSING[parameter])


def _known(parameter: str, counts: ByCell, confidence: float, correlation: float) -> dict[Key, Rate]:
    totals = [(sum(each.applied), sum(each.trials), sum(each.worth)) for each in counts.values()]
    n = np.array([worth for _, _, worth in totals], dtype=np.float64)
    x = np.minimum(np.array([hits * worth / total for hits, total, worth in totals], dtype=np.float64), n)
    bounds = jeffreys(x, n, confidence=confidence)
    across = _across_tasks({key: each for key, each in counts.items() if each.clustered}, confidence)
    rates = {}
    for at, (key, each) in enumerate(counts.items()):
        hits, total, worth = totals[at]
        worth /= design_effect(each.worth, correlation) if each.clustered else 1.0
        effective = hits * worth / total
        rates[key] = Rate(
            key,
            parameter,
            applied=hits,
            trials=total,
            rate=hits / total,
            interval=(float(bounds.lo[at]), float(bounds.hi[at])),
            clusters=len(each.trials) if each.clustered else None,
            cluster_interval=across.get(key),
            worth=worth,
            posterior=(effective + PRIOR, worth - effective + PRIOR),
        )
    return rates


def _across_tasks(counts: ByCell, confidence: float) -> dict[Key, Pair]:
    """Return the interval of each cell that takes tasks for what is independent; cells of as many tasks at once."""
    sizes: dict[int, list[Key]] = {}
    for key, each in counts.items():
        sizes.setdefault(len(each.trials), []).append(key)
    found: dict[Key, Pair] = {}
    for keys in sizes.values():
        bounds = cluster_robust_rate(
            [counts[key].hits for key in keys], [counts[key].worth for key in keys], confidence=confidence
        )
        found |= {key: (float(bounds.lo[at]), float(bounds.hi[at])) for at, key in enumerate(keys)}
    return found


def _pooled(group: Mapping[Key, Rate], confidence: float) -> dict[Key, Rate]:
    """Learn the cells of one group from each other; one alone stays as it is."""
    rates: Sequence[Rate] = list(group.values())
    if sum(each.trials > 0 for each in rates) < 2:
        return dict(group)
    n = np.array([each.worth for each in rates])
    x = n * np.array([each.rate or 0.0 for each in rates])
    together = pool(x, n)
    means, bounds = together.mean, together.interval(confidence=confidence)
    alpha, beta = together.matched()
    return {
        each.key: replace(
            each,
            pooled=float(means[at]),
            pooled_interval=(float(bounds.lo[at]), float(bounds.hi[at])),
            posterior=(float(alpha[at]), float(beta[at])),
        )
        for at, each in enumerate(rates)
    }


def predictive(rate: Rate, *, confidence: float = 0.95) -> tuple[int, int] | None:
    """Return the interval of the number applied that the posterior predicts for as many trials again.

    Quantiles of the beta-binomial distribution, to within one count; None without a posterior or a trial.
    """
    if rate.posterior is None or not rate.trials:
        return None
    if rate.trials > SUMMED:
        return _predictive_of_many(rate.trials, *rate.posterior, confidence)
    from scipy.stats import betabinom

    lo, hi = betabinom.interval(confidence, rate.trials, *rate.posterior)
    return int(lo), int(hi)


def _predictive_of_many(n: int, alpha: float, beta: float, confidence: float) -> tuple[int, int]:
    """Return the interval from the beta distribution that has the mean and variance of the share."""
    from scipy.special import betaincinv

    size = n * ((alpha + beta + 1.0) / (alpha + beta + n)) - 1.0
    mean, out = alpha / (alpha + beta), tail(confidence)
    lo, hi = (float(betaincinv(mean * size, (1.0 - mean) * size, at)) for at in (out, 1.0 - out))
    return math.floor(n * lo), min(math.ceil(n * hi), n)
