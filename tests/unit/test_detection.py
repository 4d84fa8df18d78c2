"""Detection lag, staleness windows and eviction quality: by hand, and against loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from invsim.errors import InputError
from invsim.stats.clusters import cluster_robust_rate
from invsim.stats.detection import detection_lag, eviction_quality, staleness_window
from invsim.stats.intervals import jeffreys, mean_t

# Lag -----------------------------------------------------------------------------------------------------------------

ALERTS = np.array([[3, 20], [7, -1], [-1, -1], [2, 21]])
MET = np.array([[3, 18], [4, 18], [5, -1], [4, 18]])


def test_lags_by_hand() -> None:
    found = detection_lag(ALERTS, MET, episodes=30)
    assert found.episodes.tolist() == [[0, 2], [3, 12], [25, 0], [-2, 3]]
    assert found.noticed.tolist() == [[True, True], [True, False], [False, False], [True, True]]
    assert found.censored.tolist() == [[False, False], [False, True], [True, False], [False, False]]


def test_summaries_by_hand() -> None:
    first, second = detection_lag(ALERTS, MET, episodes=30).summary()
    assert (first.noticed, first.censored, first.unmet) == (3, 1, 0)
    assert (second.noticed, second.censored, second.unmet) == (2, 1, 1)
    assert first.share == 0.75
    assert first.share_interval == jeffreys(3, 4).pair()
    assert first.mean == pytest.approx(1 / 3)
    assert first.mean_interval == pytest.approx(mean_t([0, 3, -2]).pair())
    assert first.restricted_mean == 6.5
    assert second.restricted_interval == pytest.approx(mean_t([2, 12, 3]).pair())


def test_drift_that_no_stream_met() -> None:
    (found,) = detection_lag([[4], [-1]], [[-1], [-1]], episodes=30).summary()
    assert (found.noticed, found.censored, found.unmet) == (0, 0, 2)
    assert found.share is found.mean is found.restricted_mean is None
    assert found.share_interval == (0.0, 1.0)
    assert found.mean_interval == (-np.inf, np.inf)


def test_one_meeting_may_serve_all_streams() -> None:
    found = detection_lag([[4], [9], [-1]], [[2]], episodes=10)
    assert found.episodes[:, 0].tolist() == [2, 7, 8]
    (summary,) = found.summary()
    assert (summary.noticed, summary.censored) == (2, 1)
    (single,) = detection_lag([[4]], [[2]], episodes=10).summary()
    assert (single.mean, single.mean_interval) == (2.0, (-np.inf, np.inf))


@pytest.mark.parametrize(
    ("alerts", "met", "message"),
    [
        ([[1.5]], [[1]], "alerts must be integers of shape (streams, events)"),
        ([1], [[1]], "alerts must be integers of shape (streams, events)"),
        ([[-2]], [[1]], "alerts must be episodes, or -1 for never (got -2)"),
        ([[1]], [[1, 2]], "alerts and first meetings must have one shape"),
        ([[1]], [[10]], "first meetings must lie below 10 episodes (got 10)"),
    ],
)
def test_wrong_lags_are_refused(alerts, met, message: str) -> None:
    with pytest.raises(InputError) as caught:
        detection_lag(alerts, met, episodes=10)
    assert str(caught.value).startswith(message)


# Staleness -----------------------------------------------------------------------------------------------------------


@st.composite
def histories(draw) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    streams, episodes, many = draw(st.integers(1, 4)), draw(st.integers(1, 12)), draw(st.integers(0, 3))
    bits = draw(st.lists(st.booleans(), min_size=streams * episodes * many, max_size=streams * episodes * many))
    events = [draw(st.integers(0, episodes)) for _ in range(many)]
    evicted = [
        [draw(st.just(-1) if event == episodes else st.integers(event, episodes - 1) | st.just(-1)) for event in events]
        for _ in range(streams)
    ]
    return (
        np.array(bits, dtype=bool).reshape(streams, episodes, many),
        np.array(events, dtype=np.int64),
        np.array(evicted, dtype=np.int64).reshape(streams, many),
    )


@given(histories())
def test_a_window_is_that_of_a_loop(history: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    stale, events, evicted = history
    streams, episodes, many = stale.shape
    expected = [
        [
            sum(
                bool(stale[stream, episode, event])
                for episode in range(episodes)
                if episode >= events[event] and (evicted[stream, event] < 0 or episode <= evicted[stream, event])
            )
            for event in range(many)
        ]
        for stream in range(streams)
    ]
    found = staleness_window(stale, events, evicted)
    assert found.episodes.tolist() == expected
    assert found.open.tolist() == (evicted < 0).tolist()


def test_a_window_by_hand() -> None:
    stale = np.array([[0, 1, 1, 0, 1, 1]] * 3, dtype=bool)
    found = staleness_window(stale, np.array([1, 4]), np.array([[2, 4], [1, -1], [-1, 5]]))
    assert found.episodes.tolist() == [[2, 1], [1, 2], [4, 2]]
    assert found.open.tolist() == [[False, False], [False, True], [True, False]]


@pytest.mark.parametrize(
    ("stale", "events", "evicted", "message"),
    [
        (np.zeros((1, 5)), [1], [[2]], "stale must be true or false"),
        (np.zeros((2, 5), dtype=bool), [1], [[2]], "stale must be true or false"),
        (np.zeros((1, 5), dtype=bool), [1, 2], [[2]], "events must be integers of shape (events,)"),
        (np.zeros((1, 5), dtype=bool), [6], [[-1]], "events must lie between 0 and 5 (got [6])"),
        (np.zeros((1, 5), dtype=bool), [1], [[0]], "evictions must lie between their event and 4"),
        (np.zeros((1, 5), dtype=bool), [1], [[5]], "evictions must lie between their event and 4"),
    ],
)
def test_wrong_windows_are_refused(stale, events, evicted, message: str) -> None:
    with pytest.raises(InputError) as caught:
        staleness_window(stale, events, evicted)
    assert str(caught.value).startswith(message)


# Evictions -----------------------------------------------------------------------------------------------------------


def test_eviction_quality_by_hand() -> None:
    performed, rows, tables = [4, 4, 3, 0], [1, 1, 1, 0], [4, 3, 3, 0]
    found = eviction_quality(
        performed, {"row": rows, "table": tables}, {"row": [1, 1, 1, 1], "table": [4, 4, 3, 4]}, confidence=0.9
    )
    assert list(found) == ["precision_row", "recall_row", "precision_table", "recall_table"]
    assert (found["precision_row"].value, found["recall_row"].value) == (3 / 11, 3 / 4)
    assert (found["precision_table"].right, found["precision_table"].of) == (10, 11)
    assert found["precision_row"].interval == cluster_robust_rate(rows, performed, confidence=0.9).pair()


def test_evictions_that_were_always_right_are_not_certain() -> None:
    found = eviction_quality([2] * 30, {"row": [2] * 30}, {"row": [2] * 30})["precision_row"]
    assert found.value == 1.0
    # Thirty streams, not sixty evictions.
    assert found.interval == pytest.approx(jeffreys(30, 30).pair())


def test_no_evictions_are_undefined() -> None:
    found = eviction_quality([0, 0], {"row": [0, 0]}, {"row": [1, 1]})
    assert (found["precision_row"].value, found["precision_row"].interval) == (None, (0.0, 1.0))
    assert found["recall_row"].value == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1], {"row": [1]}, {"table": [1]}), "right and required must name the same oracles"),
        (([1, 2], {"row": [1]}, {"row": [1]}), "eviction counts must have one shape (streams,)"),
        (([1], {"row": [2]}, {"row": [2]}), "successes must not exceed trials (got (2.0, 1.0))"),
    ],
)
def test_wrong_evictions_are_refused(arguments, message: str) -> None:
    with pytest.raises(InputError) as caught:
        eviction_quality(*arguments)
    assert str(caught.value).startswith(message)
