"""Intervals when episodes come in streams or tasks: the cluster is what is independent, not the episode.

Clusters stand in the last axis, as the sum over a cluster's episodes and their number; ``cluster_sums`` makes both
from labels. Taken for independent, episodes in clusters of 27 at an intra-cluster correlation of .2 cover .57, not .95.

For a rate, three intervals stand side by side. ``cluster_robust_rate`` assumes nothing about how clusters differ and
covers .945 or more from ten clusters on, at the price of width where the rate is near 0 or 1. ``pooling.pool`` assumes
a beta distribution of the clusters' rates; where that is so its ``population_interval`` covers .95 at .7 to .86 of the
width. The bootstrap is there for those who want neither; clusters that are few and unequal it covers less well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from invsim.errors import InputError
from invsim.stats.arrays import Floats, counts, finite, tail, z_quantile
from invsim.stats.intervals import Interval, clopper_pearson, t_interval

Variant: TypeAlias = Literal["CR1", "CR2", "CR3"]
Resampling: TypeAlias = Literal["t", "bca", "percentile"]

PSEUDO = 0.1
"""Clusters added at either end by ``cluster_robust_rate``."""

NO_SPREAD = 1e-10
"""Share of the observed standard error below which a resample's own counts as none."""


def cluster_sums(values: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Return the sum and the number of the values of each cluster.

    Parameters
    ----------
    values : array_like, shape (n,)
        One per episode.
    labels : array_like, shape (n,)
        The cluster each belongs to: anything that sorts.

    Returns
    -------
    totals, sizes : ndarray, shape (clusters,)
        In the order of the sorted labels.

    Raises
    ------
    InputError
    """
    data, names = finite(values, what="values"), np.asarray(labels)
    if data.ndim != 1 or names.shape != data.shape:
        raise InputError("values and labels must be one-dimensional and as long", value=(data.shape, names.shape))
    kinds, at = np.unique(names, return_inverse=True)
    totals, sizes = np.bincount(at, data, len(kinds)), np.bincount(at, minlength=len(kinds))
    return totals.astype(np.float64), sizes.astype(np.float64)


@dataclass(frozen=True, eq=False)
class ClusterMean:
    """A mean over all episodes, with what its clusters say of its error.

    Parameters
    ----------
    value : ndarray, shape (...)
        Sum of totals over sum of sizes; 0 without any episode.
    se : ndarray, shape (...)
        Cluster-robust standard error.
    df : ndarray, shape (...)
        Degrees of freedom; clusters less one if all are of one size, fewer if not, 0 if they are fewer than two.
    """

    value: Floats
    se: Floats
    df: Floats

    def interval(self, *, confidence: float = 0.95) -> Interval:
        """Return value -+ t(df) se: the whole line from fewer than two clusters."""
        return t_interval(self.value, self.se, self.df, confidence=confidence)


def cluster_mean(totals: npt.ArrayLike, sizes: npt.ArrayLike, *, variant: Variant = "CR3") -> ClusterMean:
    """Return a mean over episodes with a cluster-robust standard error.

    With y the totals, m the sizes, N = sum m, h = m / N the leverages and e = y - m mean the residuals,
    se^2 = sum(c e^2) / N^2, where c = G / (G - 1) for CR1, 1 / (1 - h) for CR2 and 1 / (1 - h)^2 for CR3. CR2 is
    unbiased if episodes are independent; CR3 is the jackknife over clusters, a little large. The degrees of freedom
    are Satterthwaite's under independence: df = (tr Q)^2 / tr(Q^2) with Q = diag(c) (diag(m) - m m' / N). Bell and
    McCaffrey (2002), Survey Methodology 28, 169. In clusters of one size all this is Student's t on the cluster means
    (CR3: with se larger by sqrt(G / (G - 1))).

    Parameters
    ----------
    totals, sizes : array_like, shape (..., G)
        Shapes that broadcast. Sizes are 0 or more; a cluster of size 0 does not count and must have total 0.
    variant : "CR1", "CR2" or "CR3"
        Only CR3 covers .93 at an intra-cluster correlation of .2 with ten clusters of very unequal sizes.

    Returns
    -------
    ClusterMean, shape (...)

    Raises
    ------
    InputError
    """
    y, m = _clusters(totals, sizes)
    present = m > 0
    number = present.sum(axis=-1)
    n = np.maximum(m.sum(axis=-1), np.finfo(np.float64).tiny)
    value = y.sum(axis=-1) / n
    inverse = _inverse_leverage(m, n)
    match variant:
        case "CR1":
            weight = np.where(present, (number / np.maximum(number - 1.0, 1.0))[..., None], 0.0)
        case "CR2":
            weight = inverse
        case "CR3":
            weight = inverse**2
        case _:
            raise InputError("variant must be CR1, CR2 or CR3", value=variant)
    residual = y - m * value[..., None]
    se = np.sqrt((weight * residual**2).sum(axis=-1)) / n
    df = np.where(number > 1, _freedom(m, n, weight), 0.0)
    return ClusterMean(value, se, np.broadcast_to(df, value.shape))


def _clusters(totals: npt.ArrayLike, sizes: npt.ArrayLike) -> tuple[Floats, Floats]:
    y, m = finite(totals, what="totals"), finite(sizes, what="sizes")
    try:
        shape = np.broadcast_shapes(y.shape, m.shape)
    except ValueError as error:
        raise InputError("totals and sizes must have shapes that broadcast", value=(y.shape, m.shape)) from error
    if not (y.ndim and m.ndim):
        raise InputError("totals and sizes must have a last axis of clusters", value=(y.shape, m.shape))
    if (m < 0).any():
        raise InputError("sizes must be 0 or more", value=float(m.min()))
    stray = np.where(m == 0, y, 0.0)
    if stray.any():
        raise InputError("a cluster of size 0 must have total 0", value=float(stray[stray != 0][0]))
    # Leading axes are left to broadcast later: sizes that all samples share are summed once.
    return np.broadcast_to(y, y.shape[:-1] + shape[-1:]), np.broadcast_to(m, m.shape[:-1] + shape[-1:])


def _inverse_leverage(m: Floats, n: Floats) -> Floats:
    """Return 1 / (1 - m / n); 0 for a cluster that is empty, or alone."""
    rest = n[..., None] - m
    return np.where((m > 0) & (rest > 0), n[..., None] / np.where(rest > 0, rest, 1.0), 0.0)


def _freedom(m: Floats, n: Floats, weight: Floats) -> Floats:
    h = m / n[..., None]
    # Q = diag(w) (diag(m) - m m' / N), a diagonal less a matrix of rank one.
    trace = (weight * m * (1.0 - h)).sum(axis=-1)
    square = ((weight * m) ** 2 * (1.0 - 2.0 * h)).sum(axis=-1) + (weight * m * h).sum(axis=-1) ** 2
    freedom: Floats = trace**2 / np.where(square > 0, square, 1.0)
    return freedom


def cluster_robust_mean(
    totals: npt.ArrayLike, sizes: npt.ArrayLike, *, confidence: float = 0.95, variant: Variant = "CR3"
) -> Interval:
    """Return ``cluster_mean(...).interval()``: mean -+ t(df) se, both cluster-robust.

    Parameters
    ----------
    totals, sizes : array_like, shape (..., G)
    confidence : float
        In (0, 1).
    variant : "CR1", "CR2" or "CR3"

    Returns
    -------
    Interval, shape (...)
        The whole line from fewer than two clusters. For a rate prefer ``cluster_robust_rate``: this one is symmetric,
        can leave [0, 1], and covers less than .93 where clusters are few and the rate is below .2 or above .8.

    Raises
    ------
    InputError
    """
    return cluster_mean(totals, sizes, variant=variant).interval(confidence=confidence)


def cluster_robust_rate(
    successes: npt.ArrayLike, trials: npt.ArrayLike, *, confidence: float = 0.95, pseudo: float = PSEUDO
) -> Interval:
    """Return a cluster-robust interval for a rate over all episodes, inside [0, 1].

    The interval of ``cluster_mean`` (CR3) on the log odds, after ``pseudo`` clusters of mean size m without and as
    many with nothing but successes are added: p = (x + pseudo m) / (N + 2 pseudo m),
    se^2 = (sum((e / (1 - h))^2) + pseudo m^2 (p^2 + (1 - p)^2)) / (N + 2 pseudo m)^2, and
    logit(p) -+ t(df) se / (p (1 - p)). They are to clusters what the prior Beta(pseudo, pseudo) is to trials: few
    clusters with a rare event miss the cluster that would have had many, and take the spread for smaller than it is.
    Without any success or any failure: that of Clopper and Pearson for as many trials as there are effective
    clusters, (sum m)^2 / sum m^2.

    Parameters
    ----------
    successes, trials : array_like, shape (..., G)
        Per cluster, 0 <= successes <= trials; a cluster without trials does not count.
    confidence : float
        In (0, 1).
    pseudo : float
        0 or more. Without any, at a rate of .05, ten clusters cover .90 rather than .98.

    Returns
    -------
    Interval, shape (...)
        [0, 1] from fewer than two clusters.

    Raises
    ------
    InputError
    """
    from scipy.special import expit, logit

    if not pseudo >= 0.0:
        raise InputError("pseudo must be 0 or more", value=pseudo)
    counts(successes, trials)
    y, m = _clusters(successes, trials)
    plain = cluster_mean(y, m)
    n, x = m.sum(axis=-1), y.sum(axis=-1)
    size = n / np.maximum((m > 0).sum(axis=-1), 1)
    inside = (x > 0) & (x < n)
    total = np.where(n > 0, n + 2.0 * pseudo * size, 1.0)
    rate = np.where(inside, (x + pseudo * size) / total, 0.5)
    residual = y - m * rate[..., None]
    real = ((residual * _inverse_leverage(m, total)) ** 2).sum(axis=-1)
    variance = (real + pseudo * size**2 * (rate**2 + (1.0 - rate) ** 2)) / total**2
    odds = t_interval(logit(rate), np.sqrt(variance) / (rate * (1.0 - rate)), plain.df, confidence=confidence)
    effective = n**2 / np.where(n > 0, (m**2).sum(axis=-1), 1.0)
    edge = clopper_pearson(np.where(x > 0, effective, 0.0), effective, confidence=confidence)
    known = plain.df > 0
    lo, hi = (np.where(inside, *pair) for pair in ((expit(odds.lo), edge.lo), (expit(odds.hi), edge.hi)))
    return Interval(np.where(known, lo, 0.0), np.where(known, hi, 1.0))


# Bootstrap -----------------------------------------------------------------------------------------------------------


def cluster_bootstrap(
    totals: npt.ArrayLike,
    sizes: npt.ArrayLike,
    *,
    seed: int,
    resamples: int = 1999,
    method: Resampling = "t",
    confidence: float = 0.95,
    support: tuple[float, float] = (-np.inf, np.inf),
) -> Interval:
    """Return a bootstrap interval for a mean over episodes, drawing whole clusters.

    ``t`` studentises each resample with its own cluster-robust error and turns the quantiles round, value -
    q se (Efron and Tibshirani 1993, chapter 12): the best cover from few clusters. ``bca`` corrects the percentiles for
    bias and skewness (chapter 14). ``percentile`` takes them as they are, and with ten clusters covers .91 or less.

    Parameters
    ----------
    totals, sizes : array_like, shape (..., G)
        Per cluster. ``sizes`` need not be numbers of episodes: any positive denominator makes this the bootstrap of a
        ratio.
    seed : int
        Of the resamples, 0 or more. They depend on nothing else but G and ``resamples``, and leading axes share them.
    resamples : int
        99 or more.
    method : "t", "bca" or "percentile"
    confidence : float
        In (0, 1).
    support : pair of float
        Values the mean can have; limits are cut off there.

    Returns
    -------
    Interval, shape (...)
        ``support`` from fewer than two clusters. A single point where all clusters have the same mean: resampling
        cannot show a spread that the sample lacks, so prefer ``cluster_robust_rate``. Resamples whose own spread is 0
        say nothing by ``t`` if they hit the mean, and are infinitely far off if they do not; if that happens often the
        limit is that of ``support``.

    Raises
    ------
    InputError
    """
    y, m = _clusters(totals, sizes)
    if resamples < 99:
        raise InputError("resamples must be 99 or more", value=resamples)
    number = y.shape[-1]
    lead = np.broadcast_shapes(y.shape, m.shape)[:-1]
    whole = Interval(np.full(lead, support[0]), np.full(lead, support[1]))
    out = tail(confidence)
    if number < 2:
        return whole
    draws = np.random.default_rng(seed).multinomial(number, np.full(number, 1.0 / number), size=resamples)
    weights = draws.T.astype(np.float64)
    n = m.sum(axis=-1)
    value = y.sum(axis=-1) / np.where(n > 0, n, 1.0)
    below = m @ weights
    means = (y @ weights) / np.where(below > 0, below, 1.0)
    # A resample of empty clusters only has no mean; the observed one stands in for it.
    means = np.where(below > 0, means, value[..., None])
    match method:
        case "t":
            lo, hi = _studentised(y, m, weights, means, below, value, out)
        case "bca":
            lo, hi = _quantiles(means, *_corrected(y, m, means, value, confidence))
        case "percentile":
            lo, hi = _quantiles(means, np.full(lead, out), np.full(lead, 1.0 - out))
        case _:
            raise InputError("method must be t, bca or percentile", value=method)
    alone = (m > 0).sum(axis=-1) < 2
    lo, hi = (np.where(alone, edge, np.clip(limit, *support)) for limit, edge in ((lo, whole.lo), (hi, whole.hi)))
    return Interval(lo, hi)


def _studentised(
    y: Floats, m: Floats, weights: Floats, means: Floats, below: Floats, value: Floats, out: float
) -> tuple[Floats, Floats]:
    se = np.sqrt(((y - m * value[..., None]) ** 2).sum(axis=-1)) / np.maximum(m.sum(axis=-1), 1e-300)
    # sum w (y - m mean)^2, multiplied out so that every resample is a matrix product.
    spread = (y * y) @ weights - 2.0 * means * ((y * m) @ weights) + means**2 * ((m * m) @ weights)
    own = np.sqrt(np.maximum(spread, 0.0)) / np.where(below > 0, below, 1.0)
    away = means - value[..., None]
    small = own <= NO_SPREAD * se[..., None]
    none = np.where(np.abs(away) <= NO_SPREAD * se[..., None], 0.0, np.copysign(np.inf, away))
    t = np.where(small, none, away / np.where(small, 1.0, own))
    low, high = np.quantile(t, [out, 1.0 - out], axis=-1, method="inverted_cdf")
    flat = se == 0
    reach = np.where(flat, 1.0, se)
    return np.where(flat, value, value - high * reach), np.where(flat, value, value - low * reach)


def _corrected(y: Floats, m: Floats, means: Floats, value: Floats, confidence: float) -> tuple[Floats, Floats]:
    """Return the two probabilities at which BCa takes the percentiles."""
    from scipy.special import ndtr, ndtri

    resamples = means.shape[-1]
    at = value[..., None]
    share = (means < at).mean(axis=-1) + (means == at).mean(axis=-1) / 2.0
    bias = ndtri(np.clip(share, 1.0 / resamples, 1.0 - 1.0 / resamples))
    rest = m.sum(axis=-1, keepdims=True) - m
    without = (y.sum(axis=-1, keepdims=True) - y) / np.where(rest > 0, rest, 1.0)
    pull = without.mean(axis=-1, keepdims=True) - without
    square = (pull**2).sum(axis=-1)
    skew = (pull**3).sum(axis=-1) / np.where(square > 0, 6.0 * square**1.5, 1.0)
    z = z_quantile(confidence)
    lower, upper = (ndtr(bias + (bias + each) / np.maximum(1.0 - skew * (bias + each), 1e-12)) for each in (-z, z))
    return np.asarray(lower), np.asarray(upper)


def _quantiles(means: Floats, lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
    """Return two quantiles in the last axis, at a probability of its own for every row."""
    ordered = np.sort(means, axis=-1)
    last = means.shape[-1] - 1

    def at(probability: Floats) -> Floats:
        place = np.clip(probability, 0.0, 1.0) * last
        under = np.floor(place).astype(np.int64)
        first = np.take_along_axis(ordered, under[..., None], axis=-1)[..., 0]
        second = np.take_along_axis(ordered, np.minimum(under + 1, last)[..., None], axis=-1)[..., 0]
        found: Floats = first + (place - under) * (second - first)
        return found

    return at(lower), at(upper)
