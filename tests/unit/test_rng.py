"""Keyed random numbers: a draw depends on seed, stream and slot, and on nothing else."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from invsim.rng import FIRST_TRY, PURPOSES, RETRY, uniforms

seeds = st.integers(0, 2**64)
small = st.integers(1, 9)


@given(seeds, st.integers(0, 10**6), small, small)
def test_one_stream_alone_equals_its_row_of_a_block(seed: int, first: int, count: int, slots: int) -> None:
    block = uniforms(seed, first=first, count=count, slots=slots)
    assert block.shape == (count, slots)
    for at in range(count):
        alone = uniforms(seed, first=first + at, count=1, slots=slots)
        assert np.array_equal(alone[0], block[at])


@given(seeds, st.integers(0, 1000), st.lists(small, min_size=1, max_size=5), small)
def test_how_a_run_is_cut_into_chunks_changes_nothing(seed: int, first: int, chunks: list, slots: int) -> None:
    whole = uniforms(seed, first=first, count=sum(chunks), slots=slots)
    starts = [first + sum(chunks[:at]) for at in range(len(chunks))]
    parts = [uniforms(seed, first=start, count=count, slots=slots) for start, count in zip(starts, chunks, strict=True)]
    assert np.array_equal(np.concatenate(parts), whole)


def test_the_order_of_the_calls_changes_nothing() -> None:
    forwards = [uniforms(7, first=at, count=1, slots=72) for at in range(5)]
    backwards = [uniforms(7, first=at, count=1, slots=72) for at in reversed(range(5))]
    assert all(np.array_equal(a, b) for a, b in zip(forwards, reversed(backwards), strict=True))


@given(st.integers(0, 1000), st.integers(0, 1000))
def test_different_seeds_share_no_draw(one: int, other: int) -> None:
    shared = np.intersect1d(uniforms(one, first=0, count=4, slots=16), uniforms(other, first=0, count=4, slots=16))
    assert len(shared) == (64 if one == other else 0)


def test_different_streams_share_no_draw() -> None:
    draws = uniforms(1, first=0, count=100, slots=72)
    assert len(np.unique(draws)) == draws.size


def test_draws_are_uniform_on_zero_to_one() -> None:
    draws = uniforms(20260701, first=0, count=2000, slots=50)
    assert draws.dtype == np.float64
    assert draws.min() >= 0.0
    assert draws.max() < 1.0
    # Mean and the share below a quarter, each within five standard errors.
    assert abs(draws.mean() - 0.5) < 5 * (1 / 12 / draws.size) ** 0.5
    assert abs((draws < 0.25).mean() - 0.25) < 5 * (0.25 * 0.75 / draws.size) ** 0.5


def test_streams_far_apart_are_reached_at_once() -> None:
    far = uniforms(3, first=2**50, count=2, slots=72)
    assert np.array_equal(far[1], uniforms(3, first=2**50 + 1, count=1, slots=72)[0])


def test_the_sequence_is_pinned() -> None:
    expected = np.random.Generator(np.random.PCG64(np.random.SeedSequence(42))).random(6)
    assert uniforms(42, first=0, count=3, slots=2).ravel().tolist() == expected.tolist()
    assert float(expected[0]) == 0.7739560485559633


def test_an_episode_has_one_draw_for_its_first_try_and_one_for_its_retries() -> None:
    assert sorted({FIRST_TRY, RETRY}) == list(range(PURPOSES))
