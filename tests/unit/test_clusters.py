"""Cluster-robust estimates against the matrix formulas they come from, the jackknife, and a bootstrap one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.special import logit

from invsim.errors import InputError
from invsim.stats.clusters import (
    cluster_bootstrap,
    cluster_mean,
    cluster_robust_mean,
    cluster_robust_rate,
    cluster_sums,
)
from invsim.stats.intervals import clopper_pearson, jeffreys, mean_t

VARIANTS = ("CR1", "CR2", "CR3")
SIZES = np.array([3, 5, 2, 9, 4, 4])

clusters = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=12).map(
    lambda pairs: (np.array([x for x, _ in pairs]), np.array([x + y for x, y in pairs]))
)


def episodes(sizes: np.ndarray, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    return rng.normal(size=len(labels)) + rng.normal(size=len(sizes))[labels], labels


# Mean ----------------------------------------------------------------------------------------------------------------


def sandwich(values: np.ndarray, labels: np.ndarray, variant: str) -> tuple[float, float]:
    """The regression on a constant, with whole matrices: standard error and Bell and McCaffrey's freedom."""
    n, kinds = len(values), np.unique(labels)
    ones = np.ones((n, 1))
    hat = ones @ ones.T / n
    residual = (np.eye(n) - hat) @ values
    columns, scores = [], []
    for kind in kinds:
        mine = labels == kind
        block = np.eye(mine.sum()) - hat[np.ix_(mine, mine)]
        if variant == "CR1":
            adjust = np.eye(mine.sum()) * np.sqrt(len(kinds) / (len(kinds) - 1))
        elif variant == "CR2":
            values_, vectors = np.linalg.eigh(block)
            adjust = vectors @ np.diag(values_**-0.5) @ vectors.T
        else:
            adjust = np.linalg.inv(block)
        weights = adjust @ ones[mine, 0] / n
        scores.append(weights @ residual[mine])
        columns.append((np.eye(n) - hat)[:, mine] @ weights)
    gram = np.column_stack(columns).T @ np.column_stack(columns)
    return float(np.sqrt(np.sum(np.square(scores)))), float(np.trace(gram) ** 2 / np.trace(gram @ gram))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("sizes", [SIZES, np.array([1, 30, 2]), np.full(8, 5)])
def test_a_mean_is_the_sandwich_with_whole_matrices(variant, sizes: np.ndarray) -> None:
    values, labels = episodes(sizes)
    found = cluster_mean(*cluster_sums(values, labels), variant=variant)
    se, df = sandwich(values, labels, variant)
    assert float(found.value) == pytest.approx(values.mean())
    assert float(found.se) == pytest.approx(se)
    assert float(found.df) == pytest.approx(df)


def test_cr3_is_the_jackknife() -> None:
    values, labels = episodes(SIZES)
    left_out = np.array([values[labels != at].mean() for at in range(len(SIZES))])
    found = cluster_mean(*cluster_sums(values, labels), variant="CR3")
    assert float(found.se) == pytest.approx(np.sqrt(np.sum((left_out - values.mean()) ** 2)))


@pytest.mark.parametrize(("variant", "inflation"), [("CR1", 1.0), ("CR2", 1.0), ("CR3", np.sqrt(7 / 6))])
def test_clusters_of_one_size_are_student_on_their_means(variant, inflation: float) -> None:
    values, labels = episodes(np.full(7, 4))
    totals, sizes = cluster_sums(values, labels)
    found, plain = cluster_robust_mean(totals, sizes, variant=variant), mean_t(totals / 4)
    assert float(cluster_mean(totals, sizes, variant=variant).df) == pytest.approx(6.0)
    assert float(found.width) == pytest.approx(float(plain.width) * inflation)


def test_means_go_along_the_last_axis_and_empty_clusters_do_not_count() -> None:
    values, labels = episodes(SIZES)
    totals, sizes = cluster_sums(values, labels)
    with_empty = cluster_robust_mean(
        np.stack([np.append(totals, 0.0), np.append(2 * totals, 0.0)]), np.append(sizes, 0.0)
    )
    assert_allclose(with_empty.lo, np.array([1, 2]) * cluster_robust_mean(totals, sizes).lo)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("totals", "sizes"), [([3], [4]), ([3, 0], [4, 0]), ([0], [0]), ([], [])])
def test_one_cluster_says_nothing(variant, totals: list[int], sizes: list[int]) -> None:
    assert cluster_robust_mean(totals, sizes, variant=variant).pair() == (-np.inf, np.inf)
    assert cluster_robust_rate(totals, sizes).pair() == (0.0, 1.0)
    assert cluster_bootstrap(totals, sizes, seed=1, support=(0.0, 1.0)).pair() == (0.0, 1.0)


def test_labels_of_any_kind_make_clusters() -> None:
    totals, sizes = cluster_sums([1.0, 2.0, 4.0, 8.0], ["b", "a", "b", "c"])
    assert totals.tolist() == [2.0, 5.0, 8.0]
    assert sizes.tolist() == [1.0, 2.0, 1.0]
    with pytest.raises(InputError, match="one-dimensional and as long"):
        cluster_sums([1.0, 2.0], [1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cluster_mean([1, 2], [3, -1]), "sizes must be 0 or more (got -1.0)"),
        (lambda: cluster_mean([1, 2], [3, 0]), "a cluster of size 0 must have total 0 (got 2.0)"),
        (lambda: cluster_mean(1, 3), "totals and sizes must have a last axis of clusters (got ((), ()))"),
        (lambda: cluster_mean([1, 2], [1, 2, 3]), "totals and sizes must have shapes that broadcast"),
        (lambda: cluster_mean([1, 2], [3, 3], variant="HC3"), "variant must be CR1, CR2 or CR3 (got 'HC3')"),
        (lambda: cluster_robust_rate([4, 2], [3, 3]), "successes must not exceed trials (got (4.0, 3.0))"),
        (lambda: cluster_robust_rate([1, 2], [3, 3], pseudo=-1), "pseudo must be 0 or more (got -1)"),
        (lambda: cluster_bootstrap([1, 2], [3, 3], seed=1, resamples=9), "resamples must be 99 or more (got 9)"),
        (lambda: cluster_bootstrap([1, 2], [3, 3], seed=1, method="abc"), "method must be t, bca or percentile"),
    ],
)
def test_wrong_clusters_are_refused(call, message: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value).startswith(message)


# Rate ----------------------------------------------------------------------------------------------------------------


@given(clusters)
def test_a_rate_lies_inside_and_mirrors(data: tuple[np.ndarray, np.ndarray]) -> None:
    hits, trials = data
    lo, hi = cluster_robust_rate(hits, trials).pair()
    assert 0.0 <= lo <= hi <= 1.0
    assert cluster_robust_rate(trials - hits, trials).pair() == pytest.approx((1.0 - hi, 1.0 - lo), abs=1e-9)
    if trials.sum():
        # Imagined clusters pull towards one half, and widen more than they pull.
        assert lo - 1e-12 <= hits.sum() / trials.sum() <= hi + 1e-12


def test_a_rate_without_imagined_clusters_is_the_mean_on_the_log_odds() -> None:
    hits = np.array([1, 4, 0, 6, 2, 1])
    mean = cluster_mean(hits, SIZES)
    p = float(mean.value)
    half = float(mean.interval().width) / 2.0 / (p * (1.0 - p))
    found = cluster_robust_rate(hits, SIZES, pseudo=0.0)
    assert logit(found.pair()) == pytest.approx((logit(p) - half, logit(p) + half))


def test_a_rate_without_a_success_counts_clusters_as_trials() -> None:
    zeros = np.zeros(12)
    assert cluster_robust_rate(zeros, np.full(12, 40)).pair() == pytest.approx(clopper_pearson(0, 12).pair())
    # Eleven clusters that hardly count do not make a twelvth trial.
    alone = np.append(np.full(11, 1), 100_000)
    assert cluster_robust_rate(zeros, alone).hi > 0.95
    assert cluster_robust_rate(alone, alone).lo < 0.05


def test_a_rate_over_many_equal_streams_nears_jeffreys() -> None:
    rng = np.random.default_rng(1)
    hits = rng.binomial(5, 0.4, 20_000)
    found, plain = cluster_robust_rate(hits, np.full(20_000, 5)), jeffreys(hits.sum(), 100_000)
    assert found.pair() == pytest.approx(plain.pair(), abs=2e-4)


# Bootstrap -----------------------------------------------------------------------------------------------------------


def slow_bootstrap(totals: np.ndarray, sizes: np.ndarray, method: str, seed: int, resamples: int) -> tuple:
    """One resample at a time, from the same multinomial weights."""
    number = len(totals)
    draws = np.random.default_rng(seed).multinomial(number, np.full(number, 1 / number), size=resamples)
    value = totals.sum() / sizes.sum()

    def error(y: np.ndarray, m: np.ndarray) -> float:
        return float(np.sqrt(np.sum((y - m * y.sum() / m.sum()) ** 2)) / m.sum())

    means, ts = [], []
    for weights in draws:
        y, m = np.repeat(totals, weights), np.repeat(sizes, weights)
        means.append(y.sum() / m.sum())
        ts.append((means[-1] - value) / error(y, m))
    if method == "percentile":
        return tuple(np.quantile(means, [0.025, 0.975]))
    low, high = np.quantile(ts, [0.025, 0.975], method="inverted_cdf")
    se = error(totals, sizes)
    return value - high * se, value - low * se


@pytest.mark.parametrize("method", ["t", "percentile"])
def test_the_bootstrap_is_that_of_a_loop(method) -> None:
    totals, sizes = cluster_sums(*episodes(np.tile(SIZES, 2)))
    found = cluster_bootstrap(totals, sizes, seed=7, resamples=399, method=method)
    assert found.pair() == pytest.approx(slow_bootstrap(totals, sizes.astype(int), method, 7, 399))


def test_bca_is_that_of_scipy_but_for_the_draws() -> None:
    import scipy.stats

    totals, sizes = cluster_sums(*episodes(np.tile(SIZES, 4)))
    found = cluster_bootstrap(totals, sizes, seed=1, resamples=20_000, method="bca")
    twin = scipy.stats.bootstrap(
        (totals, sizes), lambda y, m, axis: y.sum(axis) / m.sum(axis), paired=True, method="BCa", n_resamples=20_000,
        rng=np.random.default_rng(2),
    ).confidence_interval  # fmt: skip
    # Quantiles of 20,000 resamples differ by about .02 of the width between seeds.
    assert found.pair() == pytest.approx((twin.low, twin.high), abs=0.06 * float(found.width))


@pytest.mark.parametrize("method", ["t", "bca", "percentile"])
def test_the_bootstrap_depends_on_the_seed_and_on_no_neighbour(method) -> None:
    totals, sizes = cluster_sums(*episodes(SIZES))
    once = cluster_bootstrap(totals, sizes, seed=3, method=method)
    assert once.pair() == cluster_bootstrap(totals, sizes, seed=3, method=method).pair()
    assert once.pair() != cluster_bootstrap(totals, sizes, seed=4, method=method).pair()
    stacked = cluster_bootstrap(np.stack([totals, 2 * totals]), sizes, seed=3, method=method)
    assert (stacked.lo[0], stacked.hi[0]) == pytest.approx(once.pair())


@pytest.mark.parametrize("method", ["t", "bca", "percentile"])
@pytest.mark.parametrize("rate", [0.0, 0.5, 1.0])
def test_clusters_that_are_all_alike_give_a_point(method, rate: float) -> None:
    found = cluster_bootstrap(2 * rate * SIZES, 2 * SIZES, seed=1, method=method, support=(0.0, 1.0))
    assert found.pair() == pytest.approx((rate, rate))


@pytest.mark.parametrize("method", ["t", "bca", "percentile"])
def test_hardly_any_spread_is_never_nan(method) -> None:
    hits = np.zeros((2, 10))
    hits[0, 3] = 1
    found = cluster_bootstrap(hits, np.full(10, 5), seed=1, method=method, support=(0.0, 1.0))
    assert np.isfinite(found.lo).all()
    assert np.isfinite(found.hi).all()
    # A third of the resamples miss the one cluster with a success: by t that leaves the upper end open.
    assert found.hi[0] == 1.0 or method != "t"
