"""Estimates of a model that was itself estimated: what not knowing the model adds, apart from Monte Carlo error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from invsim.errors import InputError
from invsim.stats.arrays import tail, z_quantile
from invsim.stats.moments import Estimate


@dataclass(frozen=True)
class Uncertain(Estimate):
    """A number worked out under many draws of a model from its posterior.

    Parameters
    ----------
    value : float or None
        Mean over the draws in which it is defined; None where it is in none.
    se : float or None
        Monte Carlo standard error of ``value``; 0 if every draw was worked out exactly.
    n : int
        Streams of each draw.
    fit_se : float or None
        Standard deviation over the draws: what is not known because the model was estimated. None from fewer than two.
    fit_lo, fit_hi : float or None
        Equal-tailed quantiles over the draws.
    lo, hi : float or None
        The same, wider by the Monte Carlo error on either side, as far as the number can go.
    draws : int
        Draws in which the number is defined.
    """

    fit_se: float | None = None
    fit_lo: float | None = None
    fit_hi: float | None = None
    lo: float | None = None
    hi: float | None = None
    draws: int = 0

    def to_dict(self) -> dict[str, float | int | None]:
        """Return plain data."""
        return {
            **super().to_dict(),
            "fit_se": self.fit_se,
            "fit_lo": self.fit_lo,
            "fit_hi": self.fit_hi,
            "lo": self.lo,
            "hi": self.hi,
        }


ANYTHING = (-math.inf, math.inf)


def over_draws(
    found: Sequence[Estimate], *, confidence: float = 0.95, bounds: tuple[float, float] = ANYTHING
) -> Uncertain:
    """Return what several draws of a model say together.

    The draws meet common random numbers, so their Monte Carlo errors go together and do not average out: the error of
    the mean is at most the root mean square of theirs, which is what ``se`` is, and they add to ``fit_se`` only where
    they differ.

    Parameters
    ----------
    found : sequence of Estimate
        The same number under each draw.
    confidence : float
        In (0, 1).
    bounds : (float, float)
        The least and the greatest that the number can be, beyond which the Monte Carlo error does not carry a limit.

    Raises
    ------
    InputError
    """
    out = tail(confidence)
    if not found:
        raise InputError("there must be at least one draw", value=len(found))
    defined = [(each.value, each.se, each.n) for each in found if each.value is not None]
    if not defined:
        return Uncertain(None, None, 0)
    values = np.array([value for value, _, _ in defined])
    errors = [error for _, error, _ in defined if error is not None]
    error = math.sqrt(math.fsum(each**2 for each in errors) / len(errors)) if len(errors) == len(defined) else None
    low, high = (float(each) for each in np.quantile(values, [out, 1.0 - out]))
    reach = z_quantile(confidence) * (error or 0.0)
    return Uncertain(
        value=float(values.mean()),
        se=error,
        n=max(n for _, _, n in defined),
        fit_se=float(values.std(ddof=1)) if len(values) > 1 else None,
        fit_lo=low,
        fit_hi=high,
        lo=min(low, max(low - reach, bounds[0])),
        hi=max(high, min(high + reach, bounds[1])),
        draws=len(values),
    )
