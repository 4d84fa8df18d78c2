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
