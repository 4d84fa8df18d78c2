"""Intervals against SciPy's own, against closed forms, and against what their definitions say by brute force."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from invsim.errors import InputError
from invsim.stats.arrays import t_quantile, z_quantile
from invsim.stats.intervals import (
    Interval,
    clopper_pearson,
    jeffreys,
    mean_t,
    ratio_delta,
    ratio_fieller,
    t_interval,
    wilson,
)

CASES = [(x, n) for n in (1, 2, 9, 36) for x in range(n + 1)]
X, N = np.array(CASES).T
RATES = (clopper_pearson, jeffreys, wilson)

streams = st.lists(st.floats(-100, 100), min_size=2, max_size=30)


# Rates ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
@pytest.mark.parametrize(("ours", "method"), [(clopper_pearson, "exact"), (wilson, "wilson")])
def test_rates_are_those_of_scipy(ours, method: str, confidence: float) -> None:
    found = ours(X, N, confidence=confidence)
    twins = [scipy.stats.binomtest(x, n).proportion_ci(confidence, method) for x, n in CASES]
    assert_allclose(found.lo, [each.low for each in twins], atol=1e-12)
    assert_allclose(found.hi, [each.high for each in twins], atol=1e-12)


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_jeffreys_is_the_posterior_inside_and_exact_at_the_ends(confidence: float) -> None:
    found, exact = jeffreys(X, N, confidence=confidence), clopper_pearson(X, N, confidence=confidence)
    lo, hi = scipy.stats.beta(X + 0.5, N - X + 0.5).interval(confidence)
    inside = (X > 0) & (X < N)
    assert_allclose(found.lo, np.where(inside, lo, exact.lo), rtol=1e-9)
    assert_allclose(found.hi, np.where(inside, hi, exact.hi), rtol=1e-9)


@given(st.integers(1, 10_000), st.floats(0.5, 0.999))
def test_without_a_success_the_upper_limit_is_in_closed_form(n: int, confidence: float) -> None:
    upper = 1.0 - ((1.0 - confidence) / 2.0) ** (1.0 / n)
    for interval in (clopper_pearson, jeffreys):
        assert interval(0, n, confidence=confidence).pair() == pytest.approx((0.0, upper), rel=1e-9)
        assert interval(n, n, confidence=confidence).pair() == pytest.approx((1.0 - upper, 1.0), rel=1e-9)


@given(st.sampled_from(RATES), st.integers(0, 60), st.integers(0, 60))
def test_a_rate_lies_inside_and_mirrors(interval, hits: int, misses: int) -> None:
    n = hits + misses
    lo, hi = interval(hits, n).pair()
    assert 0.0 <= lo <= (hits / n if n else 0.5) <= hi <= 1.0
    assert interval(misses, n).pair() == pytest.approx((1.0 - hi, 1.0 - lo), abs=1e-12)
    wider = interval(hits, n, confidence=0.99)
    assert wider.lo <= lo <= hi <= wider.hi


@pytest.mark.parametrize("interval", RATES)
def test_without_trials_a_rate_is_anything(interval) -> None:
    assert interval(0, 0).pair() == (0.0, 1.0)


@pytest.mark.parametrize("interval", RATES)
def test_rates_take_arrays_and_broadcast(interval) -> None:
    found = interval(np.arange(4)[:, None], np.array([5, 9]))
    assert found.lo.shape == found.hi.shape == (4, 2)
    assert found.lo[3, 1] == interval(3, 9).lo


@pytest.mark.parametrize("interval", RATES)
@pytest.mark.parametrize(
    ("successes", "trials", "message"),
    [
        (-1, 4, "successes must be 0 or more (got -1.0)"),
        (5, 4, "successes must not exceed trials (got (5.0, 4.0))"),
        (0, -2, "trials must be 0 or more (got -2.0)"),
        (np.nan, 4, "successes must be finite numbers (got nan)"),
        ("many", 4, "successes must be numbers (got 'many')"),
        ([1, 2], [3, 4, 5], "successes and trials must have shapes that broadcast (got ((2,), (3,)))"),
    ],
)
def test_wrong_counts_are_refused(interval, successes, trials, message: str) -> None:
    with pytest.raises(InputError) as caught:
        interval(successes, trials)
    assert str(caught.value) == message


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95, -0.5, np.nan])
def test_a_wrong_confidence_is_refused(confidence: float) -> None:
    with pytest.raises(InputError, match="confidence must lie strictly between 0 and 1"):
        wilson(1, 2, confidence=confidence)


# Quantiles, means ----------------------------------------------------------------------------------------------------


@given(st.floats(0.5, 1e6), st.floats(0.01, 0.999))
def test_quantiles_are_those_of_scipy(df: float, confidence: float) -> None:
    assert float(t_quantile(df, confidence)) == pytest.approx(scipy.stats.t(df).interval(confidence)[1], rel=1e-6)
    assert z_quantile(confidence) == pytest.approx(scipy.stats.norm.interval(confidence)[1], rel=1e-9)


def test_no_freedom_is_no_knowledge() -> None:
    assert_allclose(t_quantile([0, -1], 0.95), np.inf)
    assert t_interval(3.0, 0.0, 0).pair() == (-np.inf, np.inf)


@given(streams, st.sampled_from([0.9, 0.95]))
def test_a_mean_is_that_of_scipy(values: list[float], confidence: float) -> None:
    if np.ptp(values) < 1e-6:
        return
    twin = scipy.stats.ttest_1samp(values, 0.0).confidence_interval(confidence)
    assert mean_t(values, confidence=confidence).pair() == pytest.approx((twin.low, twin.high), rel=1e-6, abs=1e-9)


def test_means_go_along_the_last_axis() -> None:
    data = np.random.default_rng(1).normal(size=(2, 3, 8))
    found = mean_t(data)
    assert found.lo.shape == (2, 3)
    assert found.hi[1, 2] == mean_t(data[1, 2]).hi


def test_few_or_equal_values() -> None:
    assert mean_t([4.0]).pair() == mean_t([]).pair() == (-np.inf, np.inf)
    assert mean_t([4.0, 4.0, 4.0]).pair() == (4.0, 4.0)
    with pytest.raises(InputError, match="at least one axis"):
        mean_t(4.0)


# Ratios --------------------------------------------------------------------------------------------------------------


def paired(seed: int, n: int = 25) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    under = rng.normal(5.0, 1.0, n)
    return 0.7 * under + rng.normal(0.0, 0.5, n), under


@pytest.mark.parametrize("seed", range(5))
def test_a_ratio_by_the_delta_method_by_hand(seed: int) -> None:
    over, under = paired(seed)
    ratio = over.mean() / under.mean()
    (vaa, vab), (_, vbb) = np.cov(over, under) / len(over)
    se = np.sqrt(vaa - 2 * ratio * vab + ratio**2 * vbb) / under.mean()
    half = scipy.stats.t.ppf(0.975, len(over) - 1) * se
    assert ratio_delta(over, under).pair() == pytest.approx((ratio - half, ratio + half))
    assert ratio_delta(over, -under).pair() == pytest.approx((-ratio - half, -ratio + half))


@pytest.mark.parametrize("seed", range(5))
def test_fiellers_limits_are_the_ratios_just_not_rejected(seed: int) -> None:
    over, under = paired(seed)
    lo, hi = ratio_fieller(over, under).pair()
    assert lo < over.mean() / under.mean() < hi
    for limit in (lo, hi):
        assert scipy.stats.ttest_1samp(over - limit * under, 0.0).pvalue == pytest.approx(0.05)


def test_ratios_without_a_denominator() -> None:
    over, under = np.array([1.0, 2.0, 4.0]), np.array([-1.0, 0.0, 1.0])
    for interval in (ratio_delta, ratio_fieller):
        assert interval(over, under).pair() == (-np.inf, np.inf)
        assert interval(np.ones((4, 5, 3)), np.ones((4, 5, 3))).lo.shape == (4, 5)
        assert interval(np.full(3, 6.0), np.full(3, 2.0)).pair() == pytest.approx((3.0, 3.0))
        with pytest.raises(InputError, match="n of 2 or more"):
            interval([1.0], [1.0])


# Weight --------------------------------------------------------------------------------------------------------------


def test_importing_the_estimators_loads_no_scipy_and_using_most_no_scipy_stats() -> None:
    code = (
        "import sys\n"
        "from invsim.stats import clusters, compare, detection, intervals, pooling, sensitivity, sequential, variates\n"
        "assert 'scipy' not in sys.modules\n"
        "intervals.mean_t([1, 2]), intervals.wilson(1, 2), pooling.pool([1], [2]).interval()\n"
        "clusters.cluster_robust_rate([1, 2], [3, 3])\n"
        "clusters.cluster_bootstrap([1, 2], [3, 3], seed=1, method='bca')\n"
        "compare.compare([1, 2], [3, 3]).p_value()\n"
        "assert 'scipy.stats' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# The interval itself -------------------------------------------------------------------------------------------------


def test_an_interval_of_many() -> None:
    many = Interval(np.array([0.0, 1.0]), np.array([0.5, 3.0]))
    assert_allclose(many.width, [0.5, 2.0])
    assert many.contains(0.5).tolist() == [True, False]
    with pytest.raises(InputError, match="pair"):
        many.pair()
