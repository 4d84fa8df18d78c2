"""The 114 published drifted runs, replayed from their integers."""

from collections import Counter

import pytest

from invsim.data.published import published
from invsim.errors import InputError
from invsim.report.replay import Quota, quotas, replay, script
from invsim.sim.plan import compile_plan
from invsim.sim.scenario import load_scenario


@pytest.fixture(scope="module")
def replayed():
    return list(replay())


def test_there_are_114_runs_three_of_each_model_and_arm() -> None:
    cells = Counter((quota.model, quota.arm) for quota in quotas())
    assert len(cells) == 38
    assert set(cells.values()) == {3}


def test_every_published_figure_comes_out(replayed) -> None:
    assert [each for each in replayed if not each.agrees] == []


def test_nothing_that_the_paper_prints_for_a_drifted_run_is_left_out(replayed) -> None:
    done = {(each.model, each.arm, each.metric) for each in replayed}
    printed = {key[1:] for key in published() if key[0] == "payments"}
    # Token savings are not integers of a run, and evictions are compared through their precision.
    assert {metric for _, _, metric in printed - done} <= {"token_saving", "evictions"}


@pytest.mark.parametrize("metric", ["first_try_eligible", "governed_ten", "funding_post", "control", "retries"])
def test_integers_are_compared_as_integers(replayed, metric: str) -> None:
    mine = [each for each in replayed if each.metric == metric]
    assert mine
    assert all(each.published.count is not None and isinstance(each.value, int) for each in mine)


def test_starved_precision_and_restamps_come_out_of_the_mechanics(replayed) -> None:
    figures = {(each.model, each.arm, each.metric): each.value for each in replayed}
    assert figures["gemini-3.5-flash", "A2", "eviction_precision"] == 1.0
    assert figures["gemini-3.5-flash", "A2D", "restamped_entries"] == 1
    assert figures["deepseek-v4-flash", "A2", "eviction_precision"] == pytest.approx((1 / 4 + 1 / 3 + 1 / 3) / 3)


def test_a_quota_that_cannot_be_met_is_refused() -> None:
    plan = compile_plan(load_scenario("payments"))
    with pytest.raises(InputError, match="10 of 9 episodes"):
        script(plan, Quota("claude-haiku-4-5", "A2D", 0, 10, 0, 0, 0, 0, 0, 0))
    with pytest.raises(InputError, match="further retries"):
        script(plan, Quota("claude-haiku-4-5", "A2D", 0, 9, 1, 3, 2, 5, 99, 0))
    with pytest.raises(InputError, match="exhausted"):
        script(plan, Quota("claude-haiku-4-5", "A2D", 0, 9, 1, 3, 2, 5, 0, 1))
