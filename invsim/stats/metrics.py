"""From counts per episode to the metrics of the field, with a Monte Carlo error beside each.

The definitions are those of Wu and Canedo (2026), section 4, where they define one; a metric that they define loosely
stands beside the one it stands for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from invsim.stats.costs import TokenCosts
from invsim.stats.moments import UNDEFINED, Column, Estimate, Means, Moments, ReciprocalMean, Weights

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Total(NamedTuple):
    """A quantity summed over the episodes of a mask, stream by stream.

    ``quantity`` is "attempts", "completed", "first_try", "addressable", "valid" (a valid fix alone, and the key had
    completed before), "valid_first_try", "conflict_attempts" (attempts with a stale fix beside a valid one),
    "evicted", "restamped" or "injected_entries".
    """

    quantity: str
    episodes: Mask


BY_CLASS = ("first_try", "addressable", "valid", "valid_first_try")


@dataclass(frozen=True)
class Layout:
    """Which episode of a stream counts for what.

    Parameters
    ----------
    classes : tuple of str
    class_index : ndarray of int, shape (episodes,)
    weights : mapping of class to float
        w = (1 - p_unaided) * mu: what a first-try hit saves, in retries.
    eligible : ndarray of bool, shape (episodes,)
    windows : mapping of name to ndarray of bool, shape (episodes,)
    events : int
        Drift events.
    stores : bool
        Whether the arm keeps a memory; without one, compliance is undefined.
    costs : TokenCosts
    """

    classes: tuple[str, ...]
    class_index: Ints
    weights: Mapping[str, float]
    eligible: Mask
    windows: Mapping[str, Mask]
    events: int
    stores: bool
    costs: TokenCosts

    @property
    def episodes(self) -> int:
        """Episodes per stream."""
        return len(self.class_index)

    def totals(self) -> dict[str, Total]:
        """Return, by name, what ``Summary`` needs of each stream from its episodes."""
        every = np.ones(self.episodes, dtype=np.bool_)
        by_class = {name: self.class_index == at for at, name in enumerate(self.classes)}
        return {
            "attempts": Total("attempts", every),
            "completed": Total("completed", every),
            "first_try": Total("first_try", every),
            "eligible_first_try": Total("first_try", self.eligible),
            "evictions": Total("evicted", every),
            "restamped_entries": Total("restamped", every),
            "injected_entries": Total("injected_entries", every),
            "conflict_attempts": Total("conflict_attempts", every),
            **{f"{kind}:{name}": Total(kind, mask) for name, mask in by_class.items() for kind in BY_CLASS},
            **{f"window:{name}": Total("first_try", mask) for name, mask in self.windows.items()},
        }


@dataclass(frozen=True)
class Counts:
    """Outcomes of some streams, as arrays; see ``invsim.sim.result.Block`` for the meaning of each.

    All but the last four have shape (streams, episodes). ``alerts`` has shape (streams, drift events), -1 for never;
    ``per_stream`` maps names to shape (streams,); ``baseline_attempts`` are the attempts of the same streams without
    memory, shape (streams,).
    """

    attempts: Ints
    completed: Ints
    first_try: Mask
    valid_only: Mask
    conflict: Mask
    addressable: Ints
    evicted: Ints
    restamped: Ints
    injected_entries: Ints
    alerts: Ints
    per_stream: Mapping[str, Ints]
    baseline_attempts: Ints


STREAM_COUNTS = (
    "restamp_operations",
    "evicted_right_by_row",
    "evicted_right_by_table",
    "required_by_row",
    "required_by_table",
    "contract_failures",
)


class Summary:
    """Accumulates streams of one arm and one model in constant memory, and answers with estimates."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        alerts = [f"{kind}:{at}" for at in range(layout.events) for kind in ("noticed", "alert")]
        self.totals = layout.totals()
        attempts, *others = self.totals
        self._moments = Moments(["one", attempts, "baseline_attempts", *others, *STREAM_COUNTS, *alerts])
        self._precision = ReciprocalMean()

    def add(self, counts: Counts) -> None:
        """Add some streams."""
        valid = counts.valid_only & (counts.addressable == 1)
        quantities: dict[str, npt.NDArray[np.integer | np.bool_]] = {
            "attempts": counts.attempts,
            "completed": counts.completed,
            "first_try": counts.first_try,
            "addressable": counts.addressable,
            "valid": valid,
            "valid_first_try": valid & counts.first_try,
            "conflict_attempts": np.where(counts.conflict, counts.attempts, 0),
            "evicted": counts.evicted,
            "restamped": counts.restamped,
            "injected_entries": counts.injected_entries,
        }
        self.add_columns(
            {name: quantities[each.quantity][:, each.episodes].sum(axis=1) for name, each in self.totals.items()},
            baseline_attempts=counts.baseline_attempts,
            per_stream=counts.per_stream,
            alerts=list(counts.alerts.T),
            streams=len(counts.attempts),
        )

    def add_columns(
        self,
        totals: Mapping[str, Column],
        *,
        baseline_attempts: Column,
        per_stream: Mapping[str, Column],
        alerts: Sequence[Column],
        streams: int,
    ) -> None:
        """Add some streams, already summed over their episodes.

        Parameters
        ----------
        totals : mapping of name to column
            By the names of ``Layout.totals``. Every column has shape (streams,), or is a number that all streams share.
        baseline_attempts : column
            Attempts of the same streams without memory.
        per_stream : mapping of name to column
            By the names in ``STREAM_COUNTS``.
        alerts : sequence of column
            Per drift event, the episode in which it was noticed; -1 for never.
        streams : int
        """
        columns: dict[str, Column] = {
            "one": 1,
            **totals,
            "baseline_attempts": baseline_attempts,
            **{name: per_stream[name] for name in STREAM_COUNTS},
        }
        for at, alert in enumerate(alerts):
            noticed = alert >= 0
            columns[f"noticed:{at}"] = int(noticed) if isinstance(noticed, bool) else noticed
            columns[f"alert:{at}"] = max(alert, 0) if isinstance(alert, int) else np.where(noticed, alert, 0)
        self._moments.add_columns(columns, streams)
        self._precision.add(np.broadcast_to(totals["evictions"], streams))

    @property
    def streams(self) -> int:
        """Streams added so far."""
        return self._moments.n

    def metrics(self) -> dict[str, Estimate]:
        """Return the metrics of this arm; see ``metrics``."""
        return metrics(self.layout, self._moments, self._precision.estimate())

    def first_try_by_class(self) -> dict[str, Estimate]:
        """Return the first-try rate of each constraint class."""
        return first_try_by_class(self.layout, self._moments)


def metrics(layout: Layout, moments: Means, precision: Estimate) -> dict[str, Estimate]:
    """Return the metrics of an arm, rates as 0..1.

    ``moments`` holds the counts that ``Summary`` accumulates, estimated or known; ``precision`` is the mean of
    1/evictions over the streams that evict.

    Per stream: attempts, retries, completed and exhausted episodes, evictions, restamped_entries,
    restamp_operations, contract_failures, first_try. Rates: first_try_eligible (the paper's compliance), the
    windows, validity, compliance_given_valid, eviction_precision (the paper's, mean of 1/evictions), and precision
    and recall of evictions under the row oracle and the cleared-table oracle. Savings against the same model
    without memory: attempts_saving, token_saving. ``alert_1`` ... are the episodes in which drift was noticed.
    """
    mean, ratio = moments.mean, moments.ratio
    episodes = layout.episodes
    tokens = layout.costs.weights(
        attempts="attempts", entries="injected_entries", conflicts="conflict_attempts", one="one",
        episodes=episodes,
    )  # fmt: skip
    # Without memory nothing is injected, so a stream's tokens are its attempts and retries.
    baseline = {"baseline_attempts": tokens["attempts"], "one": tokens["one"]}
    eligible = int(layout.eligible.sum())
    metrics = {
        "first_try_eligible": (
            mean({"eligible_first_try": 1}, scale=eligible) if eligible and layout.stores else UNDEFINED
        ),
        "validity": ratio(_weighted(layout, "valid"), _weighted(layout, "addressable")),
        "compliance_given_valid": ratio(_weighted(layout, "valid_first_try"), _weighted(layout, "valid")),
    }
    for name, mask in layout.windows.items():
        metrics[name] = mean({f"window:{name}": 1}, scale=int(mask.sum()))
    metrics |= {
        "evictions": mean({"evictions": 1}),
        "eviction_precision": precision,
        "eviction_precision_row": ratio({"evicted_right_by_row": 1}, {"evictions": 1}),
        "eviction_recall_row": ratio({"evicted_right_by_row": 1}, {"required_by_row": 1}),
        "eviction_precision_table": ratio({"evicted_right_by_table": 1}, {"evictions": 1}),
        "eviction_recall_table": ratio({"evicted_right_by_table": 1}, {"required_by_table": 1}),
        "restamped_entries": mean({"restamped_entries": 1}),
        "restamp_operations": mean({"restamp_operations": 1}),
        "first_try": mean({"first_try": 1}),
        "retries": mean({"attempts": 1, "one": -episodes}),
        "attempts": mean({"attempts": 1}),
        "completed": mean({"completed": 1}),
        "exhausted": mean({"one": episodes, "completed": -1}),
        "attempts_saving": ratio({"baseline_attempts": 1, "attempts": -1}, {"baseline_attempts": 1}),
        "token_saving": ratio(_minus(baseline, tokens), baseline),
        "contract_failures": mean({"contract_failures": 1}),
    }
    for at in range(layout.events):
        metrics[f"alert_{at + 1}"] = ratio({f"alert:{at}": 1}, {f"noticed:{at}": 1})
    return metrics


_PER_EPISODE = frozenset({"first_try", "completed", "exhausted"})
_OPEN = frozenset({"evictions", "restamped_entries", "restamp_operations", "retries", "contract_failures"})


def bounds(metric: str, episodes: int) -> tuple[float, float]:
    """Return the least and the greatest that a metric of streams of so many episodes can be; rates are 0..1."""
    if metric == "attempts":
        return episodes, math.inf
    if metric in _OPEN or metric.startswith("alert_"):
        return 0.0, math.inf
    if metric in _PER_EPISODE:
        return 0.0, episodes
    return (-math.inf, 1.0) if metric.endswith("_saving") else (0.0, 1.0)


def first_try_by_class(layout: Layout, moments: Means) -> dict[str, Estimate]:
    """Return the first-try rate of each constraint class."""
    sizes = np.bincount(layout.class_index, minlength=len(layout.classes)).tolist()
    return {
        name: moments.mean({f"first_try:{name}": 1}, scale=size)
        for name, size in zip(layout.classes, sizes, strict=True)
    }


def _weighted(layout: Layout, kind: str) -> Weights:
    return {f"{kind}:{name}": layout.weights[name] for name in layout.classes}


def _minus(left: Weights, right: Weights) -> Weights:
    names: Sequence[str] = [*left, *(name for name in right if name not in left)]
    return {name: left.get(name, 0.0) - right.get(name, 0.0) for name in names}
