"""Chat messages, OpenAI's and Anthropic's and their cousins', into the turns, calls and answers of an episode."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from invsim.traces.readers.arguments import parse_arguments, shallow
from invsim.traces.readers.fields import Fields
from invsim.traces.readers.times import Moment, moment
from invsim.traces.readers.turns import CUT, REFUSALS, Answer, Episode, Turn
from invsim.traces.readers.usage import chat_usage
from invsim.traces.schema import Outcome

ERROR_KINDS: dict[str, Outcome] = {"timeout": "timeout", "approval": "denied", "cancelled": "not_executed"}
"""Kinds of tool error, as Inspect names them, that are no plain errors."""


def add_message(
    message: Fields, episode: Episode, *, key: str | None = None, dialect: Callable[..., None] | None = None
) -> Turn | None:
    """Add what one message tells, and return the turn that it begins, if any.

    Parameters
    ----------
    message : Fields
        ``role`` "assistant" begins a turn; "tool" and "function" answer a call; "user" may, in Anthropic's blocks.
    episode : Episode
    key : str, optional
        What several messages of one turn share.
    dialect : callable, optional
        Takes the message and its turn, and sets what the dialect writes elsewhere.
    """
    role = message.text("role")
    if role == "assistant":
        return _add_turn(message, episode, key, dialect)
    if role in ("tool", "function"):
        _add_answer(message, episode)
    elif role == "user":
        for block in blocks_of(message):
            if block.data.get("type") == "tool_result":
                _add_result_block(block, episode, time_of(message))
    elif role not in ("system", "developer"):
        message.faults.add(message.at("role"), "unknown-role", f"a message of role {role!r}")
    return None


def time_of(record: Fields, *keys: str) -> Moment | None:
    """Return the time that a record states under the first of some keys, by default "timestamp"."""
    for key in keys or ("timestamp", "created_at"):
        if key in record:
            found = moment(record.data[key])
            if found is None:
                record.faults.add(record.at(key), "bad-time", f"no time: {str(record.data[key])[:40]!r}", lost=False)
            return found
    return None


def _add_turn(message: Fields, episode: Episode, key: str | None, dialect: Callable[..., None] | None) -> Turn:
    turn = episode.turn(key)
    turn.at = turn.at or time_of(message)
    _set_details(message, turn)
    if dialect is not None:
        dialect(message, turn)
    cut = turn.finish_reason in CUT
    size = turn.size
    for place, name, written, call_id, broken in calls_of(message):
        arguments = parse_arguments(written, cut=cut)
        if broken:
            raw = arguments.raw or (json.dumps(written) if shallow(written) else None)
            arguments = arguments._replace(request=None, raw=raw, status="truncated" if cut else "invalid")
        episode.call(place, name, arguments, call_id, turn.at)
    if turn.size == size and (turn.finish_reason in REFUSALS or message.text("refusal")):
        episode.refuse()
    return turn


def _set_details(message: Fields, turn: Turn) -> None:
    if served := message.text("model"):
        turn.model, turn.model_source = served, "message.model"
    turn.finish_reason = message.text("finish_reason", "stop_reason") or turn.finish_reason
    if usage := message.table("usage"):
        turn.usage = chat_usage(usage)


def calls_of(message: Fields) -> Iterator[tuple[str, str | None, Any, str | None, bool]]:
    """Yield (place, tool, arguments as written, call id, whether they failed to parse) of a turn's calls."""
    for call in message.rows("tool_calls"):
        function = call.data.get("function")
        inner = call.table("function") if isinstance(function, dict) else call
        name = call.text("function") if isinstance(function, str) else inner.text("name") if inner else None
        written = (inner or call).data.get("arguments")
        yield call.place, name, written, call.text("id"), bool(call.data.get("parse_error"))
    for block in blocks_of(message):
        if block.data.get("type") == "tool_use":
            yield block.place, block.text("name"), block.data.get("input"), block.text("id"), False
    if (old := message.table("function_call")) is not None:
        yield old.place, old.text("name"), old.data.get("arguments"), None, False


def _add_answer(message: Fields, episode: Episode) -> None:
    if isinstance(message.data.get("tool_messages"), list):  # several answers in one message
        for each in message.rows("tool_messages"):
            _add_answer(each, episode)
        return
    error = message.data.get("error")
    content, outcome = message.data.get("content"), None
    if isinstance(error, dict):
        told = message.table("error")
        flag: bool | None = True
        content = (told.text("message") if told else None) or content
        outcome = ERROR_KINDS.get(str(error.get("type")))
    else:
        flag = message.flag("error") if "error" in message else message.flag("is_error")
    answer = Answer(content, flag, message.count("status_code"), outcome, time_of(message))
    episode.answer(message.place, message.text("tool_call_id", "id"), answer, message.text("name", "function"))


def _add_result_block(block: Fields, episode: Episode, at: Moment | None) -> None:
    answer = Answer(block.data.get("content"), block.flag("is_error"), at=at)
    episode.answer(block.place, block.text("tool_use_id"), answer)


def blocks_of(message: Fields) -> Iterator[Fields]:
    """Yield the content blocks of a message whose content is no plain text."""
    if isinstance(message.data.get("content"), str):
        return
    yield from message.rows("content")
