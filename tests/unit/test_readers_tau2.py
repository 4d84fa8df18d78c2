"""tau2-bench results: the four shapes, every row of one, and what goes wrong."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

Read = Callable[..., tuple[list[Any], list[Any]]]


@pytest.fixture
def simulation(traces: Path) -> dict[str, Any]:
    return json.loads((traces / "tau2" / "bare.json").read_text())


@pytest.fixture
def read(tmp_path: Path, read_trace: Read) -> Read:
    def read(value: Any) -> tuple[list[Any], list[Any]]:
        path = tmp_path / "results.json"
        path.write_bytes(value if isinstance(value, bytes) else json.dumps(value, indent=1).encode())
        return read_trace(path, "tau2")

    return read


@pytest.mark.parametrize(
    ("shape", "episodes", "asked"),
    [
        ("results.json", ["s-1", "s-2"], "vendor/m-mini"),
        ("wrapped.json", ["s-3"], None),
        ("bare.json", ["s-4"], None),
        ("lines.jsonl", ["s-5", "s-6"], None),
    ],
)
def test_four_shapes(shape: str, episodes: list[str], asked: str | None, traces: Path, read_trace: Read) -> None:
    rows, faults = read_trace(traces / "tau2" / shape, "tau2")
    assert faults == []
    assert [(r.episode_id, r.step, r.tool, r.request, r.outcome, r.error_source) for r in rows] == [
        row
        for name in episodes
        for row in (
            (name, 1, "reserve_plot", {"row": 4}, "error", "flag"),
            (name, 2, "reserve_plot", {"row": 4, "soil": "loam"}, "ok", "none"),
        )
    ]
    # What was asked for and what served are kept apart; only the first turn says what served it.
    assert {each.model_requested for each in rows} == {asked}
    assert [each.model for each in rows] == ["m-mini-2031-02-03", None] * len(episodes)
    assert [(each.input_tokens, each.output_tokens) for each in rows] == [(500, 11), (560, 14)] * len(episodes)
    assert all("naive-time" in each.warnings for each in rows)
    assert rows[0].t_start == 1_927_857_902_250_000_000
    assert {each.finish_reason for each in rows} == {"tool_calls"}
    assert b"not-a-key" not in msgspec.json.encode(rows)


def test_simulation_stopped_by_a_limit_is_open(traces: Path, read_trace: Read) -> None:
    rows, _ = read_trace(traces / "tau2" / "results.json", "tau2")
    assert [(each.trial, "log-ends" in each.warnings) for each in rows] == [
        (0, False),
        (0, False),
        (1, False),
        (1, True),
    ]


def test_calls_of_the_user_are_left_out_and_answers_in_one_message_are_taken_apart(simulation: Any, read: Read) -> None:
    call = {"name": "dig", "arguments": {}, "requestor": "assistant"}
    answer = {"role": "tool", "requestor": "assistant", "error": False}
    simulation["messages"] = [
        {
            "role": "assistant",
            "tool_calls": [{**call, "id": "a"}, {**call, "id": "b"}, {**call, "id": "u", "requestor": "user"}],
        },
        {
            "role": "tool",
            "tool_messages": [{**answer, "id": "a", "content": "1"}, {**answer, "id": "b", "content": "2"}],
        },
    ]
    rows, faults = read(simulation)
    assert [(each.step, each.seq, each.call_id, each.response) for each in rows] == [(0, 0, "a", "1"), (0, 1, "b", "2")]
    assert faults == []


def test_torn_results_keep_the_simulations_before_the_cut(traces: Path, read: Read) -> None:
    data = (traces / "tau2" / "results.json").read_bytes()
    rows, faults = read(data[: data.rindex(b"soil")])
    assert [(each.episode_id, each.step, each.outcome, "log-ends" in each.warnings) for each in rows] == [
        ("s-1", 1, "error", False),
        ("s-1", 2, "ok", False),
        ("s-2", 1, "error", True),
    ]
    assert {each.model_requested for each in rows} == {"vendor/m-mini"}
    assert [(each.kind, each.lost) for each in faults] == [("torn-document", True)]


def test_damage_in_one_simulation_keeps_the_next(traces: Path, read: Read) -> None:
    data = (traces / "tau2" / "results.json").read_bytes()
    rows, faults = read(data.replace(b'"tool_calls": null', b'"tool_calls" null', 1))
    assert [(each.episode_id, each.step) for each in rows] == [("s-2", 1), ("s-2", 2)]
    assert [each.kind for each in faults] == ["torn-document"]


@pytest.mark.parametrize("strange", [None, 7, "x", [], {}, [None], True, {"llm": [1]}])
@pytest.mark.parametrize("key", ["id", "task_id", "trial", "termination_reason", "messages"])
def test_wrong_types_in_a_simulation_cost_no_other(traces: Path, read: Read, key: str, strange: Any) -> None:
    results = json.loads((traces / "tau2" / "results.json").read_text())
    results["simulations"][0][key] = strange
    rows, _ = read(results)
    assert [each.call_id for each in rows if each.episode_id == "s-2"] == ["g1", "g2"]


@pytest.mark.parametrize("strange", [7, "x", [], {}, [None], True])
@pytest.mark.parametrize("key", ["role", "content", "tool_calls", "usage", "raw_data", "timestamp", "requestor"])
def test_wrong_types_in_a_message_cost_no_other_turn(simulation: Any, read: Read, key: str, strange: Any) -> None:
    simulation["messages"][2][key] = strange
    rows, _ = read(simulation)
    assert ("g2", {"row": 4, "soil": "loam"}, "ok") in [(each.call_id, each.request, each.outcome) for each in rows]
