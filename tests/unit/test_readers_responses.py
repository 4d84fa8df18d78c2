"""Logs of OpenAI's Responses API in each of their shapes: every row of the samples, and each trap."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from invsim.traces.trials import episode_trials

Read = Callable[..., tuple[list[Any], list[Any]]]

HINT = {"error": {"code": "no_soil", "message": "soil is required", "suggestion": {"merge": {"soil": "loam"}}}}
START = 1_927_857_906 * 10**9
USER = {"role": "user", "content": "Reserve a plot in the garden, please."}


@pytest.fixture
def read(tmp_path: Path, read_trace: Read) -> Read:
    """Read records, written as JSON lines, or raw bytes."""

    def read(*records: Any) -> tuple[list[Any], list[Any]]:
        path = tmp_path / "log.jsonl"
        path.write_bytes(
            b"".join(each if isinstance(each, bytes) else json.dumps(each).encode() + b"\n" for each in records)
        )
        return read_trace(path, "chat")

    return read


def call(call_id: str | None, asked: Any, tool: str | None = "dig", **more: Any) -> dict[str, Any]:
    written = asked if isinstance(asked, str) else json.dumps(asked)
    return {"type": "function_call", "call_id": call_id, "name": tool, "arguments": written, **more}


def output(call_id: str | None, answer: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": answer, **more}


def said(text: str = "Done.", kind: str = "output_text") -> dict[str, Any]:
    content = {"type": kind, "text" if kind == "output_text" else "refusal": text}
    return {"type": "message", "role": "assistant", "content": [content]}


def mcp(name: str, asked: str = "{}", **more: Any) -> dict[str, Any]:
    return {"type": "mcp_call", "id": name, "server_label": "garden", "name": "dig", "arguments": asked, **more}


def response(name: str | None, *items: Any, after: str | None = None, **more: Any) -> dict[str, Any]:
    found = {"id": name, "object": "response", "status": "completed", "previous_response_id": after}
    return {**found, "output": list(items), **more}


def brief(rows: list[Any]) -> list[tuple[Any, ...]]:
    return [(each.episode_id, each.step, each.seq, each.call_id, each.outcome) for each in rows]


def kinds(faults: list[Any]) -> list[tuple[str, str, bool]]:
    return [(each.place, each.kind, each.lost) for each in faults]


def plain(row: Any) -> dict[str, Any]:
    """A row without where it was read, and without what is null."""
    left_out = ("source_file", "source_format", "source_pos")
    return {key: each for key, each in msgspec.to_builtins(row).items() if each is not None and key not in left_out}


# Responses and their requests


def test_requests_with_their_responses(traces: Path, read_trace: Read) -> None:
    rows, faults = read_trace(traces / "chat" / "responses.jsonl", "chat")
    assert faults == []
    plots = {
        "episode_id": "resp_1",
        "task_id": "plots",
        "trial": 2,
        "model": "m-mini-2031-02-03",
        "model_requested": "m-mini",
        "model_source": "response.model",
        "tool": "reserve_plot",
        "finish_reason": "completed",
    }
    second = {
        **plots,
        "step": 1,
        "input_tokens": 980,
        "cache_read_tokens": 900,
        "cache_write_tokens": 0,
        "output_tokens": 44,
        "reasoning_tokens": 20,
        "usage_id": "resp_1/resp_2",
        "t_start": START + 10 * 10**9,
    }
    assert [plain(each) for each in rows[:3]] == [
        {
            **plots,
            "step": 0,
            "call_id": "c1",
            "request": {"row": 4},
            "outcome": "error",
            "error_source": "predicate",
            "response": HINT,
            "hint": ({"op": "add", "path": "/soil", "value": "loam"},),
            "input_tokens": 900,
            "cache_read_tokens": 640,
            "cache_write_tokens": 128,
            "output_tokens": 30,
            "reasoning_tokens": 12,
            "usage_id": "resp_1/resp_1",
            "t_start": START + 2 * 10**9,
        },
        # Two calls of one response are one step, and one bill; their answers come in any order, as text or in parts.
        {**second, "call_id": "c2", "request": {"row": 4, "soil": "loam"}, "outcome": "ok", "response": {"plot": 17}},
        {
            **second,
            "seq": 1,
            "call_id": "c3",
            "request": {"row": 5},
            "outcome": "error",
            "error_source": "predicate",
            "response": "Error: row 5 is not free",
        },
    ]
    assert [
        (each.episode_id, each.step, each.tool, each.parse_status, each.outcome, each.error_source) for each in rows[3:]
    ] == [
        ("conv_1", 0, "garden.dig", "ok", "error", "flag"),
        ("conv_1", 1, "dig", "truncated", "missing", "none"),
    ]
    assert (rows[3].response, rows[4].request, rows[4].request_raw) == ("row 7 is frozen", None, '{"row": 8, "de')
    assert (rows[4].finish_reason, rows[4].warnings) == ("max_output_tokens", ("log-ends",))
    assert rows[1].source_pos == "line 2, response, output[1]"


def test_what_is_sent_once_more_counts_once(traces: Path, read_trace: Read) -> None:
    rows, faults = read_trace(traces / "chat" / "stateless.json", "chat")
    assert faults == []
    assert brief(rows) == [
        ("stateless:0", 0, 0, "s1", "error"),
        ("stateless:0", 1, 0, "s2", "ok"),
    ]
    assert [(each.usage_id, each.input_tokens) for each in rows] == [
        ("stateless:0/stateless:0", 100),
        ("stateless:0/stateless:1", 140),
    ]


def test_ids_used_again_are_counted_where_a_request_repeats_them(read: Read) -> None:
    first, second = [call("a", {"row": 1}), output("a", "Error: not dug")], [call("a", {"row": 2}), output("a", "dug")]
    rows, faults = read(
        {"input": [USER], "output": first[:1]},
        {"input": [USER, *first], "output": second[:1]},
        {"input": [USER, *first, *second], "output": [said()]},
    )
    assert [(each.step, each.request, each.outcome) for each in rows] == [
        (0, {"row": 1}, "error"),
        (1, {"row": 2}, "ok"),
    ]
    assert faults == []


def test_ids_used_again_where_a_request_sends_news_alone(read: Read) -> None:
    rows, faults = read(
        response("r1", call("a", {"row": 1})),
        {"input": [output("a", "Error: not dug")], **response("r2", call("a", {"row": 2}), after="r1")},
        {"input": [output("a", "dug")], **response("r3", said(), after="r2")},
    )
    assert [(each.step, each.request, each.outcome) for each in rows] == [
        (0, {"row": 1}, "error"),
        (1, {"row": 2}, "ok"),
    ]
    assert faults == []


def test_ids_used_again_within_one_request(read: Read) -> None:
    first, second = [call("a", {"row": 1}), output("a", "Error: not dug")], [call("a", {"row": 2}), output("a", "dug")]
    rows, faults = read({"input": [USER, *first, *second], "output": [said()]})
    assert [(each.step, each.request, each.outcome) for each in rows] == [
        (0, {"row": 1}, "error"),
        (1, {"row": 2}, "ok"),
    ]
    assert faults == []


def test_calls_of_responses_that_are_not_in_the_log_are_taken_from_the_requests(read: Read) -> None:
    history = [
        USER,
        {"type": "reasoning"},
        call("a", {"row": 1}),
        call("b", {"row": 2}),
        output("a", "dug"),
        output("b", "dug"),
    ]
    rows, faults = read(
        {"input": history, **response("r9", call("c", {"row": 3}), usage={"input_tokens": 7, "output_tokens": 1})},
        {"input": [*history, call("c", {"row": 3}), output("c", "Error: not dug")], **response("r10", said())},
    )
    assert brief(rows) == [
        ("r9", 0, 0, "a", "ok"),
        ("r9", 0, 1, "b", "ok"),
        ("r9", 1, 0, "c", "error"),
    ]
    assert [(each.usage_id, each.input_tokens) for each in rows] == [(None, None)] * 2 + [("r9/r9", 7)]
    assert faults == []


def test_refusal_sent_once_more_is_no_second_one(read: Read) -> None:
    rows, _ = read(
        {"input": [USER], **response("r1", call("a", {}))},
        {"input": [output("a", "dug")], **response("r2", said("I will not.", "refusal"), after="r1")},
        {"input": [said("I will not.", "refusal"), USER], **response("r3", call("b", {}), after="r2")},
        {"input": [said("I will not.", "refusal"), output("b", "dug")], **response("r4", said(), after="r3")},
    )
    assert [(each.call_id, each.warnings) for each in rows] == [("a", ("refused-next",)), ("b", ())]


def test_response_that_a_filter_stopped_is_a_refusal(read: Read) -> None:
    stopped = {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}
    rows, _ = read(
        response("r1", call("a", {})),
        {"input": [output("a", "Error: not dug")], **response("r2", after="r1", **stopped)},
    )
    assert [each.warnings for each in rows] == [("refused-next",)]


def test_log_backwards_is_put_in_order(read: Read) -> None:
    lines = [
        response("r1", call("a", {})),
        {"input": [output("a", "Error: not dug")], **response("r2", call("b", {}), after="r1")},
        {"input": [output("b", "dug")], **response("r3", said(), after="r2")},
    ]
    whole = [("r1", 0, 0, "a", "error"), ("r1", 1, 0, "b", "ok")]
    for order in (lines, lines[::-1], [lines[1], lines[2], lines[0]]):
        rows, faults = read(*order)
        assert (brief(rows), faults) == (whole, [])


def test_conversation_backwards_is_put_in_order_of_time(read: Read) -> None:
    lines = [
        {**response("r1", call("a", {})), "conversation": "garden", "created_at": 100},
        {
            "input": [output("a", "dug")],
            **response("r2", call("b", {})),
            "conversation": {"id": "garden"},
            "created_at": 200,
        },
    ]
    rows, faults = read(*reversed(lines))
    assert brief(rows) == [("garden", 0, 0, "a", "ok"), ("garden", 1, 0, "b", "missing")]
    assert faults == []


def test_stateless_log_backwards_counts_each_call_once(read: Read) -> None:
    first, second = [call("a", {"row": 1}), output("a", "dug")], [call("b", {"row": 2}), output("b", "dug")]
    rows, faults = read(
        {"id": "r3", "input": [*first, *second], "output": [said()]},
        {"id": "r2", "input": first, "output": second[:1]},
        {"id": "r1", "input": "Dig.", "output": first[:1]},
    )
    assert brief(rows) == [("r1", 0, 0, "a", "ok"), ("r1", 1, 0, "b", "ok")]
    assert faults == []


def test_two_conversations_line_by_line_stay_apart(read: Read) -> None:
    def turns(row: int) -> list[dict[str, Any]]:
        asked = call("call_1", {"row": row})  # a server that counts its calls from one
        return [
            {"input": [USER], "output": [asked]},
            {"input": [USER, asked, output("call_1", f"dug {row}")], "output": [said()]},
        ]

    one, other = turns(1), turns(2)
    rows, faults = read(one[0], other[0], one[1], other[1])
    assert [(each.episode_id, each.request, each.response) for each in rows] == [
        ("log:0", {"row": 1}, "dug 1"),
        ("log:1", {"row": 2}, "dug 2"),
    ]
    assert faults == []


def test_conversation_that_begins_as_another_did_follows_its_own(read: Read) -> None:
    asked = call("call_1", {"row": 1})
    turns = [
        {"input": [USER], "output": [asked]},
        {"input": [USER, asked, output("call_1", "dug")], "output": [said()]},
    ]
    rows, faults = read(*turns, *turns)
    assert brief(rows) == [("log:0", 0, 0, "call_1", "ok"), ("log:2", 0, 0, "call_1", "ok")]
    assert faults == []


def test_second_response_to_the_same_calls_leaves_the_order_unknown(read: Read) -> None:
    rows, faults = read(
        response("r1", call("a", {"row": 1})),
        {"input": [output("a", "Error: not dug")], **response("r2", call("b", {"row": 1}), after="r1")},
        {"input": [output("a", "Error: not dug")], **response("r3", call("c", {"row": 2}), after="r1")},
    )
    assert [(each.call_id, each.order_source) for each in rows] == [(each, "flattened") for each in "abc"]
    assert kinds(faults) == [("line 3", "fork", False)]


def test_request_sent_again_after_a_failure_is_no_fork(read: Read) -> None:
    rows, faults = read(
        response("r1", call("a", {"row": 1})),
        {"input": [output("a", "Error: not dug")], **response("r2", after="r1", status="failed", error={"code": "x"})},
        {"input": [output("a", "Error: not dug")], **response("r3", call("b", {"row": 1}), after="r1")},
    )
    assert brief(rows) == [("r1", 0, 0, "a", "error"), ("r1", 1, 0, "b", "missing")]
    assert {each.order_source for each in rows} == {"index"}
    assert faults == []


def test_talk_between_calls_is_no_fork(read: Read) -> None:
    history = [USER, call("a", {}), output("a", "dug")]
    rows, faults = read(
        {"input": history[:1], "output": history[1:2]},
        {"input": history, "output": [said("Which row?")]},
        {"input": [*history, said("Which row?"), USER], "output": [call("b", {})]},
    )
    assert brief(rows) == [("log:0", 0, 0, "a", "ok"), ("log:0", 2, 0, "b", "missing")]
    assert {each.order_source for each in rows} == {"index"}
    assert faults == []


def test_response_noted_on_its_way_counts_as_it_ended(read: Read) -> None:
    ended = response("r1", call("a", {"row": 1}), usage={"input_tokens": 5, "output_tokens": 2})
    rows, faults = read(
        {"type": "response.created", "response": response("r1", status="in_progress")},
        {"type": "response.completed", "response": ended},
    )
    assert brief(rows) == [("r1", 0, 0, "a", "missing")]
    assert (rows[0].input_tokens, rows[0].finish_reason) == (5, "completed")
    assert faults == []


def test_response_repeated_counts_once_and_another_of_its_id_is_renamed(read: Read) -> None:
    one, other = response("r1", call("a", {"row": 1})), response("r1", call("a", {"row": 2}))
    rows, faults = read(one, other, one)
    assert [(each.episode_id, each.request) for each in rows] == [("r1", {"row": 1}), ("r1#2", {"row": 2})]
    assert kinds(faults) == [("line 2", "duplicate-id", False), ("line 3", "duplicate-record", False)]


def test_responses_that_follow_each_other_in_a_ring(read: Read) -> None:
    rows, faults = read(response("r1", call("a", {}), after="r2"), response("r2", call("b", {}), after="r1"))
    assert sorted(each.call_id for each in rows) == ["a", "b"]
    assert kinds(faults) == [("line 1", "parent-loop", False), ("line 2", "parent-loop", False)]


def test_served_model_stays_apart_from_the_one_asked_for(read: Read) -> None:
    rows, _ = read(
        {"request": {"model": "m", "input": "x"}, "response": response("r1", call("a", {}), model="m-2031")},
        {"model": "m", "input": "x", "response": response("r2", call("a", {}), model="m-2032")},
        {"input": "x", "requested_model": "m", **response("r3", call("a", {}), model="m-2033")},
        {"responses_create_params": {"model": "m", "input": "x"}, "response": response("r4", call("a", {}))},
        {"input": "x", **response("r5", call("a", {}), model="m-2034")},
    )
    assert [(each.model, each.model_requested, each.model_source) for each in rows] == [
        ("m-2031", "m", "response.model"),
        ("m-2032", "m", "response.model"),
        ("m-2033", "m", "response.model"),
        (None, "m", None),
        ("m-2034", None, "response.model"),
    ]


def test_trajectory_in_one_response_takes_a_step_at_each_answer_and_has_one_bill(read: Read) -> None:
    items = [
        call("a", {}),
        output("a", "Error: not dug"),
        call("b", {}),
        call("c", {}),
        output("b", "dug"),
        output("c", "dug"),
    ]
    usage = {"input_tokens": 90, "output_tokens": 9}
    rows, faults = read({"response": response("r1", *items, said(), model="m", usage=usage), "reward": 1.0})
    assert brief(rows) == [("r1", 0, 0, "a", "error"), ("r1", 1, 0, "b", "ok"), ("r1", 1, 1, "c", "ok")]
    assert {(each.model, each.usage_id, each.input_tokens) for each in rows} == {("m", "r1/r1", 90)}
    assert faults == []


@pytest.mark.parametrize(
    ("state", "warnings"),
    [
        ({"status": "completed"}, ()),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, ("log-ends",)),
        ({"status": "failed", "error": {"code": "server_error"}}, ("log-ends",)),
        ({"status": "in_progress"}, ("log-ends",)),
    ],
)
def test_conversation_ends_where_the_model_ended_it(
    read: Read, state: dict[str, Any], warnings: tuple[str, ...]
) -> None:
    rows, _ = read(
        response("r1", call("a", {})),
        {"input": [output("a", "dug")], **response("r2", after="r1", **state)},
    )
    assert [each.warnings for each in rows] == [warnings]


def test_response_that_was_cut_tells_nothing_of_what_the_model_would_have_done(read: Read) -> None:
    stopped = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    asked, answer = call("a", {}, status="completed"), output("a", "Error: not dug")
    cut, _ = read(response("r1", asked, **stopped), {"input": [answer], **response("r2", said(), after="r1")})
    whole, _ = read(response("r1", asked), {"input": [answer], **response("r2", said(), after="r1")})
    assert [each.warnings for each in (*cut, *whole)] == [(), ()]
    assert [[each.result for each in episode_trials(rows)[0]] for rows in (cut, whole)] == [["censored"], ["gave_up"]]


def test_torn_tail_keeps_what_is_whole(read: Read) -> None:
    first = response("r1", call("a", {"row": 1}), call("b", {"row": 2}))
    cut = json.dumps({"input": [output("a", "dug")], **response("r2", call("c", {}), call("d", {}), after="r1")})
    rows, faults = read(first, cut[: cut.rindex("dig")].encode())
    assert [(each.call_id, each.outcome, each.warnings) for each in rows] == [
        ("a", "ok", ()),
        ("b", "missing", ()),
        ("c", "missing", ("log-ends",)),
    ]
    assert kinds(faults) == [("line 2", "torn-line", True)]


def test_conversation_whose_last_response_is_torn_is_open(read: Read) -> None:
    cut = json.dumps({"input": [output("a", "dug")], **response("r2", said("Row 4 is"), after="r1")})
    rows, _ = read(response("r1", call("a", {})), cut[: cut.rindex(" is")].encode())
    assert [(each.outcome, each.warnings) for each in rows] == [("ok", ("log-ends",))]


# Arguments


def test_arguments_cut_encoded_twice_and_wrong(read: Read) -> None:
    stopped = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    rows, faults = read(
        response("r1", call("a", '"{\\"row\\": 4}"'), call("b", "row 4"), call("c", {"row": 4}, status="completed")),
        response(
            "r2", call("d", '{"row" 4}', status="completed"), call("e", '{"row" 4}', status="in_progress"), **stopped
        ),
        response("r3", call("f", '{"row" 4}'), **stopped),
        response("r4", call("g", "", status="completed"), call("h", "", status="incomplete"), **stopped),
        response("r5", call("i", "")),
    )
    assert [(each.call_id, each.parse_status, each.request, each.request_raw) for each in rows] == [
        ("a", "double_encoded", {"row": 4}, '"{\\"row\\": 4}"'),
        ("b", "invalid", None, "row 4"),
        ("c", "ok", {"row": 4}, None),
        ("d", "invalid", None, '{"row" 4}'),
        ("e", "truncated", None, '{"row" 4}'),
        ("f", "truncated", None, '{"row" 4}'),
        ("g", "ok", {}, None),
        ("h", "truncated", None, None),
        ("i", "ok", {}, None),
    ]
    assert {each.outcome for each in rows} == {"missing"}
    assert faults == []


def test_text_for_a_custom_tool_need_not_be_json(read: Read) -> None:
    asked = {"type": "custom_tool_call", "name": "note", "input": "{row 4"}
    rows, _ = read(response("r1", {**asked, "call_id": "a"}, {**asked, "call_id": "b", "status": "incomplete"}))
    assert [(each.tool, each.parse_status, each.request, each.request_raw) for each in rows] == [
        ("note", "ok", {"input": "{row 4"}, None),
        ("note", "truncated", None, "{row 4"),
    ]


def test_tools_of_one_name_in_two_places_are_two_tools(read: Read) -> None:
    rows, _ = read(response("r1", call("a", {}, namespace="shed"), call("b", {}), mcp("c")))
    assert [each.tool for each in rows] == ["shed.dig", "dig", "garden.dig"]


# Answers


@pytest.mark.parametrize(
    ("answer", "shown", "outcome", "source"),
    [
        ("dug", "dug", "ok", "none"),
        ('{"plot": 17}', {"plot": 17}, "ok", "none"),
        ([{"type": "input_text", "text": each} for each in ('{"plot"', ": 17}")], {"plot": 17}, "ok", "none"),
        (json.dumps(HINT), HINT, "error", "predicate"),
        ([{"type": "input_text", "text": json.dumps(HINT)}], HINT, "error", "predicate"),
        ("Error: not dug", "Error: not dug", "error", "predicate"),
        ("Error: handling guide", "Error: handling guide", "ok", "none"),
        ("Request timed out: deadline exceeded", "Request timed out: deadline exceeded", "ok", "none"),
        ({"status": 422, "detail": "row"}, {"status": 422, "detail": "row"}, "error", "status"),
        (None, None, "ok", "none"),
    ],
)  # fmt: skip
def test_answers_are_judged_as_those_of_chat_messages(
    read: Read, answer: Any, shown: Any, outcome: str, source: str
) -> None:
    asked = [USER, call("a", {"row": 4}), output("a", answer), said()]
    told = [
        USER,
        {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "dig", "arguments": '{"row": 4}'}}]},
        {"role": "tool", "tool_call_id": "a", "content": answer},
        {"role": "assistant", "content": "Done."},
    ]
    rows, faults = read({"id": "items", "items": asked}, {"id": "messages", "messages": told})
    assert [(each.outcome, each.error_source) for each in rows] == [(outcome, source)] * 2
    assert rows[0].response == rows[1].response == shown
    assert rows[0].hint == rows[1].hint
    assert bool(rows[0].hint) == (shown == HINT)
    assert faults == []


def test_client_that_sent_again_counts_as_transport(read: Read) -> None:
    answers = [output("a", "busy", status_code=429), output("a", "dug", status_code=200)]
    rows, faults = read({"items": [call("a", {}), *answers, said()]})
    assert [(each.outcome, each.status_code, each.transport_retries) for each in rows] == [("ok", 200, 1)]
    assert faults == []


def test_answer_without_call(read: Read) -> None:
    rows, faults = read({"items": [output("a", "ok"), output("b", "Error: not dug", name="dig"), said()]})
    assert [(each.tool, each.request, each.outcome, each.order_source, each.warnings) for each in rows] == [
        ("dig", None, "error", "flattened", ("orphan-answer",))
    ]
    assert kinds(faults) == [
        ("line 1, items[0]", "orphan-answer", True),
        ("line 1, items[1]", "orphan-answer", False),
    ]


# Calls that the provider or the client runs


@pytest.mark.parametrize(
    ("told", "shown", "outcome", "source", "status"),
    [
        ({"output": '{"plot": 17}'}, {"plot": 17}, "ok", "none", None),
        ({"output": "Error: not dug", "status": "completed"}, "Error: not dug", "error", "predicate", None),
        ({"output": None, "error": None, "status": "completed"}, None, "ok", "none", None),
        ({"output": None, "error": "row is frozen"}, "row is frozen", "error", "flag", None),
        ({"output": "half", "status": "failed"}, "half", "error", "flag", None),
        (
            {"error": {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": json.dumps(HINT)}]}},
            HINT, "error", "flag", None,
        ),
        ({"error": {"type": "mcp_protocol_error", "code": 503, "message": "gone"}}, "gone", "error", "flag", None),
        ({"error": {"type": "http_error", "code": 504, "message": "gateway"}}, "gateway", "timeout", "flag", 504),
        ({"error": {"type": "other"}}, {"type": "other"}, "error", "flag", None),
        ({"output": None, "status": "in_progress"}, None, "missing", "none", None),
        ({}, None, "missing", "none", None),
    ],
)  # fmt: skip
def test_tools_of_mcp_servers(
    read: Read, told: dict[str, Any], shown: Any, outcome: str, source: str, status: int | None
) -> None:
    (row,), faults = read(response("r1", mcp("a", '{"row": 4}', **told)))
    assert (row.tool, row.call_id, row.request) == ("garden.dig", "a", {"row": 4})
    assert (row.response, row.outcome, row.error_source, row.status_code) == (shown, outcome, source, status)
    assert [each.path for each in row.hint] == (["/soil"] if shown == HINT else [])
    assert faults == []


def test_calls_of_one_response_are_no_retries_of_each_other(read: Read) -> None:
    refused = {"error": {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": json.dumps(HINT)}]}}
    rows, _ = read(
        response("r1", mcp("a", '{"row": 4}', **refused), mcp("b", '{"row": 4, "soil": "loam"}', output="dug"), said()),
        response("r2", mcp("c", output="dug"), mcp("d", **refused)),
        response("r3", mcp("e", output="dug"), after="r2"),
    )
    assert [(each.call_id, each.step, each.seq, each.order_source) for each in rows] == [
        # The provider showed the model what came of the first: the second may retry it, and nobody knows.
        ("a", 0, 0, "flattened"),
        ("b", 0, 1, "flattened"),
        ("c", 0, 0, "index"),
        ("d", 0, 1, "index"),
        ("e", 1, 0, "index"),
    ]
    unknown, _ = episode_trials(rows[:2])
    certain, _ = episode_trials(rows[2:])
    assert [(each.kind, each.attribution, each.next_ok) for each in unknown] == [("recovery", "unknown", None)]
    assert [(each.kind, each.attribution, each.next_ok) for each in certain] == [("recovery", "certain", True)]


def test_items_of_a_session(traces: Path, read_trace: Read) -> None:
    rows, faults = read_trace(traces / "chat" / "items.json", "chat")
    assert faults == []
    assert [(each.step, each.seq, each.tool, each.call_id, each.request) for each in rows] == [
        (0, 0, "note", "i1", {"input": "row 4: loam"}),
        (0, 1, "shell", "i2", {"commands": ["ls beds"]}),
        (1, 0, "garden.dig", "mcpr_1", {"row": 4}),
        (2, 0, "garden.flood", "mcpr_2", {}),
    ]
    assert [(each.response, each.outcome, each.error_source) for each in rows if each.tool != "shell"] == [
        ("noted", "ok", "none"),
        ("dug", "ok", "none"),
        ("not in winter", "denied", "flag"),
    ]
    assert (rows[1].outcome, rows[1].error_source) == ("error", "flag")
    assert {(each.episode_id, each.task_id, each.order_source) for each in rows} == {("session", "plots", "index")}


def test_call_that_waits_for_approval_is_one_call_over_two_responses(read: Read) -> None:
    asked = {"type": "mcp_approval_request", "id": "q", "server_label": "garden", "name": "dig", "arguments": "{}"}
    granted = {"type": "mcp_approval_response", "approval_request_id": "q", "approve": True}
    done = mcp("m", approval_request_id="q", output="dug")
    rows, faults = read(
        response("r1", asked),
        {"input": [asked, granted], **response("r2", done, call("b", {}), after="r1")},
        {"input": [asked, granted, done, call("b", {}), output("b", "dug")], **response("r3", said(), after="r2")},
    )
    assert brief(rows) == [("r1", 0, 0, "q", "ok"), ("r1", 1, 0, "b", "ok")]
    assert faults == []


@pytest.mark.parametrize(
    ("asked", "answered", "request_", "outcome"),
    [
        (
            {"type": "local_shell_call", "id": "l", "call_id": "x", "action": {"type": "exec", "command": ["ls"]}},
            {"type": "local_shell_call_output", "id": "x", "output": "beds"},
            {"type": "exec", "command": ["ls"]}, "ok",
        ),
        (
            {"type": "local_shell_call", "call_id": "x", "action": {"type": "exec", "command": ["ls"]}},
            output("x", "beds"),
            {"type": "exec", "command": ["ls"]}, "ok",
        ),
        (
            {"type": "shell_call", "call_id": "x", "action": {"commands": ["ls"]}},
            {"type": "shell_call_output", "call_id": "x", "output": [{"stdout": "", "outcome": {"type": "timeout"}}]},
            {"commands": ["ls"]}, "timeout",
        ),
        (
            {"type": "shell_call", "call_id": "x", "action": {"commands": ["ls"]}},
            {"type": "shell_call_output", "call_id": "x", "output": [{"outcome": {"type": "exit", "exit_code": 0}}]},
            {"commands": ["ls"]}, "ok",
        ),
        (
            {"type": "apply_patch_call", "call_id": "x", "operation": {"type": "delete_file", "path": "plan"}},
            {"type": "apply_patch_call_output", "call_id": "x", "status": "failed", "output": "no plan"},
            {"type": "delete_file", "path": "plan"}, "error",
        ),
    ],
)  # fmt: skip
def test_tools_that_the_client_brings(
    read: Read, asked: dict[str, Any], answered: dict[str, Any], request_: Any, outcome: str
) -> None:
    (row,), faults = read({"items": [asked, answered, said()]})
    assert (row.tool, row.call_id) == (asked["type"].removesuffix("_call"), "x")
    assert (row.request, row.outcome, row.error_source) == (request_, outcome, "none" if outcome == "ok" else "flag")
    assert row.warnings == ()  # answered by its id, and not by its place
    assert faults == []


@pytest.mark.parametrize(
    "kind",
    ["web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "tool_search_call",
     "computer_call"],
)  # fmt: skip
def test_what_tells_no_outcome_is_no_call_and_parts_no_turn(read: Read, kind: str) -> None:
    passed = {"type": kind, "id": "p", "call_id": "p", "status": "completed"}
    rows, faults = read(
        {"id": "e", "items": [call("a", {}), passed, call("b", {}), output("a", "dug"), passed, said()]}
    )
    assert brief(rows) == [("e", 0, 0, "a", "ok"), ("e", 0, 1, "b", "missing")]
    assert faults == []


def test_calls_of_a_program_are_not_the_models(read: Read) -> None:
    caller = {"caller": {"type": "program", "caller_id": "p"}}
    program = {"type": "program", "id": "i", "call_id": "p", "code": "dig()", "fingerprint": "f"}
    items = [call("a", {}, caller={"type": "direct"}), program, call("b", {}, **caller), call("c", {}, **caller)]
    answers = [output("b", "Error: not dug", **caller), output("c", "dug"), output("a", "dug")]
    rows, faults = read({"id": "e", "items": [*items, *answers, {"type": "program_output", "call_id": "p"}, said()]})
    assert brief(rows) == [("e", 0, 0, "a", "ok")]
    assert faults == []


def test_message_without_parts_is_of_its_response(read: Read) -> None:
    empty = {"type": "message", "role": "assistant", "content": []}
    rows, faults = read(response("r1", call("a", {}), empty, call("b", {}), model="m"))
    assert [(each.step, each.seq, each.call_id, each.model) for each in rows] == [(0, 0, "a", "m"), (0, 1, "b", "m")]
    assert faults == []


def test_item_of_a_type_not_known_is_noted(read: Read) -> None:
    rows, faults = read(
        {"id": "e", "items": [call("a", {}), {"type": "teleport_call"}, {"type": [1]}, output("a", "dug")]}
    )
    assert brief(rows) == [("e", 0, 0, "a", "ok")]
    assert kinds(faults) == [
        ("line 1, items[1], type", "unknown-item", True),
        ("line 1, items[2], type", "unknown-item", True),
    ]
    assert [each.message for each in faults] == [
        "an item of a type 'teleport_call'",
        "an item of a type that is no text",
    ]


# Items by themselves


def test_turn_ends_where_something_comes_from_outside(read: Read) -> None:
    thinking = {"type": "reasoning", "summary": []}
    rows, faults = read(
        USER,
        thinking,
        said("First the list."),
        call("a", {}),
        call("b", {}),
        output("b", "dug"),
        output("a", "Error: not dug"),
        thinking,
        call("c", {}),
        output("c", "dug"),
        said(),
        USER,
        call("d", {}),
        output("d", "dug"),
    )
    assert brief(rows) == [
        ("log", 0, 0, "a", "error"),
        ("log", 0, 1, "b", "ok"),
        ("log", 1, 0, "c", "ok"),
        ("log", 3, 0, "d", "ok"),
    ]
    assert faults == []


def test_chat_messages_among_items(read: Read) -> None:
    written = {"role": "assistant", "content": "I dig.", "tool_calls": [{"id": "a", "function": {"name": "dig"}}]}
    rows, faults = read(
        {"id": "e", "messages": [USER, written, call("b", {}), output("b", "dug"), output("a", "dug"), said()]}
    )
    assert brief(rows) == [("e", 0, 0, "a", "ok"), ("e", 0, 1, "b", "ok")]
    assert faults == []


def test_message_of_anthropic_keeps_its_turn_though_it_names_its_type(read: Read) -> None:
    def turn(name: str) -> dict[str, Any]:
        block = {"type": "tool_use", "id": name, "name": "dig", "input": {}}
        return {"type": "message", "role": "assistant", "content": [block], "stop_reason": "tool_use"}

    rows, faults = read({"id": "e", "messages": [turn("a"), turn("b")]})
    assert brief(rows) == [("e", 0, 0, "a", "missing"), ("e", 1, 0, "b", "missing")]
    assert faults == []


def test_list_on_each_line_is_an_episode_a_line(read: Read) -> None:
    rows, faults = read(
        [USER, call("a", {}), output("a", "Error: not dug")],
        [USER, call("a", {}), output("a", "dug"), said()],
        [USER, {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "dig"}}]}],
    )
    assert brief(rows) == [
        ("log:0", 0, 0, "a", "error"),
        ("log:3", 0, 0, "a", "ok"),
        ("log:7", 0, 0, "a", "missing"),
    ]
    assert rows[0].source_pos == "line 1, [1]"
    assert faults == []


def test_list_that_is_the_file_is_one_episode(tmp_path: Path, read_trace: Read) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps([USER, call("a", {}), output("a", "dug"), call("b", {}), output("b", "dug")], indent=1))
    rows, faults = read_trace(path, "chat")
    assert brief(rows) == [("run", 0, 0, "a", "ok"), ("run", 1, 0, "b", "ok")]
    assert faults == []


# Sessions of Codex


def test_session_of_codex(traces: Path, read_trace: Read) -> None:
    rows, faults = read_trace(traces / "chat" / "rollout.jsonl", "chat")
    assert faults == []
    first = {"model_requested": "m-codex", "input_tokens": 100, "cache_read_tokens": 0, "output_tokens": 20}
    first |= {"reasoning_tokens": 5, "usage_id": "thread-1/0", "episode_id": "thread-1", "tool": "shell", "step": 0}
    half = 500_000_000
    assert [plain(each) for each in rows] == [
        {
            **first,
            "call_id": "r1",
            "request": {"command": ["plant", "4"]},
            "outcome": "error",
            "error_source": "predicate",
            "response": "Error: row 4 is not dug",
            "t_start": START - 3 * 10**9 + half,
            "t_end": START - 10**9 + half,
        },
        {
            **first,
            "seq": 1,
            "call_id": "r2",
            "request": {"command": ["plant", "5"]},
            "outcome": "ok",
            "response": "planted",
            "t_start": START - 3 * 10**9 + half,
            "t_end": START + half,
        },
        {
            "episode_id": "thread-1",
            "model_requested": "m-codex",
            "step": 1,
            "call_id": "r3",
            "tool": "apply_patch",
            "request": {"input": "*** Begin Patch"},
            "outcome": "ok",
            "response": "patched",
            "input_tokens": 140,
            "cache_read_tokens": 96,
            "output_tokens": 11,
            "reasoning_tokens": 0,
            "usage_id": "thread-1/1",
            "t_start": START + 10**9 + half,
            "t_end": START + 3 * 10**9 + half,
        },
    ]
    assert rows[0].source_pos == "line 6, payload"


def test_counts_of_tokens_told_again_bill_no_other_turn(read: Read) -> None:
    def line(kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        return {"timestamp": "2031-02-03T04:05:06Z", "type": kind, "payload": payload}

    counts = {"input_tokens": 9, "cached_input_tokens": 4, "cache_write_input_tokens": 2, "output_tokens": 3}
    told = line("event_msg", {"type": "token_count", "info": {"total_token_usage": counts, "last_token_usage": counts}})
    record = line("token_usage_record", {"response_id": "resp_2", "usage": {**counts, "input_tokens": 11}})
    rows, faults = read(
        line("session_meta", {"id": "fork", "forked_from_id": "root"}),
        line("session_meta", {"id": "root"}),
        line("response_item", call("a", {})),
        told,
        line("event_msg", {"type": "token_count", "info": None}),
        line("response_item", output("a", "dug")),
        line("response_item", call("b", {})),
        told,
        line("response_item", output("b", "dug")),
        line("response_item", call("c", {})),
        record,
        line("compacted", {"message": "", "replacement_history": [call("a", {})]}),
        line("world_state", {}),
    )
    assert [(each.episode_id, each.call_id, each.input_tokens) for each in rows] == [
        ("fork", "a", 9),
        ("fork", "b", None),
        ("fork", "c", 11),
    ]
    assert (rows[0].cache_read_tokens, rows[0].cache_write_tokens, rows[1].usage_id) == (4, 2, None)
    assert faults == []


# Detection, and fields of the wrong type


@pytest.mark.parametrize(
    "record",
    [
        {"id": "r1", "object": "response", "output": []},
        {"id": "e", "items": [{"type": "function_call", "call_id": "a"}]},
        {"type": "function_call_output", "call_id": "a", "output": ""},
        [{"type": "mcp_call", "id": "a"}],
        {"timestamp": "", "type": "session_meta", "payload": {}},
    ],
)
def test_known_without_a_single_role(record: Any, tmp_path: Path) -> None:
    from invsim.traces.read import open_reader

    path = tmp_path / "log"
    path.write_text(json.dumps(record))
    assert open_reader(path).name == "chat"


@pytest.mark.parametrize("strange", [None, 7, "x", [], {}, [None], True, {"a": 1}, [[[]]]])
@pytest.mark.parametrize(
    "key",
    [
        "id", "object", "status", "model", "metadata", "conversation", "previous_response_id", "created_at", "usage",
        "incomplete_details", "input", "output", "type", "call_id", "name", "arguments", "caller", "request",
        "response", "items", "role", "content", "error", "approval_request_id", "approve", "payload", "timestamp",
        "info",
    ],
)  # fmt: skip
def test_wrong_types_in_any_field_cost_no_other_record(read: Read, key: str, strange: Any) -> None:
    def spoiled(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: strange if name == key else spoiled(each) for name, each in value.items()}
        return [spoiled(each) for each in value] if isinstance(value, list) else value

    def good(name: str) -> list[dict[str, Any]]:
        asked = {
            "type": "mcp_approval_request",
            "id": f"{name}q",
            "server_label": "g",
            "name": "dig",
            "arguments": "{}",
        }
        answer = {"type": "mcp_approval_response", "approval_request_id": f"{name}q", "approve": False}
        more = {
            "created_at": 1,
            "conversation": {"id": name},
            "metadata": {"task_id": "t"},
            "usage": {"input_tokens": 1},
        }
        tokens = {"type": "token_count", "info": {"total_token_usage": {}, "last_token_usage": {}}}
        return [
            {
                "request": {"model": "m", "input": [USER]},
                "response": response(f"{name}1", call(f"{name}a", {}), asked, **more),
            },
            {"input": [output(f"{name}a", "dug"), answer], **response(f"{name}2", said(), after=f"{name}1", **more)},
            {"id": f"{name}3", "items": [call(f"{name}b", {}), output(f"{name}b", "dug")]},
            {"timestamp": 1, "type": "response_item", "payload": call(f"{name}c", {})},
            {"timestamp": 1, "type": "event_msg", "payload": tokens},
        ]

    rows, faults = read(*good("x"), *map(spoiled, good("y")), *good("z"))
    sound = [
        each for each in rows if each.source_pos.partition(",")[0].removeprefix("line ") not in "6 7 8 9 10".split()
    ]
    assert sorted((each.call_id, each.outcome) for each in sound) == [
        (f"{name}{call_id}", outcome)
        for name in "xz"
        for call_id, outcome in (("a", "ok"), ("b", "ok"), ("c", "missing"), ("q", "denied"))
    ]
    assert all(each.place.startswith("line ") for each in faults)
