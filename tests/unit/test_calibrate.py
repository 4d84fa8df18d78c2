"""The estimator: its likelihood against the exact engine, its maxima against closed forms, its files against it."""

import itertools
import json
import math
import tomllib
from dataclasses import replace
from importlib import resources

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from invsim.calibrate import accuracy, calibrate, detection_deltas, estimate, fit_tokens, implied, validate, wire_cost
from invsim.calibrate.estimate import fit
from invsim.calibrate.evidence import SHARED, Cell, Integer, cells, facts_of, integers, totals_of
from invsim.calibrate.likelihood import cell_law, expectation, log_likelihood
from invsim.calibrate.maximum import Bounds, maximise
from invsim.calibrate.structure import Structure, entropic_pmf, published_wire, structure
from invsim.calibrate.validate import training
from invsim.calibrate.wire import beside_print
from invsim.cli import cli
from invsim.client.arms import get_arm
from invsim.client.planners import Behaviour, ProbabilisticModel, RetryLaw, load_model
from invsim.client.planners.models import PUBLISHED
from invsim.errors import InputError, UnknownNameError
from invsim.paper.calibration import estimates
from invsim.sim.engine import simulate_block
from invsim.sim.exact import distribution
from invsim.stats.costs import TokenCosts
from invsim.stats.intervals import clopper_pearson
from invsim.world.wire import Level

NOISY = ProbabilisticModel(
    "noisy",
    default=Behaviour(
        p_apply=0.7, p_fresh=0.4, p_stale=0.6, p_unaided_first=0.2, p_unaided_repeat=0.3,
        retry=RetryLaw((0.6, 1.0, 1.0, 1.0)), retry_injected=RetryLaw((0.5, 1.0, 1.0, 1.0)),
    ),
)  # fmt: skip
FAILING = replace(NOISY, default=replace(NOISY.default, retry=RetryLaw((0.5, 0.5, 0.7, 0.8))))
WEIGHTS = {
    "first_try_eligible": {"eligible_first_try": 1},
    "funding_post": {"window:funding_post": 1},
    "control": {"first_try:control": 1},
    "retries": {"attempts": 1, "one": -36},
    "exhausted": {"one": 36, "completed": -1},
    "evictions": {"evictions": 1},
    "restamped_entries": {"restamped_entries": 1},
}


def one_run(arm: str, counts: dict[str, int], runs: int = 1) -> Cell:
    return Cell("payments", arm, runs, tuple(Integer("payments", arm, n, c, 1, runs, "") for n, c in counts.items()))


# The likelihood ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arm", "model", "metrics"),
    [
        ("A1", NOISY, ("first_try_eligible", "control", "retries")),
        ("A2", NOISY, ("funding_post", "retries", "evictions")),
        ("A2D", NOISY, ("first_try_eligible", "restamped_entries", "evictions")),
        ("A2DG", FAILING, ("retries", "exhausted")),
    ],
)
def test_classes_convolved_give_the_law_of_the_whole_stream(
    arm: str, model: ProbabilisticModel, metrics: tuple[str, ...]
) -> None:
    """The exact engine on all classes at once knows nothing of the factorisation."""
    weights: dict[str, float] = {}
    for place, metric in enumerate(metrics):
        for name, weight in WEIGHTS[metric].items():
            weights[name] = weights.get(name, 0.0) + weight * 1000.0**place
    law = distribution(facts_of("payments"), arm=get_arm(arm), model=model, combinations={"all": weights}).pmfs["all"]
    likely = np.argsort(law.probabilities)[::-1][[0, 1, 5, 20, 60]]
    for at in likely:
        code = round(law.values[at])
        counts = {metric: code // 1000**place % 1000 for place, metric in enumerate(metrics)}
        found = cell_law(one_run(arm, counts), model.behaviour)
        assert found[0] == pytest.approx(law.probabilities[at], rel=1e-6)


def test_runs_are_convolved() -> None:
    law = distribution(facts_of("payments"), arm=get_arm("A0"), model=FAILING, pmf=["retries"]).pmfs["retries"]
    single = np.zeros(200)
    single[law.values.astype(int)] = law.probabilities
    three = np.convolve(np.convolve(single, single), single)
    for total in (90, 110, 130):
        found = cell_law(one_run("A0", {"retries": total}, runs=3), FAILING.behaviour)
        assert found[0] == pytest.approx(three[total], rel=1e-6)


def test_a_tracked_count_splits_the_probability_of_a_cell() -> None:
    cell = one_run("A1", {"retries": 45, "exhausted": 3, "control": 4}, runs=2)
    along = cell_law(cell, FAILING.behaviour, ("funding", "exhausted"))
    assert along.sum() == pytest.approx(cell_law(cell, FAILING.behaviour)[0], rel=1e-9)
    assert (along[:4] > 0).all()
    assert along[4:] == pytest.approx(0.0, abs=1e-15)


def test_what_cannot_happen_has_no_probability() -> None:
    compliant = load_model("compliant")
    assert cell_law(one_run("A2D", {"retries": 7}), compliant.behaviour)[0] == pytest.approx(1.0)
    assert cell_law(one_run("A2D", {"retries": 6}), compliant.behaviour)[0] == 0.0
    assert log_likelihood([one_run("A2D", {"retries": 6})], compliant.behaviour) == pytest.approx(math.log(1e-15))


@pytest.mark.parametrize("model", ["gemini-3.5-flash", "deepseek-v4-flash"])
def test_expectations_are_those_of_the_whole_stream(model: str) -> None:
    played = load_model(model)
    for cell in cells(integers(model, scenarios=["payments"])):
        law = distribution(facts_of("payments"), arm=get_arm(cell.arm), model=played)
        for metric in {each.metric for each in cell.integers} & set(WEIGHTS):
            mean, variance = expectation(cell, metric, played.behaviour)
            assert mean == pytest.approx(cell.runs * law.expected(WEIGHTS[metric]), abs=1e-9)
            assert variance == pytest.approx(cell.runs * law.variance(WEIGHTS[metric]), abs=1e-8)


# The maximum ---------------------------------------------------------------------------------------------------------


def test_interior_and_boundary_maxima_and_their_limits_in_closed_form() -> None:
    def binomials(values: dict[str, float]) -> float:
        p, q = min(max(values["p"], 1e-300), 1 - 1e-16), values["q"]
        return 13 * math.log(p) + 7 * math.log1p(-p) + (30 * math.log(q) if q > 0 else -1e9)

    found = maximise(binomials, [Bounds("p", 0, 1), Bounds("q", 0, 1)], {"p": 0.5, "q": 0.5})
    assert found.values["p"] == pytest.approx(13 / 20, abs=1e-6)
    assert found.values["q"] == 1.0
    assert [each.name for each in found.interior] == ["p"]
    assert found.sd("p") == pytest.approx(math.sqrt(0.65 * 0.35 / 20), rel=1e-3)
    low, high = found.interval("q", confidence=0.95)
    assert (low, high) == (pytest.approx(clopper_pearson(30, 30, confidence=0.90).lo.item(), rel=1e-4), 1.0)
    low, high = found.interval("p", confidence=0.95)
    for limit in (low, high):
        drop = 2 * (binomials(found.values) - binomials({**found.values, "p": limit}))
        assert drop == pytest.approx(3.8415, abs=1e-2)


def test_a_profile_follows_the_other_parameter() -> None:
    def ridge(values: dict[str, float]) -> float:
        a, b = values["a"], values["b"]
        return -200 * (a + b - 1.0) ** 2 - 2 * (a - 0.3) ** 2

    found = maximise(ridge, [Bounds("a", 0, 1), Bounds("b", 0, 1)], {"a": 0.5, "b": 0.5})
    assert found.values == {"a": pytest.approx(0.3, abs=1e-4), "b": pytest.approx(0.7, abs=1e-4)}
    low, high = found.interval("a", confidence=0.5)  # b follows, so only the second term counts
    assert (high - low) / 2 == pytest.approx(math.sqrt(0.4549 / 4), rel=0.1)
    assert found.interval("a", confidence=0.95) == (0.0, pytest.approx(1.0, abs=0.01))


def test_a_saddle_is_left() -> None:
    """Two equal summits, and a start on the pass between them."""

    def pass_(values: dict[str, float]) -> float:
        a, b = values["a"] - 0.5, values["b"] - 0.5
        return -40 * (a + b) ** 2 + 8 * (a - b) ** 2 - 60 * (a - b) ** 4

    found = maximise(pass_, [Bounds("a", 0, 1), Bounds("b", 0, 1)], {"a": 0.5, "b": 0.5}, near=True)
    assert abs(found.values["a"] - found.values["b"]) == pytest.approx(math.sqrt(1 / 15), abs=1e-3)


# Estimates -----------------------------------------------------------------------------------------------------------


def only(shape: Structure, *names: str) -> Structure:
    """The structure with only some parameters free, the others at the shipped profile's values."""
    values = shipped(shape.model_name)
    kept = [
        each if each.name in names else replace(each, free=False, value=values.get(each.name, each.value))
        for each in shape.parameters
    ]
    return Structure(shape.model_name, tuple(kept))


def first_tries(model: str, arms: set[str]) -> list[Integer]:
    return [each for each in integers(model) if each.metric == "first_try_eligible" and each.arm in arms]


def test_a_plain_binomial_is_its_rate_with_its_exact_interval() -> None:
    shape = only(structure("claude-haiku-4-5"), "governed.p_apply")
    found = estimate(shape, first_tries("claude-haiku-4-5", {"A2", "A2DC", "A2DG"}))
    row = found["governed.p_apply"]
    assert (row.value, row.hi, row.boundary, row.identified) == (1.0, 1.0, True, True)
    assert row.lo == pytest.approx(clopper_pearson(81, 81, confidence=0.90).lo.item(), abs=2e-4)
    shape = only(structure("claude-sonnet-4-6"), "governed.p_apply")
    found = estimate(shape, first_tries("claude-sonnet-4-6", {"A2", "A2D", "A2DC", "A2DG"}))
    row = found["governed.p_apply"]
    assert row.value == pytest.approx(92 / 108, abs=1e-5)
    assert (row.lo, row.hi) == (pytest.approx(0.778, abs=0.005), pytest.approx(0.911, abs=0.005))
    assert row.evidence == tuple(each.label for each in first_tries("claude-sonnet-4-6", {"A2", "A2D", "A2DC", "A2DG"}))


def test_what_no_integer_depends_on_is_not_identified() -> None:
    found = calibrate("gpt-5-mini", arms=["A2D"], metrics=["first_try_eligible", "governed_ten"])
    assert found["governed.p_apply"].identified
    for name in ("default.p_fresh", "funding.p_apply", "control.p_apply"):
        row = found[name]
        assert (row.identified, row.evidence, row.lo, row.hi) == (False, (), 0.0, 1.0)


@pytest.mark.parametrize("model", PUBLISHED)
def test_nothing_printed_tells_of_stale_fixes(model: str) -> None:
    shape = structure(model)
    evidence = integers(model)
    for owner in {each.owner for each in shape.parameters}:

        def at(p_stale: float, owner: str = owner) -> float:
            played = load_model(model)
            classes = {
                name: replace(played.behaviour(name), p_stale=p_stale) if name == owner else played.behaviour(name)
                for name in ("governed", "funding", "control", "celiac", "incompat")
            }
            return log_likelihood(cells(evidence), lambda name: classes.get(name, played.default))

        assert at(0.0) == pytest.approx(at(1.0), abs=1e-9)


def test_known_parameters_are_recovered_from_simulated_integers() -> None:
    shape = only(structure("claude-sonnet-4-6"), "default.p_fresh", "governed.p_apply", "funding.p_apply")
    truth = {"default.p_fresh": 0.3, "governed.p_apply": 0.6, "funding.p_apply": 0.85}
    runs, model, plan = 40, shape.model(truth), facts_of("payments").plan
    evidence = []
    for arm in ("A1", "A2D"):
        block = simulate_block(plan, arm=get_arm(arm), model=model, seed=11, first=0, count=runs)
        masks = {"first_try_eligible": plan.eligible} | {w.name: w.mask for w in plan.windows if "funding" in w.name}
        for metric, mask in masks.items():
            count, of = int(block.first_try[:, mask].sum()), runs * int(mask.sum())
            evidence.append(Integer("payments", arm, metric, count, of, runs, "simulated"))
    found = fit(shape, evidence)
    for each in shape.free:
        assert abs(found.values[each.name] - truth[each.name]) < 3.5 * found.sd(each.name)
        assert found.sd(each.name) < 0.05


def test_integers_of_another_model_and_wrong_confidences_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="published model"):
        calibrate("compliant")
    with pytest.raises(UnknownNameError, match="arm with printed integers"):
        calibrate("gpt-5-mini", arms=["A2DC"])
    with pytest.raises(InputError, match="between 0 and 1"):
        calibrate("gpt-5-mini", confidence=1.0)


# The shipped files ---------------------------------------------------------------------------------------------------


def shipped(model: str) -> dict[str, float]:
    """What a model's file gives each free parameter. The other three models are in tests/verify: they take longer."""
    played, values = load_model(model), {}
    for each in structure(model).free:
        behaviour = played.default if each.owner == "default" else played.classes.get(each.owner, played.default)
        field = "p_unaided_repeat" if each.field == "p_unaided" else each.field
        found = getattr(behaviour, field)
        if isinstance(found, RetryLaw):
            found = found.cumulative[0] if each.kind == "geometric" else found.mean_retries
        values[each.name] = found
    return values


def test_a_report_announces_residuals_only_where_there_are_some() -> None:
    found = calibrate("gpt-5-mini", arms=["A2D"], metrics=["first_try_eligible"])
    met = estimates([found]).sections[-1]
    assert (met.title, met.rows) == ("All 1 integers are met exactly.", [])
    off = replace(found, residuals=tuple(replace(row, z=1.5) for row in found.residuals))
    missed = estimates([off]).sections[-1]
    assert missed.title == "0 integers are met exactly; the others, farthest first:"
    assert [row["z"] for row in missed.rows] == ["+1.50"]


@pytest.mark.parametrize("model", ["claude-haiku-4-5", "claude-sonnet-4-6", "gpt-5.4-mini", "gpt-5-mini"])
def test_every_file_holds_the_estimates_to_the_digits_written(model: str) -> None:
    shape, written = structure(model), shipped(model)
    found = fit(shape, integers(model), near=written)
    played, fitted = load_model(model), shape.model(found.values)
    for each in shape.free:
        if each.kind != "mean":
            assert written[each.name] == pytest.approx(found.values[each.name], abs=5.01e-4), each.name
    for name in ("none", *fitted.classes):
        mine, theirs = played.behaviour(name), fitted.behaviour(name)
        for field in ("p_apply", "p_fresh", "p_stale", "p_unaided_first", "p_unaided_repeat"):
            assert getattr(mine, field) == pytest.approx(getattr(theirs, field), abs=6e-4), (name, field)
        for law in ("retry", "retry_injected"):
            steps = np.diff([0.0, *getattr(mine, law).cumulative]), np.diff([0.0, *getattr(theirs, law).cumulative])
            assert steps[0] == pytest.approx(steps[1], abs=7e-4), (name, law)


@pytest.mark.parametrize("model", PUBLISHED)
def test_no_printed_integer_lies_beyond_what_chance_gives_it(model: str) -> None:
    from invsim.calibrate.estimate import residual

    played = load_model(model)
    found = [residual(cell, e, played.behaviour) for cell in cells(integers(model)) for e in cell.integers]
    assert all(each.z is not None and abs(each.z) < 2.25 for each in found)
    assert sum(each.z != 0.0 for each in found) == {"gpt-5-mini": 0, "gpt-5.4-mini": 2, "claude-haiku-4-5": 6}.get(
        model, sum(each.z != 0.0 for each in found)
    )


def test_gemini_s_exhaustions_split_as_printed() -> None:
    grouped = cells(integers("gemini-3.5-flash"))
    (total,) = totals_of("gemini-3.5-flash", {(each.scenario, each.arm): each for each in grouped})
    assert sum(each.count("exhausted") or 0 for each in grouped) == total.count + 32 == 136


@given(st.floats(1.0, 4.0))
@settings(max_examples=40)
def test_the_most_even_law_of_a_mean(mean: float) -> None:
    pmf = entropic_pmf(mean)
    assert sum(pmf) == pytest.approx(1.0)
    assert sum(k * p for k, p in enumerate(pmf, start=1)) == pytest.approx(mean, abs=1e-6)
    if 1.1 < mean < 3.9:
        ratios = [b / a for a, b in itertools.pairwise(pmf)]
        assert ratios == pytest.approx([ratios[0]] * 3, rel=1e-6)


# Out of sample -------------------------------------------------------------------------------------------------------


def test_what_is_predicted_was_not_fitted() -> None:
    for model in PUBLISHED:
        used = {(each.scenario, each.arm, each.metric) for each in training(model)}
        assert {arm for _, arm, _ in used} <= {"A0", "A1", "A2D"}
        assert not any(arm != "A0" and metric in SHARED for _, arm, metric in used) or model in {
            "claude-sonnet-5",
            "gemini-3.5-flash",
        }
        assert ("payments", "A2D", "retries") not in used


def test_a_deterministic_model_is_predicted_to_the_integer() -> None:
    found = validate(["gpt-5-mini"])
    counts = [each for each in found if each.unit == "count"]
    assert len(counts) >= 8
    assert all(
        each.predicted == pytest.approx(each.printed, abs=1e-6) and each.z == pytest.approx(0) for each in counts
    )
    assert all(each.sampling == 0 for each in counts)
    assert any(each.parameters > 0.1 for each in counts)  # 27 of 27 is no certainty
    savings = [each for each in found if each.metric == "token_saving"]
    assert [each.arm for each in savings] == ["A1", "A2D"]
    assert all(abs(each.error) < 4 for each in savings)
    assert {each.metric: each.rmse for each in accuracy(found)}["retries"] == pytest.approx(0, abs=1e-6)
    used = {(each.arm, each.metric) for each in training("gpt-5-mini")}
    assert not used & {(each.arm, each.metric) for each in found}


# Tokens --------------------------------------------------------------------------------------------------------------


def test_token_models_nest_and_the_shipped_costs_are_the_fit() -> None:
    fits = fit_tokens()
    assert [each.name for each in fits] == ["attempts", "+ retries", "+ entries", "+ conflict", "shipped"]
    assert [round(each.rmse, 2) for each in fits] == [1.59, 1.58, 1.34, 0.96, 0.96]
    best = fits[3]
    assert TokenCosts().per_retry == pytest.approx(best.per_retry, abs=5.01e-4)
    assert TokenCosts().per_entry == pytest.approx(best.per_entry, abs=6e-5)
    assert load_model("gpt-5-mini").conflict == pytest.approx(best.conflict, abs=6e-4)
    assert load_model("gpt-5.4-mini").conflict == load_model("gpt-5-mini").conflict
    assert best.largest < 2.0
    assert len(best.residuals) == 14
    errors = [each.error for each in best.residuals]
    assert math.sqrt(sum(e * e for e in errors) / 14) == pytest.approx(best.rmse)
    assert best.se["per_entry"] < best.per_entry  # both are told from 0, if barely


def test_the_attempts_model_by_hand() -> None:
    haiku = fit_tokens(models=["claude-haiku-4-5"])[0].residuals
    assert [each.fitted for each in haiku] == pytest.approx([1 - 49 / 63, 1 - 43 / 63])


def test_table_5_follows_from_costs_that_were_not_fitted_to_it() -> None:
    deltas = {each.arm: each for each in detection_deltas(fit_tokens()[-1].costs("claude-haiku-4-5"))}
    assert deltas["A2DRC"].fitted == 0.0
    assert all(abs(each.outside) < 0.1 for each in deltas.values())
    assert deltas["A2DR"].fitted == pytest.approx(0.144, abs=5e-4)


# Bytes ---------------------------------------------------------------------------------------------------------------


def test_every_response_of_the_streams_is_weighed() -> None:
    models = ["claude-haiku-4-5", "gemini-3.5-flash"]
    one, four = wire_cost(models=models, streams=2, levels=(Level.L1, Level.L4))
    plan = facts_of("payments").plan
    attempts = completed = 0
    for name in models:
        model = load_model(name)
        for arm in model.published_arms:
            block = simulate_block(plan, arm=get_arm(arm), model=model, seed=1, first=0, count=2)
            attempts += int(block.episode("attempts").sum())
            completed += int(block.episode("completed").sum())
    assert (one.responses, one.errors) == (four.responses, four.errors) == (attempts, attempts - completed)
    assert one.carriers == one.responses
    assert (one.field("table_versions").bytes, one.field("cache_hint").bytes) == (198.0, 24.0)
    assert one.field("tables").share == 0.0 < four.field("tables").share
    assert one.contract_bytes == pytest.approx(one.contract_share * one.mean_bytes)
    assert four.mean_bytes - one.mean_bytes == pytest.approx(four.contract_bytes - one.contract_bytes)
    rows = {each.figure: each for each in beside_print(one)}
    assert rows["cache_hint, bytes"].difference == 0.0
    assert rows["largest addition, bytes"].measured == 198 + 24 + 34 + 3
    with pytest.raises(InputError, match="1 or more"):
        wire_cost(streams=0)


def test_what_the_printed_bytes_imply() -> None:
    (one,) = wire_cost(models=["claude-haiku-4-5"], streams=1, levels=(Level.L1,))
    rows = {each.what: each for each in implied(one)}
    wire = published_wire()
    assert rows["responses with table_versions, share"].left == pytest.approx(0.503, abs=5e-4)
    assert rows["responses with table_versions"].left < wire.carriers < wire.responses
    assert rows["largest addition of a governed error, bytes"].left == wire.largest == 251
    assert rows["mean addition / mean response"].left == pytest.approx(wire.contract_share, abs=1e-3)


# The command ---------------------------------------------------------------------------------------------------------


def test_the_command_prints_tables_and_json() -> None:
    result = CliRunner().invoke(cli, ["calibrate", "--tokens", "--wire", "--json"])
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert set(found) == {"tokens", "wire-cost"}
    assert [each["level"] for each in found["wire-cost"]["levels"]] == ["L1", "L4", "L5", "L6"]
    table = CliRunner().invoke(cli, ["calibrate", "--tokens"])
    assert "+ conflict" in table.stdout
    assert "Table 5, which was not fitted" in table.stdout


def test_the_command_refuses_what_it_cannot_estimate() -> None:
    assert isinstance(CliRunner().invoke(cli, ["calibrate", "compliant"]).exception, UnknownNameError)
    assert isinstance(CliRunner().invoke(cli, ["calibrate", "--confidence", "2"]).exception, InputError)
    assert isinstance(CliRunner().invoke(cli, ["calibrate", "gpt-5-mini", "--tokens"]).exception, InputError)


def test_the_table_of_parameters_names_only_published_models() -> None:
    text = resources.files("invsim.data").joinpath("calibration.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)
    assert set(data["models"]) <= set(PUBLISHED)
    assert {each["model"] for each in (*data["derived"], *data["total"])} <= set(PUBLISHED)
    for model in PUBLISHED:
        assert {each.owner for each in structure(model).parameters} <= {
            "default",
            *load_model(model).classes,
        }
