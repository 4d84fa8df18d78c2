"""Sweeps: the grid is what was asked for, and its numbers are those of single runs, whoever worked them out."""

import itertools
import json
import multiprocessing
import os
import pickle
import select
import signal
import subprocess
import sys
import time
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from invsim.cli import main
from invsim.client import arms
from invsim.client.arms import get_arm, register_arm
from invsim.client.planners import load_model
from invsim.errors import InputError, InvsimError, UnknownNameError
from invsim.experiment import run
from invsim.report.figures.style import to_bytes
from invsim.report.figures.sweeps import sweep_figure
from invsim.sim.compose import Setting
from invsim.sim.plan import compile_plan
from invsim.sim.scenario import load_scenario, shipped_text
from invsim.sweep import Case, Rates, Study, Sweep, sweep
from invsim.sweep.store import CELLS
from invsim.whatif import SETTINGS, outcome, planner, schedules
from invsim.world.domain import domain_source, load_domain, register_domain
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
        (Case(), {"level": ["L6", "L9"]}, "unknown wire level 'L9'"),
        (Case(), {"level": "L6"}, "level takes several values, as a list .got 'L6'."),
        (Case(), {"drift": 0.5}, "drift takes several values, as a list .got 0.5."),
        (Case(), {"seed": [2**63]}, "seed must be 9223372036854775807 or less"),
        (Case(), {"drift": np.linspace(0, 1, 400), "p_apply": np.linspace(0, 1, 400)}, "at most 100,000 cells"),
        (Case("payments", load_model("compliant")), {}, "model takes a name, the path of a TOML file, or Rates"),  # type: ignore[arg-type]
        (Case(load_scenario("payments"), "compliant"), {}, "scenario takes a name"),  # type: ignore[arg-type]
        (Case(arms=()), {}, "arms names no arm"),
        (Case(arms="A1"), {}, "arms takes names, not one text"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is(base: Case, vary: Any, message: str) -> None:
    with pytest.raises((InputError, UnknownNameError), match=message):
        Study(base, vary).cells()


def test_values_may_be_of_numpy_or_made_as_they_are_asked_for(tmp_path: Path) -> None:
    base = Case(Setting(episodes=np.int64(12), keys=3, tables=1), arms=("A1",), schedules=2, replications=np.int64(5))  # type: ignore[arg-type]
    for values in (np.array([0.0, 0.5]), (at / 2 for at in range(2)), [np.float64(0), np.float32(0.5)], [0, 0.5]):
        study = Study(base, {"drift": values})  # type: ignore[dict-item]
        assert study.vary == {"drift": (0.0, 0.5)}
        result = sweep(study, out=tmp_path / "out")
        assert json.dumps(result.to_dict()["vary"]) == '{"drift": [0.0, 0.5]}'
    assert result.recalled == 2
    assert Study(base, {"keys": np.arange(2, 4)}).vary == {"keys": (2, 3)}  # type: ignore[dict-item]


def test_a_study_and_its_result_can_be_pickled() -> None:
    result = sweep(Study(BASE, {"drift": [0.0]}))
    assert pickle.loads(pickle.dumps(result)) == result


def test_what_is_fixed_is_set_together_with_what_is_varied() -> None:
    cells = Study(Case(), {"keys": [10, 20]}, {"tables": 10}).cells()
    assert [cell.case.scenario for cell in cells] == [Setting(keys=10, tables=10), Setting(keys=20, tables=10)]
    (cell,) = Study(Case(), {"scenario": ["composed"]}, {"drift": 0.5}).cells()
    assert cell.case.scenario == Setting(drift=0.5)
    (cell,) = Study(Case(Setting(drift=0.5)), {"scenario": ["composed"]}).cells()
    assert cell.case.scenario == Setting(drift=0.5)
    with pytest.raises(InputError, match="p_apply is of a planner of rates, and the model is named"):
        Study(Case("payments"), {"model": ["compliant"]}, {"p_apply": 0.5}).cells()
    with pytest.raises(InputError, match="is set and varied too"):
        Study(Case(), {"drift": [0.1]}, {"drift": 0.2})


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
    assert row["se"] > 0.1  # though each draw is worked out exactly
    beside = Study(Case("payments", arms=("A2D",), draws=8), {"model": [str(fitted), "gpt-5-mini"]})
    assert sweep(beside).rows[0] == result.rows[0]
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


def as_files(folder: Path, p_apply: float) -> Study:
    """A study of files: the payments scenario with its domain beside it, and a model."""
    folder.mkdir(exist_ok=True)
    text = shipped_text("payments").replace('name = "payments"', 'name = "mine"', 1)
    (folder / "mine.toml").write_text(text.replace('domain = "acme"', 'domain = "domain.toml"', 1))
    source = domain_source("acme")
    assert source is not None
    (folder / "domain.toml").write_text(source.text)
    (folder / "model.toml").write_text(f'name = "model"\n[default]\np_apply = {p_apply}\n')
    return Study(Case(str(folder / "mine.toml"), str(folder / "model.toml"), arms=("A2D",)), {"level": ["L4", "L6"]})


class Elsewhere(Executor):
    """A worker that has no file of the one who sends it work."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def submit(self, function: Any, /, *args: Any, **named: Any) -> Future[Any]:
        for path in self.folder.iterdir():
            path.unlink()
        future: Future[Any] = Future()
        future.set_result(pickle.loads(pickle.dumps(function))(*pickle.loads(pickle.dumps(args))))
        return future


def test_a_worker_reads_no_file(tmp_path: Path) -> None:
    study = as_files(tmp_path / "files", 0.5)
    here = sweep(study)
    assert sweep(study, executor=Elsewhere(tmp_path / "files")).rows == here.rows
    assert list((tmp_path / "files").iterdir()) == []


def test_a_file_that_changes_meanwhile_changes_nothing(tmp_path: Path) -> None:
    study, other = as_files(tmp_path / "files", 0.5), as_files(tmp_path / "other", 0.9)

    def change(done: int) -> None:
        as_files(tmp_path / "files", 0.9)

    changed = sweep(study, out=tmp_path / "out", tick=change)
    assert [row["value"] for row in changed.rows[1]] != [row["value"] for row in sweep(other).rows[1]]
    assert sweep(study, out=tmp_path / "out").recalled == 0
    as_files(tmp_path / "files", 0.5)
    assert sweep(study, out=tmp_path / "out").rows == changed.rows


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
    with pytest.raises(InvsimError, match=r"^a worker died, perhaps for want of memory"):
        sweep(GRID, executor=Dying())


class Ending(Executor):
    """Works out one case and ends then, as it is asked to: ``how`` is given the second case's future."""

    def __init__(self, how: Any) -> None:
        self.how, self.submitted = how, 0

    def submit(self, function: Any, /, *args: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.submitted += 1
        if self.submitted == 1:
            future.set_result(function(*args))
        else:
            self.how(future)
        return future


def shut(future: Future[Any]) -> None:
    raise RuntimeError("cannot schedule new futures after shutdown")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (lambda future: future.cancel() and future.set_running_or_notify_cancel(), "the executor gave up"),
        (lambda future: future.set_exception(CancelledError()), "the executor gave up"),
        (shut, "takes no more work: cannot schedule new futures after shutdown"),
        (
            lambda future: future.set_exception(ImportError("no invsim\n  here")),
            r"drift 0\.\d, p_apply \d\.\d: a worker failed: ImportError: no invsim here$",
        ),
        (
            lambda future: future.set_exception(UnknownNameError("arm", "FORGET", ["A0"])),
            "unknown arm 'FORGET': known: A0; what is registered in Python, every worker has to register",
        ),
    ],
)
def test_an_executor_that_ends_badly_is_said_and_what_was_finished_is_kept(
    how: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InvsimError, match=message):
        sweep(GRID, executor=Ending(how), out=tmp_path / "out")
    assert sweep(GRID, out=tmp_path / "out").recalled == 1


class Other(Executor):
    """A cluster with another version of invsim."""

    def submit(self, function: Any, /, *args: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(("0.0.0", []))
        return future


def test_a_worker_of_another_version_is_refused() -> None:
    with pytest.raises(InvsimError, match=r"a worker runs invsim 0\.0\.0, and this is"):
        sweep(GRID, executor=Other())


def key(case: Case) -> str | None:
    return case.key(case.sources())


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
    keys = [key(case) for case in cases]
    assert len({*keys, None}) == len(keys) + 1
    mine.write_text('name = "mine"\n[default]\np_apply = 0.6\n')
    assert key(BASE.at({"model": str(mine)})) not in keys
    assert key(BASE.at({"drift": 0})) == key(BASE.at({"drift": -0.0}))


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
    for other in ('{"optuna": 1}', '{"base": {}, "vary": {}}', "{"):
        (tmp_path / "study.json").write_text(other)
        with pytest.raises(InputError, match="holds something that is no sweep"):
            sweep(GRID, out=tmp_path)
        assert (tmp_path / "study.json").read_text() == other
    assert sorted(path.name for path in tmp_path.iterdir()) == ["study.json", "thesis.tex"]


def test_a_sweep_goes_on_whatever_it_was_stopped_at(tmp_path: Path) -> None:
    (tmp_path / ".study.json.7-ab.unfinished").write_text("{")
    sweep(GRID, out=tmp_path)
    (tmp_path / "study.json").write_text('{"invsim"')
    (tmp_path / CELLS / ".x.json.7-ab.unfinished").write_text("{")
    assert sweep(GRID, out=tmp_path).recalled == 4


def test_a_cell_that_is_damaged_and_still_json_is_worked_out_again(tmp_path: Path) -> None:
    rows = sweep(GRID, out=tmp_path).rows
    file = min((tmp_path / CELLS).iterdir())
    sound = file.read_text()
    digits = [at for at in range(sound.rindex('"rows"'), len(sound)) if sound[at].isdigit()]
    for at in digits[:: len(digits) // 50]:
        file.write_text(f"{sound[:at]}{(int(sound[at]) + 1) % 10}{sound[at + 1 :]}")
        assert sweep(GRID, out=tmp_path).rows == rows, at


def test_what_is_registered_in_python_is_worked_out_every_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("invsim.client.arms._arms", dict(arms._arms))
    monkeypatch.setattr("invsim.world.domain._registered", {})
    acme = load_domain("acme")
    text = shipped_text("payments").replace('name = "payments"', 'name = "mine"', 1)
    (tmp_path / "mine.toml").write_text(text.replace('domain = "acme"', 'domain = "mine"', 1))
    case = Case(str(tmp_path / "mine.toml"), "gpt-5-mini", arms=("A2D",))

    def value_of(result: Sweep) -> Any:
        return value(result, 0, result.study.base.arms[0], "retries")  # type: ignore[index]

    register_domain(replace(acme, name="mine"))
    first = sweep(Study(case), out=tmp_path / "out")
    tables = tuple(replace(table, rows={key: dict(row) for key, row in table.rows.items()}) for table in acme.tables)
    register_domain(replace(acme, name="mine", tables=tables, policies=acme.policies[:1]))
    with pytest.raises(InvsimError):  # the domain is another one, in which a task's family is unknown
        sweep(Study(case), out=tmp_path / "out")

    named = Case("payments", "gpt-5-mini", arms=("FORGET",))
    register_arm(replace(arms.A2, name="FORGET"))
    first = sweep(Study(named), out=tmp_path / "out")
    arms._arms["FORGET"] = replace(arms.A1, name="FORGET")
    again = sweep(Study(named), out=tmp_path / "out")
    assert again.recalled == 0
    assert value_of(first) != value_of(again)
    assert again.rows == sweep(Study(named)).rows
    assert key(Case()) is None  # a composed setting has every arm there is
    assert key(Case(arms=("A1",))) is not None


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


def test_workers_end_when_the_sweep_is_killed(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "invsim", "sweep", "payments", "--model", "gpt-5-mini", "--arms", "A2D", "--workers", "2",
        "--engine", "simpy", "--replications", "100", "--vary", "seed=1:200:1", "--out", str(tmp_path / "out"),
    ]  # fmt: skip
    read, write = os.pipe()  # the workers inherit nothing but their standard streams: this end closes with the last one
    process = subprocess.Popen(command, stdout=write, stderr=subprocess.DEVNULL)
    os.close(write)
    for _ in range(6000):
        if len(list((tmp_path / "out" / CELLS).glob("*.json"))) >= 2:
            break
        time.sleep(0.01)
    process.kill()
    process.wait()
    ended, _, _ = select.select([read], [], [], 60)
    assert ended
    assert os.read(read, 1) == b""
    os.close(read)
    assert 2 <= len(list((tmp_path / "out" / CELLS).glob("*.json"))) < 200


def test_plans_of_few_settings_are_kept() -> None:
    for at in range(2 * SETTINGS):
        schedules(replace(SMALL, drift=at / 100), number=1)
    assert schedules.cache_info().currsize == SETTINGS


# The command ---------------------------------------------------------------------------------------------------------

COMPOSED = ["sweep", "composed", "--set", "episodes=12", "--schedules", "2", "--replications", "10", "--arms", "A1,A2D"]


def test_the_table_has_a_line_for_each_cell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMPOSED, "--vary", "drift=0:0.3:0.1", "--metric", "retries,token_saving"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("composed, 2 schedules, a planner of rates, seed 1, episodes 12, 4 cells\n")
    lines = [line.split()[0] for line in out.splitlines() if line[:2] == "0."]
    assert lines == ["0.0", "0.1", "0.2", "0.3"] * 2
    assert "retries, 95% interval" in out


def test_json_has_every_metric(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMPOSED, "--vary", "p_apply=0.5,1", "--vary", "shape=add-a-field", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [cell["at"] for cell in found["cells"]] == [
        {"p_apply": 0.5, "shape": "add-a-field"}, {"p_apply": 1.0, "shape": "add-a-field"},
    ]  # fmt: skip
    assert found["set"] == {"episodes": 12}
    assert [arm["arm"] for arm in found["cells"][0]["arms"]] == ["A1", "A2D"]
    assert set(found["cells"][0]["arms"][1]["validity"]) == {"value", "se", "lo", "hi", "n"}


def test_rates_given_for_a_named_scenario_make_a_planner(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "control", "--vary", "p_apply=0,1", "--arms", "A2D", "--metric", "retries"]) == 0
    assert capsys.readouterr().out.startswith("control, a planner of rates, seed 1, 2 cells")


def test_a_table_that_is_too_wide_has_a_line_for_each_arm(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("invsim.cli.output.WITHOUT_TERMINAL", 80)
    sweep_of = [*COMPOSED[:-2], "--vary", "drift=0,0.1"]
    assert main([*sweep_of, "--arms", "A1,A2D"]) == 0
    assert "drift  A1" in capsys.readouterr().out
    assert main(sweep_of) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert lines[3].split() == ["drift", "arm", "value", "95%", "interval"]
    assert [line.split()[:2] for line in lines[4:6]] == [["0.0", "A0"], ["0.0", "A1"]]
    assert len(lines) == 4 + 2 * 9


def test_scenarios_are_varied_in_place_of_the_argument(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "a=b, c.toml"
    mine.write_text(shipped_text("payments").replace('name = "payments"', 'name = "mine"'))
    spaced = tmp_path / "a=b c.toml"
    spaced.write_text(mine.read_text())
    assert main(["sweep", "--vary", f"scenario=control,{spaced}", "--arms", "A2D"]) == 0
    assert "control" in capsys.readouterr().out
    assert main(["sweep", str(mine), "--arms", "A2D", "--vary", "seed=1:3:1"]) == 0


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
        (["--vary", "drift=0:1e999999:1e-999999"], "--vary drift: a range is LOW:HIGH:STEP"),
        (["--vary", "scenario=payments"], "SCENARIO: is varied too (got 'composed')"),
        (["--set", "p_apply=0.5", "--vary", "model=compliant"], "p_apply is of a planner of rates"),
        (["--vary", "level=L6,L9"], "unknown wire level 'L9'"),
        (["--figure", "."], "--figure: takes the name of a file"),
        (["--vary", "keys=3:15:1", "--vary", "drift=0:0.3:0.01", "--figure", "f"], "a figure takes 12 panels at most"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMPOSED, *arguments]) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert message in found.err
    assert found.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sweep", "--arms", "A1"], "SCENARIO: is missing"),
        (["sweep", "payments", "--schedules", "3"], "--schedules: are of a composed setting (got 3)"),
    ],
)
def test_what_the_scenario_has_no_use_for_is_said(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_a_misspelt_class_of_a_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.toml").write_text('name = "m"\n[class.goverend]\np_apply = 0.5\n')
    assert main(["sweep", "payments", "--model", str(tmp_path / "m.toml")]) == 2
    assert "did you mean 'governed'?" in capsys.readouterr().err


def test_a_metric_that_only_some_cells_have_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    name = "first_try_by_class.constrained"
    assert main([*COMPOSED, "--vary", "constrained=0,1", "--metric", name]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[4].split() == ["0.0", "-", "-"]
    assert lines[5].startswith("1.0          0.")


# The figure ----------------------------------------------------------------------------------------------------------


def rows_of(vary: dict[str, list[Any]], defined: Any = lambda point: True) -> list[dict[str, Any]]:
    points = [dict(zip(vary, values, strict=True)) for values in itertools.product(*vary.values())]
    return [
        {**point, "arm": arm, "metric": "m", "value": 1.0 if defined(point) else None, "lo": 0.5, "hi": 1.5}
        for point in points
        for arm in ("A1", "MINE", "A2D")
    ]


def drawn(vary: dict[str, list[Any]], **options: Any) -> Any:
    figure = sweep_figure(rows_of(vary, **options), vary=vary, metric="m", title="title")
    to_bytes(figure)
    return figure


def extents(figure: Any) -> list[Any]:
    """Where the texts stand that must not touch each other: the title, and the axes' labels and titles."""
    texts = [figure._suptitle]
    for axis in figure.axes:
        texts += [axis.yaxis.label, axis.xaxis.label, axis.title, axis._left_title]
    return [text.get_window_extent() for text in texts if text.get_text()]


@pytest.mark.parametrize(
    "vary",
    [
        {"model": ["/a/long/way/down/to/the/file/that/holds/the/model.toml", "gpt-5-mini"], "seed": [1, 2, 3]},
        {"model": ["/a/long/way/down/to/the/file/that/holds/the/model.toml", "a-model-of-a-very-long-name-indeed"]},
        {"drift": [0.0, 0.1], "tables": [1, 2], "p_apply": [0.5, 1.0], "benign": [0.0, 1.0]},
    ],
)
def test_no_text_of_a_figure_lies_on_another_or_leaves_the_page(vary: dict[str, list[Any]]) -> None:
    rows = [{**row, "metric": "eviction_precision"} for row in rows_of(vary)]
    figure = sweep_figure(rows, vary=vary, metric="eviction_precision", title="what is varied, and what is not " * 2)
    to_bytes(figure)
    figure.draw_without_rendering()  # as large as the page again
    boxes = extents(figure)
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other)
    for box in boxes:
        assert -3 <= box.x0 < box.x1 <= figure.bbox.x1 + 3  # dots, of a hundred to the inch
        assert -3 <= box.y0 < box.y1 <= figure.bbox.y1 + 3


def test_one_value_is_a_name_on_the_axis_and_whole_numbers_have_whole_ticks() -> None:
    (axis,) = drawn({"drift": [0.1]}).axes
    assert [label.get_text() for label in axis.get_xticklabels()] == ["0.1"]
    (axis,) = drawn({"tables": [1, 2]}).axes
    assert {tick % 1 for tick in axis.get_xticks()} == {0.0}


def test_an_arm_looks_the_same_in_every_panel_and_is_in_the_legend_wherever_it_is_defined() -> None:
    for along in ({"seed": [1, 2, 3]}, {"model": ["a", "b", "c"]}):
        figure = drawn({**along, "level": ["L0", "L6"]}, defined=lambda point: point["level"] == "L6")
        assert [text.get_text() for text in figure.legends[0].get_texts()] == ["A1", "MINE", "A2D"]
        colours = [[bars[0].get_color() for bars in axis.containers] for axis in figure.axes]
        assert colours[0] == colours[1]


def test_panels_of_two_parameters_have_a_column_for_each_value_of_the_last() -> None:
    figure = drawn({"drift": [0.0, 0.1, 0.2, 0.3], "tables": [1, 2, 6], "p_apply": [0.3, 0.6, 0.9]})
    titles = [axis.get_title(loc="left") or axis.get_title() for axis in figure.axes]
    assert titles[:4] == [
        "tables 1, p_apply 0.3",
        "tables 1, p_apply 0.6",
        "tables 1, p_apply 0.9",
        "tables 2, p_apply 0.3",
    ]
    assert figure.axes[0].get_gridspec().ncols == 3
