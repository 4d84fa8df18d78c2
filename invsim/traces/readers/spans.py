"""OpenTelemetry spans with what is told of them: their attributes, their events, log records of their context."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from invsim.traces.reader import Faults
from invsim.traces.readers.events import CHOICE, DETAILS, Event, is_log_record, read_events
from invsim.traces.readers.fields import Fields
from invsim.traces.readers.otlp_values import attributes, identifier, time_of
from invsim.traces.readers.times import Moment

MESSAGES = ("gen_ai.input.messages", "gen_ai.output.messages")
"""Attributes that several events may each have a part of."""

_STATUS = {1: "OK", 2: "ERROR", "STATUS_CODE_OK": "OK", "STATUS_CODE_ERROR": "ERROR", "OK": "OK", "ERROR": "ERROR"}


@dataclass(frozen=True)
class Span:
    """One span.

    Parameters
    ----------
    trace_id, span_id : str
    parent_id : str or None
    name : str
    start, end : Moment or None
    status : str or None
        "OK", "ERROR" or None where none was set.
    message : str or None
    attributes : Fields
        Its own, and those of its events of details, but for the messages.
    place : str
    events : tuple of Event
    answered : bool
        False for a request that only log records tell of, and none of them what was answered.
    """

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    start: Moment | None
    end: Moment | None
    status: str | None
    message: str | None
    attributes: Fields
    place: str
    events: tuple[Event, ...] = ()
    answered: bool = True


def spans_of(record: Fields) -> Iterator[Fields]:
    """Yield the spans of an export request, of the part of one, or of a record that is a span itself."""
    if "spanId" in record.data or "span_id" in record.data:
        if not is_log_record(record):
            yield record
        return
    for outer in ("resourceSpans", "resource_spans"):
        for resource in record.rows(outer):
            yield from _scoped(resource)
    yield from _scoped(record)


def _scoped(resource: Fields) -> Iterator[Fields]:
    for inner in ("scopeSpans", "scope_spans", "instrumentationLibrarySpans"):
        for scope in resource.rows(inner):
            yield from scope.rows("spans")
    yield from resource.rows("spans")


def read_span(fields: Fields) -> Span | None:
    """Return a span, or None, noted, if it has no ids."""
    trace, own = (identifier(fields.text(*keys)) for keys in (("traceId", "trace_id"), ("spanId", "span_id")))
    if trace is None or own is None:
        fields.faults.add(fields.place, "no-id", "a span without trace and span id")
        return None
    status = fields.table("status") if isinstance(fields.data.get("status"), dict) else None
    code = status.data.get("code") if status else fields.data.get("status")
    return Span(
        trace_id=trace,
        span_id=own,
        parent_id=identifier(fields.text("parentSpanId", "parent_span_id")),
        name=fields.text("name") or "",
        start=time_of(fields, "startTimeUnixNano", "start_time_unix_nano", "start_time"),
        end=time_of(fields, "endTimeUnixNano", "end_time_unix_nano", "end_time"),
        status=_STATUS.get(code) if isinstance(code, str | int) else None,
        message=status.text("message", "description") if status else None,
        attributes=attributes(fields),
        place=fields.place,
        events=read_events(fields),
    )


def without_duplicates(spans: Iterable[Span], faults: Faults) -> list[Span]:
    """Return each span once, in order. Of two versions the one with a status is kept, then the one that ended later.

    An id counts within its trace: the same span id in another trace is another span.
    """
    kept: dict[tuple[str, str], Span] = {}
    for span in spans:
        key = (span.trace_id, span.span_id)
        before = kept.get(key)
        if before is None:
            kept[key] = span
            continue
        faults.add(span.place, "duplicate-span", f"span {span.span_id} of its trace came before", lost=False)
        if _finality(span) > _finality(before):
            kept[key] = span
    return list(kept.values())


def with_events(spans: Iterable[Span], records: Iterable[Event], default: str) -> list[Span]:
    """Return spans with the log records of their context; a context that has no span becomes one.

    Parameters
    ----------
    spans : iterable of Span
    records : iterable of Event
    default : str
        Trace of records that name neither a trace nor a conversation.
    """
    held: dict[tuple[str, str], list[Event]] = {}
    for each in records:
        trace = each.trace_id or each.told.text("gen_ai.conversation.id") or default
        held.setdefault((trace, each.span_id or each.told.place), []).append(each)
    found = [replace(span, events=(*span.events, *held.pop((span.trace_id, span.span_id), ()))) for span in spans]
    found += [_from_records(trace, own, events) for (trace, own), events in held.items()]
    return [_with_details(each) for each in found]


def _from_records(trace: str, own: str, events: list[Event]) -> Span:
    times = sorted(each.at for each in events if each.at is not None)
    first = events[0].told
    named = (each.told.text("gen_ai.operation.name") for each in events if each.name == DETAILS)
    operation = next((each for each in named if each), "chat")
    return Span(
        trace_id=trace,
        span_id=own,
        parent_id=None,
        name="",
        start=times[0] if times else None,
        end=times[-1] if times else None,
        status=None,
        message=None,
        attributes=Fields({"gen_ai.operation.name": operation}, first.place, first.faults),
        place=first.place,
        events=tuple(events),
        answered=any(each.name == CHOICE or each.told.data.get(MESSAGES[1]) for each in events),
    )


def _with_details(span: Span) -> Span:
    """Return a span with the attributes of its events of details; its own come first, so that a bill counts once."""
    told: dict[str, Any] = {}
    for each in span.events:
        if each.name == DETAILS:
            told = {**{key: value for key, value in each.told.data.items() if key not in MESSAGES}, **told}
    own = span.attributes
    return replace(span, attributes=Fields({**told, **own.data}, own.place, own.faults)) if told else span


def _finality(span: Span) -> tuple[bool, int, int]:
    return span.status is not None, span.end.ns if span.end else 0, len(span.attributes.data)
