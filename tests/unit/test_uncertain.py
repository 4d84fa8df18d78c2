"""Runs of an estimated model: the same under every draw as one by one, and what the draws say together."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from invsim.cli import main
from invsim.client.arms import Arm, arm_names, get_arm
from invsim.client.memory import Step
from invsim.client.planners import ProbabilisticModel, load_model
from invsim.client.planners.models import parse_model
from invsim.errors import InputError
from invsim.experiment import run, solve
from invsim.located import Source
from invsim.report.tables import FIT_COLUMNS, estimate, for_terminal, to_csv, to_markdown
from invsim.sim.exact import StateSpaceError, distribution, expectations
from invsim.sim.facts import NotTabularError, tabulate
from invsim.sim.plan import Plan, compile_plan
from invsim.sim.scenario import load_scenario
from invsim.stats.metrics import bounds
from invsim.stats.moments import UNDEFINED, Estimate
from invsim.stats.uncertainty import Uncertain, over_draws
from invsim.uncertain import DRAWS, STREAMS, run_draws

FITTED = """
name = "fitted"
[default]
p_apply = { alpha = 18, beta = 4 }
p_fresh = { alpha = 0.5, beta = 0.5 }
p_stale = { alpha = 3, beta = 2 }
p_unaided = { first = { alpha = 1, beta = 9 }, repeat = { alpha = 2, beta = 8 } }
retry = { counts = [31, 4, 1, 0], exhausted = 2 }
[class.funding]
p_apply = { alpha = 5, beta = 5 }
p_unaided = 0.0
retry_injected = { counts = [3, 2] }
"""
FIGURES = ("value", "se", "n", "fit_se", "fit_lo", "fit_hi", "lo", "hi")


@cache
def plan(name: str = "payments") -> Plan:
    return compile_plan(load_scenario(name))


def fitted(text: str = FITTED) -> ProbabilisticModel:
    return parse_model(Source("fitted.toml", text))


# Draws together ------------------------------------------------------------------------------------------------------


def test_draws_give_a_mean_a_deviation_and_quantiles() -> None:
    found = over_draws([Estimate(float(value), 0.0, 0) for value in range(101)])
    assert (found.value, found.se, found.n, found.draws) == (50.0, 0.0, 0, 101)
    assert found.fit_se == pytest.approx(np.arange(101).std(ddof=1))
    assert (found.fit_lo, found.fit_hi) == (found.lo, found.hi) == pytest.approx((2.5, 97.5))


def test_monte_carlo_error_stands_apart_and_widens_the_outer_limits() -> None:
    found = over_draws([Estimate(0.2, 0.03, 50), Estimate(0.4, 0.04, 50)])
    assert found.value == pytest.approx(0.3)
    assert found.se == pytest.approx(np.sqrt((0.03**2 + 0.04**2) / 2))
    assert found.fit_lo == pytest.approx(0.205)
    assert found.lo == pytest.approx(0.205 - 1.959964 * found.se)
    assert found.hi == pytest.approx(0.395 + 1.959964 * found.se)


def test_monte_carlo_error_carries_no_limit_to_where_the_number_cannot_be() -> None:
    draws = [Estimate(0.01, 0.03, 50), Estimate(0.98, 0.04, 50)]
    found = over_draws(draws, bounds=(0.0, 1.0))
    assert (found.lo, found.hi) == (0.0, 1.0)
    assert found.lo < found.fit_lo < found.fit_hi < found.hi
    assert over_draws(draws).lo < 0.0


def test_no_interval_of_a_run_leaves_the_range_of_its_metric() -> None:
    poor = fitted(FITTED.replace("exhausted = 2", "exhausted = 1").replace("[31, 4, 1, 0]", "[1, 1, 0, 0]"))
    found = run_draws(plan(), model=poor, draws=40, replications=5)
    episodes = len(plan().episodes)
    for arm in found.arms:
        for name, each in arm.metrics.items():
            low, high = bounds(name, episodes)
            assert each.lo is None or low <= each.lo <= each.fit_lo <= each.fit_hi <= each.hi <= high, name
        assert all(0 <= each.lo <= each.hi <= 1 for each in arm.first_try_by_class.values())
    assert found["A0"].metrics["exhausted"].lo == 0.0
    assert found["A0"].metrics["completed"].hi == episodes


def test_draws_in_which_a_number_is_undefined_do_not_count() -> None:
    found = over_draws([UNDEFINED, Estimate(0.5, 0.0, 0)])
    assert (found.value, found.fit_se, found.draws) == (0.5, None, 1)
    assert over_draws([UNDEFINED, UNDEFINED]).to_dict() == dict.fromkeys(FIGURES) | {"n": 0}
    assert over_draws([Estimate(0.5, None, 1)]).se is None
    with pytest.raises(InputError, match="at least one draw"):
        over_draws([])


# Many models in one pass ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", ["payments", "rules", "recipes"])
def test_many_models_at_once_give_what_each_gives_alone(scenario: str) -> None:
    facts = tabulate(plan(scenario))
    named = [load_model(name) for name in ("gemini-3.5-flash", "compliant-stale", "refuser")]
    models = [*(fitted().drawn(1, at) for at in range(2)), *named]
    arms = [get_arm(name) for name in arm_names() if name in {arm.name for arm in plan(scenario).arms}]
    together = expectations(facts, arms=arms, models=models)
    for arm in arms:
        for at, model in enumerate(models):
            alone = distribution(facts, arm=arm, model=model, pmf=["evictions"])
            assert together[arm.name].mean[at] == pytest.approx(alone.mean, abs=1e-10)
            reciprocal = alone.pmfs["evictions"].mean_reciprocal
            expected = np.nan if reciprocal is None else reciprocal
            assert together[arm.name].reciprocal[at] == pytest.approx(expected, abs=1e-10, nan_ok=True)


def test_an_arm_that_the_exact_engine_does_not_know_is_refused() -> None:
    own = Arm("OWN", "does nothing", on_tables=lambda memory, message: Step(memory))
    with pytest.raises(NotTabularError, match="OWN"):
        expectations(tabulate(plan()), arms=[own], models=[fitted()])
    with pytest.raises(StateSpaceError):
        expectations(tabulate(plan()), arms=[get_arm("A2D")], models=[fitted()], max_states=2)


# Runs ----------------------------------------------------------------------------------------------------------------


def test_a_run_is_what_its_draws_are_one_by_one() -> None:
    model, arms = fitted(), [get_arm("A0"), get_arm("A2")]
    found = run_draws(plan(), model=model, arms=arms, draws=5, seed=3)
    alone = [solve(plan(), model=model.drawn(3, at), arms=arms) for at in range(5)]
    assert (found.engine, found.draws, found.replications, found.seed) == ("exact", 5, 0, 3)
    for arm in ("A0", "A2"):
        for name, value in found[arm].metrics.items():
            singles = over_draws([each[arm].metrics[name] for each in alone])
            assert value.value == pytest.approx(singles.value, abs=1e-10), name
            assert value.fit_se == pytest.approx(singles.fit_se, abs=1e-10), name
            assert value.se in (0.0, None)


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    one, same, other = (run_draws(plan(), model=fitted(), draws=4, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert one["A2D"].metrics["retries"] != other["A2D"].metrics["retries"]


def test_simulated_draws_meet_the_same_random_numbers_and_agree_with_the_exact_ones() -> None:
    model, arms = fitted(), [get_arm("A2D")]
    exact = run_draws(plan(), model=model, arms=arms, draws=12)
    vector = run_draws(plan(), model=model, arms=arms, draws=12, replications=400)
    assert (vector.engine, vector.replications) == ("vector", 400)
    for name in ("first_try_eligible", "retries", "token_saving"):
        one, other = exact["A2D"].metrics[name], vector["A2D"].metrics[name]
        assert other.n == 400
        assert abs(one.value - other.value) < 5 * other.se
        assert other.lo < other.fit_lo <= other.value <= other.fit_hi < other.hi
        assert other.fit_se == pytest.approx(one.fit_se, rel=0.25)
    single = run(plan(), model=model.drawn(1, 7), arms=arms, replications=400)
    again = run_draws(plan(), model=model, arms=arms, draws=8, replications=400)
    seven = [run_draws(plan(), model=model, arms=arms, draws=7, replications=400), again]
    sums = [each["A2D"].metrics["retries"].value * each.draws for each in seven]
    assert sums[1] - sums[0] == pytest.approx(single["A2D"].metrics["retries"].value)


def test_an_arm_of_ones_own_is_played_event_by_event() -> None:
    own = Arm("OWN", "does nothing", on_tables=lambda memory, message: Step(memory))
    found = run_draws(plan(), model=fitted(), arms=[own], draws=2)
    assert (found.engine, found.replications) == ("simpy", STREAMS["simpy"])
    assert found["OWN"].metrics["retries"].n == 10


def test_a_model_that_is_all_but_known_has_no_error_of_fit() -> None:
    text = FITTED.replace("alpha = 18, beta = 4", "alpha = 18e9, beta = 4e9").partition("p_fresh")[0]
    found = run_draws(plan(), model=fitted(text), draws=20)["A2D"]
    point = solve(plan(), model=fitted(text))["A2D"]
    for name in ("first_try_eligible", "retries", "token_saving", "evictions"):
        assert found.metrics[name].value == pytest.approx(point.metrics[name].value, abs=1e-4)
        assert found.metrics[name].fit_se < 1e-4


def test_a_rate_alone_carries_its_own_spread_through() -> None:
    """Compliance given a valid fix is p_apply itself, so its interval is that of the posterior."""
    model = fitted('name = "x"\n[default]\np_apply = { alpha = 18, beta = 4 }')
    value = run_draws(plan(), model=model, draws=1000)["A2D"].metrics["compliance_given_valid"]
    assert value.value == pytest.approx(18 / 22, abs=5 * 0.08 / np.sqrt(1000))
    assert value.fit_se == pytest.approx(np.sqrt(18 * 4 / 22**2 / 23), rel=0.1)
    assert (value.fit_lo, value.fit_hi) == pytest.approx((0.637, 0.946), abs=0.03)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draws": 0}, "draws must be 1 or more"),
        ({"seed": -1}, "seed must be 0 or more"),
        ({"engine": "exact", "replications": 5}, "samples no streams"),
        ({"model": load_model("compliant")}, "no posterior to draw from"),
    ],
)
def test_a_run_refuses_what_it_cannot_do(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run_draws(plan(), **{"model": fitted(), "draws": 2, **options})


def test_progress_counts_draws() -> None:
    for replications in (None, 3):
        done: list[int] = []
        run_draws(plan(), model=fitted(), arms=[get_arm("A0")], draws=3, replications=replications, tick=done.append)
        assert sum(done) == 3


# Reports -------------------------------------------------------------------------------------------------------------


def test_tables_show_the_error_of_the_fit_and_the_interval() -> None:
    found = run_draws(plan(), model=fitted(), arms=[get_arm("A2D")], draws=10, replications=50)
    assert estimate(Uncertain(0.5, 0.001, 9, 0.25, 0.1, 0.9, 0.1, 0.9, 3)) == "0.5 ±0.25"
    rows = to_csv([found]).splitlines()
    assert rows[0].split(",")[-5:] == list(FIT_COLUMNS)
    assert all(len(row.split(",")) == len(rows[0].split(",")) for row in rows)
    assert "standard deviation over draws" in to_markdown([found], "x")
    (table,) = for_terminal(found, "x", width=80)
    labels = list(table.columns[0].cells)
    assert labels[:3] == ["first try, eligible", "  95% interval", "  Monte Carlo error"]
    certain = run(plan(), model=load_model("compliant"), arms=[get_arm("A2D")], replications=2)
    assert FIT_COLUMNS[0] not in to_csv([certain])
    assert "95% interval" not in list(next(for_terminal(certain, "x", width=80)).columns[0].cells)


# The command ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "fitted.toml"
    path.write_text(FITTED, encoding="utf-8")
    return str(path)


def command(capsys: pytest.CaptureFixture[str], *args: str) -> Any:
    assert main(["run", "payments", *args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_fitted_model_is_drawn_by_default_and_not_with_draws_0(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = command(capsys, "--model", file, "--arms", "A2D")
    assert (drawn["draws"], drawn["engine"]) == (DRAWS, "exact")
    for name, each in drawn["arms"][0].items():
        if name not in {"arm", "first_try_by_class"}:
            assert tuple(each) == FIGURES, name
            if each["value"] is not None:
                assert (
                    each["lo"] <= each["fit_lo"] <= each["value"] + 1e-12 <= each["fit_hi"] + 1e-9 <= each["hi"] + 1e-9
                )
    point = command(capsys, "--model", file, "--arms", "A2D", "--draws", "0")
    assert "draws" not in point
    assert tuple(point["arms"][0]["retries"]) == FIGURES[:3]
    some = command(capsys, "--model", f"{file},compliant", "--draws", "3", "--arms", "A2D")
    assert [each.get("draws") for each in some] == [3, None]


def test_the_table_of_a_fitted_model(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "payments", "--model", file, "--draws", "9", "--replications", "20", "--arms", "A2D"]) == 0
    text = capsys.readouterr().out
    assert "9 draws of the model from its posterior" in text
    assert "20 streams per arm and draw" in text
    assert "95% interval" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--draws", "-1"], "--draws: must be 0 or more (got -1)"),
        (["--events", "-"], "--events: is of one model, and this one is drawn many times: add --draws 0"),
        (["--out", "x"], "--out: is of one model"),
        (["--precision", "0.1"], "--precision: is of one model"),
        (["--server", "http://127.0.0.1:9"], "--server: is of one model"),
        (["--trace", "t.jsonl"], "--trace: is of one model"),
        (["--engine", "exact", "--replications", "2"], "samples no streams"),
    ],
)
def test_what_needs_a_single_model_says_so(
    options: list[str], message: str, file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(file).parent)
    assert main(["run", "payments", "--model", file, *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert [each.name for each in Path(file).parent.iterdir()] == ["fitted.toml"]


def test_draws_of_a_model_that_is_known_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "payments", "--draws", "5"]) == 2
    assert "--draws: goes with a fitted model" in capsys.readouterr().err
