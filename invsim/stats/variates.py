"""Control variates: what an exact model knows of a run's own random numbers, taken off its estimate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from invsim.errors import InputError
from invsim.stats.arrays import Floats, finite
from invsim.stats.intervals import Interval, t_interval

FLAT = 1e-10
"""Share of the largest direction of the controls below which a direction counts as constant."""


@dataclass(frozen=True, eq=False)
class Controlled:
    """A mean corrected by controls.

    Parameters
    ----------
    value : float
    se : float
        Standard error, the estimation of the coefficients included.
    df : int
        Degrees of freedom: n - 1 - k for k controls that vary and are not combinations of each other.
    gain : float
        Variance of the plain mean over that of this one, as measured; below 1 where the controls cost more than they
        bring. Infinite if the controls explain everything; 1 if nothing varies.
    coefficients : ndarray, shape (k,)
        What was taken off, per unit that a control's mean is above its known mean.
    """

    value: float
    se: float
    df: int
    gain: float
    coefficients: Floats

    def interval(self, *, confidence: float = 0.95) -> Interval:
        """Return value -+ t(df) se."""
        return t_interval(self.value, self.se, self.df, confidence=confidence)


def control_variate(values: npt.ArrayLike, controls: npt.ArrayLike, means: npt.ArrayLike) -> Controlled:
    """Estimate a mean with the help of controls whose means are known.

    value = mean(y) - b' (mean(c) - mu), with b the least-squares coefficients of y on c;
    se^2 = s^2 [1/n + (mean(c) - mu)' S^-1 (mean(c) - mu)], with s^2 the residual variance over n - 1 - k and S the
    centred sums of products of c. Lavenberg and Welch (1981), Management Science 27, 322; exact for normal (y, c).

    Parameters
    ----------
    values : array_like, shape (n,)
        One per stream.
    controls : array_like, shape (n,) or (n, k)
        Of the same streams.
    means : array_like, shape () or (k,)
        Their exact means, of the same random numbers' distribution. A wrong mean biases the result.

    Returns
    -------
    Controlled

    Raises
    ------
    InputError
        If shapes do not match, a number is not finite, or n is below k + 2.
    """
    y, c, mu = finite(values, what="values"), finite(controls, what="controls"), finite(means, what="means")
    if c.ndim == 1:
        c = c[:, None]
    mu = np.atleast_1d(mu)
    if y.ndim != 1 or c.ndim != 2 or len(c) != len(y) or mu.shape != (c.shape[1],):
        raise InputError(
            "values must have shape (n,), controls (n,) or (n, k) and means () or (k,)",
            value=(y.shape, np.shape(controls), np.shape(means)),
        )
    n, k = c.shape
    if n < k + 2:
        raise InputError(f"{k} controls need at least {k + 2} streams", value=n)
    away = c.mean(axis=0) - mu
    # Directions of the scaled, centred controls; the flat ones explain nothing and are left out.
    size = c.std(axis=0)
    scale = np.where(size > FLAT * np.maximum(np.abs(c).max(axis=0), 1e-300), size, np.inf)
    left, singular, right = np.linalg.svd((c - c.mean(axis=0)) / scale, full_matrices=False)
    kept = singular > FLAT * max(float(singular.max(initial=0.0)), 1e-300)
    along, directions = left[:, kept].T @ (y - y.mean()), right[kept] / singular[kept, None]
    coefficients = (directions.T @ along) / scale
    df = n - 1 - int(kept.sum())
    residual = y - y.mean() - left[:, kept] @ along
    variance = float(residual @ residual) / df
    reach = directions @ (away / scale)
    se2 = variance * (1.0 / n + float(reach @ reach))
    plain = float(y.var(ddof=1)) / n
    gain = plain / se2 if se2 > 0 else (np.inf if plain > 0 else 1.0)
    return Controlled(float(y.mean() - coefficients @ away), float(np.sqrt(se2)), df, float(gain), coefficients)
