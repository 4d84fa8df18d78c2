"""What clustering costs: how alike trials of one task are, and how many independent trials they are worth."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from invsim.errors import InputError
from invsim.stats.arrays import Floats, counts


def intra_cluster_correlation(successes: npt.ArrayLike, trials: npt.ArrayLike, cells: npt.ArrayLike) -> float | None:
    """Return the correlation of two trials of one cluster, one for all cells, each with a rate of its own.

    With p = y / m summed over a cell of N trials and z = y (1 - p)^2 + (m - y) p^2 the squares within a cluster,

        rho = sum over clusters [(y - m p)^2 - z + m (m - 1) v / (N - 1)] / sum over clusters [m (m - 1) v]

    and v = p (1 - p).
    The first difference sums the products of two different trials; the last term mends that p is estimated from
    the same trials, which pushes those products down by v / (N - 1) each. Cells are summed because one cell's few
    clusters hardly tell. Compare Ridout, Demetrio and Firth (1999), Biometrics 55, 137, estimators by pairs.

    Parameters
    ----------
    successes, trials : array_like, shape (clusters,)
        Of each cluster within one cell.
    cells : array_like, shape (clusters,)
        The cell each belongs to: anything that sorts.

    Returns
    -------
    float or None
        In [0, 1]; None where no cluster of a cell with two clusters, and both outcomes, has two trials.

    Raises
    ------
    InputError
    """
    y, m = counts(successes, trials)
    labels = np.asarray(cells)
    if y.ndim != 1 or labels.shape != y.shape:
        raise InputError(
            "successes, trials and cells must be one-dimensional and as long", value=(y.shape, labels.shape)
        )
    _, at = np.unique(labels, return_inverse=True)
    n, x, clusters = np.bincount(at, m), np.bincount(at, y), np.bincount(at, m > 0)
    p = (x / np.where(n > 0, n, 1.0))[at]
    v = p * (1.0 - p)
    told = clusters[at] > 1
    pairs = np.where(told, m * (m - 1.0) * v, 0.0)
    products = (
        (y - m * p) ** 2 - (y * (1.0 - p) ** 2 + (m - y) * p**2) + m * (m - 1.0) * v / np.maximum(n[at] - 1.0, 1.0)
    )
    total = pairs.sum()
    return float(np.clip(products[told].sum() / total, 0.0, 1.0)) if total > 0 else None


def unrepeated(trials: npt.ArrayLike) -> float:
    """Return how many independent trials those of several arms are worth that may be the same ones seen again.

    Arms of one simulation meet the same random numbers: what a planner did with a fix in one arm it did in every arm
    that injected it. Which trials repeat which is not known; at the most, those of a smaller arm are all among those of
    a larger one. A trial seen k times has the weight k, so that N of them are worth N^2 / sum k^2 (Kish 1965), which
    then is N^2 / sum over arms (2 j - 1) n_j, the arms numbered j = 1, 2 ... from the largest.

    Parameters
    ----------
    trials : array_like, shape (arms,)
        n, 0 or more.
    """
    n: Floats = np.sort(np.asarray(trials, dtype=np.float64))[::-1]
    total = float(n.sum())
    if np.count_nonzero(n) < 2:
        return total
    return total**2 / float(((2.0 * np.arange(len(n)) + 1.0) * n).sum())


def design_effect(trials: npt.ArrayLike, correlation: float) -> float:
    """Return how many clustered trials are worth one independent one: 1 + (sum m^2 / sum m - 1) rho.

    Kish (1965), Survey Sampling, section 5.4, for clusters of unequal size.

    Parameters
    ----------
    trials : array_like, shape (clusters,)
        m, not all 0.
    correlation : float
        In [0, 1].
    """
    m: Floats = np.asarray(trials, dtype=np.float64)
    return 1.0 + max(float((m**2).sum() / m.sum()) - 1.0, 0.0) * correlation
