"""Trials: what counts as a retry, what as applied, and what is not known."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from invsim.traces.judging import ABSENT, Answer, alike, canonical, injected_state, judge, resolve, same, shape_of
from invsim.traces.schema import Call, Fix, Op
from invsim.traces.trials import Episode, Trial, episode_trials, frames

ADD = Op("add", "/currency", "EUR")
TEN = Op("replace", "/qty", 10)


def call(step: int, outcome: str = "error", request: Any = None, **fields: Any) -> Call:
    plain = {"episode_id": "e", "tool": "pay", "model": "m", "request": {"qty": 50} if request is None else request}
    return msgspec.convert(plain | {"step": step, "outcome": outcome} | fields, Call)


def recoveries(*calls: Call) -> list[Trial]:
    return [trial for trial in episode_trials(calls)[0] if trial.kind == "recovery"]


def outcome(*calls: Call) -> Episode:
    return episode_trials(calls)[1]


# Equality and pointers -----------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([1.0, -0.0, 2.5, "1", "1.0", "true", "", "a"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=5,
)


@pytest.mark.parametrize(
    ("left", "right", "strictly", "loosely"),
    [
        (10, 10.0, True, True),
        ("10", 10, False, True),
        (" 10 ", 10.0, False, True),
        ("ten", 10, False, False),
        (1, True, False, True),
        ("True", True, False, True),
        ("null", None, False, True),
        ("", None, False, False),
        ("a ", "a", False, True),
        ("A", "a", False, False),
        ([1, "2"], [1.0, 2], False, True),
        ([1, 2], [2, 1], False, False),
        ({"a": 1, "b": None}, {"b": None, "a": 1.0}, True, True),
        ({"a": None}, {}, False, False),
        ('{"a": [1]}', {"a": [1]}, False, True),
        (2**60, float(2**60), True, True),
        (2**60 + 1, float(2**60), False, False),
    ],
)
def test_equality_knows_types(left: Any, right: Any, strictly: bool, loosely: bool) -> None:
    assert same(left, right) is same(right, left) is strictly
    assert alike(left, right) is alike(right, left) is loosely


@given(left=JSON, right=JSON)
def test_equal_values_and_they_alone_share_their_canonical_text(left: Any, right: Any) -> None:
    assert same(left, right) == (canonical(left) == canonical(right))
    assert alike(left, right) or not same(left, right)


def test_deeply_nested_values_can_be_compared() -> None:
    deep: Any = 1
    for _ in range(5_000):
        deep = [deep]
    assert same(deep, deep)
    assert not same(deep, [deep])
    assert canonical(msgspec.json.decode("[" * 900 + "1.0" + "]" * 900)) == "[" * 900 + "1" + "]" * 900


@pytest.mark.parametrize(
    ("pointer", "found"),
    [
        ("", {"a": {"b/c": [10, 20]}, "~": None, "": 7}),
        ("/a/b~1c/0", 10),
        ("/a/b~1c/-", 20),
        ("/~0", None),
        ("/", 7),
        ("/a/b~1c/2", ABSENT),
        ("/a/b~1c/00", ABSENT),
        ("/a/b~1c/1/x", ABSENT),
        ("/x", ABSENT),
        ("a", ABSENT),
    ],
)
def test_a_pointer_finds_its_place(pointer: str, found: Any) -> None:
    document = {"a": {"b/c": [10, 20]}, "~": None, "": 7}
    assert resolve(document, pointer) == found


# Shapes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ops", "request_", "shape"),
    [
        ([ADD], {"qty": 1}, "add-a-field"),
        ([ADD], {"currency": "USD"}, "rewrite-a-value"),  # "add" sets a member that is there
        ([ADD], {"currency": "EUR"}, "no-op"),
        ([ADD], None, "add-a-field"),
        ([TEN], {"qty": 50}, "rewrite-a-value"),
        ([TEN], {}, "add-a-field"),
        ([TEN], None, "rewrite-a-value"),
        ([Op("replace", "/qty", 10, when="qty > 9")], {"qty": 50}, "conditional-rewrite"),
        ([Op("remove", "/qty")], {"qty": 50}, "remove-a-field"),
        ([Op("remove", "/qty")], {}, "no-op"),
        ([Op("add", "/items/-", 1)], {"items": [1]}, "add-a-field"),
        ([Op("add", "/qty", None)], {}, "add-a-field"),  # null is set, and deletes nothing
        ([ADD, TEN], {"qty": 50}, "rewrite-a-value"),
        ([TEN, Op("remove", "/x")], {"x": 1}, "remove-a-field"),
        ([ADD, TEN], {"qty": 10.0, "currency": "EUR"}, "no-op"),
        ([], {}, "no-op"),
    ],
)
def test_a_hint_has_the_shape_of_what_it_does(ops: list[Op], request_: Any, shape: str) -> None:
    assert shape_of(ops, request_) == shape


# Results -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hint", "following", "result"),
    [
        ([TEN], {"qty": 10}, "applied"),
        ([TEN], {"qty": 10.0}, "applied"),
        ([TEN], {"qty": "10"}, "loose"),
        ([TEN], {"qty": 20}, "other"),
        ([TEN], {"qty": 50.0}, "identical"),
        ([TEN, ADD], {"qty": 10}, "partial"),
        ([TEN, ADD], {"qty": "10", "currency": "EUR"}, "loose"),
        ([TEN, Op("add", "/memo", None)], {"qty": 10}, "partial"),
        ([TEN, Op("replace", "/x", 1)], {"qty": 50}, "identical"),
        ([Op("remove", "/qty")], {}, "applied"),
        ([Op("replace", "/qty", 50), ADD], {"qty": 50}, "identical"),  # what held already is no part of it
        ([], {"qty": 50}, "identical"),
        ([], {"qty": 51}, "other"),
    ],
)
def test_a_retry_is_judged_by_what_it_was_told(hint: list[Op], following: Any, result: str) -> None:
    (trial,) = recoveries(call(1, hint=hint), call(2, "ok", following))
    assert (trial.result, trial.next_ok, trial.attribution) == (result, True, "certain")
    assert trial.shape == (shape_of(hint, {"qty": 50}) if hint else "text")


@pytest.mark.parametrize(
    ("fields", "result"),
    [
        ({"finish_reason": "refusal"}, "refused"),
        ({"finish_reason": "content_filter"}, "refused"),
        ({"parse_status": "truncated"}, "censored"),
        ({"parse_status": "invalid"}, "other"),
        ({}, "censored"),
    ],
)
def test_an_answer_without_a_request_is_judged_by_why(fields: dict[str, Any], result: str) -> None:
    after = msgspec.structs.replace(call(2, "not_executed"), request=None, **fields)
    (trial,) = recoveries(call(1, hint=[TEN]), after)
    assert (trial.result, trial.next_ok) == (result, False)


def test_whether_a_missing_answer_was_a_success_is_not_known() -> None:
    (trial,) = recoveries(call(1, hint=[TEN]), call(2, "missing", {"qty": 10}))
    assert (trial.result, trial.next_ok) == ("applied", None)


# Which call followed -------------------------------------------------------------------------------------------------


def test_a_call_of_the_same_step_retries_nothing() -> None:
    told = call(1, hint=[TEN])
    (trial,) = recoveries(told, call(1, "ok", {"qty": 10}, seq=1))
    assert trial.result == "gave_up"
    (trial,) = recoveries(told, call(1, "ok", {"qty": 10}, seq=1), call(2, "ok", {"qty": 11}))
    assert (trial.result, trial.attribution) == ("other", "certain")


def test_parallel_errors_or_answers_leave_open_who_retried_what() -> None:
    told = [call(1, hint=[TEN]), call(1, hint=[ADD], seq=1)]
    assert {trial.attribution for trial in recoveries(*told, call(2, "ok"))} == {"unknown"}
    assert {trial.attribution for trial in recoveries(told[0], call(2, "ok"), call(2, "ok", seq=1))} == {"unknown"}
    assert {trial.attribution for trial in recoveries(*told)} == {"certain"}  # nobody retried either


def test_a_retry_may_come_after_calls_of_other_tools() -> None:
    told, other, retry = call(1, hint=[TEN]), call(2, "ok", tool="look"), call(3, "ok", {"qty": 10})
    assert [trial.result for trial in recoveries(told, other, retry)] == ["applied"]
    assert [trial.result for trial in recoveries(told, other)] == ["switched"]
    assert [trial.result for trial in recoveries(told)] == ["gave_up"]


def test_rows_may_come_in_any_order() -> None:
    calls = [call(1, hint=[TEN]), call(2, hint=[ADD], request={"qty": 10}), call(3, "ok", {"qty": 10})]
    assert recoveries(*reversed(calls)) == recoveries(*calls)
    assert [trial.result for trial in recoveries(*calls)] == ["applied", "identical"]


def test_in_a_flattened_trace_nothing_is_certain() -> None:
    calls = call(1, hint=[TEN]), call(2, "ok", {"qty": 10}, order_source="flattened")
    assert [trial.attribution for trial in recoveries(*calls)] == ["unknown"]


def test_the_model_of_a_trial_is_the_one_that_acted() -> None:
    (trial,) = recoveries(call(1, hint=[TEN], model="m"), call(2, "ok", {"qty": 10}, model="n"))
    assert (trial.model, trial.task, trial.episode_id) == ("n", "e", "e")


@pytest.mark.parametrize(
    ("last", "result"),
    [
        ({"warnings": ["log-ends"]}, "censored"),
        ({"warnings": ["limit: 50 messages"]}, "censored"),
        ({"warnings": ["torn"]}, "censored"),
        ({"warnings": ["exhausted"]}, "censored"),
        ({"finish_reason": "max_tokens"}, "censored"),
        ({"arm": "A0"}, "censored"),  # an episode of a run ends in a success or by exhaustion
        ({"warnings": ["refused-next"]}, "refused"),
        ({"warnings": ["naive-time"]}, "gave_up"),
    ],
)
def test_an_error_that_nothing_followed_is_judged_by_how_the_log_ends(last: dict[str, Any], result: str) -> None:
    assert [trial.result for trial in recoveries(call(1, hint=[TEN], **last))] == [result]


def test_a_refusal_in_words_is_the_answer_even_if_a_call_follows_later() -> None:
    (trial,) = recoveries(call(1, hint=[TEN], warnings=["refused-next"]), call(3, "ok", {"qty": 10}))
    assert (trial.result, trial.next_ok) == ("refused", None)


# Injected fixes ------------------------------------------------------------------------------------------------------


def test_each_injected_fix_is_a_trial_of_the_first_call() -> None:
    fixes = [Fix("old", (Op("add", "/code", "A"),), valid=False), Fix("new", (Op("add", "/code", "B"),), valid=True)]
    trials, episode = episode_trials([call(1, "ok", {"code": "B"}, injected=fixes)])
    assert [(trial.kind, trial.shape, trial.result, trial.injected) for trial in trials] == [
        ("first_attempt", "add-a-field", "other", "conflict"),
        ("first_attempt", "add-a-field", "applied", "conflict"),
    ]
    assert (episode.injected, episode.shape, episode.first_ok) == ("conflict", "add-a-field", True)


@pytest.mark.parametrize(
    ("valid", "state"),
    [
        ([], "nothing"),
        ([True], "valid"),
        ([True, True], "valid"),
        ([False], "stale"),
        ([False, True], "conflict"),
        ([True, None], "unknown"),
    ],
)
def test_a_block_is_what_its_fixes_are(valid: list[bool | None], state: str) -> None:
    assert injected_state(Fix("f", (), valid=each) for each in valid) == state


def test_a_first_call_among_parallel_ones_is_not_surely_the_one() -> None:
    calls = [call(1, "ok", injected=[Fix("f", (TEN,))]), call(1, "ok", seq=1)]
    assert [trial.attribution for trial in episode_trials(calls)[0]] == ["unknown"]


def test_a_fix_that_changes_nothing_is_a_no_op_and_holds() -> None:
    (trial,) = episode_trials([call(1, "ok", injected=[Fix("f", ())])])[0]
    assert (trial.shape, trial.result) == ("no-op", "applied")


# Episodes ------------------------------------------------------------------------------------------------------------


def test_an_episode_is_told_by_the_tool_of_its_first_call() -> None:
    episode = outcome(call(1, hint=[TEN]), call(2, "ok", tool="look"), call(3), call(4, "ok"), call(5))
    assert (episode.tool, episode.first_ok, episode.retries, episode.ended) == ("pay", False, 2, "completed")
    assert episode.shape == "rewrite-a-value"


@pytest.mark.parametrize(
    ("calls", "ended"),
    [
        ([call(1), call(2, warnings=["exhausted"])], "exhausted"),
        ([call(1), call(2)], "gave_up"),
        ([call(1), call(2, warnings=["log-ends"])], "censored"),
        ([call(1), call(2, "missing")], "censored"),
        ([call(1, "missing"), call(2, "ok")], "censored"),  # whether the first call succeeded is not known
        ([call(1, "ok"), call(2, warnings=["log-ends"])], "completed"),
        ([call(1, "denied"), call(2, "timeout")], "gave_up"),
    ],
)
def test_how_an_episode_ended(calls: list[Call], ended: str) -> None:
    assert outcome(*calls).ended == ended


def test_an_episode_that_begins_late_tells_of_no_first_try() -> None:
    late = outcome(call(3, warnings=["begins-late"]), call(4, "ok"))
    assert (late.first_ok, late.retries, late.ended) == (None, 1, "completed")
    assert outcome(call(3, "ok"), call(4, warnings=["begins-late: odd"])).first_ok is None
    (trial,) = recoveries(call(3, hint=[TEN], warnings=["begins-late"]), call(4, "ok", {"qty": 10}))
    assert (trial.result, trial.attribution) == ("applied", "certain")


def test_calls_of_the_first_step_are_no_retries() -> None:
    assert outcome(call(1), call(1, seq=1), call(2, "ok")).retries == 1


@pytest.mark.parametrize(
    ("arm", "trial", "first"), [("A0", 0, True), ("A0", 2, False), ("A0", None, None), (None, 0, None)]
)
def test_only_a_run_knows_first_occurrences(arm: str | None, trial: int | None, first: bool | None) -> None:
    assert outcome(call(1, "ok", arm=arm, trial=trial)).first_occurrence is first


def test_shape_of_an_episode_in_words_or_without_an_error() -> None:
    assert outcome(call(1), call(2, "ok")).shape == "text"
    assert outcome(call(1, "ok")).shape is None


def test_frames_have_a_row_for_each_trial_and_each_episode() -> None:
    calls = [call(1, hint=[TEN]), call(1, "ok", episode_id="f"), call(2, "ok", {"qty": 10})]
    trials, episodes = frames(calls)
    assert trials.columns == list(Trial._fields)
    assert episodes.columns == list(Episode._fields)
    assert trials.select("episode_id", "result", "next_ok").rows() == [("e", "applied", True)]
    assert episodes.select("episode_id", "first_ok", "retries").rows() == [("e", False, 1), ("f", True, 0)]
    assert frames([])[0].is_empty()


def test_an_answer_is_judged_again_only_where_it_is_the_same_request() -> None:
    assert judge((TEN,), {"qty": 50}, Answer({"qty": 50}, False, "ok", again=True)) == "identical"
    assert judge((TEN,), {"qty": 50}, Answer({"qty": 50}, False, "ok")) == "other"
