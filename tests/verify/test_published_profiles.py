"""The fitted profiles against the print, at 2,000 streams a cell.

Each published integer pools three runs, so it is compared with three times a stream's mean, in units of the square
root of three times a stream's standard deviation. The seed is fixed, so the outcome is too; had it been drawn afresh,
the means would move by .04 of those units. If a profile is right, a published integer lies beyond 2.5 of them with
probability .012, so that of the 57 that vary (restatements included) .7 are expected to, by the publication's own luck.
None does; the largest is 2.2 (deepseek-v4-flash, A2DC).
"""

import math

import numpy as np
import pytest

from invsim.client.arms import get_arm
from invsim.client.planners import load_model
from invsim.client.planners.models import PUBLISHED
from invsim.data.published import published
from invsim.sim.engine import simulate_block
from invsim.sim.plan import compile_plan
from invsim.sim.result import Block
from invsim.sim.scenario import load_scenario

STREAMS, RUNS, LIMIT = 2000, 3, 2.5
PLAN = compile_plan(load_scenario("payments"))


def stream_counts(block: Block) -> dict[str, np.ndarray]:
    first_try = block.first_try
    counts = {
        "first_try_eligible": first_try[:, PLAN.eligible].sum(axis=1),
        "retries": block.episode("attempts").sum(axis=1) - len(PLAN.episodes),
        "exhausted": len(PLAN.episodes) - block.episode("completed").sum(axis=1),
        "evictions": block.episode("evicted").sum(axis=1),
        "restamped_entries": block.episode("restamped").sum(axis=1),
    }
    counts |= {window.name: first_try[:, window.mask].sum(axis=1) for window in PLAN.windows}
    counts |= {name: first_try[:, PLAN.class_index == at].sum(axis=1) for at, name in enumerate(PLAN.classes)}
    return counts


def deviations(model: str, profile: str) -> dict[tuple[str, str], float]:
    """How far each published integer of ``model`` is from what ``profile`` gives; infinite where that never varies."""
    played = load_model(profile)
    found = {}
    for arm in load_model(model).published_arms:
        counts = stream_counts(simulate_block(PLAN, arm=get_arm(arm), model=played, seed=2026, first=0, count=STREAMS))
        for (scenario, name, printed_arm, metric), printed in published().items():
            if (scenario, name, printed_arm) == ("payments", model, arm) and printed.count is not None:
                mean, sd = RUNS * counts[metric].mean(), math.sqrt(RUNS) * counts[metric].std(ddof=1)
                off = printed.count - mean
                found[arm, metric] = off / sd if sd else math.copysign(math.inf, off) if off else 0.0
    return found


@pytest.mark.parametrize("model", PUBLISHED)
def test_every_published_integer_lies_within_two_and_a_half_deviations(model: str, ledger) -> None:
    found = deviations(model, model)
    assert len(found) >= 20
    ledger.check(
        f"published integers of {model}: largest deviation of {len(found)}", max(map(abs, found.values())), high=LIMIT
    )


def test_a_wrong_profile_is_caught(ledger) -> None:
    found = deviations("claude-sonnet-5", "claude-haiku-4-5")
    ledger.check(
        "negative control: integers that a wrong profile misses", sum(abs(e) > LIMIT for e in found.values()), low=5
    )
