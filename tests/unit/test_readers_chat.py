"""Chat-message logs: every row of the samples, and each kind of fault."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

Read = Callable[..., tuple[list[Any], list[Any]]]


@pytest.fixture
def read(tmp_path: Path, read_trace: Read) -> Read:
    """Read records, written as JSON lines, or raw bytes."""

    def read(*records: Any) -> tuple[list[Any], list[Any]]:
        path = tmp_path / "chat.jsonl"
        path.write_bytes(
            b"".join(each if isinstance(each, bytes) else json.dumps(each).encode() + b"\n" for each in records)
        )
        return read_trace(path, "chat")

    return read


def asked(*calls: tuple[str | None, str, Any], **more: Any) -> dict[str, Any]:
    """A turn of the model with calls (id, tool, arguments)."""
    written = [
        {"id": name, "function": {"name": tool, "arguments": each if isinstance(each, str) else json.dumps(each)}}
        for name, tool, each in calls
    ]
    return {"role": "assistant", "content": None, "tool_calls": written, **more}


def told(call: str | None, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": content, **more}


DONE = {"role": "assistant", "content": "Done."}


def plain(row: Any) -> dict[str, Any]:
    """A row without where it was read, and without what is null."""
    return {
        key: value
        for key, value in msgspec.to_builtins(row).items()
        if value is not None and key not in ("source_file", "source_format", "source_pos")
    }


def kinds(faults: list[Any]) -> list[tuple[str, str, bool]]:
    return [(each.place, each.kind, each.lost) for each in faults]


def test_openai(traces: Path, read_trace: Read) -> None:
    rows, faults = read_trace(traces / "chat" / "openai.jsonl", "chat")
    assert faults == []
    hint = {"error": {"code": "no_soil", "message": "soil is required", "suggestion": {"merge": {"soil": "loam"}}}}
    served = {
        "episode_id": "hinted",
        "task_id": "plots",
        "trial": 2,
        "model": "m-mini-2031-02-03",
        "model_requested": "m-mini",
        "model_source": "record.model",
        "call_id": "c1",
        "tool": "reserve_plot",
        "finish_reason": "tool_calls",
    }
    assert plain(rows[0]) == {
        **served,
        "step": 0,
        "request": {"row": 4},
        "outcome": "error",
        "error_source": "predicate",
        "response": hint,
        "hint": ({"op": "add", "path": "/soil", "value": "loam"},),
        "input_tokens": 900,
        "cache_read_tokens": 640,
        "output_tokens": 30,
        "reasoning_tokens": 12,
        "usage_id": "hinted/0",
        "t_start": 1_927_857_906 * 10**9,
        "t_end": 1_927_944_307 * 10**9,
    }
    assert plain(rows[1]) == {
        **served,
        "step": 1,
        "request": {"row": 4, "soil": "loam"},
        "outcome": "ok",
        "response": {"plot": 17},
    }
    assert [(r.episode_id, r.step, r.seq, r.tool, r.outcome, r.error_source, r.warnings) for r in rows[2:]] == [
        ("parallel", 0, 0, "reserve_plot", "error", "predicate", ()),
        ("parallel", 0, 1, "reserve_plot", "ok", "none", ()),
        ("words", 0, 0, "read_page", "ok", "none", ()),
        ("words", 0, 1, "reserve_plot", "error", "predicate", ("refused-next",)),
    ]
    assert rows[3].response == {"plot": 2}
    assert rows[5].source_pos == "line 3, messages[1], tool_calls[1]"


def test_anthropic_counts_the_cache_in_and_bills_a_turn_once(traces: Path, read_trace: Read) -> None:
    rows, faults = read_trace(traces / "chat" / "anthropic.json", "chat")
    assert faults == []
    turn = {
        "episode_id": "blocks",
        "model": "claude-garden-1",
        "model_source": "message.model",
        "step": 0,
        "finish_reason": "tool_use",
        "input_tokens": 755,
        "cache_read_tokens": 700,
        "cache_write_tokens": 50,
        "output_tokens": 21,
        "usage_id": "blocks/0",
    }
    assert [plain(each) for each in rows] == [
        {**turn, "call_id": "t1", "tool": "list_plots", "request": {}, "outcome": "ok", "response": [3, 4]},
        {
            **turn,
            "seq": 1,
            "call_id": "t2",
            "tool": "reserve_plot",
            "request": {"row": 9},
            "outcome": "error",
            "error_source": "flag",
            "response": "row 9 does not exist",
        },
    ]


def test_tau_bench_trajectory_keeps_nothing_of_its_settings(traces: Path, read_trace: Read) -> None:
    rows, faults = read_trace(traces / "chat" / "tau_bench.json", "chat")
    assert faults == []
    assert [(r.episode_id, r.task_id, r.trial, r.step, r.request, r.outcome) for r in rows] == [
        ("3:1", "3", 1, 0, {"row": 5}, "error"),
        ("3:1", "3", 1, 1, {"row": 6}, "ok"),
    ]
    assert b"not-a-key" not in msgspec.json.encode(rows)


def test_lines_that_are_messages_are_one_episode(read: Read) -> None:
    rows, faults = read(
        {"role": "user", "content": "x"},
        asked(("a", "dig", {})),
        told("a", "ok"),
        asked(("b", "dig", {})),
        told("b", "ok"),
        DONE,
    )
    assert [(r.episode_id, r.step, r.outcome) for r in rows] == [("chat", 0, "ok"), ("chat", 1, "ok")]
    assert faults == []


def test_torn_tail_and_nul_bytes(read: Read) -> None:
    whole = {"id": "e1", "messages": [asked(("a", "dig", {"row": 1})), told("a", "ok"), DONE]}
    cut = json.dumps({"id": "e2", "messages": [asked(("b", "dig", {"row": 2})), told("b", "Error: not dug"), DONE]})
    rows, faults = read(whole, b"\0\0\0\n", cut[: cut.index("not dug")].encode())
    assert [(r.episode_id, r.call_id, r.outcome, r.warnings) for r in rows] == [
        ("e1", "a", "ok", ()),
        ("e2", "b", "missing", ("log-ends",)),
    ]
    assert kinds(faults) == [("line 2", "nul-bytes", True), ("line 3", "torn-line", True)]


def test_arguments_cut_encoded_twice_and_wrong(read: Read) -> None:
    rows, faults = read(
        {
            "id": "e",
            "messages": [
                asked(("a", "dig", '{"row": 4, "so'), finish_reason="length"),
                asked(("b", "dig", '"{\\"row\\": 4}"')),
                asked(("c", "dig", "row 4")),
                DONE,
            ],
        }
    )
    assert [(r.parse_status, r.request, r.request_raw, r.outcome) for r in rows] == [
        ("truncated", None, '{"row": 4, "so', "missing"),
        ("double_encoded", {"row": 4}, '"{\\"row\\": 4}"', "missing"),
        ("invalid", None, "row 4", "missing"),
    ]
    assert faults == []


def test_ids_used_again_belong_to_the_latest_call(read: Read) -> None:
    rows, _ = read(
        {
            "id": "e",
            "messages": [
                asked(("a", "dig", {})),
                told("a", "Error: not dug"),
                asked(("a", "dig", {})),
                told("a", "ok"),
                DONE,
            ],
        }
    )
    assert [(r.step, r.outcome, r.response) for r in rows] == [(0, "error", "Error: not dug"), (1, "ok", "ok")]


def test_one_id_twice_in_a_turn_is_answered_in_order(read: Read) -> None:
    rows, faults = read(
        {
            "id": "e",
            "messages": [
                asked(("a", "dig", {}), ("a", "dig", {})),
                told("a", "first"),
                told("a", "second"),
                told("a", "third"),
                DONE,
            ],
        }
    )
    assert [r.response for r in rows] == ["first", "second"]
    assert [each.kind for each in faults] == ["duplicate-id", "duplicate-answer"]


def test_answers_without_id_go_by_order_and_say_so(read: Read) -> None:
    rows, faults = read(
        {
            "id": "e",
            "messages": [
                asked((None, "dig", {}), (None, "weed", {})),
                told(None, "weeded", name="weed"),
                told(None, "dug"),
                DONE,
            ],
        }
    )
    assert [(r.tool, r.response, r.warnings) for r in rows] == [
        ("dig", "dug", ("matched-by-order",)),
        ("weed", "weeded", ("matched-by-order",)),
    ]
    assert faults == []


def test_answer_without_call(read: Read) -> None:
    rows, faults = read({"id": "e", "messages": [told("a", "ok"), told("b", "Error: not dug", name="dig"), DONE]})
    assert [(r.tool, r.request, r.parse_status, r.outcome, r.order_source, r.warnings) for r in rows] == [
        ("dig", None, "invalid", "error", "flattened", ("orphan-answer",))
    ]
    assert kinds(faults) == [
        ("line 1, messages[0]", "orphan-answer", True),
        ("line 1, messages[1]", "orphan-answer", False),
    ]


def test_transport_retries_are_not_the_models(read: Read) -> None:
    hint = json.dumps({"error": {"suggestion": {"set": {"soil": "loam"}}}})
    rows, faults = read(
        {
            "id": "e",
            "messages": [
                asked(("a", "dig", {})),
                told("a", "busy", status_code=429),
                told("a", "down", status_code=503),
                told("a", hint, status_code=422),
                DONE,
            ],
        }
    )
    (row,) = rows
    assert (row.transport_retries, row.status_code, row.outcome, row.error_source) == (2, 422, "error", "status")
    assert [each.path for each in row.hint] == ["/soil"]
    assert faults == []


def test_episode_that_ends_on_an_error_or_unanswered_is_open(read: Read) -> None:
    rows, _ = read(
        {"id": "error", "messages": [asked(("a", "dig", {})), told("a", "Error: not dug")]},
        {"id": "ok", "messages": [asked(("a", "dig", {})), told("a", "dug")]},
        {"id": "unanswered", "messages": [asked(("a", "dig", {}), ("b", "dig", {})), told("b", "dug")]},
        {"id": "gave up", "messages": [asked(("a", "dig", {})), told("a", "Error: not dug"), DONE]},
    )
    assert [(r.episode_id, r.warnings) for r in rows] == [
        ("error", ("log-ends",)),
        ("ok", ()),
        ("unanswered", ()),
        ("unanswered", ("log-ends",)),
        ("gave up", ()),
    ]


def test_refusal_is_noted_on_the_call_before(read: Read) -> None:
    refusal = {"role": "assistant", "content": "", "finish_reason": "content_filter"}
    rows, _ = read({"id": "e", "messages": [asked(("a", "dig", {})), told("a", "Error: not dug"), refusal]})
    assert rows[0].warnings == ("refused-next",)


@pytest.mark.parametrize("strange", [None, 7, "x", [], {}, [None], True, {"a": 1}, [[[]]]])
@pytest.mark.parametrize(
    "key",
    [
        "id",
        "task_id",
        "trial",
        "model",
        "messages",
        "role",
        "content",
        "tool_calls",
        "function",
        "name",
        "arguments",
        "usage",
        "timestamp",
        "tool_call_id",
    ],
)
def test_wrong_types_in_any_field_cost_no_other_record(read: Read, key: str, strange: Any) -> None:
    def spoiled(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: strange if name == key else spoiled(each) for name, each in value.items()}
        return [spoiled(each) for each in value] if isinstance(value, list) else value

    good = {
        "id": "good",
        "task_id": "t",
        "trial": 1,
        "model": "m",
        "messages": [asked(("a", "dig", {"row": 1}), usage={"prompt_tokens": 3}, timestamp=1), told("a", "ok"), DONE],
    }
    rows, faults = read(good, spoiled(good), {**good, "id": "other"})
    sound = [each for each in rows if not each.source_pos.startswith("line 2")]
    assert [(each.call_id, each.request, each.outcome) for each in sound] == [("a", {"row": 1}, "ok")] * 2
    assert all(each.place.startswith("line ") for each in faults)


def test_numbers_text_and_depth_that_no_one_can_write(read: Read) -> None:
    record = json.dumps({"id": "ID", "messages": [asked(("a", "dig", {})), told("a", "X")]}) + "\n"
    first, second, third, fourth = (record.replace("ID", f"e{number}") for number in range(4))
    rows, faults = read(
        first.replace('"X"', '{"n": ' + "9" * 5000 + ', "m": NaN, "t": "\\ud800"}').encode(),
        second.replace('"X"', "[" * 400 + "]" * 400).encode(),
        third.replace("X", "\xff").encode("latin-1"),
        b"\xef\xbb\xbf" + fourth.replace("\n", "\r\n").encode(),
    )
    assert [each.response for each in rows] == [{"n": None, "m": None, "t": "?"}, None, "\ufffd", "X"]
    assert [(each.place.split(",")[0], each.kind) for each in faults] == [
        ("line 1", "huge-number"),
        ("line 1", "nan"),
        ("line 1", "lone-surrogate"),
        ("line 2", "too-deep"),
        ("line 3", "bad-utf8"),
    ]
    assert not any(each.lost for each in faults)


def test_mixed_and_bad_times(read: Read) -> None:
    times = ["2031-02-04T00:00:00Z", 1_927_929_600_000, "1927929600000000000", "2031-02-04T00:00:00", "noon", None]
    rows, faults = read(
        {
            "id": "e",
            "messages": [each for at in times for each in (asked(("a", "dig", {}), timestamp=at), told("a", "ok"))],
        }
    )
    noon = 1_927_929_600 * 10**9
    assert [each.t_start for each in rows] == [noon] * 4 + [None] * 2
    assert [each.warnings for each in rows] == [()] * 3 + [("naive-time",)] + [()] * 2
    assert kinds(faults) == [("line 1, messages[8], timestamp", "bad-time", False)]


def test_record_repeated_counts_once_and_another_of_its_name_is_renamed(read: Read) -> None:
    record = {"id": "e", "messages": [asked(("a", "dig", {"row": 1})), told("a", "ok"), DONE]}
    other = {"id": "e", "messages": [asked(("a", "dig", {"row": 2})), told("a", "ok"), DONE]}
    rows, faults = read(record, other, record)
    assert [(each.episode_id, each.request) for each in rows] == [("e", {"row": 1}), ("e#2", {"row": 2})]
    assert kinds(faults) == [("line 2", "duplicate-id", False), ("line 3", "duplicate-record", False)]
