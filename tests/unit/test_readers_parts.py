"""The small parts that the trace readers share: times, arguments, usage, outcomes, hints, fields, broken JSON."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from invsim.traces.reader import Faults
from invsim.traces.readers.arguments import parse_arguments, shallow
from invsim.traces.readers.fields import Fields, as_count
from invsim.traces.readers.hints import find_hint
from invsim.traces.readers.outcomes import as_status, complains, judge, status_of
from invsim.traces.readers.records import decode, read_records
from invsim.traces.readers.salvage import salvage
from invsim.traces.readers.times import moment
from invsim.traces.readers.usage import Usage, chat_usage, codex_usage, inspect_usage, span_usage
from invsim.traces.schema import Op

NOON = 1_927_929_600 * 10**9
"""2031-02-04T00:00:00Z."""


def fields(data: dict[str, Any]) -> Fields:
    return Fields(data, "here", Faults("file"))


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


# Times


@pytest.mark.parametrize(
    ("written", "ns"),
    [
        ("2031-02-04T00:00:00Z", NOON),
        ("2031-02-04T02:00:01+02:00", NOON + 10**9),
        ("2031-02-04 00:00:00.123456789Z", NOON + 123_456_789),
        ("2031-02-04T00:00:00.5UTC", NOON + 500_000_000),
        (1_927_929_600, NOON),
        (1_927_929_600.25, NOON + 250_000_000),
        ("1927929600.25", NOON + 250_000_000),
        (1_927_929_600_000, NOON),
        (1_927_929_600_000_000, NOON),
        ("1927929600000000001", NOON + 1),
    ],
)
def test_times_of_every_unit(written: Any, ns: int) -> None:
    assert moment(written) == (ns, False)


def test_time_without_zone_is_taken_for_utc_and_says_so() -> None:
    assert moment("2031-02-04T00:00:00") == (NOON, True)


@pytest.mark.parametrize(
    "written",
    [
        None,
        True,
        "",
        "soon",
        0,
        -5,
        "0",
        float("nan"),
        10**30,
        "9" * 25,
        [],
        {},
        "2031-13-45T00:00:00Z",
        "9999-12-31T23:59:59Z",
    ],
)
def test_what_is_no_time(written: Any) -> None:
    assert moment(written) is None


@given(st.one_of(st.text(), st.integers(), st.floats(), st.booleans(), st.none()))
def test_any_time_fits_or_is_none(written: Any) -> None:
    found = moment(written)
    assert found is None or 0 < found.ns < 2**63


# Arguments


@pytest.mark.parametrize(
    ("written", "cut", "asked", "raw", "status"),
    [
        ({"row": 4}, False, {"row": 4}, None, "ok"),
        ('{"row": 4}', False, {"row": 4}, None, "ok"),
        (None, False, {}, None, "ok"),
        ("", False, {}, None, "ok"),
        (None, True, None, None, "truncated"),
        ('{"row": 4', True, None, '{"row": 4', "truncated"),
        ('{"row": 4', False, None, '{"row": 4', "truncated"),
        ('{"soil": "lo', False, None, '{"soil": "lo', "truncated"),
        ('{"row" 4}', False, None, '{"row" 4}', "invalid"),
        ('{"row": NaN}', False, None, '{"row": NaN}', "invalid"),
        ('{"row": 1e999}', False, None, '{"row": 1e999}', "invalid"),
        ('{"soil": "\\ud800"}', False, None, '{"soil": "\\ud800"}', "invalid"),
        ('"{\\"row\\": 4}"', False, {"row": 4}, '"{\\"row\\": 4}"', "double_encoded"),
        ('"row 4"', False, None, '"row 4"', "invalid"),
        ("[4]", False, None, "[4]", "invalid"),
        ("four", False, None, "four", "invalid"),
        ([4], False, None, "[4]", "invalid"),
        (4, False, None, "4", "invalid"),
    ],
)
def test_arguments(written: Any, cut: bool, asked: Any, raw: Any, status: str) -> None:
    assert parse_arguments(written, cut=cut)[:3] == (asked, raw, status)


def test_field_that_holds_json_stays_text_and_is_noted() -> None:
    found = parse_arguments('{"row": 4, "soil": "{\\"kind\\": \\"loam\\"}"}')
    assert found.request == {"row": 4, "soil": '{"kind": "loam"}'}
    assert (found.status, found.warnings) == ("ok", ("encoded-field",))


def test_arguments_too_deep_to_write_are_invalid() -> None:
    assert parse_arguments({"row": nested(300)}).status == "invalid"
    assert parse_arguments('{"row": ' + "[" * 100_000).request is None
    assert shallow(nested(150))
    assert not shallow(nested(300))


# Usage


@pytest.mark.parametrize(
    ("written", "usage"),
    [
        (
            {"input_tokens": 5, "cache_read_input_tokens": 900, "cache_creation_input_tokens": 95, "output_tokens": 7},
            Usage(1000, 900, 95, 7),
        ),
        ({"input_tokens": 5, "output_tokens": 7}, Usage(5, None, None, 7)),
        (
            {"prompt_tokens": 1000, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 900}},
            Usage(1000, 900, None, 7),
        ),
        (
            {
                "input_tokens": 1000,
                "output_tokens": 7,
                "input_tokens_details": {"cached_tokens": 900},
                "output_tokens_details": {"reasoning_tokens": 3},
            },
            Usage(1000, 900, None, 7, 3),
        ),
        (
            {"input_tokens": 99, "input_tokens_details": {"cached_tokens": 9, "cache_write_tokens": 6}},
            Usage(99, 9, 6),
        ),
        ({"prompt_tokens": "many", "completion_tokens": -1}, Usage()),
        ({"input_tokens": 2**63 - 1, "cache_read_input_tokens": 1}, Usage(None, 1)),
    ],
)  # fmt: skip
def test_usage_of_chat_messages_counts_the_cache_in(written: dict[str, Any], usage: Usage) -> None:
    assert chat_usage(fields(written)) == usage


def test_usage_of_codex_counts_the_cache_in() -> None:
    written = {"input_tokens": 1000, "cached_input_tokens": 900, "cache_write_input_tokens": 60, "output_tokens": 7}
    assert codex_usage(fields({**written, "reasoning_output_tokens": 3})) == Usage(1000, 900, 60, 7, 3)
    assert codex_usage(fields({})) == Usage()


@pytest.mark.parametrize(
    ("written", "excludes", "whole"),
    [
        ({"input_tokens": 600, "output_tokens": 20, "total_tokens": 620, "input_tokens_cache_read": 500}, True, 600),
        ({"input_tokens": 100, "output_tokens": 20, "total_tokens": 620, "input_tokens_cache_read": 500}, False, 600),
        ({"input_tokens": 100, "output_tokens": 20, "input_tokens_cache_read": 500}, True, 600),
        ({"input_tokens": 600, "output_tokens": 20, "input_tokens_cache_read": 500}, False, 600),
    ],
)
def test_usage_of_inspect_is_told_by_its_total_and_else_by_the_version(
    written: dict[str, Any], excludes: bool, whole: int
) -> None:
    assert inspect_usage(fields(written), excludes_cache=excludes).input == whole


def test_usage_of_spans() -> None:
    told = {
        "gen_ai.usage.input_tokens": "1000",
        "gen_ai.usage.cache_read.input_tokens": 900,
        "gen_ai.usage.output_tokens": 7,
    }
    assert span_usage(fields(told)) == Usage(1000, 900, None, 7)
    told["gen_ai.usage.input_tokens"] = 100  # less than came from the cache: it was left out
    assert span_usage(fields(told)).input == 1000
    for name in ("cache_write", "cache_creation"):  # as it is called now, and as it was
        assert span_usage(fields({f"gen_ai.usage.{name}.input_tokens": 5})).cache_write == 5
    assert span_usage(fields({"llm.token_count.prompt": 40, "llm.token_count.completion": 2})) == Usage(
        40, None, None, 2
    )


# Outcomes


@pytest.mark.parametrize(
    "answer",
    [
        "Error: payment amount does not add up", "Error: plot already taken", "missing required parameter: row",
        "Invalid value for argument 'row'", "Traceback (most recent call last):\n  File", "ValueError: row",
        "garden.NoSoilError: loam", "<tool_use_error>x</tool_use_error>", "Error executing tool reserve: x",
        "Request failed: 503 Service Unavailable", {"error": "x"}, {"error": {"code": 1}}, {"error": True},
        {"success": False}, {"ok": False}, {"isError": True}, {"status": "FAILED"}, {"errors": [1]},
    ],
)  # fmt: skip
def test_answers_that_complain(answer: Any) -> None:
    assert complains(answer)
    assert judge(answer).source == "predicate"


@pytest.mark.parametrize(
    "answer",
    [
        "Error: handling guide — chapter 1", "Error: a history\nNothing must be missing.", "",
        "The error: none was found",
        "Missing persons of 1931", "Invalid fields in the survey fell by a tenth", "errors.md", None, [], 3, "  ok",
        {"error": None}, {"error": ""}, {"error": {}}, {"status": "ok"}, {"errors": [], "data": 1},
        {"errors": [1], "data": 1}, {"success": True}, {"text": "Error: not found"},
    ],
)  # fmt: skip
def test_answers_that_do_not_complain(answer: Any) -> None:
    assert not complains(answer)
    assert judge(answer) == ("ok", "none")


@pytest.mark.parametrize(
    ("answer", "flag", "status", "verdict"),
    [
        ("all is well", True, None, ("error", "flag")),
        ("Error: not found", False, None, ("error", "predicate")),
        ("x", None, 422, ("error", "status")),
        ("x", None, 504, ("timeout", "status")),
        ("Command timed out after 5 s", True, None, ("timeout", "flag")),
        ("Claude requested permissions to use X, but you haven't granted it yet.", True, None, ("denied", "flag")),
        (
            "Claude requested permissions to use X, but you haven't granted it yet.",
            False,
            None,
            ("denied", "predicate"),
        ),
        ("[Request interrupted by user for tool use]", True, None, ("not_executed", "flag")),
        ("the user has granted permission", None, 200, ("ok", "none")),
        ("this path requests permissions that the key lacks", None, 403, ("error", "status")),
    ],
)
def test_verdicts(answer: str, flag: bool | None, status: int | None, verdict: tuple[str, str]) -> None:
    assert judge(answer, flag=flag, status=status) == verdict


def test_statuses() -> None:
    assert [as_status(each) for each in ("422", 422, 422.0, 7, "x", True, None)] == [
        422,
        422,
        422,
        None,
        None,
        None,
        None,
    ]
    assert status_of({"error": {"status": 409}}) == 409
    assert status_of({"status": "failed"}) is None


# Hints


@pytest.mark.parametrize(
    ("suggestion", "ops"),
    [
        ({"merge": {"soil": "loam"}}, [Op("add", "/soil", "loam")]),
        ({"merge": {"row": 5}}, [Op("replace", "/row", 5)]),
        ({"merge_patch": {"row": None}}, [Op("remove", "/row")]),
        ({"parameters": {"row": None}}, [Op("replace", "/row", None)]),
        ({"merge": {"size": {"x": 2, "y": 1}}}, [Op("replace", "/size/x", 2), Op("add", "/size/y", 1)]),
        ({"merge": {"tags": [1]}, "when": "row > 3"}, [Op("replace", "/tags", [1], "row > 3")]),
        ({"merge": {"a/b~c": 1}}, [Op("add", "/a~1b~0c", 1)]),
        (
            {"patch": [{"op": "replace", "path": "/row", "value": 5}, {"op": "remove", "path": "/tags"}]},
            [Op("replace", "/row", 5), Op("remove", "/tags")],
        ),
        ([{"op": "add", "path": "/soil", "value": None, "when": "x"}], [Op("add", "/soil", None, "x")]),
        (
            [{"parameters": {"row": 5}}, {"parameters": {"soil": "loam"}}],
            [Op("replace", "/row", 5), Op("add", "/soil", "loam")],
        ),
        ({"op": "remove", "path": "/row"}, [Op("remove", "/row")]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("holder", ["error", "detail", "recovery_feedback", None])
def test_hints(suggestion: Any, ops: list[Op], holder: str | None) -> None:
    request = {"row": 4, "size": {"x": 1}, "tags": [0, 1]}
    body = {"suggestions": suggestion}
    assert list(find_hint({holder: body} if holder else body, request).ops) == ops


def test_hint_doubts() -> None:
    assert find_hint({"suggestion": {"merge": {"row": None}}}, {"row": 1}).warnings == ("null-in-merge",)
    assert find_hint({"suggestion": {"prose": "add soil"}}, {}) == ((), ("unknown-hint",))
    assert find_hint({"suggestion": [{"op": "move", "from": "/a", "path": "/b"}]}, {}) == ((), ("unknown-hint",))
    assert find_hint({"suggestion": "add soil"}, {}) == ((), ())
    assert find_hint({"suggestion": {"set": {str(each): each for each in range(500)}}}, {}).ops == ()
    assert find_hint("soil is required", {}) == ((), ())


# Fields


def test_fields_note_wrong_types_and_read_them_as_absent() -> None:
    found = fields({"name": [1], "n": -1, "flag": "yes", "inner": 3, "rows": [{"a": 1}, 7], "list": {}, "id": 12})
    assert (found.text("name"), found.count("n"), found.flag("flag"), found.table("inner")) == (None, None, None, None)
    assert [row.data for row in found.rows("rows")] == [{"a": 1}]
    assert list(found.rows("list")) == []
    assert found.text("id") == "12"
    assert [(each.place, each.kind, each.lost) for each in found.faults.found] == [
        ("here, name", "wrong-type", False),
        ("here, n", "wrong-type", False),
        ("here, flag", "wrong-type", False),
        ("here, inner", "wrong-type", False),
        ("here, rows[1]", "wrong-type", True),
        ("here, list", "wrong-type", True),
    ]


def test_counts() -> None:
    written = [0, 3.0, "12", 2**63 - 1, 2**63, -1, 1.5, True, "x", "٣", None]
    assert [as_count(each) for each in written] == [0, 3, 12, 2**63 - 1, *[None] * 7]


# Broken JSON


@pytest.mark.parametrize(
    ("data", "value", "doubts"),
    [
        (b'{"a": NaN, "b": -Infinity, "c": 1e999}', {"a": None, "b": None, "c": None}, ("nan",)),
        (b'{"a": "\xff"}', {"a": "\ufffd"}, ("bad-utf8",)),
        (b'\0\0{"a": 1}\0', {"a": 1}, ("nul-bytes",)),
        (b'{"a": "\\ud800x"}', {"a": "?x"}, ("lone-surrogate",)),
        (b'{"a": ' + b"9" * 5000 + b"}", {"a": None}, ("huge-number",)),
        (b'{"a": "\x01"}', {"a": "\x01"}, ("control-character",)),
        (b'{"a": 1000000000000000000000000000000}', {"a": 10**30}, ()),
    ],
)
def test_nearly_json(data: bytes, value: Any, doubts: tuple[str, ...]) -> None:
    assert decode(data) == (value, doubts)


@pytest.mark.parametrize("data", [b"", b"{", b"[" * 100_000, b"{'a': 1}", b'{"a": 1} x'])
def test_what_is_no_json(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode(data)


def is_sample(value: Any) -> bool:
    return isinstance(value, dict) and "n" in value


def test_salvage_keeps_what_stands_before_and_after_a_break() -> None:
    text = '{"info": {}, "all": [{"n": 1, "x": [1, 2]}, {"n": 2, "x": [1, !2]}, {"n": 3}]}'
    found = [(value, id(value) in torn) for _, value, torn in salvage(text, is_sample)]
    assert found == [({"n": 1, "x": [1, 2]}, False), ({"n": 2, "x": [1]}, True), ({"n": 3}, False)]


def test_salvage_leaves_out_what_is_half_there() -> None:
    text = '{"n": 1, "calls": [{"id": 1, "with": {"a": 1}}, {"id": 2, "with": {"a": [1], "b":'
    ((_, value, torn),) = salvage(text, is_sample)
    assert value == {"n": 1, "calls": [{"id": 1, "with": {"a": 1}}]}
    assert torn == {id(value), id(value["calls"])}


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.data())
def test_salvage_of_any_cut_is_a_prefix(numbers: list[int], data: Any) -> None:
    whole = [{"n": each, "x": {"y": [each, "é\\"]}} for each in numbers]
    text = json.dumps({"all": whole})
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    found = [(value, id(value) in torn) for _, value, torn in salvage(cut, is_sample)]
    sound = [value for value, is_torn in found if not is_torn]
    assert sound == whole[: len(sound)]
    assert len(sound) >= cut.count("]}}")
    assert len(found) - len(sound) <= 1


def test_salvage_takes_time_in_proportion() -> None:
    assert list(salvage('{"a":' * 50_000, is_sample)) == []
    assert len(list(salvage('{"a": [' + '{"n": 1},' * 20_000, is_sample))) == 20_000


@pytest.mark.parametrize(
    "written",
    ['{"n": 1}\n{"n": 2}\n', '[{"n": 1},\n{"n": 2}]', '[\n {\n"n": 1},\n {\n"n": 2}\n]', '\ufeff{"n": 1}\r\n{"n": 2}'],
)
def test_records_of_lines_and_documents(written: str, tmp_path: Path) -> None:
    path, faults = tmp_path / "file", Faults("file")
    path.write_bytes(written.encode())
    assert [each.value for each in read_records(path, faults, is_sample)] == [{"n": 1}, {"n": 2}]
    assert faults.found == []


def test_bad_lines_are_located_and_what_is_whole_in_them_is_kept(tmp_path: Path) -> None:
    path, faults = tmp_path / "file", Faults("file")
    path.write_bytes(b'{"n": 1}\n\0\0\0\n{"n": 2}{"n": 3}\n[7, {"n": 4}]\nnoise\n{"n": 5, "x": [1, {"y": "cut off')
    found = list(read_records(path, faults, is_sample))
    assert [(each.place, each.value) for each in found] == [
        ("line 1", {"n": 1}),
        ("line 3", {"n": 2}),
        ("line 3", {"n": 3}),
        ("line 4, [1]", {"n": 4}),
        ("line 6", {"n": 5, "x": [1]}),
    ]
    assert [(each.place, each.kind) for each in faults.found] == [
        ("line 2", "nul-bytes"),
        ("line 3", "bad-line"),
        ("line 4, [0]", "unknown-record"),
        ("line 5", "bad-line"),
        ("line 6", "torn-line"),
    ]


def test_record_over_several_lines_among_records_a_line(tmp_path: Path) -> None:
    path, faults = tmp_path / "file", Faults("file")
    path.write_bytes(b'{"n": 1}\n{\n "n": 2\n}\n{"n": 3}\n{"n": 4, "x": [\n{"n": 5}\n')
    assert [each.value["n"] for each in read_records(path, faults, is_sample)] == [1, 2, 3, 4, 5]
    assert [(each.place, each.kind) for each in faults.found] == [("line 2", "split-line"), ("line 6", "bad-line")]
