"""What a call did with what it was told: the shape of a hint, and whether the next request is as told.

Values are compared as JSON has them, with their types: 10 equals 10.0, "10" equals 10 only loosely, null is a value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from invsim.traces.schema import Fix, Op
from invsim.world.wire import Shape

NO_OP: Final = "no-op"
REMOVE: Final = "remove-a-field"
TEXT: Final = "text"

STRENGTH = (NO_OP, str(Shape.ADD), str(Shape.REWRITE), REMOVE, str(Shape.CONDITIONAL))
"""Shapes from the least to the most that they ask; a hint of several changes has the shape of the strongest."""

Result: TypeAlias = Literal[
    "applied", "loose", "partial", "other", "identical", "switched", "gave_up", "refused", "censored"
]
Injected: TypeAlias = Literal["nothing", "valid", "conflict", "stale", "unknown"]

ABSENT: Final = object()


class Answer(NamedTuple):
    """The call that followed a hint.

    Parameters
    ----------
    request : object
        Null where it is not known.
    refused : bool
        Whether the model refused.
    parse_status : str
    again : bool
        Whether it is the earlier request once more.
    """

    request: Any
    refused: bool
    parse_status: str
    again: bool = False


# Pointers and equality ----------------------------------------------------------------------------------------------


def resolve(document: Any, pointer: str) -> Any:
    """Return what a JSON Pointer (RFC 6901) points at; ``ABSENT`` for nothing. "-" is an array's last element."""
    if not pointer:
        return document
    if not pointer.startswith("/"):
        return ABSENT
    for part in pointer[1:].split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(document, dict) and name in document:
            document = document[name]
        elif isinstance(document, list | tuple) and document and name == "-":
            document = document[-1]
        elif isinstance(document, list | tuple) and _index(name) is not None and int(name) < len(document):
            document = document[int(name)]
        else:
            return ABSENT
    return document


def _index(name: str) -> int | None:
    plain = name.isascii() and name.isdigit() and (name == "0" or name[0] != "0")
    return int(name) if plain and len(name) < 10 else None


def same(left: Any, right: Any) -> bool:
    """Return whether two values are equal with their types; numbers are one type, and true is no number."""
    return _match(left, right, loosely=False)


def alike(left: Any, right: Any) -> bool:
    """Return whether two values are equal but for their types: text that says a value is that value."""
    return _match(left, right, loosely=True)


def _match(left: Any, right: Any, *, loosely: bool) -> bool:
    """Compare part by part, without recursion: what a trace holds may be nested deeply."""
    pairs = [(left, right)]
    while pairs:
        left, right = pairs.pop()
        if isinstance(left, dict) and isinstance(right, dict):
            if left.keys() != right.keys():
                return False
            pairs += [(value, right[name]) for name, value in left.items()]
        elif isinstance(left, list | tuple) and isinstance(right, list | tuple):
            if len(left) != len(right):
                return False
            pairs += zip(left, right, strict=True)
        elif loosely and isinstance(left, str) != isinstance(right, str):
            text, value = (left, right) if isinstance(left, str) else (right, left)
            pairs.append((_said(text), value))
        elif not (_alike(left, right) if loosely else _same(left, right)):
            return False
    return True


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    return (numbers or type(left) is type(right)) and bool(left == right)


def _alike(left: Any, right: Any) -> bool:
    if isinstance(left, str) and isinstance(right, str):
        return left.strip() == right.strip()
    return left is not ABSENT and bool(left == right)


def _said(text: str) -> Any:
    """Return the value that a text says in JSON; ``ABSENT`` where it says none, or another text."""
    text = text.strip()
    try:
        value = msgspec.json.decode(text.lower() if text.lower() in {"true", "false", "null"} else text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return ABSENT
    return ABSENT if isinstance(value, str) else value


def canonical(value: Any) -> str:
    """Return text that two values share exactly when they are ``same``: whole floats are written as integers."""
    return msgspec.json.encode(_whole_numbers.decode(msgspec.json.encode(value)), order="deterministic").decode()


def _number(text: str) -> float | int:
    number = float(text)
    return int(number) if number.is_integer() else number


_whole_numbers = msgspec.json.Decoder(float_hook=_number)


# Hints --------------------------------------------------------------------------------------------------------------


def _holds(op: Op, request: Any) -> bool:
    found = resolve(request, op.path)
    return found is ABSENT if op.op == "remove" else found is not ABSENT and same(found, op.value)


def _holds_loosely(op: Op, request: Any) -> bool:
    found = resolve(request, op.path)
    return found is ABSENT if op.op == "remove" else found is not ABSENT and alike(found, op.value)


def _changes(op: Op, request: Any) -> bool:
    """Whether a change would change a request; taken to where the request is not known."""
    return request is None or (op.op == "add" and op.path.endswith("/-")) or not _holds(op, request)


def _shape(op: Op, request: Any) -> str:
    if not _changes(op, request):
        return NO_OP
    if op.op == "remove":
        return REMOVE
    if op.when is not None:
        return str(Shape.CONDITIONAL)
    absent = op.op == "add" if request is None else resolve(request, op.path) is ABSENT
    return str(Shape.ADD if absent or op.path.endswith("/-") else Shape.REWRITE)


def shape_of(ops: Iterable[Op], request: Any) -> str:
    """Return the shape of a hint by what it does to the request it answers; null stands for one not known."""
    return max((_shape(op, request) for op in ops), key=STRENGTH.index, default=NO_OP)


def judge(ops: tuple[Op, ...], request: Any, answer: Answer) -> Result:
    """Return what a call did with a hint.

    Only what would change the earlier request counts, so that a request sent again is never "partial".

    Parameters
    ----------
    ops : tuple of Op
        Empty for a hint in words, which can only be told to have changed nothing.
    request : object
        The request that the hint answered; null where it is not known.
    answer : Answer
        The next one.
    """
    if answer.refused:
        return "refused"
    if answer.parse_status == "truncated":
        return "censored"
    if answer.request is None:
        return "other" if answer.parse_status == "invalid" else "censored"
    asked = [op for op in ops if _changes(op, request)]
    if (asked or not ops) and answer.again:
        return "identical"
    if not ops:
        return "other"
    held = [_holds(op, answer.request) for op in asked]
    if all(held):
        return "applied"
    held = [strictly or _holds_loosely(op, answer.request) for op, strictly in zip(asked, held, strict=True)]
    return "loose" if all(held) else "partial" if any(held) else "other"


def judge_first(fix: Fix, answer: Answer) -> Result:
    """Return what an episode's first call did with an injected fix; the request without it is not known."""
    if not fix.ops and answer.request is not None and not answer.refused and answer.parse_status != "truncated":
        return "applied"
    return judge(fix.ops, None, answer)


def injected_state(fixes: Iterable[Fix]) -> Injected:
    """Return the state of a memory block: a valid and a stale fix side by side are a conflict."""
    valid = {fix.valid for fix in fixes}
    if not valid:
        return "nothing"
    if None in valid:
        return "unknown"
    return "conflict" if len(valid) == 2 else "valid" if True in valid else "stale"
