"""What is whole in a broken JSON text: everything up to the break, and whatever objects stand after it."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

DEEPEST = 200
"""Levels of nesting beyond which nothing is read."""

_TOKEN = re.compile(r'\s*(?:("(?:[^"\\\x00-\x1f]|\\.)*")|([-+.\w]+)|([{}\[\],:]))')
_CLOSER = {"{": "}", "[": "]"}


def wanted_within(value: Any, wanted: Callable[[Any], bool]) -> Iterator[Any]:
    """Yield the outermost wanted values at or within a value, in order."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if wanted(each):
            yield each
        elif isinstance(each, dict):
            waiting.extend(reversed(each.values()))
        elif isinstance(each, list):
            waiting.extend(reversed(each))


def salvage(text: str, wanted: Callable[[Any], bool]) -> Iterator[tuple[int, Any, frozenset[int]]]:
    """Yield (offset, value, ids of the parts cut short) for the wanted values of a text that is not JSON as a whole.

    Where an object breaks off, its text up to the break is closed and read; the search goes on behind the break. What
    is half there within a wanted value (a message, a call) is left out of it. Each character is read a fixed number of
    times, so that the cost grows with the length and not with its square.
    """
    decoder = json.JSONDecoder(parse_constant=lambda _: None, parse_float=_finite, parse_int=_whole)
    at = text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
            cut: frozenset[int] = frozenset()
        except RecursionError:  # nothing that nests so deep ends within as many characters
            at = text.find("{", at + sys.getrecursionlimit() // 2)
            continue
        except ValueError as error:
            end = max(at + 1, getattr(error, "pos", at))
            value, cut = _closed(text, at, end, decoder, wanted)
        try:
            for each in wanted_within(_encodable(value), wanted):
                yield at, each, cut
        except (UnicodeEncodeError, RecursionError):  # half a surrogate pair, in what is broken anyway
            cut = frozenset()
        at = text.find("{", end)


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _whole(text: str) -> int | None:
    return int(text) if len(text) < sys.int_info.str_digits_check_threshold else None


def _encodable(value: Any) -> Any:
    """Return the value if all its text can be written, or raise."""
    json.dumps(value, ensure_ascii=False).encode()
    return value


def _closed(
    text: str, start: int, end: int, decoder: json.JSONDecoder, wanted: Callable[[Any], bool]
) -> tuple[Any, frozenset[int]]:
    """Return the value that begins at ``start`` with everything whole before ``end``, and what of it was cut."""
    stack: list[str] = []
    at, expects_value = start, True
    whole, still_open = start, ""
    while at < end and (token := _TOKEN.match(text, at, end)):
        at = token.end()
        _, scalar, mark = token.groups()
        if mark in ("{", "["):
            stack.append(mark)
            if len(stack) > DEEPEST:
                break
            expects_value = mark == "["
        elif mark in ("}", "]"):
            if _CLOSER[stack.pop()] != mark or not stack:
                break
            expects_value = False
        elif mark:
            expects_value = mark == ":" or stack[-1] == "["
            continue
        elif not expects_value or (scalar and at == end):  # a key, or a number that may go on
            continue
        else:
            expects_value = False
        whole, still_open = at, "".join(stack)
    try:
        value = decoder.decode(text[start:whole] + "".join(_CLOSER[each] for each in reversed(still_open)))
    except (ValueError, RecursionError):
        return None, frozenset()
    path = _open_path(value, len(still_open))
    _leave_out_halves(path, wanted)
    return value, frozenset(map(id, path))


def _open_path(value: Any, depth: int) -> list[Any]:
    """Return the containers that were open at the cut: the value, its last item, the last item of that, and so on."""
    path: list[Any] = []
    while len(path) < depth and isinstance(value, dict | list):
        path.append(value)
        inner = list(value.values()) if isinstance(value, dict) else value
        value = inner[-1] if inner else None
    return path


def _leave_out_halves(path: list[Any], wanted: Callable[[Any], bool]) -> None:
    """Take the objects that broke off out of what is wanted, up to the innermost array that they broke off in.

    A wanted object within a wanted one stays if it has items already, as a run's episode with messages does.
    """
    found = [at for at, each in enumerate(path) if wanted(each)]
    kept = next(
        (at for at in reversed(found) if any(isinstance(each, list) and each for each in path[at].values())), None
    )
    last = kept if kept is not None else min(found, default=len(path))
    while len(path) > last + 1 and isinstance(path[-1], dict):
        path.pop()
        holder: Any = path[-1]
        holder.pop(next(reversed(holder)) if isinstance(holder, dict) else -1)
