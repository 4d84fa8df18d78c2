"""From a recorded run to a fitted model: every count is the engine's own."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from invsim.cli import main
from invsim.client.arms import get_arm
from invsim.client.planners import Injected, load_model
from invsim.sim.engine import simulate_block
from invsim.sim.plan import Plan, compile_plan
from invsim.sim.scenario import load_scenario

STREAMS = 25
Capsys = pytest.CaptureFixture[str]


@cache
def plan() -> Plan:
    return compile_plan(load_scenario("payments"))


def recorded(folder: Path, model: str, arm: str, capsys: Capsys) -> str:
    path = str(folder / f"{model}-{arm}.jsonl")
    args = ["--model", model, "--arms", arm, "--replications", str(STREAMS), "--trace", path]
    assert main(["run", "payments", *args]) == 0
    capsys.readouterr()
    return path


def fitted(capsys: Capsys, *args: str) -> dict[str, Any]:
    assert main(["fit", *args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("model", "arm"), [("gemini-3.5-flash", "A1"), ("deepseek-v4-flash", "A2D")])
def test_a_fit_of_a_recorded_run_counts_what_the_engine_counts(
    model: str, arm: str, tmp_path: Path, capsys: Capsys
) -> None:
    found = fitted(capsys, recorded(tmp_path, model, arm, capsys), "--by", "model,constraint")
    block = simulate_block(plan(), arm=get_arm(arm), model=load_model(model), seed=1, first=0, count=STREAMS)
    attempts, injected = block.episode("attempts"), block.episode("injected")
    completed, first = block.episode("completed") == 1, block.first_try
    rows = {(row["constraint"], row["parameter"]): row for row in found["parameters"]}
    cells = {(row["constraint"], row["kind"]): row for row in found["cells"]}
    for at, constraint in enumerate(plan().classes):
        mine = np.broadcast_to(plan().class_index == at, first.shape)
        for state, row in (
            (Injected.NOTHING, rows[constraint, "p_unaided"]),
            (Injected.CONFLICT, rows[constraint, "p_fresh"]),
            (Injected.VALID, cells[constraint, "first_attempt"]),
        ):
            here = mine & (injected == state)
            assert (row["applied"], row["trials"]) == (int(first[here].sum()), int(here.sum())), (constraint, state)
        for name, without in (("retry", True), ("retry_injected", False)):
            failed = mine & ~first & ((injected == Injected.NOTHING) == without)
            counts = [int((failed & completed & (attempts == k)).sum()) for k in (2, 3, 4, 5)]
            row = rows[constraint, name]
            assert (row["counts"], row["exhausted"]) == (counts, int((failed & ~completed).sum())), (constraint, name)


def test_a_recorded_run_by_shape_finds_the_profile_and_runs_again(tmp_path: Path, capsys: Capsys) -> None:
    path = recorded(tmp_path, "claude-sonnet-4-6", "A1", capsys)
    found = fitted(capsys, path, "--out", str(tmp_path / "again.toml"))
    assert found["files"][0]["errors"] > 0
    assert found["files"][0]["skipped"] == {}
    parameters = {(row["shape"], row["parameter"]): row for row in found["parameters"]}
    for (shape, name), row in parameters.items():
        if name == "p_unaided":
            assert (row["status"], row["rate"]) == ("ok", 0.0), shape
    stale = parameters["add-a-field", "p_stale"]
    assert stale["trials"] == STREAMS  # in each stream the first episode after the rotation has the stale fix alone
    assert 0 < stale["applied"] < STREAMS
    model = load_model(str(tmp_path / "again.toml"))
    assert model.name == "claude-sonnet-4-6-fitted"
    args = ["run", "payments", "--model", str(tmp_path / "again.toml"), "--draws", "20", "--arms", "A1,A2D", "--json"]
    assert main(args) == 0
    again = json.loads(capsys.readouterr().out)
    assert main(["run", "payments", "--model", "claude-sonnet-4-6", "--arms", "A1,A2D", "--json"]) == 0
    truth = json.loads(capsys.readouterr().out)
    for mine, true in zip(again["arms"], truth["arms"], strict=True):
        for name in ("first_try_eligible", "token_saving"):
            assert abs(mine[name]["value"] - true[name]["value"]) < 4 * mine[name]["fit_se"], (mine["arm"], name)


def test_traces_and_typed_counts_are_fitted_together(tmp_path: Path, capsys: Capsys) -> None:
    counts = tmp_path / "counts.csv"
    counts.write_text("model,shape,kind,applied,trials\nmine,add-a-field,first_attempt,41,60\n", encoding="utf-8")
    found = fitted(capsys, str(counts), recorded(tmp_path, "compliant", "A2D", capsys))
    assert [each["format"] for each in found["files"]] == ["counts", "native"]
    assert {cell["model"] for cell in found["cells"]} == {"mine", "compliant"}


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_arms_that_meet_the_same_random_numbers_tell_no_more_than_one_of_them(
    suffix: str, tmp_path: Path, capsys: Capsys
) -> None:
    """After the rotation both arms meet the stale fix alone, in the same episodes, with the same draws."""
    path = str(tmp_path / f"both{suffix}")
    run = ["run", "payments", "--model", "claude-sonnet-4-6", "--replications", str(STREAMS), "--trace"]
    assert main([*run, path, "--arms", "A1,A2D"]) == 0
    capsys.readouterr()

    def stale(*args: str) -> list[dict[str, Any]]:
        rows = fitted(capsys, *args)["parameters"]
        return [row for row in rows if row["parameter"] == "p_stale" and row["trials"]]

    (together,) = stale(path, "--by", "model,constraint")
    first, second = stale(path, "--by", "model,constraint,arm")
    (alone,) = stale(recorded(tmp_path, "claude-sonnet-4-6", "A1", capsys), "--by", "model,constraint")
    assert (together["trials"], together["worth"]) == (2 * STREAMS, STREAMS)
    assert first["applied"] == second["applied"] == alone["applied"]
    for name in ("lo", "hi", "alpha", "beta", "rate"):
        assert together[name] == pytest.approx(alone[name])
    assert main(["fit", path]) == 0
    assert "note: 2 arms of a simulation meet the same random numbers; trials that they" in capsys.readouterr().out


def test_a_trace_without_a_hint_leaves_nothing_to_fit(tmp_path: Path, capsys: Capsys) -> None:
    rows = [
        {"episode_id": "e", "step": 1, "tool": "pay", "outcome": "error", "error_source": "flag", "request": {"a": 1}},
        {"episode_id": "e", "step": 2, "tool": "pay", "outcome": "ok", "request": {"a": 2}},
    ]
    path = tmp_path / "plain.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert main(["fit", str(path)]) == 2
    error = capsys.readouterr().err
    assert "there is no trial to fit: all were left out: " in error
    assert "text hint 1; try --by model, which needs no shape" in error
    assert error.count("\n") == 1
    (row,) = [row for row in fitted(capsys, str(path), "--by", "model")["parameters"] if row["parameter"] == "retry"]
    assert row["counts"] == [1, 0, 0, 0]
    assert main(["fit", str(tmp_path / "missing.jsonl")]) == 2
    assert "missing.jsonl: unreadable-file: cannot be read: No such file" in capsys.readouterr().err
