"""GenAI events, of spans and logged: every row of the samples, each shape of a message, and each call only once."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from invsim.traces.reader import HEAD
from invsim.traces.readers.otlp import OtlpReader

Read = Callable[..., tuple[list[Any], list[Any]]]

TRACE, OTHER = "a" * 32, "b" * 32
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 9}
CHOICE, DETAILS = "gen_ai.choice", "gen_ai.client.inference.operation.details"
INPUT, OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"


@pytest.fixture
def read(tmp_path: Path, read_trace: Read) -> Read:
    def read(*parts: Any) -> tuple[list[Any], list[Any]]:
        path = tmp_path / "parts.jsonl"
        path.write_text("".join(json.dumps(each) + "\n" for each in parts))
        return read_trace(path, "otlp")

    return read


def value(held: Any) -> dict[str, Any]:
    """A value as OTLP wraps it."""
    if isinstance(held, str):
        return {"stringValue": held}
    if isinstance(held, int):
        return {"intValue": str(held)}
    if isinstance(held, list):
        return {"arrayValue": {"values": [value(each) for each in held]}}
    return {"kvlistValue": {"values": attributes(held)}}


def attributes(told: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value(each)} for key, each in told.items()]


def event(name: str, **told: Any) -> dict[str, Any]:
    return {"name": name, "timeUnixNano": "1927944306000000020", "attributes": attributes(told)}


def span(number: int, told: dict[str, Any], *events: Any, **more: Any) -> dict[str, Any]:
    """A span of its own place in time."""
    start = 1_927_944_306_000_000_000 + 10 * number
    return {
        "traceId": TRACE,
        "spanId": f"{number:016x}",
        "name": "work",
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + 5),
        "attributes": attributes(told),
        "events": list(events),
        **more,
    }


def tool(number: int, name: str, told: dict[str, Any], *events: Any, **more: Any) -> dict[str, Any]:
    own = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
    return span(number, {**own, **told}, *events, **more)


def spans(*held: Any) -> dict[str, Any]:
    return {"resourceSpans": [{"scopeSpans": [{"spans": list(held)}]}]}


def logs(*held: Any) -> dict[str, Any]:
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": list(held)}]}]}


def record(number: int, name: str, body: Any = None, **told: Any) -> dict[str, Any]:
    """A log record in the context of a span."""
    return {
        "traceId": TRACE,
        "spanId": f"{number:016x}",
        "eventName": name,
        "timeUnixNano": str(1_927_944_306_000_000_000 + 10 * number),
        "attributes": attributes(told),
        **({} if body is None else {"body": value(body)}),
    }


def called(call_id: str, **request: Any) -> dict[str, Any]:
    """A call as OpenAI writes it."""
    return {"id": call_id, "type": "function", "function": {"name": "dig", "arguments": json.dumps(request)}}


def part(call_id: str, **request: Any) -> dict[str, Any]:
    """A call as the conventions have it."""
    return {"type": "tool_call", "id": call_id, "name": "dig", "arguments": request}


def turn(*parts: Any, role: str = "assistant") -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


def answer(call_id: str, response: Any) -> dict[str, Any]:
    return turn({"type": "tool_call_response", "id": call_id, "response": response}, role="tool")


def chose(*calls: Any, **more: Any) -> dict[str, Any]:
    return event(CHOICE, **{"gen_ai.event.content": json.dumps({"message": {"tool_calls": list(calls)}, **more})})


def brief(rows: list[Any]) -> list[tuple[Any, ...]]:
    return [(each.step, each.seq, each.call_id, each.tool, each.outcome) for each in rows]


# Samples -------------------------------------------------------------------------------------------------------------


def test_events_of_spans(traces: Path, read_trace: Read) -> None:
    rows, faults = read_trace(traces / "otlp" / "events.jsonl", "otlp")
    assert faults == []
    assert [(each.episode_id[0], *told) for each, told in zip(rows, brief(rows), strict=True)] == [
        ("a", 0, 0, "e1", "plant", "error"),
        ("a", 1, 0, "e2", "plant", "missing"),
        ("b", 0, 0, "e3", "weed", "error"),
        ("b", 0, 1, "e4", "rake", "ok"),
        ("c", 0, 0, "e5", "sow", "missing"),
    ]
    assert [each.request for each in rows] == [
        {"row": 4},
        {"row": 4, "soil": "loam"},
        {"row": 8},
        {"row": 8},
        {"row": 2},
    ]
    assert (rows[0].hint[0].path, rows[0].hint[0].value, rows[0].error_source) == ("/soil", "loam", "predicate")
    assert (rows[2].response, rows[2].error_source, rows[3].response) == ("nothing grows there", "flag", {"raked": 8})
    assert {each.order_source for each in rows} == {"timestamp"}
    bills = {each.usage_id[-2:]: (each.input_tokens, each.cache_write_tokens, each.output_tokens) for each in rows}
    assert bills == {"a1": (100, None, 9), "a2": (140, None, 12), "b1": (200, None, 20), "c1": (300, 50, 30)}
    assert [each.finish_reason for each in rows] == ["tool_calls", "tool_calls", "tool_use", "tool_use", "tool_call"]


def test_log_records(traces: Path, read_trace: Read) -> None:
    """In the first trace they belong to spans, in the second they are all there is."""
    rows, faults = read_trace(traces / "otlp" / "logs.jsonl", "otlp")
    assert faults == []
    assert [(each.episode_id[:6], *told) for each, told in zip(rows, brief(rows), strict=True)] == [
        ("dddddd", 0, 0, "l1", "water", "ok"),
        ("dddddd", 0, 1, "l2", "water", "error"),
        ("talk-2", 0, 0, "l0", "mow", "ok"),
        ("talk-2", 1, 0, "l3", "mow", "error"),
        ("talk-2", 2, 0, "l4", "mow", "missing"),
    ]
    assert [(each.usage_id and each.usage_id[-2:], each.input_tokens, each.model) for each in rows] == [
        ("d1", 400, "m-mini-1"),
        ("d1", 400, "m-mini-1"),
        (None, None, None),
        ("e1", 500, "m-mini-1"),
        ("e2", 540, "m-mini-1"),
    ]
    assert [each.warnings for each in rows] == [(), (), ("from-history",), (), ("log-ends",)]


# Each call once ------------------------------------------------------------------------------------------------------


def test_call_that_is_told_of_everywhere_counts_once(read: Read) -> None:
    told = {
        **CHAT,
        OUTPUT: json.dumps([turn(part("k", row=1))]),
        "llm.output_messages.0.message.tool_calls.0.tool_call.id": "k",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "dig",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": '{"row": 1}',
    }
    details = event(DETAILS, **{"gen_ai.usage.input_tokens": 7, OUTPUT: json.dumps([turn(part("k", row=2))])})
    later = span(3, {**CHAT, INPUT: json.dumps([turn(part("k", row=1)), answer("k", "dug")])}, chose())
    ran = tool(2, "dig", {"gen_ai.tool.call.id": "k", "gen_ai.tool.call.result": "deep"})
    whole = [spans(span(1, told, chose(called("k", row=1)), details)), logs(record(1, CHOICE, {"tool_calls": []}))]
    rows, faults = read(*whole, spans(later))
    assert brief(rows) == [(0, 0, "k", "dig", "ok")]
    assert (rows[0].response, rows[0].input_tokens, rows[0].output_tokens) == ("dug", 100, 9)
    rows, _ = read(*whole, spans(later, ran))
    assert brief(rows) == [(0, 0, "k", "dig", "ok")]
    assert rows[0].response == "deep"
    assert faults == []


def test_event_that_was_recorded_of_the_span_and_logged_tells_of_one_call(read: Read) -> None:
    logged = record(1, CHOICE, {"message": {"tool_calls": [called("k", row=1), called("l", row=1)]}})
    rows, faults = read(spans(span(1, CHAT, chose(called("k", row=1)))), logs(logged))
    assert brief(rows) == [(0, 0, "k", "dig", "missing"), (0, 1, "l", "dig", "missing")]
    assert faults == []


def test_log_record_that_was_sent_again_counts_once(read: Read) -> None:
    nameless = {"function": {"name": "dig", "arguments": "{}"}}
    logged = record(1, CHOICE, {"message": {"tool_calls": [nameless, nameless]}})
    rows, faults = read(spans(span(1, CHAT)), logs(logged), logs(logged))
    assert brief(rows) == [(0, 0, None, "dig", "missing"), (0, 1, None, "dig", "missing")]
    assert [(each.place, each.kind, each.lost) for each in faults] == [
        ("line 3, resourceLogs[0], scopeLogs[0], logRecords[0]", "duplicate-event", False)
    ]


def test_choices_of_agents_and_of_tools_are_no_turns(read: Read) -> None:
    agent = span(0, {"gen_ai.operation.name": "invoke_agent"}, chose(called("a", row=1)))
    ran = tool(2, "dig", {}, chose(called("b", row=1)))
    rows, _ = read(spans(agent, span(1, CHAT, chose(called("k", row=1))), ran))
    assert [each.call_id for each in rows] == ["k"]
    assert rows[0].warnings == ("matched-by-order",)


def test_turn_whose_output_tells_of_no_call_is_read_from_the_next_place_that_does(read: Read) -> None:
    broken = {**CHAT, OUTPUT: "[{"}
    rows, faults = read(spans(span(1, broken, chose(called("k", row=1)))))
    assert brief(rows) == [(0, 0, "k", "dig", "missing")]
    assert [(each.place, each.kind, each.lost) for each in faults] == [
        (f"line 1, resourceSpans[0], scopeSpans[0], spans[0], attributes, {OUTPUT}", "bad-attribute", False)
    ]


def test_span_around_the_requests_of_a_turn_tells_what_the_last_of_them_was_answered(read: Read) -> None:
    outer = span(1, {**CHAT, INPUT: json.dumps([answer("j", "dug")])}, chose(called("k", row=1)))
    inner = [span(at, CHAT, parentSpanId=outer["spanId"]) for at in (2, 3)]
    before = span(0, CHAT, chose(called("j", row=0)))
    rows, faults = read(spans(before, outer, *inner))
    assert brief(rows) == [(0, 0, "j", "dig", "ok"), (2, 0, "k", "dig", "missing")]
    assert [each.usage_id[-1] for each in rows] == ["0", "3"]
    inner[1]["events"] = [chose(called("l", row=2))]
    assert [each.call_id for each in read(spans(before, outer, *inner))[0]] == ["j", "l"]
    assert faults == []


# Shapes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "told",
    [
        {"gen_ai.event.content": json.dumps({"message": {"tool_calls": [called("k", row=1)]}})},
        {"gen_ai.event.content": json.dumps({"tool_calls": [called("k", row=1)]})},
        {"message": json.dumps({"role": "assistant", "tool_calls": [called("k", row=1)]})},
        {"message": json.dumps(turn(part("k", row=1)))},
        {"tool_calls": json.dumps([called("k", row=1)])},
        {"message": json.dumps([{"text": "So"}, {"toolUse": {"toolUseId": "k", "name": "dig", "input": {"row": 1}}}])},
        {"message": json.dumps([{"type": "tool_use", "id": "k", "name": "dig", "input": {"row": 1}}])},
        {"message": {"content": [{"type": "tool_use", "id": "k", "name": "dig", "input": {"row": 1}}]}},
    ],
)
def test_choice_in_every_shape(read: Read, told: dict[str, Any]) -> None:
    rows, faults = read(spans(span(1, CHAT, event(CHOICE, **told))))
    assert (brief(rows), rows[0].request) == ([(0, 0, "k", "dig", "missing")], {"row": 1})
    assert faults == []


@pytest.mark.parametrize(
    "more",
    [
        {"body": value({"message": {"tool_calls": [called("k", row=1)]}})},
        {"body": value(json.dumps({"message": {"tool_calls": [called("k", row=1)]}}))},
        {"body": {"message": {"tool_calls": [called("k", row=1)]}}},
        {"body": value({"tool_calls": [called("k", row=1)], "message": {"role": "assistant"}})},
        {"attributes": attributes({"event.name": CHOICE, "tool_calls": json.dumps([called("k", row=1)])})},
    ],
)
def test_choice_that_was_logged_in_every_shape(read: Read, more: dict[str, Any]) -> None:
    logged = record(1, CHOICE) | more
    if "attributes" in more:
        del logged["eventName"]
    rows, faults = read(spans(span(1, CHAT)), logs(logged))
    assert (brief(rows), rows[0].request) == ([(0, 0, "k", "dig", "missing")], {"row": 1})
    assert faults == []


TOOL = "gen_ai.tool.message"


@pytest.mark.parametrize(
    ("told", "events", "outcome"),
    [
        ({INPUT: [answer("k", "dug")]}, [], "ok"),
        ({INPUT: json.dumps([answer("k", {"error": "no"})])}, [], "error"),
        (
            {INPUT: json.dumps([turn({"type": "tool_call_response", "id": "k", "result": "dug"}, role="tool")])},
            [],
            "ok",
        ),
        ({INPUT: json.dumps([{"role": "tool", "tool_call_id": "k", "content": "dug"}])}, [], "ok"),
        ({}, [event(TOOL, **{"gen_ai.event.content": json.dumps({"id": "k", "content": "dug"})})], "ok"),
        ({}, [event(TOOL, **{"gen_ai.event.content": json.dumps({"tool_call_id": "k", "content": "dug"})})], "ok"),
        ({}, [event(TOOL, id="k", content="dug")], "ok"),
        ({}, [event(TOOL, content=json.dumps([{"toolResult": {"toolUseId": "k", "content": [{"text": "x"}]}}]))], "ok"),
        (
            {},
            [event(TOOL, content=json.dumps([{"toolResult": {"toolUseId": "k", "status": "error", "content": []}}]))],
            "error",
        ),
        (
            {},
            [
                event(
                    "gen_ai.user.message",
                    content=json.dumps([{"type": "tool_result", "tool_use_id": "k", "content": "x", "is_error": True}]),
                )
            ],
            "error",
        ),
        ({}, [event(DETAILS, **{INPUT: json.dumps([answer("k", "dug")])})], "ok"),
        (
            {"llm.input_messages.2.message.tool_call_id": "k", "llm.input_messages.2.message.role": "tool"}
            | {"llm.input_messages.2.message.content": "Error: must not"},
            [],
            "error",
        ),
        (
            {"llm.input_messages.2.message.tool_call_id": "k", "llm.input_messages.2.message.role": "tool"}
            | {"llm.input_messages.2.message.contents.0.message_content.text": "Error: must not"},
            [],
            "error",
        ),
        (
            {"gen_ai.prompt.2.role": "tool", "gen_ai.prompt.2.tool_call_id": "k", "gen_ai.prompt.2.content": "x"},
            [],
            "ok",
        ),
        ({INPUT: json.dumps([answer("another", "dug")])}, [], "missing"),
    ],
)
def test_answer_in_every_shape(read: Read, told: dict[str, Any], events: list[Any], outcome: str) -> None:
    rows, faults = read(spans(span(1, CHAT, chose(called("k", row=1))), span(2, {**CHAT, **told}, *events)))
    assert brief(rows) == [(0, 0, "k", "dig", outcome)]
    assert faults == []


def test_text_that_reads_like_a_call_is_text(read: Read) -> None:
    text = json.dumps([{"toolUse": {"toolUseId": "x", "name": "dig", "input": {}}}])
    said = {"role": "assistant", "content": text}
    told = {**CHAT, INPUT: json.dumps([said, turn({"type": "text", "content": text}), turn(part("k", row=1))])}
    told |= {"llm.output_messages.0.message.content": text, "llm.output_messages.0.message.role": "assistant"}
    events = [
        event("gen_ai.assistant.message", **{"gen_ai.event.content": json.dumps(said)}),
        event(CHOICE, **{"gen_ai.event.content": json.dumps({"message": said})}),
    ]
    logged = [record(1, CHOICE, {"message": {"content": text}}), record(1, "gen_ai.assistant.message", text)]
    rows, _ = read(spans(span(1, told, *events)), logs(*logged))
    assert [each.call_id for each in rows] == ["k"]


def test_calls_spread_over_attributes(read: Read) -> None:
    """OpenInference and OpenLLMetry, in the order of their numbers; one of them without an id."""
    told = {
        "openinference.span.kind": "LLM",
        "llm.output_messages.10.message.tool_calls.0.tool_call.function.name": "last",
        "llm.output_messages.2.message.tool_calls.1.tool_call.function.name": "second",
        "llm.output_messages.2.message.tool_calls.0.tool_call.id": "k",
        "llm.output_messages.2.message.tool_calls.0.tool_call.function.name": "first",
        "llm.output_messages.2.message.tool_calls.0.tool_call.function.arguments": '{"row": 1}',
    }
    rows, _ = read(spans(span(1, told)))
    assert [(each.tool, each.call_id, each.request) for each in rows] == [
        ("first", "k", {"row": 1}),
        ("second", None, {}),
        ("last", None, {}),
    ]
    told = {"gen_ai.completion.0.tool_calls": json.dumps([called("k", row=1)]), "gen_ai.completion.0.role": "assistant"}
    rows, _ = read(spans(span(1, {**CHAT, **told, "gen_ai.completion.0.finish_reason": "tool_calls"})))
    assert [(each.tool, each.request, each.finish_reason) for each in rows] == [("dig", {"row": 1}, "tool_calls")]


@pytest.mark.parametrize(("reason", "status"), [("length", "truncated"), ("tool_calls", "invalid")])
def test_finish_reason_of_a_choice_tells_whether_arguments_were_cut(read: Read, reason: str, status: str) -> None:
    call = {"id": "k", "function": {"name": "dig", "arguments": '{"row" 1}'}}
    rows, _ = read(spans(span(1, CHAT, chose(call, finish_reason=reason))))
    assert (rows[0].finish_reason, rows[0].parse_status) == (reason, status)


def test_choice_that_was_filtered_is_a_refusal(read: Read) -> None:
    rows, _ = read(
        spans(span(1, CHAT, chose(called("k", row=1))), span(2, CHAT, chose(finish_reason="content_filter")))
    )
    assert rows[0].warnings == ("refused-next",)


# Tools ---------------------------------------------------------------------------------------------------------------


def test_tool_that_tells_of_itself_in_events(read: Read) -> None:
    details = [
        event(DETAILS, **{INPUT: json.dumps([turn(part("k", row=1), role="tool")])}),
        event(DETAILS, **{OUTPUT: json.dumps([answer("k", [{"text": "deep"}, {"text": "down"}])])}),
    ]
    alone = [event(TOOL, id="k", content="dug")]  # the answer, if there is no choice besides
    for events, request, response in ((details, {"row": 1}, "deep\ndown"), (alone, {}, "dug")):
        rows, _ = read(spans(tool(1, "dig", {"gen_ai.tool.call.id": "k"}, *events)))
        assert [(each.call_id, each.request, each.response) for each in rows] == [("k", request, response)]


def test_answer_of_a_tool_that_kept_it_to_itself_is_what_the_model_was_shown(read: Read) -> None:
    ran = tool(2, "dig", {"gen_ai.tool.call.id": "k", "error.type": "no_soil"}, status={"code": 2, "message": "failed"})
    shown = {"error": {"message": "soil is required", "suggestion": {"merge": {"soil": "loam"}}}}
    later = span(3, {**CHAT, INPUT: json.dumps([answer("k", shown)])})
    rows, _ = read(spans(span(1, CHAT, chose(called("k", row=1))), ran, later))
    assert (rows[0].response, rows[0].outcome, rows[0].hint[0].path) == (shown, "error", "/soil")
    rows, _ = read(spans(span(1, CHAT, chose(called("k", row=1))), ran))
    assert (rows[0].response, rows[0].outcome, rows[0].hint) == ("failed", "error", ())


def test_exception_that_a_tool_recorded(read: Read) -> None:
    raised = event("exception", **{"exception.type": "ReadTimeout", "exception.message": "no answer"})
    rows, _ = read(spans(tool(1, "dig", {}, raised, status={"code": 2})))
    assert (rows[0].outcome, rows[0].response) == ("timeout", "no answer")
    rows, _ = read(spans(tool(1, "dig", {"gen_ai.tool.call.result": "dug"}, raised)))  # it was caught
    assert (rows[0].outcome, rows[0].response) == ("ok", "dug")
    rows, _ = read(spans(tool(1, "dig", {"tool.status": "error", "gen_ai.tool.call.result": "hm"})))
    assert (rows[0].outcome, rows[0].response) == ("error", "hm")


def test_tools_without_an_id_ran_for_the_calls_of_the_turn_before_them(read: Read) -> None:
    one, two = ({"gen_ai.tool.call.arguments": json.dumps({"row": row})} for row in (1, 2))
    asks = span(1, CHAT, chose(called("k", row=1), called("l", row=2)))
    rows, _ = read(spans(asks, tool(2, "dig", two), tool(3, "dig", one), span(4, CHAT), tool(5, "dig", one)))
    assert brief(rows) == [(0, 0, "k", "dig", "ok"), (0, 1, "l", "dig", "ok"), (1, 0, None, "dig", "ok")]
    assert [each.source_pos[-8:] for each in rows] == ["spans[2]", "spans[1]", "spans[4]"]
    assert [each.warnings for each in rows] == [("matched-by-order",), ("matched-by-order",), ()]


def test_call_without_an_id_takes_no_tool_that_another_turn_asked_for(read: Read) -> None:
    nameless = {"function": {"name": "dig", "arguments": "{}"}}
    early = span(1, CHAT, chose(nameless))
    ran = tool(2, "dig", {"gen_ai.tool.call.id": "k"})
    rows, _ = read(spans(early, span(1, CHAT, chose(called("k")), spanId="f" * 16), ran))
    assert sorted(brief(rows)) == [(0, 0, None, "dig", "missing"), (1, 0, "k", "dig", "ok")]
    rows, _ = read(spans(early, ran))
    assert brief(rows) == [(0, 0, "k", "dig", "ok")]


def test_tool_of_another_id_or_of_a_later_turn_ran_for_another_call(read: Read) -> None:
    asks = span(1, CHAT, chose(called("k", row=1)))
    rows, _ = read(spans(asks, tool(2, "dig", {"gen_ai.tool.call.id": "l"})))
    assert brief(rows) == [(0, 0, "k", "dig", "missing"), (0, 1, "l", "dig", "ok")]
    rows, _ = read(spans(asks, span(2, CHAT), tool(3, "dig", {"gen_ai.tool.call.arguments": '{"row": 1}'})))
    assert brief(rows) == [(0, 0, "k", "dig", "missing"), (1, 0, None, "dig", "ok")]


# Histories -----------------------------------------------------------------------------------------------------------


def test_calls_that_only_a_history_tells_of_are_turns_before_it(read: Read) -> None:
    shown = [
        turn(part("a", row=1), part("b", row=2)),
        answer("a", "dug"),
        turn(part("k", row=3)),
        turn(part("c", row=4)),
    ]
    rows, faults = read(spans(span(1, CHAT, chose(called("k", row=3))), span(2, {**CHAT, INPUT: json.dumps(shown)})))
    assert [(*told, each.warnings, each.usage_id is None) for each, told in zip(rows, brief(rows), strict=True)] == [
        (0, 0, "a", "dig", "ok", ("from-history",), True),
        (0, 1, "b", "dig", "missing", ("from-history",), True),
        (1, 0, "k", "dig", "missing", (), False),
        (2, 0, "c", "dig", "missing", ("from-history",), True),
    ]
    assert faults == []


def test_call_that_a_turns_output_lacks_belongs_to_it_still(read: Read) -> None:
    shown = [turn(part("k", row=1), part("l", row=2)), answer("l", "dug")]
    rows, _ = read(spans(span(1, CHAT, chose(called("k", row=1))), span(2, {**CHAT, INPUT: json.dumps(shown)})))
    assert brief(rows) == [(0, 0, "k", "dig", "missing"), (0, 1, "l", "dig", "ok")]
    nameless = {"id": "k", "function": {"arguments": '{"row": 1}'}}
    rows, faults = read(spans(span(1, CHAT, chose(nameless)), span(2, {**CHAT, INPUT: json.dumps(shown)})))
    assert brief(rows) == [(0, 0, "k", "dig", "missing"), (0, 1, "l", "dig", "ok")]
    assert faults == []


def test_history_is_repeated_and_counts_once_in_a_file(read: Read) -> None:
    assistant = "gen_ai.assistant.message"
    shown = event(assistant, **{"gen_ai.event.content": json.dumps({"tool_calls": [called("a", row=1)]})})
    again = span(3, CHAT, shown, traceId=OTHER)
    ran = tool(4, "dig", {"gen_ai.tool.call.id": "b"}, traceId=OTHER)
    told = {**CHAT, INPUT: json.dumps([turn(part("b", row=1))])}
    rows, _ = read(spans(span(1, CHAT, shown), span(2, CHAT, shown), again, ran, span(5, told)))
    assert [(each.episode_id[0], each.call_id) for each in rows] == [("a", "a"), ("b", "b")]


def test_history_without_ids_is_never_counted(read: Read) -> None:
    nameless = {"type": "tool_call", "name": "dig", "arguments": {}}
    rows, _ = read(spans(span(1, {**CHAT, INPUT: json.dumps([turn(nameless)])})))
    assert rows == []


def test_history_of_a_tool_that_ran_without_an_id_counts_once(read: Read) -> None:
    ran = tool(2, "dig", {"gen_ai.tool.call.arguments": '{"row": 1}'})
    shown = [turn(part("k", row=1)), turn(part("l", row=1))]
    for parts in (
        (span(1, CHAT), ran, span(3, {**CHAT, INPUT: json.dumps(shown)})),
        (ran, span(3, {**CHAT, INPUT: shown})),
    ):
        rows, _ = read(spans(*parts))
        assert sorted((each.call_id or "", each.tool) for each in rows) == [("", "dig"), ("k", "dig")]


# Log records without spans -------------------------------------------------------------------------------------------


def test_logged_requests_are_turns_though_no_span_is_there(read: Read) -> None:
    first = [
        record(1, "gen_ai.user.message", {"content": "Dig"}),
        record(1, CHOICE, {"message": {"tool_calls": [called("k")]}}),
    ]
    failed = record(2, TOOL, {"id": "k", "content": "Error: must not"})
    rows, faults = read(logs(*first, failed))
    # Nothing is known of what the model answered to that: the log ends there.
    assert [(*told, each.warnings) for each, told in zip(rows, brief(rows), strict=True)] == [
        (0, 0, "k", "dig", "error", ("log-ends",))
    ]
    rows, _ = read(logs(*first, failed, record(2, CHOICE, {"finish_reason": "stop", "message": {"content": "No."}})))
    assert rows[0].warnings == ()
    assert (rows[0].episode_id, rows[0].usage_id, rows[0].t_start) == (TRACE, None, 1_927_944_306_000_000_010)
    assert faults == []


def test_log_records_without_a_context(read: Read) -> None:
    def loose(number: int, name: str, **told: Any) -> dict[str, Any]:
        return {key: each for key, each in record(number, name, **told).items() if key not in ("traceId", "spanId")}

    told = {**CHAT, OUTPUT: [turn(part("k", row=1))]}
    rows, _ = read(logs(loose(1, DETAILS, **told), loose(2, DETAILS, **{**CHAT, INPUT: [answer("k", "dug")]})))
    assert [(each.episode_id, *told) for each, told in zip(rows, brief(rows), strict=True)] == [
        ("parts", 0, 0, "k", "dig", "ok")
    ]
    rows, _ = read(logs(loose(1, DETAILS, **{**told, "gen_ai.conversation.id": "talk"})))
    assert [each.episode_id for each in rows] == ["talk"]
    several = [loose(at, DETAILS, **{**told, "gen_ai.conversation.id": f"talk-{at}"}) for at in (1, 2)]
    assert [each.episode_id for each in read(logs(*several))[0]] == ["talk-1", "talk-2"]


def test_record_that_names_a_tool_is_a_tool(read: Read) -> None:
    told = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "dig", "gen_ai.tool.call.id": "k"}
    rows, _ = read(logs(record(1, DETAILS, **told, **{OUTPUT: [answer("k", "dug")]})))
    assert [(each.call_id, each.response) for each in rows] == [("k", "dug")]


def test_log_records_of_other_kinds_are_passed_over(read: Read) -> None:
    other = record(9, "exception", {"message": {"tool_calls": [called("a")]}})
    plain = {key: each for key, each in record(9, "x", "hello").items() if key != "eventName"}
    for each in (other, plain):
        del each["timeUnixNano"]
    rows, faults = read(logs(other, plain), spans(span(1, CHAT, chose(called("k")))))
    assert [(each.call_id, each.order_source) for each in rows] == [("k", "timestamp")]
    assert faults == []


def test_log_record_a_line(read: Read, tmp_path: Path) -> None:
    rows, faults = read(record(1, CHOICE, {"message": {"tool_calls": [called("k")]}}), span(1, CHAT))
    assert brief(rows) == [(0, 0, "k", "dig", "missing")]
    assert (rows[0].input_tokens, faults) == (100, [])
    head = json.dumps(record(1, CHOICE)).encode()[:HEAD]
    assert OtlpReader().detect(head, tmp_path)
    assert OtlpReader().detect(b'{"eventName": "gen_ai.choice", "body": {}}', tmp_path)
    assert OtlpReader().detect(b'{"resourceLogs": [', tmp_path)
    assert not OtlpReader().detect(b'{"eventName": "click"}', tmp_path)


# Damage --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strange", [None, 7, "x", "[", [], {}, [None], True, {"stringValue": 3}, {"kvlistValue": 1}])
@pytest.mark.parametrize("key", ["name", "timeUnixNano", "attributes"])
def test_wrong_types_in_an_event_cost_no_other_event(read: Read, key: str, strange: Any) -> None:
    broken = {**chose(called("a", row=1)), key: strange}
    rows, _ = read(spans(span(1, CHAT, broken, chose(called("k", row=1)))))
    assert "k" in {each.call_id for each in rows}


@pytest.mark.parametrize("strange", [None, 7, "x", "[", [], {}, [None], True, {"stringValue": 3}, {"kvlistValue": 1}])
@pytest.mark.parametrize("key", ["eventName", "timeUnixNano", "attributes", "body", "traceId", "spanId"])
def test_wrong_types_in_a_log_record_cost_no_other_record(read: Read, key: str, strange: Any) -> None:
    broken = {**record(1, CHOICE, {"message": {"tool_calls": [called("a")]}}), key: strange}
    rows, _ = read(logs(broken, record(2, CHOICE, {"message": {"tool_calls": [called("k")]}})))
    assert "k" in {each.call_id for each in rows}


@pytest.mark.parametrize("strange", [None, 7, "x", [], {}, [None], [[]], True, {"tool_calls": 3}, {"parts": [7, {}]}])
def test_wrong_types_in_a_message_cost_no_other_message(read: Read, strange: Any) -> None:
    told = {**CHAT, OUTPUT: json.dumps([turn(part("k", row=1)), strange]), INPUT: json.dumps([strange, answer("z", 1)])}
    rows, _ = read(spans(span(1, told), span(2, CHAT, event(CHOICE, message=json.dumps(strange)), chose(called("l")))))
    assert [each.call_id for each in rows] == ["k", "l"]
