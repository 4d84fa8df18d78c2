"""A confidence sequence leaves the true rate out in at most 5% of studies, however often it is looked at."""

import numpy as np
import pytest
from scipy.stats import binomtest

from invsim.errors import InputError
from invsim.stats.anytime import confidence_sequence
from invsim.stats.intervals import jeffreys

STUDIES, TRIALS = 2000, 100


def missed(rate: float, interval: object, seed: int) -> int:
    """Studies in which the interval leaves the rate out at any of its looks, one after each trial."""
    hits = (np.random.default_rng(seed).random((STUDIES, TRIALS)) < rate).cumsum(axis=1)
    found = interval(hits, np.broadcast_to(np.arange(1, TRIALS + 1), hits.shape))  # type: ignore[operator]
    return int((~found.contains(rate)).any(axis=1).sum())


@pytest.mark.parametrize("rate", [0.02, 0.3, 0.5, 0.95])
def test_the_chance_of_ever_leaving_the_rate_out_is_five_percent_at_most(rate: float) -> None:
    count = missed(rate, confidence_sequence, seed=5)
    # One-sided, at a false-alarm rate of 1e-6 each.
    assert binomtest(count, STUDIES, 0.05, alternative="greater").pvalue > 1e-6
    assert count < 0.06 * STUDIES


def test_an_ordinary_interval_looked_at_as_often_misses_far_more() -> None:
    assert missed(0.5, jeffreys, seed=5) > 0.25 * STUDIES


@pytest.mark.parametrize(("x", "n"), [(0, 7), (7, 7), (3, 10), (15, 30), (1, 1000)])
def test_the_limits_are_where_the_mixture_breaks_even(x: int, n: int) -> None:
    from scipy.special import betaln

    found = confidence_sequence(x, n)
    for limit, open_end in ((float(found.lo), 0.0), (float(found.hi), 1.0)):
        if limit != open_end:
            log = x * np.log(limit) + (n - x) * np.log1p(-limit)
            assert log == pytest.approx(np.log(0.05) + betaln(0.5 + x, 0.5 + n - x) - betaln(0.5, 0.5), abs=1e-6)
    assert found.contains(x / n)


def test_no_trials_say_nothing_and_more_say_more() -> None:
    assert confidence_sequence(0, 0).pair() == (0.0, 1.0)
    widths = [float(confidence_sequence(n // 2, n).width) for n in (2, 10, 50, 250)]
    assert widths == sorted(widths, reverse=True)
    assert confidence_sequence(7, 7).pair()[0] > 0.5 > confidence_sequence(6, 6).pair()[0]
    with pytest.raises(InputError):
        confidence_sequence(3, 2)
