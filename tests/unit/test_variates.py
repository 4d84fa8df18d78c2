"""Control variates against regression by least squares, and in cases with a closed form."""

import numpy as np
import pytest
import scipy.stats

from invsim.errors import InputError
from invsim.stats.intervals import mean_t
from invsim.stats.variates import control_variate


def streams(seed: int = 1, n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    controls = rng.normal([1.0, 5.0], [1.0, 3.0], size=(n, 2))
    return 4.0 + controls @ [2.0, -0.5] + rng.normal(0.0, 0.7, n), controls


def least_squares(y: np.ndarray, controls: np.ndarray, means: list[float]) -> tuple[float, float]:
    """The intercept of a regression on centred controls, and its standard error, from the normal equations."""
    design = np.column_stack([np.ones(len(y)), controls - means])
    gram = np.linalg.inv(design.T @ design)
    beta = gram @ design.T @ y
    residual = y - design @ beta
    return float(beta[0]), float(np.sqrt(residual @ residual / (len(y) - design.shape[1]) * gram[0, 0]))


@pytest.mark.parametrize("k", [1, 2])
def test_it_is_the_intercept_of_a_regression(k: int) -> None:
    y, controls = streams()
    found = control_variate(y, controls[:, :k], [1.0, 5.0][:k])
    value, se = least_squares(y, controls[:, :k], [1.0, 5.0][:k])
    assert (found.value, found.se) == pytest.approx((value, se))
    assert found.df == len(y) - 1 - k
    assert found.gain == pytest.approx(y.var(ddof=1) / len(y) / se**2)
    half = scipy.stats.t.ppf(0.975, found.df) * se
    assert found.interval().pair() == pytest.approx((value - half, value + half))


def test_one_control_may_be_a_vector_with_a_plain_mean() -> None:
    y, controls = streams()
    one, other = control_variate(y, controls[:, 0], 1.0), control_variate(y, controls[:, :1], [1.0])
    assert (one.value, one.se, one.gain) == (other.value, other.se, other.gain)
    slope = scipy.stats.linregress(controls[:, 0], y).slope
    assert one.coefficients == pytest.approx([slope])
    assert one.value == pytest.approx(y.mean() - slope * (controls[:, 0].mean() - 1.0))


def test_a_control_that_explains_everything_leaves_no_error() -> None:
    _, controls = streams()
    found = control_variate(3.0 + 2.0 * controls[:, 0], controls[:, 0], 1.0)
    assert found.value == pytest.approx(5.0)
    assert found.se == pytest.approx(0.0, abs=1e-12)
    assert found.gain > 1e20


def test_controls_that_do_not_vary_or_repeat_others_are_left_out() -> None:
    y, controls = streams()
    more = np.column_stack([controls, np.full(len(y), 7.0), controls @ [1.0, 1.0]])
    plain, found = control_variate(y, controls, [1.0, 5.0]), control_variate(y, more, [1.0, 5.0, 7.0, 6.0])
    assert (found.value, found.se, found.df) == pytest.approx((plain.value, plain.se, plain.df))
    assert found.coefficients[2] == 0.0


def test_without_a_varying_control_it_is_the_plain_mean() -> None:
    y, _ = streams()
    found = control_variate(y, np.zeros(len(y)), 0.0)
    assert found.interval().pair() == pytest.approx(mean_t(y).pair())
    assert found.gain == pytest.approx(1.0)
    assert control_variate(np.ones(5), np.zeros(5), 0.0).gain == 1.0


def test_a_useless_control_costs_a_little() -> None:
    rng = np.random.default_rng(1)
    gains = [control_variate(*rng.normal(size=(2, 20)), 0.0).gain for _ in range(400)]
    # On average the error grows by the factor (n - 2) / (n - 3).
    assert 0.8 < np.mean(gains) < 1.1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: control_variate([1, 2, 3], [1, 2], 0), "values must have shape (n,)"),
        (lambda: control_variate([1, 2, 3], [1, 2, 3], [0, 0]), "values must have shape (n,)"),
        (lambda: control_variate([1, 2], [1, 2], 0), "1 controls need at least 3 streams (got 2)"),
        (lambda: control_variate([1, 2, np.nan], [1, 2, 3], 0), "values must be finite numbers (got nan)"),
    ],
)
def test_wrong_streams_are_refused(call, message: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value).startswith(message)
