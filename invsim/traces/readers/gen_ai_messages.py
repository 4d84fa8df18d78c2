"""The calls and the answers in one message, in whatever shape the message was recorded.

Parts ``tool_call`` and ``tool_call_response`` (the conventions since 1.37), ``tool_calls`` and role "tool" (before, as
OpenAI has them), blocks of Anthropic and of Bedrock, and messages that are spread over attributes, one a field
(OpenInference, OpenLLMetry).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from invsim.traces.readers.fields import Fields
from invsim.traces.readers.messages import calls_of
from invsim.traces.readers.otlp_values import structure

_FLAT = re.compile(r"(llm\.(?:in|out)put_messages|gen_ai\.(?:prompt|completion))\.(\d{1,9})\.(?:message\.)?(.+)")
_FLAT_CALL = re.compile(r"tool_calls\.(\d{1,9})\.(?:tool_call\.)?(?:function\.)?(id|name|arguments)")
_FLAT_TEXT = re.compile(r"contents\.(\d{1,9})\.message_content\.text")
INPUTS, OUTPUTS = ("llm.input_messages", "gen_ai.prompt"), ("llm.output_messages", "gen_ai.completion")


class Asked(NamedTuple):
    """A call that stands in a message; ``arguments`` as written."""

    place: str
    tool: str | None
    arguments: Any
    call_id: str | None


class Shown(NamedTuple):
    """An answer that a model was shown; ``failed`` where the message says so."""

    content: Any
    failed: bool | None = None


def asked_in(message: Fields) -> Iterator[Asked]:
    """Yield the calls in a message."""
    for part in message.rows("parts"):
        if part.data.get("type") == "tool_call":
            yield Asked(part.place, part.text("name"), part.data.get("arguments"), part.text("id"))
    content = _objects(message.data.get("content"))
    if not content and "tool_calls" not in message and "function_call" not in message:
        return
    held = Fields({**message.data, "content": content}, message.place, message.faults)
    for place, tool, written, call_id, _ in calls_of(held):
        yield Asked(place, tool, written, call_id)
    for block in held.rows("content"):
        if (use := _inner(block, "toolUse")) is not None:
            yield Asked(use.place, use.text("name"), use.data.get("input"), use.text("toolUseId"))


def answers_in(message: Fields) -> Iterator[tuple[str, Shown]]:
    """Yield (call id, answer) of the answers in a message."""
    found = False
    for call_id, shown in _answers(message):
        found = True
        if call_id is not None:
            yield call_id, shown
    if not found and message.data.get("role") == "tool" and (name := message.text("tool_call_id", "id")):
        yield name, Shown(message.data.get("content"))


def _answers(message: Fields) -> Iterator[tuple[str | None, Shown]]:
    for key in ("parts", "content"):
        for index, block in enumerate(_objects(message.data.get(key))):
            held = Fields(block, message.at(f"{key}[{index}]"), message.faults)
            if block.get("type") == "tool_call_response":
                yield held.text("id"), Shown(block.get("response", block.get("result")))
            elif block.get("type") == "tool_result":
                yield held.text("tool_use_id"), Shown(block.get("content"), held.flag("is_error"))
            elif (result := _inner(held, "toolResult")) is not None:
                failed = True if result.data.get("status") == "error" else None
                yield result.text("toolUseId"), Shown(bedrock_content(result.data.get("content")), failed)


def bedrock_content(content: Any) -> Any:
    """Return what blocks of Bedrock hold, which have no type: one value, or their texts."""
    if not isinstance(content, list) or not content:
        return content
    kinds = [next(iter(each)) if isinstance(each, dict) and len(each) == 1 else None for each in content]
    if kinds == ["json"]:
        return content[0]["json"]
    if all(each == "text" for each in kinds) and all(isinstance(each["text"], str) for each in content):
        return "\n".join(each["text"] for each in content)
    return content


def flat_messages(attributes: Fields, prefixes: tuple[str, str]) -> list[Fields]:
    """Return messages that are spread over attributes, put together."""
    found: dict[int, dict[str, Any]] = {}
    calls: dict[int, dict[int, dict[str, Any]]] = {}
    texts: dict[int, dict[int, str]] = {}
    for key, value in attributes.data.items():
        match = _FLAT.fullmatch(key)
        if not match or match[1] not in prefixes:
            continue
        number, rest = int(match[2]), match[3]
        if call := _FLAT_CALL.fullmatch(rest):
            calls.setdefault(number, {}).setdefault(int(call[1]), {})[call[2]] = value
        elif (text := _FLAT_TEXT.fullmatch(rest)) and isinstance(value, str):
            texts.setdefault(number, {})[int(text[1])] = value
        else:
            found.setdefault(number, {})[rest] = structure(value) if rest == "tool_calls" else value
    for number, held in calls.items():
        found.setdefault(number, {})["tool_calls"] = [each for _, each in sorted(held.items())]
    for number, said in texts.items():
        found.setdefault(number, {}).setdefault("content", "\n".join(each for _, each in sorted(said.items())))
    return [
        Fields(held, attributes.at(f"{prefixes[0].partition('.')[2]}[{number}]"), attributes.faults)
        for number, held in sorted(found.items())
    ]


def _objects(written: Any) -> list[dict[str, Any]]:
    """Return the items of an array, with an empty object for what is none."""
    return [each if isinstance(each, dict) else {} for each in written] if isinstance(written, list) else []


def _inner(block: Fields, key: str) -> Fields | None:
    return block.table(key) if isinstance(block.data.get(key), dict) else None
