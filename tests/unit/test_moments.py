"""Moments of counts: against plain NumPy, and the same bit for bit however the streams are cut into blocks."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from invsim.stats.costs import TokenCosts
from invsim.stats.moments import UNDEFINED, Estimate, Moments, ReciprocalMean

NAMES = ("a", "b", "c")

counts = arrays(np.int64, st.tuples(st.integers(2, 40), st.just(3)), elements=st.integers(-1000, 1000))
positive = arrays(np.int64, st.tuples(st.integers(2, 40), st.just(3)), elements=st.integers(1, 1000))
weights = st.fixed_dictionaries({name: st.floats(-8, 8, allow_subnormal=False) for name in NAMES})
cuts = st.lists(st.integers(0, 40), max_size=6).map(sorted)


def moments(*blocks: np.ndarray) -> Moments:
    gathered = Moments(NAMES)
    for block in blocks:
        gathered.add(block)
    return gathered


def combined(data: np.ndarray, weights: dict[str, float]) -> np.ndarray:
    return sum(weights.get(name, 0.0) * data[:, at] for at, name in enumerate(NAMES))


def error(values: np.ndarray) -> float:
    return float(np.sqrt(np.var(values, ddof=1) / len(values)))


# Columns -------------------------------------------------------------------------------------------------------------


@given(counts, st.integers(-1000, 1000), weights)
def test_columns_of_any_integers_and_shared_numbers_count_like_a_matrix(
    data: np.ndarray, shared: int, weights: dict[str, float]
) -> None:
    data[:, 1] = shared
    data[:, 2] %= 200
    expected, found = moments(data), Moments(NAMES)
    for part in np.array_split(data, 3):
        found.add_columns({"a": part[:, 0], "b": shared, "c": part[:, 2].astype(np.uint8)}, len(part))
    assert found.mean(weights) == expected.mean(weights)
    assert found.ratio(weights, {"a": 1.0}) == expected.ratio(weights, {"a": 1.0})


def test_a_number_shared_by_some_blocks_only_is_one_of_many() -> None:
    expected, found = moments(np.array([[1, 5, 0]] * 3 + [[2, 6, 0]] * 4)), Moments(NAMES)
    found.add_columns({"a": 1, "b": np.array([5, 5, 5]), "c": 0}, 3)
    found.add_columns({"a": 2, "b": 6, "c": np.array([False] * 4)}, 4)
    assert found.mean({"a": 1.0, "b": 2.0}) == expected.mean({"a": 1.0, "b": 2.0})
    assert found.n == 7


def test_more_streams_than_a_tile_holds_are_added_whole() -> None:
    data = np.random.default_rng(1).integers(-50, 50, size=(70_000, 3))
    whole, parts = moments(data), moments(data[:1], data[1:40_000], data[40_000:])
    for each in ({"a": 1.0}, {"a": 0.5, "b": -3.0, "c": 2.0}):
        assert whole.mean(each) == parts.mean(each)
        assert whole.mean(each).se == pytest.approx(error(combined(data, each)), rel=1e-12)


# A mean, a ratio -----------------------------------------------------------------------------------------------------


@given(counts, weights, st.sampled_from([1.0, 3.0, 36.0]))
def test_a_mean_is_that_of_numpy(data: np.ndarray, weights: dict[str, float], scale: float) -> None:
    values = combined(data, weights) / scale
    found = moments(data).mean(weights, scale=scale)
    tiny = 1e-9 * (1 + float(np.abs(values).max()))
    assert found.value == pytest.approx(float(np.mean(values)), rel=1e-12, abs=tiny)
    assert found.se == pytest.approx(error(values), rel=1e-6, abs=tiny)
    assert found.n == len(data)


@given(positive, st.floats(0.1, 8), st.floats(0.1, 8))
def test_a_ratio_has_the_error_of_the_delta_method(data: np.ndarray, first: float, second: float) -> None:
    over, under = {"a": first, "c": -second}, {"b": second}
    top, bottom = combined(data, over), combined(data, under)
    ratio = np.mean(top) / np.mean(bottom)
    found = moments(data).ratio(over, under)
    tiny = 1e-9 * (1 + float(np.abs(top).max())) / float(np.mean(bottom))
    assert found.value == pytest.approx(float(ratio), rel=1e-9, abs=tiny)
    assert found.se == pytest.approx(error(top - ratio * bottom) / np.mean(bottom), rel=1e-6, abs=tiny * (1 + ratio**2))
    assert found.n == len(data)


def test_a_ratio_uses_the_covariance() -> None:
    base = np.array([3, 8, 5, 9, 2])
    same = moments(np.column_stack([base, base, base]))
    assert same.ratio({"a": 1}, {"b": 1}) == Estimate(1.0, 0.0, 5)
    # By hand: a = (1, 3), b = (2, 2): ratio 1, a - b = (-1, 1), variance 2, over n = 2, over mean(b) = 2.
    by_hand = moments(np.array([[1, 2, 0], [3, 2, 0]])).ratio({"a": 1}, {"b": 1})
    assert by_hand == Estimate(1.0, 0.5, 2)


def test_a_negative_denominator_has_a_positive_error() -> None:
    found = moments(np.array([[1, -2, 0], [3, -2, 0]])).ratio({"a": 1}, {"b": 1})
    assert found == Estimate(-1.0, 0.5, 2)


# Blocks --------------------------------------------------------------------------------------------------------------


@given(counts, weights, cuts)
def test_any_cut_into_blocks_gives_the_same_bits(data: np.ndarray, weights: dict[str, float], cuts: list[int]) -> None:
    whole, parts = moments(data), moments(*np.split(data, cuts))
    assert parts.n == len(data)
    assert parts.mean(weights) == whole.mean(weights)
    assert parts.ratio(weights, {"b": 1}) == whole.ratio(weights, {"b": 1})


@given(counts, weights)
def test_one_stream_at_a_time_gives_the_same_bits(data: np.ndarray, weights: dict[str, float]) -> None:
    assert moments(*(row[None] for row in data)).mean(weights) == moments(data).mean(weights)


@given(counts, weights, st.integers(-(10**9), 10**9))
def test_a_common_offset_does_not_touch_the_error(data: np.ndarray, weights: dict[str, float], offset: int) -> None:
    assert moments(data + offset).mean(weights).se == moments(data).mean(weights).se


def test_the_blocks_themselves_are_not_kept() -> None:
    data = np.array([[1, 2, 3], [4, 5, 6]])
    gathered = moments(data)
    before = gathered.mean({"a": 1})
    data[:] = 0
    assert gathered.mean({"a": 1}) == before == Estimate(2.5, 1.5, 2)


# Exactness and the undefined -----------------------------------------------------------------------------------------


@given(st.lists(st.integers(-1000, 1000), min_size=3, max_size=3), weights, st.integers(2, 600))
def test_counts_that_never_vary_have_no_error_at_all(row: list[int], weights: dict[str, float], n: int) -> None:
    constant = moments(np.tile(np.array(row), (n, 1)))
    found = constant.mean(weights, scale=7.0)
    assert found.se == 0.0
    assert found.value == pytest.approx(sum(weights[name] * value for name, value in zip(NAMES, row, strict=True)) / 7)
    if row[1]:
        assert constant.ratio(weights, {"b": 0.1}).se == 0.0


def test_one_stream_has_a_value_and_no_error() -> None:
    one = moments(np.array([[1, 4, 0]]))
    assert one.mean({"a": 1}) == Estimate(1.0, None, 1)
    assert one.ratio({"a": 1}, {"b": 1}) == Estimate(0.25, None, 1)


def test_no_stream_is_undefined() -> None:
    for none in (moments(), moments(np.empty((0, 3), dtype=np.int64))):
        assert none.mean({"a": 1}) == none.ratio({"a": 1}, {"b": 1}) == UNDEFINED == Estimate(None, None, 0)


@given(counts)
def test_a_ratio_over_zero_is_undefined(data: np.ndarray) -> None:
    data[:, 1] = 0
    assert moments(data).ratio({"a": 1}, {"b": 0.3}) == UNDEFINED
    assert moments(data).ratio({"a": 1}, {"c": 0.0}) == UNDEFINED


def test_an_unknown_count_is_refused() -> None:
    with pytest.raises(KeyError):
        moments(np.ones((2, 3), dtype=np.int64)).mean({"d": 1})


def test_an_estimate_is_plain_data() -> None:
    assert Estimate(0.5, None, 1).to_dict() == {"value": 0.5, "se": None, "n": 1}


# Mean of 1/count -----------------------------------------------------------------------------------------------------

few = st.lists(st.integers(0, 12), max_size=40)


def reciprocal(*blocks: list[int]) -> Estimate:
    gathered = ReciprocalMean()
    for block in blocks:
        gathered.add(np.array(block, dtype=np.int64))
    return gathered.estimate()


@given(few)
def test_a_reciprocal_mean_is_the_plain_one_over_counts_that_are_not_zero(values: list[int]) -> None:
    kept = [Fraction(1, value) for value in values if value]
    found = reciprocal(values)
    assert found.n == len(kept)
    if not kept:
        assert found == UNDEFINED
        return
    mean = sum(kept) / len(kept)
    assert found.value == pytest.approx(float(mean), rel=1e-14)
    if len(kept) == 1:
        assert found.se is None
        return
    variance = sum((each - mean) ** 2 for each in kept) / (len(kept) - 1)
    assert found.se == pytest.approx(float(variance / len(kept)) ** 0.5, rel=1e-9, abs=1e-12)


@given(few, st.randoms(use_true_random=False), st.integers(0, 40))
def test_a_reciprocal_mean_does_not_depend_on_order_or_blocks(values: list[int], random, cut: int) -> None:
    mixed = random.sample(values, len(values))
    assert reciprocal(mixed[:cut], mixed[cut:]) == reciprocal(values)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], UNDEFINED),
        ([0, 0, 0], UNDEFINED),  # undefined, not 1
        ([0, 4, 0], Estimate(0.25, None, 1)),
        ([4] * 7, Estimate(0.25, 0.0, 7)),
        ([1, 2], Estimate(0.75, 0.25, 2)),
    ],
)
def test_a_reciprocal_mean_by_hand(values: list[int], expected: Estimate) -> None:
    assert reciprocal(values) == expected


# Token costs ---------------------------------------------------------------------------------------------------------


def test_tokens_are_a_combination_of_counts() -> None:
    costs = TokenCosts(base=1.0, per_retry=0.5, per_entry=0.25, conflict=2.0)
    weights = costs.weights(attempts="attempts", entries="entries", conflicts="conflicts", one="one", episodes=3)
    # Three episodes of 1, 2 and 1 attempts; 8 entries shown in all; one attempt in a conflict.
    stream = {"attempts": 4, "entries": 8, "conflicts": 1, "one": 1}
    assert sum(weights[name] * stream[name] for name in stream) == 4 * 1.0 + 1 * 0.5 + 8 * 0.25 + 1 * 2.0
