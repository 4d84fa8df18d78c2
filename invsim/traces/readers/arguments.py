"""The arguments of a call as models write them: an object, its JSON text, that text encoded again, or half of it."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from invsim.traces.readers.salvage import DEEPEST
from invsim.traces.schema import ParseStatus


class Arguments(NamedTuple):
    """What was read of a call's arguments; see ``Call.request``, ``request_raw`` and ``parse_status``."""

    request: dict[str, Any] | None
    raw: str | None
    status: ParseStatus
    warnings: tuple[str, ...] = ()


def parse_arguments(written: Any, *, cut: bool = False) -> Arguments:
    """Read the arguments of a call.

    Parameters
    ----------
    written : object
        An object, JSON text, or null and empty text for a call without arguments.
    cut : bool
        Whether the log says that the model ran into its limit of tokens in this turn.

    Returns
    -------
    Arguments
        "truncated" if the text ends before its value does, or fails to parse in a turn that was cut. A *field* whose
        text is itself a JSON object stays as it is, with the warning "encoded-field": it may be meant so.
    """
    if written is None or written == "":
        return Arguments(None if cut else {}, None, "truncated" if cut else "ok")
    if isinstance(written, dict):
        return _checked(written, None, "ok")
    if not isinstance(written, str):
        return Arguments(None, json.dumps(written)[:1000] if shallow(written) else None, "invalid")
    try:
        value = strict_json(written)
    except ValueError as error:
        return Arguments(None, written, "truncated" if cut or _ends_early(error, written) else "invalid")
    status: ParseStatus = "ok"
    if isinstance(value, str):
        try:
            value, status = strict_json(value), "double_encoded"
        except ValueError:
            return Arguments(None, written, "invalid")
    return _checked(value, written, status) if isinstance(value, dict) else Arguments(None, written, "invalid")


def strict_json(text: str) -> Any:
    """Return the value of a JSON text; ``ValueError`` for anything else: NaN, deep nesting, half a surrogate pair."""
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def shallow(value: Any, limit: int = DEEPEST) -> bool:
    """Return whether a value nests no deeper than can be written again."""
    level = [value]
    for _ in range(limit):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return True
    return False


def _checked(request: dict[str, Any], raw: str | None, status: ParseStatus) -> Arguments:
    if not shallow(request):
        return Arguments(None, None, "invalid", ("too-deep",))
    encoded = any(isinstance(each, str) and _is_object(each) for each in request.values())
    # Text that is the request itself need not be kept twice.
    kept = raw if status != "ok" else None
    return Arguments(request, kept, status, ("encoded-field",) if encoded else ())


def _is_object(text: str) -> bool:
    if not (text.startswith("{") and text.endswith("}")):
        return False
    try:
        return isinstance(strict_json(text), dict)
    except ValueError:
        return False


def _ends_early(error: ValueError, text: str) -> bool:
    """Whether the text is the beginning of a value: it fails at its end, or within a string that never ends."""
    if not isinstance(error, json.JSONDecodeError) or not text.lstrip().startswith(("{", '"')):
        return False
    return error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text[:24]} is not finite")
    return value
