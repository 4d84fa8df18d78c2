"""What every estimator here needs: arrays made sure of at the border, and quantiles without ``scipy.stats``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from invsim.errors import InputError

Floats = npt.NDArray[np.float64]


def finite(values: npt.ArrayLike, *, what: str) -> Floats:
    """Return ``values`` as floats.

    Raises
    ------
    InputError
        If one of them is not a finite number; the message echoes it.
    """
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} must be numbers", value=values) from error
    wrong = found[~np.isfinite(found)]
    if wrong.size:
        raise InputError(f"{what} must be finite numbers", value=float(wrong[0]))
    return found


def counts(successes: npt.ArrayLike, trials: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Return successes and trials as floats of one common shape.

    Both may be fractional, as effective sample sizes are.

    Raises
    ------
    InputError
        If a count is negative or not finite, if successes exceed trials, or if the shapes do not broadcast.
    """
    hits, of = finite(successes, what="successes"), finite(trials, what="trials")
    try:
        hits, of = np.broadcast_arrays(hits, of)
    except ValueError as error:
        raise InputError(
            "successes and trials must have shapes that broadcast", value=(hits.shape, of.shape)
        ) from error
    for name, each in (("successes", hits), ("trials", of)):
        if (each < 0).any():
            raise InputError(f"{name} must be 0 or more", value=float(each.min()))
    over = hits > of
    if over.any():
        raise InputError("successes must not exceed trials", value=(float(hits[over][0]), float(of[over][0])))
    return hits, of


def tail(confidence: float) -> float:
    """Return the probability left out on either side, (1 - confidence) / 2.

    Raises
    ------
    InputError
        If ``confidence`` is not strictly between 0 and 1.
    """
    if not 0.0 < confidence < 1.0:
        raise InputError("confidence must lie strictly between 0 and 1", value=confidence)
    return (1.0 - confidence) / 2.0


def z_quantile(confidence: float) -> float:
    """Return the upper quantile of the standard normal that leaves ``confidence`` between itself and its negative."""
    from scipy.special import ndtri

    return float(-ndtri(tail(confidence)))


def t_quantile(df: npt.ArrayLike, confidence: float) -> Floats:
    """Return the upper quantile of Student's t that leaves ``confidence`` between itself and its negative.

    Parameters
    ----------
    df : array_like
        Degrees of freedom, fractional allowed; infinite where 0 or less, so that the interval built on it is vacuous.
    confidence : float
        In (0, 1).

    Returns
    -------
    ndarray, shape of ``df``
    """
    from scipy.special import stdtrit

    freedom = np.asarray(df, dtype=np.float64)
    upper = 1.0 - tail(confidence)
    quantile = np.asarray(stdtrit(np.where(freedom > 0, freedom, 1.0), upper), dtype=np.float64)
    return np.where(freedom > 0, quantile, np.inf)
