"""An interval for a rate that may be looked at after every trial, and stopped at whenever it says enough.

An ordinary 95% interval that is looked at again and again misses the rate far more often than in 5% of all studies.
This one does so in at most 5% of them however it is looked at, at the price of some width.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from invsim.stats.arrays import Floats, counts, tail
from invsim.stats.intervals import Interval

HALVINGS = 60


def confidence_sequence(
    successes: npt.ArrayLike, trials: npt.ArrayLike, *, confidence: float = 0.95, prior: float = 0.5
) -> Interval:
    """Return the rates p that a mixture of all rates does not outbid.

    p stays in while p^x (1 - p)^(n - x) > (1 - confidence) B(a + x, a + n - x) / B(a, a), a = ``prior``. At the true
    rate the ratio of the two sides is a martingale of mean 1, so by Ville's inequality it ever reaches
    1 / (1 - confidence) with probability 1 - confidence at most: that bounds the chance that the interval, at any
    number of trials, leaves the rate out. Robbins (1970), Annals of Mathematical Statistics 41, 1397.

    Parameters
    ----------
    successes, trials : array_like
        x and n; 0 <= x <= n, shapes that broadcast. Without trials the interval is [0, 1].
    confidence : float
        In (0, 1), over all looks together.
    prior : float
        Above 0; any value is valid, 1/2 is narrow where the rate is near 0 or 1.

    Returns
    -------
    Interval

    Raises
    ------
    InputError
    """
    from scipy.special import betaln, xlog1py, xlogy

    x, n = counts(successes, trials)
    least = np.log(2.0 * tail(confidence)) + betaln(prior + x, prior + n - x) - betaln(prior, prior)
    middle = x / np.where(n > 0, n, 1.0)

    def inside(p: Floats) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = xlogy(x, p) + xlog1py(n - x, -p) > least
        return found

    def limit(end: float) -> Floats:
        out, within = np.full(x.shape, end), middle
        for _ in range(HALVINGS):
            half = (out + within) / 2.0
            good = inside(half)
            out, within = np.where(good, out, half), np.where(good, half, within)
        return out

    return Interval(np.where(x > 0, limit(0.0), 0.0), np.where(x < n, limit(1.0), 1.0))
