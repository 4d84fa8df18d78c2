"""Comparison of arms against SciPy's paired test, and of moments against arrays."""

import itertools

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from invsim.errors import InputError, UnknownNameError
from invsim.stats.compare import compare, compare_all, compare_moments

pairs = arrays(np.float64, st.tuples(st.just(2), st.integers(2, 40)), elements=st.floats(-50, 50, width=32))


def arms(seed: int = 1, n: int = 40) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    common = rng.normal(size=n)
    return {name: common + rng.normal(shift, 0.4, n) for name, shift in (("A1", 0.0), ("A2", 0.2), ("A2D", 1.0))}


def test_a_comparison_is_the_paired_t_test_of_scipy() -> None:
    a, b = list(arms().values())[:2]
    found = compare(a, b)
    twin = scipy.stats.ttest_rel(a, b)
    interval = twin.confidence_interval(0.9)
    assert found.interval(confidence=0.9).pair() == pytest.approx((interval.low, interval.high))
    assert float(found.p_value()) == pytest.approx(twin.pvalue)
    assert float(found.gain) == pytest.approx((a.var(ddof=1) + b.var(ddof=1)) / (a - b).var(ddof=1))
    assert float(found.gain) > 4.0


@given(pairs)
def test_moments_give_what_arrays_give(data: np.ndarray) -> None:
    a, b = data
    cov = np.cov(a, b)
    if (a - b).var() < 1e-6 * (cov[0, 0] + cov[1, 1]):
        return
    one = compare(a, b)
    other = compare_moments((a.mean(), b.mean()), (cov[0, 0], cov[1, 1]), cov[0, 1], len(a))
    for name in ("value", "se", "n", "gain"):
        assert float(getattr(other, name)) == pytest.approx(float(getattr(one, name)), rel=1e-6, abs=1e-9)


def test_independent_arms_gain_nothing() -> None:
    found = compare_moments((1.0, 2.0), (3.0, 5.0), 0.0, 50)
    assert float(found.gain) == pytest.approx(1.0)
    assert float(found.se) == pytest.approx(np.sqrt(8.0 / 50))


def test_moments_broadcast() -> None:
    found = compare_moments((np.zeros(3), 1.0), (np.ones(3), 2.0), [0.0, 0.5, 1.0], 10)
    assert found.value.shape == found.se.shape == found.gain.shape == (3,)
    assert np.all(np.diff(found.gain) > 0)


def test_bonferroni_divides_the_error_among_all_pairs() -> None:
    data = arms()
    found = compare_all(data)
    assert list(found) == list(itertools.combinations(data, 2))
    for (one, two), each in found.items():
        alone = compare(data[one], data[two])
        assert each.interval().pair() == pytest.approx(alone.interval(confidence=1 - 0.05 / 3).pair())
        assert float(each.p_value()) == pytest.approx(min(1.0, 3 * float(alone.p_value())))


def test_a_baseline_is_compared_with_every_other_arm() -> None:
    found = compare_all(arms(), baseline="A2")
    assert list(found) == [("A1", "A2"), ("A2D", "A2")]
    assert found["A2D", "A2"].comparisons == 2
    assert float(found["A2D", "A2"].value) == pytest.approx(float((arms()["A2D"] - arms()["A2"]).mean()))


def test_arms_that_never_differ() -> None:
    same = compare([1.0, 2.0, 4.0], [1.0, 2.0, 4.0])
    assert same.interval().pair() == (0.0, 0.0)
    assert (float(same.gain), float(same.p_value())) == (np.inf, 1.0)
    shifted = compare([2.0, 3.0, 5.0], [1.0, 2.0, 4.0])
    assert shifted.interval().pair() == (1.0, 1.0)
    assert float(shifted.p_value()) == 0.0
    assert float(compare([2.0, 2.0], [1.0, 1.0]).gain) == 1.0
    exact = compare_moments((2.0, 1.0), (0.1, 0.1), 0.1, 9)
    assert (float(exact.se), float(exact.gain)) == (0.0, np.inf)


def test_one_stream_says_nothing() -> None:
    found = compare([2.0], [1.0])
    assert float(found.value) == 1.0
    assert np.isnan(found.se)
    assert np.isnan(found.gain)
    assert found.interval().pair() == (-np.inf, np.inf)
    assert float(found.p_value()) == 1.0


def test_comparisons_go_along_the_last_axis() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 3, 10)), rng.normal(size=(2, 3, 10))
    found = compare(a, b)
    assert found.interval().lo.shape == found.p_value().shape == (2, 3)
    assert float(found.se[1, 2]) == float(compare(a[1, 2], b[1, 2]).se)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: compare([1.0, 2.0], [1.0]), "both arms must have one shape"),
        (lambda: compare([], []), "both arms must have one shape"),
        (lambda: compare([1.0, np.inf], [1.0, 2.0]), "the first arm must be finite numbers (got inf)"),
        (lambda: compare([1.0], [1.0], comparisons=0), "comparisons must be 1 or more (got 0)"),
        (lambda: compare_moments((0, 0), (-1, 1), 0, 5), "variances must be 0 or more (got -1.0)"),
        (lambda: compare_moments((0, 0), (1, 1), 2, 5), "the covariance must not exceed"),
        (lambda: compare_moments((0, 0), (1, 1), 0, 0), "n must be 1 or more (got 0.0)"),
        (lambda: compare_all({"A1": [1.0]}), "there must be at least two arms (got ['A1'])"),
    ],
)
def test_wrong_arms_are_refused(call, message: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value).startswith(message)


def test_an_unknown_baseline_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="unknown arm 'A3': known: A1, A2, A2D"):
        compare_all(arms(), baseline="A3")
