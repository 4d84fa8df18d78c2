"""OTLP JSON with GenAI spans, under the names of the semantic conventions or of OpenInference.

An episode is a conversation (``gen_ai.conversation.id``, ``session.id``), or else a trace. A model's span is a turn;
the calls in its output, and the tool spans, are its calls. Agents' spans repeat the tokens of their children and are
not counted, nor is a model's span around another model's span.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from invsim.traces.reader import Faults
from invsim.traces.readers.conversations import Conversation
from invsim.traces.readers.fields import Fields
from invsim.traces.readers.records import read_records
from invsim.traces.readers.spans import read_span, spans_of, without_duplicates
from invsim.traces.schema import Call

_EXPORT = re.compile(rb'"(?:resourceSpans|resource_spans|scopeSpans|scope_spans)"\s*:')
_SPAN = re.compile(rb'"(?:spanId|span_id)"\s*:')
_TRACE = re.compile(rb'"(?:traceId|trace_id)"\s*:')
_KEYS = ("resourceSpans", "resource_spans", "scopeSpans", "scope_spans", "spanId", "span_id")


class OtlpReader:
    """Reads exports of OpenTelemetry spans, one a file or one a line."""

    name = "otlp"

    def detect(self, head: bytes, path: Path) -> bool:
        """Return whether there are spans."""
        return bool(_EXPORT.search(head)) or (bool(_SPAN.search(head)) and bool(_TRACE.search(head)))

    def read(self, path: Path, faults: Faults) -> Iterator[Call]:
        """Yield the calls of a file, conversation by conversation. Spans come in any order, so all are held."""
        found = without_duplicates(
            (
                span
                for place, value, torn, _ in read_records(path, faults, _is_part)
                for fields in spans_of(Fields(value, place, faults))
                if id(fields.data) not in torn and (span := read_span(fields)) is not None
            ),
            faults,
        )
        conversations: dict[str, Conversation] = {}
        named = _conversation_of_trace(found)
        for span in found:
            episode = named.get(span.trace_id, span.trace_id)
            if episode not in conversations:
                conversations[episode] = Conversation(episode, self.name, str(path), faults)
            conversations[episode].spans.append(span)
        for conversation in conversations.values():
            yield from conversation.calls()


def _is_part(value: Any) -> bool:
    return isinstance(value, dict) and any(key in value for key in _KEYS)


def _conversation_of_trace(spans: list[Any]) -> dict[str, str]:
    """Return the conversation of each trace; a trace of several conversations stays one episode."""
    names: dict[str, set[str]] = {}
    for span in spans:
        if name := span.attributes.text("gen_ai.conversation.id", "session.id"):
            names.setdefault(span.trace_id, set()).add(name)
    return {trace: next(iter(found)) for trace, found in names.items() if len(found) == 1}
