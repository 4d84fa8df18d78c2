"""What the attributes of a span say, under the names of the GenAI conventions, OpenInference or OpenLLMetry."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from invsim.traces.readers.arguments import shallow, strict_json
from invsim.traces.readers.fields import Fields
from invsim.traces.readers.spans import Span

_MODEL = ("chat", "generate_content", "text_completion")
_FLAT = re.compile(
    r"(?:llm\.output_messages|gen_ai\.completion)\.(\d{1,9})\.(?:message\.)?"
    r"tool_calls\.(\d{1,9})\.(?:tool_call\.)?(id|name|arguments|function\.name|function\.arguments)"
)


class Asked(NamedTuple):
    """A call that stands in a model's output; ``arguments`` as written."""

    place: str
    tool: str | None
    arguments: Any
    call_id: str | None


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
    return None


def result(span: Span) -> Any:
    """Return what a tool answered, as written."""
    told = span.attributes.data
    for key in ("gen_ai.tool.call.result", "gen_ai.tool.result", "traceloop.entity.output", "output.value"):
        if told.get(key) is not None:
            return told[key]
    return None


def finish_reason(span: Span) -> str | None:
    """Return why the model stopped."""
    found = span.attributes.data.get("gen_ai.response.finish_reasons")
    if isinstance(found, list):
        return next((each for each in found if isinstance(each, str)), None)
    return found if isinstance(found, str) else None


def asked_calls(span: Span) -> Iterator[Asked]:
    """Yield the calls in a model's output, once each."""
    found = list(_parts(span, "gen_ai.output.messages", "tool_call"))
    for part in found:
        yield Asked(part.place, part.text("name"), part.data.get("arguments"), part.text("id"))
    if found:
        return
    flat: dict[tuple[int, int], dict[str, Any]] = {}
    for key, value in span.attributes.data.items():
        if match := _FLAT.fullmatch(key):
            message, call, name = int(match[1]), int(match[2]), match[3].removeprefix("function.")
            flat.setdefault((message, call), {})[name] = value
    for (message, call), parts in sorted(flat.items()):
        each = Fields(parts, span.attributes.at(f"output {message}, call {call}"), span.attributes.faults)
        yield Asked(each.place, each.text("name"), parts.get("arguments"), each.text("id"))


def answered_calls(span: Span) -> dict[str, Any]:
    """Return the answers, by call id, that a model was shown."""
    return {
        name: part.data.get("response", part.data.get("result"))
        for part in _parts(span, "gen_ai.input.messages", "tool_call_response")
        if (name := part.text("id"))
    }


def _parts(span: Span, key: str, kind: str) -> Iterator[Fields]:
    """Yield the parts of one kind of the messages in an attribute, which is JSON text or an array."""
    written = span.attributes.data.get(key)
    if isinstance(written, str):
        try:
            written = strict_json(written)
        except ValueError as error:
            span.attributes.faults.add(span.attributes.at(key), "bad-attribute", f"not JSON: {error}", lost=False)
            return
    if not isinstance(written, list) or not shallow(written):
        return
    held = Fields({key: written}, span.attributes.place, span.attributes.faults)
    for message in held.rows(key):
        for part in message.rows("parts"):
            if part.data.get("type") == kind:
                yield part
