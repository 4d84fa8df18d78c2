"""A preflight finds planners out whose compliance is known, with tens of calls, and says whether memory pays."""

import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from random import Random
from typing import Any

import pytest
from scripted_model import Asked, Reply, always, amended, never, serving, suggested, task_of, without_memory

from invsim.cli import main
from invsim.client.planners import load_model
from invsim.client.prompt import MERGE
from invsim.live.cases import case
from invsim.traces.schema import Call
from invsim.world.wire import Shape

Capsys = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def preflight(script: Callable[[Asked], Reply], out: Path, capsys: Capsys, *args: str) -> dict[str, Any]:
    """The JSON of a preflight, and as "text" what the same command prints for people."""
    with serving(script) as server:
        command = [
            "preflight", "--provider", "openai", "--model", "m", "--base-url", server.openai_url, "--out", str(out),
            "--arms", "A2D", *args,
        ]  # fmt: skip
        assert main([*command, "--json"]) == 0
        data = json.loads(capsys.readouterr().out)
        assert data == json.loads((out / "preflight.json").read_text(encoding="utf-8"))
        assert data["calls_new"] == len(server.log)
        assert main(command) == 0  # again, for people: nothing is paid twice
        data["text"] = capsys.readouterr().out
        assert len(server.log) == data["calls_new"]
    return dict(data)


def cells(data: dict[str, Any], level: str, injected: str = "valid") -> list[dict[str, Any]]:
    return [each for each in data["cells"] if (each["consumption"], each["injected"]) == (level, injected)]


def applies(told: Callable[[Asked], bool]) -> Callable[[Asked], Reply]:
    return lambda asked: always(asked) if told(asked) else never(asked)


@pytest.mark.parametrize("shape", Shape)
def test_cases_hold_a_fix_that_is_right_of_every_row_in_a_drawn_order(shape: Shape) -> None:
    found = [case(shape, number, seed=3) for number in range(40)]
    for each in found:
        assert each.task.shape is shape
        assert not each.world.respond(each.task.request).ok
        assert each.world.respond(each.task.with_fix(each.entry)).ok
        ((policy, _),) = each.world.violations(each.task.request.fields)
        assert policy.type == each.entry.slot.family
    assert len({str(each.task.request) for each in found}) > 35
    assert len({each.task.slot for each in found}) == {Shape.ADD: 3, Shape.REWRITE: 7, Shape.CONDITIONAL: 4}[shape]
    assert [str(each.task.request) for each in found] == [
        str(case(shape, number, seed=3).task.request) for number in range(40)
    ]


def test_a_planner_that_always_applies(tmp_path: Path, capsys: Capsys) -> None:
    data = preflight(always, tmp_path, capsys, "--consumption", "L2,L3")
    for each in cells(data, "L3"):
        assert (each["applied"], each["carried"], each["of"], each["decided"]) == (7, 7, 7, "yes")
        assert each["interval"][0] > 0.5
    # At L2 the fix stands beside the task, and this planner takes the task as it stands.
    assert {each["decided"] for each in cells(data, "L2")} == {"no"}
    assert {(each["applied"], each["of"]) for each in cells(data, "L3", "nothing")} == {(0, 7)}
    assert (data["recovered_at_retry"], data["exhausted"]) == ([6, 0, 0, 0], 0)
    assert data["calls_new"] == 9 * 7 + 6
    assert data["identity"] == "same"
    a2d = data["predictions"][-1]
    assert a2d["arm"] == "A2D"
    assert a2d["probability_that_it_pays"] > 0.99
    assert a2d["token_saving"]["interval"][0] > 0.1
    assert "A2D: memory pays" in data["text"]


def test_a_planner_that_never_applies(tmp_path: Path, capsys: Capsys) -> None:
    data = preflight(never, tmp_path, capsys, "--consumption", "L3", "--shapes", "add-a-field,conditional-rewrite")
    for each in cells(data, "L3"):
        assert (each["applied"], each["of"], each["decided"]) == (0, 7, "no")
    a2d = data["predictions"][-1]
    always_saves = 0.3
    assert a2d["token_saving"]["mean"] < always_saves / 2
    assert a2d["compliance_given_valid"]["interval"][1] < 0.5
    assert "does not" in data["text"]


def test_a_planner_that_tosses_a_coin_stays_undecided_up_to_the_most_cases(tmp_path: Path, capsys: Capsys) -> None:
    coin = Random(11)

    def tosses(asked: Asked) -> Reply:
        if not amended(asked):
            return always(asked)
        return applies(lambda _: coin.random() < 0.5)(asked)

    data = preflight(tosses, tmp_path, capsys, "--consumption", "L3", "--shapes", "add-a-field", "--max-calls", "200")
    (cell,) = cells(data, "L3")
    assert cell["decided"] == "undecided"
    assert cell["of"] == 30
    lo, hi = cell["interval"]
    assert lo < 0.5 < hi
    a2d = data["predictions"][-1]["compliance_given_valid"]
    assert a2d["interval"][1] - a2d["interval"][0] > 0.2


def test_a_model_that_needs_the_sentence_is_told_from_one_that_does_not(tmp_path: Path, capsys: Capsys) -> None:
    def obeys(asked: Asked) -> Reply:
        """Takes a suggestion's parameters where it was told to."""
        fields = task_of(asked)
        block = asked.messages[3]["content"]
        if MERGE in asked.messages[0]["content"] and "Suggestion kept" in block:
            fields |= json.loads(block.rpartition("<data>")[2].removesuffix("</data>"))["parameters"]
        return Reply(json.dumps(fields | suggested(asked)))

    data = preflight(obeys, tmp_path, capsys, "--shapes", "rewrite-a-value")
    found = {level: cells(data, level)[0]["decided"] for level in ("none", "L2", "L3")}
    assert found == {"none": "no", "L2": "yes", "L3": "yes"}


def test_a_request_that_is_accepted_and_is_not_the_tasks_has_strayed(tmp_path: Path, capsys: Capsys) -> None:
    data = preflight(lambda _: Reply('{"plan": "nobody"}'), tmp_path, capsys, "--consumption", "L3")
    for each in data["cells"]:
        assert (each["applied"], each["strayed"], each["decided"]) == (0, 7, "no")
    assert (data["recovered_at_retry"], data["exhausted"]) == ([0, 0, 0, 0], 0)


def test_another_model_served_is_a_warning(tmp_path: Path, capsys: Capsys) -> None:
    def other(asked: Asked) -> Reply:
        reply = always(asked)
        reply.model = "m" if asked.number else "cheaper"
        return reply

    args = ["--consumption", "L3", "--shapes", "add-a-field"]
    data = preflight(other, tmp_path, capsys, *args)
    assert data["identity"] == "other"
    assert {"model": "cheaper", "as_requested": "other", "calls": 1} in data["served"]
    assert "warning: another model" in data["text"]


def test_a_cap_ends_it_early_and_what_is_known_is_told(tmp_path: Path, capsys: Capsys) -> None:
    data = preflight(always, tmp_path, capsys, "--max-calls", "5")
    assert data["calls_new"] == 5 == sum(each["of"] for each in data["cells"])
    assert "cap of 5 calls" in data["stopped"]
    assert data["predictions"][0]["probability_that_it_pays"] is not None


def test_without_one_answer_there_is_no_verdict_and_no_model_file(tmp_path: Path, capsys: Capsys) -> None:
    preflight(always, tmp_path, capsys, "--shapes", "add-a-field", "--consumption", "L3")
    before = (tmp_path / "model.toml").read_bytes()
    data = preflight(always, tmp_path, capsys, "--max-calls", "0", "--temperature", "0.5")
    assert data["predictions"] == []
    assert "nothing was measured: no verdict" in data["text"]
    assert (tmp_path / "model.toml").read_bytes() == before


def test_the_model_file_is_a_model_with_its_uncertainty_and_the_trace_a_trace(tmp_path: Path, capsys: Capsys) -> None:
    import msgspec

    data = preflight(always, tmp_path, capsys, "--consumption", "L3", "--shapes", "add-a-field")
    model = load_model(str(tmp_path / "model.toml"))
    assert model.name == "m (preflight, L3)"
    assert model.shapes["add-a-field"].p_apply == pytest.approx(7.5 / 8)
    assert model.behaviour("x", "rewrite-a-value").p_apply == 0.5  # not asked for: unknown
    assert model.uncertainty["shape", "add-a-field", "p_apply"].mean == pytest.approx(7.5 / 8)  # type: ignore[union-attr]
    assert main(["run", "payments", "--model", str(tmp_path / "model.toml"), "--arms", "A2D", "--json"]) == 0
    capsys.readouterr()
    calls = [msgspec.json.decode(line, type=Call) for line in (tmp_path / "trace.jsonl").read_bytes().splitlines()]
    assert len(calls) == data["calls_new"]
    shown = [call for call in calls if call.injected]
    assert len(shown) == 7
    assert all(call.injected[0].valid and call.outcome == "ok" for call in shown)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("--shapes other --dry-run", "--shapes: unknown hint shape 'other'"),
        ("--shapes , --dry-run", "--shapes: names at least one"),
        ("--consumption L1 --dry-run", "--consumption: unknown consumption level 'L1'"),
        ("--seed -1 --dry-run", "--seed: must be 0 or more"),
        ("", "--out: a folder is needed"),
        ("--out x", "no key: set OPENAI_API_KEY"),
    ],
)
def test_a_mistake_is_one_line(
    args: str, says: str, tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["preflight", "--provider", "openai", "--model", "m", *args.split()]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1


def test_a_scenario_that_cannot_be_predicted_is_refused_before_anything_is_paid(tmp_path: Path, capsys: Capsys) -> None:
    template = resources.files("invsim.sim.scenarios").joinpath("template.toml.txt").read_text(encoding="utf-8")
    (tmp_path / "middle.toml").write_text(template.replace("after_episode = 5", "at_tick = 51"), encoding="utf-8")
    with serving(always) as server:
        command = [
            "preflight", "--provider", "openai", "--model", "m", "--base-url", server.openai_url, "--out",
            str(tmp_path / "out"), "--scenario", str(tmp_path / "middle.toml"),
        ]  # fmt: skip
        assert main(command) == 2
        assert server.log == []
    assert capsys.readouterr().err.count("\n") == 1


def test_a_spoilt_amendment_is_what_never_sends() -> None:
    block = 'Task: <data>{"a": 1, "b": 2}</data>\nAmended from memory already: <data>["b"]</data>'
    asked = Asked(0, "", {"messages": [{}, {}, {}, {"content": block}]}, {})
    assert without_memory(asked) == {"a": 1, "b": "spoilt"}
