"""Claude Code sessions: every row of the sample, and what goes wrong with lines, ids and parents."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from invsim.traces.trials import episode_trials, episodes

Read = Callable[..., tuple[list[Any], list[Any]]]


@pytest.fixture
def session(traces: Path) -> list[dict[str, Any]]:
    return [json.loads(each) for each in (traces / "claude-code" / "session.jsonl").read_text().splitlines()]


@pytest.fixture
def orchard(traces: Path) -> list[dict[str, Any]]:
    """Two parallel calls, a failed one, a branch that was left (7 to 9), and one that was kept and compacted."""
    return [json.loads(each) for each in (traces / "claude-code" / "branches.jsonl").read_text().splitlines()]


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


def steps(row: Any) -> tuple[Any, ...]:
    return row.episode_id, row.step, row.seq, row.call_id


def outcome(rows: list[Any]) -> list[str]:
    """What became of the hints in an episode."""
    return [each.result for each in episode_trials(rows)[0]]


def line(uuid: str, parent: str | None, role: str, content: Any, **more: Any) -> dict[str, Any]:
    head = {"type": role, "uuid": uuid, "parentUuid": parent, "sessionId": "orchard", "isSidechain": False}
    return {**head, "message": {"role": role, "content": content}, **more}


def prompt(uuid: str, parent: str | None, text: str = "Go on", **more: Any) -> dict[str, Any]:
    return line(uuid, parent, "user", text, **more)


def tool_use(call_id: str, tool: str, **request: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": tool, "input": request}


def asks(uuid: str, parent: str, call_id: str | None, **more: Any) -> dict[str, Any]:
    """A turn that calls, or, without an id, that only talks."""
    content = [tool_use(call_id, "Prune", tree=3) if call_id else {"type": "text", "text": "No more."}]
    return line(uuid, parent, "assistant", content, **more)


def answers(uuid: str, parent: str, call_id: str, content: str = "pruned", **more: Any) -> dict[str, Any]:
    return line(uuid, parent, "user", [{"type": "tool_result", "tool_use_id": call_id, "content": content, **more}])


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


def test_lines_that_another_session_copied_count_once(session: list[Any], read: Read) -> None:
    """A session that was taken up again under another id goes on from the lines that it copied."""
    copied = [{**each, "sessionId": "shed"} for each in session[1:9]]
    again = {**session[7], "uuid": "v1", "parentUuid": "u7", "sessionId": "shed", "requestId": "r9"}
    again["message"] = {**again["message"], "id": "msg_9", "content": [tool_use("toolu_9", "Edit", row=6)]}
    rows, faults = read([*session, *copied, again])
    assert brief(rows) == [*SESSION[:3], ("garden", 2, 0, "Edit", "missing"), SESSION[3]]
    assert {(each.kind, each.lost) for each in faults} == {("duplicate-line", False)}
    assert len(faults) == len(copied)


def test_lines_of_another_session_that_differ_are_another_episode(session: list[Any], read: Read) -> None:
    other = [
        {**each, "sessionId": "shed", "message": {**each["message"], "stop_sequence": "x"}} for each in session[1:9]
    ]
    rows, faults = read([*session, *other])
    assert brief(rows) == [*SESSION, *(("shed", *each[1:]) for each in SESSION[:3])]
    assert {(each.kind, each.lost) for each in faults} == {("duplicate-id", False)}


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


# Branches ------------------------------------------------------------------------------------------------------------


def test_branches(traces: Path, read_trace: Read) -> None:
    """The user left one branch for another, and was answered by the service's error in the end."""
    rows, faults = read_trace(traces / "claude-code" / "branches.jsonl", "claude-code")
    assert faults == []
    assert [(*steps(each), each.outcome, each.warnings) for each in rows] == [
        ("orchard", 0, 0, "toolu_a", "ok", ()),
        ("orchard", 0, 1, "toolu_b", "ok", ()),
        ("orchard", 1, 0, "toolu_c", "error", ()),
        ("orchard", 2, 0, "toolu_e", "not_executed", ()),
        ("orchard", 3, 0, "toolu_f", "denied", ("log-ends",)),
        ("orchard#o8", 2, 0, "toolu_d", "error", ("begins-late", "log-ends")),
    ]
    assert {each.order_source for each in rows} == {"parent"}
    assert {each.task for each in rows} == {"orchard"}  # one cluster


def test_calls_of_a_branch_that_was_left_and_of_the_one_that_replaced_it_are_no_retries_of_each_other(
    traces: Path, read_trace: Read
) -> None:
    rows, _ = read_trace(traces / "claude-code" / "branches.jsonl", "claude-code")
    kept, left = (episode_trials(each) for each in episodes(rows))
    # The hint was shown once, and the path that was kept tells what followed it: the call asked for and denied.
    assert [(each.result, each.next_ok) for each in kept[0]] == [("other", False)]
    assert (kept[1].first_ok, kept[1].ended) == (True, "completed")
    assert [(each.result, each.next_ok) for each in left[0]] == [("censored", None)]
    assert (left[1].first_ok, left[1].retries, left[1].ended) == (None, 0, "censored")


def test_model_that_was_left_did_not_give_up(orchard: list[Any], read: Read) -> None:
    rows, _ = read([*orchard[:10], asks("p1", "o9", None), *orchard[10:]])
    left = [each for each in rows if each.episode_id == "orchard#o8"]
    assert outcome(left) == ["censored"]
    rows, _ = read([*orchard[:10], asks("p1", "o9", None)])
    assert outcome(rows[-1:]) == ["gave_up"]


def test_branch_of_a_branch_and_both_of_one_fork(orchard: list[Any], read: Read) -> None:
    lines = [
        *orchard[:10],
        asks("p1", "o9", "toolu_1"),  # on the branch that was left, which forks again
        prompt("p2", "o9"),
        asks("p3", "p2", "toolu_2"),
        prompt("p4", "o6"),
        asks("p5", "p4", "toolu_3"),
        *orchard[11:],
    ]
    rows, faults = read(lines)
    assert faults == []
    assert [steps(each) for each in rows if each.episode_id != "orchard"] == [
        ("orchard#o8", 2, 0, "toolu_d"),
        ("orchard#o8", 3, 0, "toolu_2"),
        ("orchard#p5", 2, 0, "toolu_3"),
        ("orchard#p1", 3, 0, "toolu_1"),
    ]
    assert [each.call_id for each in rows if each.episode_id == "orchard"] == [f"toolu_{each}" for each in "abcef"]
    assert len({each.call_id for each in rows}) == len(rows)
    assert all("begins-late" in each.warnings for each in rows if each.call_id in ("toolu_d", "toolu_3", "toolu_1"))
    assert [each.call_id for each in rows if "log-ends" in each.warnings] == [
        "toolu_f",
        "toolu_2",
        "toolu_3",
        "toolu_1",
    ]


def test_what_was_left_for_a_new_start_began_and_is_censored(orchard: list[Any], read: Read) -> None:
    rows, _ = read([*orchard[:7], prompt("p0", None), asks("p1", "p0", "toolu_1"), answers("p2", "p1", "toolu_1")])
    assert [(*steps(each), each.warnings) for each in rows] == [
        ("orchard", 0, 0, "toolu_1", ()),
        ("orchard#o0", 0, 0, "toolu_a", ()),
        ("orchard#o0", 0, 1, "toolu_b", ()),
        ("orchard#o0", 1, 0, "toolu_c", ("log-ends",)),
    ]


def test_prompt_that_the_model_never_answered_is_no_branch(orchard: list[Any], read: Read) -> None:
    rows, _ = read([*orchard[:7], prompt("p1", "o6"), *orchard[7:10], prompt("p2", "o6"), prompt("p3", None)])
    assert [(*steps(each)[:2], each.call_id) for each in rows] == [
        ("orchard", 0, "toolu_a"),
        ("orchard", 0, "toolu_b"),
        ("orchard", 1, "toolu_c"),
        ("orchard", 2, "toolu_d"),
    ]


def test_parallel_calls_fork_nothing_wherever_the_session_goes_on(orchard: list[Any], read: Read) -> None:
    for parent in ("o1", "o2", "o3", "o4"):
        orchard[5]["parentUuid"] = parent
        rows, faults = read(orchard[:7])
        assert [steps(each) for each in rows] == [
            ("orchard", 0, 0, "toolu_a"),
            ("orchard", 0, 1, "toolu_b"),
            ("orchard", 1, 0, "toolu_c"),
        ]
        assert [each.response for each in rows[:2]] == ["pruned", "pruned"]
        assert faults == []


def test_what_hangs_from_a_turn_besides_forks_nothing(orchard: list[Any], read: Read) -> None:
    progress = [
        {"type": "progress", "uuid": f"h{at}", "parentUuid": parent, "sessionId": "orchard", "data": {}}
        for at, parent in enumerate(["o1", "h0", "o5", "o12"])
    ]
    rows, _ = read([*orchard[:10], *progress[:3]])
    assert [each.episode_id for each in rows] == ["orchard"] * 4
    whole, _ = read(orchard)
    late = {**progress[0], "uuid": "h9", "parentUuid": "o9"}  # it is the messages that tell what was kept
    assert brief(read([*orchard, *progress, late])[0]) == brief(whole)


def test_compaction_goes_on(orchard: list[Any], read: Read) -> None:
    boundary, summary = orchard[15], orchard[16]
    whole, _ = read(orchard)
    boundary["logicalParentUuid"] = "o9"  # of the other branch
    assert [each.call_id for each in read(orchard)[0]][3:] == ["toolu_d", "toolu_f", "toolu_e"]
    del boundary["logicalParentUuid"]
    assert brief(read(orchard)[0]) == brief(whole)
    summary["parentUuid"] = None  # an older client marks no boundary
    rows, _ = read([*orchard[:15], *orchard[16:]])
    assert brief(rows) == brief(whole)
    assert {each.order_source for each in rows} == {"parent"}


def test_line_whose_parent_is_lost_begins_an_episode(orchard: list[Any], read: Read) -> None:
    rows, faults = read([*orchard[:7], *orchard[8:10]])  # without the prompt that the user went on with
    assert faults == []
    assert [(*steps(each), each.warnings) for each in rows] == [
        ("orchard", 0, 0, "toolu_d", ("begins-late", "log-ends")),
        ("orchard#o0", 0, 0, "toolu_a", ()),
        ("orchard#o0", 0, 1, "toolu_b", ()),
        ("orchard#o0", 1, 0, "toolu_c", ("log-ends",)),
    ]


def test_answer_whose_parent_is_lost_follows_its_call(orchard: list[Any], read: Read) -> None:
    orchard[6]["parentUuid"] = "nowhere"
    rows, faults = read(orchard)
    assert [(*steps(each)[:2], each.outcome) for each in rows[:4]] == [
        ("orchard", 0, "ok"),
        ("orchard", 0, "ok"),
        ("orchard", 1, "error"),
        ("orchard", 2, "not_executed"),
    ]
    assert faults == []


def test_uuid_that_many_lines_share_means_the_one_before(orchard: list[Any], read: Read) -> None:
    """A client wrote the notes of its hooks under one uuid, and hung what followed from it."""
    note = {"type": "attachment", "uuid": "h", "sessionId": "orchard"}
    orchard[5]["parentUuid"] = orchard[7]["parentUuid"] = "h"
    lines = [
        *orchard[:5],
        {**note, "parentUuid": "o4", "text": 1},
        *orchard[5:7],
        {**note, "parentUuid": "o6", "text": 2},
        *orchard[7:10],
    ]
    rows, faults = read(lines)
    assert [steps(each)[:2] for each in rows] == [("orchard", each) for each in (0, 0, 1, 2)]
    assert faults == []


def test_without_links_the_order_is_that_of_the_file(orchard: list[Any], read: Read) -> None:
    bare = [{key: value for key, value in each.items() if key != "parentUuid"} for each in orchard]
    rows, faults = read(bare)
    assert [steps(each)[:2] for each in rows] == [("orchard", each) for each in (0, 0, 1, 2, 3, 4)]
    assert {each.order_source for each in rows} == {"index"}
    assert faults == []
    del orchard[12]["parentUuid"]  # one link alone is missing, and the user went back besides
    rows, _ = read(orchard)
    assert {(each.episode_id, each.order_source) for each in rows} == {
        ("orchard", "flattened"),
        ("orchard#o8", "parent"),
    }


def test_copy_of_a_turn_under_other_uuids_counts_once(orchard: list[Any], read: Read) -> None:
    copies = [
        {**each, "uuid": f"c-{each['uuid']}", "parentUuid": each["parentUuid"] and f"c-{each['parentUuid']}"}
        for each in orchard[:7]
    ]
    rows, faults = read([*orchard[:7], *copies, prompt("p1", "c-o6"), asks("p2", "p1", "toolu_1")])
    assert [steps(each) for each in rows] == [
        ("orchard", 0, 0, "toolu_a"),
        ("orchard", 0, 1, "toolu_b"),
        ("orchard", 1, 0, "toolu_c"),
        ("orchard", 2, 0, "toolu_1"),
    ]
    assert {(each.kind, each.lost) for each in faults} == {("duplicate-call", False), ("duplicate-answer", False)}


def test_sidechains_fork_too_and_main_lines_do_not_hang_from_them(session: list[Any], read: Read) -> None:
    for each in session[9:13]:
        each["agentId"] = "ant"
    session[9]["parentUuid"] = "u6"  # where the agent was started
    session[13]["parentUuid"] = "s3"
    other = prompt("s4", "s2", isSidechain=True, agentId="ant", sessionId="garden")
    again = asks("s5", "s4", "toolu_5", isSidechain=True, agentId="ant", sessionId="garden")
    rows, faults = read([*session, other, again])
    assert faults == []
    assert brief(rows) == [
        *SESSION[:3],
        ("garden/ant", 0, 0, "Bash", "ok"),
        ("garden/ant", 1, 0, "Prune", "missing"),
    ]
    assert [each.task for each in rows[3:]] == ["garden/ant"] * 2


# What the client says ------------------------------------------------------------------------------------------------


def test_after_an_error_of_the_service_nothing_was_given_up(orchard: list[Any], read: Read) -> None:
    failed, gone = orchard[:7], {**orchard[19], "parentUuid": "p1"}
    words = asks("p1", "o6", None)  # the model's own last word
    rows, _ = read([*failed, words])
    assert rows[-1].warnings == ()
    assert outcome(rows) == ["gave_up"]
    rows, _ = read([*failed, words, gone])
    assert outcome(rows) == ["censored"]
    rows, _ = read([*failed, {**gone, "parentUuid": "o6"}])  # no turn: the log ends on the failed call
    assert outcome(rows) == ["censored"]
    named = {**gone, "message": {**gone["message"], "model": "claude-garden-1"}}
    assert outcome(read([*failed, words, named])[0]) == ["censored"]
    rows, _ = read([*failed, words, gone, prompt("p2", "o19"), asks("p3", "p2", None)])
    assert outcome(rows) == ["gave_up"]
    assert [each.step for each in rows] == [0, 0, 1]
    gone["message"]["content"] = [tool_use("toolu_1", "Prune", tree=9)]  # a call is a call, whoever is named
    rows, _ = read([*failed, words, gone])
    assert (rows[-1].call_id, rows[-1].step, rows[-1].model) == ("toolu_1", 3, None)


@pytest.mark.parametrize("text", ["[Request interrupted by user]", "[Request interrupted by user for tool use]"])
def test_interruption_answers_what_is_unanswered(orchard: list[Any], read: Read, text: str) -> None:
    stop = prompt("p1", "o2", text)
    rows, faults = read([*orchard[:4], stop])
    assert [(each.call_id, each.outcome, each.response) for each in rows] == [
        ("toolu_a", "not_executed", text),
        ("toolu_b", "ok", "pruned"),
    ]
    assert faults == []
    stop["message"]["content"] = [{"type": "text", "text": text}]
    assert [each.outcome for each in read([*orchard[:4], stop])[0]] == ["not_executed", "ok"]
    words = asks("p0", "o6", None)
    rows, _ = read([*orchard[:7], words, prompt("p1", "p0", text)])
    assert outcome(rows) == ["censored"]


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ({}, "error"),
        ({"toolUseResult": "Error: no"}, "error"),
        ({"toolUseResult": "User rejected tool use"}, "denied"),
        ({"toolDenialKind": "user-rejected"}, "denied"),
        ({"toolDenialKind": "automode-blocked"}, "denied"),
        ({"toolDenialKind": "interrupted", "toolUseResult": "User rejected tool use"}, "not_executed"),
        ({"toolDenialKind": 7, "toolUseResult": ["x"]}, "error"),
        ({"toolUseResult": {"stdout": "", "interrupted": True}}, "not_executed"),
        ({"toolUseResult": {"stdout": "", "interrupted": False}}, "error"),
    ],
)
def test_what_a_line_says_of_its_answer(orchard: list[Any], read: Read, said: dict[str, Any], outcome: str) -> None:
    line = answers("p1", "o5", "toolu_c", "no", is_error=True)
    rows, _ = read([*orchard[:6], {**line, **said}])
    assert (rows[-1].outcome, rows[-1].response) == (outcome, "no")


def test_command_that_ran_out_of_time_was_not_interrupted(orchard: list[Any], read: Read) -> None:
    line = answers("p1", "o5", "toolu_c", "Command timed out after 2m 0s", is_error=True)
    rows, _ = read([*orchard[:6], {**line, "toolUseResult": {"interrupted": True}}])
    assert rows[-1].outcome == "timeout"


def test_one_result_for_several_answers_is_of_none(orchard: list[Any], read: Read) -> None:
    line = answers("p1", "o2", "toolu_a", "pruned")
    line["message"]["content"].append({"type": "tool_result", "tool_use_id": "toolu_b", "content": "pruned"})
    rows, _ = read([*orchard[:3], {**line, "toolUseResult": "User rejected tool use"}])
    assert [each.outcome for each in rows] == ["ok", "ok"]


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
