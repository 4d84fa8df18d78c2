"""OTLP spans: every row of the samples, and what goes wrong with ids, times, statuses and tokens."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Read = Callable[..., tuple[list[Any], list[Any]]]


@pytest.fixture
def spans(traces: Path) -> list[dict[str, Any]]:
    """The spans of the sample: turn, tool, turn, tool, two HTTP requests, turn, agent."""
    export = json.loads((traces / "otlp" / "agent.json").read_text())
    return export["resourceSpans"][0]["scopeSpans"][0]["spans"]


@pytest.fixture
def read(tmp_path: Path, read_trace: Read) -> Read:
    def read(spans: list[Any]) -> tuple[list[Any], list[Any]]:
        path = tmp_path / "spans.json"
        path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}))
        return read_trace(path, "otlp")

    return read


def without(span: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {**span, "attributes": [each for each in span["attributes"] if each["key"] not in keys]}


def brief(rows: list[Any]) -> list[tuple[Any, ...]]:
    return [(each.step, each.seq, each.call_id, each.tool, each.outcome) for each in rows]


CALLS = [
    (0, 0, "k1", "reserve_plot", "error"),
    (1, 0, "k2", "reserve_plot", "ok"),
    (1, 1, "k3", "list_plots", "ok"),
]


def test_agent(traces: Path, read_trace: Read) -> None:
    rows, faults = read_trace(traces / "otlp" / "agent.json", "otlp")
    assert faults == []
    assert brief(rows) == CALLS
    assert {each.episode_id for each in rows} == {"talk-1"}
    assert {(each.model, each.model_requested) for each in rows} == {("m-mini-2031-02-03", "m-mini")}
    assert (rows[0].error_source, rows[0].hint[0].path, rows[0].hint[0].value) == ("flag", "/soil", "loam")
    assert rows[1].request == {"row": 4, "soil": "loam"}
    # What the agent's span repeats is not counted, and a turn's bill once.
    bills = {each.usage_id: (each.input_tokens, each.cache_read_tokens, each.output_tokens) for each in rows}
    assert sorted(bills.values()) == [(1200, None, 30), (1280, 1152, 31)]
    # The tool sent its request twice; the model saw one answer.
    assert (rows[1].transport_retries, rows[1].status_code) == (1, 200)
    # No tool's span, but the next turn was shown the answer.
    assert (rows[2].response, rows[2].t_end) == ({"plots": [3]}, None)
    assert (rows[0].t_start, rows[0].t_end) == (1_927_944_306_000_000_021, 1_927_944_306_000_000_030)


def test_openinference_names_and_ids_in_base64(traces: Path, read_trace: Read) -> None:
    rows, faults = read_trace(traces / "otlp" / "openinference.jsonl", "otlp")
    assert faults == []
    water, weed = rows
    assert (water.episode_id, water.model, water.call_id) == ("0af7651916cd43dd8448eb211c80319c", "m-large", "q1")
    assert (water.request, water.response) == ({"row": 2}, "watered")
    assert water.usage_id == "0af7651916cd43dd8448eb211c80319c/00f067aa0ba90101"
    assert (water.input_tokens, water.cache_read_tokens, water.output_tokens) == (400, 100, 20)
    assert (weed.tool, weed.outcome, weed.call_id, weed.response) == ("weed", "timeout", None, "timed out after 5 s")


def test_arguments_that_the_model_and_the_tool_tell_differently(spans: list[Any], read: Read) -> None:
    output = next(each for each in spans[0]["attributes"] if each["key"] == "gen_ai.output.messages")
    sound = output["value"]["stringValue"]
    output["value"]["stringValue"] = sound.replace('{"row": 4}', '{"row": 5}')
    rows, _ = read(spans)
    assert (rows[0].request, rows[0].warnings) == ({"row": 5}, ("arguments-differ",))
    output["value"]["stringValue"] = sound.replace('{"row": 4}', '"row 4"')
    rows, _ = read(spans)
    assert (rows[0].request, rows[0].parse_status, rows[0].warnings) == ({"row": 4}, "ok", ())
    output["value"]["stringValue"] = sound.replace("reserve_plot", "sell_plot")  # another tool: another call
    rows, _ = read(spans)
    assert [(each.tool, each.outcome) for each in rows[:2]] == [("sell_plot", "missing"), ("reserve_plot", "error")]


def test_spans_come_in_any_order(spans: list[Any], read: Read) -> None:
    rows, faults = read(spans[::-1])
    assert brief(rows) == CALLS
    assert faults == []


def test_tools_belong_to_the_turn_before_them_where_its_output_was_not_recorded(spans: list[Any], read: Read) -> None:
    bare = [without(each, "gen_ai.output.messages", "gen_ai.input.messages") for each in spans]
    rows, _ = read(bare)
    assert brief(rows) == CALLS[:2]
    assert [each.input_tokens for each in rows] == [1200, 1280]


def test_tools_alone_are_steps_and_those_that_overlap_are_one(spans: list[Any], read: Read) -> None:
    first, second = spans[1], spans[3]
    rows, _ = read([first, second])
    assert [each.step for each in rows] == [0, 1]
    first["endTimeUnixNano"] = second["endTimeUnixNano"]
    rows, _ = read([first, second])
    assert [(each.step, each.seq) for each in rows] == [(0, 0), (0, 1)]


def test_without_times_the_order_is_flat(spans: list[Any], read: Read) -> None:
    for each in spans:
        del each["startTimeUnixNano"], each["endTimeUnixNano"]
    rows, _ = read(spans)
    assert brief(rows) == CALLS
    assert {each.order_source for each in rows} == {"flattened"}


def test_duplicate_spans(spans: list[Any], read: Read) -> None:
    unset = {**spans[1], "status": {}}
    rows, faults = read([*spans, spans[0], unset])
    assert brief(rows) == CALLS
    assert [(each.kind, each.lost) for each in faults] == [("duplicate-span", False)] * 2
    rows, _ = read([unset, *spans])  # the one with a status is kept, whichever came first
    assert rows[0].error_source == "flag"


def test_same_span_id_in_another_trace_is_another_span(spans: list[Any], read: Read) -> None:
    other = [{**without(each, "gen_ai.conversation.id"), "traceId": "f" * 32} for each in spans]
    rows, faults = read([*spans, *other])
    assert brief(rows) == CALLS * 2
    assert {each.episode_id for each in rows} == {"talk-1", "f" * 32}
    assert faults == []


def test_model_span_around_a_model_span_is_not_counted(spans: list[Any], read: Read) -> None:
    outer = {**spans[0], "spanId": "00f067aa0ba9ffff"}
    spans[0]["parentSpanId"] = outer["spanId"]
    rows, _ = read([outer, *spans])
    assert brief(rows) == CALLS
    assert rows[0].usage_id.endswith("00f067aa0ba90001")


def test_parents_in_a_ring(spans: list[Any], read: Read) -> None:
    spans[0]["parentSpanId"], spans[2]["parentSpanId"] = spans[2]["spanId"], spans[0]["spanId"]
    rows, _ = read(spans)
    assert {each.tool for each in rows} >= {"reserve_plot"}


def test_mixed_times(spans: list[Any], read: Read) -> None:
    spans[1]["startTimeUnixNano"] = 1_927_944_306_000_000_021
    spans[3]["startTimeUnixNano"] = "soon"
    rows, faults = read(spans)
    assert sorted(each.call_id for each in rows) == ["k1", "k2", "k3"]
    assert [(each.place, each.kind, each.lost) for each in faults] == [
        ("line 1, resourceSpans[0], scopeSpans[0], spans[3], startTimeUnixNano", "bad-time", False)
    ]


def test_span_without_ids_is_located(spans: list[Any], read: Read) -> None:
    del spans[3]["traceId"]
    rows, faults = read(spans)
    assert [each.call_id for each in rows] == ["k1", "k2", "k3"]
    assert rows[1].outcome == "missing"
    assert [(each.place, each.kind, each.lost) for each in faults] == [
        ("line 1, resourceSpans[0], scopeSpans[0], spans[3]", "no-id", True)
    ]


def test_torn_file_keeps_whole_spans(traces: Path, tmp_path: Path, read_trace: Read) -> None:
    data = (traces / "otlp" / "agent.json").read_bytes()
    path = tmp_path / "torn.json"
    path.write_bytes(data[: data.index(b"503")])
    rows, faults = read_trace(path, "otlp")
    assert [each[2:] for each in brief(rows)] == [
        ("k1", "reserve_plot", "error"),
        ("k2", "reserve_plot", "ok"),
        ("k3", "list_plots", "missing"),
    ]
    assert [each.kind for each in faults] == ["torn-document"]


@pytest.mark.parametrize("strange", [None, 7, "x", [], {}, [None], True, {"stringValue": 3}])
@pytest.mark.parametrize(
    "key", ["traceId", "spanId", "parentSpanId", "name", "startTimeUnixNano", "endTimeUnixNano", "attributes", "status"]
)
def test_wrong_types_in_a_span_cost_no_other_span(spans: list[Any], read: Read, key: str, strange: Any) -> None:
    spans[1][key] = strange
    rows, _ = read(spans)
    assert {each.call_id for each in rows} >= {"k2", "k3"}


@pytest.mark.parametrize(
    "strange",
    [None, {}, {"intValue": "x"}, {"arrayValue": 3}, {"kvlistValue": {"values": [1]}}, {"doubleValue": "NaN"}, 5],
)
def test_wrong_values_of_an_attribute_cost_no_row(spans: list[Any], read: Read, strange: Any) -> None:
    for at in range(len(spans[0]["attributes"])):
        before = spans[0]["attributes"][at]
        spans[0]["attributes"][at] = {"key": before["key"], "value": strange}
        rows, _ = read(spans)
        assert {each.call_id for each in rows} == {"k1", "k2", "k3"}
        spans[0]["attributes"][at] = before
