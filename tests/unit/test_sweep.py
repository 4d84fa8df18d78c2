"""Sweeps: the grid is what was asked for, and its numbers are those of single runs, whoever worked them out."""

import json
import multiprocessing
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from invsim.cli import main
from invsim.client.arms import get_arm
from invsim.client.planners import load_model
from invsim.errors import InputError, InvsimError, UnknownNameError
from invsim.experiment import run
from invsim.sim.compose import Setting
from invsim.sim.plan import compile_plan
from invsim.sim.scenario import load_scenario, shipped_text
from invsim.sweep import Case, Rates, Study, Sweep, sweep
from invsim.sweep.store import CELLS
from invsim.whatif import outcome, planner
from invsim.world.wire import Level

SMALL = Setting(episodes=12, keys=3, tables=1)
BASE = Case(SMALL, arms=("A1", "A2D"), schedules=2, replications=20)
GRID = Study(BASE, {"drift": [0.0, 0.3], "p_apply": [0.5, 1.0]})


def value(result: Sweep, at: int, arm: str, metric: str) -> Any:
    (row,) = [row for row in result.rows[at] if (row["arm"], row["metric"]) == (arm, metric)]
    return row["value"]


# The grid ------------------------------------------------------------------------------------------------------------


def test_every_value_meets_every_other_and_the_last_varies_fastest() -> None:
    cells = GRID.cells()
    assert [tuple(cell.point.values()) for cell in cells] == [(0.0, 0.5), (0.0, 1.0), (0.3, 0.5), (0.3, 1.0)]
    assert [cell.case.scenario.drift for cell in cells] == [0.0, 0.0, 0.3, 0.3]  # type: ignore[union-attr]
    assert [cell.case.model for cell in cells] == [Rates(0.5), Rates(1.0), Rates(0.5), Rates(1.0)]
    assert {cell.case.seed for cell in cells} == {1}


def test_parameters_that_depend_on_each_other_are_set_together() -> None:
    (cell,) = Study(Case(), {"keys": [2], "tables": [2]}).cells()
    assert cell.case.scenario == Setting(keys=2, tables=2)


def test_nothing_varied_is_one_cell() -> None:
    (cell,) = Study(BASE).cells()
    assert (cell.point, cell.case) == ({}, BASE)


@pytest.mark.parametrize(
    ("base", "vary", "message"),
    [
        (Case(), {"colour": [1]}, "unknown parameter 'colour'"),
        (Case(), {"drift": []}, "drift has no value to take"),
        (Case(), {"drift": [0.1, 0.1]}, "drift has a value twice"),
        (Case(), {"drift": [2.0]}, "drift must be from 0 to 1 .got 2.0."),
        (Case(), {"drift": ["0.1"]}, "drift takes a number .got '0.1'."),
        (Case(), {"drift": [True]}, "drift takes a number"),
        (Case(), {"keys": [1.5]}, "keys takes a whole number"),
        (Case(), {"keys": [2], "tables": [3]}, "tables must be from 1 to 2"),
        (Case(), {"shape": ["round"]}, "unknown hint shape 'round'"),
        (Case(), {"p_apply": [1.5]}, "p_apply must be a probability"),
        (Case("payments", "compliant"), {"drift": [0.1]}, "drift is of a composed setting"),
        (Case("payments", "compliant"), {"p_apply": [0.1]}, "p_apply is of a planner of rates"),
        (Case("payments", "compliant"), {"level": ["L9"]}, "unknown wire level 'L9'"),
        (Case("payments", "compliant"), {"model": ["gpt"]}, "unknown model 'gpt'"),
        (Case("nowhere", "compliant"), {}, "unknown scenario 'nowhere'"),
        (Case(arms=("A9",)), {}, "unknown arm 'A9'"),
        (Case(engine="steam"), {}, "unknown engine 'steam'"),
        (Case(replications=0), {}, "replications must be 1 or more"),
        (Case(schedules=0), {}, "schedules must be 1 or more"),
        (Case(seed=-1), {}, "seed must be 0 or more"),
        (Case(engine="exact", replications=3), {}, "the exact engine samples no streams"),
        (Case(draws=3), {}, "draws are of a fitted model"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is(base: Case, vary: Any, message: str) -> None:
    with pytest.raises((InputError, UnknownNameError), match=message):
        Study(base, vary).cells()


# The numbers ---------------------------------------------------------------------------------------------------------


def test_a_named_scenario_comes_to_what_a_run_of_it_does() -> None:
    levels = ("L0", "L4")
    result = sweep(Study(Case("payments", "gpt-5-mini", arms=("A1", "A2D")), {"level": levels}))
    assert value(result, 0, "A2D", "retries") > value(result, 1, "A2D", "retries")
    for at, level in enumerate(levels):
        plan = compile_plan(load_scenario("payments"), level=Level[level])
        own = run(plan, model=load_model("gpt-5-mini"), arms=[get_arm("A1"), get_arm("A2D")])
        for arm in ("A1", "A2D"):
            assert value(result, at, arm, "retries") == own[arm].metrics["retries"].value
            assert (
                value(result, at, arm, "first_try_by_class.governed") == own[arm].first_try_by_class["governed"].value
            )


def test_a_composed_setting_comes_to_the_mean_over_its_schedules() -> None:
    result = sweep(GRID)
    for at, cell in enumerate(result.cells):
        own = outcome(
            cell.case.scenario, model=planner(cell.point["p_apply"]), arms=("A1", "A2D"), number=2, streams=20  # type: ignore[arg-type]
        )  # fmt: skip
        for arm in ("A1", "A2D"):
            assert value(result, at, arm, "token_saving") == own[arm].value


def test_intervals_hold_the_value_and_an_exact_value_is_its_own() -> None:
    for row in (row for rows in sweep(GRID).rows for row in rows if row["lo"] is not None):
        assert row["lo"] <= row["value"] <= row["hi"]
    exact = sweep(Study(Case("control", "compliant", arms=("A2D",)))).rows[0]
    assert {row["lo"] == row["value"] == row["hi"] for row in exact} == {True}
    sampled = sweep(Study(Case("control", "gpt-5-mini", arms=("A2D",), replications=50))).rows[0]
    (row,) = [row for row in sampled if row["metric"] == "retries"]
    assert row["n"] == 50
    assert row["hi"] - row["lo"] == pytest.approx(2 * 2.0096 * row["se"], rel=1e-3)


def test_a_fitted_model_is_drawn_from_its_posterior(tmp_path: Path) -> None:
    fitted = tmp_path / "fitted.toml"
    fitted.write_text('name = "fitted"\n[default]\np_apply = {alpha = 7, beta = 2}\n')
    result = sweep(Study(Case("payments", str(fitted), arms=("A2D",), draws=8)))
    (row,) = [row for row in result.rows[0] if row["metric"] == "retries"]
    assert row["hi"] - row["lo"] > 1
    with pytest.raises(InputError, match="does not carry the uncertainty"):
        sweep(Study(Case(SMALL, str(fitted))))
    assert sweep(Study(Case(SMALL, str(fitted), draws=0, schedules=1, replications=5))).rows


def test_the_frame_has_a_row_for_each_cell_arm_and_metric() -> None:
    result = sweep(GRID)
    frame = result.frame()
    assert frame.columns == ["drift", "p_apply", "arm", "metric", "value", "se", "lo", "hi", "n"]
    assert frame.height == sum(len(rows) for rows in result.rows)
    assert frame.schema["drift"] == pl.Float64
    assert sweep(Study(BASE, {"tables": [1, 2]})).frame().schema["tables"] == pl.Int64


# Executors -----------------------------------------------------------------------------------------------------------


class Backwards(Executor):
    """Finishes what came last first."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Any, ...]] = []

    def submit(self, function: Any, /, *args: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.jobs.append((future, function, args))
        if len(self.jobs) == 4:
            for each, work, given in reversed(self.jobs):
                each.set_result(work(*given))
        return future


def test_one_result_whatever_the_executor_and_the_order(tmp_path: Path) -> None:
    here = sweep(GRID)
    assert sweep(GRID, executor=Backwards()).rows == here.rows
    with ThreadPoolExecutor(3) as threads:
        assert sweep(GRID, executor=threads).rows == here.rows
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as processes:
        assert sweep(GRID, executor=processes, out=tmp_path / "out").rows == here.rows
    recalled = sweep(GRID, out=tmp_path / "out")
    assert (recalled.rows, recalled.recalled) == (here.rows, 4)


def test_one_result_on_a_dask_cluster() -> None:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        assert sweep(GRID, executor=client.get_executor()).rows == sweep(GRID).rows


def within_an_episode(name: str) -> str:
    """The payments stream, drifting within an episode, which only SimPy plays."""
    text = shipped_text("payments").replace('name = "payments"', f'name = "{name}"')
    drifting = text.replace("after_episode = 11", "at_tick = 73", 1)
    assert drifting != text
    return drifting


def test_an_error_comes_back_from_another_process_with_its_place_and_what_was_finished_is_kept(tmp_path: Path) -> None:
    study = Study(Case("payments", "claude-haiku-4-5", arms=("A2D",), engine="vector"), {"seed": [1, 2]})
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as processes:
        assert len(sweep(study, executor=processes, out=tmp_path / "out").rows) == 2
        mine = tmp_path / "mine.toml"
        mine.write_text(within_an_episode("mine"))
        mixed = Study(study.base, {"scenario": ["payments", str(mine)]})
        with pytest.raises(InvsimError, match=r"^scenario .*mine\.toml: .*"):
            sweep(mixed, executor=processes, out=tmp_path / "mixed")
    assert len(list((tmp_path / "mixed" / CELLS).iterdir())) == 1


class Dying(Executor):
    """A pool whose worker is killed."""

    def submit(self, function: Any, /, *args: Any, **named: Any) -> Future[Any]:
        from concurrent.futures.process import BrokenProcessPool

        future: Future[Any] = Future()
        future.set_exception(BrokenProcessPool("terminated abruptly"))
        return future


def test_a_worker_that_dies_is_said() -> None:
    with pytest.raises(InvsimError, match="a worker died, perhaps for want of memory; what was finished is kept"):
        sweep(GRID, executor=Dying())


class Other(Executor):
    """A cluster with another version of invsim."""

    def submit(self, function: Any, /, *args: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(("0.0.0", []))
        return future


def test_a_worker_of_another_version_is_refused() -> None:
    with pytest.raises(InvsimError, match=r"a worker runs invsim 0\.0\.0, and this is"):
        sweep(GRID, executor=Other())


# What is kept --------------------------------------------------------------------------------------------------------


def test_a_larger_grid_works_out_only_what_is_new(tmp_path: Path) -> None:
    sweep(GRID, out=tmp_path / "out")
    done: list[int] = []
    larger = Study(BASE, {"drift": [0.0, 0.1, 0.3], "p_apply": [0.5, 1.0]})
    result = sweep(larger, out=tmp_path / "out", tick=done.append)
    assert (result.recalled, done) == (4, [4, 1, 1])
    assert result.rows == sweep(larger).rows
    assert pl.read_parquet(tmp_path / "out" / "sweep.parquet").equals(result.frame())
    assert pl.read_csv(tmp_path / "out" / "sweep.csv").height == result.frame().height
    assert json.loads((tmp_path / "out" / "study.json").read_text())["vary"]["drift"] == [0.0, 0.1, 0.3]


def test_another_seed_model_or_file_is_another_case(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('name = "mine"\n[default]\np_apply = 0.5\n')
    cases = [BASE, Case(SMALL), BASE.at({"seed": 2}), BASE.at({"p_apply": 0.9}), BASE.at({"drift": 0.3})]
    cases += [BASE.at({"model": str(mine)}), Case("payments", "compliant"), Case("control", "compliant")]
    keys = [case.key for case in cases]
    assert len(set(keys)) == len(keys)
    mine.write_text('name = "mine"\n[default]\np_apply = 0.6\n')
    assert BASE.at({"model": str(mine)}).key not in keys
    assert BASE.at({"drift": 0}).key == BASE.at({"drift": 0.0}).key


def test_a_damaged_cell_is_worked_out_again(tmp_path: Path) -> None:
    sweep(GRID, out=tmp_path)
    torn, other, *_ = sorted((tmp_path / CELLS).iterdir())
    torn.write_bytes(torn.read_bytes()[:50])
    other.write_bytes(torn.read_bytes())
    result = sweep(GRID, out=tmp_path)
    assert (result.recalled, result.rows) == (2, sweep(GRID).rows)


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match="holds something that is no sweep"):
        sweep(GRID, out=tmp_path)
    with pytest.raises(InputError, match="is a file, not a folder"):
        sweep(GRID, out=tmp_path / "thesis.tex")


def test_a_sweep_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "invsim", "sweep", "payments", "--model", "gpt-5-mini", "--arms", "A2D",
        "--engine", "simpy", "--replications", "300", "--vary", "seed=1:30:1", "--out", str(tmp_path / "out"), "--json",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    cells = tmp_path / "out" / CELLS
    for _ in range(3000):
        if cells.is_dir() and len(list(cells.glob("*.json"))) >= 3:
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    kept = {path: path.stat().st_mtime_ns for path in cells.glob("*.json")}
    assert 3 <= len(kept) < 30
    done = subprocess.run(command, capture_output=True, check=True)
    result = json.loads(done.stdout)
    assert result["recalled"] == len(kept)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert len(result["cells"]) == 30


# The command ---------------------------------------------------------------------------------------------------------

COMPOSED = ["sweep", "composed", "--set", "episodes=12", "--schedules", "2", "--replications", "10", "--arms", "A1,A2D"]


def test_the_table_has_a_line_for_each_cell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMPOSED, "--vary", "drift=0:0.3:0.1", "--metric", "retries,token_saving"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("composed, 2 schedules, a planner of rates, seed 1, 4 cells\n")
    lines = [line.split()[0] for line in out.splitlines() if line[:2] == "0."]
    assert lines == ["0.0", "0.1", "0.2", "0.3"] * 2
    assert "retries, 95% interval" in out


def test_json_has_every_metric(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMPOSED, "--vary", "p_apply=0.5,1", "--vary", "shape=add-a-field", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [cell["at"] for cell in found["cells"]] == [
        {"p_apply": 0.5, "shape": "add-a-field"}, {"p_apply": 1.0, "shape": "add-a-field"},
    ]  # fmt: skip
    assert found["base"]["scenario"]["episodes"] == 12
    assert [arm["arm"] for arm in found["cells"][0]["arms"]] == ["A1", "A2D"]
    assert set(found["cells"][0]["arms"][1]["validity"]) == {"value", "se", "lo", "hi", "n"}


def test_rates_given_for_a_named_scenario_make_a_planner(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "control", "--vary", "p_apply=0,1", "--arms", "A2D", "--metric", "retries"]) == 0
    assert capsys.readouterr().out.startswith("control, a planner of rates, seed 1, 2 cells")


def test_figures_are_drawn(tmp_path: Path) -> None:
    base = tmp_path / "figure"
    assert main([*COMPOSED, "--vary", "drift=0,0.2", "--vary", "tables=1,2", "--figure", str(base)]) == 0
    assert base.with_suffix(".svg").read_text().count("tables") == 2
    assert base.with_suffix(".png").stat().st_size > 5000


def test_a_cluster_that_is_not_there_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("invsim.cli.sweep.PATIENCE", "0.5s")
    assert main([*COMPOSED, "--dask", "tcp://127.0.0.1:1"]) == 2
    assert capsys.readouterr().err.startswith("invsim: --dask: no Dask scheduler answers")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--vary", "drift"], "--vary: is NAME=VALUE (got 'drift')"),
        (["--vary", "drift="], "--vary: is NAME=VALUE"),
        (["--vary", "drif=1"], "--vary: unknown parameter 'drif': did you mean 'drift'?"),
        (["--vary", "drift=0", "--vary", "drift=1"], "--vary: is given twice (got 'drift')"),
        (["--vary", "drift=0,,1"], "--vary drift: is a number (got '')"),
        (["--vary", "drift=x"], "--vary drift: is a number (got 'x')"),
        (["--vary", "keys=1.5"], "--vary keys: is a whole number (got '1.5')"),
        (["--vary", "drift=0:1"], "--vary drift: a range is LOW:HIGH:STEP (got '0:1')"),
        (["--vary", "drift=1:0:0.1"], "--vary drift: a range goes up from LOW to HIGH"),
        (["--vary", "drift=0:1:0"], "--vary drift: a range goes up from LOW to HIGH"),
        (["--vary", "drift=0:1:1e-9"], "--vary drift: a range has at most 10,000 values"),
        (["--vary", "drift=nan"], "drift must be from 0 to 1 (got nan)"),
        (["--set", "seed=3"], "--set: has an option of its own, --seed"),
        (["--set", "scenario=x"], "--set: is the argument"),
        (["--vary", "drift=0", "--set", "drift=1"], "--set: is varied too (got 'drift')"),
        (["--vary", "model=compliant", "--model", "refuser"], "--model: is varied too"),
        (["--set", "p_apply=0.5", "--model", "compliant"], "p_apply is of a planner of rates, and the model is named"),
        (["--workers", "0"], "--workers: must be 1 or more"),
        (["--workers", "2", "--dask", "x"], "--dask: the workers of a cluster are its own"),
        (["--metric", "speed"], "--metric: unknown metric 'speed'"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMPOSED, *arguments]) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert message in found.err
    assert found.err.count("\n") == 1
