"""The published drifted runs, replayed episode by episode from integer outcomes.

The paper prints pooled rates. ``data/quotas.csv`` holds, per run, how many episodes of each kind succeeded at once, how
many further retries there were and how many episodes exhausted their attempts - integers that sum to the printed ones.
Here each run becomes a script, the script is played by the engine on the real server, and what comes out is pooled and
set beside the print. Counts that no quota states (evictions, restamps, what was injected) come out of the mechanics.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources

import numpy as np

from invsim.client.arms import get_arm
from invsim.client.planners.scripted import Outcome, ScriptedModel
from invsim.data.published import Published, lookup
from invsim.errors import InputError
from invsim.sim.engine import simulate_block
from invsim.sim.plan import Plan, compile_plan
from invsim.sim.result import Block
from invsim.sim.scenario import MAX_ATTEMPTS, load_scenario

SCENARIO = "payments"

EXHAUSTS = {"claude-sonnet-5": ("governed",), "gemini-3.5-flash": ("funding", "control")}
"""Classes on which a model's episodes exhaust (section 5 of the paper); the other five never do."""


@dataclass(frozen=True)
class Quota:
    """Integer outcomes of one published run."""

    model: str
    arm: str
    seed: int
    eligible_first: int
    slot2_first: int
    fund_pre_first: int
    fund_post_first: int
    control_first: int
    extra_retries: int
    exhausted: int


@dataclass(frozen=True)
class Replayed:
    """One pooled figure: what the replay gives and what the paper prints.

    ``value`` is a pooled integer, except for eviction precision, which is a mean over runs (None when undefined).
    """

    model: str
    arm: str
    metric: str
    value: float | None
    of: int | None
    published: Published

    @property
    def agrees(self) -> bool:
        """Whether the integers are equal; for a figure printed without one, whether it rounds to the print."""
        if self.value is None:
            return False
        if self.published.count is not None:
            return self.value == self.published.count
        return math.isclose(self.value, self.published.value, abs_tol=0.005)


def quotas() -> list[Quota]:
    """Return every run's integers."""
    text = resources.files("invsim.data").joinpath("quotas.csv").read_text(encoding="utf-8")
    return [
        Quota(row["model"], row["arm"], *(int(value) for name, value in row.items() if name not in {"model", "arm"}))
        for row in csv.DictReader(text.splitlines())
    ]


def script(plan: Plan, quota: Quota) -> ScriptedModel:
    """Spread a run's integers over its episodes.

    Repeats succeed before cold episodes do. Among funding and governed repeats the earliest succeed, among control
    repeats the latest, so that a key which is hit later is one that was learned. Exhaustion falls on failures of the
    classes that exhaust, but not on the cold episode of a key that succeeds later; further retries go round the
    failures that complete.
    """
    at = np.arange(len(plan.episodes))
    classes = np.array([task.constraint for task in plan.episodes])
    rotation = next(event.after_episode for event in plan.drift if event.rotation)
    bump = next(event.after_episode for event in plan.drift if not event.rotation)
    governed, funding, control = (at[classes == name].tolist() for name in ("governed", "funding", "control"))
    slot2 = [each for each in governed if each > rotation][1:2]
    groups = [
        (quota.eligible_first, at[plan.eligible].tolist(), False),
        (quota.slot2_first, slot2, False),
        (quota.fund_pre_first, [each for each in funding if each <= bump], False),
        (quota.fund_post_first, [each for each in funding if each > bump], False),
        (quota.control_first, control, True),
    ]
    hits: set[int] = set()
    for wanted, episodes, latest in groups:
        repeats = [each for each in episodes if not plan.first_occurrence[each]]
        cold = [each for each in episodes if plan.first_occurrence[each]]
        order = (repeats[::-1] if latest else repeats) + cold[::-1]
        if wanted > len(order):
            raise InputError(f"quota asks for {wanted} of {len(order)} episodes", value=quota)
        hits.update(order[:wanted])
    failures = [each for each in sorted(governed + funding + control) if each not in hits]
    exhausted = set(_exhaustible(plan, quota, hits, failures)[: quota.exhausted])
    if len(exhausted) < quota.exhausted:
        raise InputError(f"quota asks for {quota.exhausted} exhausted episodes of {len(exhausted)}", value=quota)
    extra = _spread(
        quota.extra_retries - len(exhausted) * (MAX_ATTEMPTS - 2), [each for each in failures if each not in exhausted]
    )
    outcomes = {each: Outcome(first_try=True) for each in hits}
    for each in failures:
        outcomes[each] = Outcome(False, exhausted=True) if each in exhausted else Outcome(False, 1 + extra[each])
    return ScriptedModel(f"{quota.model}/{quota.arm}/{quota.seed}", outcomes)


def _exhaustible(plan: Plan, quota: Quota, hits: set[int], failures: Sequence[int]) -> list[int]:
    needed = {plan.episodes[each].slot for each in hits}
    spared: list[int] = []
    candidates: list[int] = []
    for name in EXHAUSTS.get(quota.model, ()):
        mine = [each for each in failures if plan.episodes[each].constraint == name]
        learned = [each for each in mine if plan.first_occurrence[each] and plan.episodes[each].slot in needed]
        rest = [each for each in mine if each not in learned]
        candidates += rest if name == "control" else rest[::-1]
        spared += learned
    return candidates + spared


def _spread(extra: int, episodes: Sequence[int]) -> dict[int, int]:
    """Deal further retries out one at a time, at most three an episode (five attempts in all)."""
    dealt = dict.fromkeys(episodes, 0)
    limit = MAX_ATTEMPTS - 2
    if not 0 <= extra <= limit * len(episodes):
        raise InputError(f"cannot place {extra} further retries on {len(episodes)} episodes", value=extra)
    for turn in range(extra):
        dealt[episodes[turn % len(episodes)]] += 1
    return dealt


def replay() -> Iterator[Replayed]:
    """Replay every published drifted run and yield each pooled figure that the paper prints."""
    plan = compile_plan(load_scenario(SCENARIO))
    runs: dict[tuple[str, str], list[Quota]] = {}
    for quota in quotas():
        runs.setdefault((quota.model, quota.arm), []).append(quota)
    for (model, arm), mine in runs.items():
        blocks = [
            simulate_block(plan, arm=get_arm(arm), model=script(plan, quota), seed=0, first=quota.seed, count=1)
            for quota in mine
        ]
        for metric, (value, of) in pooled(plan, blocks).items():
            printed = lookup(SCENARIO, model, arm, metric)
            if printed is not None:
                yield Replayed(model, arm, metric, value, of, printed)


def pooled(plan: Plan, blocks: Sequence[Block]) -> dict[str, tuple[float | None, int | None]]:
    """Pool single-stream blocks into the integers behind the printed rates: metric -> (value, denominator)."""
    first_try = np.concatenate([block.first_try for block in blocks])
    evictions = np.concatenate([block.episode("evicted").sum(axis=1) for block in blocks])
    masks = {"first_try_eligible": plan.eligible, **{window.name: window.mask for window in plan.windows}}
    masks |= {name: plan.class_index == at for at, name in enumerate(plan.classes)}
    figures: dict[str, tuple[float | None, int | None]] = {
        name: (int(first_try[:, mask].sum()), int(mask.sum()) * len(first_try)) for name, mask in masks.items()
    }
    attempts = sum(int(block.episode("attempts").sum()) for block in blocks)
    completed = sum(int(block.episode("completed").sum()) for block in blocks)
    figures["retries"] = (attempts - first_try.size, len(first_try))
    figures["exhausted"] = (first_try.size - completed, len(first_try))
    defined = evictions[evictions > 0]
    figures["eviction_precision"] = (float(np.mean(1.0 / defined)) if len(defined) else None, None)
    figures["restamped_entries"] = (sum(int(b.episode("restamped").sum()) for b in blocks), len(first_try))
    return figures
