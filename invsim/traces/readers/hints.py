"""The machine-readable suggestion in the answer to a failed call, whatever it is spelled like, as operations.

Known spellings, in the body itself or in its ``error``, ``detail`` or ``recovery_feedback``: under ``suggestion``,
``suggestions``, ``suggested_fix``, ``hint`` or ``fix`` an object with

- ``merge`` or ``merge_patch``, a JSON Merge Patch (RFC 7396), in which null removes a field;
- ``parameters`` or ``set``, fields to set, in which null is a value;
- ``patch`` or ``ops``, a JSON Patch (RFC 6902), of which add, replace and remove are understood;

or a list of the operations or of such objects. Text is no machine-readable suggestion.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from invsim.traces.readers.arguments import shallow
from invsim.traces.schema import Op

MOST_OPS = 200
"""Operations of one hint; a longer one is no suggestion for a request."""

_HOLDERS = ("error", "detail", "recovery_feedback")
_NAMES = ("suggestion", "suggestions", "suggested_fix", "hint", "fix")
_MERGES = ("merge", "merge_patch", "mergePatch")
_SETS = ("parameters", "set")
_PATCHES = ("patch", "json_patch", "ops")
_CONDITIONS = ("when", "if", "condition")


class Hint(NamedTuple):
    """Operations, and doubts: "null-in-merge" (removed here; a server may have meant to set it), "unknown-hint"."""

    ops: tuple[Op, ...] = ()
    warnings: tuple[str, ...] = ()


def find_hint(body: Any, request: dict[str, Any] | None) -> Hint:
    """Return what the answer to a failed call suggests.

    Parameters
    ----------
    body : object
        The answer.
    request : dict or None
        What was sent: a field that it has is replaced, another added.
    """
    if not isinstance(body, dict) or not shallow(body):
        return Hint()
    ops: list[Op] = []
    warnings: dict[str, None] = {}
    for suggestion in _suggestions(body):
        ops.extend(_ops(suggestion, request or {}, warnings))
    if len(ops) > MOST_OPS:
        return Hint(warnings=(*warnings, "unknown-hint"))
    return Hint(tuple(ops), tuple(warnings))


def _suggestions(body: dict[str, Any]) -> Iterator[Any]:
    holders = [body, *(inner for key in _HOLDERS if isinstance(inner := body.get(key), dict))]
    for holder in holders:
        for name in _NAMES:
            value = holder.get(name)
            if isinstance(value, dict | list) and value:
                yield from value if isinstance(value, list) and not _is_patch(value) else [value]
                return


def _ops(suggestion: Any, request: dict[str, Any], warnings: dict[str, None]) -> Iterator[Op]:
    if _is_patch(suggestion):
        yield from _patched(suggestion, None, warnings)
        return
    if not isinstance(suggestion, dict):
        return
    if "op" in suggestion:
        yield from _patched([suggestion], None, warnings)
        return
    when = next((each for key in _CONDITIONS if isinstance(each := suggestion.get(key), str) and each), None)
    for key, null_removes in (*((each, True) for each in _MERGES), *((each, False) for each in _SETS)):
        if isinstance(fields := suggestion.get(key), dict):
            yield from _merged(fields, request, "", when, null_removes, warnings)
            return
    for key in _PATCHES:
        if isinstance(steps := suggestion.get(key), list):
            yield from _patched(steps, when, warnings)
            return
    warnings["unknown-hint"] = None


def _is_patch(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) and "op" in each for each in value)


def _patched(steps: list[Any], when: str | None, warnings: dict[str, None]) -> Iterator[Op]:
    for step in steps:
        kind, path = (step.get("op"), step.get("path")) if isinstance(step, dict) else (None, None)
        if kind not in ("add", "replace", "remove") or not isinstance(path, str) or (path and path[0] != "/"):
            warnings["unknown-hint"] = None
            continue
        own = step.get("when")
        yield Op(kind, path, None if kind == "remove" else step.get("value"), own if isinstance(own, str) else when)


def _merged(
    fields: dict[str, Any],
    request: dict[str, Any],
    base: str,
    when: str | None,
    null_removes: bool,
    warnings: dict[str, None],
) -> Iterator[Op]:
    """Yield the operations that a merge stands for; arrays are replaced whole, objects field by field (RFC 7396)."""
    for key, value in fields.items():
        path = f"{base}/{key.replace('~', '~0').replace('/', '~1')}"
        here = request.get(key)
        if value is None and null_removes:
            warnings["null-in-merge"] = None
            yield Op("remove", path, when=when)
        elif isinstance(value, dict) and isinstance(here, dict) and null_removes:
            yield from _merged(value, here, path, when, null_removes, warnings)
        else:
            yield Op("replace" if key in request else "add", path, value, when)
