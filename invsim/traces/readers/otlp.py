"""OTLP JSON with GenAI spans and events, under the names of the semantic conventions or of OpenInference.

An episode is a conversation (``gen_ai.conversation.id``, ``session.id``), or else a trace. A model's span is a turn, of
one bill; the calls in its output, and the tools that ran, are its calls. Agents' spans repeat what their children tell
and are not counted, nor is a model's span around another model's span.

A call counts once, by its id, though a tool's span, the output of a turn and the history shown to each later turn may
all tell of it, in attributes, in events of a span and in log records. Of a call that has no id in one of them the name
and the time tell. Log records belong to the span whose ids they have; where a file has no such span they make up a
turn of their own. Files are read apart: spans and the log records of them belong into one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from invsim.traces.reader import Faults
from invsim.traces.readers.conversations import Conversation
from invsim.traces.readers.events import log_records_of, read_record, without_repeats
from invsim.traces.readers.fields import Fields
from invsim.traces.readers.records import read_records
from invsim.traces.readers.spans import Span, read_span, spans_of, with_events, without_duplicates
from invsim.traces.schema import Call

_EXPORT = re.compile(rb'"(?:resource|scope)(?:Spans|_spans|Logs|_logs)"\s*:')
_EVENT = re.compile(rb'"event(?:Name|_name)"\s*:\s*"gen_ai\.')
_SPAN = re.compile(rb'"(?:spanId|span_id)"\s*:')
_TRACE = re.compile(rb'"(?:traceId|trace_id)"\s*:')
_KEYS = frozenset(
    {
        *("resourceSpans", "resource_spans", "scopeSpans", "scope_spans", "spanId", "span_id"),
        *("resourceLogs", "resource_logs", "scopeLogs", "scope_logs", "eventName", "event_name"),
    }
)


class OtlpReader:
    """Reads exports of OpenTelemetry spans, one a file or one a line."""

    name = "otlp"

    def detect(self, head: bytes, path: Path) -> bool:
        """Return whether there are spans or GenAI events."""
        spans = bool(_SPAN.search(head)) and bool(_TRACE.search(head))
        return spans or bool(_EXPORT.search(head)) or bool(_EVENT.search(head))

    def read(self, path: Path, faults: Faults) -> Iterator[Call]:
        """Yield the calls of a file, conversation by conversation. Spans come in any order, so all are held."""
        spans, records = [], []
        for place, value, torn, _ in read_records(path, faults, _is_part):
            part = Fields(value, place, faults)
            spans += [
                span for each in spans_of(part) if id(each.data) not in torn and (span := read_span(each)) is not None
            ]
            records += [
                event
                for each in log_records_of(part)
                if id(each.data) not in torn and (event := read_record(each)) is not None
            ]
        found = with_events(without_duplicates(spans, faults), without_repeats(records, faults), path.stem)
        named = _conversation_of_trace(found)
        held: dict[str, list[Span]] = {}
        for span in found:
            held.setdefault(named.get(span.trace_id, span.trace_id), []).append(span)
        conversations = [Conversation(name, each, self.name, str(path), faults) for name, each in held.items()]
        told = set[str]().union(*(each.told for each in conversations))
        for conversation in conversations:
            yield from conversation.calls(told)


def _is_part(value: Any) -> bool:
    return isinstance(value, dict) and not _KEYS.isdisjoint(value)


def _conversation_of_trace(spans: list[Span]) -> dict[str, str]:
    """Return the conversation of each trace; a trace of several conversations stays one episode."""
    names: dict[str, set[str]] = {}
    for span in spans:
        if name := span.attributes.text("gen_ai.conversation.id", "session.id"):
            names.setdefault(span.trace_id, set()).add(name)
    return {trace: next(iter(found)) for trace, found in names.items() if len(found) == 1}
