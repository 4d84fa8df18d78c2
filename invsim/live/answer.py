"""From what a model wrote to a request, strictly: one flat JSON object, or no request at all."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NamedTuple, NoReturn

from invsim.traces.schema import ParseStatus
from invsim.world.wire import Value

_FENCE = re.compile(r"```(?:json)?[ \t]*\r?\n(?P<inside>.*?)\r?\n?[ \t]*```", re.DOTALL | re.IGNORECASE)

LARGEST_INTEGER = 2**63


class Answer(NamedTuple):
    """The fields of a request; None, with the reason, where there are none."""

    fields: dict[str, Value] | None
    status: ParseStatus
    reason: str = ""


class _Unfit(ValueError):
    """JSON, and yet no request."""


def read_text(text: str, *, cut: bool) -> Answer:
    """Read an answer given as text.

    The whole text is the object, or one Markdown code block is the whole text; an object that stands among other words
    is not looked for.

    Parameters
    ----------
    text : str
    cut : bool
        Whether the answer ended for want of tokens: what cannot be read then was truncated.
    """
    block = _FENCE.fullmatch(text.strip())
    return _read(block["inside"] if block else text, cut=cut)


def read_arguments(arguments: object, *, cut: bool) -> Answer:
    """Read the arguments of a tool call: an object, or its JSON text."""
    if isinstance(arguments, str):
        return _read(arguments, cut=cut)
    return _flat(arguments)


def _read(text: str, *, cut: bool) -> Answer:
    if not text.strip():
        return Answer(None, "truncated" if cut else "invalid", "the answer is empty")
    try:
        value = json.loads(text, object_pairs_hook=_once_each, parse_constant=_no_number)
    except _Unfit as error:
        return Answer(None, "invalid", str(error))
    except (ValueError, RecursionError):
        if cut:
            return Answer(None, "truncated", "the answer was cut off before its object ended")
        return Answer(None, "invalid", "the answer is not one JSON object")
    if isinstance(value, str) and _is_object(value):
        return Answer(None, "double_encoded", "the object is wrapped in a string")
    return _flat(value)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise _Unfit("a field is given twice")
    return fields


def _no_number(name: str) -> NoReturn:
    raise _Unfit(f"{name} is not a number of JSON")


def _flat(value: object) -> Answer:
    if not isinstance(value, dict):
        return Answer(None, "invalid", "the answer is JSON, but not an object")
    fields: dict[str, Value] = {}
    for name, each in value.items():
        if not isinstance(name, str) or not _is_text(name) or not _is_scalar(each):
            return Answer(None, "invalid", "a field's value is not a text, a number or a truth value")
        fields[name] = each
    return Answer(fields, "ok")


def _is_scalar(value: object) -> bool:
    if isinstance(value, str):
        return _is_text(value)
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, bool) or (isinstance(value, int) and abs(value) < LARGEST_INTEGER)


def _is_text(value: str) -> bool:
    """Whether a string is text that can be sent: half a surrogate pair is not."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
