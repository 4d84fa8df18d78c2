"""Partial pooling against the integrals it stands for, and in the corners."""

import numpy as np
import pytest
import scipy.stats
from numpy.testing import assert_allclose
from scipy.special import betaln

from invsim.errors import InputError
from invsim.stats.intervals import jeffreys
from invsim.stats.pooling import mixture_quantile, pool

HITS, TRIALS = np.array([3, 9, 5, 0]), np.array([9, 9, 12, 4])


def brute_force(hits: np.ndarray, trials: np.ndarray, points: int = 400) -> tuple[np.ndarray, np.ndarray, float]:
    """Means and variances of the rates, and mean of mu, on one fine grid even in mu's quantiles and in rho."""
    mu = scipy.stats.beta(0.5, 0.5).ppf((np.arange(points) + 0.5) / points)[:, None]
    rho = ((np.arange(points) + 0.5) / points)[None, :]
    kappa = 1.0 / rho - 1.0
    a, b = mu * kappa, (1.0 - mu) * kappa
    log = sum(betaln(a + x, b + n - x) - betaln(a, b) for x, n in zip(hits, trials, strict=True))
    weights = np.exp(log - np.max(log))
    weights /= weights.sum()
    first = np.array([np.sum(weights * (a + x) / (kappa + n)) for x, n in zip(hits, trials, strict=True)])
    second = np.array(
        [np.sum(weights * (a + x) * (a + x + 1) / (kappa + n) / (kappa + n + 1))
         for x, n in zip(hits, trials, strict=True)]
    )  # fmt: skip
    return first, second - first**2, float(np.sum(weights * mu))


@pytest.mark.parametrize(
    ("hits", "trials"),
    [(HITS, TRIALS), ([2], [9]), ([8, 9, 9], [9, 9, 9]), ([300, 290, 280, 310], [600] * 4)],
)
def test_posterior_moments_are_those_of_a_fine_grid(hits, trials) -> None:
    hits, trials = np.asarray(hits), np.asarray(trials)
    mean, variance, mu = brute_force(hits, trials)
    found = pool(hits, trials)
    assert_allclose(found.mean, mean, atol=1e-3)
    assert found.population_mean == pytest.approx(mu, abs=2e-3)
    # 40,000 draws: a mean is off by sd / 200, so 5 of those; a variance by at most 4 times as much, relatively.
    draws = found.draws(40_000, seed=1)
    assert draws.shape == (40_000, len(hits))
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 5 * np.sqrt(variance) / 200 + 1e-3)
    assert_allclose(draws.var(axis=0), variance, rtol=0.1)


def test_intervals_are_quantiles_of_the_draws() -> None:
    found = pool(HITS, TRIALS)
    draws, interval = found.draws(40_000, seed=2), found.interval(confidence=0.9)
    inner = [0, 2]  # the others have no failure or no success, and so a limit at the end
    for limit, share in ((interval.lo, 0.05), (interval.hi, 0.95)):
        # The share of 40,000 draws below the right limit has a standard error of .0011.
        assert_allclose((draws < limit).mean(axis=0)[inner], share, atol=5 * 0.0011)
    assert (interval.hi[1], interval.lo[3]) == (1.0, 0.0)


def test_the_interval_of_the_population_holds_its_mass() -> None:
    found = pool(HITS, TRIALS)
    lo, hi = found.population_interval(confidence=0.8).pair()
    assert found.weights[(found.mu > lo) & (found.mu < hi)].sum() == pytest.approx(0.8, abs=0.03)
    assert lo < found.population_mean < hi


def test_cells_shrink_towards_each_other() -> None:
    found = pool([2, 5, 5, 5, 5, 8], [10] * 6)
    assert 0.2 < found.mean[0] < 0.5 < found.mean[5] < 0.8
    alone, together = jeffreys(5, 10), found.interval()
    assert together.width[1] < float(alone.width)


def test_much_data_is_not_moved() -> None:
    found = pool([0, 300_000, 900_000], [1_000_000] * 3)
    assert_allclose(found.mean, [0.0, 0.3, 0.9], atol=1e-5)
    assert_allclose(found.interval().lo[1:], jeffreys([300_000, 900_000], 1_000_000).lo, atol=1e-5)


def test_cells_that_are_one_and_the_same_are_pooled_altogether() -> None:
    found = pool([5_000] * 100, [10_000] * 100)
    lo, hi = found.population_interval().pair()
    assert (lo, hi) == pytest.approx(jeffreys(500_000, 1_000_000).pair(), abs=2e-4)
    assert found.prior_trials > 100_000
    # One cell's own interval is .0196 wide.
    assert found.interval().width.max() < 0.005


# Corners -------------------------------------------------------------------------------------------------------------


def test_a_cell_without_trials_gets_what_a_new_one_would() -> None:
    without, with_empty = pool(HITS, TRIALS), pool(np.append(HITS, 0), np.append(TRIALS, 0))
    assert_allclose(with_empty.mean[:4], without.mean)
    assert with_empty.mean[4] == pytest.approx(without.population_mean)
    assert with_empty.interval().width[4] > without.interval().width.max()


def test_nothing_known_is_the_prior() -> None:
    found = pool([0, 0], [0, 0])
    assert_allclose(found.mean, 0.5)
    assert_allclose(
        found.population_interval(confidence=0.9).pair(), scipy.stats.beta(0.5, 0.5).interval(0.9), atol=0.01
    )
    assert np.isfinite(found.interval().lo).all()
    # rho is uniform, so that its median is one half and kappa's 1.
    assert found.prior_trials == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("cells", [1, 7])
@pytest.mark.parametrize("trials", [1, 9, 1_000])
def test_all_or_nothing(cells: int, trials: int) -> None:
    full, none = pool([trials] * cells, [trials] * cells), pool([0] * cells, [trials] * cells)
    assert_allclose(full.mean, 1.0 - none.mean)
    assert_allclose(full.interval().lo, 1.0 - none.interval().hi, atol=1e-9)
    assert_allclose(full.interval().hi, 1.0)
    assert 0.0 < full.interval().lo[0] < full.mean[0] < 1.0
    assert np.isfinite(full.draws(1_000, seed=1)).all()


def test_shapes_and_seeds() -> None:
    found = pool(np.arange(6).reshape(2, 3), 9)
    assert found.mean.shape == found.interval().lo.shape == (2, 3)
    assert found.draws(5, seed=1).shape == (5, 2, 3)
    assert_allclose(found.draws(5, seed=1), found.draws(5, seed=1))
    assert not np.allclose(found.draws(5, seed=1), found.draws(5, seed=2))
    assert found.weights.sum() == pytest.approx(1.0)


def test_draws_share_what_they_do_not_know() -> None:
    # Two cells without trials have nothing in common but mu, so their draws go together.
    draws = pool([0, 0, 5], [0, 0, 10]).draws(20_000, seed=1)
    assert np.corrcoef(draws[:, 0], draws[:, 1])[0, 1] > 0.3


def test_wrong_cells_are_refused() -> None:
    with pytest.raises(InputError, match="at least one cell"):
        pool([], [])
    with pytest.raises(InputError, match="must not exceed"):
        pool([3], [2])
    with pytest.raises(InputError, match="size must be 1 or more"):
        pool([1], [2]).draws(0, seed=1)


def test_a_mixture_of_one_is_that_beta() -> None:
    a, b = np.array([[0.05, 3.0, 400.0]]), np.array([[9.0, 0.5, 20.0]])
    for probability in (0.025, 0.5, 0.975):
        found = mixture_quantile(a, b, np.ones(1), probability)
        assert_allclose(found, scipy.stats.beta(a, b).ppf(probability)[0], atol=1e-9)
