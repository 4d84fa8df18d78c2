"""OpenTelemetry spans as OTLP writes them in JSON: whole numbers as text, ids in hex or base64, values in wrappers."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from invsim.traces.reader import Faults
from invsim.traces.readers.fields import Fields
from invsim.traces.readers.times import Moment, moment

DEEPEST_VALUE = 50
"""Levels of arrays and lists of keys within an attribute."""

_SCALARS = ("stringValue", "string_value", "boolValue", "bool_value", "doubleValue", "double_value", "bytesValue")
_WHOLE = ("intValue", "int_value")
_HEX = re.compile(r"[0-9a-fA-F]+")
_STATUS = {1: "OK", 2: "ERROR", "STATUS_CODE_OK": "OK", "STATUS_CODE_ERROR": "ERROR", "OK": "OK", "ERROR": "ERROR"}


@dataclass(frozen=True)
class Span:
    """One span; ``status`` is "OK", "ERROR" or None where none was set."""

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


def spans_of(record: Fields) -> Iterator[Fields]:
    """Yield the spans of an export request, of the part of one, or of a record that is a span itself."""
    if "spanId" in record.data or "span_id" in record.data:
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
        start=_time(fields, "startTimeUnixNano", "start_time_unix_nano", "start_time"),
        end=_time(fields, "endTimeUnixNano", "end_time_unix_nano", "end_time"),
        status=_STATUS.get(code) if isinstance(code, str | int) else None,
        message=status.text("message", "description") if status else None,
        attributes=attributes(fields),
        place=fields.place,
    )


def identifier(written: str | None) -> str | None:
    """Return an id in lower-case hex, whether it was written so or in base64; other ids stay as they are."""
    if not written:
        return None
    if len(written) in (16, 32) and _HEX.fullmatch(written):
        return written.lower()
    if len(written) in (12, 24) and written.endswith("="):
        try:
            return base64.b64decode(written, validate=True).hex()
        except (binascii.Error, ValueError):
            return written
    return written


def attributes(fields: Fields) -> Fields:
    """Return the attributes of a span as one flat object; of a key written twice the last value counts."""
    written = fields.data.get("attributes")
    found: dict[str, Any] = {}
    if isinstance(written, dict):
        found = {key: _value(each) if _is_wrapped(each) else each for key, each in written.items()}
    else:
        for pair in fields.rows("attributes"):
            if key := pair.text("key"):
                found[key] = _value(pair.data.get("value"))
    return Fields(found, fields.at("attributes"), fields.faults)


def _is_wrapped(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and next(iter(value)).endswith(("Value", "_value"))


def _value(wrapped: Any, depth: int = DEEPEST_VALUE) -> Any:
    """Return the value inside an ``AnyValue``; null for what is none, or nests too deeply."""
    if not isinstance(wrapped, dict) or depth == 0:
        return wrapped if isinstance(wrapped, str | int | float | bool) else None
    for key in _SCALARS:
        if key in wrapped:
            return wrapped[key]
    for key in _WHOLE:
        if key in wrapped:
            return _whole(wrapped[key])
    for key in ("arrayValue", "array_value"):
        if isinstance(inner := wrapped.get(key), dict) and isinstance(items := inner.get("values", []), list):
            return [_value(each, depth - 1) for each in items]
    for key in ("kvlistValue", "kvlist_value"):
        if isinstance(inner := wrapped.get(key), dict) and isinstance(items := inner.get("values", []), list):
            pairs = [each for each in items if isinstance(each, dict) and isinstance(each.get("key"), str)]
            return {each["key"]: _value(each.get("value"), depth - 1) for each in pairs}
    return None


def _whole(value: Any) -> Any:
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,25}", value, re.ASCII):
        return int(value)
    return value


def _time(fields: Fields, *keys: str) -> Moment | None:
    for key in keys:
        value = fields.data.get(key)
        if value in (None, 0, "0"):
            continue
        found = moment(value)
        if found is None:
            fields.faults.add(fields.at(key), "bad-time", f"no time: {str(value)[:40]!r}", lost=False)
        return found
    return None


def without_duplicates(spans: Iterator[Span], faults: Faults) -> list[Span]:
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


def _finality(span: Span) -> tuple[bool, int, int]:
    return span.status is not None, span.end.ns if span.end else 0, len(span.attributes.data)
