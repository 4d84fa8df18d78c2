"""Claude Code sessions: every row of the sample, and what goes wrong with lines, ids and parents."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Read = Callable[..., tuple[list[Any], list[Any]]]


@pytest.fixture
def session(traces: Path) -> list[dict[str, Any]]:
    return [json.loads(each) for each in (traces / "claude-code" / "session.jsonl").read_text().splitlines()]


@pytest.fixture
def read(tmp_path: Path, read_trace: Read) -> Read:
    def read(lines: list[Any]) -> tuple[list[Any], list[Any]]:
        path = tmp_path / "session.jsonl"
        path.write_bytes(
            b"".join(each if isinstance(each, bytes) else json.dumps(each).encode() + b"\n" for each in lines)
        )
        return read_trace(path, "claude-code")

    return read


def brief(rows: list[Any]) -> list[tuple[Any, ...]]:
    return [(each.episode_id, each.step, each.seq, each.tool, each.outcome) for each in rows]


SESSION = [
    ("garden", 0, 0, "Read", "ok"),
    ("garden", 0, 1, "Edit", "error"),
    ("garden", 1, 0, "Edit", "denied"),
    ("garden/s0", 0, 0, "Bash", "ok"),
]


def test_session(traces: Path, read_trace: Read) -> None:
    rows, faults = read_trace(traces / "claude-code" / "session.jsonl", "claude-code")
    assert faults == []
    assert brief(rows) == SESSION
    assert {each.order_source for each in rows} == {"parent"}
    assert [each.error_source for each in rows] == ["none", "flag", "flag", "none"]
    # Lines of one message are one turn: one bill, with the figures of the last line, and the cache counted in.
    assert [(each.usage_id, each.input_tokens, each.output_tokens) for each in rows[:2]] == [
        ("garden/msg_1/r1", 1203, 159)
    ] * 2
    assert (rows[0].cache_read_tokens, rows[0].cache_write_tokens) == (1000, 200)
    assert (rows[1].request, rows[1].response) == (
        {"path": "plan.md", "row": 4},
        "<tool_use_error>Read it first</tool_use_error>",
    )
    assert (rows[0].t_start, rows[0].t_end) == (1_927_857_901_500_000_000, 1_927_857_902_500_000_000)
    assert rows[1].source_pos == "line 6, message, content[0]"


def test_lines_in_any_order_are_put_in_that_of_their_parents(session: list[Any], read: Read) -> None:
    rows, faults = read([session[0], *reversed(session[1:])])
    assert faults == []
    assert sorted(brief(rows)) == SESSION


def test_message_id_used_again_is_another_turn(session: list[Any], read: Read) -> None:
    session[7]["message"]["id"] = "msg_1"  # under another request id
    rows, _ = read(session)
    assert brief(rows) == SESSION
    assert rows[2].usage_id == "garden/msg_1/r2"


def test_line_repeated_counts_once(session: list[Any], read: Read) -> None:
    rows, faults = read([*session, session[3], session[5]])
    assert brief(rows) == SESSION
    assert [(each.place, each.kind, each.lost) for each in faults] == [
        ("line 15", "duplicate-line", False),
        ("line 16", "duplicate-line", False),
    ]


def test_same_lines_in_another_session_are_another_episode(session: list[Any], read: Read) -> None:
    other = [{**each, "sessionId": "shed"} for each in session[1:9]]
    rows, faults = read([*session, *other])
    assert brief(rows) == [*SESSION, *(("shed", *each[1:]) for each in SESSION[:3])]
    assert faults == []


def test_parents_in_a_ring(session: list[Any], read: Read) -> None:
    session[1]["parentUuid"] = "u8"
    rows, faults = read(session)
    assert sorted(brief(rows)) == SESSION
    assert {each.kind for each in faults} == {"parent-loop"}
    assert not any(each.lost for each in faults)


def test_torn_tail_leaves_the_session_open(session: list[Any], read: Read) -> None:
    rows, faults = read([*session[:6], json.dumps(session[6]).encode()[:200]])
    assert [(*each[3:], row.warnings) for each, row in zip(brief(rows), rows, strict=True)] == [
        ("Read", "ok", ()),
        ("Edit", "missing", ("log-ends",)),
    ]
    assert [(each.place, each.kind) for each in faults] == [("line 7", "torn-line")]


def test_answer_whose_call_is_in_another_file(session: list[Any], read: Read) -> None:
    rows, faults = read([session[6]])
    assert rows == []
    assert [(each.place, each.kind, each.lost) for each in faults] == [
        ("line 1, message, content[0]", "orphan-answer", True)
    ]


@pytest.mark.parametrize("strange", [None, 7, "x", [], {}, [None], True])
@pytest.mark.parametrize(
    "key",
    [
        "type",
        "uuid",
        "parentUuid",
        "sessionId",
        "isSidechain",
        "timestamp",
        "message",
        "requestId",
        "id",
        "model",
        "content",
        "usage",
        "stop_reason",
    ],
)
def test_wrong_types_in_a_line_cost_no_other_line(session: list[Any], read: Read, key: str, strange: Any) -> None:
    line = session[7]
    holder = line if key in line else line["message"]
    holder[key] = strange
    rows, _ = read(session)
    assert {each.call_id for each in rows} >= {"toolu_1", "toolu_2", "toolu_4"}
