"""How soon drift is noticed, how long stale fixes are met, and how well entries are evicted.

Plain arrays in, one row a stream: the streams are what intervals rest on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from invsim.errors import InputError
from invsim.stats.arrays import Floats
from invsim.stats.clusters import cluster_robust_rate
from invsim.stats.intervals import jeffreys, mean_t

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

NEVER = -1
"""Stands for an episode that never came."""


def _episodes(values: npt.ArrayLike, *, what: str) -> Ints:
    found = np.asarray(values)
    if found.ndim != 2 or not np.issubdtype(found.dtype, np.integer):
        raise InputError(f"{what} must be integers of shape (streams, events)", value=(found.dtype.name, found.shape))
    if (found < NEVER).any():
        raise InputError(f"{what} must be episodes, or {NEVER} for never", value=int(found.min()))
    return found.astype(np.int64)


# Detection lag -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LagSummary:
    """The lags of one drift event over streams.

    Parameters
    ----------
    noticed, censored, unmet : int
        Streams that met the drift and noticed it; that met it and never noticed; that never met it, and so count in
        nothing else here.
    share : float or None
        noticed / (noticed + censored); None if no stream met the drift.
    share_interval : pair of float
        Jeffreys.
    mean : float or None
        Mean lag in episodes among those that noticed; None without any. It flatters whoever seldom notices: read it
        with ``share``, or take ``restricted_mean``.
    mean_interval : pair of float
        Student's t; the whole line from fewer than two.
    restricted_mean : float or None
        Mean over all that met the drift, counting those that never noticed as if they had just after the end: a lower
        bound of the mean lag. None if no stream met the drift.
    restricted_interval : pair of float
        Student's t.
    """

    noticed: int
    censored: int
    unmet: int
    share: float | None
    share_interval: tuple[float, float]
    mean: float | None
    mean_interval: tuple[float, float]
    restricted_mean: float | None
    restricted_interval: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Lags:
    """Detection lags, shape (streams, events).

    Parameters
    ----------
    episodes : ndarray of int
        Alert less first meeting where ``noticed``, below 0 where the alert came first. Elsewhere the episodes from the
        meeting to the end of the stream, which the lag at least reaches; or 0 where the drift was not met.
    met, noticed : ndarray of bool
        Whether the drift was met, and whether it was both met and noticed.
    """

    episodes: Ints
    met: Mask
    noticed: Mask

    @property
    def censored(self) -> Mask:
        """Where the drift was met and never noticed."""
        return np.asarray(self.met & ~self.noticed)

    def summary(self, *, confidence: float = 0.95) -> tuple[LagSummary, ...]:
        """Return one summary per drift event."""
        return tuple(self._event(at, confidence) for at in range(self.met.shape[1]))

    def _event(self, at: int, confidence: float) -> LagSummary:
        met, noticed, lag = self.met[:, at], self.noticed[:, at], self.episodes[:, at].astype(np.float64)
        many, hits = int(met.sum()), int(noticed.sum())
        return LagSummary(
            hits, many - hits, len(met) - many,
            hits / many if many else None, jeffreys(hits, many, confidence=confidence).pair(),
            *_mean(lag[noticed], confidence), *_mean(lag[met], confidence),
        )  # fmt: skip


def _mean(values: Floats, confidence: float) -> tuple[float | None, tuple[float, float]]:
    """Return the mean of values, None if there are none, and its interval; the whole line from fewer than two."""
    if len(values) < 2:
        return float(values[0]) if len(values) else None, (-np.inf, np.inf)
    return float(values.mean()), mean_t(values, confidence=confidence).pair()


def detection_lag(alerts: npt.ArrayLike, met: npt.ArrayLike, *, episodes: int) -> Lags:
    """Return how many episodes lie between meeting a drift and noticing it.

    lag = alert - met. Met and never noticed is censored at the end of the stream: the lag is at least
    episodes - met.

    Parameters
    ----------
    alerts : array_like of int, shape (streams, events)
        Episode in which each drift was noticed, -1 for never.
    met : array_like of int, shape (streams, events) or (1, events)
        First episode that met the drift, -1 for none.
    episodes : int
        Per stream; every episode lies below it.

    Returns
    -------
    Lags

    Raises
    ------
    InputError
    """
    noticed_in, met_in = _episodes(alerts, what="alerts"), _episodes(met, what="first meetings")
    if met_in.shape[0] not in (1, noticed_in.shape[0]) or met_in.shape[1] != noticed_in.shape[1]:
        raise InputError("alerts and first meetings must have one shape", value=(noticed_in.shape, met_in.shape))
    met_in = np.broadcast_to(met_in, noticed_in.shape)
    for name, each in (("alerts", noticed_in), ("first meetings", met_in)):
        if each.size and each.max() >= episodes:
            raise InputError(f"{name} must lie below {episodes} episodes", value=int(each.max()))
    has_met = met_in != NEVER
    noticed = has_met & (noticed_in != NEVER)
    lag = np.where(noticed, noticed_in - met_in, np.where(has_met, episodes - met_in, 0))
    return Lags(lag, has_met, noticed)


# Staleness window ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Staleness:
    """Staleness windows, shape (streams, events).

    Parameters
    ----------
    episodes : ndarray of int
        Episodes that met a stale set between the event and the eviction.
    open : ndarray of bool
        Where nothing was ever evicted, so that the window ran to the end of the stream and would have gone on.
    """

    episodes: Ints
    open: Mask


def staleness_window(stale: npt.ArrayLike, events: npt.ArrayLike, evicted: npt.ArrayLike) -> Staleness:
    """Count the episodes that met a stale set between a drift event and the eviction it called for.

    The sum of ``stale`` from the first episode after the event to the one whose response evicted, both included: an
    eviction comes too late for its own episode.

    Parameters
    ----------
    stale : array_like of bool, shape (streams, episodes) or (streams, episodes, events)
        Whether the set injected in an episode held a stale fix (with the last axis, one that this event made stale).
    events : array_like of int, shape (events,)
        First episode after each event, 0 to episodes.
    evicted : array_like of int, shape (streams, events)
        Episode in which the stale fix was evicted, -1 for never; not before the event.

    Returns
    -------
    Staleness

    Raises
    ------
    InputError
    """
    met, first, last = np.asarray(stale), np.asarray(events), _episodes(evicted, what="evictions")
    streams, many = last.shape
    if met.ndim == 2:
        met = met[:, :, None]
    if met.ndim != 3 or met.dtype != np.bool_ or met.shape[0] != streams or met.shape[2] not in (1, many):
        raise InputError(
            "stale must be true or false, of shape (streams, episodes) or (streams, episodes, events)",
            value=(met.dtype.name, np.shape(stale)),
        )
    episodes = met.shape[1]
    if first.shape != (many,) or not np.issubdtype(first.dtype, np.integer):
        raise InputError("events must be integers of shape (events,)", value=(first.dtype.name, first.shape))
    if many and (first.min() < 0 or first.max() > episodes):
        raise InputError(f"events must lie between 0 and {episodes}", value=first.tolist())
    never = last == NEVER
    if (last >= episodes).any() or (~never & (last < first)).any():
        raise InputError(f"evictions must lie between their event and {episodes - 1}", value=int(last.max()))
    # Row e holds the stale episodes before e.
    before = np.zeros((streams, episodes + 1, many), dtype=np.int64)
    before[:, 1:] = np.cumsum(met, axis=1)
    until = np.where(never, episodes, last + 1)
    row, column = np.arange(streams)[:, None], np.arange(many)[None, :]
    return Staleness(before[row, until, column] - before[row, first, column], never)


# Eviction quality ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EvictionRate:
    """A share of evictions, pooled over streams.

    Parameters
    ----------
    value : float or None
        right / of; None over 0.
    interval : pair of float
        Cluster-robust, the stream being the cluster: one drift evicts several entries at once. [0, 1] from fewer than
        two streams with any.
    right, of : int
    """

    value: float | None
    interval: tuple[float, float]
    right: int
    of: int


def eviction_quality(
    performed: npt.ArrayLike,
    right: Mapping[str, npt.ArrayLike],
    required: Mapping[str, npt.ArrayLike],
    *,
    confidence: float = 0.95,
) -> dict[str, EvictionRate]:
    """Return precision and recall of evictions under each oracle.

    Precision = right / performed, recall = right / required, both over all streams' evictions.

    Parameters
    ----------
    performed : array_like of int, shape (streams,)
        Evictions made.
    right, required : mapping of oracle to array_like of int, shape (streams,)
        Evictions that the oracle calls right, and those it calls for; the same oracles in both ("row", "table").
    confidence : float
        In (0, 1).

    Returns
    -------
    dict
        "precision_ORACLE" and "recall_ORACLE" for every oracle, in order.

    Raises
    ------
    InputError
        If the oracles differ, or more evictions are right than were made or required.
    """
    if set(right) != set(required):
        raise InputError("right and required must name the same oracles", value=(sorted(right), sorted(required)))
    found = {}
    for oracle in right:
        found[f"precision_{oracle}"] = _share(right[oracle], performed, confidence)
        found[f"recall_{oracle}"] = _share(right[oracle], required[oracle], confidence)
    return found


def _share(right: npt.ArrayLike, of: npt.ArrayLike, confidence: float) -> EvictionRate:
    top, bottom = np.asarray(right), np.asarray(of)
    if top.ndim != 1 or top.shape != bottom.shape:
        raise InputError("eviction counts must have one shape (streams,)", value=(top.shape, bottom.shape))
    hits, many = int(top.sum()), int(bottom.sum())
    limits = cluster_robust_rate(top, bottom, confidence=confidence)
    return EvictionRate(hits / many if many else None, limits.pair(), hits, many)
