"""What a span's attributes and events say, under the names of the GenAI conventions, OpenInference or OpenLLMetry."""

from __future__ import annotations

from typing import Any, TypeAlias

from invsim.traces.readers.arguments import shallow, strict_json
from invsim.traces.readers.events import CHOICE, DETAILS, EXCEPTION, ROLES, Event
from invsim.traces.readers.fields import Fields
from invsim.traces.readers.gen_ai_messages import (
    INPUTS,
    OUTPUTS,
    Asked,
    Shown,
    answers_in,
    asked_in,
    bedrock_content,
    flat_messages,
)
from invsim.traces.readers.spans import Span

Outputs: TypeAlias = list[list[Fields]]

_MODEL = ("chat", "generate_content", "text_completion")


def is_model(span: Span) -> bool:
    """Return whether a span is one request to a model."""
    told = span.attributes
    return (
        told.data.get("gen_ai.operation.name") in _MODEL
        or told.data.get("openinference.span.kind") == "LLM"
        or told.data.get("llm.request.type") in ("chat", "completion")
    )


def is_tool(span: Span) -> bool:
    """Return whether a span is one run of a tool."""
    told = span.attributes
    return (
        told.data.get("gen_ai.operation.name") == "execute_tool"
        or told.data.get("openinference.span.kind") == "TOOL"
        or told.data.get("traceloop.span.kind") == "tool"
    )


def http_status(span: Span) -> Any:
    """Return the HTTP status that a span states, as written."""
    told = span.attributes.data
    return told.get("http.response.status_code", told.get("http.status_code"))


def is_http(span: Span) -> bool:
    """Return whether a span is one HTTP request."""
    return (
        any(key in span.attributes for key in ("http.request.method", "http.method")) or http_status(span) is not None
    )


def tool_name(span: Span) -> str | None:
    """Return the name of the tool that ran."""
    found = span.attributes.text("gen_ai.tool.name", "tool.name", "tool_call.function.name", "traceloop.entity.name")
    return found or span.name.removeprefix("execute_tool ").strip() or None


def call_id(span: Span) -> str | None:
    """Return the id of the call that a tool ran for."""
    return span.attributes.text("gen_ai.tool.call.id", "tool_call.id", "tool.id")


def arguments(span: Span) -> Any:
    """Return the arguments a tool ran with, as written; null where they were not recorded."""
    told = span.attributes.data
    for key in (
        "gen_ai.tool.call.arguments",
        "gen_ai.tool.arguments",
        "tool_call.function.arguments",
        "tool.parameters",
        "traceloop.entity.input",
        "input.value",
    ):
        if told.get(key) is not None:
            return told[key]
    for message in _messages(span, "gen_ai.input.messages"):
        for call in asked_in(message):
            return call.arguments
    # An agent that tells of a tool's result as of a choice tells of its arguments as of a message.
    return next((each.told.data.get("content") for each in _tool_messages(span)), None) if _choices(span) else None


def result(span: Span) -> Any:
    """Return what a tool answered, as written."""
    told = span.attributes.data
    for key in ("gen_ai.tool.call.result", "gen_ai.tool.result", "traceloop.entity.output", "output.value"):
        if told.get(key) is not None:
            return told[key]
    for message in _messages(span, "gen_ai.output.messages"):
        for _, shown in answers_in(message):
            return bedrock_content(shown.content)
    for event in _choices(span):
        return bedrock_content(event.told.data.get("message"))
    return next((each.told.data.get("content") for each in _tool_messages(span)), None)


def failed(span: Span) -> bool:
    """Return whether a tool ended in an error."""
    told = span.attributes.data
    states = (told.get("gen_ai.tool.status"), told.get("tool.status"))
    return span.status == "ERROR" or "error" in states or _kind(span) is not None


def failure(span: Span) -> str | None:
    """Return the kind of error that a failed tool ended in."""
    return _kind(span) or _exception(span, "exception.type")


def complaint(span: Span) -> str | None:
    """Return what is said of the error that a failed tool ended in."""
    said = span.message or span.attributes.text("exception.message") or _exception(span, "exception.message")
    return said or failure(span)


def finish_reason(span: Span, outputs: Outputs) -> str | None:
    """Return why the model stopped."""
    found = span.attributes.data.get("gen_ai.response.finish_reasons")
    reasons = [*found] if isinstance(found, list) else [found]
    reasons += [each.data.get("finish_reason") for messages in outputs for each in messages]
    return next((each for each in reasons if isinstance(each, str) and each), None)


def outputs_of(span: Span) -> Outputs:
    """Return what a model answered: messages, as each place tells that may, the most faithful first."""
    choices = [_chosen(each) for each in _choices(span)]
    return [_messages(span, "gen_ai.output.messages"), choices, flat_messages(span.attributes, OUTPUTS)]


def inputs_of(span: Span) -> list[Fields]:
    """Return the messages that a model was shown, as each place tells that may, the most faithful last."""
    events = [
        Fields({**each.told.data, "role": ROLES[each.name]}, each.told.place, each.told.faults)
        for each in span.events
        if each.name in ROLES
    ]
    return [*flat_messages(span.attributes, INPUTS), *events, *_messages(span, "gen_ai.input.messages")]


def asked_calls(outputs: Outputs) -> list[Asked]:
    """Return the calls in a model's output, as the first place tells that tells of any."""
    for messages in outputs:
        found: list[Asked] = []
        for call in (each for message in messages for each in asked_in(message)):
            # The same event may have been recorded of the span and logged.
            if call.call_id is None or not any(call[1:] == each[1:] for each in found):
                found.append(call)
        if found:
            return found
    return []


def answered_calls(inputs: list[Fields]) -> dict[str, Shown]:
    """Return the answers, by call id, that a model was shown."""
    return {name: shown for message in inputs for name, shown in answers_in(message)}


def earlier_calls(inputs: list[Fields]) -> list[list[Asked]]:
    """Return the calls of each earlier turn that a model was shown."""
    return [found for message in inputs if (found := list(asked_in(message)))]


def _chosen(event: Event) -> Fields:
    """Return the message of a choice, which may be its content alone."""
    told = event.told.data
    message = told.get("message")
    held = message if isinstance(message, dict) else {"content": message}
    outer: dict[str, Any] = {key: told[key] for key in ("tool_calls", "finish_reason") if key in told}
    return Fields({**outer, **held}, event.told.place, event.told.faults)


def _choices(span: Span) -> list[Event]:
    return [each for each in span.events if each.name == CHOICE]


def _tool_messages(span: Span) -> list[Event]:
    return [each for each in span.events if ROLES.get(each.name) == "tool"]


def _kind(span: Span) -> str | None:
    return span.attributes.text("error.type", "exception.type")


def _exception(span: Span, key: str) -> str | None:
    return next((found for each in span.events if each.name == EXCEPTION and (found := each.told.text(key))), None)


def _messages(span: Span, key: str) -> list[Fields]:
    """Return the messages in an attribute of a span, or else of its events of details."""
    own = _listed(span.attributes, key)
    return own or [message for each in span.events if each.name == DETAILS for message in _listed(each.told, key)]


def _listed(holder: Fields, key: str) -> list[Fields]:
    """Return the messages in an attribute, which is JSON text or an array."""
    written = holder.data.get(key)
    if isinstance(written, str):
        try:
            written = strict_json(written)
        except ValueError as error:
            holder.faults.add(holder.at(key), "bad-attribute", f"not JSON: {error}", lost=False)
            return []
    if not isinstance(written, list) or not shallow(written):
        return []
    return list(Fields({key: written}, holder.place, holder.faults).rows(key))
