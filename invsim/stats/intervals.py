"""Intervals for a rate, a mean and a ratio, over arrays of any shape.

An interval is never NaN: what the data do not bound is infinite, or 0 and 1 for a rate. Intervals for episodes that
come in streams or tasks are in ``invsim.stats.clusters``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from invsim.errors import InputError
from invsim.stats.arrays import Floats, counts, finite, t_quantile, tail, z_quantile


@dataclass(frozen=True, eq=False)
class Interval:
    """Lower and upper limits, both of the shape of what they bound (0-dimensional for a single number)."""

    lo: Floats
    hi: Floats

    @property
    def width(self) -> Floats:
        """Upper less lower limit."""
        return np.asarray(self.hi - self.lo)

    def contains(self, value: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Return where the interval holds ``value``, limits included."""
        inside: npt.NDArray[np.bool_] = (self.lo <= np.asarray(value)) & (np.asarray(value) <= self.hi)
        return inside

    def pair(self) -> tuple[float, float]:
        """Return the limits of a single interval as plain numbers.

        Raises
        ------
        InputError
            If there are several.
        """
        if self.lo.size != 1:
            raise InputError("pair() is for one interval; use lo and hi", value=self.lo.shape)
        return float(self.lo.item()), float(self.hi.item())


# Rates: independent trials -------------------------------------------------------------------------------------------


def clopper_pearson(successes: npt.ArrayLike, trials: npt.ArrayLike, *, confidence: float = 0.95) -> Interval:
    """Return the exact interval, which covers at least ``confidence`` whatever the rate, and usually more.

    lo = B^-1(a/2; x, n - x + 1), hi = B^-1(1 - a/2; x + 1, n - x), with B^-1 the beta quantile; lo = 0 at x = 0 and
    hi = 1 at x = n. Clopper and Pearson (1934), Biometrika 26, 404.

    Parameters
    ----------
    successes, trials : array_like
        x and n; 0 <= x <= n, shapes that broadcast. Without trials the interval is [0, 1].
    confidence : float
        In (0, 1).

    Returns
    -------
    Interval

    Raises
    ------
    InputError
    """
    from scipy.special import betaincinv

    x, n = counts(successes, trials)
    out = tail(confidence)
    # A parameter of 0 has a closed limit; 1 stands in for it there, and is not used.
    lo = np.where(x > 0, betaincinv(np.where(x > 0, x, 1.0), n - x + 1.0, out), 0.0)
    hi = np.where(x < n, betaincinv(x + 1.0, np.where(x < n, n - x, 1.0), 1.0 - out), 1.0)
    return Interval(lo, hi)


def jeffreys(successes: npt.ArrayLike, trials: npt.ArrayLike, *, confidence: float = 0.95) -> Interval:
    """Return the equal-tailed posterior interval under the prior Beta(1/2, 1/2).

    [B^-1(a/2; x + 1/2, n - x + 1/2), B^-1(1 - a/2; ...)], except at x = 0 and x = n, where it is that of Clopper and
    Pearson: [0, 1 - (a/2)^(1/n)] and its mirror image. Brown, Cai and DasGupta (2001), Statistical Science 16, 101,
    section 4.1, without their change at x = 1 and n - 1.

    Parameters
    ----------
    successes, trials : array_like
        x and n; 0 <= x <= n, shapes that broadcast. Without trials the interval is [0, 1].
    confidence : float
        In (0, 1).

    Returns
    -------
    Interval

    Raises
    ------
    InputError
    """
    from scipy.special import betaincinv

    x, n = counts(successes, trials)
    out = tail(confidence)
    edge = clopper_pearson(x, n, confidence=confidence)
    inside = (x > 0) & (x < n)
    lo = np.where(inside, betaincinv(x + 0.5, n - x + 0.5, out), edge.lo)
    hi = np.where(inside, betaincinv(x + 0.5, n - x + 0.5, 1.0 - out), edge.hi)
    return Interval(lo, hi)


def wilson(successes: npt.ArrayLike, trials: npt.ArrayLike, *, confidence: float = 0.95) -> Interval:
    """Return the rates that a score test does not reject.

    (x + z^2/2 -+ z sqrt(x (n - x) / n + z^2/4)) / (n + z^2). Wilson (1927), JASA 22, 209.

    Parameters
    ----------
    successes, trials : array_like
        x and n; 0 <= x <= n, shapes that broadcast. Without trials the interval is [0, 1].
    confidence : float
        In (0, 1).

    Returns
    -------
    Interval

    Raises
    ------
    InputError
    """
    x, n = counts(successes, trials)
    z2 = z_quantile(confidence) ** 2
    spread = np.sqrt(z2 * (x * (n - x) / np.where(n > 0, n, 1.0) + z2 / 4.0))
    lo, hi = (x + z2 / 2.0 - spread) / (n + z2), (x + z2 / 2.0 + spread) / (n + z2)
    # Rounding must not push a limit off the end it stands at.
    return Interval(np.where(x > 0, lo, 0.0), np.where(x < n, hi, 1.0))


# Means and ratios: independent streams -------------------------------------------------------------------------------


def t_interval(value: npt.ArrayLike, se: npt.ArrayLike, df: npt.ArrayLike, *, confidence: float = 0.95) -> Interval:
    """Return value -+ t se, with t the quantile of Student's t at ``df`` degrees of freedom.

    Parameters
    ----------
    value, se, df : array_like
        Shapes that broadcast. Below one degree of freedom the t distribution is still used; at 0 or less the interval
        is the whole line, even where ``se`` is 0.
    confidence : float
        In (0, 1).

    Returns
    -------
    Interval
    """
    middle, error, freedom = np.broadcast_arrays(
        np.asarray(value, dtype=np.float64), np.asarray(se, dtype=np.float64), np.asarray(df, dtype=np.float64)
    )
    known = freedom > 0
    half = np.where(known, t_quantile(np.where(known, freedom, 1.0), confidence) * np.where(known, error, 0.0), np.inf)
    return Interval(middle - half, middle + half)


def mean_t(values: npt.ArrayLike, *, confidence: float = 0.95) -> Interval:
    """Return Student's interval for the mean of independent values.

    mean -+ t(n - 1) s / sqrt(n).

    Parameters
    ----------
    values : array_like, shape (..., n)
        Streams in the last axis. Fewer than two give the whole line. Values that are all equal give an interval of
        width 0: where they can vary, that is the sample's accident and no knowledge.
    confidence : float
        In (0, 1).

    Returns
    -------
    Interval, shape (...)

    Raises
    ------
    InputError
        If a value is not finite, or there is no axis.
    """
    data = finite(values, what="values")
    if data.ndim == 0:
        raise InputError("values must have at least one axis", value=float(data))
    n = data.shape[-1]
    if n < 2:
        whole = np.full(data.shape[:-1], np.inf)
        return Interval(-whole, whole)
    return t_interval(data.mean(axis=-1), data.std(axis=-1, ddof=1) / np.sqrt(n), n - 1, confidence=confidence)


def _pairs(over: npt.ArrayLike, under: npt.ArrayLike) -> tuple[Floats, Floats]:
    top, bottom = finite(over, what="numerators"), finite(under, what="denominators")
    if top.shape != bottom.shape or top.ndim == 0 or top.shape[-1] < 2:
        raise InputError(
            "numerators and denominators must have one shape (..., n) with n of 2 or more",
            value=(top.shape, bottom.shape),
        )
    return top, bottom


def ratio_delta(over: npt.ArrayLike, under: npt.ArrayLike, *, confidence: float = 0.95) -> Interval:
    """Return the delta method's interval for a ratio of means.

    R = mean(a) / mean(b), se^2 = Var(a - R b) / (n mean(b)^2), R -+ t(n - 1) se. It trusts a denominator whose own
    relative error is small; ``ratio_fieller`` does not need to. Cochran (1977), Sampling Techniques, section 6.3.

    Parameters
    ----------
    over, under : array_like, shape (..., n)
        a and b of the same streams, n of 2 or more.
    confidence : float
        In (0, 1).

    Returns
    -------
    Interval, shape (...)
        The whole line where mean(b) is 0.

    Raises
    ------
    InputError
    """
    top, bottom = _pairs(over, under)
    n = top.shape[-1]
    below = bottom.mean(axis=-1)
    defined = below != 0
    safe = np.where(defined, below, 1.0)
    ratio = top.mean(axis=-1) / safe
    se = (top - ratio[..., None] * bottom).std(axis=-1, ddof=1) / np.sqrt(n) / np.abs(safe)
    return t_interval(ratio, se, np.where(defined, n - 1, 0), confidence=confidence)


def ratio_fieller(over: npt.ArrayLike, under: npt.ArrayLike, *, confidence: float = 0.95) -> Interval:
    """Return Fieller's interval for a ratio of means: every R at which mean(a - R b) is not told from 0.

    The roots of (A - R B)^2 = t^2 (Vaa - 2 R Vab + R^2 Vbb), with A, B the means and V their covariance matrix over
    n. Fieller (1954), JRSS B 16, 175. Exact for normal pairs, and lopsided as the ratio is.

    Parameters
    ----------
    over, under : array_like, shape (..., n)
        a and b of the same streams, n of 2 or more.
    confidence : float
        In (0, 1).

    Returns
    -------
    Interval, shape (...)
        The whole line where the denominator itself cannot be told from 0: the set is then unbounded.

    Raises
    ------
    InputError
    """
    top, bottom = _pairs(over, under)
    n = top.shape[-1]
    a, b = top.mean(axis=-1), bottom.mean(axis=-1)
    da, db = top - a[..., None], bottom - b[..., None]
    scale = t_quantile(n - 1, confidence) ** 2 / (n * (n - 1))
    vaa, vab, vbb = (scale * (left * right).sum(axis=-1) for left, right in ((da, da), (da, db), (db, db)))
    # q R^2 - 2 m R + c <= 0
    q, m, c = b * b - vbb, a * b - vab, a * a - vaa
    bounded = q > 0
    safe = np.where(bounded, q, 1.0)
    root = np.sqrt(np.maximum(m * m - safe * c, 0.0))
    lo, hi = (m - root) / safe, (m + root) / safe
    return Interval(np.where(bounded, lo, -np.inf), np.where(bounded, hi, np.inf))
