"""OpenTelemetry events, of a span or as log records that name one, and what GenAI instrumentations tell in them.

Up to version 1.36 of the conventions each message was an event: ``gen_ai.user.message``, ``gen_ai.assistant.message``
and ``gen_ai.tool.message`` for what the model was shown, ``gen_ai.choice`` for what it answered. What an event told
stood in the body of a log record, in the attribute ``gen_ai.event.content`` of a span's event, or in attributes of its
own. Since then ``gen_ai.client.inference.operation.details`` has the attributes that a span may have.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from invsim.traces.reader import Faults
from invsim.traces.readers.arguments import shallow
from invsim.traces.readers.fields import Fields
from invsim.traces.readers.otlp_values import any_value, attributes, identifier, structure, time_of
from invsim.traces.readers.times import Moment

CHOICE = "gen_ai.choice"
DETAILS = "gen_ai.client.inference.operation.details"
EXCEPTION = "exception"
ROLES = {
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
_BLOCKS = ("content", "message", "tool_calls")
"""Attributes that hold more than text as its JSON; in a body, what is text there is text."""

_READ = frozenset({CHOICE, DETAILS, *ROLES})


class Event(NamedTuple):
    """One event; ``told`` has its attributes and, over them, its body."""

    name: str
    trace_id: str | None
    span_id: str | None
    at: Moment | None
    told: Fields


def log_records_of(record: Fields) -> Iterator[Fields]:
    """Yield the log records of an export request, of the part of one, or of a record that is one itself."""
    if is_log_record(record):
        yield record
        return
    for outer in ("resourceLogs", "resource_logs"):
        for resource in record.rows(outer):
            yield from _scoped(resource)
    yield from _scoped(record)


def is_log_record(record: Fields) -> bool:
    """Return whether a record is a log record; those of a span's context have a span's ids too."""
    return any(key in record.data for key in ("eventName", "event_name"))


def _scoped(resource: Fields) -> Iterator[Fields]:
    for inner in ("scopeLogs", "scope_logs"):
        for scope in resource.rows(inner):
            yield from _scoped(scope)
    for inner in ("logRecords", "log_records"):
        yield from resource.rows(inner)


def read_events(span: Fields) -> tuple[Event, ...]:
    """Return the events of a span that are read."""
    named = ((each, each.text("name")) for each in span.rows("events"))
    times = ("timeUnixNano", "time_unix_nano", "time")
    return tuple(_read(each, name, *times) for each, name in named if name in _READ or name == EXCEPTION)


def read_record(record: Fields) -> Event | None:
    """Return the event that a log record is, or None if it is none that is read."""
    name = record.text("eventName", "event_name") or attributes(record).text("event.name")
    times = ("timeUnixNano", "time_unix_nano", "observedTimeUnixNano", "observed_time_unix_nano")
    return _read(record, name, *times) if name in _READ else None


def without_repeats(events: Iterable[Event], faults: Faults) -> list[Event]:
    """Return each log record once: an exporter that got no answer sends its batch again."""
    seen: set[tuple[object, ...]] = set()
    kept = []
    for each in events:
        key = (each.name, each.trace_id, each.span_id, each.at, hash(json.dumps(each.told.data, sort_keys=True)))
        if each.span_id is not None and each.at is not None and key in seen:
            faults.add(each.told.place, "duplicate-event", f"the same {each.name} came before", lost=False)
        else:
            seen.add(key)
            kept.append(each)
    return kept


def _read(fields: Fields, name: str, *times: str) -> Event:
    told = {key: structure(each) if key in _BLOCKS else each for key, each in attributes(fields).data.items()}
    body = fields.data.get("body")
    is_plain = isinstance(body, dict) and not any(key.endswith(("Value", "_value")) for key in body)
    contents = (body if is_plain and shallow(body) else any_value(body), told.pop("gen_ai.event.content", None))
    for content in contents:
        if isinstance(found := structure(content), dict):
            told |= found
        elif content is not None:
            told["content"] = content
    return Event(
        name,
        identifier(fields.text("traceId", "trace_id")),
        identifier(fields.text("spanId", "span_id")),
        time_of(fields, *times),
        Fields(told, fields.place, fields.faults),
    )
