"""A simulated run recorded as a trace and tallied again: every count of the engine comes back."""

import json
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from invsim.cli import main
from invsim.client.arms import Arm, get_arm
from invsim.client.memory import Entry, Slot
from invsim.client.planners import Action, ComplianceModel, Injected, NoCall, Situation
from invsim.client.planners.models import load_model
from invsim.errors import InputError
from invsim.experiment import run
from invsim.record import Recorder, conditions, exchange_to_call
from invsim.sim.engine import simulate_block, unheard
from invsim.sim.exchange import Exchange, Watcher
from invsim.sim.plan import Plan, Task, compile_plan
from invsim.sim.result import Block
from invsim.sim.scenario import load_scenario
from invsim.traces.judging import judge_first
from invsim.traces.read import read_tally
from invsim.traces.schema import Call, Op
from invsim.traces.tally import Tally, tally
from invsim.traces.trials import answer_of
from invsim.traces.writing import write_calls
from invsim.world.domain import load_domain
from invsim.world.wire import CacheHint, Level, Request, Response, Shape, Suggestion

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


# One row -------------------------------------------------------------------------------------------------------------


class Watched(Recorder):
    """Keeps the exchanges beside their rows."""

    def __init__(self, plan: Plan, model: str) -> None:
        self.pairs: list[tuple[Exchange, Call]] = []
        super().__init__(plan, model=model, arm="A1", write=lambda call: None)

    def __call__(self, exchange: Exchange) -> None:
        self.pairs.append((exchange, self.call(exchange)))


@pytest.fixture(scope="module")
def pairs() -> list[tuple[Exchange, Call]]:
    """Attempts of an append-only memory, in which stale and valid fixes stand side by side."""
    plan = compile_plan(load_scenario("payments"))
    watched = Watched(plan, "m")
    for first, name in enumerate(("gpt-5-mini", "claude-haiku-4-5")):
        model = load_model(name)
        simulate_block(plan, arm=get_arm("A1"), model=model, seed=5, first=20 * first, count=20, watch=watched)
    return watched.pairs


def test_what_the_planner_did_first_can_be_told_from_the_row(pairs: list[tuple[Exchange, Call]]) -> None:
    """A fix is applied just when the planner applied the newest of its kind, and nothing is when it ignored them."""
    met: Counter[tuple[Injected, Action]] = Counter()
    for exchange, call in pairs:
        if exchange.attempt != 1 or not exchange.entries or not isinstance(exchange.action, Action):
            continue
        if exchange.action is Action.SOLVE:  # may come to the same request
            continue
        applied = [judge_first(fix, answer_of(call)) == "applied" for fix in call.injected]
        kind = {Action.APPLY: True, Action.APPLY_STALE: False}.get(exchange.action)
        newest = max((at for at, valid in enumerate(exchange.valid) if valid is kind), default=None)
        assert applied == [at == newest for at in range(len(exchange.entries))]
        assert tuple(fix.valid for fix in call.injected) == exchange.valid
        met[exchange.injected, exchange.action] += 1
    assert {(Injected.VALID, Action.APPLY), (Injected.STALE, Action.APPLY_STALE)} <= met.keys()
    assert {action for injected, action in met if injected is Injected.CONFLICT} >= {Action.APPLY, Action.APPLY_STALE}


def test_an_episode_has_an_id_of_its_own_and_shares_its_task(pairs: list[tuple[Exchange, Call]]) -> None:
    episodes = {(exchange.stream, exchange.episode) for exchange, _ in pairs}
    assert len({call.episode_id for _, call in pairs}) == len(episodes)
    tasks = {call.task_id for _, call in pairs}
    assert len(tasks) == len({exchange.task.name for exchange, _ in pairs})
    assert {"governed/plan_partner_growth", "funding/acme_pm_visa_debit", "none/N"} <= tasks


def test_names_cannot_run_into_each_other() -> None:
    plan = compile_plan(load_scenario("payments"))
    exchange = attempt(Response(ok=True))
    ids = {
        Recorder(plan, model=model, arm=arm, write=print).call(exchange).episode_id
        for model, arm in (("a/b", "c"), ("a", "b/c"))
    }
    assert len(ids) == 2


def test_the_condition_of_a_conditional_rewrite_is_told(pairs: list[tuple[Exchange, Call]]) -> None:
    told = {op.when for _, call in pairs if call.constraint == "funding" for op in call.hint}
    assert told == {'token_funding_map[payment_method_token].funding == "debit"'} or None not in told
    fixes = {op.when for _, call in pairs if call.constraint == "funding" for fix in call.injected for op in fix.ops}
    assert fixes == told
    assert {op.when for _, call in pairs if call.constraint == "governed" for op in call.hint} == {None}


SENT = Request({"a": 1})


def attempt(response: Response, *, request: Request | None = SENT, last: bool = True) -> Exchange:
    task = Task("t", "c", Slot("F", "k"), Shape.ADD, Request({"a": 1, "b": 2}))
    entry = Entry(Slot("F", "k"), '{"b":3,"c":4}', {"a": 1, "b": 3, "c": 4}, "table", {})
    return Exchange(
        7, 3, 1, 0, task, Injected.STALE, (entry,), (False,), Action.APPLY_STALE, request, response, last
    )  # fmt: skip


def test_a_row_tells_what_the_exchange_does() -> None:
    suggestion = Suggestion("F", {"a": 5, "c/d": 6}, CacheHint.CACHEABLE, "table")
    call = exchange_to_call(attempt(Response(ok=False, error="no", suggestions=(suggestion,))), when={"F": "x"})
    assert (call.episode_id, call.task_id, call.step, call.outcome, call.error_source) == (
        "7/3", "c/k", 1, "error", "flag",
    )  # fmt: skip
    assert call.hint == (Op("replace", "/a", 5, "x"), Op("add", "/c~1d", 6, "x"))
    (fix,) = call.injected
    assert (fix.fix_id, fix.valid) == ('F/k/{"b":3,"c":4}', False)
    assert fix.ops == (Op("replace", "/b", 3, "x"), Op("add", "/c", 4, "x"))  # "a" is in the task already
    assert call.response == {
        "success": False,
        "error": "no",
        "recovery_feedback": {"suggestions": [suggestion.to_dict()]},
    }
    assert call.warnings == ("exhausted",)


def test_fields_of_a_live_run_stand_in_the_row_as_given() -> None:
    extra = {"model": "served", "usage_id": "u", "t_start": 5, "transport_retries": 2, "request_raw": "{", "step": 9}
    call = exchange_to_call(attempt(Response(ok=True), last=True), **extra)
    assert {name: getattr(call, name) for name in extra} == extra
    assert (call.outcome, call.warnings) == ("ok", ())


@pytest.mark.parametrize(
    ("reason", "parse_status", "finish_reason"), [("refusal", "ok", "refusal"), ("not JSON", "invalid", None)]
)
def test_an_answer_without_a_call_is_a_row_too(reason: str, parse_status: str, finish_reason: str | None) -> None:
    call = exchange_to_call(attempt(unheard(NoCall(reason)), request=None, last=False))
    assert (call.outcome, call.request, call.response) == ("not_executed", None, None)
    assert (call.parse_status, call.finish_reason, call.warnings) == (
        parse_status,
        finish_reason,
        (f"no-call: {reason}",),
    )


class Silent(ComplianceModel):
    """Refuses to retry."""

    name = "silent"

    def decide(self, situation: Situation, u: float) -> Action | Request | NoCall:
        return Action.IGNORE if situation.attempt == 1 else NoCall("refusal")


def test_a_refusal_is_what_became_of_the_hint_before_it() -> None:
    plan = compile_plan(load_scenario("payments"))
    calls, block = record(plan, "A0", Silent())
    found, size = tally(calls)
    errors = int((block.first_try == 0).sum())
    assert size.errors == errors
    assert dict(found.trials.group_by("result").agg(pl.col("n").sum()).iter_rows()) == {"refused": errors}
    assert set(found.episodes.filter(first_ok=False)["ended"]) == {"exhausted"}


def test_a_condition_without_tests_is_named_after_its_family() -> None:
    policies = load_domain("recipes").policies
    named = conditions(policies)
    assert named.keys() == {policy.type for policy in policies if policy.shape is Shape.CONDITIONAL}
    assert all(named.values())


# Whole runs ----------------------------------------------------------------------------------------------------------


def test_a_watched_run_is_the_same_run_and_skips_arms_not_asked_for() -> None:
    plan, model = compile_plan(load_scenario("payments")), load_model("gpt-5-mini")
    arms = [get_arm("A2"), get_arm("A2D")]
    heard: Counter[str] = Counter()

    def watch(arm: Arm) -> Watcher:
        return Recorder(plan, model=model.name, arm=arm.name, write=lambda call: heard.update([call.arm or ""]))

    watched = run(plan, model=model, arms=arms, replications=20, watch=watch)
    assert watched.engine == "simpy"
    assert watched == run(plan, model=model, arms=arms, replications=20, engine="simpy")
    assert heard.keys() == {"A2", "A2D"}
    episodes = 20 * len(plan.episodes)
    assert {arm: heard[arm] - episodes for arm in heard} == {
        arm: pytest.approx(20 * watched[arm].metrics["retries"].value) for arm in heard
    }
    for engine in ("exact", "vector"):
        with pytest.raises(InputError, match="simpy"):
            run(plan, model=model, arms=arms, engine=engine, watch=watch)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_the_command_line_records_every_model_and_arm(
    suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "new" / f"x{suffix}"
    args = ["--model", "gpt-5-mini,claude-sonnet-5", "--arms", "A0,A1,A2D", "--level", "L1", "--replications", "4"]
    assert main(["run", "payments", *args, "--trace", str(trace), "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    found, (report,) = read_tally([trace], strict=True)
    plan = compile_plan(load_scenario("payments"))
    assert report.episodes == 2 * 3 * 4 * len(plan.episodes)
    for result in results:
        mine = found.episodes.filter(model=result["model"])
        retries = mine.select(pl.col("retries").dot("n")).item()
        assert retries == pytest.approx(sum(4 * arm["retries"]["value"] for arm in result["arms"]))


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--trace", "x.csv"], ".jsonl or .parquet"),
        (["--trace", "x.jsonl", "--engine", "exact"], "simpy"),
        (["--trace", "x.jsonl", "--engine", "vector"], "simpy"),
        (["--trace", "a-folder.jsonl"], "is a folder"),
    ],
)
def test_a_trace_that_cannot_be_is_refused(
    args: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-folder.jsonl").mkdir()
    assert main(["run", "payments", "--replications", "2", *args]) == 2
    error = capsys.readouterr().err
    assert error.startswith("invsim: --trace: ")
    assert says in error
