"""Values as OTLP writes them in JSON: whole numbers as text, ids in hex or base64, attributes in wrappers."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from invsim.traces.readers.arguments import shallow, strict_json
from invsim.traces.readers.fields import Fields
from invsim.traces.readers.times import Moment, moment

DEEPEST_VALUE = 50
"""Levels of arrays and lists of keys within an attribute."""

_SCALARS = ("stringValue", "string_value", "boolValue", "bool_value", "doubleValue", "double_value", "bytesValue")
_WHOLE = ("intValue", "int_value")
_HEX = re.compile(r"[0-9a-fA-F]+")


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
    """Return the attributes of a span or an event as one flat object; of a key written twice the last value counts."""
    written = fields.data.get("attributes")
    found: dict[str, Any] = {}
    if isinstance(written, dict):
        found = {key: any_value(each) if _is_wrapped(each) else each for key, each in written.items()}
    else:
        for pair in fields.rows("attributes"):
            if key := pair.text("key"):
                found[key] = any_value(pair.data.get("value"))
    return Fields(found, fields.at("attributes"), fields.faults)


def _is_wrapped(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and next(iter(value)).endswith(("Value", "_value"))


def any_value(wrapped: Any, depth: int = DEEPEST_VALUE) -> Any:
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
            return [any_value(each, depth - 1) for each in items]
    for key in ("kvlistValue", "kvlist_value"):
        if isinstance(inner := wrapped.get(key), dict) and isinstance(items := inner.get("values", []), list):
            pairs = [each for each in items if isinstance(each, dict) and isinstance(each.get("key"), str)]
            return {each["key"]: any_value(each.get("value"), depth - 1) for each in pairs}
    return None


def _whole(value: Any) -> Any:
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,25}", value, re.ASCII):
        return int(value)
    return value


def time_of(fields: Fields, *keys: str) -> Moment | None:
    """Return the time under the first of some keys that states one; zero is how none is written."""
    for key in keys:
        value = fields.data.get(key)
        if value in (None, 0, "0"):
            continue
        found = moment(value)
        if found is None:
            fields.faults.add(fields.at(key), "bad-time", f"no time: {str(value)[:40]!r}", lost=False)
        return found
    return None


def structure(value: Any) -> Any:
    """Return the object or array that a text is JSON of, for attributes of old hold no others; else the value."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            found = strict_json(value)
        except ValueError:
            return value
        return found if shallow(found) else value
    return value
