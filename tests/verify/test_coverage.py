"""How often the intervals hold what they say they hold, and that intervals known to be wrong are caught.

Rates over independent trials are checked exactly, by enumerating the binomial; nothing there is subject to chance. The
rest is simulated with fixed seeds, so that a check that passes always does. Its docstring says how likely it was to
fail at first if all is right (the false-alarm rate), from the Monte Carlo error sqrt(c (1 - c) / n) of a coverage c.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import binom

from invsim.stats.clusters import cluster_bootstrap, cluster_robust_mean, cluster_robust_rate
from invsim.stats.compare import compare
from invsim.stats.intervals import Interval, clopper_pearson, jeffreys, mean_t, ratio_delta, ratio_fieller, wilson
from invsim.stats.moments import Estimate
from invsim.stats.pooling import pool
from invsim.stats.sequential import Stopping, Target
from invsim.stats.variates import control_variate

TRIALS, RATES = (9, 27, 60, 300), (0.05, 0.3, 0.5, 0.85)


# Rates over independent trials: exact --------------------------------------------------------------------------------


def wald(successes: np.ndarray, trials: int) -> Interval:
    """The interval that textbooks warn of."""
    rate = successes / trials
    half = ndtri(0.975) * np.sqrt(rate * (1 - rate) / trials)
    return Interval(rate - half, rate + half)


def exact_coverage(interval: Callable[..., Interval], n: int, rates: np.ndarray) -> np.ndarray:
    """P(the interval for x successes of n holds the rate), x summed over the binomial, for each of some rates."""
    x = np.arange(n + 1)
    found = interval(x, n)
    inside = (found.lo[:, None] <= rates) & (rates <= found.hi[:, None])
    return np.sum(binom.pmf(x[:, None], n, rates) * inside, axis=0)


@pytest.mark.parametrize("interval", [jeffreys, wilson])
def test_jeffreys_and_wilson_cover_95_on_average(interval, ledger) -> None:
    """Exact; no false alarms. Jeffreys covers .956 on average (worst .937), Wilson .950 (worst .929)."""
    coverage = np.array([exact_coverage(interval, n, np.array(RATES)) for n in TRIALS])
    ledger.coverage(f"{interval.__name__}, mean of 16 cells", coverage.mean(), low=0.93, high=0.97)
    ledger.coverage(f"{interval.__name__}, worst of 16 cells", coverage.min(), low=0.92)


def test_clopper_and_pearson_cover_95_everywhere(ledger) -> None:
    """Exact; no false alarms. Over 999 rates it never covers less; on average .974 where the others do .95."""
    rates = np.arange(1, 1000) / 1000
    worst = min(exact_coverage(clopper_pearson, n, rates).min() for n in (1, 2, 3, *TRIALS))
    ledger.coverage("clopper_pearson, worst of 999 rates", worst, low=0.95 - 1e-12)


def test_wald_is_caught(ledger) -> None:
    """Negative control, exact. At n = 9 and a rate of .05 Wald covers .37, on average over the four rates .72."""
    coverage = exact_coverage(wald, 9, np.array(RATES))
    ledger.check("negative control: coverage of Wald at n = 9", coverage.mean(), high=0.8)
    ledger.check("negative control: its worst", coverage.min(), high=0.4)


# Clusters: simulated -------------------------------------------------------------------------------------------------

CLUSTERS = (10, 20, 40)
SIZES = ((5,), (27,), (100,), (20, 36, 36, 50), (5, 10, 20, 40), (1, 30), (2, 5, 10, 40))
ICC = 0.2


def clustered(clusters: int, sizes: tuple[int, ...], rate: float, samples: int, seed: int) -> tuple:
    """Beta-binomial successes, shape (samples, clusters), at an intra-cluster correlation of .2, and trials."""
    rng = np.random.default_rng([seed, clusters, len(sizes), sizes[-1], round(100 * rate)])
    trials = np.resize(sizes, clusters)
    kappa = 1 / ICC - 1
    hits = rng.binomial(trials, rng.beta(rate * kappa, (1 - rate) * kappa, size=(samples, clusters)))
    return hits, trials


def coverages(
    interval: Callable[..., Interval], *, sizes: tuple, rates: tuple[float, ...], samples: int, seed: int = 1
) -> Iterator[tuple[tuple, float]]:
    for clusters in CLUSTERS:
        for each in sizes:
            for rate in rates:
                found = interval(*clustered(clusters, each, rate, samples, seed))
                yield (clusters, each, rate), float(found.contains(rate).mean())


def test_the_cluster_robust_rate_covers_93_with_ten_clusters_or_more(ledger) -> None:
    """105 cells of 4,000 samples, error .0035 each. The lowest covers .947, so a false alarm has probability 10^-5.

    It covers .972 on average, and up to .995 where a rate of .05 meets ten clusters.
    """
    found = dict(coverages(cluster_robust_rate, sizes=SIZES, rates=(0.05, 0.15, 0.3, 0.5, 0.85), samples=4_000))
    ledger.coverage("cluster_robust_rate, worst of 105 cells", min(found.values()), low=0.93, error=0.0035)
    ledger.coverage("cluster_robust_rate, mean of 105 cells", np.mean(list(found.values())), low=0.95)


def test_the_cluster_robust_mean_covers_93_where_the_rate_is_not_extreme(ledger) -> None:
    """42 cells of 20,000 samples, error .0017 each. The lowest covers .935, so a false alarm has probability .002.

    On average it covers .950. At rates of .15 it covers .90 to .94, at .05 from ten clusters .8: that is what the
    rate's own interval is for.
    """
    found = dict(coverages(cluster_robust_mean, sizes=SIZES, rates=(0.3, 0.5), samples=20_000))
    ledger.coverage("cluster_robust_mean, worst of 42 cells", min(found.values()), low=0.93, error=0.0017)


def test_the_studentised_bootstrap_covers_93_where_clusters_are_alike(ledger) -> None:
    """12 cells of 2,000 samples, error .005 each. The lowest covers .946, so a false alarm has probability .002.

    With ten clusters of very unequal sizes, (2, 5, 10, 40), it covers .89 to .93.
    """

    def bootstrap(hits: np.ndarray, trials: np.ndarray) -> Interval:
        return cluster_bootstrap(hits, trials, seed=5, resamples=399)

    found = dict(coverages(bootstrap, sizes=((9,), (20, 36, 36, 50)), rates=(0.3, 0.85), samples=2_000))
    ledger.coverage("cluster_bootstrap, worst of 12 cells", min(found.values()), low=0.93, error=0.005)


@pytest.mark.parametrize("interval", [jeffreys, wilson])
def test_episodes_taken_for_independent_are_caught(interval, ledger) -> None:
    """Negative control, error .006. In clusters of 27 the interval for independent trials covers .57, of 100 .33."""

    def pooled(hits: np.ndarray, trials: np.ndarray) -> Interval:
        return interval(hits.sum(axis=-1), trials.sum())

    found = dict(coverages(pooled, sizes=((27,), (100,)), rates=(0.3, 0.5), samples=2_000))
    name = f"negative control: {interval.__name__} on clusters taken for independent"
    ledger.check(name, max(found.values()), high=0.7)
    assert max(each for (_, sizes, _), each in found.items() if sizes == (100,)) < 0.4


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_a_bootstrap_of_ten_clusters_that_is_not_studentised_is_caught(method) -> None:
    """Negative control, error .007. With ten clusters of 27 and a rate of .3 the percentiles cover .91, BCa .917."""
    found = cluster_bootstrap(*clustered(10, (27,), 0.3, 2_000, 3), seed=5, resamples=399, method=method)
    assert found.contains(0.3).mean() < 0.925


# Partial pooling -----------------------------------------------------------------------------------------------------


def test_partial_pooling_is_calibrated_against_its_own_prior() -> None:
    """Data drawn from the prior: posterior intervals then cover exactly what they say, 90%, in expectation.

    200 data sets of six cells, errors .021 (population) and .014 (cells, clustered in data sets); limits of 4
    errors, so a false alarm has probability .0001. A cell without a success or a failure reaches to 0 or 1 and covers
    more. The negative control plugs in the likeliest mu and kappa, and covers .86.
    """
    rng = np.random.default_rng(4)
    cells, plugged, population, trials = [], [], [], np.array([9, 9, 9, 27, 27, 60])
    for _ in range(200):
        mu, rho = rng.beta(0.5, 0.5), rng.random()
        kappa = 1 / rho - 1
        rates = rng.beta(max(mu * kappa, 1e-12), max((1 - mu) * kappa, 1e-12), size=6)
        hits = rng.binomial(trials, rates)
        found = pool(hits, trials)
        # Where the limit is not moved to the end.
        inner = (hits > 0) & (hits < trials)
        if inner.any():
            cells.append((found.interval(confidence=0.9).contains(rates)[inner].sum(), inner.sum()))
            best = int(np.argmax(found.weights))
            fixed = replace(found, mu=found.mu[[best]], kappa=found.kappa[[best]], weights=np.ones(1))
            plugged.append(fixed.interval(confidence=0.9).contains(rates)[inner].sum())
        population.append(bool(found.population_interval(confidence=0.9).contains(mu)))
    inside, of = np.array(cells).T
    share = inside.sum() / of.sum()
    error = np.sqrt(np.sum((inside - share * of) ** 2)) / of.sum()
    assert abs(np.mean(population) - 0.9) < 4 * 0.021
    # A cell is taken or left for its own data, which by itself does not bias the share under the posterior.
    assert abs(share - 0.9) < 4 * error
    assert error < 0.02
    assert np.sum(plugged) / of.sum() < share - 0.015


def test_the_population_interval_is_shorter_than_the_robust_one_and_covers() -> None:
    """100 samples of ten clusters of 27 at each of two rates, error .014; a false alarm has probability .001.

    It covers .97 at a rate of .05 and .95 at .3, with .71 and .86 of the robust one's width.
    """
    inside, narrower = [], []
    for rate in (0.05, 0.3):
        hits, trials = clustered(10, (27,), rate, 100, 6)
        robust = cluster_robust_rate(hits, trials)
        for row, width in zip(hits, robust.width, strict=True):
            found = pool(row, trials).population_interval()
            inside.append(bool(found.contains(rate)))
            narrower.append(float(found.width) / width)
    assert np.mean(inside) >= 0.91
    assert np.mean(narrower) < 0.9


# Stopping ------------------------------------------------------------------------------------------------------------


def stopped(
    draw: Callable[[int], np.ndarray], truth: float, rule: Stopping, *, batch: int, samples: int
) -> tuple[float, float]:
    """How often, where the rule stops, the measured half-width and the one that was asked for hold the truth."""
    inside = np.zeros(2)
    target = rule.targets["x"]
    n = np.arange(1, rule.budget + 1)
    for _ in range(samples):
        values = draw(rule.budget)
        mean = np.cumsum(values) / n
        variance = np.maximum(np.cumsum(values**2) - n * mean**2, 0) / np.maximum(n - 1, 1)
        means, errors = mean.tolist(), np.sqrt(variance / n).tolist()
        state = rule
        for at in range(rule.minimum, rule.budget + 1, batch):
            decision = state.update({"x": Estimate(means[at - 1], errors[at - 1], at)})
            state = decision.rule
            if decision.stop:
                break
        off = abs(means[decision.n - 1] - truth)
        inside += off <= decision.half_widths["x"], off <= target.allowed(means[decision.n - 1])
    return tuple(inside / samples)


def test_the_stopping_rule_covers_94_on_normal_streams(ledger) -> None:
    """A look at every stream, to 19, 32 and 50 streams on average: 5,000 samples each, error .003, .0019 in all.

    In 20,000 samples the measured half-width covers .945, .944 and .944, the one asked for .988, .969 and .960. So the
    mean of the three falls below .94 with probability .02, one of them below .93, or .95, with .001.
    """
    rng = np.random.default_rng(7)
    found = np.array([
        stopped(rng.standard_normal, 0.0, Stopping({"x": Target(absolute=half)}, budget=200), batch=1, samples=5_000)
        for half in (0.6, 0.4, 0.3)
    ])  # fmt: skip
    measured, asked = found.T
    ledger.coverage("stopping rule, normal streams", measured.mean(), low=0.94, error=0.0019)
    assert measured.min() >= 0.93
    assert asked.min() >= 0.95


@pytest.mark.parametrize(("rate", "samples"), [(0.05, 1_500), (0.3, 1_500), (0.5, 1_500), (0.85, 1_500)])
def test_the_stopping_rule_covers_94_on_bernoulli_streams(rate: float, samples: int, ledger) -> None:
    """Looks at ten streams, error .005. In 20,000 samples it covers .966, .955, .947 and .964; a false alarm in one of
    the four, below .94 less two errors, has probability .001."""
    rng = np.random.default_rng([8, round(100 * rate)])
    rule = Stopping({"x": Target(absolute=0.1, span=1.0)}, budget=300)
    measured, asked = stopped(lambda n: (rng.random(n) < rate).astype(float), rate, rule, batch=10, samples=samples)
    ledger.coverage(f"stopping rule, rate {rate}", measured, low=0.94 - 2 * 0.005, error=0.005)
    assert asked >= 0.97


def test_stopping_at_the_first_look_and_equal_streams_taken_at_their_word_are_caught() -> None:
    """Negative controls, error .006. From three streams on, the first small half-width covers .907 (n = 12); a run
    of failures taken for certainty covers .53 at a rate of .05."""
    rng = np.random.default_rng(9)
    hasty = Stopping({"x": Target(absolute=0.6)}, budget=200, look_ahead=0, minimum=3)
    assert stopped(rng.standard_normal, 0.0, hasty, batch=1, samples=3_000)[0] < 0.93
    trusting = Stopping({"x": Target(absolute=0.1)}, budget=300)
    rare = stopped(lambda n: (rng.random(n) < 0.05).astype(float), 0.05, trusting, batch=1, samples=1_000)
    assert rare[0] < 0.7


# Means, ratios, comparisons, controls --------------------------------------------------------------------------------


def test_means_differences_ratios_and_controls_cover_95() -> None:
    """Normal streams, where all but the delta method are exact: 20,000 samples of 12 streams (controls: 4,000).

    Errors .0015 (.0034); limits of 4 errors, and so a false alarm has probability .0003. The delta method covers .945.
    """
    rng = np.random.default_rng(10)
    error = np.sqrt(0.95 * 0.05 / 20_000)
    common = rng.normal(size=(20_000, 12))
    first, second = common + rng.normal(size=common.shape), 5 + common + rng.normal(0, 0.3, size=common.shape)
    assert abs(mean_t(first).contains(0).mean() - 0.95) < 4 * error
    paired = compare(first, second)
    assert abs(paired.interval().contains(-5).mean() - 0.95) < 4 * error
    # (2 + 1.09) / 1.09, with the error of a ratio of variances over 11 degrees of freedom.
    assert np.median(paired.gain) == pytest.approx(3.09 / 1.09, rel=0.1)
    assert abs(ratio_fieller(first, second).contains(0).mean() - 0.95) < 4 * error
    assert 0.93 < ratio_delta(first + 2, second).contains(0.4).mean() < 0.96
    held = [
        bool(control_variate(y, c, 0.0).interval().contains(0.0))
        for y, c in zip(first[:4_000], common[:4_000], strict=True)
    ]
    assert abs(np.mean(held) - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 4_000)


def test_bonferroni_keeps_all_pairs_and_plain_intervals_do_not() -> None:
    """Ten differences of independent arms at once: 4,000 samples, error .0035. Bonferroni covers all ten with .95 or
    more, a false alarm beyond 4 errors has .00003; plain 95% intervals hold all ten in .6 of the samples."""
    rng = np.random.default_rng(11)
    first, second = rng.normal(size=(4_000, 10, 15)), rng.normal(size=(4_000, 10, 15))
    together = compare(first, second, comparisons=10).interval().contains(0).all(axis=1).mean()
    apart = compare(first, second).interval().contains(0).all(axis=1).mean()
    assert together > 0.95 - 4 * 0.0035
    assert apart < 0.7
