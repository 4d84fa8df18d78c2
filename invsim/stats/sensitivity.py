"""Which parameter matters: shares of variance over whole ranges, and elasticities at one point."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from invsim.errors import InputError
from invsim.stats.arrays import Floats, tail
from invsim.stats.intervals import Interval

Response = Callable[[Mapping[str, Floats]], npt.ArrayLike]
"""Takes named parameters, each of shape (n,), and returns a result of shape (n,), finite."""

Ranges = Mapping[str, tuple[float, float]]


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """Sobol indices of one result; arrays have shape (parameters,), in the order of ``names``.

    Parameters
    ----------
    names : tuple of str
    first : ndarray
        Share of the variance that a parameter explains alone. Noise can push it a little below 0.
    total : ndarray
        Share that is left when all the others are known: alone and in all interactions.
    first_interval, total_interval : Interval
        Bootstrap percentiles over the base points.
    mean, variance : float
        Of the result over the ranges; indices are NaN where the variance is 0.
    evaluations : int
        Points at which the response was asked for.
    """

    names: tuple[str, ...]
    first: Floats
    total: Floats
    first_interval: Interval
    total_interval: Interval
    mean: float
    variance: float
    evaluations: int


def sobol(
    response: Response,
    ranges: Ranges,
    *,
    n: int = 1024,
    seed: int,
    resamples: int = 299,
    confidence: float = 0.95,
) -> Sensitivity:
    """Share the variance of a result out among its parameters, each uniform and independent over its range.

    Two scrambled Sobol samples A and B of n points, and for each parameter A with that column from B, so n (d + 2)
    points in all; indices by ``scipy.stats.sobol_indices``. Saltelli et al. (2010), Computer Physics Communications
    181, 259.

    Parameters
    ----------
    response : callable
        See ``Response``; called once, with all points.
    ranges : mapping of name to (low, high)
        At least one; low below high.
    n : int
        Base points, a power of 2 of 2 or more. Three parameters want about 1,000 to tell indices of .3 and .4 apart.
    seed : int
        Of the points and of the bootstrap, 0 or more.
    resamples : int
        Bootstrap resamples, 99 or more.
    confidence : float
        In (0, 1). The points are spread more evenly than chance would, so the intervals cover more.

    Returns
    -------
    Sensitivity

    Raises
    ------
    InputError
        For a range, n or a count out of bounds, or a response of the wrong shape or not finite.
    """
    from scipy.stats import qmc

    names = tuple(ranges)
    low, high = _limits(ranges)
    if n < 2 or n & (n - 1):
        raise InputError("n must be a power of 2, 2 or more", value=n)
    if resamples < 99:
        raise InputError("resamples must be 99 or more", value=resamples)
    out = tail(confidence)
    d = len(names)
    points_rng, bootstrap_rng = (np.random.default_rng(each) for each in np.random.SeedSequence(seed).spawn(2))
    both = low + (high - low) * qmc.Sobol(2 * d, rng=points_rng).random(n).reshape(n, 2, d).transpose(1, 0, 2)
    points = np.concatenate([both, np.broadcast_to(both[0], (d, n, d))])
    for at in range(d):
        points[2 + at, :, at] = both[1, :, at]
    values = _ask(response, names, points.reshape(-1, d)).reshape(d + 2, n)
    mean, variance = float(values[:2].mean()), float(values[:2].var())
    first, total = _indices(values)
    replicas = np.array([_indices(values[:, bootstrap_rng.integers(n, size=n)]) for _ in range(resamples)])
    lower, upper = np.quantile(replicas, [out, 1.0 - out], axis=0)
    intervals = [Interval(lower[at], upper[at]) for at in range(2)]
    return Sensitivity(names, first, total, intervals[0], intervals[1], mean, variance, values.size)


def _indices(values: Floats) -> tuple[Floats, Floats]:
    from scipy.stats import sobol_indices

    if not values[:2].var() > 0:
        unknown = np.full(len(values) - 2, np.nan)
        return unknown, unknown
    if len(values) == 3:  # a parameter by itself explains everything
        return np.ones(1), np.ones(1)
    split = {"f_A": values[None, 0], "f_B": values[None, 1], "f_AB": values[2:, None]}
    found = sobol_indices(func=split, n=values.shape[1])
    return np.ravel(found.first_order), np.ravel(found.total_order)


@dataclass(frozen=True)
class Elasticity:
    """How a result answers to one parameter at a point.

    Parameters
    ----------
    slope : float
        d result / d parameter.
    elasticity : float or None
        d ln |result| / d ln |parameter|: percent of the result per percent of the parameter. None where the result
        is 0.
    """

    slope: float
    elasticity: float | None


def elasticities(
    response: Response, at: Mapping[str, float], *, step: float = 0.01, ranges: Ranges | None = None
) -> dict[str, Elasticity]:
    """Move one parameter at a time, a step either way, and return what the result does.

    slope = (f(x + h) - f(x - h)) / 2h with h = step |x|, or step itself at x = 0; near an end of its range a parameter
    moves as far as it may on that side. Elasticity = slope x / f(x). Give the response common random numbers, or noise
    will be taken for slope.

    Parameters
    ----------
    response : callable
        See ``Response``; called once, with 1 + 2 d points.
    at : mapping of name to float
        The point.
    step : float
        Above 0.
    ranges : mapping of name to (low, high), optional
        Where parameters may not leave them; those not named are free.

    Returns
    -------
    dict of name to Elasticity

    Raises
    ------
    InputError
        For a point outside its range, or a response of the wrong shape or not finite.
    """
    if not step > 0:
        raise InputError("step must be above 0", value=step)
    names = tuple(at)
    if not names:
        raise InputError("there must be at least one parameter")
    free = (-np.inf, np.inf)
    low, high = np.array([(ranges or {}).get(name, free) for name in names], dtype=np.float64).T
    middle = np.array([at[name] for name in names], dtype=np.float64)
    for name, x, lo, hi in zip(names, middle, low, high, strict=True):
        if not lo <= x <= hi or lo == hi:
            raise InputError(f"{name} must lie in a range that is not a point, {lo:g} to {hi:g}", value=float(x))
    h = step * np.where(middle == 0, 1.0, np.abs(middle))
    up, down = np.minimum(middle + h, high), np.maximum(middle - h, low)
    values = _ask(response, names, np.vstack([middle, middle + np.diag(up - middle), middle + np.diag(down - middle)]))
    d = len(names)
    slopes = (values[1 : d + 1] - values[d + 1 :]) / (up - down)
    here = float(values[0])
    return {
        name: Elasticity(float(slope), float(slope * x) / here if here else None)
        for name, slope, x in zip(names, slopes, middle, strict=True)
    }


def _limits(ranges: Ranges) -> tuple[Floats, Floats]:
    if not ranges:
        raise InputError("there must be at least one parameter")
    for name, (low, high) in ranges.items():
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise InputError(f"the range of {name} must be finite, its low end below its high end", value=(low, high))
    low, high = np.array(list(ranges.values()), dtype=np.float64).T
    return low, high


def _ask(response: Response, names: tuple[str, ...], points: Floats) -> Floats:
    """Return the response at points of shape (n, parameters)."""
    values = np.asarray(response({name: points[:, at] for at, name in enumerate(names)}), dtype=np.float64)
    if values.shape != (len(points),):
        raise InputError(f"the response must return one number a point, shape {(len(points),)}", value=values.shape)
    if not np.isfinite(values).all():
        raise InputError("the response must be finite", value=float(values[~np.isfinite(values)][0]))
    return values
