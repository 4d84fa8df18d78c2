"""Maximum likelihood on bounded parameters, and what lies around the maximum: covariance, profile intervals.

Interior parameters are handled by the log odds of their place in their domain, where likelihoods of rates are closest
to normal. A parameter whose best value is an end of its domain is at a boundary: it has a limit on one side only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Point = Mapping[str, float]

GRID = (0.0, 0.1, 0.5, 0.9, 1.0)
"""Places in a domain that the first sweep looks at, so that it starts near the best one."""

NEAR = 1e-5
"""Share of a domain by which a value just inside an end is told from the end."""

STEP = 0.02
"""Log odds by which second derivatives are taken."""

FINE = 0.002
"""Log odds by which first derivatives are taken: where they vanish is the maximum, so they must be sharp."""

SWEEPS = 40
NEWTON = 30
SMALL = 1e-5
"""Log odds by which the last step may still move a parameter."""

FLAT = 0.02
"""Least curvature by log odds: less is a direction that the likelihood does not bound."""

RUNAWAY = 7.0
"""Log odds from which a climbing parameter is tried at the end of its domain."""

FAR = 16.0
"""Log odds beyond which a limit counts as the end of the domain."""


@dataclass(frozen=True)
class Bounds:
    """A named parameter and its domain."""

    name: str
    low: float
    high: float

    def odds(self, value: float) -> float:
        """Return the log odds of a value's place in the domain."""
        return float(np.log((value - self.low) / (self.high - value)))

    def value(self, odds: float) -> float:
        """Return the value at some log odds."""
        return self.low + (self.high - self.low) / (1.0 + float(np.exp(-odds)))

    def at_end(self, value: float) -> bool:
        """Whether a value is an end of the domain."""
        return value in {self.low, self.high}


@dataclass(frozen=True, eq=False)
class Maximum:
    """A maximum of a log likelihood.

    Parameters
    ----------
    log_likelihood : float
    values : mapping of name to float
    interior : tuple of Bounds
        Parameters that are not at an end of their domain.
    covariance : ndarray, shape (interior, interior)
        Of their log odds: minus the inverse of the second derivatives.
    """

    objective: Callable[[Point], float] = field(repr=False)
    parameters: tuple[Bounds, ...]
    log_likelihood: float
    values: dict[str, float]
    interior: tuple[Bounds, ...]
    covariance: Floats

    def sd(self, name: str) -> float:
        """Return the standard deviation of an interior parameter, by the delta method."""
        at = [each.name for each in self.interior].index(name)
        return self.slope(name) * float(np.sqrt(max(self.covariance[at, at], 0.0)))

    def slope(self, name: str) -> float:
        """Return how a parameter moves with its log odds."""
        bounds, value = next(each for each in self.parameters if each.name == name), self.values[name]
        return (value - bounds.low) * (bounds.high - value) / (bounds.high - bounds.low)

    def interval(self, name: str, *, confidence: float) -> tuple[float, float]:
        """Return the values that a likelihood ratio does not reject, the others following along their best path.

        Inside the domain, where 2 (max - profile) is at most the quantile of chi-squared at 1 degree of freedom. From
        an end, where the profile is at least 1 - confidence times its maximum: for x of n at x = n that is the exact
        one-sided limit of Clopper and Pearson (1934).
        """
        from scipy.special import chdtri

        bounds = next(each for each in self.parameters if each.name == name)
        value = self.values[name]
        if bounds.at_end(value):
            drop = -np.log(1.0 - confidence)
            other = bounds.low if value == bounds.high else bounds.high
            limit = self._limit(bounds, other, drop)
            return (limit, value) if other == bounds.low else (value, limit)
        drop = 0.5 * float(chdtri(1, 1.0 - confidence))
        return self._limit(bounds, bounds.low, drop), self._limit(bounds, bounds.high, drop)

    def _limit(self, bounds: Bounds, end: float, drop: float) -> float:
        """Return where, on the way to an end of the domain, the profile has fallen by ``drop``; else the end."""
        from scipy.optimize import brentq

        value = self.values[bounds.name]
        sign = 1.0 if end == bounds.high else -1.0
        follow = self._following(bounds)

        def short(odds: float) -> float:
            there = bounds.value(odds)
            return self.log_likelihood - self.objective(follow(there)) - drop

        if bounds.at_end(value):
            inner, step = -sign * FAR, 2.0
        else:
            inner = bounds.odds(value)
            step = 1.5 * max(self.sd(bounds.name) / self.slope(bounds.name), 0.05)
        outer = inner + sign * step
        while short(outer) < 0:
            inner, outer = outer, outer + sign * step
            step *= 1.5
            if abs(outer) > FAR and outer * sign > 0:
                return end
        return bounds.value(float(brentq(short, inner, outer, xtol=1e-4)))

    def _following(self, bounds: Bounds) -> Callable[[float], dict[str, float]]:
        """Return the other parameters' best values as one moves away, to first order in their log odds."""
        others = [each for each in self.interior if each.name != bounds.name]
        value = self.values[bounds.name]
        if not others:
            return lambda there: {**self.values, bounds.name: there}
        kept = [at for at, each in enumerate(self.interior) if each.name != bounds.name]
        precision = np.linalg.pinv(self.covariance)[np.ix_(kept, kept)]
        inside = not bounds.at_end(value)
        low = value == bounds.low
        near = (
            bounds.value(bounds.odds(value) + STEP)
            if inside
            else value + (1 if low else -1) * 0.01 * (bounds.high - bounds.low)
        )

        def distance(there: float) -> float:
            return bounds.odds(there) - bounds.odds(value) if inside else abs(there - value)

        gradient = _gradient(self.objective, {**self.values, bounds.name: near}, others)
        slopes = np.linalg.solve(precision, gradient) / distance(near)
        start = {each.name: each.odds(self.values[each.name]) for each in others}

        def follow(there: float) -> dict[str, float]:
            moved = {
                each.name: each.value(float(np.clip(start[each.name] + slope * distance(there), -FAR, FAR)))
                for each, slope in zip(others, slopes, strict=True)
            }
            return {**self.values, **moved, bounds.name: there}

        return follow


def maximise(
    objective: Callable[[Point], float],
    parameters: Sequence[Bounds],
    start: Point,
    *,
    near: bool = False,
    tolerance: float = 0.02,
) -> Maximum:
    """Return the maximum of a log likelihood: coordinate by coordinate, then by Newton's method.

    Parameters
    ----------
    objective : callable
    parameters : sequence of Bounds
    start : mapping of name to float
    near : bool
        Whether the start is known to be near the maximum, so that the whole of each domain need not be looked at.
    tolerance : float
        Share of a domain by which the last sweep may still move a parameter; Newton's method does the rest.
    """
    values = dict(start)
    reach = 0.01
    for sweep in range(SWEEPS):
        moved = 0.0
        for each in parameters:
            best = _best(objective, values, each, reach if sweep or near else None)
            moved = max(moved, abs(best - values[each.name]) / (each.high - each.low))
            values[each.name] = best
        if (sweep or near) and moved < tolerance:
            break
        reach = min(1.0, 3.0 * max(moved, tolerance))
    values = _climbed(objective, values, parameters)
    interior = _interior(parameters, values)
    covariance = _inverse(-_hessian(objective, values, interior))
    return Maximum(objective, tuple(parameters), objective(values), values, interior, covariance)


def _interior(parameters: Sequence[Bounds], values: Point) -> tuple[Bounds, ...]:
    return tuple(each for each in parameters if not each.at_end(values[each.name]))


def _inverse(precision: Floats) -> Floats:
    """Return the inverse; along what the likelihood does not bound, a variance that is large but finite."""
    if not precision.size:
        return precision
    size, axes = np.linalg.eigh(precision)
    inverse: Floats = (axes / np.maximum(size, FLAT)) @ axes.T
    return inverse


def _best(objective: Callable[[Point], float], values: Point, each: Bounds, reach: float | None) -> float:
    from scipy.optimize import minimize_scalar

    width = each.high - each.low
    now = values[each.name]

    def at(value: float) -> float:
        return objective({**values, each.name: value})

    if reach is None:
        places = [each.low + width * place for place in GRID]
    elif each.at_end(now) and at(_inward(each, now)) <= at(now):
        return now
    else:
        places = [max(each.low, now - reach * width), min(each.high, now + reach * width)]
    places = sorted({*places, now})
    found = [at(place) for place in places]
    top = int(np.argmax(found))
    best, height = places[top], found[top]
    if each.at_end(best) and at(_inward(each, best)) <= height:
        return best
    inside = minimize_scalar(
        lambda value: -at(value),
        bounds=(places[max(top - 1, 0)], places[min(top + 1, len(places) - 1)]),
        method="bounded",
        options={"xatol": 2e-5 * width},
    )
    return float(inside.x) if -inside.fun > height else best


def _inward(each: Bounds, end: float) -> float:
    """Return a value just inside an end of the domain."""
    return end + (NEAR if end == each.low else -NEAR) * (each.high - each.low)


def _climbed(objective: Callable[[Point], float], values: Point, parameters: Sequence[Bounds]) -> dict[str, float]:
    """Climb by Newton's method from where coordinate steps have led; a parameter that runs away goes to its end."""
    now = dict(values)
    for _ in range(NEWTON):
        interior = _interior(parameters, now)
        if not interior:
            break
        step = _uphill(objective, now, interior)
        height, moved = objective(now), _moved(now, interior, step)
        while objective(moved) < height and float(np.abs(step).max()) > SMALL:
            step = step / 3.0
            moved = _moved(now, interior, step)
        if objective(moved) < height:
            break
        now = _ended(objective, moved, interior)
        if float(np.abs(step).max()) < SMALL:
            break
    return now


def _uphill(objective: Callable[[Point], float], values: Point, interior: Sequence[Bounds]) -> Floats:
    """Return Newton's step with every curvature taken for that of a summit; off a saddle, along its steepest way."""
    gradient = _gradient(objective, values, interior)
    size, axes = np.linalg.eigh(-_hessian(objective, values, interior))
    step: Floats = axes @ ((axes.T @ gradient) / np.maximum(np.abs(size), FLAT))
    if size[0] < -FLAT and float(np.abs(step).max()) < 0.1:
        ways = [sign * 0.5 * axes[:, 0] for sign in (1.0, -1.0)]
        return max(ways, key=lambda way: objective(_moved(values, interior, way)))
    return np.asarray(np.clip(step, -1.0, 1.0))


def _ended(
    objective: Callable[[Point], float], values: dict[str, float], interior: Sequence[Bounds]
) -> dict[str, float]:
    """Put a parameter that has run far out at the end of its domain, where that is no worse."""
    for each in interior:
        odds = each.odds(values[each.name])
        at_end = {**values, each.name: each.high if odds > 0 else each.low}
        if abs(odds) > RUNAWAY and objective(at_end) >= objective(values):
            values = at_end
    return values


def _moved(values: Point, parameters: Sequence[Bounds], shift: Floats) -> dict[str, float]:
    moved = dict(values)
    for each, by in zip(parameters, shift, strict=True):
        odds = each.odds(values[each.name]) + by
        moved[each.name] = each.value(float(np.clip(odds, -FAR, FAR)))
    return moved


def _gradient(objective: Callable[[Point], float], values: Point, parameters: Sequence[Bounds]) -> Floats:
    steps = FINE * np.eye(len(parameters))
    both = [(objective(_moved(values, parameters, by)), objective(_moved(values, parameters, -by))) for by in steps]
    return np.array([(up - down) / (2.0 * FINE) for up, down in both])


def _hessian(objective: Callable[[Point], float], values: Point, parameters: Sequence[Bounds]) -> Floats:
    size = len(parameters)
    steps = STEP * np.eye(size)
    middle = objective(values) if size else 0.0
    found = np.zeros((size, size))
    for i in range(size):
        ups = objective(_moved(values, parameters, steps[i]))
        downs = objective(_moved(values, parameters, -steps[i]))
        found[i, i] = (ups - 2.0 * middle + downs) / STEP**2
    for i in range(size):
        for j in range(i):
            corners = [
                objective(_moved(values, parameters, s * steps[i] + t * steps[j])) * s * t
                for s in (1.0, -1.0)
                for t in (1.0, -1.0)
            ]
            found[i, j] = found[j, i] = sum(corners) / (4.0 * STEP**2)
    return found
