"""From counts per episode to the metrics of the field, with a Monte Carlo error beside each.

The definitions are those of Wu and Canedo (2026), section 4, where they define one; a metric that they define loosely
stands beside the one it stands for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from invsim.stats.costs import TokenCosts
from invsim.stats.moments import UNDEFINED, Estimate, Means, Moments, ReciprocalMean, Weights

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


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
        by_class = [
            f"{kind}:{name}"
            for name in layout.classes
            for kind in ("first_try", "addressable", "valid", "valid_first_try")
        ]
        alerts = [f"{kind}:{at}" for at in range(layout.events) for kind in ("noticed", "alert")]
        self._moments = Moments(
            [
                "one", "attempts", "baseline_attempts", "completed", "first_try", "eligible_first_try",
                "evictions", "restamped_entries", "injected_entries", "conflict_attempts",
                *by_class, *(f"window:{name}" for name in layout.windows), *STREAM_COUNTS, *alerts,
            ]
        )  # fmt: skip
        self._precision = ReciprocalMean()

    def add(self, counts: Counts) -> None:
        """Add some streams."""
        layout = self.layout
        hit = counts.first_try
        valid = counts.valid_only & (counts.addressable == 1)
        evictions = counts.evicted.sum(axis=1)
        columns: dict[str, npt.NDArray[np.generic]] = {
            "one": np.ones(len(evictions), dtype=np.int64),
            "attempts": counts.attempts.sum(axis=1),
            "baseline_attempts": counts.baseline_attempts,
            "completed": counts.completed.sum(axis=1),
            "first_try": hit.sum(axis=1),
            "eligible_first_try": hit[:, layout.eligible].sum(axis=1),
            "evictions": evictions,
            "restamped_entries": counts.restamped.sum(axis=1),
            "injected_entries": counts.injected_entries.sum(axis=1),
            "conflict_attempts": np.where(counts.conflict, counts.attempts, 0).sum(axis=1),
        }
        for at, name in enumerate(layout.classes):
            mine = layout.class_index == at
            columns[f"first_try:{name}"] = hit[:, mine].sum(axis=1)
            columns[f"addressable:{name}"] = counts.addressable[:, mine].sum(axis=1)
            columns[f"valid:{name}"] = valid[:, mine].sum(axis=1)
            columns[f"valid_first_try:{name}"] = (valid & hit)[:, mine].sum(axis=1)
        for name, mask in layout.windows.items():
            columns[f"window:{name}"] = hit[:, mask].sum(axis=1)
        for name in STREAM_COUNTS:
            columns[name] = counts.per_stream[name]
        for at in range(layout.events):
            noticed = counts.alerts[:, at] >= 0
            columns[f"noticed:{at}"] = noticed
            columns[f"alert:{at}"] = np.where(noticed, counts.alerts[:, at], 0)
        ordered = [columns[name].astype(np.int64) for name in self._moments.names]
        self._moments.add(np.column_stack(ordered))
        self._precision.add(evictions)

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
