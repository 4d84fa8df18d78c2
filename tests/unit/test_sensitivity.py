"""Sensitivity on functions whose indices and elasticities are known in closed form."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from invsim.errors import InputError
from invsim.stats.sensitivity import Elasticity, elasticities, sobol

A, B = 7.0, 0.1
ISHIGAMI = dict.fromkeys(("x", "y", "z"), (-math.pi, math.pi))


def ishigami(p):
    return np.sin(p["x"]) + A * np.sin(p["y"]) ** 2 + B * p["z"] ** 4 * np.sin(p["x"])


def exact() -> tuple[float, np.ndarray, np.ndarray]:
    """Ishigami and Homma (1990): variance, first-order and total indices."""
    one = 0.5 * (1 + B * math.pi**4 / 5) ** 2
    two = A**2 / 8
    both = 8 * B**2 * math.pi**8 / 225
    variance = one + two + both
    return variance, np.array([one, two, 0.0]) / variance, np.array([one + both, two, both]) / variance


def test_the_indices_of_ishigami() -> None:
    found = sobol(ishigami, ISHIGAMI, n=4096, seed=1)
    variance, first, total = exact()
    assert found.names == ("x", "y", "z")
    assert found.evaluations == 4096 * 5
    assert_allclose(found.first, first, atol=0.02)
    assert_allclose(found.total, total, atol=0.02)
    assert found.variance == pytest.approx(variance, rel=0.02)
    assert found.mean == pytest.approx(A / 2, rel=0.01)
    assert found.first_interval.contains(first).all()
    assert found.total_interval.contains(total).all()
    assert found.first_interval.width.max() < 0.12


def test_a_sum_has_no_interactions() -> None:
    found = sobol(lambda p: 3 * p["a"] + p["b"], {"a": (0, 1), "b": (0, 1)}, n=1024, seed=2)
    assert_allclose(found.first, [0.9, 0.1], atol=0.01)
    assert_allclose(found.total, found.first, atol=0.01)


def test_ranges_are_ranges() -> None:
    seen = []

    def response(p):
        seen.append((p["a"].min(), p["a"].max(), p["b"].min(), p["b"].max()))
        return p["a"]

    sobol(response, {"a": (2.0, 3.0), "b": (-1.0, 0.0)}, n=256, seed=1)
    low_a, high_a, low_b, high_b = seen[0]
    assert len(seen) == 1
    assert (2.0 <= low_a < 2.02, 2.98 < high_a <= 3.0) == (True, True)
    assert (-1.0 <= low_b < -0.98, -0.02 < high_b <= 0.0) == (True, True)


def test_the_seed_is_all_there_is() -> None:
    one, same, other = (sobol(ishigami, ISHIGAMI, n=128, seed=seed, resamples=99) for seed in (1, 1, 2))
    assert_allclose(one.first, same.first)
    assert_allclose(one.total_interval.hi, same.total_interval.hi)
    assert not np.allclose(one.first, other.first)


def test_a_constant_has_no_indices() -> None:
    found = sobol(lambda p: np.ones_like(p["a"]), {"a": (0, 1)}, n=16, seed=1)
    assert np.isnan(found.first).all()
    assert np.isnan(found.total_interval.lo).all()
    assert (found.mean, found.variance) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": 100}, "n must be a power of 2, 2 or more (got 100)"),
        ({"n": 1}, "n must be a power of 2, 2 or more (got 1)"),
        ({"resamples": 5}, "resamples must be 99 or more (got 5)"),
        ({"ranges": {}}, "there must be at least one parameter"),
        ({"ranges": {"x": (1.0, 1.0)}}, "the range of x must be finite, its low end below its high end"),
        ({"response": lambda p: 1.0}, "the response must return one number a point, shape (80,) (got ())"),
        ({"response": lambda p: np.log(p["x"] * 0.0)}, "the response must be finite (got -inf)"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
def test_wrong_designs_are_refused(changes, message: str) -> None:
    arguments = {"response": ishigami, "ranges": ISHIGAMI, "n": 16, "seed": 1, **changes}
    with pytest.raises(InputError) as caught:
        sobol(arguments.pop("response"), arguments.pop("ranges"), **arguments)
    assert str(caught.value).startswith(message)


# Elasticities --------------------------------------------------------------------------------------------------------


def test_the_elasticities_of_a_power_law_are_its_exponents() -> None:
    found = elasticities(lambda p: 3 * p["a"] ** 2 / p["b"], {"a": 3.0, "b": -2.0}, step=1e-4)
    assert found["a"].slope == pytest.approx(-9.0)
    assert found["a"].elasticity == pytest.approx(2.0)
    assert found["b"].elasticity == pytest.approx(-1.0)


def test_a_parameter_stays_in_its_range() -> None:
    def response(p):
        assert p["q"].max() <= 1.0
        assert p["r"].min() >= 0.0
        return 2 * p["q"] + p["r"]

    found = elasticities(response, {"q": 1.0, "r": 0.0}, ranges={"q": (0.0, 1.0), "r": (0.0, 1.0)})
    assert found["q"].slope == pytest.approx(2.0)
    assert found["r"] == Elasticity(pytest.approx(1.0), 0.0)


def test_no_elasticity_at_a_result_of_zero() -> None:
    found = elasticities(lambda p: p["a"] - 1.0, {"a": 1.0})
    assert found["a"].slope == pytest.approx(1.0)
    assert found["a"].elasticity is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step": 0.0}, "step must be above 0 (got 0.0)"),
        ({"at": {}}, "there must be at least one parameter"),
        ({"ranges": {"a": (2.0, 3.0)}}, "a must lie in a range that is not a point, 2 to 3 (got 1.0)"),
        ({"ranges": {"a": (1.0, 1.0)}}, "a must lie in a range that is not a point, 1 to 1 (got 1.0)"),
    ],
)
def test_wrong_points_are_refused(changes, message: str) -> None:
    arguments = {"at": {"a": 1.0}, **changes}
    with pytest.raises(InputError) as caught:
        elasticities(lambda p: p["a"], **arguments)
    assert str(caught.value) == message
