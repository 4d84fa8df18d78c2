"""Comparing arms that met common random numbers: stream by stream, from arrays or from moments."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from invsim.errors import InputError, UnknownNameError
from invsim.stats.arrays import Floats, finite, tail
from invsim.stats.intervals import Interval, t_interval


@dataclass(frozen=True, eq=False)
class Difference:
    """The difference of two means over the same streams, first less second; every field has shape (...).

    Parameters
    ----------
    value : ndarray
    se : ndarray
        Of the paired difference; NaN from fewer than two streams.
    n : ndarray
        Streams.
    gain : ndarray
        Variance of the difference had the arms been run independently, over its variance as paired:
        (s_a^2 + s_b^2) / s_{a-b}^2. So many times more streams would the independent comparison have needed. Infinite
        where the difference never varies but the arms do; 1 where nothing varies; NaN from fewer than two streams.
    comparisons : int
        How many comparisons share the error probability (Bonferroni).
    """

    value: Floats
    se: Floats
    n: Floats
    gain: Floats
    comparisons: int = 1

    def interval(self, *, confidence: float = 0.95) -> Interval:
        """Return value -+ t(n - 1) se, at 1 - (1 - confidence) / comparisons.

        All ``comparisons`` intervals hold together with at least ``confidence``. The whole line from fewer than two
        streams.
        """
        each = 1.0 - 2.0 * tail(confidence) / self.comparisons
        return t_interval(self.value, np.where(self.n > 1, self.se, 0.0), self.n - 1, confidence=each)

    def p_value(self) -> Floats:
        """Return the two-sided p value of no difference, times ``comparisons``, at most 1; 1 where it is unknown."""
        from scipy.special import stdtr

        known = (self.n > 1) & (self.se > 0)
        t = np.where(known, np.abs(self.value) / np.where(known, self.se, 1.0), 0.0)
        two_sided = 2.0 * stdtr(np.maximum(self.n - 1, 1), -t)
        # A difference that is the same in every stream is no accident, and one of 0 is none.
        certain = (self.n > 1) & (self.se == 0) & (self.value != 0)
        return np.where(certain, 0.0, np.minimum(two_sided * self.comparisons, 1.0))


def compare(first: npt.ArrayLike, second: npt.ArrayLike, *, comparisons: int = 1) -> Difference:
    """Compare two arms on common random numbers.

    d = a - b stream by stream; its mean, and s_d / sqrt(n) as its standard error. Law (2015), Simulation Modeling and
    Analysis, section 10.2.1.

    Parameters
    ----------
    first, second : array_like, shape (..., n)
        A number per stream; the same place is the same stream in both.
    comparisons : int
        1 or more; see ``Difference``.

    Returns
    -------
    Difference, shape (...)

    Raises
    ------
    InputError
        If the shapes differ, there is no stream, or a number is not finite.
    """
    a, b = finite(first, what="the first arm"), finite(second, what="the second arm")
    if a.shape != b.shape or a.ndim == 0 or not a.shape[-1]:
        raise InputError("both arms must have one shape (..., n), n of 1 or more", value=(a.shape, b.shape))
    n = a.shape[-1]
    d = a - b
    ddof = 1 if n > 1 else 0
    vd, va, vb = (each.var(axis=-1, ddof=ddof) for each in (d, a, b))
    return _difference(d.mean(axis=-1), vd, va, vb, n, comparisons)


def compare_moments(
    means: tuple[npt.ArrayLike, npt.ArrayLike],
    variances: tuple[npt.ArrayLike, npt.ArrayLike],
    covariance: npt.ArrayLike,
    n: npt.ArrayLike,
    *,
    comparisons: int = 1,
) -> Difference:
    """Compare two arms of which only moments were kept; the same result as ``compare`` on the streams.

    s_d^2 = s_a^2 + s_b^2 - 2 s_ab. If the arms are nearly equal the difference of large moments loses digits: keep
    the moments of d itself then.

    Parameters
    ----------
    means, variances : pair of array_like
        Of the first and the second arm; sample variances, over n - 1.
    covariance : array_like
        Sample covariance over the same streams; 0 for arms that met independent random numbers, where the t interval
        has at least its n - 1 degrees of freedom.
    n : array_like
        Streams.
    comparisons : int
        1 or more; see ``Difference``.

    Returns
    -------
    Difference, of the shape that all of these broadcast to

    Raises
    ------
    InputError
        If a variance is negative, the covariance larger than the variances allow, or n below 1.
    """
    a, b = (finite(each, what="means") for each in means)
    va, vb = (finite(each, what="variances") for each in variances)
    cab, number = finite(covariance, what="the covariance"), finite(n, what="n")
    if (number < 1).any():
        raise InputError("n must be 1 or more", value=float(number.min()))
    if (va < 0).any() or (vb < 0).any():
        raise InputError("variances must be 0 or more", value=float(min(va.min(), vb.min())))
    if (np.abs(cab) > np.sqrt(va * vb) * (1.0 + 1e-9) + 1e-300).any():
        raise InputError("the covariance must not exceed the root of the product of the variances", value=covariance)
    spread = va + vb - 2.0 * cab
    # What is left of equal moments by rounding is not a variance.
    spread = np.where(spread <= 1e-14 * (va + vb), 0.0, spread)
    return _difference(a - b, spread, va, vb, number, comparisons)


def _difference(
    value: npt.ArrayLike,
    paired: npt.ArrayLike,
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    n: npt.ArrayLike,
    many: int,
) -> Difference:
    if many < 1:
        raise InputError("comparisons must be 1 or more", value=many)
    d, vd, va, vb, number = (
        np.asarray(each, dtype=np.float64) for each in np.broadcast_arrays(value, paired, first, second, n)
    )
    apart = va + vb
    gain = np.where(vd > 0, apart / np.where(vd > 0, vd, 1.0), np.where(apart > 0, np.inf, 1.0))
    known = number > 1
    return Difference(d, np.where(known, np.sqrt(vd / number), np.nan), number, np.where(known, gain, np.nan), many)


def compare_all(arms: Mapping[str, npt.ArrayLike], *, baseline: str | None = None) -> dict[tuple[str, str], Difference]:
    """Compare every pair of arms, or every arm with a baseline, with Bonferroni's correction for their number.

    Parameters
    ----------
    arms : mapping of name to array_like, shape (n,)
        At least two; the same place is the same stream in all.
    baseline : str, optional
        Name of the arm that all others are compared with.

    Returns
    -------
    dict
        (first, second) to first less second: (arm, baseline) with a baseline, pairs in the order of ``arms`` without.

    Raises
    ------
    InputError
        For fewer than two arms, or shapes that differ.
    UnknownNameError
        If the baseline is none of the arms.
    """
    if len(arms) < 2:
        raise InputError("there must be at least two arms", value=list(arms))
    if baseline is not None and baseline not in arms:
        raise UnknownNameError("arm", baseline, arms)
    pairs = (
        list(itertools.combinations(arms, 2))
        if baseline is None
        else [(name, baseline) for name in arms if name != baseline]
    )
    return {(one, two): compare(arms[one], arms[two], comparisons=len(pairs)) for one, two in pairs}
