"""Partial pooling of rates over cells that are alike: models, shapes, tasks.

Few trials a cell say little; the other cells say what rates are usual. A cell's rate is drawn from
Beta(mu kappa, (1 - mu) kappa), its successes from the binomial, and mu and kappa are learnt from all cells. Nothing is
plugged in, which would cover .86 for .90: every answer is averaged over what mu and kappa can be. Gelman et al.
(2013), Bayesian Data Analysis, section 5.3; HiBayES, arXiv 2505.05602, for the evaluation of language models.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from invsim.errors import InputError
from invsim.stats.arrays import Floats, counts, tail
from invsim.stats.intervals import Interval

MEANS, CORRELATIONS = 64, 32
"""Grid points for mu and for rho = 1 / (1 + kappa)."""

REFINEMENTS = 4
NEGLIGIBLE = 1e-8
"""Share of the highest weight below which the grid does not reach out for a point."""

DROPPED = 1e-6
"""Probability that the points left out of the posterior may have together."""

NEWTON_STEPS, CLOSE = 60, 1e-10
"""Most steps to a quantile, and how near it is near enough."""


@dataclass(frozen=True, eq=False)
class Pooled:
    """The posterior of all cells, as a weighted grid over (mu, kappa) and a beta distribution at each of its points.

    Parameters
    ----------
    successes, trials : ndarray, shape (...)
        The cells.
    mu, kappa, weights : ndarray, shape (points,)
        Mean and concentration of the rates, and the posterior probability of both; it sums to 1.
    """

    successes: Floats
    trials: Floats
    mu: Floats
    kappa: Floats
    weights: Floats

    @property
    def mean(self) -> Floats:
        """Posterior mean of each cell's rate, shape (...)."""
        prior = (self.mu * self.kappa)[:, None] + self.successes.ravel()
        return np.asarray(self.weights @ (prior / (self.kappa[:, None] + self.trials.ravel()))).reshape(self._shape)

    @property
    def population_mean(self) -> float:
        """Posterior mean of mu."""
        return float(self.weights @ self.mu)

    @property
    def prior_trials(self) -> float:
        """Posterior median of kappa: how many trials of its own outweigh what a cell learns from the others."""
        root = 1.0 / np.sqrt(1.0 + self.kappa)
        (middle,) = _even_quantiles(root, self.weights, [0.5], ends=(0.0, 1.0))
        return float(1.0 / max(middle, 1e-150) ** 2 - 1.0)

    @property
    def _shape(self) -> tuple[int, ...]:
        return self.trials.shape

    def interval(self, *, confidence: float = 0.95) -> Interval:
        """Return the equal-tailed credible interval of each cell's rate, shape (...).

        Its lower limit is 0 for a cell without any success, its upper limit 1 for one without any failure.
        """
        out = tail(confidence)
        # Cells with equal counts have equal posteriors.
        pairs, at = np.unique(
            np.column_stack([self.successes.ravel(), self.trials.ravel()]), axis=0, return_inverse=True
        )
        x, n = pairs.T
        a, b = (self.mu * self.kappa)[:, None] + x, ((1.0 - self.mu) * self.kappa)[:, None] + n - x
        lo = np.where((x == 0) & (n > 0), 0.0, mixture_quantile(a, b, self.weights, out))
        hi = np.where((x == n) & (n > 0), 1.0, mixture_quantile(a, b, self.weights, 1.0 - out))
        return Interval(lo[at.ravel()].reshape(self._shape), hi[at.ravel()].reshape(self._shape))

    def population_interval(self, *, confidence: float = 0.95) -> Interval:
        """Return the equal-tailed credible interval of mu, the mean over cells like these.

        With tasks or streams as cells this is an interval for a clustered rate, of the mean over clusters rather than
        over episodes; the shortest there is if the clusters' rates have a beta distribution.
        """
        out = tail(confidence)
        angle = np.arcsin(np.sqrt(self.mu))
        lo, hi = np.sin(_even_quantiles(angle, self.weights, [out, 1.0 - out], ends=(0.0, np.pi / 2.0))) ** 2
        return Interval(np.asarray(lo), np.asarray(hi))

    def matched(self) -> tuple[Floats, Floats]:
        """Return alpha and beta of the beta distribution with each cell's posterior mean and variance, shape (...).

        The posterior is a mixture of beta distributions; this one stands for it where a single one is wanted.
        """
        a = (self.mu * self.kappa)[:, None] + self.successes.ravel()
        total = self.kappa[:, None] + self.trials.ravel()
        means = a / total
        mean = self.weights @ means
        variance = self.weights @ (means * (1.0 - means) / (total + 1.0) + (means - mean) ** 2)
        size = mean * (1.0 - mean) / variance - 1.0
        return (mean * size).reshape(self._shape), ((1.0 - mean) * size).reshape(self._shape)

    def draws(self, size: int, *, seed: int) -> Floats:
        """Return joint draws of the rates, to simulate with: one mu and kappa a draw, shared by all cells.

        Parameters
        ----------
        size : int
            1 or more.
        seed : int
            0 or more.

        Returns
        -------
        ndarray, shape (size, ...)
            In [0, 1].

        Raises
        ------
        InputError
        """
        if size < 1:
            raise InputError("size must be 1 or more", value=size)
        rng = np.random.default_rng(seed)
        at = rng.choice(len(self.weights), size=size, p=self.weights)
        lead = (size,) + (1,) * len(self._shape)
        mu, kappa = self.mu[at].reshape(lead), self.kappa[at].reshape(lead)
        return rng.beta(mu * kappa + self.successes, (1.0 - mu) * kappa + self.trials - self.successes)


def pool(successes: npt.ArrayLike, trials: npt.ArrayLike) -> Pooled:
    """Learn how alike cells are, and return the posterior of each.

    Prior: mu ~ Beta(1/2, 1/2), and rho = 1 / (1 + kappa), the correlation of two trials of one cell, uniform on
    (0, 1). Likelihood of a cell: B(mu kappa + x, (1 - mu) kappa + n - x) / B(mu kappa, (1 - mu) kappa). The posterior
    is taken on a grid, even in the prior's quantiles of mu and in sqrt(rho), that is laid anew around what the data
    leave possible.

    Parameters
    ----------
    successes, trials : array_like, shape (...)
        Per cell, 0 <= x <= n; shapes that broadcast. All cells are pooled alike, so give cells that are alike before
        their data are seen: one shape over models, say, and call once a shape. A cell without trials gets what a new
        one would. A single cell, none with trials, or nothing but successes are in order: the priors are proper.

    Returns
    -------
    Pooled

    Raises
    ------
    InputError
        For counts out of range, or no cell at all.
    """
    x, n = counts(successes, trials)
    if not x.size:
        raise InputError("there must be at least one cell", value=x.shape)
    informative = n.ravel() > 0
    hits, of = x.ravel()[informative], n.ravel()[informative]
    u_box, v_box = (0.0, 1.0), (0.0, 1.0)
    for left in reversed(range(REFINEMENTS)):
        u, v = _midpoints(*u_box, MEANS), _midpoints(*v_box, CORRELATIONS)
        mu, kappa = np.sin(np.pi / 2.0 * u) ** 2, 1.0 / v**2 - 1.0
        # d rho = 2 v dv; the grid is even in u and v.
        log = _log_likelihood(hits, of, mu[:, None], kappa[None, :]) + np.log(v)[None, :]
        weights = np.exp(log - log.max())
        if left:
            u_box, v_box = _box(u, weights.max(axis=1), u_box), _box(v, weights.max(axis=0), v_box)
    mus, kappas = np.broadcast_arrays(mu[:, None], kappa[None, :])
    order = np.argsort(weights, axis=None)[::-1]
    upto = np.cumsum(weights.ravel()[order])
    kept = order[: int(np.searchsorted(upto, (1.0 - DROPPED) * upto[-1])) + 1]
    found = weights.ravel()[kept]
    return Pooled(x, n, mus.ravel()[kept], kappas.ravel()[kept], found / found.sum())


def _even_quantiles(points: Floats, weights: Floats, at: list[float], *, ends: tuple[float, float]) -> Floats:
    """Return quantiles of weights on a grid with even steps, of which a point stands for the step around it."""
    # Equal points differ by rounding only.
    middles, which = np.unique(np.round(points, 14), return_inverse=True)
    above = np.cumsum(np.bincount(which, weights, len(middles)))
    step = np.diff(middles).min() if len(middles) > 1 else 0.0
    edges = np.clip(np.append(middles - step / 2.0, middles[-1] + step / 2.0), *ends)
    found: Floats = np.interp(at, np.insert(above, 0, 0.0), edges)
    return found


def _midpoints(lo: float, hi: float, number: int) -> Floats:
    return lo + (hi - lo) * (np.arange(number) + 0.5) / number


def _box(points: Floats, highest: Floats, box: tuple[float, float]) -> tuple[float, float]:
    """Return the smallest box around the possible points that keeps one step on either side."""
    step = points[1] - points[0]
    possible = points[highest > NEGLIGIBLE]
    return max(box[0], float(possible[0] - 1.5 * step)), min(box[1], float(possible[-1] + 1.5 * step))


def _log_likelihood(hits: Floats, of: Floats, mu: Floats, kappa: Floats) -> Floats:
    """Return the sum over cells of the log beta-binomial probability, without binomial coefficients."""
    from scipy.special import betaln

    a, b = mu * kappa, (1.0 - mu) * kappa
    total = np.zeros(a.shape)
    pairs, times = np.unique(np.column_stack([hits, of]), axis=0, return_counts=True)
    base = betaln(a, b)
    for (x, n), number in zip(pairs, times, strict=True):
        total += number * (betaln(a + x, b + n - x) - base)
    return total


def mixture_quantile(a: Floats, b: Floats, weights: Floats, probability: float) -> Floats:
    """Return where a mixture of beta distributions reaches a probability.

    Newton's method inside a shrinking bracket.

    Parameters
    ----------
    a, b : ndarray, shape (points, cells)
        Positive.
    weights : ndarray, shape (points,)
        Summing to 1.
    probability : float
        In (0, 1).

    Returns
    -------
    ndarray, shape (cells,)
        To within ``CLOSE``.
    """
    from scipy.special import betainc, betaincinv, betaln

    means = a / (a + b)
    mean = weights @ means
    spread = weights @ (means * (1.0 - means) / (a + b + 1.0) + (means - mean) ** 2)
    alike = np.maximum(mean * (1.0 - mean) / np.maximum(spread, 1e-300) - 1.0, 1e-3)
    at: Floats = np.clip(betaincinv(mean * alike, (1.0 - mean) * alike, probability), 1e-12, 1.0 - 1e-12)
    lo, hi = np.zeros_like(at), np.ones_like(at)
    scale = betaln(a, b)
    left = np.arange(len(at))
    for _ in range(NEWTON_STEPS):
        here, one, other = at[left], a[:, left], b[:, left]
        off = weights @ betainc(one, other, here) - probability
        lo[left], hi[left] = np.where(off < 0, here, lo[left]), np.where(off < 0, hi[left], here)
        inner = np.clip(here, 1e-300, 1.0 - 1e-16)
        slope = weights @ np.exp((one - 1.0) * np.log(inner) + (other - 1.0) * np.log1p(-inner) - scale[:, left])
        step = here - off / np.maximum(slope, 1e-300)
        at[left] = np.where((step > lo[left]) & (step < hi[left]), step, (lo[left] + hi[left]) / 2.0)
        left = left[np.abs(at[left] - here) > CLOSE]
        if not len(left):
            break
    return at
