"""A stream with a scripted model in the loop: counts against the engines, caps, keys, time, and the command."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from scripted_model import Asked, Reply, always, amended, never, serving

from invsim.cli import main
from invsim.client.arms import A0, get_arm
from invsim.client.planners import load_model
from invsim.client.prompt import Consumption
from invsim.live.ask import Asker, open_asker
from invsim.live.budget import CapReachedError, Caps
from invsim.live.completion import Settings
from invsim.live.run import LiveResult, run_live
from invsim.sim.engine import simulate_block
from invsim.sim.plan import Plan, compile_plan
from invsim.sim.scenario import load_scenario
from invsim.traces.schema import Call

KEY = "sk-planted-7f3a9c1e55d2"
PLAN = compile_plan(load_scenario("payments"))
NO_CAPS = Caps()
Capsys = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, KEY)
    for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@contextmanager
def asking(url: str, folder: Path, caps: Caps = NO_CAPS, **settings: Any) -> Iterator[Asker]:
    chosen = Settings(**{"provider": "openai", "model": "m", "base_url": url, "max_retries": 0, **settings})
    with open_asker(chosen, folder / "calls.jsonl", caps, None) as asker:
        yield asker


def play(
    script: Callable[[Asked], Reply], folder: Path, plan: Plan, arms: str = "A0 A2D", streams: int = 1,
    level: Consumption = Consumption.L3, caps: Caps = NO_CAPS, tick_seconds: float | None = None,
) -> LiveResult:  # fmt: skip
    chosen = [get_arm(name) for name in arms.split()]
    with serving(script) as server, asking(server.openai_url, folder, caps) as asker:
        return run_live(
            plan, asker=asker, arms=chosen, streams=streams, level=level, folder=folder, tick_seconds=tick_seconds
        )


def trace(folder: Path) -> list[Call]:
    import msgspec

    return [msgspec.json.decode(line, type=Call) for line in (folder / "trace.jsonl").read_bytes().splitlines()]


def test_a_model_that_always_applies_counts_as_the_compliant_reference(tmp_path: Path) -> None:
    found = play(always, tmp_path, PLAN, "A0 A1 A2 A2D")
    for tally in found.arms:
        arm = get_arm(tally.arm)
        model = load_model("compliant-stale")
        block = simulate_block(PLAN, arm=arm, model=model, seed=1, first=0, count=1)
        if arm.name != "A1":  # with two versions before it this planner takes the older one
            assert tally.rates["first_try"].hits == block.first_try.sum(), arm.name
            assert tally.counts["attempts"] == block.episode("attempts").sum()
        assert tally.counts["evictions"] == {"A0": 0, "A1": 0, "A2": 4, "A2D": 1}[arm.name]
        assert (tally.counts["contract_failures"], tally.counts["exhausted"]) == (0, 0)
        assert tally.counts["completed"] == 36
    calls = trace(tmp_path)
    assert len(calls) == sum(each.counts["attempts"] for each in found.arms) == found.asker.fresh
    assert {call.outcome for call in calls} == {"ok", "error"}
    injected = [call for call in calls if call.injected]
    assert all(call.injected[0].valid for call in injected if call.outcome == "ok")
    assert all(call.input_tokens == 100 and call.model == "m" for call in calls)
    hinted = [(call.constraint, op.when) for call in calls for op in call.hint]
    assert {constraint for constraint, when in hinted if when is not None} == {"funding"}
    assert {constraint for constraint, when in hinted if when is None} == {"governed", "control"}
    saving = found.token_saving(found.arms[3])
    assert saving is not None
    assert saving["value"] == 1 - found.arms[3].counts["attempts"] / found.arms[0].counts["attempts"]


def test_levels_change_the_prompt_and_not_what_the_server_says(tmp_path: Path) -> None:
    bodies = set()
    for level in Consumption:
        play(always, tmp_path / level, PLAN.first(4), level=level)
        bodies.add(json.dumps([call.response for call in trace(tmp_path / level) if call.arm == "A0"]))
    assert len(bodies) == 1


def test_what_is_no_request_spends_an_attempt_and_is_told_to_the_model(tmp_path: Path) -> None:
    def stammers(asked: Asked) -> Reply:
        return Reply("no idea", finish="stop") if len(asked.messages) == 4 else always(asked)

    found = play(stammers, tmp_path, PLAN.first(4), "A0")
    (tally,) = found.arms
    assert tally.counts["invalid"] == 4
    assert tally.rates["first_try"] == (0, 4)
    first = trace(tmp_path)[0]
    assert (first.outcome, first.parse_status, first.request, first.request_raw) == (
        "not_executed", "invalid", None, "no idea",
    )  # fmt: skip


def test_what_is_accepted_and_is_not_the_task_is_counted_apart(tmp_path: Path) -> None:
    def elsewhere(asked: Asked) -> Reply:
        return Reply('{"plan": "nobody", "amount": 49.0}')

    (tally,) = play(elsewhere, tmp_path, PLAN.first(4), "A0").arms
    assert (tally.counts["completed"], tally.counts["strayed"]) == (4, 4)
    (honest,) = play(always, tmp_path / "honest", PLAN.first(12), "A2D").arms
    assert (honest.counts["completed"], honest.counts["strayed"]) == (12, 0)
    assert honest.to_dict()["applied_by_shape"] == honest.to_dict()["compliance_by_shape"]


def test_a_fix_that_is_applied_beside_a_blunder_is_applied_and_no_success(tmp_path: Path) -> None:
    def blunders(asked: Asked) -> Reply:
        fields = json.loads(always(asked).text)
        return Reply(json.dumps(fields | {"amount": 0.001})) if amended(asked) else always(asked)

    (tally,) = play(blunders, tmp_path, PLAN.first(12), "A2D").arms
    rates = tally.rates
    assert rates["applied:add-a-field"].hits == rates["applied:add-a-field"].of > 0
    assert rates["shape:add-a-field"].hits == 0


def test_a_refusal_is_counted_as_one_and_exhausts(tmp_path: Path) -> None:
    found = play(lambda _: Reply("I may not", finish="refusal"), tmp_path, PLAN.first(1), "A0")
    assert (found.arms[0].counts["refused"], found.arms[0].counts["exhausted"]) == (5, 1)
    assert {call.finish_reason for call in trace(tmp_path)} == {"refusal"}


@pytest.mark.parametrize("most", [0, 1, 7])
def test_a_cap_on_calls_holds_exactly(tmp_path: Path, most: int) -> None:
    logs = []

    def logged(asked: Asked) -> Reply:
        logs.append(asked)
        return always(asked)

    found = play(logged, tmp_path, PLAN.first(6), caps=Caps(calls=most))
    assert len(logs) == found.asker.budget.calls == most
    assert found.stopped is not None
    assert f"the cap of {most} calls is reached; to go on, give a larger --max-calls" in found.stopped


def test_a_cap_on_calls_counts_what_is_sent_again_and_what_failed(tmp_path: Path) -> None:
    def busy(asked: Asked) -> Reply:
        return Reply("busy", status=500, headers={"retry-after-ms": "1"})

    sent = 0
    with serving(busy) as server:
        for _ in range(4):  # an operator who tries again
            with asking(server.openai_url, tmp_path, Caps(calls=5), max_retries=2) as asker:
                run_live(PLAN, asker=asker, arms=[get_arm("A0")], streams=1, level=Consumption.L3, folder=tmp_path)
                sent = asker.budget.spent.calls
        assert len(server.log) == sent == 5
    assert isinstance(asker.stopped, CapReachedError)


def test_caps_on_tokens_and_money_are_never_exceeded(tmp_path: Path) -> None:
    with serving(always) as server:
        for name, caps in (("tokens", Caps(tokens=5000)), ("both", Caps(tokens=4000, calls=9))):
            with asking(server.openai_url, tmp_path / name, caps, max_tokens=64) as asker:
                found = run_live(PLAN, asker=asker, arms=[A0], streams=1, level=Consumption.L3, folder=tmp_path / name)
                assert found.stopped is not None
                assert 0 < asker.budget.tokens <= (caps.tokens or 0)


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    with serving(always) as server:
        spent = []
        for most in (3, 8, None):
            with asking(server.openai_url, tmp_path, Caps(calls=most)) as asker:
                run_live(
                    PLAN.first(6), asker=asker, arms=[A0, get_arm("A2D")], streams=2, level=Consumption.L3,
                    folder=tmp_path,
                )  # fmt: skip
                spent.append((asker.recalled, asker.fresh))
        assert spent[:2] == [(0, 3), (3, 5)]
        assert spent[2][0] == 8
        assert len(server.log) == sum(fresh for _, fresh in spent) == len(trace(tmp_path))


def test_a_provider_that_fails_stops_the_run_and_costs_no_attempt(tmp_path: Path) -> None:
    def dies(asked: Asked) -> Reply:
        return Reply(f"bad key {KEY}", status=401) if asked.number == 2 else always(asked)

    found = play(dies, tmp_path, PLAN.first(4), "A0")
    assert found.stopped is not None
    assert "stopped at arm A0, stream 0, episode 1, attempt 1" in found.stopped
    assert "status 401" in found.stopped
    assert len(trace(tmp_path)) == 2


def test_while_a_slow_model_thinks_the_code_rotates(tmp_path: Path) -> None:
    def slow(asked: Asked) -> Reply:
        reply = always(asked)
        reply.wait = 0.02
        return reply

    plan = PLAN.first(13)
    seen = {}
    # The rotation is at tick 120. An answer that takes sixty ticks or more meets it on the first or second call.
    for name, tick_seconds in (("simulated", None), ("wall", 0.02 / 60)):
        found = play(slow, tmp_path / name, plan, "A2D", tick_seconds=tick_seconds)
        assert found.arms[0].counts["completed"] == 13
        versions = [call.response["table_versions"]["active_csm_codes"] for call in trace(tmp_path / name)]
        seen[name] = sum(each == "1.0.0" for each in versions)
    assert seen["wall"] <= 1
    assert seen["simulated"] > 12


# Keys ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_a_planted_key_is_in_no_file_no_log_and_no_error(
    provider: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")

    def parrot(asked: Asked) -> Reply:
        """Sends the key back wherever it can."""
        assert KEY in json.dumps(asked.headers)
        match asked.number:
            case 0:
                return Reply(json.dumps({"plan": KEY, KEY: "x"}), model=f"m-{KEY}")
            case 1:
                return Reply(f"not JSON: {KEY}")
            case 2:
                return Reply(f"refused {KEY}", finish="refusal")
            case 3:
                return Reply(raw=f"<html>{KEY}</html>".encode())
            case _:
                return Reply(f"Incorrect API key provided: {KEY}", status=401)

    codes = []
    with serving(parrot) as server:
        command = [
            "live", "payments", "--provider", provider, "--model", "m", "--base-url", server.base_url(provider),
            "--episodes", "3", "--out", str(tmp_path / "out"),
        ]  # fmt: skip
        codes += [main(command), main([*command, "--json"])]
        preflight = ["preflight", *command[2:8], "--out", str(tmp_path / "pre"), "--arms", "A2D"]
        codes.append(main(preflight))
    shown = capfd.readouterr()
    assert codes == [1, 1, 1]
    assert "[key removed]" in (tmp_path / "out" / "calls.jsonl").read_text(encoding="utf-8")
    assert "status 401" in shown.err
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 6  # three of the run; a preflight without an answer writes no model
    for text in (shown.out, shown.err, caplog.text, *(path.read_text(encoding="utf-8") for path in files)):
        assert KEY not in text


# The command ---------------------------------------------------------------------------------------------------------


def test_the_command_prints_counts_with_intervals_and_writes_three_files(tmp_path: Path, capsys: Capsys) -> None:
    with serving(never) as server:
        command = [
            "live", "payments", "--provider", "openai", "--model", "m", "--base-url", server.openai_url,
            "--episodes", "6", "--seeds", "2", "--out", str(tmp_path), "--price-in", "1", "--price-out", "2",
        ]  # fmt: skip
        assert main(command) == 0
        shown = capsys.readouterr()
        assert "A2D" in shown.out
        assert "$0." in shown.out
        assert main([*command, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data == json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    governed = data["arms"][1]["compliance_given_valid"]
    assert governed["hits"] == 0 < governed["of"]
    assert governed["interval"][1] < 1
    assert data["spent"]["cost"] == pytest.approx((100 * 1 + 10 * 2) / 1e6 * data["calls_recalled"])
    assert data["arms"][1]["token_saving"]["streams"] == 2
    assert {path.name for path in tmp_path.iterdir()} == {"calls.jsonl", "trace.jsonl", "summary.json"}


def test_a_run_against_a_service_is_the_run_in_this_process(
    served: tuple[str, Any], tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INVSIM_ADMIN_TOKEN", "a-token-for-tests")
    with serving(always) as server:
        command = [
            "live", "payments", "--provider", "openai", "--model", "m", "--base-url", server.openai_url,
            "--episodes", "13", "--json", "--out",
        ]  # fmt: skip
        assert main([*command, str(tmp_path / "here")]) == 0
        here = json.loads(capsys.readouterr().out)
        assert main([*command, str(tmp_path / "there"), "--server", served[0]]) == 0
        there = json.loads(capsys.readouterr().out)
    for data in (here, there):
        for arm in data["arms"]:
            arm.pop("seconds_per_call")
    assert there == here
    assert here["arms"][1]["evictions"] == 1
    assert [call.response for call in trace(tmp_path / "there")] == [call.response for call in trace(tmp_path / "here")]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("--provider other --model m", "unknown provider 'other'"),
        ("--provider openai --model m", "--out: a folder is needed"),
        ("--provider openai --model m --episodes 99 --dry-run", "1 to the stream's 36 episodes"),
        ("--provider openai --model m --consumption L9 --dry-run", "unknown consumption level 'L9'"),
        ("--provider openai --model m --time later --dry-run", "--time: is simulated or wall"),
        ("--provider openai --model m --seeds 0 --dry-run", "--seeds: must be 1 or more"),
        ("--provider openai --model m --price-in 1 --dry-run", "both are given, or neither"),
        ("--provider openai --model m --max-cost 1 --out x", "no price for this model"),
        ("--provider openai --model m --max-calls -1 --out x", "--max-calls: a cap is 0 or more"),
    ],
)
def test_a_mistake_is_one_line(
    args: str, says: str, tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["live", "payments", *args.split()]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1


def test_a_dry_run_needs_no_key_and_bounds_what_a_run_takes(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    args = ["live", "payments", "--provider", "openai", "--model", "gpt-5-mini", "--episodes", "6"]
    assert main([*args, "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "Amended from memory already" in text
    assert "nothing was sent" in text
    assert main([*args, "--dry-run", "--json"]) == 0
    bound = json.loads(capsys.readouterr().out)
    found = play(lambda _: Reply("{}"), tmp_path, PLAN.first(6))
    assert found.asker.fresh <= bound["most_calls"]
    lines = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text(encoding="utf-8").splitlines()]
    assert (
        sum(each["most_input"] + each["most_output"] for each in lines if each["kind"] == "sent")
        <= bound["most_tokens"]
    )
