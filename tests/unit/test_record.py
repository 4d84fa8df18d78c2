"""A simulated run recorded as a trace and tallied again: every count of the engine comes back."""

from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from invsim.cli import main
from invsim.client.arms import get_arm
from invsim.client.memory import Entry, Slot
from invsim.client.planners import Action, ComplianceModel, Injected, NoCall, Situation
from invsim.client.planners.models import load_model
from invsim.experiment import run
from invsim.record import Recorder, conditions, exchange_to_call, operations
from invsim.sim.engine import simulate_block
from invsim.sim.exchange import Exchange
from invsim.sim.plan import Plan, Task, compile_plan
from invsim.sim.result import Block
from invsim.sim.scenario import load_scenario
from invsim.traces.read import read_tally
from invsim.traces.schema import Call, Op
from invsim.traces.tally import Tally, tally
from invsim.traces.trials import frames
from invsim.traces.writing import write_calls
from invsim.world.wire import Level, Request, Response, Shape

STREAMS = 12
Key = tuple[str, str, bool | None, bool, int, str]


def record(plan: Plan, arm: str, model: ComplianceModel) -> tuple[list[Call], Block]:
    calls: list[Call] = []
    watch = Recorder(plan, model=model.name, arm=arm, write=calls.append)
    block = simulate_block(plan, arm=get_arm(arm), model=model, seed=3, first=0, count=STREAMS, watch=watch)
    return calls, block


def expected(plan: Plan, block: Block) -> Counter[Key]:
    """Count the block's episodes as a tally keys them."""
    found: Counter[Key] = Counter()
    for stream in range(STREAMS):
        for episode, task in enumerate(plan.episodes):
            attempts = int(block.episode("attempts")[stream, episode])
            completed = bool(block.episode("completed")[stream, episode])
            injected = Injected(block.episode("injected")[stream, episode]).name.lower()
            first = None if task.slot is None else plan.first_occurrence[episode]
            ended = "completed" if completed else "exhausted"
            found[task.constraint, injected, first, bool(block.first_try[stream, episode]), attempts - 1, ended] += 1
    return found


def counted(found: Tally) -> Counter[Key]:
    names = ["constraint", "injected", "first_occurrence", "first_ok", "retries", "ended"]
    return Counter({row[:-1]: row[-1] for row in found.episodes.group_by(names).agg(pl.col("n").sum()).iter_rows()})


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize(
    ("scenario", "level", "arm", "model"),
    [
        ("payments", "L6", "A0", "claude-sonnet-4-6"),
        ("payments", "L6", "A1", "gpt-5-mini"),
        ("payments", "L1", "A2", "claude-haiku-4-5"),
        ("payments", "L4", "A2D", "claude-sonnet-5"),
        ("payments", "L0", "A2D", "claude-haiku-4-5"),
        ("rules", "L6", "A2DRC", "gpt-5-mini"),
        ("recipes", "L6", "A1", "claude-haiku-4-5"),
    ],
)
def test_a_run_comes_back_from_its_trace(
    scenario: str, level: str, arm: str, model: str, suffix: str, tmp_path: Path
) -> None:
    plan = compile_plan(load_scenario(scenario), level=Level.parse(level))
    calls, block = record(plan, arm, load_model(model))
    assert len(calls) == block.episode("attempts").sum()
    write_calls(tmp_path / f"x{suffix}", calls)
    found, (report,) = read_tally([tmp_path / f"x{suffix}"], strict=True)
    assert counted(found) == expected(plan, block)
    assert (report.episodes, report.calls) == (STREAMS * len(plan.episodes), len(calls))
    # Every error is a trial, and so is every fix that was injected.
    recoveries, first = (found.trials.filter(kind=kind) for kind in ("recovery", "first_attempt"))
    assert recoveries["n"].sum() == report.errors
    assert first["n"].sum() == sum(len(call.injected) for call in calls)
    assert set(recoveries["shape"]) <= ({"text"} if level == "L0" else {str(shape) for shape in Shape})
    # An attempt is a retry just when it follows an error; what follows the last allowed one is never known.
    assert report.retries == (block.episode("attempts") - 1).sum()
    exhausted = (block.episode("completed") == 0).sum()
    assert recoveries.filter(result="censored")["n"].sum() == exhausted
