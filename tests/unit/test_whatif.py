"""Composed settings: the plan follows the numbers, and what memory pays in them behaves as it must."""

import numpy as np
import pytest

from invsim.client.arms import get_arm
from invsim.client.planners import load_model
from invsim.errors import InputError, UnknownNameError
from invsim.experiment import run
from invsim.sim.compose import CONSTRAINT, Setting, compose
from invsim.sim.plan import Plan
from invsim.whatif import break_even, outcome, planner

SMALL = Setting(episodes=24, keys=4, tables=2, drift=0.2)


def drifts(plan: Plan) -> list[tuple[int, str]]:
    return [(event.after_episode, event.subject) for event in plan.drift]


def test_a_setting_and_a_seed_give_one_plan() -> None:
    one, same, other = (compose(SMALL, seed=seed) for seed in (3, 3, 4))
    assert [task.name for task in one.episodes] == [task.name for task in same.episodes]
    assert drifts(one) == drifts(same)
    assert [task.name for task in one.episodes] != [task.name for task in other.episodes]


def test_keys_are_dealt_over_the_tables() -> None:
    plan = compose(Setting(keys=5, tables=2, drift=0.0), seed=1)
    assert {name: list(table.rows) for name, table in plan.world.tables.items()} == {
        "reference_0": ["row_0", "row_2", "row_4"],
        "reference_1": ["row_1", "row_3"],
    }
    assert {task.constraint for task in plan.episodes} == {CONSTRAINT, "none"}


@pytest.mark.parametrize("seed", range(5))
def test_more_drift_adds_events_and_moves_no_task(seed: int) -> None:
    few, many = (compose(Setting(drift=rate), seed=seed) for rate in (0.1, 0.4))
    assert set(drifts(few)) < set(drifts(many))
    assert [task.name for task in few.episodes] == [task.name for task in many.episodes]


def test_an_event_changes_as_many_rows_as_it_is_told_and_a_benign_one_none() -> None:
    plan = compose(Setting(keys=6, tables=2, drift=1.0, rows=2), seed=1)
    assert {len(event.report.diff.keys) for event in plan.drift} == {2}
    assert len(plan.drift) == 59
    assert not any(event.rotation for event in compose(Setting(drift=1.0, benign=1.0), seed=1).drift)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"tables": 7}, "tables must be from 1 to 6 (got 7)"),
        ({"drift": 1.5}, "drift must be from 0 to 1 (got 1.5)"),
        ({"episodes": 0}, "episodes must be from 1 to 10000 (got 0)"),
        ({"benign": float("nan")}, "benign must be from 0 to 1 (got nan)"),
    ],
)
def test_a_setting_out_of_range_is_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(InputError) as caught:
        Setting(**wrong)  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_row_granularity_is_table_granularity_where_no_fixes_share_a_table() -> None:
    apart = outcome(Setting(episodes=24, keys=4, tables=4, drift=0.2), model=planner(0.8), number=3)
    assert apart["A2D"] == apart["A2"]
    shared = outcome(Setting(episodes=24, keys=4, tables=1, drift=0.2), model=planner(0.8), number=3)
    assert shared["A2D"].value > shared["A2"].value


def test_without_drift_every_memory_arm_saves_the_same() -> None:
    found = outcome(Setting(episodes=24, keys=4, drift=0.0), model=planner(0.8), number=3)
    assert found["A1"] == found["A2"] == found["A2D"]
    assert found["A1"].value > 0


def test_outcome_is_the_mean_over_schedules_of_what_run_gives() -> None:
    model = load_model("claude-sonnet-4-6")
    each = [
        run(compose(SMALL, seed=seed), model=model, arms=[get_arm("A2D")], replications=50, seed=seed, engine="simpy")
        for seed in (5, 6, 7)
    ]
    values = [result["A2D"].metrics["token_saving"].value for result in each]
    found = outcome(SMALL, model=model, arms=["A2D"], number=3, streams=50, seed=5)["A2D"]
    assert found.value == pytest.approx(np.mean(values), abs=1e-12)
    assert found.se == pytest.approx(np.std(values, ddof=1) / np.sqrt(3), abs=1e-12)
    with pytest.raises(UnknownNameError):
        outcome(SMALL, model=model, arms=["A2D"], metric="profit", number=1)


def test_break_even_is_where_the_difference_vanishes() -> None:
    found = break_even(SMALL, number=2)
    assert found.pays == "above"
    assert found.low < 0 < found.high
    at = outcome(SMALL, model=planner(found.at), arms=["A2D"], number=2)["A2D"].value
    assert abs(at) < 0.01
    assert break_even(SMALL, against="A1", number=2).pays == "always"
