"""Metrics, against a slow twin: plain loops over the rows of ``episode_frame`` and the rows of blocks."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from statistics import fmean, variance
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from invsim.client.arms import A0, A1, A2, A2D, Arm, get_arm
from invsim.client.planners import (
    Action,
    Behaviour,
    ComplianceModel,
    Injected,
    ProbabilisticModel,
    RetryLaw,
    load_model,
)
from invsim.errors import InputError
from invsim.experiment import ArmResult, RunResult, run
from invsim.sim.plan import Plan, compile_plan
from invsim.sim.result import PER_STREAM, Block, episode_frame
from invsim.sim.scenario import load_scenario
from invsim.stats.costs import TokenCosts
from invsim.stats.moments import UNDEFINED, Estimate


@cache
def plan_of(name: str) -> Plan:
    return compile_plan(load_scenario(name))


# The twin ------------------------------------------------------------------------------------------------------------

Row = dict[str, Any]

# Windows and eligibility once more, from the words: governed episodes are every third of the payments stream, celiac
# every other of recipes; the first ever and two after each rotation do not count.
GOVERNED = [at for at in range(0, 36, 3) if at not in {0, 12, 15}]
CELIAC = [at for at in range(0, 48, 2) if at not in {0, 16, 18, 32, 34}]
ELIGIBLE = {"payments": GOVERNED, "recipes": CELIAC, "rules": list(range(3, 36, 3))}
FUNDING: dict[str, Callable[[Row], bool]] = {
    "funding_pre": lambda row: row["class"] == "funding" and row["episode"] < 24,
    "funding_post": lambda row: row["class"] == "funding" and row["episode"] >= 24,
}
WINDOWS: dict[str, dict[str, Callable[[Row], bool]]] = {
    "payments": {"governed_ten": lambda row: row["episode"] in [0, *GOVERNED], **FUNDING},
    "rules": {"governed_ten": lambda row: row["class"] == "governed", **FUNDING},
    "recipes": {
        "celiac_scored": lambda row: row["episode"] in [0, *CELIAC],
        "incompat_scored": lambda row: row["class"] == "incompat" and row["episode"] not in {17, 19, 33, 35},
    },
}


@dataclass
class Recorder:
    """Keeps every block of a run as plain rows."""

    plan: Plan
    episodes: dict[str, list[list[Row]]] = field(default_factory=dict)
    streams: dict[str, list[dict[str, int]]] = field(default_factory=dict)

    def __call__(self, arm: Arm, block: Block) -> None:
        rows = episode_frame(self.plan, block, model="m", arm=arm.name).to_dicts()
        size = len(self.plan.episodes)
        mine = self.episodes.setdefault(arm.name, [])
        mine += [rows[at : at + size] for at in range(0, len(rows), size)]
        for counts, alerts in zip(block.streams.tolist(), block.alerts.tolist(), strict=True):
            row = dict(zip(PER_STREAM, counts, strict=True)) | {f"alert:{at}": a for at, a in enumerate(alerts, 1)}
            self.streams.setdefault(arm.name, []).append(row)


def mean(values: list[float]) -> Estimate:
    se = math.sqrt(variance(values) / len(values)) if len(values) > 1 else None
    return Estimate(fmean(values), se, len(values)) if values else UNDEFINED


def ratio(over: list[float], under: list[float]) -> Estimate:
    if not fmean(under):
        return UNDEFINED
    value = fmean(over) / fmean(under)
    residuals = [a - value * b for a, b in zip(over, under, strict=True)]
    return Estimate(value, math.sqrt(variance(residuals) / len(over)) / fmean(under), len(over))


def weight(model: ProbabilisticModel, plan: Plan, constraint: str) -> float:
    """(1 - p_unaided) * mu, mu summed over the law: k retries, or four when the episode exhausts."""
    shape = next(task.shape for task in plan.episodes if task.constraint == constraint)
    rates = model.behaviour(constraint, shape)
    reached = [0.0, *rates.retry.cumulative]
    mu = sum(k * (reached[k] - reached[k - 1]) for k in range(1, 5)) + 4 * (1 - reached[4])
    return (1 - rates.p_unaided_repeat) * mu


def total(streams: list[list[Row]], value: Callable[[Row], float]) -> list[float]:
    return [sum(value(row) for row in rows) for rows in streams]


def twin(record: Recorder, arm: Arm, model: ProbabilisticModel, costs: TokenCosts) -> dict[str, Estimate]:
    plan, streams, own = record.plan, record.episodes[arm.name], record.streams[arm.name]
    w = {name: weight(model, plan, name) for name in plan.classes}
    evictions = total(streams, lambda row: row["evicted"])

    def among(chosen: Callable[[Row], bool]) -> Estimate:
        return mean([fmean([row["first_try"] for row in rows if chosen(row)]) for rows in streams])

    def weighted(*flags: str) -> list[float]:
        return total(streams, lambda row: w[row["class"]] * all(valid(row) if f == "V" else row[f] for f in flags))

    def tokens(row: Row) -> float:
        extra = costs.conflict * row["attempts"] * (row["injected"] == "conflict")
        shown = costs.per_entry * row["injected_entries"]
        return costs.base * row["attempts"] + costs.per_retry * row["retries"] + shown + extra

    def valid(row: Row) -> bool:
        return row["injected"] == "valid"

    def share(name: str, of: list[float] | str) -> Estimate:
        return ratio([row[name] for row in own], of if isinstance(of, list) else [row[of] for row in own])

    def saving(of: Callable[[Row], float]) -> Estimate:
        without = total(record.episodes["A0"], of)
        return ratio([a - b for a, b in zip(without, total(streams, of), strict=True)], without)

    figures = {
        "first_try_eligible": among(lambda row: row["episode"] in ELIGIBLE[plan.name]) if arm.stores else UNDEFINED,
        "validity": ratio(weighted("addressable", "V"), weighted("addressable")),
        "compliance_given_valid": ratio(weighted("addressable", "V", "first_try"), weighted("addressable", "V")),
        **{name: among(chosen) for name, chosen in WINDOWS[plan.name].items()},
        "evictions": mean(evictions),
        "eviction_precision": mean([1 / each for each in evictions if each]),
        "eviction_precision_row": share("evicted_right_by_row", evictions),
        "eviction_recall_row": share("evicted_right_by_row", "required_by_row"),
        "eviction_precision_table": share("evicted_right_by_table", evictions),
        "eviction_recall_table": share("evicted_right_by_table", "required_by_table"),
        "restamped_entries": mean(total(streams, lambda row: row["restamped"])),
        "restamp_operations": mean([row["restamp_operations"] for row in own]),
        "first_try": mean(total(streams, lambda row: row["attempts"] == 1 and row["completed"])),
        "retries": mean(total(streams, lambda row: row["retries"])),
        "attempts": mean(total(streams, lambda row: row["attempts"])),
        "completed": mean(total(streams, lambda row: row["completed"])),
        "exhausted": mean(total(streams, lambda row: not row["completed"])),
        "attempts_saving": saving(lambda row: row["attempts"]),
        "token_saving": saving(tokens),
        "contract_failures": mean([row["contract_failures"] for row in own]),
    }
    for at in range(1, len(plan.drift) + 1):
        seen = [row[f"alert:{at}"] for row in own]
        figures[f"alert_{at}"] = ratio([max(each, 0) for each in seen], [each >= 0 for each in seen])
    figures |= {f"class {name}": among(lambda row, name=name: row["class"] == name) for name in plan.classes}
    return figures


def assert_same(found: ArmResult, expected: dict[str, Estimate]) -> None:
    figures = found.metrics | {f"class {name}": each for name, each in found.first_try_by_class.items()}
    assert figures.keys() == expected.keys()
    for name, each in figures.items():
        assert each.n == expected[name].n, name
        for part in ("value", "se"):
            value, wanted = getattr(each, part), getattr(expected[name], part)
            close = value is wanted is None or value == pytest.approx(wanted, rel=1e-9, abs=1e-9)
            assert close, f"{found.arm} {name} {part}: {value} is not {wanted}"


UNUSUAL = ProbabilisticModel(
    "unusual",
    default=Behaviour(0.7, 0.4, 0.5, 0.2, 0.6, RetryLaw.geometric(0.4), RetryLaw.explicit((0.5, 0.2))),
    conflict=0.3,
)
CASES = [
    ("payments", "A1 A2 A2D A2DG", load_model("claude-sonnet-4-6")),
    ("payments", "A1 A2 A2DC", load_model("gpt-5.4-mini")),
    ("payments", "A0 A2", load_model("gemini-3.5-flash")),
    ("recipes", "A1 A2 A2D", load_model("claude-sonnet-4-6")),
    ("recipes", "A0 A1 A2D", UNUSUAL),
    ("rules", "A2D A2DC A2DR A2DRC A2DO", UNUSUAL),
]


@pytest.mark.parametrize(("scenario", "names", "model"), CASES, ids=lambda each: getattr(each, "name", each))
@settings(max_examples=3)
@given(seed=st.integers(0, 2**64), replications=st.integers(2, 9))
def test_every_metric_is_that_of_plain_loops(
    scenario: str, names: str, model: ProbabilisticModel, seed: int, replications: int
) -> None:
    arms = [A0, *(get_arm(name) for name in names.split() if name != "A0")]
    record = Recorder(plan_of(scenario))
    result = run(record.plan, model=model, arms=arms, replications=replications, seed=seed, chunk=4, observe=record)
    for arm in arms:
        assert_same(result[arm.name], twin(record, arm, model, TokenCosts(conflict=model.conflict)))


# By hand -------------------------------------------------------------------------------------------------------------


def figures(arm: str, model: str = "compliant", **options: Any) -> dict[str, Estimate]:
    return run(plan_of("payments"), model=load_model(model), arms=[get_arm(arm)], replications=3, **options)[
        arm
    ].metrics


def test_the_token_saving_of_a_compliant_stream_by_hand() -> None:
    # Without memory each of the 27 constrained episodes takes one retry. With A2D the six cold keys and the rotated
    # code do. Entries shown, attempt by attempt: 0 0, 1 1, 2, 2, 2 2, 3 3, six of 4; then 4 and (its row evicted) 3 on
    # the rotated code, 4 4 on k3, eleven of 5, 5 5 on k4, ten of 6.
    entries = 2 + 4 + 4 + 6 + 24 + 7 + 8 + 55 + 10 + 60
    saving = 1 - (43 + 0.117 * 7 + 0.0041 * entries) / (63 + 0.117 * 27)
    assert figures("A2D")["token_saving"].value == pytest.approx(saving, rel=1e-12)
    assert figures("A2D")["token_saving"].se == 0.0
    assert figures("A2D")["attempts_saving"].value == pytest.approx(20 / 63, rel=1e-12)
    dear = TokenCosts(base=2.0, per_retry=1.0, per_entry=0.5, conflict=9.0)
    saving = 1 - (43 * 2 + 7 + entries / 2) / (63 * 2 + 27)
    assert figures("A2D", costs=dear)["token_saving"].value == pytest.approx(saving, rel=1e-12)


def test_the_baseline_saves_nothing_and_has_no_eligible_rate() -> None:
    found = figures("A0")
    assert found["token_saving"] == found["attempts_saving"] == Estimate(0.0, 0.0, 3)
    assert found["first_try_eligible"] == found["compliance_given_valid"] == UNDEFINED
    assert found["validity"] == Estimate(0.0, 0.0, 3)


@pytest.mark.parametrize("arm", ["A0", "A1"])
def test_precision_without_evictions_is_undefined(arm: str) -> None:
    found = figures(arm)
    assert found["evictions"].value == 0.0
    for name in ("eviction_precision", "eviction_precision_row", "eviction_precision_table"):
        assert found[name] == UNDEFINED, name


@pytest.mark.parametrize(("model", "eligible"), [("compliant", 1.0), ("compliant-stale", 3 / 9)])
def test_validity_and_compliance_of_an_append_only_store_by_hand(model: str, eligible: float) -> None:
    # 21 episodes have a key that completed before. Eight of them are governed after the rotation: one with the stale
    # code alone, seven with both. Whatever wins the conflict, V is 13/21 and C is 1; the paper's measure is neither.
    found = figures("A1", model)
    assert found["validity"].value == pytest.approx(13 / 21, rel=1e-12)
    assert found["compliance_given_valid"].value == 1.0
    assert found["first_try_eligible"].value == pytest.approx(eligible, rel=1e-12)


def test_a_class_weighs_by_what_a_hit_saves() -> None:
    # Funding is solved unaided half of the time, so its hits are worth half; controls need four retries.
    four = RetryLaw.explicit((0.0, 0.0, 0.0, 1.0))
    model = ProbabilisticModel(
        "weighted", classes={"funding": Behaviour(p_unaided_repeat=0.5), "control": Behaviour(retry=four)}
    )
    found = run(plan_of("payments"), model=model, arms=[A1], replications=2)["A1"].metrics
    # Addressable: 11 governed, 5 funding, 5 control; valid all but the eight governed ones after the rotation.
    assert found["validity"].value == pytest.approx((3 + 5 * 0.5 + 5 * 4) / (11 + 5 * 0.5 + 5 * 4), rel=1e-12)


class Keen(ComplianceModel):
    """A model that says nothing of weights or costs."""

    name = "keen"

    def decide(self, situation, u):
        return Action.APPLY if situation.attempt > 1 or situation.injected is Injected.VALID else Action.IGNORE


def test_a_model_of_ones_own_weighs_every_class_alike() -> None:
    found = run(plan_of("payments"), model=Keen(), arms=[A1], replications=1)["A1"].metrics
    assert found["validity"].value == pytest.approx(13 / 21, rel=1e-12)
    assert found["retries"] == Estimate(27 - 13, None, 1)


# run() ---------------------------------------------------------------------------------------------------------------


def flash(**options: Any) -> RunResult:
    return run(plan_of("payments"), model=load_model("gemini-3.5-flash"), replications=20, **options)


@pytest.mark.parametrize("chunk", [1, 7])
def test_the_result_is_the_same_bit_for_bit_whatever_the_chunk(chunk: int) -> None:
    assert flash(chunk=chunk, seed=5) == flash(chunk=500, seed=5)


def test_the_seed_matters_and_is_kept() -> None:
    assert flash(seed=5) == flash(seed=5)
    assert flash(seed=5)["A2"] != flash(seed=6)["A2"]
    assert (flash(seed=6).seed, flash(seed=6).replications) == (6, 20)


def test_an_arm_does_not_depend_on_the_arms_beside_it() -> None:
    alone, beside = flash(arms=[A2D]), flash(arms=[A1, A2D, A0])
    assert [each.arm for each in alone.arms] == ["A2D"]
    assert [each.arm for each in beside.arms] == ["A1", "A2D", "A0"]
    assert alone["A2D"] == beside["A2D"]
    assert alone["A2D"].metrics["token_saving"].value > 0


def test_only_requested_arms_are_observed() -> None:
    record = Recorder(plan_of("payments"))
    flash(arms=[A2], observe=record, chunk=7)
    assert {name: len(each) for name, each in record.episodes.items()} == {"A2": 20}


def test_an_arm_named_twice_counts_once() -> None:
    assert flash(arms=[A2, A2])["A2"] == flash(arms=[A2])["A2"]


def test_common_random_numbers_narrow_a_saving() -> None:
    record = Recorder(plan_of("payments"))
    model = load_model("claude-sonnet-5")
    result = run(record.plan, model=model, arms=[A0, A2], replications=100, observe=record)
    with_, without = (total(record.episodes[name], lambda row: row["attempts"]) for name in ("A2", "A0"))
    paired = result["A2"].metrics["attempts_saving"]
    kept = fmean(with_) / fmean(without)
    unpaired = math.sqrt((variance(with_) + kept**2 * variance(without)) / 100) / fmean(without)
    assert paired.se < 0.9 * unpaired


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"replications": 0}, r"replications must be 1 or more \(got 0\)"),
        ({"replications": -3}, r"replications must be 1 or more \(got -3\)"),
        ({"seed": -1}, r"seed must be 0 or more \(got -1\)"),
    ],
)
def test_what_run_refuses(options: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(plan_of("payments"), model=load_model("compliant"), arms=[A0], **options)
